package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// modernMeta is what each request without initialize has.
func modernMeta(capabilities string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`
}

// modernAnswer is an answer to such a request.
type modernAnswer struct {
	ID     any
	Method string
	Error  *struct {
		Code    int
		Message string
		Data    map[string]any
	}
	Result struct {
		ResultType    string
		Content       []struct{ Text string }
		IsError       bool
		InputRequests map[string]struct {
			Method string
			Params struct {
				Message         string
				RequestedSchema json.RawMessage
			}
		}
		RequestState      string
		SupportedVersions []string
		Instructions      string
		Tools             []struct {
			Name, Title string
			InputSchema json.RawMessage
			Annotations map[string]any
		}
		TTLMs      *int   `json:"ttlMs"`
		CacheScope string `json:"cacheScope"`
	}
}

func (a modernAnswer) text() string {
	var parts []string
	for _, c := range a.Result.Content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, "|")
}

// modernClient sends requests that belong to no one.
type modernClient struct {
	*client
	id int
}

func connectModern(t *testing.T, o Options) *modernClient {
	t.Helper()
	return &modernClient{client: rawMCP(t, o)}
}

func (c *modernClient) do(method, params string) modernAnswer {
	c.t.Helper()
	c.id++
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":{%s}}`, c.id, method, params))
	for {
		var a modernAnswer
		if err := json.Unmarshal([]byte(c.next()), &a); err != nil {
			c.t.Fatal(err)
		}
		if a.Method == "" {
			return a
		}
	}
}

const canAsk = `{"elicitation":{"form":{}}}`

func (c *modernClient) call(name, arguments, more string) modernAnswer {
	c.t.Helper()
	if more != "" {
		more = "," + more
	}
	return c.do("tools/call", modernMeta(canAsk)+`,"name":"`+name+`","arguments":`+arguments+more)
}

// begin starts a session and returns its id.
func (c *modernClient) begin() string {
	c.t.Helper()
	text := c.call("bash", `{"session":"new","command":"echo hi"}`, "").text()
	m := regexp.MustCompile(`^Started session (\S+): pass it as session from now on\.\|hi$`).FindStringSubmatch(text)
	if m == nil {
		c.t.Fatalf("the first call: %q", text)
	}
	return m[1]
}

// Calls name their session, and nothing else decides which one they use.
func TestModernSessions(t *testing.T) {
	t.Parallel()
	c := connectModern(t, mcpOptions(&fakeHost{}))
	if text := c.call("bash", `{"command":"echo"}`, "").text(); !strings.Contains(text, `Pass "new" to start one`) {
		t.Errorf("a call without a session: %q", text)
	}
	if n := len(c.host.all()); n != 0 {
		t.Errorf("it has started %d sessions", n)
	}
	one, two := c.begin(), c.begin()
	if one == two || !c.host.session(t, 0).r.Lasting {
		t.Errorf("sessions %s and %s, lasting %v", one, two, c.host.session(t, 0).r.Lasting)
	}
	if text := c.call("bash", `{"session":"`+one+`","command":"echo again"}`, "").text(); text != "again" {
		t.Errorf("a call in the first one: %q", text)
	}
	if got := c.host.session(t, 0).state().order; len(got) != 2 || got[1] != "echo again" {
		t.Errorf("the first session ran %q", got)
	}
	if text := c.call("terminal", `{"session":"`+one+`","action":"start","command":"vi"}`, "").text(); text != "started terminal pty_1" {
		t.Errorf("terminal: %q", text)
	}
	if text := c.call("terminal", `{"session":"`+two+`","action":"screen","terminal":"pty_1"}`, "").text(); !strings.Contains(text, "in this session") {
		t.Errorf("a terminal of another session: %q", text)
	}
	if a := c.do("resources/read", modernMeta("{}")+`,"uri":"artifact://0"`); a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("an artifact of no session: %+v", a.Error)
	}
}

