package exec

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A connection may be gone and nobody say so: a network that drops what it is
// given, a tunnel whose other end has died. A runner answers every sign of life
// with one of its own, so one that is read from and says nothing is lost.

// silenceTime is how long a runner may say nothing at least, and silentBeats how
// many signs of life it must have left without an answer: a process of ours that
// was stopped for long has not listened.
const (
	silenceTime = 20 * time.Second
	silentBeats = 2
)

var errSilent = fmt.Errorf("it has said nothing for %s", silenceTime)

// ear notes what is heard of a runner.
type ear struct {
	stream  io.Reader
	bytes   atomic.Int64
	waiting atomic.Bool // somebody reads
	excused atomic.Bool // it was silent because its container was paused
	givenUp atomic.Bool
}

func (e *ear) Read(p []byte) (int, error) {
	e.waiting.Store(true)
	n, err := e.stream.Read(p)
	e.waiting.Store(false)
	e.bytes.Add(int64(n))
	return n, err
}

// silence is for one goroutine.
type silence struct {
	bytes int64
	since time.Time
	beats int
}

// doubts are what a beat leaves of the belief that a runner lives.
type doubts int

const (
	hears doubts = iota
	doubtful
	silent // for too long
)

// beat notes one. A reader that does not read, because a writer of the caller's
// blocks, hears nothing and proves nothing.
func (s *silence) beat(e *ear, now time.Time) doubts {
	if n := e.bytes.Load(); n != s.bytes || !e.waiting.Load() || s.since.IsZero() || e.excused.Swap(false) {
		*s = silence{bytes: n, since: now}
		return hears
	}
	s.beats++
	if s.beats >= silentBeats && now.Sub(s.since) >= silenceTime {
		return silent
	}
	return doubtful
}

// doubt asks whether the container of a runner that says nothing is paused, every
// time: it may answer a little later than that is over. If not, one that has been
// silent for too long is given up.
func (p *Pool) doubt(r *Runner, how doubts) {
	ctx, cancel := context.WithTimeout(p.ctx, askTime)
	defer cancel()
	switch {
	case p.opts.Paused != nil && p.opts.Paused(ctx):
		r.ear.excused.Store(true)
	case how == silent && p.ctx.Err() == nil:
		r.ear.givenUp.Store(true)
		r.stream.Close()
	}
}

// askTime bounds the question whether a container is paused.
const askTime = 5 * time.Second
