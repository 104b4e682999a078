package serve

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const testToken = "0123456789abcdef0123456789abcdef"

// httpServer is a server on a port of its own.
type httpServer struct {
	*MCP
	addr string
	host *fakeHost
	stop context.CancelFunc
	done chan error
}

func startHTTP(t *testing.T, change func(*HTTPOptions)) *httpServer {
	t.Helper()
	host := &fakeHost{}
	m, err := NewMCP(mcpOptions(host))
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := HTTPOptions{Token: testToken, Idle: time.Hour}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &httpServer{MCP: m, addr: l.Addr().String(), host: host, stop: cancel, done: make(chan error, 1)}
	go func() { s.done <- m.HTTP(ctx, l, o) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-s.done:
			if err != nil {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
	})
	return s
}

// bearer adds the token to the requests of a client.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// client connects the official SDK's client.
func (s *httpServer) client(t *testing.T) *mcpClient {
	t.Helper()
	c := newMCPClient(Options{Host: s.host})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c.connect(t, &mcp.StreamableClientTransport{
		Endpoint: "http://" + s.addr + HTTPPath, HTTPClient: &http.Client{Transport: bearer{transport, testToken}},
	})
	return c
}

func TestHTTPClients(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, nil)
	one, two := s.client(t), s.client(t)
	for i, c := range []*mcpClient{one, two} {
		if text, _ := c.call(t, "bash", map[string]any{"command": "echo hi"}); text != "hi" {
			t.Errorf("client %d: %q", i, text)
		}
	}
	if s.host.session(t, 0) == s.host.session(t, 1) {
		t.Error("two clients have one session")
	}
	// One goes, with what it runs; the other's session goes on.
	go func() {
		_, _ = one.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "sleep"}})
	}()
	s.host.session(t, 0).runs(t, 1)
	// The SDK's own Close would wait for the call.
	if status, _, text := s.ask(t, httpRequest{method: "DELETE", headers: []string{"Mcp-Session-Id: " + one.ID()}}); status != 204 {
		t.Errorf("the first client's end: status %d %q", status, text)
	}
	if state := s.host.session(t, 0).state(); state.running != 0 || !state.stopped {
		t.Errorf("its session: %+v", state)
	}
	if text, _ := two.call(t, "bash", map[string]any{"command": "echo on"}); text != "on" || s.host.session(t, 1).state().stopped {
		t.Errorf("the second client: %q", text)
	}
	// The server goes, and with it the other's session, whatever it runs.
	go func() {
		_, _ = two.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "sleep"}})
	}()
	s.host.session(t, 1).runs(t, 1)
	s.stop()
	err := <-s.done
	s.done <- err
	if state := s.host.session(t, 1).state(); state.running != 0 || !state.stopped {
		t.Errorf("the second session: %+v", state)
	}
	_, _ = one.Close(), two.Close() // there is no server
}

func TestHTTPIdle(t *testing.T) {
	t.Parallel()
	// The call has to arrive in time on a busy machine as well, so another try has more of it.
	for idle := 50 * time.Millisecond; ; idle *= 4 {
		s := startHTTP(t, func(o *HTTPOptions) { o.Idle = idle })
		_, header, _ := s.ask(t, httpRequest{body: helloMCP})
		id := []string{sessionHeader + ": " + header.Get(sessionHeader)}
		status, _, body := s.ask(t, httpRequest{headers: id, body: `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo"}}}`})
		if status == http.StatusNotFound {
			continue
		}
		if status != http.StatusOK {
			t.Fatalf("the call: status %d %s", status, body)
		}
		eventually(t, "an idle client's session ends", func() bool { return s.host.session(t, 0).state().stopped })
		if status, _, _ := s.ask(t, httpRequest{headers: id, body: `{"jsonrpc":"2.0","id":3,"method":"ping"}`}); status != http.StatusNotFound {
			t.Errorf("a request of a client whose session has ended: status %d; want 404", status)
		}
		return
	}
}

