package mux

import (
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// life is a session's timer: the host pings, and both sides end a session whose peer is
// silent. While streams are open, a ping is due every third of the lease, and the peer's
// silence may last a lease. Without streams both are as for an idle runner that serves
// (wire.IdleLease), so that an idle session costs a ping in some minutes. A runner needs no
// ping to keep its session's container alive: package exec does that.
//
// Session.mu guards it.
type life struct {
	s     *Session
	timer *time.Timer
	since time.Time // the last frame, or the time at which the first stream was opened
	warn  bool      // the lease is over; what waits in the pipe is read first
}

// startTime is how long the peer's first frame may take.
const startTime = 30 * time.Second

// lastWait is how long a session goes on after its lease, so that it reads what came while
// this process did not run, as in a container that was paused.
const lastWait = 500 * time.Millisecond

func (s *Session) startLife() {
	l := &s.life
	l.s, l.since = s, time.Now()
	s.mu.Lock() // the timer's function may come at once
	l.timer = time.AfterFunc(startTime, l.tick)
	s.mu.Unlock()
}

// begin is called when the peer has said its first word.
func (l *life) begin() { l.timer.Reset(l.pause()) }

// stop is called when the session is over.
func (l *life) stop() { l.timer.Stop() }

// note is called for each frame.
func (l *life) note() { l.since, l.warn = time.Now(), false }

// busy is called when a stream is opened while no other is.
func (l *life) busy() {
	l.note()
	l.timer.Reset(l.pause())
}

func (l *life) lease() time.Duration {
	if len(l.s.streams) == 0 {
		return max(l.s.opts.Lease, wire.IdleLease)
	}
	return l.s.opts.Lease
}

// pause is the time to the next tick.
func (l *life) pause() time.Duration {
	switch {
	case l.warn:
		return lastWait
	case l.s.side == Host:
		return l.lease() / 3
	default:
		return max(time.Until(l.since.Add(l.lease())), time.Millisecond)
	}
}

func (l *life) tick() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	lease := l.lease()
	select {
	case <-s.ready:
	default:
		s.fail(ErrLease)
		return
	}
	if time.Since(l.since) >= lease {
		if l.warn {
			s.fail(ErrLease)
			return
		}
		l.warn = true
	}
	if s.side == Host && len(s.out.control) == 0 {
		s.send(func(dst []byte) []byte { return wire.AppendHeader(dst, wire.NetPingType, 0) })
	}
	l.timer.Reset(l.pause())
}
