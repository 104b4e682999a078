package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpClient is the official SDK's client.
type mcpClient struct {
	*mcp.ClientSession
	progress chan string
}

func connectMCP(t *testing.T, transport mcp.Transport) *mcpClient {
	t.Helper()
	c := &mcpClient{progress: make(chan string, 1000)}
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress <- r.Params.Message },
	})
	var err error
	if c.ClientSession, err = client.Connect(t.Context(), transport, nil); err != nil {
		t.Fatalf("connect: %v", err)
	}
	return c
}

func (c *mcpClient) call(t *testing.T, ctx context.Context, name string, args map[string]any) (string, *mcp.CallToolResult) { //nolint:revive // the test comes first
	t.Helper()
	params := &mcp.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken("p")
	r, err := c.CallTool(ctx, params)
	if err != nil {
		return err.Error(), nil
	}
	var parts []string
	for _, content := range r.Content {
		parts = append(parts, content.(*mcp.TextContent).Text)
	}
	return strings.Join(parts, "|"), r
}

// TestServeMCP drives the server as a client of the protocol does.
func TestServeMCP(t *testing.T) {
	t.Parallel()
	needEngine(t)
	s := server(t, []string{"SANDBOXBASH_AGENT_ASYNC=true"}, "mcp", "--artifacts", "always")
	c := connectMCP(t, s.transport())
	if ids := s.sessions(t); len(ids) != 0 {
		t.Errorf("before the first call there are sessions: %q", ids)
	}
	if text, r := c.call(t, t.Context(), "bash", map[string]any{"command": "echo hi; echo there >&2"}); !strings.HasPrefix(text, "hi\nthere\n\n\nWall time: ") || r.IsError {
		t.Errorf("echo: %q", text)
	}
	if kept, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "artifact://0"}); err != nil || kept.Contents[0].Text != "hi\nthere\n" {
		t.Errorf("its artifact, which --artifacts always keeps: %+v, %v", kept, err)
	}
	ids := s.sessions(t)
	if len(ids) != 1 {
		t.Fatalf("after the first call there are %d sessions", len(ids))
	}
	if text, r := c.call(t, t.Context(), "bash", map[string]any{"command": "echo out; exit 3"}); !strings.HasSuffix(text, "Command exited with code 3") || !r.IsError {
		t.Errorf("exit 3: %q", text)
	}
	for try := 1; ; try++ { // the machine may be slow in one
		start := time.Now()
		text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": "echo begun; sleep 4761 & sleep 4762", "timeout": 1})
		took := time.Since(start)
		if text == "[Command timed out after 1 seconds]\nbegun\n" && took > 6*time.Second && try < 3 {
			continue
		}
		if text != "[Command timed out after 1 seconds]\nbegun\n" || took > 6*time.Second {
			t.Errorf("a timeout: %q after %v", text, took)
		}
		break
	}

	// Progress shows the output, and cancelling kills.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for message := range c.progress {
			if strings.Contains(message, "running") {
				cancel()
				return
			}
		}
	}()
	if text, r := c.call(t, ctx, "bash", map[string]any{"command": "echo running; sleep 4763 & sleep 4764"}); r != nil {
		t.Errorf("a cancelled call has the result %q", text)
	}
	if text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": "ps ax | grep -c '[s]leep 476'"}); !strings.HasPrefix(text, "0\n") {
		t.Errorf("what was killed: %q", text)
	}

	// The protocol's frames are none of the commands' business.
	const hostile = `printf 'Content-Length: 4\r\n\r\n{"jsonrpc":"2.0","id":1,"result":{}}\n\0\033[2J\n'`
	if text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": hostile}); !strings.Contains(text, `{"jsonrpc":"2.0","id":1,"result":{}}`) {
		t.Errorf("hostile output: %q", text)
	}

	// A job: its result comes in front of the next one.
	if text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": "sleep 1; echo job-done", "async": true}); !strings.Contains(text, "Background job bg_1 started") {
		t.Fatalf("a job: %q", text)
	}
	told := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && !strings.Contains(told, "job-done"); time.Sleep(200 * time.Millisecond) {
		told, _ = c.call(t, t.Context(), "bash", map[string]any{"command": "echo next"})
	}
	if !strings.HasPrefix(told, "<system-notice>\nBackground job bg_1 has completed.") || !strings.Contains(told, "</system-notice>|next\n") {
		t.Errorf("the result behind the job: %q", told)
	}

	// An output that is too long is an artifact, of this client alone.
	text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": "seq 1 20000"})
	id := regexp.MustCompile(`artifact://(\d+)`).FindString(text)
	if id == "" {
		t.Fatalf("no artifact in %q", text[max(0, len(text)-200):])
	}
	full, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: id})
	if err != nil || len(full.Contents) != 1 || len(full.Contents[0].Text) != 108894 {
		t.Errorf("%s: %v", id, err)
	}
	other := server(t, nil, "mcp")
	two := connectMCP(t, other.transport())
	two.call(t, t.Context(), "bash", map[string]any{"command": "true"})
	if _, err := two.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: id}); err == nil {
		t.Errorf("another client reads %s", id)
	}
	otherIDs := other.sessions(t)
	if err := two.Close(); err != nil {
		t.Errorf("the other server's end: %v", err)
	}

	// A terminal.
	if text, _ := c.call(t, t.Context(), "terminal", map[string]any{"action": "start", "command": "read -p 'name? ' n; echo hello $n; sleep 4765"}); text != "started terminal pty_1" {
		t.Fatalf("terminal: %q", text)
	}
	c.call(t, t.Context(), "terminal", map[string]any{"action": "wait", "terminal": "pty_1", "text": "name?"})
	c.call(t, t.Context(), "terminal", map[string]any{"action": "write", "terminal": "pty_1", "text": "bob\n"})
	if text, _ := c.call(t, t.Context(), "terminal", map[string]any{"action": "wait", "terminal": "pty_1", "text": "hello bob"}); text != "[output]\nname? bob\nhello bob" {
		t.Errorf("the terminal shows %q", text)
	}

	if err := c.Close(); err != nil {
		t.Errorf("the server's end: %v", err)
	}
	gone(t, append(ids, otherIDs...)...)
}

