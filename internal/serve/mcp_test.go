package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/tool"
)

// mcpOptions are those of most tests.
func mcpOptions(host *fakeHost) Options {
	settings := tool.DefaultSettings()
	settings.Async = true
	return Options{Version: "1.2.3", Contract: tool.Agent, Settings: settings, Dir: "/workspace", Host: host, TerminalTool: true}
}

// mcpClient is the official SDK's client, connected over streams.
type mcpClient struct {
	*mcp.ClientSession
	host     *fakeHost
	progress chan *mcp.ProgressNotificationParams
	ended    chan error
}

func connectMCP(t *testing.T, o Options) *mcpClient {
	t.Helper()
	server, err := NewMCP(o)
	if err != nil {
		t.Fatal(err)
	}
	c := newMCPClient(o)
	fromClient, in := io.Pipe()
	out, toClient := io.Pipe()
	go func() {
		err := server.Serve(context.WithoutCancel(t.Context()), fromClient, toClient)
		_ = toClient.Close() // never fails
		server.Close()
		c.ended <- err
	}()
	c.connect(t, &mcp.IOTransport{Reader: out, Writer: in})
	t.Cleanup(func() {
		// The end of input first: a client that stops to read as well takes away the answer to a call that it has just
		// cancelled, which the server is right to tell of.
		_ = in.Close() // never fails
		select {
		case err := <-c.ended:
			if err != nil {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not end")
		}
		_ = c.Close()
	})
	return c
}

func newMCPClient(o Options) *mcpClient {
	host, _ := o.Host.(*fakeHost)
	return &mcpClient{
		host: host, progress: make(chan *mcp.ProgressNotificationParams, 1000), ended: make(chan error, 1),
	}
}

func (c *mcpClient) connect(t *testing.T, transport mcp.Transport) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress <- r.Params },
	})
	var err error
	if c.ClientSession, err = client.Connect(t.Context(), transport, nil); err != nil {
		t.Fatalf("connect: %v", err)
	}
}

// call calls a tool and returns the text of its result.
func (c *mcpClient) call(t *testing.T, name string, args map[string]any) (string, *mcp.CallToolResult) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	var parts []string
	for _, content := range r.Content {
		parts = append(parts, content.(*mcp.TextContent).Text)
	}
	return strings.Join(parts, "|"), r
}

func TestMCPTools(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		contract tool.Name
		terminal bool
		want     string
	}{
		{tool.Agent, true, "bash job terminal"},
		{tool.Agent, false, "bash job"},
		{tool.Plain, false, "bash"},
		{tool.Modes, true, "bash terminal"},
	} {
		o := mcpOptions(&fakeHost{})
		o.Contract, o.TerminalTool = test.contract, test.terminal
		c := connectMCP(t, o)
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range list.Tools {
			names = append(names, d.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s: %s; want %s", test.contract, got, test.want)
		}
	}
}

func TestMCPCall(t *testing.T) {
	t.Parallel()
	c := connectMCP(t, mcpOptions(&fakeHost{}))
	text, r := c.call(t, "bash", map[string]any{"command": "echo hi"})
	if text != "hi" || r.IsError {
		t.Errorf("echo hi: %q, error %v", text, r.IsError)
	}
	structured, _ := json.Marshal(r.StructuredContent)
	if got, want := string(structured), `{"details":{"reason":"exited","timeoutSeconds":300},"text":"hi"}`; got != want {
		t.Errorf("structured: %s; want %s", got, want)
	}
	if text, _ := c.call(t, "job", map[string]any{}); text != "No running background jobs to wait for." {
		t.Errorf("job: %q", text)
	}
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "none"}); err == nil {
		t.Error("a tool that there is not was called")
	}
	if text, r := c.call(t, "bash", map[string]any{"command": 7}); !r.IsError || !strings.HasPrefix(text, "Invalid bash arguments") {
		t.Errorf("arguments of another type: %q, error %v", text, r.IsError)
	}
}

func TestMCPStartFails(t *testing.T) {
	t.Parallel()
	host := &fakeHost{fail: errors.New("the engine is down")}
	c := connectMCP(t, mcpOptions(host))
	if text, r := c.call(t, "bash", map[string]any{"command": "echo"}); !r.IsError || text != "the engine is down" {
		t.Errorf("%q, error %v", text, r.IsError)
	}
	host.fail = nil
	if text, r := c.call(t, "bash", map[string]any{"command": "echo again"}); r.IsError || text != "again" {
		t.Errorf("%q, error %v", text, r.IsError)
	}
}

