package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
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
	r := Record{Time: start, Kind: KindConnection, Host: t.name, Port: t.port}
	upstream, err := g.begin(ctx, t, &r)
	if err != nil {
		g.fail(conn, r, err)
		return
	}
	g.splice(ctx, conn, upstream, t, r)
}

// begin asks the rules about a connection and dials. It fills in what the record says of both.
func (g *Gateway) begin(ctx context.Context, t target, r *Record) (*net.TCPConn, error) {
	rules := g.rules.Load()
	verdict := rules.Connect(t.name, t.port)
	if r.Rule = verdict.Rule.String(); !verdict.Allowed {
		return nil, verdict.Err()
	}
	if verdict.Intercept {
		// The rule is for some requests alone, and what cannot be read cannot be judged.
		return nil, &network.Denial{Verdict: network.Verdict{Reason: ReasonUnread, Rule: verdict.Rule, Host: t.name, Port: t.port}}
	}
	r.Allowed = true
	g.begun(*r)
	conn, err := g.dialer(ctx, t.name, t.port)
	if err != nil {
		return nil, err
	}
	upstream, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a dialled connection is a %T", conn), conn.Close())
	}
	r.Address = upstream.RemoteAddr().String()
	return upstream, nil
}

// fail resets a connection that could not be carried, and records why.
func (g *Gateway) fail(conn Conn, r Record, err error) {
	conn.Reset()
	if refusal, ok := errors.AsType[*network.Denial](err); ok {
		g.refused(r, refusal.Verdict)
		return
	}
	r.Err, r.Elapsed = dialError(err), time.Since(r.Time)
	g.record(r)
}

// dialError returns why a dial failed, without addresses of this machine's network.
func dialError(err error) string {
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
func (g *Gateway) splice(ctx context.Context, conn Conn, upstream *net.TCPConn, t target, r Record) {
	g.open.add(conn, t)
	defer g.open.remove(conn)
	reset := func() {
		conn.Reset()
		_ = upstream.SetLinger(0)
		_ = upstream.Close()
	}
	stop := context.AfterFunc(ctx, reset)
	defer stop()
	var directions sync.WaitGroup
	var refused error
	directions.Go(func() {
		var err error
		if r.Received, err = io.Copy(conn, upstream); err == nil {
			err = conn.CloseWrite()
		}
		if err != nil {
			reset()
		}
	})
	directions.Go(func() {
		checked := &helloCheck{Reader: conn, want: t.name}
		var err error
		if r.Sent, err = io.Copy(upstream, checked); err == nil {
			err = upstream.CloseWrite()
		}
		if err != nil {
			refused = checked.refusal
			reset()
		}
	})
	directions.Wait()
	_, _ = conn.Close(), upstream.Close()
	if refusal, ok := errors.AsType[*network.Denial](refused); ok {
		g.refused(r, refusal.Verdict)
		return
	}
	r.Elapsed = time.Since(r.Time)
	g.record(r)
}

// helloCheck reads the start of a connection before it passes it on. If that is the first message
// of TLS, the name in it must be the one that the connection is for, or absent. Otherwise a session
// could reach any host that shares an address with an allowed one.
type helloCheck struct {
	io.Reader
	want    string
	refusal error // set before Read returns it

	begun bool
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

const recordHandshake = 0x16 // the first byte of a TLS connection

func (h *helloCheck) check() error {
	name := h.peek()
	if name == "" || name == h.want {
		return nil
	}
	h.refusal = (network.Verdict{Reason: ReasonHost, Host: h.want, Detail: name}).Err()
	return h.refusal
}

// peek returns the canonical name in the first message of TLS. It returns "" if the connection does
// not start with one, or if it has no name. A name that is not one is returned as it is.
func (h *helloCheck) peek() string {
	h.begun = true
	first := make([]byte, 4096)
	n, _ := h.Reader.Read(first) // an error comes again
	h.held.Write(first[:n])
	if n == 0 || first[0] != recordHandshake {
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
	rest := io.TeeReader(io.LimitReader(h.Reader, maxHello), &h.held)
	conn := helloConn{read: io.MultiReader(bytes.NewReader(bytes.Clone(h.held.Bytes())), rest)}
	server := tls.Server(conn, &tls.Config{ //nolint:gosec // it agrees to nothing: see errParsed
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errParsed
		},
	})
	_ = server.HandshakeContext(context.Background()) // its connection ends it; it always fails: its only use is the name
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
