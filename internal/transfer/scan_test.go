package transfer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// old makes files old enough for an index.
func old(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		at := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func scan(t *testing.T, dir string, known Index) *Scan {
	t.Helper()
	s, err := OpenScan(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.begun = s.begun.Add(time.Minute) // as if the files had been changed a minute ago
	if err := errors.Join(s.Read(t.Context(), known), s.Close()); err != nil {
		t.Fatal(err)
	}
	return s
}

// A scan finds what a packer packs.
func TestScanIsPacked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{
		"a": "1", "d/b": "22", "d-e": "", "empty/": "", "l -> d/b": "", ".env": "secret", "x/.ssh/id_rsa": "secret", ".git/HEAD": "ref: x\n",
		".git/config": "[http]\n\textraheader = AUTHORIZATION: basic c2VjcmV0\n[core]\n\tbare = false\n",
	})
	var buf bytes.Buffer
	out := NewPacker(&buf)
	out.Record = true
	out.begun = out.begun.Add(time.Minute)
	if err := errors.Join(out.Tree(dir), out.Close()); err != nil {
		t.Fatal(err)
	}
	plant(t, dir, map[string]string{".git/index.lock": "", applyDir + "/x": "", stagePrefix + "1/x": ""})
	got := scan(t, dir, nil)
	if diff := cmp.Diff(NewState(out.Packed), got.State); diff != "" {
		t.Errorf("a scan (-packed +found):\n%s", diff)
	}
	if diff := cmp.Diff(out.Stamps, got.Index); diff != "" {
		t.Errorf("the index (-packed +found):\n%s", diff)
	}
	if again := scan(t, dir, out.Stamps); runtime.GOOS != "windows" && again.Files != 0 {
		t.Errorf("%d files were read although the index has them", again.Files)
	}
	index, err := ParseIndex(got.Index.Append(nil))
	if diff := cmp.Diff(got.Index, index); diff != "" || err != nil {
		t.Errorf("ParseIndex(Append()) = %v (-want +got):\n%s", err, diff)
	}
}

// A file is read again after any change of it, also where its size and time of modification are
// as before.
func TestScanNotices(t *testing.T) {
	t.Parallel()
	probe := filepath.Join(t.TempDir(), "probe")
	clock := func() time.Time { // the kernel's, which times files in steps of some milliseconds
		if err := os.WriteFile(probe, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(probe)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	for name, change := range map[string]func(file string) error{
		"written": func(file string) error { return os.WriteFile(file, []byte("2"), 0o600) },
		"replaced": func(file string) error {
			return errors.Join(os.WriteFile(file+"2", []byte("2"), 0o600), os.Rename(file+"2", file))
		},
		"longer":       func(file string) error { return os.WriteFile(file, []byte("11"), 0o600) },
		"in its place": func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
	} {
		dir := t.TempDir()
		plant(t, dir, map[string]string{"f": "1", "g": "1"})
		old(t, dir, "f", "g")
		info, err := os.Stat(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		first := scan(t, dir, nil)
		for start := clock(); !clock().After(start); {
			time.Sleep(time.Millisecond)
		}
		if err := errors.Join(change(filepath.Join(dir, "f")), os.Chtimes(filepath.Join(dir, "f"), info.ModTime(), info.ModTime())); err != nil {
			t.Fatal(err)
		}
		second := scan(t, dir, first.Index)
		was, _ := first.State.Find("f")
		now, _ := second.State.Find("f")
		if was.Same(now) {
			t.Errorf("%s: the change is not noticed", name)
		}
		if runtime.GOOS != "windows" && second.Files > 1 {
			t.Errorf("%s: %d files were read", name, second.Files)
		}
	}
}

// A file that was changed just before it was read may change again without a trace: it is not part of
// an index.
func TestIndexRacy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "1"})
	s, err := OpenScan(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Read(t.Context(), nil), s.Close()); err != nil || len(s.Index) != 0 || len(s.State) != 1 {
		t.Errorf("the index has %v, %v; want nothing", s.Index, err)
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(indexVersion))
	f.Add(Index{"a": {Stamp: Stamp{1, 2, 3, 4}, Length: 5}, "b/c": {}}.Append(nil))
	f.Add([]byte(indexVersion + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseIndex(b)
		if err != nil {
			return
		}
		again, err := ParseIndex(x.Append(nil))
		if diff := cmp.Diff(x, again); err != nil || diff != "" {
			t.Errorf("ParseIndex(Append()) = %v:\n%s", err, diff)
		}
	})
}
