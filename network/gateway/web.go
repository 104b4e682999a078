package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
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
	"github.com/sandboxbash/sandboxbash/network/inject"
)

// web serves the connections that speak HTTP, plain or inside TLS that it terminates. Each request is
// judged by itself: one connection may carry requests to several hosts.
type web struct {
	gateway   *Gateway
	server    *http.Server
	transport *http.Transport // its pool has connections by scheme, host and port
	proxy     *httputil.ReverseProxy
	secure    *tls.Config // of connections to hosts whose requests are read
	denying   *tls.Config // of connections to refused hosts: HTTP/1.1 has a reason phrase
	requests  atomic.Int64
	arriving  chan net.Conn
	closed    chan struct{}
	start     func() // serves, once
	end       func() // closes closed, once
}

const (
	maxHeader    = 64 << 10  // bytes of a request's
	maxAnswer    = 256 << 10 // bytes of a response's header
	maxStreams   = 100       // requests at once on one connection of HTTP/2
	perConn      = 4         // requests at once for each connection that may be open
	idleUpstream = 30 * time.Second
	idleInside   = 2 * time.Minute
)

func newWeb(g *Gateway) *web {
	w := &web{gateway: g, arriving: make(chan net.Conn), closed: make(chan struct{})}
	w.start = sync.OnceFunc(func() { go func() { _ = w.server.Serve(listener{w}) }() })
	w.end = sync.OnceFunc(func() { close(w.closed) })
	w.transport = &http.Transport{
		DialContext:        w.dial,
		DisableCompression: true, // the answer passes as the server has sent it
		IdleConnTimeout:    idleUpstream, MaxIdleConns: 100, MaxIdleConnsPerHost: 16,
		ExpectContinueTimeout: time.Second,
		TLSHandshakeTimeout:   dialTime, MaxResponseHeaderBytes: maxAnswer,
		ForceAttemptHTTP2: true, // a dialer of one's own turns it off
		TLSClientConfig:   &tls.Config{RootCAs: g.roots, MinVersion: tls.VersionTLS12, GetClientCertificate: noCertificate},
	}
	w.secure, w.denying = w.tlsConfig("h2", "http/1.1"), w.tlsConfig("http/1.1")
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // what is wrong with a request is told to its client, and recorded
	w.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it was judged: ReverseProxy removes what it cannot parse
		},
		Transport:      upstream{w},
		FlushInterval:  -1, // events arrive when they happen
		ErrorLog:       quiet,
		ModifyResponse: w.incoming,
		ErrorHandler:   w.failed,
	}
	w.server = &http.Server{
		Handler: http.HandlerFunc(w.handle), ErrorLog: quiet,
		ReadHeaderTimeout: helloTime, IdleTimeout: idleInside, MaxHeaderBytes: g.limits.Header,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ConnContext: connContext,
	}
	return w
}

// connKey and requestKey are the keys of a request's connection and of its exchange in its context.
type (
	connKey    struct{}
	requestKey struct{}
)

// exchange is a request on its way to its host.
type exchange struct {
	record *Record
	asked  atomic.Bool // the host has asked for a certificate of the client
	broken atomic.Pointer[inject.FrameError]
}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(requestKey{}).(*exchange) }

func requestOf(ctx context.Context) *Record { return exchangeOf(ctx).record }

