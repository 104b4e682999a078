package mux

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// frameReader reads frames of at most most bytes.
type frameReader struct {
	buf  *bufio.Reader
	most int
}

// newFrameReader returns a reader that reads ahead what two frames of the largest size hold.
func newFrameReader(src io.Reader, most int) frameReader {
	return frameReader{bufio.NewReaderSize(src, 2*most), most}
}

// next returns the next frame; the payload is valid until the following call. It returns
// io.EOF at the end of the stream between two frames.
func (r frameReader) next() (wire.Type, []byte, error) {
	head, err := r.buf.Peek(wire.HeaderSize)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	kind, size := wire.ParseHeader(head)
	if int64(size) > int64(r.most-wire.HeaderSize) {
		return 0, nil, fmt.Errorf("%w: payload of %d bytes, limit %d; the stream began or went on with %.40q",
			wire.ErrFrame, size, r.most-wire.HeaderSize, head)
	}
	frame, err := r.buf.Peek(wire.HeaderSize + int(size))
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	_, err = r.buf.Discard(len(frame)) // moves the read position only
	return kind, frame[wire.HeaderSize:], err
}

// read handles the peer's frames until the session is over.
func (s *Session) read() {
	most := wire.NetFrame
	if s.side == Runner {
		most = wire.NetLargeFrame
	}
	in := newFrameReader(s.conn, most)
	err := s.greet(in)
	for err == nil {
		var kind wire.Type
		var payload []byte
		if kind, payload, err = in.next(); err == nil {
			err = s.handle(kind, payload)
		}
	}
	s.mu.Lock()
	s.fail(err)
	s.mu.Unlock()
}

// greet reads the peer's first frame.
func (s *Session) greet(in frameReader) error {
	kind, payload, err := in.next()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.side == Host && kind == wire.NetHelloType:
		if s.hello, err = wire.ParseNetHello(payload); err != nil {
			return err
		}
		s.hello.Features = slices.Clone(s.hello.Features)
		if slices.Contains(s.hello.Features, wire.NetLarge) {
			s.class = len(classes) - 1
		}
		if err := s.hello.Known(); err != nil {
			return err
		}
		s.open = wire.NetOpen{Version: s.hello.Version, Lease: s.opts.Lease, UID: s.opts.UID}
		s.send(s.open.AppendFrame)
	case s.side == Runner && kind == wire.NetOpenType:
		if s.open, err = wire.ParseNetOpen(payload); err != nil {
			return err
		}
		if s.open.Version != wire.NetVersion || s.open.Lease <= 0 {
			return fmt.Errorf("%w: open version %d, lease %s", wire.ErrFrame, s.open.Version, s.open.Lease)
		}
		s.opts.Lease = s.open.Lease
	default:
		return fmt.Errorf("%w: type %q is the first", wire.ErrFrame, kind)
	}
	s.heard()
	s.life.begin()
	close(s.ready)
	return nil
}

// heard notes that a frame has come. It needs mu.
func (s *Session) heard() {
	s.life.note()
	if s.opts.Frame != nil {
		s.opts.Frame()
	}
}

// used notes a frame of a stream that the peer has opened. It needs mu.
func (s *Session) used() {
	if s.opts.Used != nil {
		s.opts.Used()
	}
}

func (s *Session) handle(kind wire.Type, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.heard()
	switch kind {
	case wire.NetDataType, wire.NetEndType, wire.NetDatagramType:
		id, data, err := wire.ParseNetHeader(payload)
		switch {
		case err != nil:
			return err
		case kind == wire.NetDatagramType:
			return s.deliver(id, data)
		}
		st, err := s.stream(id)
		if st == nil || err != nil {
			return err
		}
		if kind == wire.NetEndType {
			return st.receiveEnd()
		}
		return st.receive(data)
	case wire.NetNewType:
		return s.receiveNew(payload)
	case wire.NetCreditType:
		m, err := wire.ParseNetCredit(payload)
		if err != nil {
			return err
		}
		st, err := s.stream(m.ID)
		if st == nil || err != nil {
			return err
		}
		return st.receiveCredit(m.Bytes)
	case wire.NetResetType:
		m, err := wire.ParseNetReset(payload)
		if err != nil {
			return err
		}
		st, err := s.stream(m.ID)
		if st == nil || err != nil {
			return err
		}
		st.receiveReset(m.Reason)
	case wire.NetPingType:
		s.out.pong = true // one answers all that have come until it is sent
		s.due()
	case wire.NetPongType:
	default:
		return s.handleSided(kind, payload)
	}
	return nil
}

