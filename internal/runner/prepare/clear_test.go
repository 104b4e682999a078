//go:build linux

package prepare

import (
	"errors"
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

// A file, or a link to a directory, is refused, and is left as it is.
func TestClearRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.Mkdir(at("full"), 0o700), os.WriteFile(at("full/kept"), nil, 0o600), os.Symlink("full", at("link")), os.WriteFile(at("file"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		want error // nil: any
	}{
		{[]string{at("link")}, unix.ENOTDIR},
		{[]string{at("file")}, unix.ENOTDIR},
		{[]string{at("none")}, unix.ENOENT},
		{nil, nil},
		{[]string{at("full"), at("full")}, nil},
	} {
		if err := Clear(row.args); err == nil || row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("Clear(%q) = %v; want %v", row.args, err, row.want)
		}
	}
	for _, name := range []string{"full/kept", "link", "file"} {
		if _, err := os.Lstat(at(name)); err != nil {
			t.Errorf("%s: %v; want it untouched", name, err)
		}
	}
	if err := Clear([]string{at("full")}); err != nil {
		t.Errorf("Clear() = %v; want nil", err)
	}
	if err := Clear([]string{at("full")}); err != nil {
		t.Errorf("Clear() of an empty directory = %v; want nil", err)
	}
}

// A directory that another process fills again while it is emptied is an error or is empty in
// the end; nothing is removed elsewhere.
func TestClearLoses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 50 {
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i), "a", "b"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cleared := make(chan error, 1)
	go func() { cleared <- Clear([]string{dir}) }()
	for i := range 50 { // some of them are gone by now, or have moved
		_ = os.RemoveAll(filepath.Join(dir, strconv.Itoa(i), "a"))
	}
	if err := <-cleared; err != nil && !errors.Is(err, unix.ENOENT) {
		t.Errorf("Clear() during another removal = %v; want nil, or that something was gone", err)
	} else if list, readErr := os.ReadDir(dir); err == nil && (len(list) != 0 || readErr != nil) {
		t.Errorf("Clear() = nil, and left %v, %v; want nothing", list, readErr)
	}
}
