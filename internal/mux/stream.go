package mux

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A ResetError is the error of a stream that was reset.
type ResetError struct {
	Reason wire.NetReason
	Peer   bool // by the peer, else by this side
}

func (e *ResetError) Error() string {
	by := "this side"
	if e.Peer {
		by = "the peer"
	}
	return "stream reset by " + by + ": " + reasonText(e.Reason)
}

func reasonText(r wire.NetReason) string {
	switch r {
	case wire.NetClosed:
		return "closed with data on its way"
	case wire.NetBroken:
		return "connection broken"
	case wire.NetRefused:
		return "connection refused"
	case wire.NetFull:
		return "too many streams"
	case wire.NetCut:
		return "cut"
	case wire.NetTimeout:
		return "timed out"
	default:
		return fmt.Sprintf("reason %d", byte(r))
	}
}

// drains reports whether what was received before a reset may still be read, as after a
// TCP reset. After the others it is dropped.
func drains(r wire.NetReason) bool { return r == wire.NetClosed || r == wire.NetBroken }

// A Stream is a connection of a Session. It is a net.Conn, and its methods may be called
// concurrently. Each direction ends by itself (CloseWrite; io.EOF from Read), or both are
// reset: Read and Write then return a *ResetError. When the session is over they return an
// error that wraps ErrLost.
//
// A Read that returns io.EOF has seen all that the peer wrote before its CloseWrite or
// Close: a stream that was cut is never an EOF.
//
//	                       the peer has ended its direction   it has not
//	this side has ended    the stream is over                 half-closed; Read goes on
//	it has not             half-closed; Write goes on         both go on
//
// The session forgets a stream when both directions have ended, which it learns for its own
// when the last frame has been written, or at a reset. Its place among the streams that may
// be open is free once Read has returned all data too, or after Close.
type Stream struct {
	sess   *Session
	id     uint32
	target Target
	own    bool // opened by this side

	reading  sync.Mutex    // held by Read and WriteTo
	sending  sync.Mutex    // held by Write and ReadFrom
	readable chan struct{} // wakes the holder of reading
	writable chan struct{} // wakes the holder of sending

	// Session.mu guards all that follows.

	first, last *chunk    // received and not read
	buffered    int       // bytes of them
	lent        int       // so many, from first on, are being written by WriteTo
	window      int       // bytes that may be buffered or on their way
	left        int       // bytes that the peer may still send
	came        time.Time // when the first data came after credit was given; zero: none has
	owed        int       // bytes of credit that the writer has not sent yet
	ended       bool      // the peer has ended its direction

	credit   int  // bytes that may be sent
	waiting  bool // in the queue for room
	writes   bool // Write or ReadFrom is running
	endAsked bool // the end of this direction is queued, or has been sent
	endSent  bool // it has been sent

	closed     bool        // by Close
	closing    *time.Timer // after Close, until the peer ends its direction
	err        error       // why it was severed: reset, or lost with the session
	drain      bool        // what is buffered may be read although it was severed
	discard    bool        // what is queued is not sent
	resetDue   bool        // a reset is queued
	onSevered  func()
	gone       bool // the session has forgotten it
	counted    bool // false: its place is free
	owner      *Owner
	readUntil  deadline
	writeUntil deadline
}

func newStream(s *Session, id uint32, target Target) *Stream {
	return &Stream{
		sess: s, id: id, target: target, counted: true,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		window: firstWindow, left: firstWindow, credit: firstWindow,
	}
}

// ID is the stream's number.
func (st *Stream) ID() uint32 { return st.id }

// Kind says what the stream is for.
func (st *Stream) Kind() wire.NetKind { return st.target.Kind }

// Target says what the stream is for, and the addresses in the session.
func (st *Stream) Target() Target { return st.target }

// LocalAddr is the address of the socket in the session, a *net.TCPAddr.
func (st *Stream) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(st.target.Local) }

// RemoteAddr is the address of the program in the session, a *net.TCPAddr.
func (st *Stream) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(st.target.Remote) }

// Owner is what the runner has said of the process that has made the connection. It
// arrives some time after the stream, if at all.
func (st *Stream) Owner() (Owner, bool) {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	if st.owner == nil {
		return Owner{}, false
	}
	return *st.owner, true
}

// readError is the error of a Read, and nil if one may go on. It needs mu.
func (st *Stream) readError() error {
	switch {
	case st.closed:
		return net.ErrClosed
	case st.readUntil.passed:
		return os.ErrDeadlineExceeded
	case st.err != nil && (!st.drain || st.buffered == 0):
		return st.err
	case st.buffered == 0 && st.ended:
		return io.EOF
	}
	return nil
}

