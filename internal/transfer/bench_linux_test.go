package transfer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manyFiles makes 10,000 files of two kilobytes in 100 directories.
func manyFiles(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	text := strings.Repeat("a line of a text that is not long\n", 60)
	for i := range 10000 {
		name := filepath.Join(dir, fmt.Sprintf("d%d/f%d", i/100, i%100))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, fmt.Append(nil, text, i), 0o600)); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// What the session's end of a diff does.
func BenchmarkManifest(b *testing.B) {
	dir := manyFiles(b)
	for b.Loop() {
		if err := Manifest(io.Discard, dir, DefaultLimits); err != nil {
			b.Fatal(err)
		}
	}
}

// What this machine's end of a sync without changes does.
func BenchmarkScan(b *testing.B) {
	dir := manyFiles(b)
	scan := func(known Index) *Scan {
		s, err := OpenScan(dir)
		if err != nil {
			b.Fatal(err)
		}
		s.begun = s.begun.Add(time.Minute)
		if err := errors.Join(s.Read(b.Context(), known), s.Close()); err != nil {
			b.Fatal(err)
		}
		return s
	}
	first := scan(nil)
	state, index := first.State.Append(nil), first.Index.Append(nil)
	b.SetBytes(int64(len(state) + len(index)))
	for b.Loop() {
		base, err := ParseState(state)
		if err != nil {
			b.Fatal(err)
		}
		known, err := ParseIndex(index)
		if err != nil {
			b.Fatal(err)
		}
		if s := scan(known); s.Files != 0 || len(Deltas(base, s.State)) != 0 {
			b.Fatalf("%d files were read", s.Files)
		}
	}
}
