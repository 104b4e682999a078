// Package webforward is a reverse proxy on this machine for an HTTP server elsewhere, which only a client
// that knows a token can use.
//
// Everyone on a machine can connect to its loopback interface: other users, and every web page in a
// browser. So a client first opens an address with a random token. It gets a cookie, and is sent to the
// same address without the token. Requests with neither are refused, and so are those that a page of
// another origin has made, and those that name another host, as they do after DNS rebinding.
//
// Neither the token nor the cookie is passed on to the server, and neither is in an error.
package webforward

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of a Server.
type Options struct {
	// Dial connects with the server that requests are passed on to. It is called concurrently.
	Dial func(ctx context.Context) (net.Conn, error)
	// Host is what the server is in errors, such as "port 8000 of the session".
	Host string
	// Explain says in one line why no answer came, "" if it has nothing to say. It is called for each
	// request that could not be passed on.
	Explain func(error) string
	// Worked is called when an answer has come.
	Worked func()
}

const (
	// tokenParam is the part of a query that has the token.
	tokenParam = "sandboxbash-token"
	// cookiePrefix is the start of the names of our cookies; the port follows. A browser sends the cookies
	// of a host to all its ports, so one Server sees those of the others.
	cookiePrefix = "sandboxbash-forward-"
	secretBytes  = 32
)

const (
	maxConns     = 512              // open at once; more wait in the listener's backlog
	headerTime   = 10 * time.Second // for the header of a request
	idleTime     = 2 * time.Minute  // between two requests
	maxHeader    = 256 << 10        // bytes of a request's
	maxAnswer    = 1 << 20          // bytes of a response's header
	idleUpstream = 30 * time.Second
	maxReason    = 200 // bytes of an error's text that a client sees
)

// Server passes requests on. It is safe for concurrent use.
type Server struct {
	opts          Options
	token, cookie string
	server        *http.Server
	transport     *http.Transport
	proxy         *httputil.ReverseProxy
	requests      sync.WaitGroup
	conns         conns
}

// New returns a Server with a token of its own. It must be closed.
func New(opts Options) *Server {
	s := &Server{opts: opts, token: secret(), cookie: secret()}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // errors are told to clients; they may hold a request's address
	s.transport = &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return opts.Dial(ctx) },
		DisableCompression:  true, // the answer passes as the server has sent it
		MaxIdleConnsPerHost: 16, IdleConnTimeout: idleUpstream,
		ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxAnswer,
	}
	s.proxy = &httputil.ReverseProxy{
		Rewrite: s.rewrite, Transport: s.transport, FlushInterval: -1, // events arrive when they happen
		ErrorLog: quiet, ModifyResponse: s.incoming, ErrorHandler: s.failed,
	}
	s.server = &http.Server{
		Handler: http.HandlerFunc(s.handle), ErrorLog: quiet, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	s.conns.open = map[*conn]bool{}
	s.conns.room = make(chan struct{}, maxConns)
	return s
}

func secret() string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	return base64.RawURLEncoding.EncodeToString(random)
}

// URL is the address to open, with the token, of a listener that is served.
func (s *Server) URL(at net.Addr) string {
	host := at.String()
	if addr, err := netip.ParseAddrPort(host); err == nil && addr.Addr().IsUnspecified() {
		local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if addr.Addr().Is6() {
			local = netip.IPv6Loopback()
		}
		host = netip.AddrPortFrom(local, addr.Port()).String()
	}
	return "http://" + host + "/?" + tokenParam + "=" + s.token
}

// Serve serves a listener's connections until Close.
func (s *Server) Serve(listener net.Listener) { _ = s.server.Serve(&tracked{listener, &s.conns}) }

// Close closes all connections, also those of WebSockets, and waits until nothing is passed on any more.
// The connections that Dial has made must end too, or have ended.
func (s *Server) Close() {
	_ = s.server.Close()
	s.conns.close()
	s.requests.Wait()
	s.transport.CloseIdleConnections()
}

// handle judges a request and passes it on.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	defer s.requests.Done()
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if status, why := foreign(r, local); status != 0 {
		refuse(w, status, why)
		return
	}
	name := cookieName(local)
	switch {
	case s.same(r.URL.Query().Get(tokenParam), s.token):
		http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure: it is HTTP on this machine's loopback
			Name: name, Value: s.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" {
			redirect(w, r, s.withoutToken(r.URL))
			return
		}
	case !s.hasCookie(r, name):
		w.Header().Set("WWW-Authenticate", tokenParam)
		refuse(w, http.StatusUnauthorized, "open the address with the token that was printed when the forward was started, in a client that keeps cookies")
		return
	}
	s.pass(w, r)
}

// pass passes a request on. An answer that breaks off is a reset for its client: the end of its connection
// could look like the end of the answer.
func (s *Server) pass(w http.ResponseWriter, r *http.Request) {
	whole := false
	defer func() {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok && !whole {
			c.reset()
		}
	}()
	s.proxy.ServeHTTP(w, r)
	whole = true
}

