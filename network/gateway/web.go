package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// web serves the connections that speak plain HTTP. Each request is judged by itself: one
// connection may carry requests to several hosts.
type web struct {
	gateway   *Gateway
	server    *http.Server
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	incoming  chan net.Conn
	closed    chan struct{}
	start     func() // serves, once
	end       func() // closes closed, once
}

const (
	maxHeader    = 64 << 10 // bytes
	idleUpstream = 30 * time.Second
	idleInside   = 2 * time.Minute
)

func newWeb(g *Gateway) *web {
	w := &web{gateway: g, incoming: make(chan net.Conn), closed: make(chan struct{})}
	w.start = sync.OnceFunc(func() { go func() { _ = w.server.Serve(listener{w}) }() })
	w.end = sync.OnceFunc(func() { close(w.closed) })
	w.transport = &http.Transport{
		DialContext:        w.dial,
		DisableCompression: true, // the answer passes as the server has sent it
		IdleConnTimeout:    idleUpstream, MaxIdleConns: 100, MaxIdleConnsPerHost: 16,
		ExpectContinueTimeout: time.Second,
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // what is wrong with a request is told to its client, and recorded
	w.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host },
		Transport:     w.transport,
		FlushInterval: -1, // events arrive when they happen
		ErrorLog:      quiet,
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Alt-Svc") // other ways to a host than the one that was judged
			requestOf(r.Request.Context()).Status = r.StatusCode
			return nil
		},
		ErrorHandler: w.failed,
	}
	w.server = &http.Server{
		Handler: http.HandlerFunc(w.handle), ErrorLog: quiet,
		ReadHeaderTimeout: helloTime, IdleTimeout: idleInside, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	return w
}

// connKey and requestKey are the keys of a request's connection and record in its context.
type (
	connKey    struct{}
	requestKey struct{}
)

func requestOf(ctx context.Context) *Record { return ctx.Value(requestKey{}).(*Record) }

// webConn is a connection that speaks HTTP, to one host or, if target is zero, to the proxy.
type webConn struct {
	Conn

	target target
	end    func()
	read   atomic.Int64 // bytes
	wrote  atomic.Int64 // bytes
}

