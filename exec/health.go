package exec

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A connection can be dead without an error: a network drops what it is given, or the
// other end of a tunnel has died. A runner answers every Ping with a Pong, so a runner
// that is being read from and says nothing is lost.

// silenceTime is how long a runner must say nothing before it is given up, and
// silentBeats how many Pings it must have left without an answer: a process of ours that
// was stopped for a while has not listened, and its clock alone proves nothing.
const (
	silenceTime = 20 * time.Second
	silentBeats = 2
)

var errSilent = fmt.Errorf("it has said nothing for %s", silenceTime)

// listener counts what is read from a runner.
type listener struct {
	stream  io.Reader
	bytes   atomic.Int64
	waiting atomic.Bool // a Read is under way
	excused atomic.Bool // it was silent because its container was paused
	givenUp atomic.Bool
}

func (l *listener) Read(p []byte) (int, error) {
	l.waiting.Store(true)
	n, err := l.stream.Read(p)
	l.waiting.Store(false)
	l.bytes.Add(int64(n))
	return n, err
}

// silence is what one runner had said at the last beats. It is for one goroutine.
type silence struct {
	bytes int64
	since time.Time
	beats int
}

// health is the verdict of one heartbeat.
type health int

const (
	healthy health = iota
	doubtful
	silent // for too long
)

// beat judges the runner at a heartbeat. It is healthy while no Read is under way: a
// writer of the caller's blocks then, and silence proves nothing.
func (s *silence) beat(l *listener, now time.Time) health {
	if n := l.bytes.Load(); n != s.bytes || !l.waiting.Load() || s.since.IsZero() || l.excused.Swap(false) {
		*s = silence{bytes: n, since: now}
		return healthy
	}
	s.beats++
	if s.beats >= silentBeats && now.Sub(s.since) >= silenceTime {
		return silent
	}
	return doubtful
}

// suspect handles a runner that has not answered. While its container is paused the
// runner is excused; it is asked for every time, because an answer may come a little
// after the pause. Otherwise a runner that has been silent for too long is given up.
func (p *Pool) suspect(r *Runner, how health) {
	ctx, cancel := context.WithTimeout(p.ctx, askTime)
	defer cancel()
	switch {
	case p.opts.Paused != nil && p.opts.Paused(ctx):
		r.listener.excused.Store(true)
	case how == silent && p.ctx.Err() == nil:
		r.listener.givenUp.Store(true)
		r.stream.Close()
		p.dropIdle() // idle runners are rarely asked, and what has cut this stream may have cut theirs
	}
}

// dropIdle closes the runners that are idle.
func (p *Pool) dropIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, r := range idle {
		p.drop(r)
	}
}

// askTime bounds the question whether a container is paused.
const askTime = 5 * time.Second