// foreign returns a status if a request names another host than the one that it came to, or was made by
// a page of another origin, and why.
func foreign(r *http.Request, local net.Addr) (status int, why string) {
	h := r.Header
	site, mode, dest := h.Get("Sec-Fetch-Site"), h.Get("Sec-Fetch-Mode"), h.Get("Sec-Fetch-Dest")
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return http.StatusMethodNotAllowed, "the method " + r.Method + " is not passed on"
	case !names(r.Host, local):
		return http.StatusMisdirectedRequest, "the request is for another host: use the address that was printed, with its port"
	case len(h["Origin"]) > 1 || len(h["Origin"]) == 1 && !strings.EqualFold(h.Get("Origin"), "http://"+r.Host):
		return http.StatusForbidden, "a page of another origin has made the request"
	case (site == "cross-site" || site == "same-site") && (!safe || mode != "navigate" || dest != "document"):
		return http.StatusForbidden, "a page of another origin has made the request"
	case h.Get("Service-Worker") != "":
		// It would stay in the browser, and act on what this address serves later.
		return http.StatusForbidden, "service workers are not passed on"
	}
	return 0, ""
}

// names says whether a header Host names the address that a connection came to.
func names(host string, local net.Addr) bool {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return false
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "80"
	}
	if port != strconv.Itoa(int(at.Port())) {
		return false
	}
	if strings.EqualFold(name, "localhost") {
		return at.Addr().Unmap().IsLoopback()
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap() == at.Addr().Unmap()
}

func cookieName(local net.Addr) string {
	_, port, _ := net.SplitHostPort(local.String())
	return cookiePrefix + port
}

func (s *Server) same(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

func (s *Server) hasCookie(r *http.Request, name string) bool {
	for _, c := range r.CookiesNamed(name) {
		if s.same(c.Value, s.cookie) {
			return true
		}
	}
	return false
}

// withoutToken returns the path and the query of an address without the token, in whatever spelling.
func (s *Server) withoutToken(u *url.URL) string {
	rest := *u
	rest.Scheme, rest.Host, rest.User, rest.RawQuery = "", "", nil, s.query(u.RawQuery)
	return rest.RequestURI()
}

func (s *Server) query(raw string) string {
	if raw == "" {
		return ""
	}
	var kept []string
	for part := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(part)
		if name, _ := url.QueryUnescape(key); name == tokenParam || strings.Contains(part, s.token) || err == nil && strings.Contains(plain, s.token) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&")
}

// redirect sends a browser to the address without the token. The address is a whole one: a path may begin
// with two slashes, which would name another host.
func redirect(w http.ResponseWriter, r *http.Request, path string) {
	to := "http://" + r.Host + path
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// Browsers send no strict cookie where a page of another site has led to, redirects included.
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<!doctype html><meta http-equiv=refresh content=\"0; url=%[1]s\"><a href=\"%[1]s\">go on</a>\n", html.EscapeString(to))
		return
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// refuse answers with one line of text, and closes the connection.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "sandboxbash: "+why, status)
}

// rewrite prepares a request for the server: without the token and the cookies of this and other Servers.
// The server sees the host that the client named, so that addresses which it makes lead back here.
func (s *Server) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", "session"
	r.Out.URL.RawQuery = s.query(r.In.URL.RawQuery)
	r.Out.Host = r.In.Host
	r.SetXForwarded()
	h := r.Out.Header
	if strings.Contains(h.Get("Referer"), s.token) {
		h.Del("Referer")
	}
	var kept []string
	for _, line := range h["Cookie"] {
		for part := range strings.SplitSeq(line, ";") {
			if part = strings.TrimSpace(part); part != "" && !strings.HasPrefix(part, cookiePrefix) {
				kept = append(kept, part)
			}
		}
	}
	h.Del("Cookie")
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}

// incoming removes from an answer what would change our cookies.
func (s *Server) incoming(r *http.Response) error {
	s.opts.Worked()
	r.Header.Del("Clear-Site-Data")
	cookies := r.Header["Set-Cookie"]
	r.Header.Del("Set-Cookie")
	for _, c := range cookies {
		if !strings.HasPrefix(strings.TrimSpace(c), cookiePrefix) {
			r.Header.Add("Set-Cookie", c)
		}
	}
	return nil
}

// failed answers a request that could not be passed on.
func (s *Server) failed(w http.ResponseWriter, _ *http.Request, err error) {
	why := s.opts.Explain(err)
	if why == "" {
		why = err.Error()
		why = s.opts.Host + " does not answer as an HTTP server does: " + why[:min(len(why), maxReason)]
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "sandboxbash: "+why, http.StatusBadGateway)
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// conns are the connections that are open, those of WebSockets included, which http.Server forgets.
type conns struct {
	room chan struct{} // has an element for each

	mu     sync.Mutex
	open   map[*conn]bool // guarded by mu
	closed bool           // guarded by mu
}

func (c *conns) close() {
	c.mu.Lock()
	c.closed = true
	var all []*conn
	for one := range c.open {
		all = append(all, one)
	}
	c.mu.Unlock()
	for _, one := range all {
		one.reset()
	}
}

// tracked is a listener whose connections are known.
type tracked struct {
	net.Listener

	conns *conns
}

func (l *tracked) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conns.room <- struct{}{} // Close makes room
	c := &conn{Conn: accepted, conns: l.conns}
	l.conns.mu.Lock()
	defer l.conns.mu.Unlock()
	if l.conns.closed {
		<-l.conns.room
		return nil, errors.Join(net.ErrClosed, accepted.Close())
	}
	l.conns.open[c] = true
	return c, nil
}

// conn is a connection of a client.
type conn struct {
	net.Conn

	conns *conns
	once  sync.Once
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.conns.mu.Lock()
		delete(c.conns.open, c)
		c.conns.mu.Unlock()
		<-c.conns.room
	})
	return c.Conn.Close()
}

// CloseWrite ends our direction: what is behind http.Server's own connections is asked for it.
func (c *conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// reset closes the connection so that the client sees an error.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
