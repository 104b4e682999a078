package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l := open(t, filepath.Join(dir, "audit"), Options{})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 128<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	command := string(bytes.Repeat([]byte("x"), 3000))
	failed := 0
	for range 100 {
		if err := l.Append(Record{Kind: Outcome, Command: command}); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("the disk never was full")
	}
	if r := verify(t, l.dir, ""); len(r.Problems) > 0 {
		t.Errorf("problems on a full disk: %q", r.Problems)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	add(t, l, "a")
	if r := verify(t, l.dir, ""); len(r.Problems) > 0 || r.Missed != int64(failed) || r.Records != 100-failed+1 {
		t.Errorf("Verify() = %+v; want %d missed and no problem", r, failed)
	}
}
