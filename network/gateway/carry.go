package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

const (
	dialTime  = 30 * time.Second
	helloTime = 30 * time.Second // for the first message of TLS, or the first request, of a connection
)

// carry connects conn with its target and carries the bytes, unread except for the name in the
// first message of TLS.
func (g *Gateway) carry(ctx context.Context, conn Conn, t target, start time.Time) {
	conn = g.permit(ctx, conn, t)
	r := Record{Time: start, Kind: KindConnection, Host: t.name, Port: t.port}
	upstream, err := g.begin(ctx, t, &r)
	if errors.Is(err, errRead) {
		g.read(ctx, conn, r)
		return
	}
	if err != nil {
		g.fail(conn, r, err)
		return
	}
	g.splice(ctx, conn, upstream, t, r)
}

// dialled is a connection to a host, and the rules that have allowed it. The zero value is none.
type dialled struct {
	*net.TCPConn

	rules *network.Policy
}

// begin asks the rules about a connection and dials. It fills in what the record says of both. It returns
// errRead, and has dialled nothing, if the connection must be read.
func (g *Gateway) begin(ctx context.Context, t target, r *Record) (dialled, error) {
	rules := g.rules.Load()
	verdict := rules.Connect(t.name, t.port)
	if r.Rule = verdict.Rule.String(); !verdict.Allowed {
		return dialled{}, verdict.Err()
	}
	if err := g.reads(verdict); err != nil {
		r.Allowed = errors.Is(err, errRead)
		return dialled{}, err
	}
	if err := g.admit(verdict); err != nil {
		return dialled{}, err
	}
	r.Allowed = true
	if err := g.ready(ctx, *r); err != nil {
		return dialled{}, err
	}
	g.begun(*r)
	conn, err := g.dialer(ctx, t.name, t.port)
	if err != nil {
		return dialled{}, err
	}
	upstream, ok := conn.(*net.TCPConn)
	if !ok {
		return dialled{}, errors.Join(fmt.Errorf("a dialled connection is a %T", conn), conn.Close())
	}
	r.Address = upstream.RemoteAddr().String()
	return dialled{upstream, rules}, nil
}

// fail resets a connection that could not be carried, and records why.
func (g *Gateway) fail(conn Conn, r Record, err error) {
	r.Command = g.ownerOf(conn, r)
	if refusal, ok := errors.AsType[*network.Denial](err); ok {
		g.refused(r, refusal.Verdict)
		if g.asks != nil && r.Port == httpsPort { // the name's own listener, which would not exist otherwise
			sayDenied(conn)
			return
		}
		conn.Reset()
		return
	}
	conn.Reset()
	r.Err, r.Elapsed = dialError(err), time.Since(r.Time)
	g.record(r)
}