// webConn is a connection that speaks HTTP, to one host or, if target is zero, to the proxy.
type webConn struct {
	Conn

	target target
	scheme string // schemePlain or schemeTLS
	names  string // the host that its TLS names; "" if it names none
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

// serve serves the plain requests of a connection, in the background.
func (w *web) serve(conn Conn, t target) {
	c := w.add(conn, t)
	w.give(c, c)
}

// add makes a connection one that speaks HTTP.
func (w *web) add(conn Conn, t target) *webConn {
	w.gateway.open.add(conn, opened{target: t})
	return &webConn{Conn: conn, target: t, scheme: schemePlain, end: sync.OnceFunc(func() { w.gateway.open.remove(conn) })}
}

// give has the server serve a connection: c itself, or the TLS on it.
func (w *web) give(c *webConn, served net.Conn) {
	w.start()
	select {
	case w.arriving <- served:
	case <-w.closed:
		c.Reset()
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
	case conn := <-l.arriving:
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
	defer w.requests.Add(-1)
	busy := w.requests.Add(1) > int64(perConn*w.gateway.limits.Connections)
	conn := connOf(r.Context())
	record := &Record{Time: time.Now(), Kind: KindRequest, Method: r.Method, Path: r.URL.EscapedPath()}
	verdict := w.gateway.reconsider(r.Context(), w.judge(r, conn, record), questionOf(r), func() network.Verdict {
		return w.judge(r, conn, record)
	})
	verdict = w.gateway.admitRequest(conn, r, verdict)
	if busy && verdict.Allowed {
		verdict = network.Verdict{Reason: ReasonLimit, Host: record.Host, Port: record.Port, Detail: "too many requests at once"}
	}
	if !verdict.Allowed {
		record.Command = w.gateway.ownerOf(conn, *record)
		w.gateway.refused(*record, verdict)
		deny(rw, r, verdict)
		return
	}
	if r.Method == http.MethodConnect {
		w.connect(rw, r, target{record.Host, record.Port}, *record)
		return
	}
	at, err := url.ParseRequestURI(verdict.Target) // what was judged is what is asked for
	if err != nil || at.RequestURI() != verdict.Target {
		http.Error(rw, "sandboxbash: the path cannot be passed on", http.StatusBadRequest)
		return
	}
	record.Allowed, record.Rule = true, verdict.Rule.String()
	if err := w.gateway.ready(r.Context(), *record); err != nil {
		conn.Reset()
		record.Err, record.Elapsed = err.Error(), time.Since(record.Time)
		w.gateway.record(*record)
		return
	}
	w.gateway.begun(*record)
	w.pass(rw, r, at, record)
}

// pass passes a request on to the host of its record, and the response back.
func (w *web) pass(rw http.ResponseWriter, r *http.Request, at *url.URL, record *Record) {
	conn := connOf(r.Context())
	// Else HTTP/1 would read the rest of the body first: a client that waits for an early answer, or that
	// talks with its host, would wait forever.
	_ = http.NewResponseController(rw).EnableFullDuplex() // HTTP/2 is so in any case
	body := &countedBody{ReadCloser: w.gateway.limitBody(r, record)}
	counted := &countedWriter{ResponseWriter: rw}
	read, wrote := conn.read.Load(), conn.wrote.Load()
	whole, passed := false, &exchange{record: record}
	defer func() { // also when the proxy aborts the response, which is a panic
		if !whole && r.ProtoMajor == 1 {
			conn.Reset() // an end of the data would make a body without a length look whole
		}
		record.Sent, record.Received = body.n.Load(), counted.n.Load()
		if record.Status == http.StatusSwitchingProtocols {
			if broken := passed.broken.Load(); broken != nil {
				record.Err = w.gateway.secrets.Mask(broken.Error())
			}
			record.Sent, record.Received = conn.read.Load()-read, conn.wrote.Load()-wrote
		}
		record.Elapsed, record.Command = time.Since(record.Time), w.gateway.ownerOf(conn, *record)
		w.gateway.record(w.gateway.ended(conn, *record))
	}()
	t := target{record.Host, record.Port}
	out := r.WithContext(context.WithValue(r.Context(), requestKey{}, passed))
	out.Body = body
	out.URL = at
	out.URL.Scheme, out.URL.Host = conn.scheme, t.String()
	out.Host = hostport(t, conn.scheme)
	dropOverrides(out, w.gateway.rules.Load().Connect(t.name, t.port).Intercept)
	w.proxy.ServeHTTP(counted, out)
	whole = true
}

// judge asks the rules about a request that came over a connection to a host, or over one to the proxy
// if the connection's target is zero. It fills in the record's host and port.
func (w *web) judge(r *http.Request, conn *webConn, record *Record) network.Verdict {
	t := conn.target
	named, err := hostOf(r, conn.scheme)
	proxied := t == (target{})
	if proxied {
		t = named
	}
	record.Host, record.Port = t.name, t.port
	switch {
	case err != nil || named != t:
		return network.Verdict{Reason: ReasonHost, Host: t.name, Detail: r.Host}
	case conn.names != "" && conn.names != t.name:
		return network.Verdict{Reason: ReasonHost, Host: t.name, Detail: conn.names}
	case r.Method == http.MethodTrace, r.Method == http.MethodConnect && !proxied:
		return network.Verdict{Reason: ReasonMethod, Host: t.name, Detail: r.Method}
	case r.Method == http.MethodConnect:
		return w.gateway.rules.Load().Connect(t.name, t.port)
	}
	return w.gateway.rules.Load().Request(t.name, t.port, r.Method, r.URL.RequestURI())
}

// hostOf returns the host and the port that a request names.
func hostOf(r *http.Request, scheme string) (target, error) {
	host, port := r.Host, ""
	if r.Method != http.MethodConnect && r.URL.Host != "" && r.URL.Scheme != scheme {
		return target{}, fmt.Errorf("scheme %q on a connection for %s", r.URL.Scheme, scheme)
	}
	if second := r.Header["Host"]; len(second) > 0 && second[0] != host { // HTTP/2 has :authority besides
		return target{}, errors.New("two hosts")
	}
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	number, err := strconv.ParseUint(cmp.Or(port, strconv.Itoa(standardPort(r, scheme))), 10, 16)
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
	record.Err = w.gateway.secrets.Mask(wayError(r.Context(), err))
	problem, status := " cannot be reached: ", http.StatusBadGateway
	switch {
	case errors.Is(err, inject.ErrUpgrade):
		problem, status = " was not asked: ", http.StatusNotImplemented // a client that tries again gains nothing
	case errors.Is(err, errAnswer), errors.Is(err, errSecret):
		problem = " was not asked, or its answer is not passed on: "
	}
	http.Error(rw, plain("sandboxbash: "+net.JoinHostPort(record.Host, strconv.Itoa(record.Port))+problem+record.Err), status)
}

// connect passes on a CONNECT request to the proxy.
func (w *web) connect(rw http.ResponseWriter, r *http.Request, t target, record Record) {
	record.Kind, record.Path = KindConnection, ""
	upstream, err := w.gateway.begin(r.Context(), t, &record)
	read := errors.Is(err, errRead)
	if err != nil && !read {
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
		closeUpstream(upstream)
		return
	}
	conn := &bufferedConn{Conn: hijacked.(*webConn), first: io.LimitReader(buffered, int64(buffered.Reader.Buffered()))}
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		conn.Reset()
		closeUpstream(upstream)
		return
	}
	hijacked.(*webConn).end() // from here on it is a connection to its target
	if read {
		w.gateway.read(context.WithoutCancel(r.Context()), conn, record)
		return
	}
	w.gateway.splice(context.WithoutCancel(r.Context()), conn, upstream, t, record)
}

// closeUpstream closes a connection that may not be there.
func closeUpstream(conn dialled) {
	if conn.TCPConn != nil {
		_ = conn.Close()
	}
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

// WriteHeader drops informational responses: they pass by what prepares a response for the session. A
// client that waits for status 100 has it once its body is read.
func (w *countedWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	}
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
	case ReasonLimit:
		status = http.StatusTooManyRequests
	case ReasonBody:
		status = http.StatusRequestEntityTooLarge
	}
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil { // HTTP/2: it has no phrase
		rw.Header().Set("X-Sandboxbash-Denied", text)
		rw.Header().Set("Cache-Control", "no-store")
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
	r := Record{Time: start, Kind: KindConnection, Host: name, Port: port}
	if canonical, err := network.Canonical(name); g.authority.Load() != nil && err == nil && canonical == name {
		g.web.serveTLS(ctx, &bufferedConn{Conn: conn, first: &hello.held}, target{name, port}, g.web.denying, r)
		return
	}
	verdict := network.Verdict{Reason: network.BadHost, Detail: "the connection names none"}
	if name != "" {
		verdict = g.rules.Load().Connect(name, port)
	}
	r.Command = g.ownerOf(conn, r)
	g.refused(r, verdict)
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
