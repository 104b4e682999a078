// Package web shows sessions in a browser: one page, which this program holds, and the events that it is made from.
//
// The page is for those who know the token and can connect to the address. A browser sends the token as a header of
// its own, which no page of another site can do; the address has it in its fragment, which browsers keep to
// themselves. Requests for another host name, or of another origin, are refused before the token is looked at.
//
//	GET  /                the page, and its parts: without a token, because they hold nothing
//	GET  /api/events      the sessions and, with ?session=ID, what one does, as server-sent events
//	GET  /api/changes     what a session has changed, with ?session=ID
//	POST /api/do          with a Controller alone: stop, allow, apply, attach, type
//
// The server has no queue for a client: each asks the Hub for what is new when it has taken what there was. A client that
// takes nothing for writeTime is cut off; when it comes back it learns that it has missed something.
package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/watch"
)

// Options of a Server. Hub and Token are required.
type Options struct {
	Hub     *watch.Hub
	Ask     watch.Asker      // nil: changes are not shown
	Control watch.Controller // nil: the page is read-only
	Token   string
	Version string   // of this program
	Hosts   []string // names under which the server may be addressed, besides those of the loopback interface
	TLS     bool     // the listener speaks TLS
	// Words says in words for a person what an error means; nil: its text does.
	Words func(error) string
}

// Times and sizes.
const (
	headTime   = 10 * time.Second // for the header of a request
	idleTime   = 2 * time.Minute  // between two requests of a connection
	writeTime  = 10 * time.Second // for a client to take one update
	askTime    = 2 * time.Minute  // for one question, or one thing to do
	maxHeader  = 16 << 10         // bytes
	maxBody    = 256 << 10        // bytes
	maxStreams = 64               // clients at once
	// framePause is what is between two updates of a client at least: more than 30 a second are not seen.
	framePause = 33 * time.Millisecond
)

//go:embed page
var page embed.FS

// Server serves the page. It is safe for concurrent use.
type Server struct {
	o       Options
	token   [sha256.Size]byte
	streams chan struct{} // has an element for each client
	life    context.Context
	end     context.CancelFunc
}

// New returns a Server. Serve ends it.
func New(o Options) *Server {
	if o.Words == nil {
		o.Words = error.Error
	}
	s := &Server{o: o, token: sha256.Sum256([]byte(o.Token)), streams: make(chan struct{}, maxStreams)}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Serve serves a listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		Protocols: &protocols, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	stop := context.AfterFunc(ctx, func() {
		s.end()
		_ = server.Close()
	})
	defer stop()
	defer s.end()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// policy is what the page may do: nothing but its own files and its own server, and no text becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		"Permissions-Policy": "camera=(), geolocation=(), microphone=()",
	} {
		h.Set(name, value)
	}
	if status, why := s.foreign(r); status != 0 {
		refuse(w, status, why)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/api/") {
		s.file(w, r)
		return
	}
	if !s.knows(r.Header["Authorization"]) {
		h.Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "a request needs the token of the address that was printed")
		return
	}
	switch r.URL.Path {
	case "/api/events":
		s.only(w, r, http.MethodGet, s.events)
	case "/api/changes":
		s.only(w, r, http.MethodGet, s.changes)
	case "/api/do":
		s.only(w, r, http.MethodPost, s.do)
	default:
		refuse(w, http.StatusNotFound, "there is nothing at this address")
	}
}

// refuse answers with a line of text, which repeats nothing of the request.
func refuse(w http.ResponseWriter, status int, why string) {
	http.Error(w, "sandboxbash: "+why, status)
}

func (s *Server) only(w http.ResponseWriter, r *http.Request, method string, do http.HandlerFunc) {
	if r.Method != method {
		w.Header().Set("Allow", method)
		refuse(w, http.StatusMethodNotAllowed, "the method is "+method)
		return
	}
	do(w, r)
}

// foreign returns a status if a request is for another host, or was made by a page of another origin, and why.
func (s *Server) foreign(r *http.Request) (status int, why string) {
	site := r.Header.Get("Sec-Fetch-Site")
	navigates := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && r.Method == http.MethodGet
	switch {
	case !s.addressed(r.Host):
		return http.StatusMisdirectedRequest, "this server has another name: use the address that was printed"
	case !s.sameOrigin(r.Header["Origin"]):
		return http.StatusForbidden, "requests of other origins are not taken"
	case site != "" && site != "same-origin" && site != "none" && !navigates: // a link to the page may be anywhere
		return http.StatusForbidden, "requests of other origins are not taken"
	case r.Header.Get("Service-Worker") != "": // it would stay in the browser
		return http.StatusForbidden, "there is no service worker here"
	}
	return 0, ""
}

// addressed reports whether a Host header names this server. Another name that some DNS server resolves to this machine
// does not.
func (s *Server) addressed(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	name = strings.ToLower(name)
	return name == "localhost" || name == "127.0.0.1" || name == "::1" ||
		slices.ContainsFunc(s.o.Hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// sameOrigin reports whether the origin of a request is this server. Other programs than browsers send none.
func (s *Server) sameOrigin(origins []string) bool {
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	scheme := map[bool]string{true: "https", false: "http"}[s.o.TLS]
	return len(origins) == 1 && err == nil && u.Scheme == scheme && u.Host != "" && u.Path == "" && u.User == nil && u.RawQuery == "" && s.addressed(u.Host)
}

// knows reports whether a request has the token. The time it takes reveals nothing about the token.
func (s *Server) knows(headers []string) bool {
	if len(headers) != 1 {
		return false
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1 && ok && strings.EqualFold(scheme, "Bearer")
}

// types are those of the page's parts.
var types = map[string]string{
	"index.html": "text/html; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "app.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml",
}

// file serves a part of the page.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	kind, ok := types[name]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "there is nothing at this address")
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "the method is GET")
		return
	}
	b, err := fs.ReadFile(page, "page/"+name)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "the page is not in this program")
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(b) // a client that has gone
}

