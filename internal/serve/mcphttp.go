package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTPOptions say how MCP is served over HTTP.
type HTTPOptions struct {
	Token string // that every request must have; at least MinToken bytes
	// Hosts are names under which the server may be addressed, besides those of the
	// loopback interface; without ports.
	Hosts []string
	TLS   *tls.Config   // nil: none
	Idle  time.Duration // how long a session lives without a request; positive
}

// MinToken is the length of the shortest token, in bytes: 128 bits in base64.
const MinToken = 22

// HTTPPath is the path that MCP is served at.
const HTTPPath = "/mcp"

// Limits of the HTTP server.
const (
	maxBody     = 4 << 20 // bytes
	maxHeader   = 16 << 10
	maxConns    = 256 // of clients that have shown the token; others are sent away
	maxUnknown  = 128 // of others; the oldest is closed for a new one
	maxClients  = 64  // sessions of the protocol
	headTime    = 5 * time.Second
	bodyTime    = 30 * time.Second
	idleTime    = 2 * time.Minute  // of a connection, between requests
	writeTime   = 30 * time.Second // of one write, to a client that reads nothing
	goodbyeTime = 5 * time.Second
)

// CheckBind refuses an address that other machines can reach, unless there are TLS and
// names under which the server is addressed.
func CheckBind(addr string, o HTTPOptions) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w: write it as 127.0.0.1:8808", addr, err)
	}
	if host == "localhost" {
		return nil
	}
	ip := net.ParseIP(host)
	switch {
	case ip != nil && ip.IsLoopback():
		return nil
	case ip == nil && host != "":
		return fmt.Errorf("address %q: give the interface as an IP address, or localhost", addr)
	case o.TLS == nil:
		return fmt.Errorf("address %q can be reached from other machines, and has no TLS: give a certificate and its key, or listen on 127.0.0.1", addr)
	case len(o.Hosts) == 0:
		return fmt.Errorf("address %q can be reached from other machines: list the names that clients use in serve.hosts", addr)
	}
	return nil
}

// HTTP serves clients on a listener until ctx ends. Then it closes the listener, cancels
// all calls, and removes all sessions.
func (m *MCP) HTTP(ctx context.Context, l net.Listener, o HTTPOptions) error {
	if err := CheckBind(l.Addr().String(), o); err != nil {
		return errors.Join(err, l.Close())
	}
	if len(o.Token) < MinToken {
		return errors.Join(fmt.Errorf("the token has %d bytes; it needs %d", len(o.Token), MinToken), l.Close())
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // HTTP/2 would only offer more ways of abuse
	server := &http.Server{
		Handler: m.handler(o), ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, bare(c))
		},
		Protocols: &protocols, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	l = &limitedListener{Listener: l}
	if o.TLS != nil {
		l = tls.NewListener(l, o.TLS)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		m.Close()
		down, cancel := context.WithTimeout(context.Background(), goodbyeTime)
		defer cancel()
		if server.Shutdown(down) != nil {
			_ = server.Close()
		}
		err = <-served
	}
	m.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// handler checks who sends a request, and its form, before the SDK sees it.
func (m *MCP) handler(o HTTPOptions) http.Handler {
	protocol := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m.server }, &mcp.StreamableHTTPOptions{
		SessionTimeout: o.Idle, MaxRequestBodyBytes: maxBody,
		DisableLocalhostProtection: true, // ours is stricter
	})
	g := &guard{token: sha256.Sum256([]byte(o.Token)), hosts: o.Hosts, tls: o.TLS != nil}
	return http.HandlerFunc(func(bare http.ResponseWriter, r *http.Request) {
		w := &timedWriter{bare}
		if m.o.Mask != nil {
			answer := &maskedResponse{ResponseWriter: bare, mask: m.o.Mask}
			defer answer.end()
			w.ResponseWriter = answer
		}
		_ = http.NewResponseController(bare).SetWriteDeadline(time.Time{}) // the last request's
		if status, text := g.refuse(r); status != 0 {
			if status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			w.Header().Set("Connection", "close")
			http.Error(w, text, status)
			return
		}
		if c, ok := r.Context().Value(connKey{}).(*limitedConn); ok && !c.trust() {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("there are %d connections", maxConns), http.StatusServiceUnavailable)
			return
		}
		switch r.Method {
		case http.MethodPost:
			if !m.post(w, r) {
				return
			}
		case http.MethodDelete:
			// Cancel the calls that run: the SDK waits for them, and their results have no reader.
			if ss := m.find(r.Header.Get(sessionHeader)); ss != nil {
				m.finish(ss)
			}
		}
		protocol.ServeHTTP(w, r)
	})
}

// sessionHeader holds the id of a session of the protocol.
const sessionHeader = "Mcp-Session-Id"

