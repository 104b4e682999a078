package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// served is a server, as a client starts one.
type served struct {
	cmd    *exec.Cmd
	home   string
	stderr *lockedBuffer
}

// lockedBuffer keeps what a process says while others look at it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// server prepares a server in a home of its own.
func server(t *testing.T, environ []string, args ...string) *served {
	t.Helper()
	s := &served{home: t.TempDir(), stderr: &lockedBuffer{}}
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(built, "sandboxbash"), append([]string{"serve"}, args...)...)
	s.cmd.Env = append(append(os.Environ(), "HOME="+s.home, "XDG_CONFIG_HOME="+s.home, "XDG_STATE_HOME="+s.home, "TMPDIR="+s.home, "SANDBOXBASH_IMAGE=host"), environ...)
	s.cmd.Dir = t.TempDir()
	s.cmd.Stderr = s.stderr
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("standard error of the server:\n%s", s.stderr.String())
		}
	})
	return s
}

// sessions are the ids of the sessions that the server owns.
func (s *served) sessions(t *testing.T) []string {
	t.Helper()
	var all []struct{ ID, Owner string }
	if err := json.Unmarshal([]byte(sandboxbash(t, s.home, "session", "ls", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	var mine []string
	for _, one := range all {
		if strings.Contains(one.Owner, fmt.Sprintf("/%d/", s.cmd.Process.Pid)) {
			mine = append(mine, one.ID)
		}
	}
	return mine
}

// gone waits until nothing is left of sessions.
func gone(t *testing.T, ids ...string) {
	t.Helper()
	var names []string
	for _, id := range ids {
		names = append(names, "sandboxbash-"+id, "sandboxbash-"+id+"-jobs")
	}
	var left []string
	for deadline := time.Now().Add(settle); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if left = engineThings(names); len(left) == 0 {
			return
		}
	}
	t.Errorf("left behind: %q", left)
}

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
	c := connectMCP(t, &mcp.CommandTransport{Command: s.cmd})
	if ids := s.sessions(t); len(ids) != 0 {
		t.Errorf("before the first call there are sessions: %q", ids)
	}
	if text, r := c.call(t, t.Context(), "bash", map[string]any{"command": "echo hi; echo there >&2"}); !strings.HasPrefix(text, "hi\nthere\n\n\nWall time: ") || r.IsError {
		t.Errorf("echo: %q", text)
	}
	ids := s.sessions(t)
	if len(ids) != 1 {
		t.Fatalf("after the first call there are %d sessions", len(ids))
	}
	if text, r := c.call(t, t.Context(), "bash", map[string]any{"command": "echo out; exit 3"}); !strings.HasSuffix(text, "Command exited with code 3") || !r.IsError {
		t.Errorf("exit 3: %q", text)
	}
	start := time.Now()
	if text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": "echo begun; sleep 4761 & sleep 4762", "timeout": 1}); text != "[Command timed out after 1 seconds]\nbegun\n" || time.Since(start) > 6*time.Second {
		t.Errorf("a timeout: %q after %v", text, time.Since(start))
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
	two := connectMCP(t, &mcp.CommandTransport{Command: other.cmd})
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
		client := connectMCP(t, &mcp.CommandTransport{Command: s.cmd})
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

// rpc speaks JSON-RPC in lines.
type rpc struct {
	*served
	in    io.WriteCloser
	lines chan string
	t     *testing.T
}

func startRPC(t *testing.T, environ []string, args ...string) *rpc {
	t.Helper()
	r := &rpc{served: server(t, environ, append([]string{"rpc"}, args...)...), lines: make(chan string, 1000), t: t}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		r.in, err = r.cmd.StdinPipe()
	}
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.lines)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 32<<20)
		for scan.Scan() {
			r.lines <- scan.Text()
		}
	}()
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocol":"1","ui":true}}`)
	r.until(`"id":0,"result"`)
	return r
}

func (r *rpc) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatalf("send: %v", err)
	}
}

// until reads messages until one has a text in it, and returns that.
func (r *rpc) until(want string) string {
	r.t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("the server has ended before %s", want)
			}
			if strings.Contains(line, want) {
				return line
			}
		case <-timeout:
			r.t.Fatalf("no message has %s", want)
		}
	}
}

// end closes the input and waits for the server.
func (r *rpc) end() {
	r.t.Helper()
	r.in.Close()
	for range r.lines { // until it has ended
	}
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("the server ended with %v", err)
	}
}

