package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sandboxbash/sandboxbash/sink"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	if d, ok := w.(*sink.Defused); ok {
		w = d.Unwrap()
	}
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// isBrokenPipe reports whether err says that a stream's reader has gone.
func isBrokenPipe(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	return is(io.ErrClosedPipe) || is(errBrokenPipe) || slices.ContainsFunc(brokenPipes, is)
}

// patience is how long a write that is under way may still take when the run
// that it belongs to is over: a reader that is slow gets the end, one that has
// stopped does not hold up the program.
const patience = time.Second

// errStalled is a write that nobody has taken in time.
var errStalled = errors.New("nobody takes the output")

// A gate is the writer between a command's output and a stream of this process
// that may block for as long as its reader likes. It applies that back-pressure
// to the command until the run is over, and gives up soon after.
//
// A run is over when its context ends, or at its deadline, which begins with
// the first byte at the latest: a command that has waited in its session's queue
// has started later than the run. Write is for one goroutine at a time.
type gate struct {
	w       io.Writer
	file    *os.File // w, if it is a pipe of our own opening with deadlines
	plain   bool     // w never waits for a reader
	timeout time.Duration
	broken  func()        // called once when the reader has gone
	wait    time.Duration // patience; tests have less

	deadline time.Time     // Write's
	over     chan struct{} // closed by end
	ended    sync.Once
	failed   sync.Once
}

// newGate returns a gate in front of w for a run of ctx that starts now.
func newGate(ctx context.Context, w io.Writer, timeout time.Duration, broken func()) (*gate, func()) {
	g := &gate{w: w, timeout: timeout, broken: broken, wait: patience, deadline: time.Now().Add(timeout), over: make(chan struct{})}
	if f, ok := w.(*os.File); ok {
		g.plain = !mayBlock(f)
		if own := reopenPipe(f); own != nil {
			g.w, g.file = own, own
		}
	}
	stop := context.AfterFunc(ctx, g.end)
	return g, func() {
		stop()
		if g.file != nil {
			_ = g.file.Close()
		}
	}
}

// end says that the run is over.
func (g *gate) end() {
	g.ended.Do(func() {
		close(g.over) // first: a write that begins now must not undo what follows
		if g.file != nil {
			_ = g.file.SetWriteDeadline(time.Now().Add(g.wait))
		}
	})
}

// Write passes p on. After an error it must not be called again.
func (g *gate) Write(p []byte) (int, error) {
	n, err := g.write(p)
	if err != nil && isBrokenPipe(err) && g.broken != nil {
		g.failed.Do(g.broken)
	}
	return n, err
}

func (g *gate) write(p []byte) (int, error) {
	if g.plain {
		return g.w.Write(p)
	}
	until := g.until()
	if g.file != nil {
		_ = g.file.SetWriteDeadline(until.Add(g.wait))
		select {
		case <-g.over:
			_ = g.file.SetWriteDeadline(time.Now().Add(g.wait))
		default:
		}
		n, err := g.file.Write(p)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errStalled
		}
		return n, err
	}
	return g.writeBeside(p, until)
}

// until is when the run is over at the latest, for a write that begins now.
func (g *gate) until() time.Time {
	now := time.Now()
	select {
	case <-g.over:
		return now
	default:
	}
	if now.After(g.deadline) {
		g.deadline = now.Add(g.timeout)
	}
	return g.deadline
}

// writeBeside writes where a write cannot be called off: from a goroutine, which
// stays with a write that never ends.
func (g *gate) writeBeside(p []byte, until time.Time) (int, error) {
	type written struct {
		n   int
		err error
	}
	own := append([]byte(nil), p...) // p is the caller's again when we give up
	done := make(chan written, 1)
	go func() {
		n, err := g.w.Write(own)
		done <- written{n, err}
	}()
	late := time.NewTimer(time.Until(until) + g.wait)
	defer late.Stop()
	over := g.over
	for {
		select {
		case r := <-done:
			return r.n, r.err
		case <-late.C:
			return 0, errStalled
		case <-over:
			over = nil
			late.Reset(g.wait)
		}
	}
}

// mayBlock reports whether a write to f can wait for a reader.
func mayBlock(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	return info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 || isTerminal(f)
}

// live is a stream of this process as a command's output goes to it: made safe
// for a terminal, guarded in a CI job, byte by byte for everything else.
type live struct {
	io.Writer
	close func()
}

// newLive makes the way to w. Its close must be called when the run has ended.
func (a *app) newLive(ctx context.Context, w io.Writer, broken func()) live {
	g, closeGate := newGate(ctx, raw(w), a.cfg.Timeout, broken)
	out := live{g, closeGate}
	if log, ok := w.(*sink.Defused); ok {
		guarded := log.With(g)
		out = live{guarded, func() {
			_ = guarded.Close() // while the gate still bounds it
			closeGate()
		}}
	}
	if !isTerminal(w) {
		return out
	}
	safe := sink.NewSafeText(out, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible}, a.masks)
	return live{safe, func() {
		_ = safe.Close()
		out.close()
	}}
}
