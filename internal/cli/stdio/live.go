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

	"github.com/sandboxbash/sandboxbash/internal/background"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sink"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	fd, ok := descriptor(w)
	return ok && term.IsTerminal(fd)
}

// Width is the width in columns of the terminal that w is, 0 if it is none or its width is unknown.
func Width(w any) int {
	fd, ok := descriptor(w)
	if !ok {
		return 0
	}
	cols, _, err := term.GetSize(fd)
	if err != nil {
		return 0
	}
	return cols
}

// descriptor is that of the file behind a stream.
func descriptor(w any) (fd int, ok bool) {
	if m, ok := w.(*Masked); ok {
		w = m.to
	}
	if d, ok := w.(*sink.Defused); ok {
		w = d.Unwrap()
	}
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0, false
	}
	return int(f.Fd()), true
}

// IsBrokenPipe reports whether err says that a stream's reader has gone.
func IsBrokenPipe(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	return is(io.ErrClosedPipe) || is(exit.ErrBrokenPipe) || slices.ContainsFunc(brokenPipes, is)
}

// patience is how long a slow reader has to take the rest of the output after the user has
// asked for the end.
const patience = time.Second

// errStalled is the error of output that its reader did not take in time.
var errStalled = errors.New("the reader did not take it before the end")

// maxUntaken bounds what is kept for a slow reader once its command has to end: far more than
// is in flight then. The rest is dropped, and counted.
const maxUntaken = 64 << 20 // bytes

// A Writer writes a command's output to a stream of this process, whose reader may block it
// for any time. Until the run is over, which is when its context ends or Release is called,
// Write blocks with the reader, and so the command does. From then on Write never blocks:
// it keeps what the reader does not take, and Flush writes that out. A Writer is a
// sink.Releaser, and so package sink does not give it up.
//
// Write and Flush must not be called concurrently.
type Writer struct {
	w      io.Writer
	file   *os.File           // w, if it is a pipe of our own opening with deadlines
	plain  bool               // w never waits for a reader
	back   *background.Writer // to w, for writes that cannot be interrupted
	broken func()             // called once when the reader has gone
	stop   func() bool

	over   chan struct{} // closed by Release
	ended  sync.Once
	failed sync.Once

	pending bool   // a write of back was under way at the end
	waiting int    // bytes of it
	rest    []byte // what comes after it
	lost    int64  // bytes that no reader will take
	err     error  // of w; the first one ends all writing
}

// NewWriter returns a Writer to w for a run of ctx. The caller must call Close.
func NewWriter(ctx context.Context, w io.Writer, broken func()) *Writer {
	g := &Writer{w: w, broken: broken, over: make(chan struct{})}
	if f, ok := w.(*os.File); ok {
		g.plain = !mayBlock(f)
		if own := reopenPipe(f); own != nil {
			g.w, g.file = own, own
		}
	}
	g.back = background.New(g.w)
	g.stop = context.AfterFunc(ctx, g.Release)
	return g
}

// Close gives up what was not taken. It does not close w.
func (g *Writer) Close() {
	g.stop()
	g.Release()
	g.back.Close()
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
		n, err = g.writeInBackground(p)
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

// writeInBackground writes from another goroutine, because this write cannot be interrupted.
// The goroutine stays for as long as the write blocks.
func (g *Writer) writeInBackground(p []byte) (int, error) {
	g.back.Start(bytes.Clone(p)) // p is the caller's again when we give up
	n, err := g.back.Wait(g.over)
	if errors.Is(err, background.ErrBlocked) {
		g.pending, g.waiting = true, len(p)
		return len(p), nil
	}
	return n, err
}

// Flush ends the run, and waits until the reader has taken everything, or has gone. After
// ctx has ended it waits for patience at most. It returns how many bytes are lost, and the
// error of the stream, if there was one.
func (g *Writer) Flush(ctx context.Context) (lost int64, err error) {
	g.Release()
	switch {
	case g.plain || g.err != nil:
	case g.file != nil:
		err = g.flushFile(ctx)
	default:
		err = g.flushInBackground(ctx)
	}
	if err != nil {
		g.lost += int64(g.waiting + len(g.rest))
		g.pending, g.waiting, g.rest = false, 0, nil
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

func (g *Writer) flushInBackground(ctx context.Context) error {
	for g.pending || len(g.rest) > 0 {
		if !g.pending {
			g.back.Start(g.rest)
			g.pending, g.waiting, g.rest = true, len(g.rest), nil
		}
		n, err := g.wait(ctx)
		if errors.Is(err, background.ErrBlocked) {
			return errStalled
		}
		g.pending, g.waiting = false, g.waiting-n
		if err != nil {
			return err
		}
	}
	return nil
}

// wait waits for the write that is under way, and for patience at most when ctx has ended.
func (g *Writer) wait(ctx context.Context) (int, error) {
	n, err := g.back.Wait(ctx.Done())
	if !errors.Is(err, background.ErrBlocked) {
		return n, err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return g.back.Wait(late.Done())
}

// mayBlock reports whether a write to f can wait for a reader.
func mayBlock(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	return info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 || IsTerminal(f)
}

// Live writes a command's output to a stream of this process. The output is made safe for a
// terminal, CI commands in it are neutralised in a CI job, and otherwise it is unchanged.
type Live struct {
	io.Writer
	to   *Writer
	ends []func() // flush the writers in front of to, the first one first
}

// NewLive returns a Live for w. The caller must call Flush and Close when the run has ended.
func (s *Streams) NewLive(ctx context.Context, w io.Writer, broken func()) *Live {
	w = PastMasks(w) // the command's output is masked before it comes here
	g := NewWriter(ctx, Raw(w), broken)
	out := &Live{Writer: g, to: g}
	if log, ok := w.(*sink.Defused); ok {
		guarded := log.With(g)
		out.Writer, out.ends = guarded, append(out.ends, func() { _ = guarded.Close() })
	}
	if IsTerminal(w) {
		safe := sink.NewSafeText(out.Writer, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible, Colours: s.Colours(w)}, s.masks())
		out.Writer, out.ends = safe, append([]func(){func() { _ = safe.Close() }}, out.ends...)
	}
	return out
}

// Close gives up what was not taken.
func (l *Live) Close() { l.to.Close() }

// Release is what package sink calls when the command has to end.
func (l *Live) Release() { l.to.Release() }

// Flush waits for the reader as Writer.Flush does.
func (l *Live) Flush(ctx context.Context) (lost int64, err error) {
	l.to.Release()
	for _, end := range l.ends {
		end()
	}
	return l.to.Flush(ctx)
}

// FlushAll flushes streams concurrently, because they may have the same reader.
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

// Undelivered reports on standard error how much of the output was not read. It returns
// status, or an error instead of a success.
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
