package gateway_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// sockets is a Tunnel whose session is this process: each listener is a real socket, at another
// address than it says.
type sockets struct {
	ctx       context.Context //nolint:containedctx // of the test
	accepted  chan gateway.Conn
	questions chan question

	mu        sync.Mutex
	listeners map[netip.AddrPort]net.Listener // guarded by mu
	taken     map[netip.AddrPort]bool         // guarded by mu; where a process of the session listens
	answers   map[uint32]chan []byte          // guarded by mu
	next      uint32                          // guarded by mu
}

type question struct {
	id       uint32
	datagram []byte
}

func newSockets(t *testing.T) *sockets {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &sockets{
		ctx: ctx, accepted: make(chan gateway.Conn), questions: make(chan question),
		listeners: map[netip.AddrPort]net.Listener{}, taken: map[netip.AddrPort]bool{}, answers: map[uint32]chan []byte{},
	}
	t.Cleanup(func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range s.listeners {
			_ = l.Close()
		}
	})
	return s
}

func (s *sockets) Listen(ctx context.Context, at netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[at] {
		return syscall.EADDRINUSE
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.listeners[at] = l
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case s.accepted <- &socket{TCPConn: conn.(*net.TCPConn), local: net.TCPAddrFromAddrPort(at)}:
			case <-s.ctx.Done():
				_ = conn.Close()
			}
		}
	}()
	return nil
}

func (s *sockets) Unlisten(at netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[at]
	delete(s.listeners, at)
	return l.Close()
}

func (s *sockets) Accept(ctx context.Context) (gateway.Conn, error) {
	select {
	case conn := <-s.accepted:
		return conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *sockets) Question(ctx context.Context) (uint32, []byte, error) {
	select {
	case q := <-s.questions:
		return q.id, q.datagram, nil
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
}

func (s *sockets) Answer(id uint32, datagram []byte) error {
	s.mu.Lock()
	to := s.answers[id]
	s.mu.Unlock()
	to <- datagram
	return nil
}

// ask sends a datagram to port 53 and returns the answer.
func (s *sockets) ask(ctx context.Context, datagram []byte) ([]byte, error) {
	s.mu.Lock()
	s.next++
	id, answer := s.next, make(chan []byte, 1)
	s.answers[id] = answer
	s.mu.Unlock()
	select {
	case s.questions <- question{id, datagram}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// dial connects to a listener as a program of the session would.
func (s *sockets) dial(at netip.AddrPort) (*net.TCPConn, error) {
	s.mu.Lock()
	l := s.listeners[at]
	s.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	conn, err := new(net.Dialer).DialContext(s.ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// socket is the gateway's end of a connection.
type socket struct {
	*net.TCPConn

	local net.Addr
}

func (c *socket) LocalAddr() net.Addr { return c.local }

func (c *socket) Reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}
