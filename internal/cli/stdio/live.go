package stdio

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sink"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	if m, ok := w.(*Masked); ok {
		w = m.to
	}
	if d, ok := w.(*sink.Defused); ok {
		w = d.Unwrap()
	}
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// IsBrokenPipe reports whether err says that a stream's reader has gone.
func IsBrokenPipe(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	return is(io.ErrClosedPipe) || is(exit.ErrBrokenPipe) || slices.ContainsFunc(brokenPipes, is)
}

// patience is how long a reader that is slow has, when the user has asked for the
// end, to take what there is.
const patience = time.Second

// errStalled is why output is lost that a reader has not taken.
var errStalled = errors.New("the reader did not take it before the end")

// maxUntaken bounds what is kept for a slow reader when its command has to end: far
// more than is on its way then. What is beyond is dropped, and counted.
const maxUntaken = 64 << 20 // bytes

// A Writer is the writer between a command's output and a stream of this process
// that may block for as long as its reader likes. It applies that back-pressure
// to the command until the run is over: when its context ends, or Release is
// called. From then on it keeps what the reader does not take, and never blocks;
// Flush gives it to the reader, as slow as that is.
//
// Write is for one goroutine at a time, and so is Flush, after it.
type Writer struct {
	w      io.Writer
	file   *os.File // w, if it is a pipe of our own opening with deadlines
	plain  bool     // w never waits for a reader
	broken func()   // called once when the reader has gone
	stop   func() bool

	over   chan struct{} // closed by Release
	ended  sync.Once
	failed sync.Once

	under   chan written // a write that was under way at the end; nil if there is none
	waiting int          // bytes of it
	rest    []byte       // what comes after it
	lost    int64        // bytes that no reader will take
	err     error        // of w; the first one ends all writing
}

// written is what became of a write.
type written struct {
	n   int
	err error
}

// NewWriter returns a gate in front of w for a run of ctx. Its Close is the caller's.
func NewWriter(ctx context.Context, w io.Writer, broken func()) *Writer {
	g := &Writer{w: w, broken: broken, over: make(chan struct{})}
	if f, ok := w.(*os.File); ok {
		g.plain = !mayBlock(f)
		if own := reopenPipe(f); own != nil {
			g.w, g.file = own, own
		}
	}
	g.stop = context.AfterFunc(ctx, g.Release)
	return g
}

// Close gives up what was not taken. It does not close w.
func (g *Writer) Close() {
	g.stop()
	g.Release()
	if g.file != nil {
		_ = g.file.Close()
	}
}

// Release says that the run is over. It may be called at any time.
func (g *Writer) Release() {
	g.ended.Do(func() {
		close(g.over) // first: a write that begins now must not undo what follows
		if g.file != nil {
			_ = g.file.SetWriteDeadline(time.Unix(1, 0))
		}
	})
}

func (g *Writer) isOver() bool {
	select {
	case <-g.over:
		return true
	default:
		return false
	}
}

// Write passes p on, or keeps it for Flush. After an error it only fails.
func (g *Writer) Write(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	if g.plain {
		n, err := g.w.Write(p)
		g.fail(err)
		return n, err
	}
	if g.isOver() {
		g.keep(p)
		return len(p), nil
	}
	var n int
	var err error
	if g.file != nil {
		n, err = g.file.Write(p)
	} else {
		n, err = g.writeBeside(p)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		g.keep(p[n:])
		return len(p), nil
	}
	g.fail(err)
	return n, err
}

func (g *Writer) fail(err error) {
	g.err = err
	if IsBrokenPipe(err) && g.broken != nil {
		g.failed.Do(g.broken)
	}
}

func (g *Writer) keep(p []byte) {
	n := min(len(p), maxUntaken-len(g.rest))
	g.rest = append(g.rest, p[:n]...)
	g.lost += int64(len(p) - n)
}

// writeBeside writes where a write cannot be called off: from a goroutine, which
// stays with a write that never ends.
func (g *Writer) writeBeside(p []byte) (int, error) {
	done := g.begin(bytes.Clone(p)) // p is the caller's again when we give up
	select {
	case r := <-done:
		return r.n, r.err
	case <-g.over:
		g.under, g.waiting = done, len(p)
		return len(p), nil
	}
}

func (g *Writer) begin(p []byte) chan written {
	done := make(chan written, 1)
	go func() {
		n, err := g.w.Write(p)
		done <- written{n, err}
	}()
	return done
}