// A session that no call names ends by its idle time, and by no connection.
func TestModernIdle(t *testing.T) {
	t.Parallel()
	o := mcpOptions(&fakeHost{})
	o.Idle = 50 * time.Millisecond
	c := connectModern(t, o)
	id := c.begin()
	eventually(t, "it ends", func() bool { return c.host.session(t, 0).state().stopped })
	if id == "" {
		t.Error("it has no id")
	}
	o = mcpOptions(&fakeHost{})
	lasts := make(chan string, 10)
	o.Idle, o.Lasts = time.Hour, func(i sandbox.Info) { lasts <- i.ID }
	c = connectModern(t, o)
	id = c.begin()
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if s := c.host.session(t, 0).state(); s.stopped || !s.released || <-lasts != id {
		t.Errorf("after its connection: %+v", s)
	}
}

// A call that asks is parked and goes on with the answer; it is not run again. Its state is for it alone, once.
func TestModernAsk(t *testing.T) {
	t.Parallel()
	o := mcpOptions(&fakeHost{})
	o.AskNetwork, o.AskPolicy = true, true
	c := connectModern(t, o)
	id := c.begin()
	arguments := `{"session":"` + id + `","command":"reach a.example b.example"}`
	a := c.call("bash", arguments, "")
	q := a.Result.InputRequests[inputName]
	if a.Result.ResultType != "input_required" || a.Result.Content != nil || q.Method != "elicitation/create" || !strings.Contains(q.Params.Message, "a.example:443") {
		t.Fatalf("the question: %+v", a)
	}
	state := func(a modernAnswer) string { return `"requestState":"` + a.Result.RequestState + `"` }
	answer := func(text string) string {
		return `"inputResponses":{"answer":{"action":"accept","content":{"answer":"` + text + `"}},"other":{"action":"accept"}}`
	}
	// What is tampered with, for another call, or without the answer.
	for name, try := range map[string]func() modernAnswer{
		"tampered": func() modernAnswer {
			return c.call("bash", arguments, answer("session")+`,"requestState":"`+a.Result.RequestState[:20]+"AAAA"+a.Result.RequestState[24:]+`"`)
		},
		"other arguments": func() modernAnswer {
			return c.call("bash", strings.Replace(arguments, "b.example", "c.example", 1), answer("session")+","+state(a))
		},
		"another tool": func() modernAnswer { return c.call("job", arguments, answer("session")+","+state(a)) },
	} {
		if got := try(); got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("%s: %+v; want an error", name, got)
		}
	}
	again := c.call("bash", arguments, state(a))
	if again.Result.ResultType != "input_required" || again.Result.RequestState == a.Result.RequestState {
		t.Fatalf("without the answer: %+v; want the question again", again)
	}
	if got := c.call("bash", arguments, answer("session")+","+state(a)); got.Error == nil {
		t.Errorf("a state that was used: %+v", got)
	}
	invalid := c.call("bash", arguments, answer("perhaps")+","+state(again))
	if invalid.Result.ResultType != "input_required" {
		t.Fatalf("an answer that is not one: %+v; want the question again", invalid)
	}
	second := c.call("bash", arguments, answer("session")+","+state(invalid))
	if !strings.Contains(second.Result.InputRequests[inputName].Params.Message, "b.example:443") {
		t.Fatalf("the second question: %+v", second)
	}
	last := c.call("bash", arguments, `"inputResponses":{"answer":{"action":"decline"}},`+state(second))
	if got := last.text(); got != "a.example session, b.example no" || last.Result.ResultType != "complete" {
		t.Errorf("the result: %q", got)
	}
	if got := c.host.session(t, 0).state().order; len(got) != 2 {
		t.Errorf("the session ran %q; the command once", got)
	}
	// The policy's question shows all of the command.
	denied := `{"session":"` + id + `","command":"denied too-dangerous"}`
	a = c.call("bash", denied, "")
	if got := a.Result.InputRequests[inputName].Params.Message; !strings.HasSuffix(got, "too-dangerous (rule rule-1). The command:\n| rm -rf /\n| echo x") {
		t.Errorf("the policy's question: %q", got)
	}
	if got := c.call("bash", denied, answer("once")+","+state(a)).text(); got != "allowed: true" {
		t.Errorf("allowed once: %q", got)
	}
	// A client that cannot be asked is not.
	if got := c.do("tools/call", modernMeta("{}")+`,"name":"bash","arguments":{"session":"`+id+`","command":"reach a.example"}`).text(); got != "a.example no" {
		t.Errorf("without the capability: %q", got)
	}
}

