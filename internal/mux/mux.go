// Package mux carries many connections over one stream between the host and a runner of
// wire.VerbNet. Both ends are a Session. The runner opens a Stream for each connection
// that a program of the session makes to one of its listeners; the host opens one to
// connect to a port of the session. Package wire describes the frames.
//
// What comes from the peer may be hostile. A frame that breaks a rule ends the session with
// an error that wraps wire.ErrFrame, and everything that a peer can make this side keep is
// bounded:
//
//	streams    MaxRunnerStreams and MaxHostStreams; more are reset at once
//	data       what a stream has credit for: 16 KiB at first, which doubles up to 4 MiB
//	           while half of it is read within growTime, out of 16 MiB that all streams of
//	           a side share beyond their first 16 KiB
//	to send    128 KiB of data, then writers wait; 1 MiB of control frames, then the peer
//	           is taken for dead and the session ends
//	datagrams  1024 that were not received; more are dropped
//
// # Goroutines and locks
//
// A session has a reader, which never waits for a stream, and a writer, which sends control
// frames before data. A goroutine that has data to send does the writer's work for one turn if
// no one is at it: to wake another for each frame costs more than the frame. Session.mu guards all that changes, in the session and in its
// streams; it is not held over I/O. While no stream is open and nothing is sent, a session
// does nothing but ping once in a few minutes.
package mux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Side is an end of a session.
type Side int

// Sides.
const (
	Host   Side = iota // opens streams with even numbers, and pings
	Runner             // opens streams with odd numbers
)

// Bounds of a session.
const (
	MaxRunnerStreams = 1024 // open at once by the runner
	MaxHostStreams   = 256  // open at once by the host
	maxLate          = 256  // more that one side takes: a stream is over there before it is over here, while its end is written

	firstWindow = 16 << 10  // bytes of credit of a new stream
	maxWindow   = 4 << 20   // bytes of credit of a fast one
	maxExtra    = 16 << 20  // bytes of all windows beyond firstWindow
	maxPending  = 128 << 10 // bytes of data that wait to be sent; above, writers wait
	maxLarge    = 32        // frames of more than wire.NetFrame that are being made
	maxControl  = 1 << 20   // bytes of control frames that wait to be sent
	maxDatagram = 1024      // datagrams that wait to be received

	// growTime is how fast half a window must be read for the window to grow. Windows then
	// have room for what comes in a tenth of a second, which is more than an engine far away
	// takes for data and the credit for it.
	growTime = 50 * time.Millisecond

	// closeTime is how long a closed stream waits for the peer's end.
	closeTime = 10 * time.Second
)

// defaultLease is the Lease of Options that name none.
const defaultLease = time.Minute

var (
	// ErrFull is the error of a stream or datagram too many.
	ErrFull = errors.New("too many at once")
	// ErrLost is the error of all streams of a session that is over.
	ErrLost = errors.New("the connection to the session is lost")
	// ErrLease is the error of a session whose peer has been silent for a lease.
	ErrLease = errors.New("no word from the peer for the length of a lease")
)

// Errno is an error number as Linux gives it on amd64 and arm64. It is not syscall.Errno,
// which belongs to the machine of this process.
type Errno uint32 //nolint:errname // the name that systems have for it

// AddrInUse is EADDRINUSE: a program of the session listens there.
const AddrInUse Errno = 98 //nolint:errname // likewise

func (e Errno) Error() string {
	if e == AddrInUse {
		return "address already in use (errno 98)"
	}
	return fmt.Sprintf("errno %d", uint32(e))
}

// Target says what a stream is for.
type Target struct {
	Kind wire.NetKind
	// Local is the listener's address in the session. For NetDial it is 127.0.0.1 and the
	// port to connect to.
	Local netip.AddrPort
	// Remote is the address of the program that has connected to Local; zero for NetDial.
	Remote netip.AddrPort
}

// Owner is the process of the session that has the other end of a stream's connection.
type Owner struct {
	PID     int
	Session int // its session ID: the pid of the command's shell
	Runner  int // pid of the runner that runs the command; 0 if the process has outlived it
}

// Options of a Session. The zero value is usable.
type Options struct {
	// Lease is how long a session with open streams lives without a frame from the peer;
	// without streams it is at least wire.IdleLease. The host tells it the runner. Zero
	// stands for a minute.
	Lease time.Duration
	// UID is the host's word on which user runs the session's commands.
	UID uint32
	// Features are what a runner says in its NetHello, besides those that are this package's.
	Features []string
	// Listen opens or closes a listener of a runner. The reader calls it, so it must not
	// block. A nil Listen refuses all.
	Listen func(addr netip.AddrPort, kind wire.NetKind) Errno
	// Frame is called by the reader for each frame. It must not block.
	Frame func()
	// Used is called by the reader of a runner for each frame of a stream that the host has
	// opened: the host uses the session. Pings do not tell that, nor do the streams of the
	// session's own programs, which may go on for ever. It must not block.
	Used func()
}