// hello is the first event of a stream.
type hello struct {
	Version string    `json:"version"`
	Control bool      `json:"control"`
	Changes bool      `json:"changes"`
	Now     time.Time `json:"now"`
}

// update is an event about what is new.
type update struct {
	Sessions []watch.Summary `json:"sessions,omitempty"`
	Detail   *detail         `json:"detail,omitempty"`
	Problem  *string         `json:"problem,omitempty"`
}

// detail is what is new of the session that a client looks at.
type detail struct {
	Session   string           `json:"session"`
	Reset     bool             `json:"reset,omitempty"`
	Gap       bool             `json:"gap,omitempty"`
	Items     []watch.Item     `json:"items,omitempty"`
	Network   []watch.Item     `json:"network,omitempty"`
	Terminals []watch.Terminal `json:"terminals,omitempty"`
	Order     []string         `json:"order,omitempty"`
}

// events streams what happens until the client has gone, or takes nothing.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, "too many pages are open: close one")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	out := &stream{w: w, rc: http.NewResponseController(w)}
	if out.send("hello", hello{s.o.Version, s.o.Control != nil, s.o.Ask != nil, time.Now()}) != nil {
		return
	}
	sub := s.o.Hub.Subscribe()
	defer sub.Close()
	if id := r.URL.Query().Get("session"); id != "" {
		sub.Focus(id)
	}
	s.o.Hub.Refresh()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.life.Done():
			return
		case <-pause.C:
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.life.Done():
			return
		case <-sub.Changed():
		}
		if u, ok := newUpdate(sub.Next()); ok && out.send("update", u) != nil {
			return
		}
		pause.Reset(framePause)
	}
}

// newUpdate is what a client is sent of an update, of which there may be nothing.
func newUpdate(u watch.Update) (update, bool) {
	out := update{Sessions: u.Sessions}
	if u.ProblemNew {
		out.Problem = &u.Problem
	}
	for _, d := range u.Details { // one at most
		out.Detail = &detail{d.Session, d.Reset, d.Gap, d.Items, d.Network, d.Terminals, d.Order}
	}
	return out, len(out.Sessions) > 0 || out.Detail != nil || out.Problem != nil
}

// stream writes events.
type stream struct {
	w  io.Writer
	rc *http.ResponseController
}

func (s *stream) send(event string, data any) error {
	b, err := json.Marshal(data) // it has no line feed
	if err != nil {
		return err
	}
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	for _, part := range []string{"event: " + event + "\ndata: ", string(b), "\n\n"} {
		if _, err := io.WriteString(s.w, part); err != nil {
			return err
		}
	}
	return s.rc.Flush()
}

// changes answers what a session has changed.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) {
	if s.o.Ask == nil {
		refuse(w, http.StatusNotFound, "no engine is asked here")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	c, err := s.o.Ask.Changes(ctx, r.URL.Query().Get("session"))
	s.answer(w, c, err)
}

// said is an answer in words.
type said struct {
	Said  string `json:"said,omitempty"`
	Error string `json:"error,omitempty"`
}

// answer answers with a value or an error, which is an answer, too: the request was understood.
func (s *Server) answer(w http.ResponseWriter, v any, err error) {
	status := http.StatusOK
	if err != nil {
		v, status = said{Error: s.o.Words(err)}, http.StatusConflict
	}
	b, err := json.Marshal(v)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "there is no answer")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that has gone
}

// order is what a client asks to be done.
type order struct {
	Do       string   `json:"do"`
	Session  string   `json:"session"`
	Rule     string   `json:"rule"`
	Terminal string   `json:"terminal"`
	Text     string   `json:"text"`
	Keys     []string `json:"keys"`
}

// do does what a client asks for. What has begun goes on if the client goes.
func (s *Server) do(w http.ResponseWriter, r *http.Request) {
	c := s.o.Control
	if c == nil {
		refuse(w, http.StatusForbidden, "this page is read-only: `sandboxbash serve web --control` serves one that is not")
		return
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "a body is application/json")
		return
	}
	var o order
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(&o); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not understood")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), askTime)
	defer cancel()
	var done said
	var err error
	switch o.Do {
	case "stop":
		done.Said, err = c.Stop(ctx, o.Session)
	case "allow":
		done.Said, err = c.Allow(ctx, o.Session, o.Rule)
	case "apply":
		done.Said, err = c.Apply(ctx, o.Session)
	case "attach":
		done.Said, err = c.Attach(ctx, o.Session)
	case "type":
		err = c.Type(ctx, o.Terminal, o.Text, o.Keys)
	default:
		refuse(w, http.StatusBadRequest, "there is nothing of this name to do")
		return
	}
	if o.Do != "type" {
		s.o.Hub.Refresh()
	}
	s.answer(w, done, err)
}
