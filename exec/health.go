package exec

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A connection can be dead without an error, if a network drops all packets or the other
// end of a tunnel has died. A runner answers each Ping with a Pong. So a runner whose stream
// is being read, and which sends nothing, is lost.

// A runner is given up when it has sent nothing for silenceTime and has not answered
// silentBeats Pings. The time alone proves nothing, because this process may have been
// stopped meanwhile and not have read.
const (
	silenceTime = 20 * time.Second
	silentBeats = 2
)

var errSilent = fmt.Errorf("it has sent nothing for %s", silenceTime)

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

// silence records what one runner had sent at the last heartbeats. It must be used by one
// goroutine.
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

// beat judges the runner at a heartbeat. While no Read is under way the runner counts as
// healthy, because a writer of the caller blocks and nothing can arrive.
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

// suspect handles a runner that has not answered. If its container is paused, the runner is
// excused. It asks at every heartbeat, because the answer may come a little after the end of
// the pause. If the container is not paused and the runner has been silent for too long, it
// is given up.
func (p *Pool) suspect(r *Runner, how health) {
	ctx, cancel := context.WithTimeout(p.ctx, askTime)
	defer cancel()
	switch {
	case p.opts.Paused != nil && p.opts.Paused(ctx):
		r.listener.excused.Store(true)
	case how == silent && p.ctx.Err() == nil:
		r.listener.givenUp.Store(true)
		r.stream.Close()
		p.dropIdle() // they are rarely asked, and the fault that cut this stream may have cut theirs
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
