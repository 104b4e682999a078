package gateway

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/inject"
)

// errRead says that a connection is not carried unread: its requests are judged one by one.
var errRead = errors.New("requests are read")

// reads returns errRead if a connection that the rules allow must be read, because a rule is for some
// requests alone or because a secret is put into them. What must be read for a rule and cannot be is
// refused; what would be read for a secret alone passes without it.
func (g *Gateway) reads(verdict network.Verdict) error {
	if !verdict.Intercept && !g.secrets.Intercepts(verdict.Host, verdict.Port) {
		return nil
	}
	excluded := g.excluded(verdict.Host, verdict.Port)
	if g.authority.Load() != nil && !excluded {
		return errRead
	}
	if !verdict.Intercept {
		return nil
	}
	refusal := network.Verdict{Reason: ReasonUnread, Rule: verdict.Rule, Host: verdict.Host, Port: verdict.Port, Detail: "this session cannot read them"}
	if excluded {
		refusal.Detail = "the host is excluded from being read"
	}
	return refusal.Err()
}

// excluded reports whether connections to a canonical host are never read.
func (g *Gateway) excluded(host string, port int) bool {
	return g.exclude.Connect(host, port).Reason == network.RuleDenies
}

// read serves the requests of a connection whose record r is: those inside TLS, or plain ones on a port
// that has no TLS of its own. It returns once the requests are served in the background.
func (g *Gateway) read(ctx context.Context, conn Conn, r Record) {
	t := target{r.Host, r.Port}
	g.open.add(conn, opened{target: t})
	defer g.open.remove(conn)
	stop := context.AfterFunc(ctx, conn.Reset)
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	in := bufio.NewReader(conn)
	speaks, err := protocolOf(in)
	held := &bufferedConn{Conn: conn, first: io.LimitReader(in, int64(in.Buffered()))}
	switch {
	case err != nil: // nothing came
		conn.Reset()
		r.Elapsed = time.Since(r.Time)
		if !errors.Is(err, io.EOF) {
			r.Err = "no request has come"
		}
		g.record(r)
	case speaks == speaksTLS:
		g.web.serveTLS(ctx, held, t, g.web.secure, r)
	case speaks == speaksHTTP && t.port != httpsPort:
		_ = conn.SetDeadline(time.Time{})
		g.web.serve(held, t)
	default:
		verdict := network.Verdict{Reason: ReasonPlain, Host: t.name, Port: t.port}
		g.refused(r, verdict)
		if speaks == speaksHTTP {
			_, _ = conn.Write(denialResponse(http.StatusBadRequest, denial(verdict), false))
			drain(conn, in)
			return
		}
		conn.Reset()
	}
}

// protocol is what the first bytes of a connection belong to.
type protocol int

const (
	speaksOther protocol = iota
	speaksTLS
	speaksHTTP
)

// maxMethod is longer than every method that is judged.
const maxMethod = 32 // bytes

// protocolOf looks at the first bytes, which stay in the reader. The error is that of the first of them.
func protocolOf(in *bufio.Reader) (protocol, error) {
	for n := 1; n <= maxMethod; n++ {
		b, err := in.Peek(n)
		if len(b) < n {
			if n > 1 {
				err = nil // it ended within its first word
			}
			return speaksOther, err
		}
		switch {
		case n == 1 && b[0] == recordHandshake:
			return speaksTLS, nil
		case n > 1 && b[n-1] == ' ':
			return speaksHTTP, nil
		case (b[n-1] < 'A' || b[n-1] > 'Z') && b[n-1] != '-':
			return speaksOther, nil
		}
	}
	return speaksOther, nil
}

// drain waits until the peer has closed its end, so that it sees what was written and not a reset.
func drain(conn Conn, in io.Reader) {
	_ = conn.SetDeadline(time.Now().Add(drainTime))
	_ = conn.CloseWrite()
	_, _ = io.CopyN(io.Discard, in, drainBytes)
	_ = conn.Close()
}

// tlsConfig is how connections of the session are terminated. Protocols are in the order of preference.
func (w *web) tlsConfig(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name, err := network.Canonical(hello.ServerName)
			if hello.ServerName == "" || err != nil {
				conn, ok := hello.Conn.(*webConn)
				if !ok {
					return nil, fmt.Errorf("a connection is a %T", hello.Conn)
				}
				name = conn.target.name
			}
			// A client that names another host gets a certificate for it, and status 421 for each
			// request: that says more than an alert.
			return w.gateway.authority.Load().Certificate(name)
		},
	}
}

// serveTLS terminates the TLS of a connection to t with the session's authority, and serves its requests
// in the background.
func (w *web) serveTLS(ctx context.Context, conn Conn, t target, config *tls.Config, r Record) {
	c := w.add(conn, t)
	c.scheme = schemeTLS
	secure := tls.Server(c, config)
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		w.gateway.refused(r, w.handshakeFailed(t, err))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if sni := secure.ConnectionState().ServerName; sni != "" {
		name, err := network.Canonical(sni)
		if c.names = name; err != nil {
			c.names = sni
		}
	}
	w.give(c, secure)
}