// An answer that does not come is a no, and the call's result waits a while for a request.
func TestModernLateAnswer(t *testing.T) {
	t.Parallel()
	o := mcpOptions(&fakeHost{})
	o.AskTime, o.Session.Workspace.Kind = 20*time.Millisecond, sandbox.WorkspaceCopy
	c := connectModern(t, o)
	id := c.begin()
	arguments := `{"session":"` + id + `"}`
	a := c.call("apply", arguments, "")
	if got := a.Result.InputRequests[inputName].Params.Message; !strings.HasPrefix(got, "Apply 2 changed files (+2 -0) from the sandbox to /home/u/work?\nM a.txt (+1 -0)\n") || !strings.Contains(got, "look at them first: Makefile") {
		t.Fatalf("the question: %q", got)
	}
	time.Sleep(60 * time.Millisecond)
	late := c.call("apply", arguments, `"inputResponses":{"answer":{"action":"accept","content":{"answer":"yes"}}},"requestState":"`+a.Result.RequestState+`"`)
	if got := late.text(); !late.Result.IsError || !strings.Contains(got, "came too late, and counted as a no") || !strings.Contains(got, "nothing was written") {
		t.Errorf("a late answer: %q", got)
	}
}

// The versions are told apart by what a request names, on one connection, too.
func TestModernVersions(t *testing.T) {
	t.Parallel()
	c := connectModern(t, mcpOptions(&fakeHost{}))
	d := c.do("server/discover", modernMeta("{}"))
	if got := fmt.Sprint(d.Result.SupportedVersions); got != "[2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05]" || !strings.Contains(d.Result.Instructions, "Every call names its session") {
		t.Errorf("discover: %s, %q", got, d.Result.Instructions)
	}
	for _, version := range []string{"2999-01-01", "1900-01-01"} {
		a := c.do("tools/list", strings.Replace(modernMeta("{}"), "2026-07-28", version, 1))
		if a.Error == nil || a.Error.Code != -32022 || a.Error.Data["requested"] != version {
			t.Errorf("version %s: %+v; want error -32022", version, a.Error)
		}
	}
	for _, method := range []string{"ping", "logging/setLevel", "initialize", "resources/subscribe"} {
		if a := c.do(method, modernMeta("{}")); a.Error == nil || a.Error.Code != -32601 {
			t.Errorf("%s: %+v; want error -32601", method, a.Error)
		}
	}
	if a := c.do("tools/list", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`); a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("without capabilities: %+v; want error -32602", a.Error)
	}
	l := c.do("tools/list", modernMeta("{}"))
	if l.Result.ResultType != "complete" || l.Result.TTLMs == nil || l.Result.CacheScope == "" {
		t.Errorf("tools/list: %+v", l.Result)
	}
	for _, tool := range l.Result.Tools {
		var schema struct {
			Properties map[string]json.RawMessage
			Required   []string
		}
		if err := json.Unmarshal(tool.InputSchema, &schema); err != nil || schema.Properties["session"] == nil || schema.Required[0] != "session" {
			t.Errorf("%s: schema %s", tool.Name, tool.InputSchema)
		}
		if tool.Title == "" || tool.Annotations["readOnlyHint"] == nil || tool.Annotations["openWorldHint"] == nil || tool.Annotations["destructiveHint"] == nil {
			t.Errorf("%s: title %q, annotations %v", tool.Name, tool.Title, tool.Annotations)
		}
	}
	// A client with initialize on the same connection has its own session and no such argument.
	c.send(helloMCP)
	if line := c.next(); !strings.Contains(line, `"protocolVersion":"2025-`) || !strings.Contains(line, "ends when you disconnect") {
		t.Errorf("initialize: %s", line)
	}
	c.send(`{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo old"}}}`)
	if line := c.next(); !strings.Contains(line, `"text":"old"`) {
		t.Errorf("its call: %s", line)
	}
}

