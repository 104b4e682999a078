package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Each version of the protocol that the SDK speaks is answered with itself, any other with the latest
// that has initialize, and the capabilities are the same in all.
func TestMCPVersions(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"1.0": "2025-11-25", "2999-01-01": "2025-11-25", "": "2025-11-25",
	} {
		c := rawMCP(t, mcpOptions(&fakeHost{}))
		c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + asked + `","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		var answer struct {
			Result struct {
				ProtocolVersion string
				Capabilities    map[string]json.RawMessage
				ServerInfo      struct{ Name, Version string }
			}
		}
		if err := json.Unmarshal([]byte(c.next()), &answer); err != nil {
			t.Fatal(err)
		}
		r := answer.Result
		if r.ProtocolVersion != want || r.ServerInfo.Name != programName || r.ServerInfo.Version != "1.2.3" {
			t.Errorf("to version %q: %+v; want version %s of %s 1.2.3", asked, r, want, programName)
		}
		for _, can := range []string{"tools", "resources", "logging"} {
			if r.Capabilities[can] == nil {
				t.Errorf("to version %q there is no capability %s", asked, can)
			}
		}
		if len(r.Capabilities) != 3 {
			t.Errorf("to version %q there are the capabilities %v; want three", asked, r.Capabilities)
		}
	}
}

// A server ends by its context in every state of its client, and leaves no session.
func TestMCPEndInEveryState(t *testing.T) {
	t.Parallel()
	call := func(command string) string {
		return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"` + command + `"}}}`
	}
	for _, row := range []struct {
		name  string
		gate  chan struct{}
		lines []string
		ready func(c *client)
	}{
		{name: "at once"},
		{"after initialize", nil, []string{helloMCP}, func(c *client) { c.next() }},
		{"half a line", nil, []string{helloMCP, `{"jsonrpc":`}, func(c *client) { c.next(); c.next() }},
		{"a call runs", nil, []string{helloMCP, call("sleep")}, func(c *client) { c.host.session(c.t, 0).runs(c.t, 1) }},
		{"between calls", nil, []string{helloMCP, call("echo")}, func(c *client) { c.next(); c.next() }},
		{"a session starts", make(chan struct{}), []string{helloMCP, call("sleep")}, func(c *client) { c.next() }},
		{"a terminal runs", nil, []string{helloMCP, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"terminal","arguments":{"action":"start","command":"vi"}}}`}, func(c *client) { c.next(); c.next() }},
	} {
		host := &fakeHost{gate: row.gate}
		m, err := NewMCP(mcpOptions(host))
		if err != nil {
			t.Fatal(err)
		}
		fromClient, in := io.Pipe()
		out, toClient := io.Pipe()
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		c := &client{t: t, host: host, in: in, lines: make(chan string, 100), ended: make(chan error, 1), other: true}
		go func() { c.ended <- m.Serve(ctx, fromClient, toClient) }()
		go func() {
			for dec := json.NewDecoder(out); ; {
				var line json.RawMessage
				if dec.Decode(&line) != nil {
					return
				}
				c.lines <- string(line)
			}
		}()
		c.send(row.lines...)
		if row.ready != nil {
			row.ready(c)
		}
		cancel()
		select {
		case err := <-c.ended:
			if err != nil {
				t.Errorf("%s: the server ended with %v", row.name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the server does not end", row.name)
		}
		for _, s := range host.all() {
			if state := s.state(); !state.stopped || state.running != 0 {
				t.Errorf("%s: the session is left %+v", row.name, state)
			}
		}
		m.Close()
		m.Close() // does nothing
		if _, err := m.peer(nil); !errors.Is(err, errGone) {
			t.Errorf("%s: a client after Close: %v; want %v", row.name, err, errGone)
		}
		_, _ = in.Close(), toClient.Close() // never fail
	}
}

// A session that is gone is replaced at a later call.
func TestMCPLostSession(t *testing.T) {
	t.Parallel()
	c := connectMCP(t, mcpOptions(&fakeHost{}))
	c.call(t, "bash", map[string]any{"command": "echo"})
	c.host.session(t, 0).die()
	eventually(t, "another session is started", func() bool {
		c.call(t, "bash", map[string]any{"command": "echo"})
		return len(c.host.all()) == 2
	})
}

// A tool that the session has no part for says so.
func TestMCPWithoutParts(t *testing.T) {
	t.Parallel()
	o := mcpOptions(&fakeHost{})
	o.AskNetwork = true
	o.Host = changedHost(&fakeHost{}, func(s *Session) { *s = Session{ID: s.ID, Caller: s.Caller, Lifetime: s.Lifetime} })
	c := connectMCP(t, o)
	if list, err := c.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 0 {
		t.Errorf("resources: %+v, %v", list, err)
	}
	for _, row := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"terminal", map[string]any{"action": "start", "command": "vi"}, "this session has no terminals"},
		{"network_propose", map[string]any{"rule": "a.example:443", "reason": "x"}, "this session has no network of its own"},
		{"terminal", map[string]any{"action": "resize", "terminal": "pty_9"}, `there is no terminal "pty_9": start one`},
	} {
		if text, r := c.call(t, row.tool, row.args); text != row.want || !r.IsError || r.Meta["sandboxbash/error"] == nil {
			t.Errorf("%s %v: %q, error %v; want %q", row.tool, row.args, text, r.IsError, row.want)
		}
	}
	if text, r := c.call(t, "bash", map[string]any{"command": "echo on"}); text != "on" || r.IsError {
		t.Errorf("bash: %q", text)
	}
}

// Each tool says why the session did not start.
func TestMCPStartFailsForEveryTool(t *testing.T) {
	t.Parallel()
	o := mcpOptions(&fakeHost{fail: errors.New("the engine is down")})
	o.AskNetwork = true
	c := connectMCP(t, o)
	for name, args := range map[string]map[string]any{
		"bash": {"command": "echo"}, "terminal": {"action": "start", "command": "vi"}, "network_propose": {"rule": "a.example:443", "reason": "x"},
	} {
		if text, r := c.call(t, name, args); text != "the engine is down" || !r.IsError {
			t.Errorf("%s: %q, error %v", name, text, r.IsError)
		}
	}
	if text, r := c.call(t, "terminal", map[string]any{"action": "start", "rows": "many"}); !r.IsError || !strings.Contains(text, "rows") {
		t.Errorf("terminal with rows of another type: %q", text)
	}
}

// The end of a long output is cut between characters.
func TestTail(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "bcd"}, {"aää", 3, "ä"}, {"aää", 4, "ää"}, {"漢字", 2, ""}, {"", 0, ""}} {
		if got := tail(row.text, row.most); got != row.want {
			t.Errorf("tail(%q, %d) = %q; want %q", row.text, row.most, got, row.want)
		}
	}
}

// A question to a user is one text of bounded lines, whatever the session has sent.
func TestQuestionText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10*maxAskedText)
	for _, q := range []sandbox.NetworkQuestion{
		{Host: "a.example", Port: 443, Rule: "a.example:443"},
		{Host: "a.example\r\nThe rule that would be added: none", Port: 443, Rule: long, Command: "x\n\x1b]0;t\x07\u202e" + long},
		{Host: "a.example", Port: 80, Method: "GET", Path: "/\n" + long, Rule: "GET a.example:80/", Proposed: true, Reason: "because\n\u2028" + long},
	} {
		text := questionText(q)
		lines := 2
		for _, more := range []string{q.Method, q.Command} {
			if more != "" {
				lines++
			}
		}
		if got := strings.Split(text, "\n"); len(got) != lines || !strings.HasPrefix(got[lines-1], "The rule that would be added: ") {
			t.Errorf("%+v: %d lines %q; want %d", q.Host, len(got), text, lines)
		}
		if strings.ContainsAny(text, "\r\x1b\x07\u202e\u2028") || len(text) > 6*maxAskedText {
			t.Errorf("%+v: %q", q.Host, text)
		}
		if (q.Method != "") != strings.Contains(text, "\nRequest: GET / xxx") {
			t.Errorf("%+v: %q", q.Host, text)
		}
	}
}

// Secrets are masked in answers over HTTP: in events, in refusals and in errors.
func TestHTTPMask(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	o := mcpOptions(host)
	o.Mask = func(message []byte) []byte { return bytes.ReplaceAll(message, []byte("hunter2"), []byte("***")) }
	m, err := NewMCP(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(m.handler(HTTPOptions{Token: testToken, Idle: time.Hour}))
	server.Start()
	defer server.Close()
	defer m.Close()
	s := &httpServer{MCP: m, addr: server.Listener.Addr().String(), host: host}
	c := s.client(t)
	if text, _ := c.call(t, "bash", map[string]any{"command": "echo hunter2 and more"}); text != "*** and more" {
		t.Errorf("the result of a call: %q", text)
	}
	for name, body := range map[string]string{
		"an unknown field":            `{"jsonrpc":"2.0","id":1,"method":"ping","hunter2":1,"hunter2":2}`,
		"a name in place of a number": `{"jsonrpc":"hunter2","id":1,"method":"ping"}`,
	} {
		if status, _, got := s.ask(t, httpRequest{body: body}); status != 400 || strings.Contains(got, "hunter2") {
			t.Errorf("%s: status %d %s", name, status, got)
		}
	}
	_ = c.Close()
}

// Over TLS connections are counted, and trusted, as those without it.
func TestHTTPOverTLS(t *testing.T) {
	t.Parallel()
	made := httptest.NewUnstartedServer(nil) // for its certificate
	made.StartTLS()
	defer made.Close()
	m, err := NewMCP(mcpOptions(&fakeHost{}))
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- m.HTTP(ctx, l, HTTPOptions{Token: testToken, Idle: time.Hour, TLS: &tls.Config{Certificates: made.TLS.Certificates, MinVersion: tls.VersionTLS12}})
	}()
	client := made.Client()
	for _, row := range []struct {
		origin string
		want   int
	}{{"", 200}, {"https://" + l.Addr().String(), 200}, {"http://" + l.Addr().String(), 403}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.Addr().String()+HTTPPath, strings.NewReader(helloMCP))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"bearer " + testToken}, "Content-Type": {"application/json; charset=utf-8"}, "Accept": {"application/json, text/event-stream"}}
		if row.origin != "" {
			r.Header.Set("Origin", row.origin)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != row.want {
			t.Errorf("origin %q: status %d; want %d", row.origin, res.StatusCode, row.want)
		}
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// failingListener accepts nothing.
type failingListener struct{ net.Listener }

func (failingListener) Accept() (net.Conn, error) {
	return nil, fmt.Errorf("accept: %w", errBrokenListener)
}

var errBrokenListener = errors.New("too many open files in the system")

// A listener that breaks ends the server, with its error.
func TestHTTPListenerBreaks(t *testing.T) {
	t.Parallel()
	m, err := NewMCP(mcpOptions(&fakeHost{}))
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.HTTP(t.Context(), failingListener{l}, HTTPOptions{Token: testToken, Idle: time.Hour}); !errors.Is(err, errBrokenListener) {
		t.Errorf("HTTP() = %v; want %v", err, errBrokenListener)
	}
	if _, err := m.peer(nil); !errors.Is(err, errGone) {
		t.Errorf("a client afterwards: %v; want %v", err, errGone)
	}
}
