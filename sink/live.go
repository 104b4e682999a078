package sink

import (
	"errors"
	"io"
)

// ErrGivenUp is reported for a live writer that still blocked when the command had to
// end: it gets no further output.
var ErrGivenUp = errors.New("the live writer blocks and was given up")

// A Releaser is a live writer that is not given up. Instead its Release is called, from
// which on its Write must not block. It still gets all output, and its owner has to write
// out what it keeps. Release may be called more than once, and during a Write.
type Releaser interface{ Release() }

// live writes to the caller's writer from a goroutine of its own. A writer that blocks
// for ever blocks the command only until release is closed.
type live struct {
	release <-chan struct{}
	owner   Releaser // the writer, if it is one
	work    chan []byte
	done    chan error
	buf     []byte // belongs to Write; to the goroutine while it writes, and once given up
}

// newLive starts the goroutine. It ends after close, when the writer has returned.
func newLive(w io.Writer, release <-chan struct{}) *live {
	l := &live{release: release, work: make(chan []byte), done: make(chan error, 1)}
	l.owner, _ = w.(Releaser)
	go func() {
		for p := range l.work {
			_, err := w.Write(p)
			l.done <- err // never blocks: there is one result for each piece of work
		}
	}()
	return l
}

// Write waits until the writer has returned, or release is closed.
func (l *live) Write(p []byte) (int, error) {
	l.buf = append(l.buf[:0], p...)
	select {
	case <-l.release: // even if the writer is ready: once a part was given up, no later one may follow it
		if l.owner == nil {
			return 0, ErrGivenUp
		}
		l.owner.Release()
	default:
	}
	l.work <- l.buf
	select {
	case err := <-l.done:
		return len(p), err
	case <-l.release:
		if l.owner != nil {
			l.owner.Release()
			return len(p), <-l.done
		}
		l.buf = nil // the goroutine may still read it
		return 0, ErrGivenUp
	}
}

func (l *live) close() { close(l.work) }
