package sink

import (
	"errors"
	"io"

	"github.com/sandboxbash/sandboxbash/internal/background"
)

// ErrGivenUp is reported for a live writer that still blocked when the command had to
// end: it gets no further output.
var ErrGivenUp = errors.New("the live writer blocks and was given up")

// A Releaser is a live writer that is not given up. Instead, Release is called when the
// command has to end, and from then on Write must not block. The writer still gets all
// output; it keeps what it cannot write, and its owner writes that out later. Release may be
// called more than once, and during a Write.
type Releaser interface{ Release() }

// live writes to the caller's writer in the background. A writer that blocks for ever blocks
// the command only until release is closed.
type live struct {
	release <-chan struct{}
	owner   Releaser // the writer, if it is one
	to      *background.Writer
	buf     []byte // of the write that is under way, and then of the next
}

func newLive(w io.Writer, release <-chan struct{}) *live {
	l := &live{release: release, to: background.New(w)}
	l.owner, _ = w.(Releaser)
	return l
}

// Write waits until the writer has returned, or release is closed.
func (l *live) Write(p []byte) (int, error) {
	select {
	case <-l.release: // checked first: no output may follow a part that was given up
		if l.owner == nil {
			return 0, ErrGivenUp
		}
		l.owner.Release()
	default:
	}
	l.buf = append(l.buf[:0], p...)
	l.to.Start(l.buf)
	n, err := l.to.Wait(l.release)
	switch {
	case !errors.Is(err, background.ErrBlocked):
		return n, err
	case l.owner == nil:
		return 0, ErrGivenUp // and buf is not used again
	}
	l.owner.Release()
	return l.to.Wait(nil)
}

// close ends the goroutine, when the writer has returned.
func (l *live) close() { l.to.Close() }