func TestMCPCancel(t *testing.T) {
	t.Parallel()
	c := connectMCP(t, mcpOptions(&fakeHost{}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		c.host.session(t, 0).runs(t, 1)
	}()
	if _, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "sleep"}}); err == nil {
		t.Error("a cancelled call has a result")
	}
	c.host.session(t, 0).runs(t, 0)
	if text, _ := c.call(t, "bash", map[string]any{"command": "echo on"}); text != "on" {
		t.Errorf("the call behind it: %q", text)
	}
}

func TestMCPProgress(t *testing.T) {
	t.Parallel()
	c := connectMCP(t, mcpOptions(&fakeHost{}))
	ctx, cancel := context.WithCancel(t.Context())
	params := &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "spam"}}
	params.SetProgressToken("token")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.CallTool(ctx, params) // cancelled
	}()
	last := 0.0
	for {
		p := <-c.progress
		if p.ProgressToken != "token" || p.Progress <= last {
			t.Fatalf("progress %+v behind %v", p, last)
		}
		last = p.Progress
		if p.Message == "line 199\n" { // the last one is never left out
			break
		}
	}
	cancel()
	<-done
}

func TestMCPFinishedJobs(t *testing.T) {
	t.Parallel()
	c := connectMCP(t, mcpOptions(&fakeHost{}))
	c.call(t, "bash", map[string]any{"command": "echo"})
	jobs := c.host.session(t, 0).jobs
	jobs <- []tool.Delivery{{JobID: "bg_1", Label: "make", Text: "made"}}
	jobs <- nil // taken when the delivery before it has been handed over
	const followUp = "<system-notice>\nBackground job bg_1 has completed. Resume your work using the result below.\nmade\n</system-notice>"
	if text, r := c.call(t, "bash", map[string]any{"command": "echo next"}); text != followUp+"|next" || r.StructuredContent.(map[string]any)["followUp"] != followUp {
		t.Errorf("the next result: %q, %v", text, r.StructuredContent)
	}
	if text, _ := c.call(t, "bash", map[string]any{"command": "echo after"}); text != "after" {
		t.Errorf("the one behind it: %q", text)
	}
}

// TestMCPJobLog checks the log messages for a client of an older protocol, which sets
// its log level at the start, or never.
func TestMCPJobLog(t *testing.T) {
	t.Parallel()
	c := rawMCP(t, mcpOptions(&fakeHost{}))
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	c.next()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo"}}}`)
	c.next()
	c.host.session(t, 0).jobs <- []tool.Delivery{{JobID: "bg_1", Label: "make", Text: "made"}}
	if line := c.next(); !strings.Contains(line, `"method":"notifications/message"`) || !strings.Contains(line, `"job":"bg_1"`) {
		t.Errorf("got %s", line)
	}
}

func TestMCPArtifacts(t *testing.T) {
	t.Parallel()
	c := connectMCP(t, mcpOptions(&fakeHost{}))
	if list, err := c.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 0 {
		t.Fatalf("before the first call: %v, %v", list, err)
	}
	if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "artifact://0"}); err == nil {
		t.Error("before the first call there is an artifact")
	}
	c.call(t, "bash", map[string]any{"command": "echo"})
	list, err := c.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != "artifact://0" || list.Resources[0].Size != 10 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	for uri, want := range map[string]string{"artifact://0": "0123456789", "artifact://0?offset=3&limit=2": "34", "artifact://0?offset=99": ""} {
		r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil || len(r.Contents) != 1 || r.Contents[0].Text != want {
			t.Errorf("%s: %+v, %v; want %q", uri, r, err, want)
		}
	}
	// There is one spelling for each: nothing is resolved, decoded or looked up.
	for _, uri := range []string{
		"artifact://1", "artifact://00", "artifact://0/", "artifact://0/../0", "artifact://other/0", "artifact://x/../0", "artifact:///0", "artifact:0",
		"ARTIFACT://0", "artifact://0#a", "artifact://0?", "artifact://0?offset=1&offset=2", "artifact://0?x=1", "artifact://0?offset=-1", "artifact://0?offset=1e3",
		"artifact://0?limit=99999999999999999999", "artifact://%30", "artifact://0%00", "artifact://0\x00", "artifact://u:p@0", `artifact:\\0`, "artifact://0;1",
		"artifact://..%2f..%2fetc%2fpasswd", "file:///etc/passwd", "http://169.254.169.254/", "",
	} {
		if r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%q was read: %+v", uri, r.Contents[0])
		}
	}
}