// dialError returns why a dial failed, without addresses of this machine's network.
func dialError(err error) string {
	if failure, ok := errors.AsType[*network.UpstreamError](err); ok {
		return failure.Error()
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return lookupError(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within " + dialTime.String()
	}
	if failure, ok := errors.AsType[*net.OpError](err); ok {
		for cause := failure.Err; cause != nil; cause = errors.Unwrap(cause) {
			err = cause // the system's own words: "connection refused"
		}
	}
	return err.Error()
}

// splice carries bytes in both directions until both have ended, one is reset, or ctx ends. An end
// of the data and a reset are passed on as what they are: a body that was cut never looks whole.
func (g *Gateway) splice(ctx context.Context, conn Conn, upstream dialled, t target, r Record) {
	g.follow(conn, r.Rule)
	g.open.add(conn, opened{target: t, unread: true})
	defer g.open.remove(conn)
	if now, ok := g.stillUnread(upstream.rules, t); !ok { // as in SetRules: they were replaced during the dial
		r.Command = g.ownerOf(conn, r)
		conn.Reset()
		_ = upstream.SetLinger(0)
		_ = upstream.Close()
		if now.Allowed {
			now = network.Verdict{Reason: ReasonUnread, Rule: now.Rule, Host: t.name, Port: t.port, Detail: "they were changed while it was opened"}
		}
		g.refused(r, now)
		return
	}
	reset := func() {
		conn.Reset()
		_ = upstream.SetLinger(0)
		_ = upstream.Close()
	}
	stop := context.AfterFunc(ctx, reset)
	defer stop()
	received := make(chan struct{})
	go func() {
		defer close(received)
		var err error
		if r.Received, err = io.Copy(conn, upstream.TCPConn); err == nil {
			err = conn.CloseWrite()
		}
		if err != nil {
			reset()
		}
	}()
	checked := &helloCheck{Reader: conn, conn: conn, want: t.name}
	sent, err := io.Copy(upstream.TCPConn, checked)
	if err == nil {
		err = upstream.CloseWrite()
	}
	if err != nil {
		reset()
	}
	<-received
	if r.Sent = sent; err != nil && checked.late {
		r.Err = errLateHello.Error()
	}
	r.Command = g.ownerOf(conn, r)
	_, _ = conn.Close(), upstream.Close()
	if refusal, ok := errors.AsType[*network.Denial](checked.refusal); ok {
		g.refused(r, refusal.Verdict)
		return
	}
	r.Elapsed = time.Since(r.Time)
	g.record(g.ended(conn, r))
}

// stillUnread reports whether a connection that other rules have allowed may pass unread by those of now.
// If not, it returns their verdict.
func (g *Gateway) stillUnread(before *network.Policy, t target) (network.Verdict, bool) {
	rules := g.rules.Load()
	if rules == before { // a policy is never changed, see SetRules
		return network.Verdict{}, true
	}
	now := rules.Connect(t.name, t.port)
	return now, now.Allowed && !now.Intercept
}

// helloCheck reads the start of a connection before it passes it on. If that is the first message
// of TLS, the name in it must be the one that the connection is for, or absent. Otherwise a session
// could reach any host that shares an address with an allowed one.
type helloCheck struct {
	io.Reader
	conn    net.Conn // gets a deadline while the rest of the message is read; nil: it has one
	want    string
	refusal error // set before Read returns it

	begun bool
	late  bool         // the message did not come whole in time
	held  bytes.Buffer // what was read and is not passed on so far
}

// maxHello bounds the first message of TLS. Its length has 24 bits, but no client sends more.
const maxHello = 64 << 10

func (h *helloCheck) Read(p []byte) (int, error) {
	if !h.begun {
		if err := h.check(); err != nil {
			return 0, err
		}
	}
	if h.held.Len() > 0 {
		return h.held.Read(p)
	}
	return h.Reader.Read(p)
}

// WriteTo is for io.Copy. It leaves the copying to the connection, which takes buffers only when there is
// something to put into them.
func (h *helloCheck) WriteTo(w io.Writer) (n int64, err error) {
	if !h.begun {
		if err := h.check(); err != nil {
			return 0, err
		}
	}
	if n, err = h.held.WriteTo(w); err != nil {
		return n, err
	}
	h.held = bytes.Buffer{}
	rest, err := io.Copy(w, h.Reader)
	return n + rest, err
}

// errLateHello resets a connection that begins as TLS does and does not go on.
var errLateHello = errors.New("the first message of TLS did not come whole in time")

// The first bytes of a TLS connection: a record with a handshake message, the major version of its
// protocol, and, behind the record's header of five bytes, the message of a client.
const (
	recordHandshake = 0x16
	recordMajor     = 3
	clientHello     = 1
)

// isTLS reports whether the bytes, of which there may be a few only, begin a TLS connection.
func isTLS(b []byte) bool {
	return len(b) > 0 && b[0] == recordHandshake && (len(b) < 2 || b[1] == recordMajor) && (len(b) < 6 || b[5] == clientHello)
}

func (h *helloCheck) check() error {
	name := h.peek()
	if h.late {
		return errLateHello
	}
	if name == "" || name == h.want {
		return nil
	}
	h.refusal = (network.Verdict{Reason: ReasonHost, Host: h.want, Detail: name}).Err()
	return h.refusal
}

// firsts are buffers for what connections begin with.
var firsts = sync.Pool{New: func() any { return new([4096]byte) }}

// peek returns the canonical name in the first message of TLS. It returns "" if the connection does
// not start with one, or if it has no name. A name that is not one is returned as it is.
func (h *helloCheck) peek() string {
	h.begun = true
	first, _ := firsts.Get().(*[4096]byte)
	defer firsts.Put(first)
	n, _ := h.Reader.Read(first[:]) // an error comes again
	h.held.Write(first[:n])
	if !isTLS(first[:n]) {
		return ""
	}
	name := h.serverName()
	if canonical, err := network.Canonical(name); err == nil {
		return canonical
	}
	return name
}

// serverName reads on until the first message of TLS is whole, and returns the name in it.
func (h *helloCheck) serverName() (name string) {
	if h.conn != nil {
		_ = h.conn.SetReadDeadline(time.Now().Add(helloTime))
		defer func() { _ = h.conn.SetReadDeadline(time.Time{}) }()
	}
	whole := false
	rest := io.TeeReader(io.LimitReader(h.Reader, maxHello), &h.held)
	conn := helloConn{read: io.MultiReader(bytes.NewReader(bytes.Clone(h.held.Bytes())), rest)}
	server := tls.Server(conn, &tls.Config{ //nolint:gosec // it agrees to nothing: see errParsed
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name, whole = hello.ServerName, true
			return nil, errParsed
		},
	})
	// Its connection ends it, and it always fails: its only use is the name.
	err := server.HandshakeContext(context.Background())
	h.late = !whole && errors.Is(err, os.ErrDeadlineExceeded)
	return name
}

// errParsed ends a handshake once the client's first message is known.
var errParsed = errors.New("parsed")

// helloConn lets crypto/tls read a first message, and discards what it would answer.
type helloConn struct {
	net.Conn // nil: a handshake uses no other method

	read io.Reader
}

func (c helloConn) Read(p []byte) (int, error)       { return c.read.Read(p) }
func (c helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c helloConn) SetWriteDeadline(time.Time) error { return nil }
func (c helloConn) Close() error                     { return nil }