// TestServeClients starts the command of each configuration in docs/clients.md,
// and calls the tool.
func TestServeClients(t *testing.T) {
	t.Parallel()
	needEngine(t)
	text, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	type command struct {
		Command string
		Args    []string
		Env     map[string]string
		URL     string
	}
	var commands []command
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		var file map[string]map[string]command
		if err := json.Unmarshal([]byte(block[1]), &file); err != nil {
			t.Fatalf("%s\n%v", block[1], err)
		}
		for _, servers := range file {
			for _, c := range servers {
				commands = append(commands, c)
			}
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^args = (\[.*\])$`).FindAllStringSubmatch(string(text), -1) {
		c := command{Command: "sandboxbash"}
		if err := json.Unmarshal([]byte(line[1]), &c.Args); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, c)
	}
	tried := 0
	for _, c := range commands {
		if c.URL != "" { // TestServeHTTP
			continue
		}
		if c.Command != "sandboxbash" || len(c.Args) < 2 || c.Args[0] != "serve" {
			t.Fatalf("docs/clients.md has the command %s %q", c.Command, c.Args)
		}
		tried++
		var environ []string
		for name, value := range c.Env {
			environ = append(environ, name+"="+value)
		}
		s := server(t, environ, c.Args[1:]...)
		client := connectMCP(t, s.transport())
		if text, r := client.call(t, t.Context(), "bash", map[string]any{"command": "echo from-a-client"}); r == nil || r.IsError || !strings.Contains(text, "from-a-client") {
			t.Errorf("%q: %q", c.Args, text)
		}
		ids := s.sessions(t)
		if err := client.Close(); err != nil {
			t.Errorf("%q: %v", c.Args, err)
		}
		gone(t, ids...)
	}
	if tried < 5 {
		t.Errorf("docs/clients.md has %d commands; are they still found?", tried)
	}
}

// bearer adds a token to requests.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// TestServeHTTP connects two clients over HTTP, and has a session with a network
// try to reach the server.
func TestServeHTTP(t *testing.T) {
	t.Parallel()
	needEngine(t)
	s := server(t, nil, "mcp", "--http", "127.0.0.1:0", "--network", "bridge")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	said := regexp.MustCompile(`serving MCP at (http://127\.0\.0\.1:(\d+)/mcp)\n.*Bearer (\S+)` + "`")
	var m []string
	for deadline := time.Now().Add(30 * time.Second); m == nil; time.Sleep(20 * time.Millisecond) {
		if m = said.FindStringSubmatch(s.stderr.String()); m == nil && time.Now().After(deadline) {
			t.Fatalf("the server says %q", s.stderr.String())
		}
	}
	url, port, token := m[1], m[2], m[3]
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid)); err == nil && bytes.Contains(cmdline, []byte(token)) {
		t.Error("the token is in the command line")
	}
	var ids []string
	for i := range 2 {
		c := connectMCP(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token}}})
		if text, r := c.call(t, t.Context(), "bash", map[string]any{"command": "echo over http"}); r == nil || !strings.HasPrefix(text, "over http\n") {
			t.Fatalf("client %d: %q", i, text)
		}
		if i == 1 {
			continue // it ends with the server
		}
		// Every address that leads to this machine from there, and its names.
		const reach = `gw=$(awk '$2 == "00000000" {print $3}' /proc/net/route | head -n 1); test -n "$gw" || exit 9
for h in $((16#${gw:6:2})).$((16#${gw:4:2})).$((16#${gw:2:2})).$((16#${gw:0:2})) 127.0.0.1 localhost host.docker.internal gateway.docker.internal; do
	timeout 3 bash -c ": </dev/tcp/$h/%s" 2>/dev/null && echo reached $h
done; echo tried`
		if text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": fmt.Sprintf(reach, port)}); !strings.HasPrefix(text, "tried\n") {
			t.Errorf("from a session: %q", text)
		}
		ids = s.sessions(t)
		if err := c.Close(); err != nil {
			t.Errorf("the first client's end: %v", err)
		}
		gone(t, ids...)
	}
	ids = s.sessions(t)
	if len(ids) != 1 {
		t.Errorf("there are %d sessions", len(ids))
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("interrupted, the server ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("interrupted, the server does not end")
	}
	gone(t, ids...)
}
