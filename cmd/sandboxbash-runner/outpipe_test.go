//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"strings"
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

// pumped runs a pump on a pipe of its own, and then sends an Exit. The steps play the command
// and the runner. The results are the text that the host got, and the number of writes
// before that of the Exit.
func pumped(t *testing.T, j *job, steps func(w *os.File, p *outPipe, leader chan struct{})) (p *outPipe, text string, writes int) {
	t.Helper()
	p, w, err := newOutPipe(wire.TypeStdout, j)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	defer w.Close()
	var host written
	out := newFrameWriter(&host)
	leader := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var room []byte
		p.pump(out, &room, leader) //nolint:revive // the caller waits for the channel
	}()
	steps(w, p, leader)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the pump goes on")
	}
	writes = len(host.calls)
	out.send(wire.TypeExit, nil)
	in := wire.NewReader(strings.NewReader(strings.Join(host.calls, "")))
	for {
		kind, payload, err := in.Next()
		if err != nil {
			t.Fatalf("before the Exit: %v", err)
		}
		if kind == wire.TypeExit {
			return p, text, writes
		}
		if kind != wire.TypeStdout || len(payload) == 0 {
			t.Fatalf("frame %q of %d bytes; want output", kind, len(payload))
		}
		text += string(payload)
	}
}

// write writes to a pipe as a command does.
func write(t *testing.T, w *os.File, text string) {
	t.Helper()
	if _, err := w.WriteString(text); err != nil {
		t.Error(err)
	}
}

// unread waits until the pump has taken all from the pipe.
func unread(t *testing.T, p *outPipe) {
	t.Helper()
	eventually(t, "the pump has read", func() bool {
		n := -1
		p.control(func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.TIOCINQ) })
		return n == 0
	})
}

// A pump sends what comes until no writer is left, or until its time after the command's
// end is over if a child holds the pipe.
func TestPump(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 3*wire.MaxPayload+17)
	for _, row := range []struct {
		name  string
		steps func(w *os.File, p *outPipe, leader chan struct{})
		want  string
		ended bool // no writer is left
		tries int  // more than one if a busy machine may be too late for drainTime
	}{
		{"nothing", func(w *os.File, _ *outPipe, _ chan struct{}) { w.Close() }, "", true, 1},
		{"a line", func(w *os.File, _ *outPipe, _ chan struct{}) { write(t, w, "line\n"); w.Close() }, "line\n", true, 1},
		{"more than a frame holds", func(w *os.File, _ *outPipe, _ chan struct{}) { write(t, w, large); w.Close() }, large, true, 1},
		{"the command ends, and a child holds the pipe", func(w *os.File, p *outPipe, leader chan struct{}) {
			write(t, w, "line\n")
			close(leader)
			p.finish()
		}, "line\n", false, 1},
		{"the child goes before the time is over", func(w *os.File, p *outPipe, leader chan struct{}) {
			close(leader)
			p.finish()
			write(t, w, "late\n")
			w.Close()
		}, "late\n", true, 5},
		{"the child writes soon enough", func(w *os.File, p *outPipe, leader chan struct{}) {
			close(leader)
			p.finish()
			write(t, w, "soon\n")
		}, "soon\n", false, 5},
	} {
		p, got, _ := pumped(t, nil, row.steps)
		for try := 1; try < row.tries && got != row.want; try++ {
			p, got, _ = pumped(t, nil, row.steps)
		}
		if got != row.want || p.sent.Load() != uint64(len(row.want)) || p.ended != row.ended {
			t.Errorf("%s: %d bytes of %d arrived, ended %t; want %d, %t", row.name, len(got), p.sent.Load(), p.ended, len(row.want), row.ended)
		}
	}
	var none *outPipe // as standard error when merged
	none.finish()
	none.close()
}

// Small output just before the command's end travels with its Exit; while the command goes
// on, it is not held back.
func TestPumpHolds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		text string
		ends bool // the command has ended
		held bool
	}{
		{"last words", "bye\n", true, true},
		{"words on the way", "on\n", false, false},
		{"much at the end", strings.Repeat("x", smallChunk), true, false},
	} {
		_, got, writes := pumped(t, nil, func(w *os.File, _ *outPipe, leader chan struct{}) {
			if row.ends {
				close(leader)
			}
			write(t, w, row.text)
			w.Close()
		})
		if got != row.text || writes == 0 != row.held {
			t.Errorf("%s: %d bytes arrived, in %d writes before the Exit; want %d, held %t", row.name, len(got), writes, len(row.text), row.held)
		}
	}
}

// A command with a job has all output in its file; its host has what came before the
// hand-over, and not a byte more.
func TestPumpJob(t *testing.T) {
	t.Parallel()
	for _, handed := range []bool{false, true} {
		s, name := newSpool(t, 1000)
		j := &job{spool: s}
		p, got, _ := pumped(t, j, func(w *os.File, p *outPipe, leader chan struct{}) {
			write(t, w, "before\n")
			eventually(t, "the first line is sent", func() bool { return p.sent.Load() == 7 })
			if handed {
				j.mu.Lock()
				j.phase = handedOver
				j.mu.Unlock()
			}
			write(t, w, "after\n")
			unread(t, p)
			close(leader)
			p.finish()
		})
		want := "before\n"
		if !handed {
			want += "after\n"
		}
		if got != want || p.sent.Load() != uint64(len(want)) {
			t.Errorf("handed over %t: the host got %q, and %d bytes count as sent; want %q", handed, got, p.sent.Load(), want)
		}
		if kept, err := os.ReadFile(name); string(kept) != "before\nafter\n" || err != nil {
			t.Errorf("handed over %t: the file holds %q, %v; want both lines", handed, kept, err)
		}
	}
}

// The pipe of a command that writes much is made larger; that of any other is not.
func TestPumpGrows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		size  int
		grown bool
	}{{100, false}, {256 << 10, true}} {
		size := 0
		pumped(t, nil, func(w *os.File, p *outPipe, _ chan struct{}) {
			write(t, w, strings.Repeat("x", row.size))
			unread(t, p)
			eventually(t, "all of it is sent", func() bool { return p.sent.Load() == uint64(row.size) })
			write(t, w, "y") // what was read before has been dealt with
			unread(t, p)
			size, _ = unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
			w.Close()
		})
		if got := size >= pipeSize; got != row.grown {
			t.Errorf("after %d bytes the pipe holds %d; want it grown: %t", row.size, size, row.grown)
		}
	}
}

// The session's user may open the pipes by their paths, to write; it has no other right.
func TestOpenPipeMode(t *testing.T) {
	t.Parallel()
	r, w, err := openPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(r)
	defer unix.Close(w)
	for _, fd := range []int{r, w} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o777 != 0o666 {
			t.Errorf("the mode of descriptor %d is %o, %v; want 666", fd, st.Mode&0o777, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d is inherited by every command", fd)
		}
	}
}
