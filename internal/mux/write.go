package mux

import (
	"fmt"
	"runtime"

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
	busy    bool      // a turn is under way
	soon    bool      // one is about to begin
	batch   []byte    // of the turn
	ended   []*Stream // of the turn: those whose last frame of this direction is in it
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
	s.due()
}

// queue queues an item and wakes the writer. It needs mu.
func (s *Session) queue(it item) {
	s.append(it)
	s.due()
}

// due wakes the writer, unless what was queued is sent without it: a turn that is about to begin takes
// it, and one that is under way is followed by another if something is left. It needs mu.
func (s *Session) due() {
	if !s.out.busy && !s.out.soon {
		notify(s.wake)
	}
}

// append queues an item. It needs mu.
func (s *Session) append(it item) {
	s.out.data = append(s.out.data, it)
	if it.data != nil {
		s.out.pending += len(it.data.b)
	}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil {
		if s.out.busy || s.out.soon || !s.turn() {
			s.mu.Unlock()
			<-s.wake // fail wakes too, and who ends a turn with something left
			s.mu.Lock()
			s.gather()
		}
	}
}

// gather lets the goroutines that are ready to run queue what they have to send, so that one turn takes
// it all: on its way to the peer, each write wakes two processes of the engine. It needs mu, which it gives
// up, and a turn by the caller after it unless one is under way. Only a runner gathers, whose goroutines
// share one processor: with more of them, to give up one wakes another.
func (s *Session) gather() {
	if s.side != Runner || s.out.busy || s.out.soon {
		return
	}
	s.out.soon = true
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
	s.out.soon = false
}

// flush does one turn of the writer's work. It needs mu, which it gives up while it writes, and a
// writer that is not busy.
func (s *Session) flush() {
	if s.err != nil {
		return
	}
	s.turn()
	if o := &s.out; o.pong || len(o.control)+len(o.credit)+len(o.data) > 0 {
		notify(s.wake)
	}
}

// turn sends the control frames that are due, and data behind them. It reports whether there was
// anything to send. It needs mu, which it gives up while it writes, and a writer that is not busy.
func (s *Session) turn() bool {
	o := &s.out
	batch := append(o.batch[:0], s.takeControl()...)
	batch, large, ended := s.takeData(batch, o.ended[:0])
	if len(batch) == 0 && large == nil && len(ended) == 0 {
		return false
	}
	o.busy = true
	s.mu.Unlock()
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
	s.mu.Lock()
	o.busy = false
	if err != nil {
		s.fail(fmt.Errorf("write: %w", err))
	}
	for i, st := range ended {
		if !st.resetDue { // else the reset is to be sent behind the end
			st.endSent = true
			st.settle()
		}
		ended[i] = nil
	}
	o.batch, o.ended = batch, ended
	if cap(batch) > 4*sendSize { // there was much control to send
		o.batch = nil
	}
	return true
}

// takeControl takes all control frames that are due. The result is valid while mu is held.
func (s *Session) takeControl() []byte {
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
	o.control = taken[:0]
	if cap(taken) > 4*sendSize {
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
