//go:build unix

package transfer

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Naming a FIFO, a socket or a device must fail, and not wait for a writer.
func TestPackerNamedSpecial(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{fifo, "/dev/zero"} {
		done := make(chan error, 1)
		go func() { done <- NewPacker(io.Discard).Named(src) }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("Named(%s) = nil; want an error", src)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("Named(%s) waits", src)
			if f, err := os.OpenFile(src, os.O_RDWR, 0); err == nil { // let it go
				t.Log(<-done, f.Close())
			}
		}
	}
}

// In a tree they are left out.
func TestPackerSpecialInTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "x"})
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	out := NewPacker(&buf)
	if err := errors.Join(out.Tree(dir), out.Close()); err != nil {
		t.Fatal(err)
	}
	if got := list(t, &buf); len(got) != 1 || got["f"] != "x" {
		t.Errorf("the archive has %q; want f only", got)
	}
}