// With a session of the user's, no call names one, and the server does not end it.
func TestMCPAttach(t *testing.T) {
	t.Parallel()
	o := mcpOptions(&fakeHost{})
	o.Attach, o.Session = "users", sandbox.Info{ID: "users", Name: "web"}
	c := connectModern(t, o)
	if text := c.call("bash", `{"command":"echo there"}`, "").text(); text != "there" {
		t.Errorf("a call: %q", text)
	}
	c.send(helloMCP)
	if line := c.next(); !strings.Contains(line, "The session is the user's own (web)") {
		t.Errorf("instructions: %s", line)
	}
	c.send(`{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo too"}}}`)
	if line := c.next(); !strings.Contains(line, `"text":"too"`) {
		t.Errorf("a call of a client with initialize: %s", line)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if all := c.host.all(); len(all) != 1 || all[0].r.Attach != "users" || all[0].state().stopped || !all[0].state().released {
		t.Errorf("sessions %d: %+v", len(all), all[0].state())
	}
}

// The tools for files and changes say what they did, and what to do next.
func TestMCPFilesAndChanges(t *testing.T) {
	t.Parallel()
	o := mcpOptions(&fakeHost{})
	o.Session.Workspace = sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: "/home/u/work", Target: "/workspace"}
	c := connectMCP(t, o)
	c.call(t, "bash", map[string]any{"command": "echo"})
	s := c.host.session(t, 0)
	s.mu.Lock()
	s.files["a"], s.files["bin"], s.files["empty"] = "one\ntwo hunter2\nthree", "x\x00y", ""
	s.mu.Unlock()
	for _, row := range []struct {
		tool  string
		args  map[string]any
		want  string
		isErr bool
	}{
		{"read", map[string]any{"path": "a"}, "     1\tone\n     2\ttwo [REDACTED:X]\n     3\tthree\n[no line feed at the end of the file]", false},
		{"read", map[string]any{"path": "a", "line": 2, "lines": 1}, "     2\ttwo [REDACTED:X]\n[lines 2 to 2; more follow: go on with line 3]", false},
		{"read", map[string]any{"path": "a", "line": 9}, "[the file has 3 lines]", false},
		{"read", map[string]any{"path": "empty"}, "[the file is empty]", false},
		{"read", map[string]any{"path": "bin"}, `"bin" is not text: look at it with bash, as in ` + "`file` or `xxd`", true},
		{"read", map[string]any{"path": "none"}, "none: no such file", true},
		{"write", map[string]any{"path": "new", "content": "x\n"}, "Made /workspace/new (1 line, 2 bytes).", false},
		{"write", map[string]any{"path": "new", "content": "x\n"}, "/workspace/new has this content already (1 line, 2 bytes): nothing was written.", false},
		{"write", map[string]any{"path": "new", "content": "y\nz\nz\n"}, "Replaced /workspace/new: it had 1 line, 2 bytes, and has 3 lines, 6 bytes now.", false},
		{"edit", map[string]any{"path": "new", "old": "z", "new": "w"}, "/workspace/new: old is in it 2 times, at lines 2 and 3: give more lines around the one, or set all", true},
		{"edit", map[string]any{"path": "new", "old": "z", "new": "w", "all": true}, "Edited /workspace/new: 2 places, at lines 2 and 3.", false},
		{"edit", map[string]any{"path": "new", "old": "q", "new": "w"}, "/workspace/new: old is not in it. It must be the same to the space and the line feed, and without line numbers: read the lines again", true},
		{"edit", map[string]any{"path": "none", "old": "q", "new": "w"}, "/workspace/none: there is no such file: make it with write", true},
		{"edit", map[string]any{"path": "none", "old": "", "new": "w"}, "path, old and new are required; old is not empty", true},
		{"write", map[string]any{"path": "raced", "content": "w"}, "/workspace/raced: the file has changed meanwhile: nothing was written; read it again", true},
		{"write", map[string]any{"path": "x"}, "path and content are required", true},
		{"diff", map[string]any{"stat": true}, "M a.txt (+1 -0)\nM b/c.txt (+1 -0)\n2 files, +2 -0", false},
		{"diff", map[string]any{"paths": []string{"b"}}, "M b/c.txt (+1 -0)\n1 file, +1 -0\n\ndiff a/b/c.txt b/b/c.txt\n--- a/b/c.txt\n+++ b/b/c.txt\n@@ -1 +1 @@\n+x", false},
		{"diff", map[string]any{"paths": []string{"none"}}, "Nothing was changed.", false},
		{"apply", map[string]any{}, "this client cannot ask its user, so nothing was written. Tell the user to run `sandboxbash session apply session-1`", true},
	} {
		if text, r := c.call(t, row.tool, row.args); text != row.want || r.IsError != row.isErr || r.StructuredContent != nil {
			t.Errorf("%s %v: %q, error %v; want %q", row.tool, row.args, text, r.IsError, row.want)
		}
	}
}