func (c *webConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (c *webConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote.Add(int64(n))
	return n, err
}

func (c *webConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// serve serves the requests of a connection, in the background.
func (w *web) serve(conn Conn, t target) {
	w.start()
	w.gateway.open.add(conn, t)
	c := &webConn{Conn: conn, target: t, end: sync.OnceFunc(func() { w.gateway.open.remove(conn) })}
	select {
	case w.incoming <- c:
	case <-w.closed:
		conn.Reset()
		c.end()
	}
}

func (w *web) close() {
	w.end() // also for connections that come after it
	_ = w.server.Close()
	w.transport.CloseIdleConnections()
}

// listener gives an http.Server the connections of serve.
type listener struct{ *web }

func (l listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.incoming:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error {
	l.end()
	return nil
}

func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// handle judges one request and passes it on.
func (w *web) handle(rw http.ResponseWriter, r *http.Request) {
	conn := r.Context().Value(connKey{}).(*webConn)
	record := &Record{Time: time.Now(), Kind: KindRequest, Method: r.Method, Path: r.URL.EscapedPath()}
	verdict := w.judge(r, conn.target, record)
	if !verdict.Allowed {
		w.gateway.refused(*record, verdict)
		deny(rw, r, verdict)
		return
	}
	if r.Method == http.MethodConnect {
		w.connect(rw, r, target{record.Host, record.Port}, *record)
		return
	}
	at, err := url.ParseRequestURI(verdict.Target) // what was judged is what is asked for
	if err != nil {
		http.Error(rw, "sandboxbash: the path cannot be passed on", http.StatusBadRequest)
		return
	}
	record.Allowed, record.Rule = true, verdict.Rule.String()
	w.gateway.begun(*record)
	body := &countedBody{ReadCloser: r.Body}
	counted := &countedWriter{ResponseWriter: rw}
	read, wrote := conn.read.Load(), conn.wrote.Load()
	defer func() { // also when the proxy aborts the connection, which is a panic
		record.Sent, record.Received = body.n.Load(), counted.n.Load()
		if record.Status == http.StatusSwitchingProtocols {
			record.Sent, record.Received = conn.read.Load()-read, conn.wrote.Load()-wrote
		}
		record.Elapsed = time.Since(record.Time)
		w.gateway.record(*record)
	}()
	out := r.WithContext(context.WithValue(r.Context(), requestKey{}, record))
	out.Body = body
	out.URL = at
	out.URL.Scheme, out.URL.Host = "http", net.JoinHostPort(record.Host, strconv.Itoa(record.Port))
	w.proxy.ServeHTTP(counted, out)
}

// judge asks the rules about a request that came over a connection to t, or over one to the proxy if
// t is zero. It fills in the record's host and port.
func (w *web) judge(r *http.Request, t target, record *Record) network.Verdict {
	named, err := hostOf(r)
	if t == (target{}) {
		t = named
	}
	record.Host, record.Port = t.name, t.port
	switch {
	case err != nil || named != t:
		return network.Verdict{Reason: ReasonHost, Host: t.name, Detail: r.Host}
	case r.Method == http.MethodTrace:
		return network.Verdict{Reason: ReasonMethod, Host: t.name}
	case r.Method == http.MethodConnect:
		return w.gateway.rules.Load().Connect(t.name, t.port)
	}
	return w.gateway.rules.Load().Request(t.name, t.port, r.Method, r.URL.RequestURI())
}

// hostOf returns the host and the port that a request names.
func hostOf(r *http.Request) (target, error) {
	host, port, standard := r.Host, "", httpPort
	if r.Method == http.MethodConnect {
		standard = httpsPort
	} else if r.URL.Host != "" && r.URL.Scheme != "http" {
		return target{}, fmt.Errorf("scheme %q: a proxy takes http", r.URL.Scheme)
	}
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	number, err := strconv.ParseUint(cmp.Or(port, strconv.Itoa(standard)), 10, 16)
	if err != nil {
		return target{}, err
	}
	name, err := network.Canonical(host)
	return target{name, int(number)}, err
}

// dial dials for the transport. Only requests that the rules allow get here, and only the address that
// was judged is dialled.
func (w *web) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	return w.gateway.dialer(ctx, host, number)
}

// failed answers a request that could not be passed on.
func (w *web) failed(rw http.ResponseWriter, r *http.Request, err error) {
	record := requestOf(r.Context())
	if refusal, ok := errors.AsType[*network.Denial](err); ok {
		record.refuse(refusal.Verdict)
		deny(rw, r, refusal.Verdict)
		return
	}
	record.Err = dialError(err)
	at := net.JoinHostPort(record.Host, strconv.Itoa(record.Port))
	http.Error(rw, "sandboxbash: "+at+" cannot be reached: "+record.Err, http.StatusBadGateway)
}

// connect passes on a CONNECT request to the proxy.
func (w *web) connect(rw http.ResponseWriter, r *http.Request, t target, record Record) {
	record.Kind, record.Path = KindConnection, ""
	upstream, err := w.gateway.begin(r.Context(), t, &record)
	if err != nil {
		if refusal, ok := errors.AsType[*network.Denial](err); ok {
			w.gateway.refused(record, refusal.Verdict)
			deny(rw, r, refusal.Verdict)
			return
		}
		record.Err, record.Elapsed = dialError(err), time.Since(record.Time)
		w.gateway.record(record)
		http.Error(rw, "sandboxbash: "+t.String()+" cannot be reached: "+record.Err, http.StatusBadGateway)
		return
	}
	hijacked, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		_ = upstream.Close()
		return
	}
	conn := &bufferedConn{Conn: hijacked.(*webConn), first: io.LimitReader(buffered, int64(buffered.Reader.Buffered()))}
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		conn.Reset()
		_ = upstream.Close()
		return
	}
	hijacked.(*webConn).end() // from here on it is a connection to its target
	w.gateway.splice(context.WithoutCancel(r.Context()), conn, upstream, t, record)
}