// TestServeRPC drives the server in lines.
func TestServeRPC(t *testing.T) {
	t.Parallel()
	needEngine(t)
	r := startRPC(t, []string{"SANDBOXBASH_AGENT_ASYNC=true"}, "--artifacts", "always")
	call := func(id int, args string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"bash","arguments":%s}}`, id, args)
	}
	r.send(call(1, `{"command":"echo hi"}`))
	if line := r.until(`"id":1,`); !strings.Contains(line, `"text":"hi\n\n\nWall time: `) {
		t.Error(line)
	}
	ids := r.sessions(t)
	r.send(call(2, `{"command":"echo begun; sleep 4771 & sleep 4772"}`))
	r.until(`"method":"tools/update","params":{"request":2,"text":"begun\n"`)
	r.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}`)
	if line := r.until(`"id":2,`); !strings.Contains(line, `"text":"[Command cancelled]\nbegun\n","isError":true,"thrown":"abort"`) {
		t.Error(line)
	}
	r.send(call(3, `{"command":"sleep 4773","timeout":1}`))
	if line := r.until(`"id":3,`); !strings.Contains(line, `[Command timed out after 1 seconds]`) {
		t.Error(line)
	}
	r.send(call(4, `{"command":"echo to-the-background; sleep 1; echo job-done"}`))
	r.until(`"text":"to-the-background\n"`)
	r.send(`{"jsonrpc":"2.0","id":5,"method":"job/background","params":{"request":4}}`)
	r.until("Background job bg_1 started")
	if line := r.until(`"method":"job/completed"`); !strings.Contains(line, "job-done") || !strings.Contains(line, "Background job bg_1 has completed.") {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":6,"method":"bash","params":{"command":"echo from the user; ps ax | grep -c '[s]leep 477'"}}`)
	if line := r.until(`"id":6,`); !strings.Contains(line, `from the user\n0\n`) {
		t.Error(line)
	}
	r.send(call(7, `{"command":"seq 1 20000"}`))
	artifact := regexp.MustCompile(`artifact://(\d+)`).FindStringSubmatch(r.until(`"id":7,`))
	if artifact == nil {
		t.Fatal("there is no artifact")
	}
	r.send(`{"jsonrpc":"2.0","id":8,"method":"artifact/read","params":{"id":"` + artifact[1] + `","limit":4}}`)
	if line := r.until(`"id":8,`); !strings.Contains(line, `"result":{"content":"1\n2\n","encoding":"utf-8","size":108894}`) {
		t.Error(line)
	}

	// Files, with names that are not nice.
	r.send(`{"jsonrpc":"2.0","id":9,"method":"session/write","params":{"path":"deep/- a\n'b","content":"/wAK","encoding":"base64"}}`)
	r.until(`"id":9,"result":{}`)
	r.send(`{"jsonrpc":"2.0","id":10,"method":"session/files","params":{"path":"deep"}}`)
	if line := r.until(`"id":10,`); !strings.Contains(line, `"entries":[{"name":"- a\n'b","type":"file","size":3,"mode":"0644"}]`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":11,"method":"session/read","params":{"path":"deep/- a\n'b"}}`)
	if line := r.until(`"id":11,`); !strings.Contains(line, `{"content":"/wAK","encoding":"base64","end":true}`) {
		t.Error(line)
	}
	for path, want := range map[string]string{"deep": "it is a directory", "none": "there is no such file", "/dev/null": "it is no plain file", "/etc/shadow-": "there is no such file"} {
		r.send(`{"jsonrpc":"2.0","id":12,"method":"session/read","params":{"path":"` + path + `"}}`)
		if line := r.until(`"id":12,`); !strings.Contains(line, want) {
			t.Errorf("%s: %s", path, line)
		}
	}

	// An agent's command on a terminal, which the user types into.
	r.send(call(13, `{"command":"read -p 'sure? ' a; echo answer $a","pty":true}`))
	r.until(`"method":"pty/started","params":{"terminal":"pty_1"`)
	r.send(`{"jsonrpc":"2.0","id":14,"method":"pty/write","params":{"terminal":"pty_1","text":"yes\n"}}`)
	if line := r.until(`"id":13,`); !strings.Contains(line, `answer yes`) {
		t.Error(line)
	}

	// Another process takes a session over; a job of it goes on.
	r.send(`{"jsonrpc":"2.0","id":15,"method":"session/start","params":{"idle":"1m"}}`)
	second := regexp.MustCompile(`"result":\{"id":"([0-9a-f-]+)"`).FindStringSubmatch(r.until(`"id":15,`))
	if second == nil {
		t.Fatal("no session was started")
	}
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":16,"method":"tools/call","params":{"session":"%s","name":"bash","arguments":{"command":"sleep 3; echo after-all","async":true}}}`, second[1]))
	r.until(`"id":16,`)
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":17,"method":"session/stop","params":{"session":"%s","release":true}}`, second[1]))
	r.until(`"id":17,"result":{}`)
	r.end()
	gone(t, ids...)

	r = startRPC(t, nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"session/attach","params":{"session":"` + second[1] + `"}}`)
	if line := r.until(`"id":1,`); !strings.Contains(line, `"held":"attached","default":true`) {
		t.Error(line)
	}
	if line := r.until(`"method":"job/completed"`); !strings.Contains(line, "after-all") {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"session/stop"}`)
	r.until(`"id":2,"result":{}`)
	r.end()
	gone(t, second[1])
}

