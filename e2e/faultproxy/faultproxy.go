// Package faultproxy is a proxy between a client and a Docker engine that injects faults
// into single calls, by rules of a test. Calls can be refused, answered with garbage or not
// at all, or lose their connection, and streams can end too early or never. Everything else
// passes unchanged.
package faultproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Rule selects the calls that get a fault. The first rule that matches a call is used.
type Rule struct {
	Method string         // empty: any
	Path   *regexp.Regexp // matches path and query, without the version in front; nil: any
	Nth    int            // only the nth call that matches, from 1; 0: every call
	Fault  Fault
}

// Call is one call that was made.
type Call struct {
	Method, Path string // path and query, without the version
	Name         string // of the container or volume that the call creates
	Fault        string // that the call got; empty: none
}

// Proxy is a proxy that injects faults. It is safe for concurrent use.
type Proxy struct {
	network, address string // the engine's
	socket           string
	listener         net.Listener
	server           *http.Server
	transport        *http.Transport
	served           chan struct{}
	closing          chan struct{} // closed by Close

	partition partition

	busy sync.WaitGroup // calls under way

	mu    sync.Mutex
	rules []Rule              // guarded by mu
	seen  []int               // guarded by mu; matches of each rule
	calls []Call              // guarded by mu
	open  map[*gated]struct{} // guarded by mu; clients' connections
}

// Start starts a proxy in front of the engine at unix://PATH or tcp://HOST:PORT.
func Start(engine string) (*Proxy, error) {
	u, err := url.Parse(engine)
	if err != nil {
		return nil, err
	}
	p := &Proxy{network: u.Scheme, address: u.Path, open: map[*gated]struct{}{}, served: make(chan struct{}), closing: make(chan struct{})}
	switch u.Scheme {
	case "unix":
	case "tcp":
		p.address = u.Host
	default:
		return nil, fmt.Errorf("engine %s: it must be unix:// or tcp://", engine)
	}
	dir, err := os.MkdirTemp("", "sbx") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	p.socket = filepath.Join(dir, "docker.sock")
	if p.listener, err = new(net.ListenConfig).Listen(context.Background(), "unix", p.socket); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.transport = &http.Transport{DialContext: p.dial, DisableCompression: true, DisableKeepAlives: true}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(partitionedListener{Listener: p.listener, proxy: p}) // ends with Close
	}()
	return p, nil
}

// Host returns the proxy's address in the form of DOCKER_HOST.
func (p *Proxy) Host() string { return "unix://" + p.socket }

// Set replaces the rules and resets their counts. Calls that are under way keep their fault.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.seen = rules, make([]int, len(rules))
}

// Calls lists all calls so far, in the order of their start.
func (p *Proxy) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Forget empties the list of calls.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = nil
}

// Faults counts the calls that got a fault.
func (p *Proxy) Faults() int {
	n := 0
	for _, c := range p.Calls() {
		if c.Fault != "" {
			n++
		}
	}
	return n
}

// Part stops all traffic, on existing and on new connections. Neither bytes nor the end of a
// stream pass until Heal is called.
func (p *Proxy) Part() { p.partition.shut() }

// Heal ends Part.
func (p *Proxy) Heal() { p.partition.lift() }

// Break resets all connections of clients. New connections are accepted.
func (p *Proxy) Break() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// Close ends the proxy and all connections over it.
func (p *Proxy) Close() {
	close(p.closing)
	p.partition.lift()
	_ = p.server.Close()
	p.Break()
	<-p.served
	p.busy.Wait()
	p.transport.CloseIdleConnections()
	_ = os.RemoveAll(filepath.Dir(p.socket))
}

func (p *Proxy) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, p.network, p.address)
}

var versionPrefix = regexp.MustCompile(`\A/v[0-9.]+/`)

// fault records a call and returns its fault.
func (p *Proxy) fault(r *http.Request) Fault {
	path := versionPrefix.ReplaceAllString(r.URL.RequestURI(), "/")
	name := newName(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	var met Fault
	for i, rule := range p.rules {
		if rule.Method != "" && rule.Method != r.Method || rule.Path != nil && !rule.Path.MatchString(path) {
			continue
		}
		if p.seen[i]++; rule.Nth == 0 || rule.Nth == p.seen[i] {
			met = rule.Fault
			break
		}
	}
	p.calls = append(p.calls, Call{Method: r.Method, Path: path, Name: name, Fault: met.String()})
	return met
}

// newName returns the name of the container or volume that a call creates. For a container
// it is in the query, for a volume in the body, which newName restores.
func newName(r *http.Request) string {
	switch {
	case strings.HasSuffix(r.URL.Path, "/containers/create"):
		return r.URL.Query().Get("name")
	case strings.HasSuffix(r.URL.Path, "/volumes/create"):
		const most = 64 << 10 // bytes
		body, _ := io.ReadAll(io.LimitReader(r.Body, most))
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		var volume struct{ Name string }
		_ = json.Unmarshal(body, &volume)
		return volume.Name
	}
	return ""
}

// serve answers one call.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.busy.Add(1)
	defer p.busy.Done()
	f := p.fault(r)
	if f.kind.answers() && !f.after {
		p.spoil(w, r, f)
		return
	}
	if strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
		p.stream(w, r, f)
		return
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", "engine", ""
	resp, err := p.transport.RoundTrip(out)
	if err != nil {
		hangUp(w) // as if the engine had ended the connection
		return
	}
	defer resp.Body.Close()
	if f.kind.answers() {
		_, _ = io.Copy(io.Discard, resp.Body) // wait until the engine is done
		p.spoil(w, r, f)
		return
	}
	p.pass(w, resp, f)
}

// spoil sends a wrong answer, or none.
func (p *Proxy) spoil(w http.ResponseWriter, r *http.Request, f Fault) {
	switch f.kind {
	case status:
		text := fmt.Sprintf(`{"message":"made up: %d"}`+"\n", f.n)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(int(f.n))
		_, _ = io.WriteString(w, text)
	case garbage:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"Id\": [\x00\xff}}}")
	case wrongType:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body>Please log in to the hotel's network</body></html>")
	case oldHTTP:
		if conn := takeOver(w); conn != nil {
			_, _ = io.WriteString(conn, "HTTP/1.0 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nan old proxy's words\n")
			_ = conn.Close()
		}
	case hang:
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has gone
		select {
		case <-p.closing:
		case <-r.Context().Done(): // the client has given up
		}
		hangUp(w)
	default: // reset
		hangUp(w)
	}
}

// pass sends the engine's answer, slowly or only in part if the fault says so.
func (p *Proxy) pass(w http.ResponseWriter, resp *http.Response, f Fault) {
	if f.kind == slow || f.kind == cut {
		conn := takeOver(w)
		if conn == nil {
			return
		}
		defer conn.Close()
		var whole bytes.Buffer
		if f.kind == cut {
			_ = resp.Write(&whole)
			body := bytes.Index(whole.Bytes(), []byte("\r\n\r\n")) + len("\r\n\r\n")
			_, _ = conn.Write(whole.Bytes()[:min(body+int(f.n), whole.Len()-1)]) // at least the last byte is missing
			return
		}
		_ = resp.Write(&dripping{w: conn, every: time.Second, stop: p.closing})
		return
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	flusher, _ := w.(http.Flusher) // a server's ResponseWriter always is
	flusher.Flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			flusher.Flush()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the answer is cut for the client too
		}
	}
}

// takeOver hijacks the client's connection. It returns nil if the client has gone.
func takeOver(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	return conn
}

func hangUp(w http.ResponseWriter) {
	if conn := takeOver(w); conn != nil {
		_ = conn.Close()
	}
}
