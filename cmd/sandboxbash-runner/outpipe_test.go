//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A command has ended, its host is slow, and a child holds the pipe: all that the
// command has written is sent, however late, also behind what was read before its
// end and not yet taken.
func TestPumpOwes(t *testing.T) {
	t.Parallel()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, err := pollable(fds[0], "output")
	if err != nil {
		t.Fatal(err)
	}
	w := os.NewFile(uintptr(fds[1]), "command")
	defer w.Close() // as a child holds it
	defer r.Close()
	part := bytes.Repeat([]byte("x"), 16<<10)
	fromHost, toHost := io.Pipe()
	p := &outPipe{kind: wire.TypeStdout, r: r}
	leader := make(chan struct{})
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		defer func() { _ = toHost.Close() }() // a pipe's never fails
		var room []byte
		p.pump(newFrameWriter(toHost), &room, leader)
	}()
	if _, err := w.Write(part); err != nil {
		t.Fatal(err)
	}
	// The first byte at the host means that the first part was read, and waits.
	if _, err := fromHost.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(part); err != nil {
		t.Fatal(err)
	}
	close(leader)
	p.finish()
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil { // its time is over before the host takes more
		t.Fatal(err)
	}
	rest, err := io.ReadAll(fromHost)
	<-pumped
	if want := 2*len(part) + 2*wire.HeaderSize - 1; err != nil || len(rest) != want || p.sent.Load() != uint64(2*len(part)) {
		t.Errorf("the host got %d bytes, %v, of %d that were sent; want %d", len(rest), err, p.sent.Load(), want)
	}
}