func TestMCPTerminal(t *testing.T) {
	t.Parallel()
	c := connectMCP(t, mcpOptions(&fakeHost{}))
	for _, test := range []struct {
		args map[string]any
		want string
		bad  bool
	}{
		{map[string]any{"action": "screen", "terminal": "pty_1"}, `there is no terminal "pty_1": start one`, true},
		{map[string]any{"action": "start", "command": "vi", "cols": 20, "rows": 4}, "started terminal pty_1", false},
		{map[string]any{"action": "write", "terminal": "pty_1", "text": "abc"}, "typed", false},
		{map[string]any{"action": "write", "terminal": "pty_1", "keys": []string{"esc"}}, "typed", false},
		{map[string]any{"action": "write", "terminal": "pty_1"}, "give one of text, keys and paste", true},
		{map[string]any{"action": "resize", "terminal": "pty_1", "cols": 30, "rows": 5}, "resized", false},
		{map[string]any{"action": "read", "terminal": "pty_1"}, "abc<esc>", false},
		{map[string]any{"action": "screen", "terminal": "pty_1"}, "abc<esc>", false},
		{map[string]any{"action": "wait", "terminal": "pty_1", "text": "esc"}, "[output]\nabc<esc>", false},
		{map[string]any{"action": "wait", "terminal": "pty_1", "untilEnd": true, "timeoutMs": 1}, "[timeout]\nabc<esc>", false},
		{map[string]any{"action": "dance", "terminal": "pty_1"}, `action "dance": it can be start, write, resize, read, screen, wait or end`, true},
		{map[string]any{"action": "end", "terminal": "pty_1"}, "\n[ended: cancelled]", false},
		{map[string]any{"action": "end", "terminal": "pty_1"}, `there is no terminal "pty_1": start one`, true},
		{map[string]any{"action": "start", "command": "vi"}, "started terminal pty_2", false}, // it ends with the client
	} {
		if got, r := c.call(t, "terminal", test.args); got != test.want || r.IsError != test.bad {
			t.Errorf("%v: %q, error %v; want %q, %v", test.args, got, r.IsError, test.want, test.bad)
		}
	}
}

// TestMCPEnd ends clients while their calls run.
func TestMCPEnd(t *testing.T) {
	t.Parallel()
	c := rawMCP(t, mcpOptions(&fakeHost{}))
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	c.next()
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep"}}}`)
	c.host.session(t, 0).runs(t, 1)
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if s := c.host.session(t, 0).state(); s.running != 0 || !s.stopped {
		t.Errorf("the session: %+v", s)
	}
}

// rawMCP speaks to a server in lines.
func rawMCP(t *testing.T, o Options) *client {
	t.Helper()
	server, err := NewMCP(o)
	if err != nil {
		t.Fatal(err)
	}
	fromClient, in := io.Pipe()
	out, toClient := io.Pipe()
	host, _ := o.Host.(*fakeHost)
	c := &client{t: t, host: host, in: in, lines: make(chan string, 1000), ended: make(chan error, 1), other: true}
	go func() {
		err := server.Serve(context.WithoutCancel(t.Context()), fromClient, toClient)
		server.Close()
		c.ended <- err
		_ = toClient.Close() // never fails
	}()
	go func() {
		defer close(c.lines)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 64<<20)
		for scan.Scan() {
			c.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()      // never fails
		for range c.lines { // until the server has ended
		}
	})
	return c
}