// Read reads what the peer has written.
func (st *Stream) Read(p []byte) (int, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	if err := st.waitData(len(p) == 0); err != nil || len(p) == 0 {
		return 0, err
	}
	n := 0
	for n < len(p) && st.first != nil {
		c := st.first
		m := copy(p[n:], c.b[c.start:c.end])
		c.start += m
		n += m
		st.dropRead()
	}
	st.consumed(n)
	return n, nil
}

// waitData waits until there is data or an error. It needs reading and mu, which it gives
// up while it waits.
func (st *Stream) waitData(never bool) error {
	for {
		err := st.readError()
		if err != nil || st.buffered > 0 || never {
			return err
		}
		st.sess.mu.Unlock()
		<-st.readable
		st.sess.mu.Lock()
	}
}

// dropRead gives back the first chunk if all of it has been read. It needs mu.
func (st *Stream) dropRead() {
	c := st.first
	if c.start < c.end {
		return
	}
	if st.first = c.next; st.first == nil {
		st.last = nil
	}
	c.free()
}

// gather is how many chunks WriteTo writes at once.
const gather = 8

// WriteTo writes what the peer has written to w until the peer ends its direction. It
// needs no memory besides what has been received. The peer gets credit for what w has
// taken.
func (st *Stream) WriteTo(w io.Writer) (int64, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	var total int64
	var space [gather][]byte
	for {
		if err := st.waitData(false); errors.Is(err, io.EOF) {
			return total, nil
		} else if err != nil {
			return total, err
		}
		// The reader may append to the last chunk meanwhile, behind end.
		parts, size := net.Buffers(space[:0]), 0
		first := st.first
		for c := first; c != nil && len(parts) < gather; c = c.next {
			parts = append(parts, c.b[c.start:c.end])
			size += c.end - c.start
		}
		st.lent = len(parts)
		st.sess.mu.Unlock()
		n, err := parts.WriteTo(w)
		st.sess.mu.Lock()
		st.lent = 0
		total += n
		if st.first == first { // else they were dropped
			st.written(int(n))
		}
		if err == nil && n < int64(size) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err
		}
	}
}

// written drops n bytes that WriteTo has written. It needs mu.
func (st *Stream) written(n int) {
	for left := n; left > 0; {
		c := st.first
		part := min(left, c.end-c.start)
		c.start += part
		left -= part
		st.dropRead()
	}
	st.consumed(n)
}

// consumed gives the peer credit for bytes that have been read. It needs mu.
func (st *Stream) consumed(n int) {
	st.buffered -= n
	s := st.sess
	due := st.window - st.left - st.buffered
	if st.err != nil || st.ended {
		st.settle()
		return
	}
	if due < st.window/2 {
		return
	}
	// Half a window in so short a time: far away, the peer would wait for credit and not for data.
	if time.Since(st.came) < growTime && 2*st.window <= maxWindow && s.extra+st.window <= maxExtra {
		s.extra += st.window
		due += st.window
		st.window *= 2
	}
	st.came = time.Time{}
	if st.owed == 0 {
		s.out.credit = append(s.out.credit, st)
		s.due()
	}
	st.left += due
	st.owed += due
}

// receive takes data from the peer. It needs mu.
func (st *Stream) receive(data []byte) error {
	switch {
	case st.ended:
		return fmt.Errorf("%w: data of stream %d after its end", wire.ErrFrame, st.id)
	case len(data) > st.left:
		return fmt.Errorf("%w: %d bytes of stream %d, which has credit for %d", wire.ErrFrame, len(data), st.id, st.left)
	}
	st.left -= len(data)
	switch {
	case len(data) == 0 || st.err != nil:
		return nil //nolint:nilerr // the earlier error stands
	case st.closed: // as a closed socket answers
		st.reset(wire.NetClosed, behindData)
		return nil
	}
	if st.came.IsZero() {
		st.came = time.Now()
	}
	st.buffered += len(data)
	class := 0
	if c := st.last; c != nil {
		n := copy(c.b[c.end:], data)
		c.end += n
		data = data[n:]
		class = min(c.class+1, usualClass)
	}
	for len(data) > 0 {
		c := newChunk(min(len(data), wire.NetFrame), class)
		c.end = copy(c.b, data)
		data = data[c.end:]
		if st.last == nil {
			st.first = c
		} else {
			st.last.next = c
		}
		st.last = c
	}
	notify(st.readable)
	return nil
}

// receiveEnd needs mu.
func (st *Stream) receiveEnd() error {
	if st.ended {
		return fmt.Errorf("%w: stream %d ends twice", wire.ErrFrame, st.id)
	}
	st.ended = true
	if st.closing != nil {
		st.closing.Stop()
	}
	notify(st.readable)
	st.settle()
	return nil
}

// maxCredit bounds the credit that a peer may give, in bytes.
const maxCredit = 1 << 30