// TestServeEnds ends servers in the middle of things.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	needEngine(t)
	run := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo begun; sleep 4781 & sleep 4782"}}}`
	for name, end := range map[string]func(*rpc){
		"the input ends": func(r *rpc) { r.end() },
		"interrupted": func(r *rpc) {
			_ = r.cmd.Process.Signal(os.Interrupt)
			_ = r.cmd.Wait()
		},
	} {
		r := startRPC(t, nil)
		r.send(run)
		r.until(`"text":"begun\n"`)
		ids := r.sessions(t)
		if len(ids) != 1 {
			t.Fatalf("%s: %d sessions", name, len(ids))
		}
		start := time.Now()
		end(r)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: the server took %v to end", name, took)
		}
		gone(t, ids...)
	}
}

// TestServeKilled kills a server that can clean up nothing: its session ends by
// itself, and the next one who starts a session removes what is left of it.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	needEngine(t)
	r := startRPC(t, nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo begun; sleep 4791"}}}`)
	r.until(`"text":"begun\n"`)
	ids := r.sessions(t)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*exec.ExitError](r.cmd.Wait()); !ok {
		t.Error("the server was not killed")
	}
	for deadline := time.Now().Add(45 * time.Second); time.Now().Before(deadline) && len(engineThings([]string{"sandboxbash-" + ids[0]})) > 0; time.Sleep(time.Second) {
		sandboxbash(t, r.home, "session", "reap")
	}
	gone(t, ids...)
}

// TestServeWarm has a session prepared before anybody asks for it, which the first
// call takes; what is prepared ends with the server.
func TestServeWarm(t *testing.T) {
	t.Parallel()
	needEngine(t)
	r := startRPC(t, []string{"SANDBOXBASH_SESSION_WARM=1"})
	var before []string
	for deadline := time.Now().Add(30 * time.Second); len(before) == 0 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		before = r.sessions(t)
	}
	time.Sleep(settle) // it is seen before it is ready
	r.send(`{"jsonrpc":"2.0","id":1,"method":"session/info"}`)
	if line := r.until(`"id":1,`); len(before) != 1 || !strings.Contains(line, before[0]) {
		t.Errorf("prepared were %q; the session is %s", before, line)
	}
	var all []string
	for deadline := time.Now().Add(30 * time.Second); len(all) < 2 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all = r.sessions(t)
	}
	if len(all) != 2 {
		t.Errorf("behind the first call there are %d sessions; want its own and another one prepared", len(all))
	}
	r.end()
	gone(t, all...)
}

// TestServeLost removes a session below its server: the next call has another.
func TestServeLost(t *testing.T) {
	t.Parallel()
	needEngine(t)
	s := server(t, nil, "mcp")
	c := connectMCP(t, &mcp.CommandTransport{Command: s.cmd})
	c.call(t, t.Context(), "bash", map[string]any{"command": "touch here"})
	ids := s.sessions(t)
	if len(ids) != 1 {
		t.Fatalf("there are %d sessions", len(ids))
	}
	program(t, s.home, "docker", "rm", "-f", "-v", "sandboxbash-"+ids[0])
	text := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if text, _ = c.call(t, t.Context(), "bash", map[string]any{"command": "ls; echo back"}); strings.HasPrefix(text, "back\n") {
			break
		}
	}
	if !strings.HasPrefix(text, "back\n") {
		t.Errorf("after the loss: %q", text)
	}
	ids = append(ids, s.sessions(t)...)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	gone(t, ids...)
}
