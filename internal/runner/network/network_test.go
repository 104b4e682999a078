//go:build linux

package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// patience is when a test gives up on what must happen.
const patience = 30 * time.Second

// rig is a host whose session is on this machine's loopback interface.
type rig struct {
	t        *testing.T
	host     *mux.Session
	carried  chan error   // what Carry has returned
	contacts atomic.Int64 // calls of contact
}

func newRig(t *testing.T, opts mux.Options) *rig {
	t.Helper()
	near, far := net.Pipe()
	r := &rig{t: t, carried: make(chan error, 1)}
	go func() { r.carried <- Carry(far, func() { r.contacts.Add(1) }) }()
	r.host = mux.New(mux.Host, near, opts)
	t.Cleanup(func() { _ = r.host.Close() })
	if err := r.host.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// end waits for Carry, after the end of the host's session.
func (r *rig) end() error {
	r.t.Helper()
	select {
	case err := <-r.carried:
		return err
	case <-time.After(patience):
		r.t.Fatal("Carry does not return")
		return nil
	}
}

// lastPort is the port that free has returned last. Its ports are below those that the kernel chooses from:
// one of those may be another test's by the time that it is used.
var lastPort atomic.Uint32

// free is an address that nothing listens at.
func free(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	for range 100 {
		at := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(20000+lastPort.Add(1)))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", at.String())
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		return at
	}
	t.Fatal("no port is free")
	return netip.AddrPort{}
}

func listening(t *testing.T, ip string) *net.TCPListener {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	tcp, _ := l.(*net.TCPListener)
	_ = tcp.SetDeadline(time.Now().Add(patience))
	return tcp
}

// listen has the session listen at an address of its own.
func (r *rig) listen(ip string) netip.AddrPort {
	r.t.Helper()
	at := free(r.t, ip)
	if err := r.host.Listen(r.t.Context(), at); err != nil {
		r.t.Fatal(err)
	}
	return at
}

// connect is a program of the session that connects.
func connect(t *testing.T, at netip.AddrPort) *net.TCPConn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}

// accepted is the stream of the connection that a program has made.
func (r *rig) accepted() *mux.Stream {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	st, err := r.host.Accept(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = st.SetDeadline(time.Now().Add(patience))
	return st
}

// both sends a text in each direction, each of which ends behind it.
func both(t *testing.T, name string, a, b interface {
	io.ReadWriter
	CloseWrite() error
},
) {
	t.Helper()
	for _, row := range []struct {
		from io.Writer
		end  func() error
		to   io.Reader
		text string
	}{{a, a.CloseWrite, b, "question"}, {b, b.CloseWrite, a, "answer"}} {
		_, err := io.WriteString(row.from, row.text)
		err = errors.Join(err, row.end())
		got, err2 := io.ReadAll(row.to)
		if err = errors.Join(err, err2); err != nil || string(got) != row.text {
			t.Errorf("%s: %q arrives as %q, %v", name, row.text, got, err)
		}
	}
}

func TestCarryConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, mux.Options{})
	for ip, kind := range map[string]wire.NetKind{"127.0.0.1": wire.NetProxy, "127.64.3.1": wire.NetNamed, "127.64.3.2": wire.NetNamed} {
		at := r.listen(ip)
		conn := connect(t, at)
		st := r.accepted()
		want := mux.Target{Kind: kind, Local: at, Remote: netip.MustParseAddrPort(conn.LocalAddr().String())}
		if got := st.Target(); got != want {
			t.Errorf("a connection to %s is %+v; want %+v", at, got, want)
		}
		both(t, ip, conn, st)
	}
	if n := r.contacts.Load(); n != 0 {
		t.Errorf("connections of programs were %d contacts; want none: they would keep the session alive", n)
	}
	_ = r.host.Close()
	if err := r.end(); err != nil {
		t.Errorf("Carry() = %v; want nil at the end of its connection", err)
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, mux.Options{})
	taken := netip.MustParseAddrPort(listening(t, "127.64.4.1").Addr().String())
	for _, row := range []struct {
		name string
		call func(context.Context, netip.AddrPort) error
		at   netip.AddrPort
		want unix.Errno
	}{
		{"another machine's address", r.host.Listen, netip.MustParseAddrPort("192.0.2.1:80"), unix.EINVAL},
		{"every address", r.host.Listen, netip.MustParseAddrPort("0.0.0.0:80"), unix.EINVAL},
		{"any port", r.host.Listen, netip.MustParseAddrPort("127.0.0.1:0"), unix.EINVAL},
		{"a taken port", r.host.Listen, taken, unix.EADDRINUSE},
		{"what nothing listens at", r.host.Unlisten, free(t, "127.64.4.1"), unix.ENOENT},
		{"a foreign listener", r.host.Unlisten, taken, unix.ENOENT},
	} {
		if err := row.call(t.Context(), row.at); !errors.Is(err, mux.Errno(row.want)) {
			t.Errorf("%s: %v; want %v", row.name, err, row.want)
		}
	}
}

