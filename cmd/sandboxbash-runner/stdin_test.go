//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// asked reads the frames that a runner has sent, and returns the sizes that it asked for.
func asked(t *testing.T, b []byte, seq uint64) (sizes []uint64) {
	t.Helper()
	in := wire.NewReader(bytes.NewReader(b))
	for {
		kind, payload, err := in.Next()
		if err != nil {
			return sizes
		}
		taken, err := wire.ParseTaken(payload)
		if kind != wire.TypeTaken || err != nil || taken.Seq != seq {
			t.Fatalf("frame %q %+v, %v; want a Taken of command %d", kind, taken, err, seq)
		}
		sizes = append(sizes, taken.Bytes)
	}
}

// The runner keeps no more than the window in memory, whatever the host sends.
func TestStdinWindow(t *testing.T) {
	t.Parallel()
	p := newStdinPipe(newFrameWriter(io.Discard), 1)
	for range 2 * wire.StdinWindow / wire.MaxPayload {
		p.push(make([]byte, wire.MaxPayload))
	}
	p.push([]byte("x"))
	if p.size != wire.StdinWindow {
		t.Errorf("%d bytes are queued; want %d", p.size, wire.StdinWindow)
	}
	p.end()
	p.push(nil)
	if len(p.queue) != wire.StdinWindow/wire.MaxPayload {
		t.Errorf("%d pieces are queued behind the end; want none", len(p.queue)-wire.StdinWindow/wire.MaxPayload)
	}
}

// What is pushed reaches the command in order, and the host is asked for as much again as
// the command's pipe has taken. The order of push, end and pump does not matter.
func TestStdinPump(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		before []string // pushed before the command has started
		after  []string // pushed when the pump has asked
		early  bool     // the end comes before the start
		want   string
	}{
		{"nothing", nil, nil, false, ""},
		{"nothing, and ended early", nil, nil, true, ""},
		{"before the start", []string{"one ", "two"}, nil, false, "one two"},
		{"before the start, and ended early", []string{"one ", "two"}, nil, true, "one two"},
		{"as it goes", nil, []string{"one ", "two ", "three"}, false, "one two three"},
		{"both", []string{"one "}, []string{"two"}, false, "one two"},
		{"an empty piece", []string{""}, []string{"", "x"}, false, "x"},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var frames bytes.Buffer
		p := newStdinPipe(newFrameWriter(&frames), 3)
		p.w = w
		pieces := 0
		for _, b := range row.before {
			p.push([]byte(b))
			pieces++
		}
		if row.early {
			p.end()
		}
		pumped := make(chan struct{})
		go func() {
			defer close(pumped)
			p.pump()
		}()
		for _, b := range row.after {
			p.push([]byte(b))
			pieces++
		}
		p.end()
		got, err := io.ReadAll(r) // ends when the pump closes its end
		<-pumped
		r.Close()
		if err != nil || string(got) != row.want {
			t.Errorf("%s: the command reads %q, %v; want %q", row.name, got, err, row.want)
		}
		sizes := asked(t, frames.Bytes(), 3)
		var sum uint64
		for _, n := range sizes {
			sum += n
		}
		if len(sizes) != 1+pieces || sizes[0] != wire.StdinWindow || sum != wire.StdinWindow+uint64(len(row.want)) {
			t.Errorf("%s: asked for %v; want the window, and then what was taken of %d pieces", row.name, sizes, pieces)
		}
	}
}

// A caller's memory is used for the next frame as soon as push has returned.
func TestStdinPushCopies(t *testing.T) {
	t.Parallel()
	p := newStdinPipe(newFrameWriter(io.Discard), 1)
	frame := []byte("mine")
	p.push(frame)
	copy(frame, "XXXX")
	if string(p.queue[0]) != "mine" {
		t.Errorf("%q is queued; want mine", p.queue[0])
	}
}

// The pump ends when no process reads any more, and when the pipe is closed under it.
func TestStdinPumpEnds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		end  func(p *stdinPipe, reader *os.File)
		push int // bytes
	}{
		{"no reader", func(_ *stdinPipe, r *os.File) { r.Close() }, 10},
		{"no reader of a write under way", func(_ *stdinPipe, r *os.File) { r.Close() }, wire.StdinWindow},
		{"closed while it writes", func(p *stdinPipe, _ *os.File) { p.close() }, wire.StdinWindow},
		{"ended and closed, as after a command", func(p *stdinPipe, _ *os.File) { p.end(); p.close() }, wire.StdinWindow},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := newStdinPipe(newFrameWriter(io.Discard), 1)
		p.w = w
		pumped := make(chan struct{})
		go func() {
			defer close(pumped)
			p.pump()
		}()
		if row.push > 100 {
			p.push(make([]byte, row.push)) // more than a pipe holds: it blocks
			time.Sleep(5 * time.Millisecond)
			row.end(p, r)
		} else {
			row.end(p, r)
			p.push(make([]byte, row.push))
		}
		select {
		case <-pumped:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the pump goes on", row.name)
		}
		p.close() // once more is harmless
		r.Close()
	}
	newStdinPipe(nil, 1).close() // as is a pipe that was never opened
}

// An idle pump waits: it neither spins nor asks again.
func TestStdinPumpIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var frames bytes.Buffer
		p := newStdinPipe(newFrameWriter(&frames), 1)
		pumped := make(chan struct{})
		go func() {
			defer close(pumped)
			p.pump()
		}()
		synctest.Wait() // returns only if the pump blocks
		if got := asked(t, frames.Bytes(), 1); len(got) != 1 {
			t.Errorf("asked for %v; want the window once", got)
		}
		p.end()
		<-pumped
	})
}