// --tools offers what it names, and says what there is.
func TestOffered(t *testing.T) {
	t.Parallel()
	bind := sandbox.Info{Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: "/w", Target: "/w"}}
	for _, row := range []struct {
		offer   string
		session sandbox.Info
		want    string
	}{
		{"", sandbox.Info{Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy}}, "bash job terminal read write edit diff apply"},
		{"", bind, "bash job terminal"},
		{"", sandbox.Info{}, "bash job terminal read write edit"},
		{"shell", bind, "bash job"},
		{"bash files", bind, "bash read write edit"},
		{"all", bind, "bash job terminal read write edit"},
		{"apply", bind, "the tool apply does not fit"},
		{"network_propose", bind, "the tool network_propose does not fit"},
		{"changes", bind, "no tool is left to offer"},
		{"bsah", bind, `there is no tool "bsah": there are bash, job, terminal, read, write, edit, diff, apply, network_propose; and for several of them changes, files, shell, default, all`},
	} {
		o := mcpOptions(nil)
		o.Offer, o.Session = strings.Fields(row.offer), row.session
		tools, err := offered(o)
		got := ""
		for _, t := range tools {
			got = strings.TrimSpace(got + " " + t.name)
		}
		if err != nil {
			got = err.Error()
		}
		if got != row.want && (err == nil || !strings.HasPrefix(got, row.want)) {
			t.Errorf("%q: %s; want %s", row.offer, got, row.want)
		}
	}
}