func TestListenBounds(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort("127.64.5.1:1")
	c := &carrier{over: true, listeners: map[netip.AddrPort]*listener{}}
	if got := c.listen(at, wire.NetListen); got != mux.Errno(unix.EINVAL) {
		t.Errorf("a listener after the end: %v; want EINVAL", got)
	}
	c.over = false
	for n := range maxListeners {
		c.listeners[netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 65, byte(n >> 8), byte(n)}), 80)] = nil
	}
	if got := c.listen(at, wire.NetListen); got != mux.Errno(unix.EMFILE) || len(c.listeners) != maxListeners {
		t.Errorf("listener %d: %v; want EMFILE", len(c.listeners), got)
	}
}

// A listener that is closed takes no connection, and those that it has taken stay.
func TestUnlisten(t *testing.T) {
	t.Parallel()
	r := newRig(t, mux.Options{})
	at := r.listen("127.64.6.1")
	if err := r.host.Listen(t.Context(), at); err != nil {
		t.Errorf("Listen, again: %v; want nil", err)
	}
	conn := connect(t, at)
	st := r.accepted()
	if err := r.host.Unlisten(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer
	if late, err := dialer.DialContext(t.Context(), "tcp4", at.String()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connecting to a closed listener: %v, %v; want refused", late, err)
	}
	both(t, "after Unlisten", conn, st)
	if err := r.host.Listen(t.Context(), at); err != nil {
		t.Errorf("Listen after Unlisten: %v; want nil", err)
	}
}

// A program must not take a part for the whole: unless the host ends a stream cleanly, its
// connection is reset.
func TestCutConnectionsAreReset(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*rig, *mux.Stream){
		"the host resets the stream": func(_ *rig, st *mux.Stream) { st.Reset(wire.NetCut) },
		"the host goes":              func(r *rig, _ *mux.Stream) { _ = r.host.Close() },
	} {
		r := newRig(t, mux.Options{})
		at := r.listen("127.64.7.1")
		conn := connect(t, at)
		st := r.accepted()
		if _, err := st.Write([]byte("part")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		cut(r, st)
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: the program reads %d bytes, %v; want a reset", name, n, err)
		}
		_ = r.host.Close()
		if err := r.end(); err != nil {
			t.Errorf("%s: Carry() = %v", name, err)
		}
		var dialer net.Dialer
		if _, err := dialer.DialContext(t.Context(), "tcp4", at.String()); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: connecting after the end: %v; want refused", name, err)
		}
	}
}

