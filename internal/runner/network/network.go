//go:build linux

package network

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

const (
	// maxListeners bounds listeners: the host has at most two for each of 1024 names.
	maxListeners = 4096
	// sendBuffer bounds what the kernel takes for a program that does not read, in bytes:
	// by default it would take 4 MB more than the stream's credit.
	sendBuffer = 256 << 10
	// dialTime bounds a connect to the session. On lo it takes long only if the backlog of
	// the program that listens is full.
	dialTime = 10 * time.Second
	// acceptPause is the pause after an accept that fails, as when there is no memory.
	acceptPause = 50 * time.Millisecond
)

var (
	// localhost is where the name server and the proxy listen.
	localhost = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	// nameServer is where datagrams are taken too.
	nameServer = netip.AddrPortFrom(localhost, 53)
)

// Carry serves the host at the other end of conn until conn ends, or breaks a rule of the
// frames, or brings no frame for a lease. It returns nil if conn has ended. contact is
// called for what the host does with the session's ports, and must not block: connections that
// programs open keep no session alive.
func Carry(conn io.ReadWriteCloser, contact func()) error {
	c := &carrier{listeners: make(map[netip.AddrPort]*listener)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	// Listeners are asked for as soon as the session is there.
	c.mu.Lock()
	c.sess = mux.New(mux.Runner, conn, mux.Options{Listen: c.listen, Used: contact})
	c.mu.Unlock()
	c.wg.Go(c.dialAll)
	c.owners.made = make(chan made, maxMade)
	c.wg.Go(func() { c.owners.tell(c.ctx, c.sess) })
	c.wg.Go(func() { c.questions.answer(c.ctx, c.sess) })
	<-c.sess.Done()
	c.stop()
	c.closeListeners()
	err := c.sess.Err()
	_ = c.sess.Close()
	c.wg.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// carrier is one call of Carry.
type carrier struct {
	ctx  context.Context //nolint:containedctx // it ends with the session
	stop context.CancelFunc
	wg   sync.WaitGroup

	questions questions
	owners    owners

	mu        sync.Mutex
	sess      *mux.Session
	over      bool                         // guarded by mu; no more listeners
	listeners map[netip.AddrPort]*listener // guarded by mu
}

// listener is a listening socket, and at nameServer one for datagrams.
type listener struct {
	tcp *net.TCPListener
	udp *net.UDPConn // or nil
}

func (l *listener) close() {
	_ = l.tcp.Close()
	if l.udp != nil {
		_ = l.udp.Close()
	}
}

// listen opens or closes a listener for the host.
func (c *carrier) listen(addr netip.AddrPort, kind wire.NetKind) mux.Errno {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.listeners[addr]
	switch {
	case kind == wire.NetUnlisten && !ok:
		return mux.Errno(unix.ENOENT)
	case kind == wire.NetUnlisten:
		delete(c.listeners, addr)
		old.close()
		return 0
	case c.over, !addr.Addr().IsLoopback(), addr.Port() == 0:
		return mux.Errno(unix.EINVAL)
	case ok:
		return 0 // the host asks for it again
	case len(c.listeners) >= maxListeners:
		return mux.Errno(unix.EMFILE)
	}
	l, err := c.bind(addr)
	if err != nil {
		errno := unix.EIO
		errors.As(err, &errno)
		return mux.Errno(errno)
	}
	c.listeners[addr] = l
	c.wg.Go(func() { c.accept(l.tcp, kindOf(addr)) })
	if l.udp != nil {
		c.wg.Go(func() { c.questions.ask(l.udp, c.sess) })
	}
	return 0
}

// kindOf says what connections to a listener are for.
func kindOf(addr netip.AddrPort) wire.NetKind {
	switch {
	case addr == nameServer:
		return wire.NetDNS
	case addr.Addr() == localhost:
		return wire.NetProxy
	default:
		return wire.NetNamed
	}
}

// bind opens the sockets at an address. None of its calls waits.
func (c *carrier) bind(addr netip.AddrPort) (*listener, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // its peers are in the same kernel
		Control: func(network, _ string, conn syscall.RawConn) (err error) {
			if network == "udp4" {
				return nil
			}
			err2 := conn.Control(func(fd uintptr) { err = prepare(int(fd)) })
			return errors.Join(err, err2)
		},
	}
	tcp, err := config.Listen(c.ctx, "tcp4", addr.String())
	if err != nil {
		return nil, err
	}
	l := &listener{}
	l.tcp, _ = tcp.(*net.TCPListener)
	if addr == nameServer {
		udp, err := config.ListenPacket(c.ctx, "udp4", addr.String())
		if err != nil {
			_ = tcp.Close()
			return nil, err
		}
		l.udp, _ = udp.(*net.UDPConn)
	}
	return l, nil
}

// prepare sets options of a socket. An accepted socket has those of its listener from the
// start: without SO_LINGER 0 the end of this process would look like the end of the data.
func prepare(fd int) error {
	return errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer),
	)
}

func (c *carrier) closeListeners() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, l := range c.listeners {
		l.close()
	}
}

// accept opens a stream for each connection, until the listener is closed.
func (c *carrier) accept(l *net.TCPListener, kind wire.NetKind) {
	for {
		conn, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		st, err := c.sess.Open(c.ctx, mux.Target{Kind: kind, Local: addrOf(conn.LocalAddr()), Remote: addrOf(conn.RemoteAddr())})
		if err != nil { // too many, or the session is over
			_ = conn.Close() // resets it
			continue
		}
		c.owners.note(st)
		c.wg.Go(func() { _, _, _ = mux.Join(st, conn) }) // how it ended, both ends know
	}
}

func addrOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// dialAll connects to the ports that the host opens streams for.
func (c *carrier) dialAll() {
	for {
		st, err := c.sess.Accept(c.ctx)
		if err != nil {
			return
		}
		c.wg.Go(func() { c.dial(st) })
	}
}

func (c *carrier) dial(st *mux.Stream) {
	dialer := net.Dialer{Timeout: dialTime, KeepAlive: -1, Control: func(_, _ string, conn syscall.RawConn) (err error) {
		err2 := conn.Control(func(fd uintptr) { err = prepare(int(fd)) })
		return errors.Join(err, err2)
	}}
	to := netip.AddrPortFrom(localhost, st.Target().Local.Port())
	conn, err := dialer.DialContext(c.ctx, "tcp4", to.String())
	switch tcp, ok := conn.(*net.TCPConn); {
	case err == nil && ok:
		_, _, _ = mux.Join(st, tcp)
	case errors.Is(err, unix.ECONNREFUSED):
		st.Reset(wire.NetRefused)
	default:
		st.Reset(wire.NetTimeout)
	}
}