// receiveCredit needs mu.
func (st *Stream) receiveCredit(n uint32) error {
	if uint64(st.credit)+uint64(n) > maxCredit {
		return fmt.Errorf("%w: credit of %d bytes for stream %d, which has %d", wire.ErrFrame, n, st.id, st.credit)
	}
	st.credit += int(n)
	notify(st.writable)
	return nil
}

// receiveReset needs mu.
func (st *Stream) receiveReset(reason wire.NetReason) {
	if st.err == nil {
		st.drain = drains(reason) && !st.closed
	}
	st.discard, st.endSent = true, true
	st.sever(&ResetError{Reason: reason, Peer: true})
}

// writeError is the error of a Write, and nil if one may go on. It needs mu.
func (st *Stream) writeError() error {
	switch {
	case st.closed:
		return net.ErrClosed
	case st.err != nil:
		return st.err
	case st.endAsked:
		return net.ErrClosed
	case st.writeUntil.passed:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// waitRoom waits until there is credit, and room to queue data. It needs sending and mu,
// which it gives up while it waits.
func (st *Stream) waitRoom() error {
	for {
		if err := st.writeError(); err != nil {
			st.sess.leaveRoom(st)
			return err
		}
		if st.credit > 0 && st.sess.hasRoom(st) {
			return nil
		}
		st.sess.mu.Unlock()
		<-st.writable
		st.sess.mu.Lock()
	}
}

// put sends or queues n bytes, which stand behind the place of the frame's header. It needs
// sending and mu, which it may give up for a while, and waitRoom before.
func (st *Stream) put(c *chunk, n int) {
	wire.PutNetHeader(c.b, wire.NetDataType, st.id, n)
	c.end = wire.NetDataHeader + n
	st.credit -= n
	s := st.sess
	s.append(item{st: st, data: c})
	s.leaveRoom(st)
	if st.writeUntil.timer != nil {
		s.due() // the peer may take its time
		return
	}
	if s.out.soon {
		return // this goes with it
	}
	if s.gather(); !s.out.busy {
		s.flush()
	}
}

// Write queues data to be sent, within the credit that the peer has given. Data that was
// queued is lost if the stream is reset.
func (st *Stream) Write(p []byte) (int, error) {
	st.sending.Lock()
	defer st.sending.Unlock()
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	st.writes = true
	defer func() { st.writes = false }()
	if len(p) == 0 {
		return 0, st.writeError()
	}
	total := 0
	for total < len(p) {
		if err := st.waitRoom(); err != nil {
			return total, err
		}
		n := min(len(p)-total, st.credit, wire.NetData)
		c := newChunk(wire.NetDataHeader+n, 0)
		copy(c.b[wire.NetDataHeader:], p[total:total+n])
		st.put(c, n)
		total += n
	}
	return total, nil
}

// ReadFrom sends what r has until its end, which it does not pass on: CloseWrite does. It
// reads from r only while the peer has given credit, and as long as r has little, into
// little memory, so that neither an idle nor a stalled connection holds a large buffer.
func (st *Stream) ReadFrom(r io.Reader) (int64, error) {
	const smallest = 1 // of classes
	st.sending.Lock()
	defer st.sending.Unlock()
	s := st.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	st.writes = true
	defer func() { st.writes = false }()
	var total int64
	for class := smallest; ; {
		if err := st.waitRoom(); err != nil {
			return total, err
		}
		s.leaveRoom(st) // r may take long
		now := class
		if now > usualClass && (st.credit < wire.NetLargeFrame || s.large >= maxLarge) {
			now = usualClass
		}
		if now > usualClass {
			s.large++
		}
		most := min(st.credit, classes[now]-wire.NetDataHeader)
		s.mu.Unlock()
		c := newChunk(classes[now], now)
		n, err := r.Read(c.b[wire.NetDataHeader:][:most])
		s.mu.Lock()
		if n > 0 {
			if classOf(wire.NetDataHeader+n) < c.class { // it may have to wait
				large := c
				c = newChunk(wire.NetDataHeader+n, 0)
				copy(c.b, large.b[:wire.NetDataHeader+n])
				large.free()
			}
			if full := st.waitRoom(); full != nil {
				n, err = 0, full
			}
		}
		if n > 0 {
			st.put(c, n)
			total += int64(n)
		} else {
			c.free()
		}
		if now > usualClass {
			s.large--
		}
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case err != nil:
			return total, err
		case n == classes[now]-wire.NetDataHeader: // there is more
			if class = now + 1; class > drainedClass {
				class = s.class
			}
		case n == most: // the credit was little
		case n < classes[class]/4:
			class = max(min(class, drainedClass+1)-1, smallest)
		case n < most: // r has no more so far
			class = min(class, drainedClass)
		}
	}
}