// handleSided handles the frames that only one side sends, and those of unknown types. It
// needs mu.
func (s *Session) handleSided(kind wire.Type, payload []byte) error {
	switch {
	case kind == wire.NetAnswerType && s.side == Host:
		m, err := wire.ParseNetAnswer(payload)
		if err != nil {
			return err
		}
		answer, ok := s.asked[m.ID]
		if !ok {
			return fmt.Errorf("%w: an answer to %d, which was not asked", wire.ErrFrame, m.ID)
		}
		delete(s.asked, m.ID)
		answer <- Errno(m.Errno) // it has room for one
	case kind == wire.NetOwnerType && s.side == Host:
		m, err := wire.ParseNetOwner(payload)
		if err != nil {
			return err
		}
		st, err := s.stream(m.ID)
		if st != nil && st.owner == nil {
			st.owner = &Owner{PID: m.PID, Session: m.Session, Runner: m.Runner}
		}
		return err
	case !kind.Optional():
		return fmt.Errorf("%w: type %q", wire.ErrFrame, kind)
	}
	return nil
}

// stream returns the stream of that number, and nil for one that is over: what the peer had
// sent before it knew is dropped. A number that was never used is an error. It needs mu.
func (s *Session) stream(id uint32) (*Stream, error) {
	if st := s.streams[id]; st != nil {
		if !s.own(id) {
			s.used()
		}
		return st, nil
	}
	if s.own(id) && id < s.next && id != 0 || !s.own(id) && id <= s.latest {
		return nil, nil //nolint:nilnil // nil is a stream that is over
	}
	return nil, fmt.Errorf("%w: stream %d was not opened", wire.ErrFrame, id)
}

// own reports whether this side gives that number.
func (s *Session) own(id uint32) bool { return (id%2 == 1) == (s.side == Runner) }

// receiveNew needs mu.
func (s *Session) receiveNew(payload []byte) error {
	m, err := wire.ParseNetNew(payload)
	if err != nil {
		return err
	}
	if s.own(m.ID) || m.ID <= s.latest {
		return fmt.Errorf("%w: a new stream of number %d, after %d", wire.ErrFrame, m.ID, s.latest)
	}
	s.latest = m.ID
	most := MaxRunnerStreams
	switch m.Kind {
	case wire.NetProxy, wire.NetNamed, wire.NetDNS:
		if s.side == Runner {
			return fmt.Errorf("%w: kind %d from the host", wire.ErrFrame, m.Kind)
		}
	case wire.NetDial, wire.NetListen, wire.NetUnlisten:
		if s.side == Host {
			return fmt.Errorf("%w: kind %d from the runner", wire.ErrFrame, m.Kind)
		}
		if m.Kind != wire.NetDial {
			return s.answer(m)
		}
		most = MaxHostStreams
	default:
		return fmt.Errorf("%w: kind %d", wire.ErrFrame, m.Kind)
	}
	if s.theirs >= most+maxLate || len(s.arrived) >= most {
		s.send(wire.NetReset{ID: m.ID, Reason: wire.NetFull}.AppendFrame)
		return s.err
	}
	st := newStream(s, m.ID, Target{Kind: m.Kind, Local: m.Local, Remote: m.Remote})
	s.theirs++
	s.add(st)
	s.used()
	s.arrived = append(s.arrived, st)
	notify(s.accept)
	return nil
}

// answer answers a request about a listener. It needs mu.
func (s *Session) answer(m wire.NetNew) error {
	const refused Errno = 13 // EACCES
	errno := refused
	if s.opts.Listen != nil {
		errno = s.opts.Listen(m.Local, m.Kind)
	}
	s.send(wire.NetAnswer{ID: m.ID, Errno: uint32(errno)}.AppendFrame)
	return s.err
}

// deliver keeps a datagram until it is received. It needs mu.
func (s *Session) deliver(id uint32, data []byte) error {
	if len(data) > wire.MaxDatagram {
		return fmt.Errorf("%w: datagram of %d bytes, limit %d", wire.ErrFrame, len(data), wire.MaxDatagram)
	}
	if len(s.mail) < maxDatagram { // as a full socket drops
		s.mail = append(s.mail, datagram{id, slices.Clone(data)})
		notify(s.mailed)
	}
	return nil
}
