package sink

import (
	"errors"
	"io"
)

// ErrGivenUp is why a live writer got no more: it still blocked when the command
// had to end.
var ErrGivenUp = errors.New("the live writer blocks and was given up")

// live writes to a caller's writer on a goroutine of its own, so that one that
// blocks for ever holds up the command only until it is released.
type live struct {
	release <-chan struct{}
	work    chan []byte
	done    chan error
	buf     []byte // of this side, until given up
}

// newLive starts the goroutine. It ends with close, once the writer returns.
func newLive(w io.Writer, release <-chan struct{}) *live {
	l := &live{release: release, work: make(chan []byte), done: make(chan error, 1)}
	go func() {
		for p := range l.work {
			_, err := w.Write(p)
			l.done <- err // there is room: one answer for each piece of work
		}
	}()
	return l
}

// Write waits for the writer, or for the release.
func (l *live) Write(p []byte) (int, error) {
	l.buf = append(l.buf[:0], p...)
	select {
	case <-l.release: // also if the writer could take it: it may be late, never out of order
		return 0, ErrGivenUp
	default:
	}
	l.work <- l.buf
	select {
	case err := <-l.done:
		return len(p), err
	case <-l.release:
		l.buf = nil // the writer's for ever
		return 0, ErrGivenUp
	}
}

func (l *live) close() { close(l.work) }
