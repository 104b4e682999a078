package mux

import (
	"fmt"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// outgoing is what waits to be sent. Session.mu guards it.
type outgoing struct {
	control []byte    // whole frames, which go first
	pong    bool      // a NetPong is due
	credit  []*Stream // those with credit to give; each at most once
	data    []item    // in this order
	pending int       // bytes of the memory of data
	room    []*Stream // whose writers wait for room, first come, first served
}

// item is a frame of a stream that must not overtake the stream's data.
type item struct {
	st    *Stream
	data  *chunk // nil for the end of a direction, or of the stream
	reset wire.NetReason
}

// send queues a control frame. It needs mu.
func (s *Session) send(frame func([]byte) []byte) {
	s.out.control = frame(s.out.control)
	if len(s.out.control) > maxControl {
		s.fail(fmt.Errorf("the peer has left %d bytes of control frames unread", len(s.out.control)))
		return
	}
	notify(s.wake)
}

// queue queues an item. It needs mu.
func (s *Session) queue(it item) {
	s.out.data = append(s.out.data, it)
	if it.data != nil {
		s.out.pending += len(it.data.b)
	}
	notify(s.wake)
}

// hasRoom reports whether a writer of the stream may queue data now. If not, it puts the
// stream into the queue for room. It needs mu.
func (s *Session) hasRoom(st *Stream) bool {
	if !st.waiting && (len(s.out.room) > 0 || s.out.pending >= maxPending) {
		st.waiting = true
		s.out.room = append(s.out.room, st)
	}
	return !st.waiting || s.out.room[0] == st && s.out.pending < maxPending
}

// leaveRoom takes a stream whose writer has queued data, or has given up, out of the queue
// for room, and wakes the next. It needs mu.
func (s *Session) leaveRoom(st *Stream) {
	if !st.waiting {
		return
	}
	st.waiting = false
	for i, other := range s.out.room {
		if other == st {
			s.out.room = append(s.out.room[:i], s.out.room[i+1:]...)
			break
		}
	}
	s.offerRoom()
}

// offerRoom needs mu.
func (s *Session) offerRoom() {
	if len(s.out.room) > 0 && s.out.pending < maxPending {
		notify(s.out.room[0].writable)
	}
}

// sendSize is how many bytes the writer puts into one Write where frames are small.
const sendSize = wire.NetFrame

// write sends frames until the session is over.
func (s *Session) write() {
	var spare []byte    // the other buffer of control frames
	var ended []*Stream // whose last frame of this direction is in the Write
	batch := make([]byte, 0, sendSize)
	for {
		s.mu.Lock()
		for _, st := range ended {
			if !st.resetDue { // else the reset is to be sent behind the end
				st.endSent = true
				st.settle()
			}
		}
		ended = ended[:0]
		if s.err != nil {
			s.mu.Unlock()
			return
		}
		batch = append(batch[:0], s.takeControl(&spare)...)
		var large *chunk
		batch, large, ended = s.takeData(batch, ended)
		s.mu.Unlock()

		if len(batch) == 0 && large == nil && len(ended) == 0 {
			<-s.wake // fail wakes too
			continue
		}
		var err error
		if len(batch) > 0 {
			_, err = s.conn.Write(batch)
		}
		if large != nil {
			if err == nil {
				_, err = s.conn.Write(large.b[:large.end])
			}
			large.free()
		}
		if err != nil {
			s.mu.Lock()
			s.fail(fmt.Errorf("write: %w", err))
			s.mu.Unlock()
			return
		}
		if cap(batch) > 4*sendSize { // there was much control to send
			batch = make([]byte, 0, sendSize)
		}
	}
}

// takeControl takes all control frames that are due. The result is valid until the second
// call after this one. It needs mu.
func (s *Session) takeControl(spare *[]byte) []byte {
	o := &s.out
	if o.pong {
		o.control = wire.AppendHeader(o.control, wire.NetPongType, 0)
		o.pong = false
	}
	for i, st := range o.credit {
		if !st.gone {
			o.control = wire.NetCredit{ID: st.id, Bytes: uint32(st.owed)}.AppendFrame(o.control)
		}
		st.owed = 0
		o.credit[i] = nil
	}
	o.credit = o.credit[:0]
	taken := o.control
	o.control, *spare = (*spare)[:0], taken
	if cap(o.control) > 4*sendSize {
		o.control = nil
	}
	return taken
}

// takeData takes small frames as long as they fit into the batch, or one large frame if it
// is empty. It needs mu.
func (s *Session) takeData(batch []byte, ended []*Stream) ([]byte, *chunk, []*Stream) {
	o := &s.out
	taken := 0
	for ; taken < len(o.data); taken++ {
		it := o.data[taken]
		switch {
		case it.st.discard || it.st.gone:
			if it.data != nil {
				o.pending -= len(it.data.b)
				it.data.free()
			}
		case it.data == nil && it.reset == 0:
			batch = wire.AppendNetHeader(batch, wire.NetEndType, it.st.id, 0)
			ended = append(ended, it.st)
		case it.data == nil:
			batch = wire.NetReset{ID: it.st.id, Reason: it.reset}.AppendFrame(batch)
			it.st.resetDue = false
			ended = append(ended, it.st)
		case len(batch)+it.data.end <= sendSize && it.data.end <= sendSize/2:
			batch = append(batch, it.data.b[:it.data.end]...)
			o.pending -= len(it.data.b)
			it.data.free()
		case len(batch) == 0:
			o.pending -= len(it.data.b)
			o.drop(taken + 1)
			s.offerRoom()
			return batch, it.data, ended
		default: // it does not fit: the next time
			o.drop(taken)
			s.offerRoom()
			return batch, nil, ended
		}
	}
	o.drop(taken)
	s.offerRoom()
	return batch, nil, ended
}

// drop removes the first n items.
func (o *outgoing) drop(n int) {
	rest := copy(o.data, o.data[n:])
	clear(o.data[rest:])
	o.data = o.data[:rest]
}