// The instructions are true of the session, short, and say what to do.
func TestInstructions(t *testing.T) {
	t.Parallel()
	copied := sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: "/home/u/work", Target: "/workspace"}
	for _, row := range []struct {
		change func(*Options)
		want   []string
		not    []string
	}{
		{func(*Options) {}, []string{"image debian:stable-slim; uid 1000, not root", "/workspace is a copy of the user's directory /home/u/work", "use read, write and edit", "apply brings it", "Network: none. Downloads and installs fail.", "2 CPUs, 2 GiB of memory, 512 processes; 300 s a command", "artifact://N", "ends when you disconnect. A changed workspace is then kept for the user for 24h"}, []string{"session \"new\"", "Background"}},
		{func(o *Options) {
			o.Session.Workspace.Kind, o.Session.Workspace.Target = sandbox.WorkspaceBind, "/home/u/work"
		}, []string{"the user's directory itself, at the same path"}, []string{"apply", "kept for"}},
		{func(o *Options) {
			o.Session.Workspace = sandbox.Workspace{Kind: sandbox.WorkspaceVolume, Target: "/workspace"}
		}, []string{"/workspace is empty at first"}, []string{"apply"}},
		{func(o *Options) { o.Session.Rules = &sandbox.NetworkRules{Allow: []string{"a.example:443"}} }, []string{"Network: only a.example:443; anything else is refused"}, []string{"network_propose"}},
		{func(o *Options) { o.AskNetwork = true }, []string{"Network: none so far: refused", "network_propose asks the user"}, nil},
		{func(o *Options) { o.Session.Network = sandbox.NetworkBridge }, []string{"Network: open (bridge)."}, nil},
		{func(o *Options) { o.Contract = tool.Plain }, []string{"only files last", "30 s a command"}, []string{"artifact", "exported"}},
		{func(o *Options) { o.Keep = true }, []string{"lives on when you disconnect, until it was idle for 2h"}, nil},
		{func(o *Options) { o.Settings.Async = true }, []string{"Background jobs:"}, nil},
	} {
		o := mcpOptions(nil)
		o.Settings.Async = false
		o.Idle, o.KeepFor = 2*time.Hour, 24*time.Hour
		o.Session = sandbox.Info{
			Image: "debian:stable-slim", Profile: sandbox.Strict, User: sandbox.User{UID: 1000, GID: 1000}, Network: sandbox.NetworkNone, Workspace: copied,
			Limits: sandbox.Limits{Memory: 2 << 30, CPUs: 2, Pids: 512},
		}
		row.change(&o)
		tools, err := offered(o)
		if err != nil {
			t.Fatal(err)
		}
		text := o.instructions(tools, false)
		for _, want := range row.want {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in:\n%s", want, text)
			}
		}
		for _, not := range row.not {
			if strings.Contains(text, not) {
				t.Errorf("%q is in:\n%s", not, text)
			}
		}
		if len(text) > 1800 || strings.Count(text, "\n") > 8 {
			t.Errorf("%d bytes:\n%s", len(text), text)
		}
	}
}

// Hints follow what a session can reach besides itself.
func TestHints(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		does effect
		o    Options
		want string
	}{
		{runs, Options{}, "destructive=false open=false readonly=false"},
		{runs, Options{Session: sandbox.Info{Network: sandbox.NetworkBridge}}, "destructive=true open=true readonly=false"},
		{runs, Options{AskNetwork: true}, "destructive=true open=true readonly=false"},
		{runs, Options{Session: sandbox.Info{Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceBind}}}, "destructive=true open=false readonly=false"},
		{runs, Options{Session: sandbox.Info{Mounts: []sandbox.Mount{{ReadOnly: true}, {Cache: "x"}}}}, "destructive=false open=false readonly=false"},
		{reads, Options{Session: sandbox.Info{Network: sandbox.NetworkBridge}}, "destructive=false open=false readonly=true"},
		{applies, Options{}, "destructive=true open=false readonly=false"},
	} {
		h := row.does.hints(row.o)
		if got := fmt.Sprintf("destructive=%v open=%v readonly=%v", *h.DestructiveHint, *h.OpenWorldHint, h.ReadOnlyHint); got != row.want {
			t.Errorf("%v of %+v: %s; want %s", row.does, row.o, got, row.want)
		}
	}
}