// Flush ends the run, and waits until the reader has taken everything, or has gone.
// When ctx ends it waits no longer than patience. It returns how many bytes are
// lost for good; with an error it is that of the stream.
func (g *Writer) Flush(ctx context.Context) (lost int64, err error) {
	g.Release()
	switch {
	case g.plain || g.err != nil:
	case g.file != nil:
		err = g.flushFile(ctx)
	default:
		err = g.flushBeside(ctx)
	}
	if err != nil {
		g.lost += int64(g.waiting + len(g.rest))
		g.under, g.waiting, g.rest = nil, 0, nil
		g.fail(err)
	}
	return g.lost, g.err
}

func (g *Writer) flushFile(ctx context.Context) error {
	if len(g.rest) == 0 {
		return nil
	}
	_ = g.file.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = g.file.SetWriteDeadline(time.Now().Add(patience)) })
	defer stop()
	n, err := g.file.Write(g.rest)
	g.rest = g.rest[n:]
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errStalled
	}
	return err
}

func (g *Writer) flushBeside(ctx context.Context) error {
	for {
		if g.under == nil {
			if len(g.rest) == 0 {
				return nil
			}
			g.under, g.waiting, g.rest = g.begin(g.rest), len(g.rest), nil
		}
		r, ok := awaitWritten(ctx, g.under)
		if !ok {
			return errStalled
		}
		g.under, g.waiting = nil, g.waiting-r.n
		if r.err != nil {
			return r.err
		}
	}
}

// awaitWritten waits for a write, and for patience when ctx has ended.
func awaitWritten(ctx context.Context, done chan written) (written, bool) {
	select {
	case r := <-done:
		return r, true
	case <-ctx.Done():
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case r := <-done:
		return r, true
	case <-late.C:
		return written{}, false
	}
}

// mayBlock reports whether a write to f can wait for a reader.
func mayBlock(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	return info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 || IsTerminal(f)
}

// Live is a stream of this process as a command's output goes to it: made safe
// for a terminal, guarded in a CI job, byte by byte for everything else.
type Live struct {
	io.Writer
	to   *Writer
	ends []func() // what still waits for more, from the command to the gate
}

// NewLive makes the way to w. Its flush and its close must be called when the
// run has ended.
func (s *Streams) NewLive(ctx context.Context, w io.Writer, broken func()) *Live {
	w = PastMasks(w) // the command's output is masked before it comes here
	g := NewWriter(ctx, Raw(w), broken)
	out := &Live{Writer: g, to: g}
	if log, ok := w.(*sink.Defused); ok {
		guarded := log.With(g)
		out.Writer, out.ends = guarded, append(out.ends, func() { _ = guarded.Close() })
	}
	if IsTerminal(w) {
		safe := sink.NewSafeText(out.Writer, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible}, s.masks())
		out.Writer, out.ends = safe, append([]func(){func() { _ = safe.Close() }}, out.ends...)
	}
	return out
}

// Close gives up what was not taken.
func (l *Live) Close() { l.to.Close() }

// Release is what package sink calls when the command has to end.
func (l *Live) Release() { l.to.Release() }

// Flush waits for the reader as gate.Flush does.
func (l *Live) Flush(ctx context.Context) (lost int64, err error) {
	l.to.Release()
	for _, end := range l.ends {
		end()
	}
	return l.to.Flush(ctx)
}

// FlushAll flushes streams side by side: they may have one reader.
func FlushAll(ctx context.Context, streams ...*Live) (lost int64, err error) {
	type flushed struct {
		lost int64
		err  error
	}
	all := make(chan flushed, len(streams))
	for _, l := range streams {
		go func() {
			lost, err := l.Flush(ctx)
			all <- flushed{lost, err}
		}()
	}
	for range streams {
		one := <-all
		lost, err = lost+one.lost, cmp.Or(err, one.err)
	}
	return lost, err
}

// Undelivered says how much of the output was not read, and makes an end that would
// be a success another one.
func (s *Streams) Undelivered(ctx context.Context, lost int64, err, status error) error {
	if lost == 0 && err == nil {
		return status
	}
	text := "output could not be written"
	if lost > 0 {
		text = fmt.Sprintf("%d bytes of output were not taken and are lost", lost)
	}
	if err != nil {
		text += ": " + err.Error()
	}
	fmt.Fprintf(s.Stderr, "sandboxbash: %s\n", s.Clean(text))
	switch {
	case ctx.Err() != nil:
		return exit.StatusError(exit.Cancelled)
	case status == nil:
		return exit.StatusError(exit.Engine)
	}
	return status
}