// A Session is one end of a connection that carries streams. Its methods may be called
// concurrently.
type Session struct {
	side           Side
	conn           io.ReadWriteCloser
	opts           Options
	wake           chan struct{} // for the writer: there is something to send, or the session is over
	accept, mailed chan struct{} // something has arrived for Accept, or for ReceiveDatagram
	// ready is closed after the peer's first frame, done when the session is over.
	ready, done chan struct{}
	wg          sync.WaitGroup // reader, writer, and what they started

	mu      sync.Mutex
	err     error                 // guarded by mu; why the session is over
	hello   wire.NetHello         // guarded by mu
	open    wire.NetOpen          // guarded by mu
	streams map[uint32]*Stream    // guarded by mu; those that frames may still come for
	next    uint32                // guarded by mu; the number of this side's next stream
	latest  uint32                // guarded by mu; number of the peer's last stream
	mine    int                   // guarded by mu; open streams of this side
	theirs  int                   // guarded by mu; open streams of the peer
	extra   int                   // guarded by mu; bytes of all windows beyond firstWindow
	large   int                   // guarded by mu; frames of more than wire.NetFrame that are being made
	class   int                   // guarded by mu; the class of chunks for the largest frame that the peer takes
	asked   map[uint32]chan Errno // guarded by mu; requests without an answer
	arrived []*Stream             // guarded by mu; not accepted yet
	mail    []datagram            // guarded by mu; not received yet
	out     outgoing              // guarded by mu
	life    life                  // guarded by mu
}

type datagram struct {
	id   uint32
	data []byte
}

// New starts a session on a connection, which it owns from now on: Close must unblock Read
// and Write. Ready tells when the peer has answered.
func New(side Side, conn io.ReadWriteCloser, opts Options) *Session {
	if opts.Lease <= 0 {
		opts.Lease = defaultLease
	}
	s := &Session{
		side: side, conn: conn, opts: opts,
		wake: make(chan struct{}, 1), ready: make(chan struct{}), done: make(chan struct{}),
		streams: make(map[uint32]*Stream), asked: make(map[uint32]chan Errno),
		accept: make(chan struct{}, 1), mailed: make(chan struct{}, 1),
		next: 2, class: usualClass,
	}
	if side == Runner {
		s.next = 1
		hello := wire.NetHello{Version: wire.NetVersion, PID: os.Getpid(), Features: append(slices.Clone(opts.Features), wire.NetLarge)}
		s.out.control = hello.AppendFrame(nil)
		notify(s.wake)
	}
	s.startLife()
	s.wg.Go(s.read)
	s.wg.Go(s.write)
	return s
}

// Ready waits until the peer has said its version. If the session is over before, the error
// wraps ErrLost, and what Err returns.
func (s *Session) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.done:
		return s.lost()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Hello is what the runner said first, once the session is ready.
func (s *Session) Hello() wire.NetHello {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

// UID is the user of the session's commands by the host's word, once the session is ready.
func (s *Session) UID() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open.UID
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session is over: io.EOF if the peer has closed it between two frames,
// net.ErrClosed after Close, else what went wrong. It is nil while the session lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Streams returns how many streams are open.
func (s *Session) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mine + s.theirs
}

// Close ends the session and all its streams at once, and waits for its goroutines. It
// closes the connection.
func (s *Session) Close() error {
	s.mu.Lock()
	s.fail(net.ErrClosed)
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// fail ends the session; only the first reason counts. It needs mu.
func (s *Session) fail(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	cause := err
	if errors.Is(err, io.EOF) { // the end of the connection is not that of a stream's data
		cause = io.ErrUnexpectedEOF
	}
	lost := fmt.Errorf("%w: %w", ErrLost, cause)
	for _, st := range s.streams {
		st.sever(lost)
	}
	s.arrived, s.mail = nil, nil
	s.life.stop()
	close(s.done)
	notify(s.wake)
	s.wg.Go(func() { _ = s.conn.Close() }) // unblocks the reader and the writer
}

// failed is the error for a caller that came too late. It needs mu.
func (s *Session) failed() error { return fmt.Errorf("%w: %w", ErrLost, s.err) }

func (s *Session) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed()
}