// post reads a request's message. It reports whether the message is for the SDK; if not,
// post has answered the request.
func (m *MCP) post(w *timedWriter, r *http.Request) bool {
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // HTTP/1 can
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		w.Header().Set("Connection", "close")
		http.Error(w, fmt.Sprintf("the body is longer than %d bytes", tooLong.Limit), http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, "the body did not arrive", http.StatusBadRequest)
		return false
	}
	body = trimmed(body)
	if len(body) == 0 {
		http.Error(w, "there is no body", http.StatusBadRequest)
		return false
	}
	message, err := parseMCP(body)
	if err != nil {
		wrong, _ := errors.AsType[*Error](err)
		w.refuse(json.RawMessage("null"), wrong)
		return false
	}
	if id, early := tooEarly(r.Header, message); early {
		w.refuse(id, failure(KindRequest, "send initialize first, and the session's id with what follows"))
		return false
	}
	if r.Header.Get(sessionHeader) == "" && m.clients() >= maxClients {
		w.Header().Set("Retry-After", "60")
		http.Error(w, fmt.Sprintf("there are %d sessions", maxClients), http.StatusServiceUnavailable)
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return true
}

// statelessVersion is the first version of the protocol without initialize: its requests
// say what they need in _meta.
const statelessVersion = "2026-07-28"

// tooEarly reports whether a message is a request of a client that should have sent
// initialize first. The SDK would refuse it without an error code.
func tooEarly(h http.Header, m jsonrpc.Message) (id json.RawMessage, early bool) {
	r, ok := m.(*jsonrpc.Request)
	if !ok || !r.IsCall() || h.Get(sessionHeader) != "" || r.Method == "initialize" || r.Method == "ping" ||
		h.Get("Mcp-Protocol-Version") >= statelessVersion {
		return nil, false
	}
	var params struct {
		Meta map[string]any `json:"_meta"`
	}
	if json.Unmarshal(r.Params, &params) == nil && params.Meta[mcp.MetaKeyProtocolVersion] != nil {
		return nil, false
	}
	id, err := json.Marshal(r.ID.Raw())
	return id, err == nil
}

func (m *MCP) clients() int {
	n := 0
	for range m.server.Sessions() {
		n++
	}
	return n
}

// guard checks who sends a request, and how.
type guard struct {
	token [sha256.Size]byte
	hosts []string
	tls   bool
}

// refuse returns the status to refuse a request with, 0 if it is allowed. Answers repeat
// nothing of the request.
func (g *guard) refuse(r *http.Request) (status int, text string) {
	switch {
	case !g.addressed(r.Host):
		return http.StatusForbidden, "this server has another name"
	case !g.sameOrigin(r.Header):
		return http.StatusForbidden, "requests of other origins are not taken"
	case !g.knows(r.Header["Authorization"]):
		return http.StatusUnauthorized, "a request needs `Authorization: Bearer TOKEN`"
	case r.RequestURI != HTTPPath:
		return http.StatusNotFound, "there is nothing but " + HTTPPath
	case !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodDelete}, r.Method):
		return http.StatusMethodNotAllowed, "methods are GET, POST and DELETE"
	case len(r.Header["Content-Encoding"]) > 0:
		return http.StatusUnsupportedMediaType, "a body is not encoded"
	case r.Method == http.MethodPost && !isJSON(r.Header["Content-Type"]):
		return http.StatusUnsupportedMediaType, "a body is application/json"
	case r.Method != http.MethodPost && (r.ContentLength != 0 || len(r.TransferEncoding) > 0):
		return http.StatusBadRequest, "only POST has a body"
	case len(r.Header[sessionHeader]) > 1:
		return http.StatusBadRequest, "a request is of one session"
	}
	return 0, ""
}

// addressed reports whether a Host header names this server. Another name that some DNS
// server resolves to this machine does not.
func (g *guard) addressed(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ""
	}
	for _, c := range port {
		if c < '0' || c > '9' {
			return false
		}
	}
	name = strings.ToLower(name)
	return name == "localhost" || name == "127.0.0.1" || name == "::1" ||
		slices.ContainsFunc(g.hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// sameOrigin refuses requests that a browser sends for another site. Other programs send
// no Origin.
func (g *guard) sameOrigin(h http.Header) bool {
	for _, site := range h["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	origins := h["Origin"]
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	scheme := map[bool]string{true: "https", false: "http"}[g.tls]
	return len(origins) == 1 && err == nil && u.Scheme == scheme && u.Host != "" && u.Path == "" && u.User == nil &&
		u.RawQuery == "" && g.addressed(u.Host)
}

// knows reports whether a request has the token. The time it takes reveals nothing about
// the token.
func (g *guard) knows(headers []string) bool {
	if len(headers) != 1 {
		return false
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && ok && strings.EqualFold(scheme, "Bearer")
}

func isJSON(types []string) bool {
	if len(types) != 1 {
		return false
	}
	name, _, _ := strings.Cut(types[0], ";")
	return strings.EqualFold(strings.TrimSpace(name), "application/json")
}

// timedWriter gives each write a deadline: a client that reads nothing must not block its
// handler for ever.
type timedWriter struct{ http.ResponseWriter }

func (w *timedWriter) Write(p []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTime)) // HTTP/1 can
	return w.ResponseWriter.Write(p)
}

// refuse answers a message with an error.
func (w *timedWriter) refuse(id json.RawMessage, wrong *Error) {
	line, _ := encodeLine(wireMessage{Version: "2.0", ID: id, Error: wrong})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(line) // an error means that the client has gone
}

// Unwrap lets http.ResponseController flush.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