// The reset of a program reaches the host as one.
func TestProgramsReset(t *testing.T) {
	t.Parallel()
	r := newRig(t, mux.Options{})
	at := r.listen("127.64.8.1")
	conn := connect(t, at)
	st := r.accepted()
	_ = conn.SetLinger(0)
	_ = conn.Close()
	_, err := st.Read(make([]byte, 1))
	if e, ok := errors.AsType[*mux.ResetError](err); !ok || !e.Peer || e.Reason != wire.NetBroken {
		t.Errorf("Read of a connection that its program has reset: %v; want broken by the peer", err)
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	r := newRig(t, mux.Options{})
	open := func(port uint16) *mux.Stream {
		st, err := r.host.Open(t.Context(), mux.Target{Kind: wire.NetDial, Local: netip.AddrPortFrom(localhost, port)})
		if err != nil {
			t.Fatal(err)
		}
		_ = st.SetDeadline(time.Now().Add(patience))
		return st
	}
	l := listening(t, "127.0.0.1")
	st := open(netip.MustParseAddrPort(l.Addr().String()).Port())
	conn, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	both(t, "dial", st, conn)
	if r.contacts.Load() == 0 {
		t.Error("a dial of the host has not counted as contact; want it to keep the session alive")
	}
	_, err = open(free(t, "127.0.0.1").Port()).Read(make([]byte, 1))
	if e, ok := errors.AsType[*mux.ResetError](err); !ok || e.Reason != wire.NetRefused {
		t.Errorf("dialling a closed port: %v; want refused", err)
	}
	_, err = open(0).Read(make([]byte, 1))
	if _, ok := errors.AsType[*mux.ResetError](err); !ok {
		t.Errorf("dialling port 0: %v; want a reset", err)
	}
	// Whatever address the host names, it is the session's own.
	elsewhere := listening(t, "127.64.9.1")
	st, err = r.host.Open(t.Context(), mux.Target{Kind: wire.NetDial, Local: netip.MustParseAddrPort(elsewhere.Addr().String())})
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Read(make([]byte, 1))
	if e, ok := errors.AsType[*mux.ResetError](err); !ok || e.Reason != wire.NetRefused {
		t.Errorf("dialling %s: %v; want refused on 127.0.0.1", elsewhere.Addr(), err)
	}
}

// Programs that open more connections than a session carries have those reset, and the
// others work on.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, mux.Options{})
	at := r.listen("127.64.10.1")
	var conns []*net.TCPConn
	for range mux.MaxRunnerStreams {
		conns = append(conns, connect(t, at))
		r.accepted()
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp4", at.String())
	if err == nil { // else the reset was faster
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("connection %d: %v; want a reset", mux.MaxRunnerStreams+1, err)
	}
	_ = conns[0].SetLinger(0)
	_ = conns[0].Close()
	for n := 0; r.host.Streams() == mux.MaxRunnerStreams && n < 30_000; n++ {
		time.Sleep(time.Millisecond)
	}
	both(t, "after one of them has ended", connect(t, at), r.accepted())
}

// hostile is a connection to a host that sends what it likes.
type hostile struct {
	io.Reader
	closed atomic.Bool
}

func (h *hostile) Write(p []byte) (int, error) { return len(p), nil }
func (h *hostile) Close() error                { h.closed.Store(true); return nil }

func TestCarryEnds(t *testing.T) {
	t.Parallel()
	open := wire.NetOpen{Version: wire.NetVersion, Lease: time.Minute}.AppendFrame(nil)
	broken := errors.New("broken")
	for _, row := range []struct {
		name string
		in   io.Reader
		want error
	}{
		{"an end at the start", bytes.NewReader(nil), nil},
		{"an end between frames", bytes.NewReader(open), nil},
		{"an end within a frame", bytes.NewReader(open[:len(open)-1]), io.ErrUnexpectedEOF},
		{"no frames", bytes.NewReader(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 99)), wire.ErrFrame},
		{"no greeting", bytes.NewReader(wire.AppendFrame(nil, wire.NetPingType, nil)), wire.ErrFrame},
		{"a broken rule", bytes.NewReader(append(open, wire.AppendNetHeader(nil, wire.NetEndType, 7, 0)...)), wire.ErrFrame},
		{"a broken connection", io.MultiReader(bytes.NewReader(open), &failing{broken}), broken},
	} {
		conn := &hostile{Reader: row.in}
		if err := Carry(conn, func() {}); !errors.Is(err, row.want) || row.want == nil && err != nil {
			t.Errorf("%s: Carry() = %v; want %v", row.name, err, row.want)
		}
		if !conn.closed.Load() {
			t.Errorf("%s: the connection is left open", row.name)
		}
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// The host hears which process has made a connection.
func TestOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, mux.Options{UID: uint32(os.Getuid())})
	at := r.listen("127.64.11.1")
	child := helper(t, roleConnect, at.String())
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	st := r.accepted()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if owner, ok := st.Owner(); ok {
			if owner.PID != child.Process.Pid {
				t.Errorf("the owner is %+v; want process %d", owner, child.Process.Pid)
			}
			break
		}
		if time.Since(began) > patience {
			t.Fatal("the host hears nothing about the owner")
		}
	}
	_ = stdin.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// A flood of connections whose owners are not known so far makes none of them wait.
