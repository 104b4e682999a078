//go:build linux

package prepare

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever is in a directory goes, and nothing outside of it.
func TestClearDir(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	kept := filepath.Join(outside, "kept")
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(kept)
	deep := dir
	for i := range 60 {
		deep = filepath.Join(deep, "d")
		if err := os.Mkdir(deep, 0o700); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(deep, "f"+strconv.Itoa(i)))
		write(filepath.Join(deep, ".clear-"+strconv.Itoa(i))) // names that it would choose itself
	}
	for i := range someNames + 10 {
		write(filepath.Join(dir, "many"+strconv.Itoa(i)))
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "shut"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Clear([]string{dir}); err != nil {
		t.Fatalf("Clear() = %v; want nil", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("Clear() left %v, %v; want nothing", left, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file behind a link: %v; want it untouched", err)
	}
}