// request is a request as it goes over the wire, but for its token.
type httpRequest struct {
	method, uri, host string
	headers           []string
	body              string
	noToken           bool
}

// ask sends a request by hand and returns the answer's status, headers and body.
func (s *httpServer) ask(t *testing.T, q httpRequest) (status int, header http.Header, body string) {
	t.Helper()
	c := s.dial(t)
	defer c.Close()
	if q.method == "" {
		q.method = "POST"
	}
	if q.uri == "" {
		q.uri = HTTPPath
	}
	if q.host == "" {
		q.host = s.addr
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", q.method, q.uri, q.host)
	if !q.noToken {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", testToken)
	}
	all := strings.Join(q.headers, "\r\n")
	if q.method == "POST" && !strings.Contains(all, "Content-Type") {
		b.WriteString("Content-Type: application/json\r\n")
	}
	b.WriteString("Accept: application/json, text/event-stream\r\n")
	for _, h := range q.headers {
		b.WriteString(h + "\r\n")
	}
	if !strings.Contains(all, "Content-Length") && !strings.Contains(all, "Transfer-Encoding") && q.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(q.body))
	}
	b.WriteString("\r\n" + q.body)
	go func() { _, _ = io.WriteString(c, b.String()) }() // the server may not want all of it
	_ = c.SetReadDeadline(time.Now().Add(patience))
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: q.method})
	if err != nil {
		t.Fatalf("%s %s: %v", q.method, q.uri, err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	return r.StatusCode, r.Header, string(text)
}

func (s *httpServer) dial(t *testing.T) net.Conn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const helloMCP = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// TestHTTPRefusals has a request of each kind that must not get through. All others
// than the first bear the token.
func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, func(o *HTTPOptions) { o.Hosts = []string{"agents.example"} })
	_, port, _ := net.SplitHostPort(s.addr)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(bytes.Repeat([]byte(" "), 64<<20))
	_ = z.Close()
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	many := make([]string, 1_000_000/50)
	for i := range many {
		many[i] = fmt.Sprintf("X-%d: %s", i, strings.Repeat("x", 40))
	}
	for _, test := range []struct {
		name string
		q    httpRequest
		want int
	}{
		// By another name: DNS rebinding.
		{"another host", httpRequest{host: "evil.example"}, 403},
		{"another host with our port", httpRequest{host: "evil.example:" + port}, 403},
		{"a host that ends like ours", httpRequest{host: "x.localhost"}, 403},
		{"a host that begins like ours", httpRequest{host: "127.0.0.1.evil.example"}, 403},
		{"localhost with a dot", httpRequest{host: "localhost."}, 403},
		{"another loopback address", httpRequest{host: "127.0.0.2:" + port}, 403},
		{"a number for an address", httpRequest{host: "2130706433:" + port}, 403},
		{"a name for a port", httpRequest{host: "localhost:evil"}, 403},
		{"localhost", httpRequest{host: "localhost:" + port, body: helloMCP}, 200},
		{"the same in IPv6", httpRequest{host: "[::1]:" + port, body: helloMCP}, 200},
		{"a configured name", httpRequest{host: "Agents.Example", body: helloMCP}, 200},

		// From a page of another site.
		{"another origin", httpRequest{headers: []string{"Origin: http://evil.example"}, body: helloMCP}, 403},
		{"an origin of no kind", httpRequest{headers: []string{"Origin: null"}, body: helloMCP}, 403},
		{"no origin at all", httpRequest{headers: []string{"Origin: "}, body: helloMCP}, 403},
		{"two origins", httpRequest{headers: []string{"Origin: http://" + s.addr, "Origin: http://evil.example"}, body: helloMCP}, 403},
		{"another scheme", httpRequest{headers: []string{"Origin: https://" + s.addr}, body: helloMCP}, 403},
		{"a user in it", httpRequest{headers: []string{"Origin: http://localhost@evil.example"}, body: helloMCP}, 403},
		{"another site's fetch", httpRequest{headers: []string{"Sec-Fetch-Site: cross-site"}, body: helloMCP}, 403},
		{"an event stream for another site", httpRequest{method: "GET", headers: []string{"Origin: http://evil.example"}}, 403},
		{"a web socket for another site", httpRequest{method: "GET", headers: []string{"Origin: http://evil.example", "Upgrade: websocket", "Connection: Upgrade"}}, 403},
		{"a preflight", httpRequest{method: "OPTIONS", headers: []string{"Origin: http://evil.example", "Access-Control-Request-Method: POST"}, noToken: true}, 403},
		{"our own origin", httpRequest{headers: []string{"Origin: http://" + s.addr}, body: helloMCP}, 200},

		// Without the token.
		{"no token", httpRequest{noToken: true, body: helloMCP}, 401},
		{"an empty one", httpRequest{noToken: true, headers: []string{"Authorization: Bearer "}, body: helloMCP}, 401},
		{"another", httpRequest{noToken: true, headers: []string{"Authorization: Bearer " + strings.Repeat("0", len(testToken))}, body: helloMCP}, 401},
		{"a shorter one", httpRequest{noToken: true, headers: []string{"Authorization: Bearer " + testToken[1:]}, body: helloMCP}, 401},
		{"a longer one", httpRequest{noToken: true, headers: []string{"Authorization: Bearer " + testToken + "0"}, body: helloMCP}, 401},
		{"another scheme", httpRequest{noToken: true, headers: []string{"Authorization: Basic " + testToken}, body: helloMCP}, 401},
		{"in the query", httpRequest{noToken: true, uri: HTTPPath + "?token=" + testToken, body: helloMCP}, 401},
		{"in a cookie", httpRequest{noToken: true, headers: []string{"Cookie: token=" + testToken}, body: helloMCP}, 401},
		{"twice", httpRequest{headers: []string{"Authorization: Bearer " + testToken}, body: helloMCP}, 401},

		// What a form or a page can send without asking.
		{"a text", httpRequest{headers: []string{"Content-Type: text/plain"}, body: helloMCP}, 415},
		{"a form", httpRequest{headers: []string{"Content-Type: application/x-www-form-urlencoded"}, body: helloMCP}, 415},
		{"both", httpRequest{headers: []string{"Content-Type: text/plain", "Content-Type: application/json"}, body: helloMCP}, 415},
		{"options", httpRequest{method: "OPTIONS"}, 405},
		{"put", httpRequest{method: "PUT", body: helloMCP, headers: []string{"Content-Type: application/json"}}, 405},

		// Too much.
		{"a body of 1 GB", httpRequest{headers: []string{"Content-Length: 1000000000"}, body: strings.Repeat(" ", maxBody+1)}, 413},
		{"chunks without an end", httpRequest{headers: []string{"Transfer-Encoding: chunked"}, body: strings.Repeat("100000\r\n"+strings.Repeat(" ", 1<<20)+"\r\n", 5)}, 413},
		{"a bomb", httpRequest{headers: []string{"Content-Encoding: gzip"}, body: zipped.String()}, 415},
		{"deep", httpRequest{body: deep}, 400},
		{"deep in its parameters", httpRequest{body: `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + deep + `}`}, 400},
		{"headers without number", httpRequest{headers: many}, 431},
		{"a long header", httpRequest{headers: []string{"X: " + strings.Repeat("x", 64<<10)}}, 431},

		// Not what it should be.
		{"no body", httpRequest{}, 400},
		{"no JSON", httpRequest{body: "x"}, 400},
		{"a name twice", httpRequest{body: `{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}`}, 400},
		{"half of a character", httpRequest{body: `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`}, 400},
		{"a huge number", httpRequest{body: `{"jsonrpc":"2.0","id":1e999,"method":"ping"}`}, 400},
		{"a batch", httpRequest{body: `[` + helloMCP + `]`}, 400},
		{"an unknown session", httpRequest{headers: []string{"Mcp-Session-Id: x"}, body: `{"jsonrpc":"2.0","id":1,"method":"ping"}`}, 404},
		{"a body that is not asked for", httpRequest{method: "DELETE", body: "x"}, 400},

		// Other places.
		{"the root", httpRequest{method: "GET", uri: "/"}, 404},
		{"an artifact", httpRequest{method: "GET", uri: "/artifacts/..%2f..%2fetc%2fpasswd"}, 404},
		{"encoded twice", httpRequest{method: "GET", uri: "/mcp/..%252f..%252fetc%252fpasswd"}, 404},
		{"two slashes", httpRequest{method: "GET", uri: "//mcp"}, 404},
		{"dots", httpRequest{method: "GET", uri: "/x/../mcp"}, 404},
		{"a parameter", httpRequest{method: "GET", uri: "/mcp;x"}, 404},
		{"a NUL", httpRequest{method: "GET", uri: "/mcp%00"}, 404},
		{"other letters", httpRequest{method: "GET", uri: "/MCP"}, 404},
		{"encoded", httpRequest{method: "GET", uri: "/%6dcp"}, 404},
		{"a query", httpRequest{method: "GET", uri: "/mcp?x=1"}, 404},
		{"a proxy's form", httpRequest{method: "GET", uri: "http://127.0.0.1" + HTTPPath}, 404},
	} {
		status, header, body := s.ask(t, test.q)
		if status != test.want {
			t.Errorf("%s: status %d %q; want %d", test.name, status, body, test.want)
		}
		for name := range header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: the answer has %s", test.name, name)
			}
		}
		if strings.Contains(body, "evil") || strings.Contains(body, testToken) {
			t.Errorf("%s: the answer repeats the request: %q", test.name, body)
		}
	}
	if n := len(s.host.started); n != 0 {
		t.Errorf("%d sessions were started", n)
	}
}

func TestCheckBind(t *testing.T) {
	t.Parallel()
	with := HTTPOptions{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	named := with
	named.Hosts = []string{"agents.example"}
	for _, test := range []struct {
		addr string
		o    HTTPOptions
		ok   bool
	}{
		{"127.0.0.1:8808", HTTPOptions{}, true},
		{"127.9.9.9:0", HTTPOptions{}, true},
		{"[::1]:8808", HTTPOptions{}, true},
		{"localhost:8808", HTTPOptions{}, true},
		{"0.0.0.0:8808", HTTPOptions{}, false},
		{"[::]:8808", HTTPOptions{}, false},
		{":8808", HTTPOptions{}, false},
		{"10.0.0.1:8808", HTTPOptions{}, false},
		{"0.0.0.0:8808", HTTPOptions{Hosts: []string{"agents.example"}}, false},
		{"0.0.0.0:8808", with, false},
		{"0.0.0.0:8808", named, true},
		{":8808", named, true},
		{"agents.example:8808", named, false},
		{"127.0.0.1", HTTPOptions{}, false},
		{"", HTTPOptions{}, false},
	} {
		if err := CheckBind(test.addr, test.o); (err == nil) != test.ok {
			t.Errorf("CheckBind(%q, TLS %v, %q) = %v; want ok %v", test.addr, test.o.TLS != nil, test.o.Hosts, err, test.ok)
		}
	}
}

// TestHTTPRefusesToServe holds the server itself to the same, and to a token.
func TestHTTPRefusesToServe(t *testing.T) {
	t.Parallel()
	m, err := NewMCP(mcpOptions(&fakeHost{}))
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	for _, test := range []struct{ addr, token string }{{"0.0.0.0:0", testToken}, {"127.0.0.1:0", ""}, {"127.0.0.1:0", "short"}} {
		l, err := lc.Listen(t.Context(), "tcp", test.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.HTTP(t.Context(), l, HTTPOptions{Token: test.token, Idle: time.Hour}); err == nil {
			t.Errorf("served on %s with the token %q", test.addr, test.token)
		}
		if _, err := l.Accept(); err == nil {
			t.Errorf("%s is still open", test.addr)
		}
	}
}