func TestOwnersFlood(t *testing.T) {
	t.Parallel()
	o := owners{made: make(chan made, maxMade)}
	for range 2 * maxMade {
		o.note(&mux.Stream{}) // must not block
	}
	if n := len(o.made); n != maxMade {
		t.Errorf("%d connections wait; want %d", n, maxMade)
	}
}

// The pauses between searches grow while connections wait, up to a bound, and only then.
func TestNextShare(t *testing.T) {
	t.Parallel()
	share := searchShare
	for range 10 {
		next := nextShare(share, fewMade+1)
		if next < share || next > mostShare || next == share && share != mostShare {
			t.Errorf("nextShare(%d, many) = %d; want more, up to %d", share, next, mostShare)
		}
		share = next
	}
	for _, few := range []int{0, 1, fewMade} {
		if got := nextShare(share, few); share != mostShare || got != searchShare {
			t.Errorf("the share grows to %d, and is %d when %d wait; want %d, %d", share, got, few, mostShare, searchShare)
		}
	}
}

// The role that this test binary has when it is run again.
const (
	roleVariable  = "SANDBOXBASH_NETWORK_TEST"
	roleConnect   = "connect"     // to the address that is its argument; ends with its input
	roleNamespace = "name-server" // tests the name server's port in a network of its own
)

// helper is this binary in a role.
func helper(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = t.Output()
	return cmd
}

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == roleConnect {
		if err := connectAndWait(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func connectAndWait(at string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(context.Background(), "tcp4", at)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// Port 53 is tested in a network namespace, where nothing else listens there.
func TestNameServer(t *testing.T) {
	if os.Getenv(roleVariable) == roleNamespace {
		nameServerInNamespace(t)
		return
	}
	t.Parallel()
	cmd := helper(t, roleNamespace, "-test.run=^TestNameServer$", "-test.count=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNET | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skip("this machine makes no namespaces: " + err.Error())
	}
	if err != nil || !bytes.Contains(out, []byte("PASS")) {
		t.Errorf("in the namespace: %v\n%s", err, out)
	}
}

func nameServerInNamespace(t *testing.T) {
	t.Helper()
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, mux.Options{})
	var config net.ListenConfig
	// Both protocols are there, or neither.
	squatter, err := config.ListenPacket(t.Context(), "udp4", nameServer.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.host.Listen(t.Context(), nameServer); !errors.Is(err, mux.AddrInUse) {
		t.Errorf("Listen while a program has the port's datagrams: %v; want %v", err, mux.AddrInUse)
	}
	_ = squatter.Close()
	if err := r.host.Listen(t.Context(), nameServer); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, nameServer)
	st := r.accepted()
	if st.Kind() != wire.NetDNS {
		t.Errorf("a connection to port 53 is of kind %d; want %d", st.Kind(), wire.NetDNS)
	}
	both(t, "port 53", conn, st)

	var dialer net.Dialer
	asker, err := dialer.DialContext(t.Context(), "udp4", nameServer.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asker.Close() }()
	_ = asker.SetDeadline(time.Now().Add(patience))
	if _, err := asker.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	id, question, err := r.host.ReceiveDatagram(t.Context())
	if err != nil || string(question) != "question" {
		t.Errorf("the host receives %q, %v", question, err)
	}
	if err := r.host.SendDatagram(id, []byte("answer")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := asker.Read(buf); err != nil || string(buf[:n]) != "answer" {
		t.Errorf("the program receives %q, %v", buf[:n], err)
	}
	if err := r.host.Unlisten(t.Context(), nameServer); err != nil {
		t.Fatal(err)
	}
	again, err := config.ListenPacket(t.Context(), "udp4", nameServer.String())
	if err != nil {
		t.Fatalf("after Unlisten the port's datagrams are still taken: %v", err)
	}
	_ = again.Close()
}

// loopbackUp sets up the loopback interface of a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