// countedBody counts the bytes of a request's body.
type countedBody struct {
	io.ReadCloser

	n atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// countedWriter counts the bytes of a response's body.
type countedWriter struct {
	http.ResponseWriter

	n atomic.Int64
}

func (w *countedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// Unwrap lets http.ResponseController find the writer below.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// denial returns one line that says what was refused, why, and what to ask for. It holds plain
// characters only: it may be printed by a program that shows the reason of an HTTP status, and a
// shell may be given it as a script.
func denial(verdict network.Verdict) string {
	text := "blocked by sandbox policy: " + why(verdict)
	if verdict.Ask != "" {
		text += ", ask the user to allow " + verdict.Ask
	}
	return plain(text)
}

// plain replaces the characters that a shell or a terminal could take for more than text.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune(" .:,-@/", r):
			return r
		}
		return '-'
	}, text)
}

// drainTime and drainBytes bound what is read of a refused request's body, so that its client sees the
// refusal and not a reset.
const (
	drainTime  = 2 * time.Second
	drainBytes = 1 << 20
)

// deny answers a request with 403 and the reason, and closes the connection. net/http cannot send a
// phrase of its own with a status, and the phrase is all that some clients show.
func deny(rw http.ResponseWriter, r *http.Request, verdict network.Verdict) {
	text := denial(verdict)
	status := http.StatusForbidden
	switch verdict.Reason { //nolint:exhaustive // the others are forbidden
	case ReasonHost:
		status = http.StatusMisdirectedRequest
	case ReasonMethod:
		status = http.StatusMethodNotAllowed
	}
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, text, status)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(drainTime))
	if _, err := conn.Write(denialResponse(status, text, r.Method == http.MethodHead)); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, buffered, drainBytes)
}

// denialResponse returns the bytes of a refusal.
func denialResponse(status int, text string, head bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n", status, text, len(text)+1)
	fmt.Fprintf(&b, "X-Sandboxbash-Denied: %s\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n", text)
	if !head {
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.Bytes()
}

// alertAccessDenied is a TLS record with the fatal alert access_denied: clients show its name.
var alertAccessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// refuse handles a connection to the address of all refused names.
func (g *Gateway) refuse(ctx context.Context, conn Conn, port int, start time.Time) {
	if port == httpPort {
		g.web.serve(conn, target{}) // each request names its host
		return
	}
	stop := context.AfterFunc(ctx, conn.Reset)
	defer stop()
	_ = conn.SetDeadline(start.Add(helloTime))
	hello := &helloCheck{Reader: conn}
	name := hello.peek()
	if name != "" && g.rules.Load().Connect(name, port).Allowed { // it was refused when the name was looked up
		_ = conn.SetDeadline(time.Time{})
		g.carry(ctx, &bufferedConn{Conn: conn, first: &hello.held}, target{name, port}, start)
		return
	}
	verdict := network.Verdict{Reason: network.BadHost, Detail: "the connection names none"}
	if name != "" {
		verdict = g.rules.Load().Connect(name, port)
	}
	g.refused(Record{Time: start, Kind: KindConnection, Host: name, Port: port}, verdict)
	if _, err := conn.Write(alertAccessDenied); err == nil && conn.CloseWrite() == nil {
		_ = conn.SetDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, conn, drainBytes)
	}
	_ = conn.Close()
}

// bufferedConn is a connection of which some bytes were read already.
type bufferedConn struct {
	Conn

	first io.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) {
	if n, err := c.first.Read(p); n > 0 || err != io.EOF {
		return n, err
	}
	return c.Conn.Read(p)
}
