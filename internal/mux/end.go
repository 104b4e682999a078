package mux

import (
	"net"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// CloseWrite ends this direction: the peer reads io.EOF behind all that was written. While
// a Write is running it resets the stream instead, because the peer would take a part for
// the whole.
func (st *Stream) CloseWrite() error {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	switch {
	case st.closed:
		return net.ErrClosed
	case st.err != nil:
		return st.err
	case st.writes:
		st.reset(wire.NetClosed, atOnce)
		return st.err
	case st.endAsked:
		return nil
	}
	s := st.sess
	st.endAsked = true
	s.append(item{st: st})
	if s.side == Host && !s.out.busy && st.writeUntil.timer == nil {
		s.flush() // as Write does; a runner's writer needs no other processor
	} else {
		s.due()
	}
	return nil
}

// end queues the end of this direction. It needs mu.
func (st *Stream) end() {
	if !st.endAsked {
		st.endAsked = true
		st.sess.queue(item{st: st})
	}
}

// Close ends the stream, as close(2) ends a TCP connection: what was written is sent, and
// this direction ends cleanly; if something was received and not read, or a Write is
// running, or data still comes, the stream is reset. The peer has ten seconds to end its
// own direction. Close does not wait. Later calls do nothing.
func (st *Stream) Close() error {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	if st.closed {
		return nil
	}
	st.closed = true
	unread := st.buffered > 0
	st.forget()
	st.readUntil.stop()
	st.writeUntil.stop()
	notify(st.readable)
	notify(st.writable)
	switch {
	case st.err != nil || st.gone:
		st.settle()
	case st.writes:
		st.reset(wire.NetClosed, atOnce)
	case unread:
		st.reset(wire.NetClosed, behindData)
	default:
		st.end()
		if !st.ended {
			st.closing = time.AfterFunc(closeTime, st.closeLate)
		}
	}
	return nil
}

// closeLate resets a closed stream whose peer has not ended its direction.
func (st *Stream) closeLate() {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	if !st.ended && st.err == nil {
		st.reset(wire.NetTimeout, behindData)
	}
}

// Reset ends both directions at once, and drops what was not sent or not read. The peer
// learns the reason. A stream that is over stays as it is.
func (st *Stream) Reset(reason wire.NetReason) {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	if st.err == nil && !st.gone {
		st.reset(reason, atOnce)
	}
}

// order says when a reset is sent.
type order int

const (
	atOnce     order = iota // what is queued is dropped
	behindData              // as TCP does when a socket is closed with unread data
)

// reset needs mu, and a stream without an err.
func (st *Stream) reset(reason wire.NetReason, when order) {
	s := st.sess
	st.discard, st.endSent, st.resetDue = when == atOnce, when == atOnce, when == behindData
	if when == atOnce {
		s.send(wire.NetReset{ID: st.id, Reason: reason}.AppendFrame)
	} else {
		s.queue(item{st: st, reset: reason}) // the stream is forgotten when that has been sent
	}
	st.sever(&ResetError{Reason: reason})
}

// sever ends both directions with an error; only the first counts. It needs mu.
func (st *Stream) sever(err error) {
	if st.err == nil {
		st.err = err
		if !st.drain {
			st.forget()
		}
		if st.closing != nil {
			st.closing.Stop()
		}
		notify(st.readable)
		notify(st.writable)
		if st.onSevered != nil {
			st.sess.wg.Go(st.onSevered)
			st.onSevered = nil
		}
	}
	st.settle()
}

// whenSevered calls f in a goroutine once the stream is reset or lost; f must not wait for
// the stream or its session.
func (st *Stream) whenSevered(f func()) {
	st.sess.mu.Lock()
	late := st.err != nil
	if !late {
		st.onSevered = f
	}
	st.sess.mu.Unlock()
	if late {
		f()
	}
}

// forget drops what was received. It needs mu.
func (st *Stream) forget() {
	lent := st.lent
	for c := st.first; c != nil; {
		next := c.next
		if lent--; lent < 0 { // else WriteTo has it
			c.free()
		}
		c = next
	}
	st.first, st.last, st.buffered = nil, nil, 0
}

// settle lets the session forget a stream that is over, and frees its place. It needs mu.
func (st *Stream) settle() {
	s := st.sess
	if !st.gone && (st.endSent && (st.ended || st.err != nil) || s.err != nil) {
		st.gone = true
		delete(s.streams, st.id)
	}
	if st.gone && st.counted && st.buffered == 0 {
		st.counted = false
		s.extra -= st.window - firstWindow
		if st.own {
			s.mine--
		} else {
			s.theirs--
		}
	}
}
