//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func newSpool(t *testing.T, limit uint64) (*spool, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return &spool{f: f, limit: limit}, name
}

// The file has the first bytes up to the limit, and says how many are missing.
func TestSpoolLimit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		limit  uint64
		writes []string
		kept   string
		missed string
	}{
		{10, []string{"12345", "67890"}, "1234567890", ""},
		{10, []string{"12345", "678901"}, "1234567890", "[1 bytes of output were not kept: the limit is 10 bytes]"},
		{10, []string{"123456789", "abc", "d", "e"}, "123456789a", "[4 bytes of output were not kept: the limit is 10 bytes]"},
		{0, []string{"x"}, "", "[1 bytes of output were not kept: the limit is 0 bytes]"},
		{10, nil, "", ""},
	} {
		s, name := newSpool(t, row.limit)
		for _, w := range row.writes {
			s.write([]byte(w))
		}
		if s.kept != uint64(len(row.kept)) || s.written != uint64(len(strings.Join(row.writes, ""))) || s.full {
			t.Errorf("limit %d, %q: %d of %d bytes kept, full %t", row.limit, row.writes, s.kept, s.written, s.full)
		}
		s.sign(wire.JobEnd{Written: s.written, Kept: s.kept})
		want := row.kept
		if row.missed != "" {
			want += "\n\n" + row.missed
		}
		want += "\n\n[background process completed]\n"
		if got, err := os.ReadFile(name); string(got) != want || err != nil {
			t.Errorf("limit %d, %q: the file holds %q, %v; want %q", row.limit, row.writes, got, err, want)
		}
	}
}

// A disk without room never fails the command, and nothing is kept behind a gap.
func TestSpoolFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &spool{f: full, limit: 100}
	s.write([]byte("lost"))
	file, name := newSpool(t, 100)
	s.f = file.f // there is room again
	s.write([]byte("more"))
	if s.kept != 0 || s.written != 8 || !s.full {
		t.Errorf("%d of %d bytes kept, full %t; want 0 of 8, full", s.kept, s.written, s.full)
	}
	s.sign(wire.JobEnd{Written: s.written, Kept: s.kept, Full: s.full, Code: 1})
	want := "\n\n[8 bytes of output were not kept: the disk is full]\n\n[background process failed: exit status: 1]\n"
	if got, err := os.ReadFile(name); string(got) != want || err != nil {
		t.Errorf("the file holds %q, %v; want %q", got, err, want)
	}
}