// TestMCPHostileLines sends lines that are not messages of the protocol. Each has its
// answer, unless it asks for none, and the connection goes on.
func TestMCPHostileLines(t *testing.T) {
	t.Parallel()
	c := rawMCP(t, mcpOptions(&fakeHost{}))
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1066-10-14","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if line := c.next(); !strings.Contains(line, `"protocolVersion":"2025-11-25"`) {
		t.Errorf("to an unknown version: %s", line)
	}
	for _, test := range []struct{ name, line, want string }{
		{"no JSON", `Content-Length: 17`, `"id":null,"error":{"code":-32700`},
		{"a name twice", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, `"id":null,"error":{"code":-32700`},
		{"deep", `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 100_001), `"id":null,"error":{"code":-32700`},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `"id":null,"error":{"code":-32600`},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `"id":null,"error":{"code":-32600`},
		{"a long line", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", MaxLine) + `"}}`, `"id":null,"error":{"code":-32001`},
		{"an unknown method", `{"jsonrpc":"2.0","id":1,"method":"\u001b[2J\n"}`, `"code":-32601`},
		{"a call without a name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}`, `"error":{"code":-32602`},
		{"a call without parameters", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `"error":{"code":-32600`},
		{"arguments in order", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":[1]}}`, `"isError":true`},
		{"initialize again", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, `"error":{`},
		{"still there", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"id":1,"result":{}`},
	} {
		c.send(test.line)
		if line := c.next(); !strings.Contains(line, test.want) {
			t.Errorf("%s: %s; want %s in it", test.name, line, test.want)
		}
	}
	// A message that is not a request is not answered: cancelling before the start, an answer to
	// nothing, a notification of no kind.
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`, `{"jsonrpc":"2.0","id":"x","result":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/none"}`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if line := c.next(); !strings.Contains(line, `"id":2,"result":{}`) {
		t.Errorf("behind what is not answered: %s", line)
	}
}

// TestMCPTooMany calls 10,000 times at once: some run, all others get an error.
func TestMCPTooMany(t *testing.T) {
	t.Parallel()
	c := rawMCP(t, mcpOptions(&fakeHost{}))
	c.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	c.next()
	const calls = 10_000
	go func() {
		for i := range calls {
			fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep"}}}`+"\n", i)
		}
	}()
	for range calls - maxCalls {
		if line := c.next(); !strings.Contains(line, "calls are being answered: wait for one") {
			t.Fatal(line)
		}
	}
	c.host.session(t, 0).runs(t, maxCalls)
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if s := c.host.session(t, 0).state(); s.running != 0 || !s.stopped || len(s.order) != maxCalls {
		t.Errorf("at the end %d commands have run: %v", len(s.order), s.stopped)
	}
}

func FuzzMCPLine(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"printf 'a\n\u0000Content-Length: 3'"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1.5,"result":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) == 0 {
			return
		}
		m, err := parseMCP(line)
		if err != nil {
			return
		}
		// What is sent is one line, whatever is in it.
		sent, err := jsonrpc.EncodeMessage(m)
		if err == nil && strings.ContainsAny(string(sent), "\n\r\x00") {
			t.Errorf("%q becomes %q", line, sent)
		}
	})
}

func FuzzArtifactURI(f *testing.F) {
	for _, seed := range []string{"artifact://0", "artifact://12?offset=1&limit=2", "artifact://0?limit=%31", "artifact://../x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		id, from, most, err := parseArtifact(uri)
		if err == nil && (!decimal(id) || from < 0 || most < 1 || most > maxFile) {
			t.Errorf("parseArtifact(%q) = %q, %d, %d", uri, id, from, most)
		}
	})
}

// TestMCPBeforeInitialize sends requests that come too early: each has an error with
// the code of JSON-RPC for a request that is not valid.
func TestMCPBeforeInitialize(t *testing.T) {
	t.Parallel()
	m, err := NewMCP(mcpOptions(&fakeHost{}))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	in, w := io.Pipe()
	out, toClient := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- m.Serve(t.Context(), in, toClient)
		_ = toClient.Close()
	}()
	answers := bufio.NewScanner(out)
	for _, row := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"id":1,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"bash","arguments":{"command":"x"}}}`, `"id":"a","error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":2,"method":"nosuch"}`, `"id":2,"error":{"code":-32600,`},
		{`{"jsonrpc":"2.0","id":3,"method":"ping"}`, `"id":3,"result":{}`},
		{helloMCP, `"result":{"capabilities"`},
		{`{"jsonrpc":"2.0","id":4,"method":"nosuch"}`, `"id":4,"error":{"code":-3260`},
	} {
		if _, err := io.WriteString(w, row.line+"\n"); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() || !strings.Contains(answers.Text(), row.want) {
			t.Errorf("%s: %s, %v; want %s in it", row.line, answers.Text(), answers.Err(), row.want)
		}
	}
	_ = w.Close() // never fails
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// TestHTTPBeforeInitialize is the same over HTTP.
func TestHTTPBeforeInitialize(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, nil)
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"nosuch"}`,
	} {
		if status, _, answer := s.ask(t, httpRequest{body: body}); !strings.Contains(answer, `"code":-32600`) {
			t.Errorf("%s: status %d %s; want code -32600", body, status, answer)
		}
	}
}