// Open opens a stream. It does not wait for the peer's answer: a refusal arrives as a
// *ResetError of the stream. ErrFull means that this side has too many streams open.
func (s *Session) Open(ctx context.Context, target Target) (*Stream, error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	most := MaxHostStreams
	if s.side == Runner {
		most = MaxRunnerStreams
	}
	if s.err == nil && s.mine >= most {
		return nil, ErrFull
	}
	id, err := s.begin(target)
	if err != nil {
		return nil, err
	}
	st := newStream(s, id, target)
	st.own = true
	s.mine++
	s.add(st)
	return st, nil
}

// begin sends a NetNew and returns its number. It needs mu.
func (s *Session) begin(target Target) (uint32, error) {
	id := s.next
	if id+2 < id {
		s.fail(errors.New("all numbers of streams have been used"))
	}
	if s.err != nil {
		return 0, s.failed()
	}
	s.next += 2
	s.send(wire.NetNew{ID: id, Kind: target.Kind, Local: target.Local, Remote: target.Remote}.AppendFrame)
	return id, nil
}

// add needs mu.
func (s *Session) add(st *Stream) {
	s.streams[st.id] = st
	if len(s.streams) == 1 {
		s.life.busy()
	}
}

// Accept waits for a stream that the peer opens.
func (s *Session) Accept(ctx context.Context) (*Stream, error) {
	for {
		s.mu.Lock()
		if s.err != nil {
			err := s.failed()
			s.mu.Unlock()
			return nil, err
		}
		if len(s.arrived) > 0 {
			st := s.arrived[0]
			s.arrived = s.arrived[1:]
			if len(s.arrived) > 0 {
				notify(s.accept) // for another caller
			}
			s.mu.Unlock()
			return st, nil
		}
		s.mu.Unlock()
		select {
		case <-s.accept:
		case <-s.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Listen asks the runner to listen at an IPv4 address of the session. An Errno says what
// the session's kernel has refused; AddrInUse means that another program listens there.
func (s *Session) Listen(ctx context.Context, addr netip.AddrPort) error {
	return s.ask(ctx, Target{Kind: wire.NetListen, Local: addr})
}

// Unlisten asks the runner to close a listener. Its connections stay.
func (s *Session) Unlisten(ctx context.Context, addr netip.AddrPort) error {
	return s.ask(ctx, Target{Kind: wire.NetUnlisten, Local: addr})
}

func (s *Session) ask(ctx context.Context, target Target) error {
	if !target.Local.Addr().Is4() {
		return fmt.Errorf("%s is not an IPv4 address", target.Local)
	}
	if err := s.Ready(ctx); err != nil {
		return err
	}
	answer := make(chan Errno, 1)
	s.mu.Lock()
	id, err := s.begin(target)
	if err == nil {
		s.asked[id] = answer
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case errno := <-answer:
		if errno != 0 {
			return fmt.Errorf("%s: %w", target.Local, errno)
		}
		return nil
	case <-s.done:
		return s.lost()
	case <-ctx.Done():
		return context.Cause(ctx) // the answer has room in its channel
	}
}

// SendDatagram sends a datagram of at most wire.MaxDatagram bytes. id is the number of the
// question, which its answer repeats. ErrFull means that the datagram was dropped because
// the peer takes nothing.
func (s *Session) SendDatagram(id uint32, data []byte) error {
	if len(data) > wire.MaxDatagram {
		return fmt.Errorf("datagram of %d bytes, limit %d", len(data), wire.MaxDatagram)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.failed()
	case len(s.out.control) > maxControl/2:
		return ErrFull
	}
	s.send(func(dst []byte) []byte {
		return append(wire.AppendNetHeader(dst, wire.NetDatagramType, id, len(data)), data...)
	})
	return nil
}

// ReceiveDatagram waits for a datagram from the peer.
func (s *Session) ReceiveDatagram(ctx context.Context) (id uint32, data []byte, err error) {
	for {
		s.mu.Lock()
		if s.err != nil {
			err = s.failed()
			s.mu.Unlock()
			return 0, nil, err
		}
		if len(s.mail) > 0 {
			d := s.mail[0]
			s.mail = s.mail[1:]
			if len(s.mail) > 0 {
				notify(s.mailed)
			}
			s.mu.Unlock()
			return d.id, d.data, nil
		}
		s.mu.Unlock()
		select {
		case <-s.mailed:
		case <-s.done:
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		}
	}
}

// Tell tells the host which process a stream's connection belongs to.
func (s *Session) Tell(st *Stream, owner Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !st.gone {
		s.send(wire.NetOwner{ID: st.id, PID: owner.PID, Session: owner.Session, Runner: owner.Runner}.AppendFrame)
	}
}

// notify wakes the goroutine that waits on a channel with room for one, now or when it
// comes to wait.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