// Over HTTP a request belongs to the version that it names, in a header and in itself, and to no connection.
func TestModernHTTP(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, nil)
	post := func(headers []string, params, method string) (int, http.Header, string) {
		return s.ask(t, httpRequest{headers: headers, body: `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`})
	}
	version, list, call := "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list", []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: bash"}
	for _, row := range []struct {
		name    string
		headers []string
		params  string
		method  string
		status  int
		want    string
	}{
		{"a list", []string{version, list}, modernMeta("{}"), "tools/list", 200, `"resultType":"complete"`},
		{"no version in a header", []string{list}, modernMeta("{}"), "tools/list", 400, "-32020"},
		{"another version in the header", []string{"Mcp-Protocol-Version: 2025-11-25", list}, modernMeta("{}"), "tools/list", 400, "-32020"},
		{"another method in the header", []string{version, "Mcp-Method: tools/call"}, modernMeta("{}"), "tools/list", 400, "-32020"},
		{"another tool in the header", []string{version, "Mcp-Method: tools/call", "Mcp-Name: job"}, modernMeta("{}") + `,"name":"bash","arguments":{}`, "tools/call", 400, "-32020"},
		{"a version that there is not", []string{"Mcp-Protocol-Version: 2999-01-01", list}, strings.Replace(modernMeta("{}"), "2026-07-28", "2999-01-01", 1), "tools/list", 400, "-32022"},
		{"an unknown method", []string{version, "Mcp-Method: none"}, modernMeta("{}"), "none", 404, "-32601"},
		{"a session of the protocol is ignored", []string{version, list, "Mcp-Session-Id: x"}, modernMeta("{}"), "tools/list", 200, `"tools"`},
		{"a call without a session", call, modernMeta("{}") + `,"name":"bash","arguments":{"command":"echo"}`, "tools/call", 200, "name the session"},
		{"a call", call, modernMeta("{}") + `,"name":"bash","arguments":{"session":"new","command":"echo hi"}`, "tools/call", 200, "Started session session-1"},
		{"a call in it", call, modernMeta("{}") + `,"name":"bash","arguments":{"session":"session-1","command":"echo hi"}`, "tools/call", 200, `"text":"hi"`},
		{"an artifact", []string{version, "Mcp-Method: resources/read", "Mcp-Name: artifact://session-1/0"}, modernMeta("{}") + `,"uri":"artifact://session-1/0"`, "resources/read", 200, `"contents"`},
		{"an artifact of no session", []string{version, "Mcp-Method: resources/read", "Mcp-Name: artifact://0"}, modernMeta("{}") + `,"uri":"artifact://0"`, "resources/read", 200, "-32602"},
	} {
		status, header, body := post(row.headers, row.params, row.method)
		if status != row.status && row.want != "-32602" || !strings.Contains(body, row.want) || header.Get(sessionHeader) != "" {
			t.Errorf("%s: status %d %s; want %d and %s", row.name, status, body, row.status, row.want)
		}
	}
	if status, _, _ := s.ask(t, httpRequest{method: "GET", headers: []string{version}}); status != 405 {
		t.Errorf("GET: status %d; want 405", status)
	}
	progress := strings.Replace(modernMeta("{}"), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1)
	c := s.dial(t)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + progress + `,"name":"bash","arguments":{"session":"session-1","command":"spam"}}}`
	_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s\r\nContent-Length: %d\r\n\r\n%s",
		HTTPPath, s.addr, testToken, strings.Join(call, "\r\n"), len(body), body)
	buf, seen := make([]byte, 4096), ""
	for !strings.Contains(seen, "line 199") {
		n, err := c.Read(buf)
		if seen += string(buf[:n]); err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
	}
	_ = c.Close() // which cancels it
	s.host.session(t, 0).runs(t, 0)
	if s.host.session(t, 0).state().stopped {
		t.Error("a connection has ended the session")
	}
}

// What users are asked is a form that clients know: a list of words, with the answer that does nothing first.
func TestForms(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]string{"network": elicitSchema, "policy": deniedForm, "apply": applyForm} {
		var f struct {
			Type       string
			Properties map[string]struct {
				Type, Title, Default string
				Enum                 []string
			}
			Required []string
		}
		if err := json.Unmarshal([]byte(form), &f); err != nil {
			t.Fatal(err)
		}
		a := f.Properties["answer"]
		if f.Type != "object" || len(f.Properties) != 1 || len(f.Required) != 1 || a.Type != "string" || a.Title == "" || a.Default != "no" || len(a.Enum) < 2 || a.Enum[0] != "no" {
			t.Errorf("%s: %+v", name, f)
		}
		if !validAnswer(form, "no") || validAnswer(form, "") || validAnswer(form, "always") {
			t.Errorf("%s: other answers are valid than those of its list", name)
		}
	}
}
