// Package background writes to writers that may block for ever.
package background

import (
	"errors"
	"io"
)

// ErrBlocked is returned by Wait when the writer still blocks.
var ErrBlocked = errors.New("the writer blocks")

// A Writer writes to another writer from a goroutine of its own, so that its user can stop
// waiting for a write that blocks. The calls take turns: each Start is followed by calls of
// Wait, until one returns something else than ErrBlocked.
//
// A Writer must not be used concurrently. Its user must call Close.
type Writer struct {
	to   io.Writer
	work chan []byte // nil before the first Start
	done chan result // holds one result, so that the goroutine never waits to deliver it
}

type result struct {
	n   int
	err error
}

// New returns a Writer to w. It starts no goroutine; the first Start does.
func New(w io.Writer) *Writer { return &Writer{to: w} }

// Start starts to write p. The caller must not change p until the write has ended.
func (w *Writer) Start(p []byte) {
	if w.work == nil {
		w.work, w.done = make(chan []byte), make(chan result, 1)
		go func() {
			for p := range w.work {
				n, err := w.to.Write(p)
				w.done <- result{n, err}
			}
		}()
	}
	w.work <- p
}

// Wait waits for the end of the write, and returns its results. If stop is closed first, Wait
// returns ErrBlocked: the write goes on, and may be waited for again.
func (w *Writer) Wait(stop <-chan struct{}) (int, error) {
	select {
	case r := <-w.done:
		return r.n, r.err
	case <-stop:
		return 0, ErrBlocked
	}
}

// Close ends the goroutine, when the write that is under way has ended. It does not wait for
// that, and it does not close the other writer.
func (w *Writer) Close() {
	if w.work != nil {
		close(w.work)
	}
}