// handshakeFailed says why no request of a connection was read. If the rules refuse the host, it is that.
func (w *web) handshakeFailed(t target, err error) network.Verdict {
	if verdict := w.gateway.rules.Load().Connect(t.name, t.port); !verdict.Allowed {
		return verdict
	}
	return network.Verdict{Reason: ReasonUntrusted, Host: t.name, Port: t.port, Detail: bounded(dialError(err))}
}

// upstream sends the requests that were judged.
type upstream struct{ *web }

// RoundTrip puts secrets into a request that goes out over TLS, and sends it.
func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == schemeTLS {
		record := requestOf(r.Context())
		used, err := u.gateway.secrets.Outgoing(r, record.Host, record.Port)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errSecret, err)
		}
		record.Secrets = used
	}
	response, err := u.transport.RoundTrip(r)
	return response, u.gateway.secrets.MaskError(err) // it repeats what the server has sent
}

// errSecret and errAnswer are errors of this process, and not of the way to a host.
var (
	errSecret = errors.New("a secret cannot be put in")
	errAnswer = errors.New("the answer is not passed on")
)

// incoming prepares a response for the session.
func (w *web) incoming(r *http.Response) error {
	r.Header.Del("Alt-Svc") // other ways to a host than the one that was judged
	requestOf(r.Request.Context()).Status = r.StatusCode
	if len(r.Trailer) > 0 {
		r.Header.Del("Content-Length") // HTTP/1.1 has trailers behind chunks alone
	}
	if r.Request.URL.Scheme != schemeTLS {
		return nil
	}
	if err := w.gateway.secrets.Incoming(r); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	if frames, ok := r.Body.(io.ReadWriteCloser); ok {
		r.Body = noted{frames, exchangeOf(r.Request.Context())}
	}
	return nil
}

// noted notes why the frames of a WebSocket ended, which httputil.ReverseProxy drops.
type noted struct {
	io.ReadWriteCloser

	exchange *exchange
}

func (n noted) Read(p []byte) (int, error) {
	read, err := n.ReadWriteCloser.Read(p)
	if broken, ok := errors.AsType[*inject.FrameError](err); ok {
		n.exchange.broken.Store(broken)
	}
	return read, err
}

// CloseWrite passes on the end of what the session sends.
func (n noted) CloseWrite() error {
	if half, ok := n.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// overrides are headers that have servers take a request for one of another method or path than those
// that were judged. Some servers read an underscore as a hyphen.
var overrides = map[string]bool{
	"x-http-method-override": true, "x-http-method": true, "x-method-override": true,
	"x-original-url": true, "x-original-uri": true, "x-rewrite-url": true,
}

// dropOverrides removes such headers, and every upgrade but that to WebSocket: with h2c, requests
// would follow that are not judged.
func dropOverrides(r *http.Request, judged bool) {
	for name := range r.Header {
		if judged && overrides[strings.ReplaceAll(strings.ToLower(name), "_", "-")] {
			delete(r.Header, name)
		}
	}
	if upgrade := r.Header["Upgrade"]; len(upgrade) != 1 || !strings.EqualFold(upgrade[0], "websocket") {
		delete(r.Header, "Upgrade")
	}
}

// wayError returns why a request could not be passed on, in plain words of a bounded length.
func wayError(ctx context.Context, err error) string {
	if failure, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate cannot be trusted: " + certificateError(failure.Err)
	}
	if exchangeOf(ctx).asked.Load() { // it may say so no more clearly than by closing the connection
		return "it asks for a certificate of the client: exclude the host from being read, and allow all its requests"
	}
	return bounded(dialError(err))
}

// noCertificate answers a host that asks for a certificate of the client.
func noCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if e, ok := info.Context().Value(requestKey{}).(*exchange); ok {
		e.asked.Store(true)
	}
	return &tls.Certificate{}, nil
}

// certificateError says what is wrong with a certificate. The words of package x509 name what the
// certificate holds, which may be anything.
func certificateError(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "it is for another name"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "this machine does not know the authority that has signed it"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "it has expired, or is not valid yet"
	}
	return bounded(err.Error())
}

const maxReason = 200 // bytes of an error's text that a session and a record see

// bounded returns the start of a text, in plain characters.
func bounded(text string) string { return plain(text[:min(len(text), maxReason)]) }

// hostport is how a client writes a host that it asks for something: without the port that it need not name.
func hostport(t target, scheme string) string {
	if t.port != standardPorts[scheme] {
		return t.String()
	}
	if strings.Contains(t.name, ":") {
		return "[" + t.name + "]"
	}
	return t.name
}

const (
	schemePlain = "http"
	schemeTLS   = "https"
)

var standardPorts = map[string]int{schemePlain: httpPort, schemeTLS: httpsPort}

// connOf is the connection that a request came over.
func connOf(ctx context.Context) *webConn { return ctx.Value(connKey{}).(*webConn) }

// connContext remembers the connection of requests, below its TLS.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// standardPort is the port of a request that names none.
func standardPort(r *http.Request, scheme string) int {
	if r.Method == http.MethodConnect {
		return httpsPort
	}
	return cmp.Or(standardPorts[scheme], httpPort)
}
