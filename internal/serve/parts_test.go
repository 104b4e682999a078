package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// changedHost starts fake sessions and changes them.
func changedHost(fake *fakeHost, change func(*Session)) Host {
	return hostFunc(func(ctx context.Context, r SessionRequest) (*Session, error) {
		s, err := fake.Start(ctx, r)
		if err == nil {
			change(s)
		}
		return s, err
	})
}

// A method about a part that the session does not have says so, and runs nothing.
func TestRPCWithoutParts(t *testing.T) {
	t.Parallel()
	c := connect(t, func(o *Options) {
		o.Host = changedHost(&fakeHost{}, func(s *Session) { *s = Session{ID: s.ID, Caller: s.Caller, Lifetime: s.Lifetime} })
	})
	c.hello("")
	for method, params := range map[string]string{
		"session/read": `{"path":"a"}`, "session/write": `{"path":"a","content":""}`, "session/files": `{}`,
		"session/push": `{"from":"a","to":"b"}`, "session/pull": `{"from":"a","to":"b"}`,
		"job/list": `{}`, "job/wait": `{"id":"x"}`, "job/kill": `{"id":"x"}`, "job/output": `{"id":"x"}`,
		"pty/start": `{"command":"vi"}`, "artifact/list": `{}`, "artifact/read": `{"id":"0"}`, "policy/check": `{}`,
		"network/rules": `{}`, "network/allow": `{"rules":["a.example"]}`, "network/log": `{}`, "network/propose": `{"rule":"a.example:443","reason":"x"}`,
	} {
		if got := c.ask(method, params).text(); got != "1: -32021 unavailable" {
			t.Errorf("%s of a session without it: %s", method, got)
		}
	}
	c.send(`{"jsonrpc":"2.0","id":7,"method":"bash","params":{"command":"sleep"}}`)
	eventually(t, "the command is known", func() bool {
		return c.ask("abort_bash", `{"session":"session-1"}`).text() == `1: {"aborted":1}`
	})
	if a := c.answer(); string(a.ID) != "7" {
		t.Errorf("the user's command: %s", a.text())
	}
	if got := c.ask("job/background", `{"request":"none"}`).text(); got != "1: -32014 unknown-request" {
		t.Errorf("job/background of a session without jobs: %s", got)
	}
}

// An engine that fails is not taken for a session that is gone or empty.
func TestRPCFailingParts(t *testing.T) {
	t.Parallel()
	down := &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseEngine, Err: errors.New("no answer")}
	c := connect(t, func(o *Options) {
		o.Host = changedHost(&fakeHost{}, func(s *Session) {
			f := failingParts{err: down}
			s.Files, s.Jobs, s.Artifacts, s.Lifetime = f, failingJobs{down}, failingArtifacts{down}, statusLifetime{Lifetime: s.Lifetime, err: down}
			s.Copies, s.Network = f, failingNetwork{&fakeNetwork{more: make(chan struct{})}, fmt.Errorf("session: %w", sandbox.ErrNoNetwork)}
		})
	})
	c.hello("")
	for method, params := range map[string]string{
		"session/read": `{"path":"a"}`, "session/write": `{"path":"a","content":""}`, "session/files": `{}`, "session/start": `{}`, "session/info": `{}`,
		"session/push": `{"from":"a","to":"b"}`, "session/pull": `{"from":"a","to":"b"}`,
		"job/list": `{}`, "job/wait": `{"id":"x"}`, "job/kill": `{"id":"x"}`, "job/output": `{"id":"x"}`, "artifact/list": `{}`, "artifact/read": `{"id":"0"}`,
	} {
		if got := c.ask(method, params); got.text() != "1: -32030 not-started" || got.Error.Message != "no answer" {
			t.Errorf("%s: %s", method, got.text())
		}
	}
	for method, params := range map[string]string{
		"network/rules": `{}`, "network/allow": `{"rules":["a.example"]}`, "network/deny": `{"remove":["a.example"]}`, "network/log": `{}`,
	} {
		if got := c.ask(method, params).text(); got != "1: -32021 unavailable" {
			t.Errorf("%s of a session whose connections another process carries: %s", method, got)
		}
	}
}

type failingParts struct{ err error }

func (f failingParts) Read(context.Context, string, int64, int64) ([]byte, bool, error) {
	return nil, false, f.err
}

func (f failingParts) Write(context.Context, string, []byte) error { return f.err }

func (f failingParts) List(context.Context, string) ([]FileInfo, error) { return nil, f.err }

func (f failingParts) Push(context.Context, string, string) ([]string, error) { return nil, f.err }

func (f failingParts) Pull(context.Context, string, string, sandbox.PullOptions) (sandbox.Pulled, error) {
	return sandbox.Pulled{}, f.err
}

type failingJobs struct{ err error }

func (f failingJobs) List(context.Context) ([]sandbox.JobInfo, error) { return nil, f.err }
func (f failingJobs) Job(context.Context, string) (Job, error)        { return nil, f.err }
func (f failingJobs) Kill(context.Context, string) (sandbox.JobInfo, error) {
	return sandbox.JobInfo{}, f.err
}

type failingArtifacts struct{ err error }

func (f failingArtifacts) List(context.Context) ([]ArtifactInfo, error) { return nil, f.err }

func (f failingArtifacts) Read(context.Context, string, int64, int64) ([]byte, int64, error) {
	return nil, 0, f.err
}

// emptyParts are parts with nothing in them.
type emptyParts struct{ Jobs }

func (emptyParts) List(context.Context) ([]sandbox.JobInfo, error) { return nil, nil }

// Lists without entries are lists, not null.
func TestRPCEmptyLists(t *testing.T) {
	t.Parallel()
	c := connect(t, func(o *Options) {
		o.Host = changedHost(&fakeHost{}, func(s *Session) {
			s.Jobs, s.Artifacts, s.Files, s.Copies = emptyParts{}, failingArtifacts{}, failingParts{}, failingParts{}
		})
	})
	c.hello("")
	for _, row := range []struct{ method, params, want string }{
		{"job/list", `{}`, `1: {"jobs":[]}`},
		{"artifact/list", `{}`, `1: {"artifacts":[]}`},
		{"session/files", `{}`, `1: {"entries":[]}`},
		{"session/push", `{"from":"a","to":"b"}`, `1: {"leftOut":[]}`},
		{"session/pull", `{"from":"a","to":"b"}`, `1: {"leftOut":[],"deleted":[],"written":0}`},
		{"session/list", `{}`, `1: {"sessions":[]}`},
		{"pty/list", `{}`, `1: {"terminals":[]}`},
	} {
		if got := c.ask(row.method, row.params).text(); got != row.want {
			t.Errorf("%s: %s; want %s", row.method, got, row.want)
		}
	}
}

// Numbers that no time and no file reaches are not taken for others.
func TestRPCHugeNumbers(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	for _, row := range []struct{ method, params string }{
		{"session/read", `{"path":"a","offset":9007199254740992}`},
		{"session/read", `{"path":"a","offset":9223372036854775807}`},
		{"artifact/read", `{"id":"0","offset":9223372036854775807}`},
		{"artifact/read", `{"id":"0","limit":8388609}`},
		{"job/output", `{"id":"bg_1","tail":1048577}`},
		{"pty/wait", `{"terminal":"pty_1","quietMs":-1}`},
	} {
		if row.method == "pty/wait" {
			c.ask("pty/start", `{"command":"vi"}`)
		}
		if got := c.ask(row.method, row.params).text(); got != "1: -32602 invalid-params" {
			t.Errorf("%s %s: %s", row.method, row.params, got)
		}
	}
	// A wait of more milliseconds than a duration can hold is a long one: it ends with its request.
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":"w","method":"job/wait","params":{"id":"bg_1","timeoutMs":9007199254740991}}`,
		`{"jsonrpc":"2.0","id":"w","method":"pty/wait","params":{"terminal":"pty_1","end":true,"timeoutMs":9007199254740991,"quietMs":9007199254740991}}`,
	} {
		c.send(line)
		if got := c.ask("job/list", `{}`); string(got.ID) != "1" {
			t.Errorf("%s: %s", line, got.text())
		}
		c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"w"}}`)
		if got := c.answer().text(); got != `"w": -32800 cancelled` {
			t.Errorf("%s: %s; want it to wait until it is cancelled", line, got)
		}
	}
}

// endedTerminal is a terminal whose command has ended.
type endedTerminal struct {
	fakeTerminal
	res sandbox.Result
	err error
}

func (e *endedTerminal) Wait() (sandbox.Result, error) { return e.res, e.err }

// How a command on a terminal has ended is described alike by pty/list, pty/wait and pty/end.
func TestPTYEnds(t *testing.T) {
	t.Parallel()
	output := sink.Output{Artifact: sink.Artifact{ID: "3", Stored: true}}
	for _, row := range []struct {
		name      string
		res       sandbox.Result
		err       error
		described string
		end       string
	}{
		{"exit", sandbox.Result{Status: exec.Status{Reason: exec.Exited, Code: 0}}, nil, `"state":"ended","reason":"exited","exitCode":0`, `{"reason":"exited","exitCode":0,"text":""}`},
		{"124", sandbox.Result{Status: exec.Status{Reason: exec.Exited, Code: 124}, Output: output}, nil, `"state":"ended","reason":"exited","exitCode":124`, `{"reason":"exited","exitCode":124,"text":"","artifact":"3"}`},
		{"signal", sandbox.Result{Status: exec.Status{Reason: exec.Signalled, Code: 139, Signal: 11}}, nil, `"state":"ended","reason":"signalled","signal":11`, `{"reason":"signalled","exitCode":null,"signal":11,"text":""}`},
		{"timeout", sandbox.Result{Status: exec.Status{Reason: exec.TimedOut, Code: 124}}, nil, `"state":"ended","reason":"timed-out"}`, `{"reason":"timed-out","exitCode":null,"text":""}`},
		{"lost", sandbox.Result{}, &exec.Error{Outcome: exec.Lost, Cause: exec.CauseEngine, Err: errors.New("gone")}, `"state":"lost","error":{"code":-32031,`, "-32031 session-lost"},
	} {
		term := &endedTerminal{fakeTerminal: fakeTerminal{done: make(chan struct{}), ended: true, size: screen.DefaultSize}, res: row.res, err: row.err}
		close(term.done)
		c := connect(t, func(o *Options) {
			o.Host = changedHost(&fakeHost{}, func(s *Session) { s.Terminals = oneTerminal{term} })
		})
		c.hello("")
		c.ask("pty/start", `{"command":"x"}`)
		for _, ask := range []struct{ method, params string }{{"pty/list", `{}`}, {"pty/wait", `{"terminal":"pty_1","end":true}`}} {
			if got := c.ask(ask.method, ask.params).text(); !strings.Contains(got, row.described) {
				t.Errorf("%s: %s: %s; want %s", row.name, ask.method, got, row.described)
			}
		}
		if got := c.ask("pty/end", `{"terminal":"pty_1"}`).text(); got != "1: "+row.end {
			t.Errorf("%s: pty/end: %s; want %s", row.name, got, row.end)
		}
		if got := c.ask("pty/list", `{}`).text(); got != `1: {"terminals":[]}` {
			t.Errorf("%s: pty/list after pty/end: %s", row.name, got)
		}
	}
}

type oneTerminal struct{ Terminal }

func (o oneTerminal) Open(context.Context, TerminalRequest) (Terminal, error) { return o.Terminal, nil }

// A terminal that opens while its request is cancelled ends, and is not in the table.
func TestPTYCancelledStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	term := &fakeTerminal{done: make(chan struct{}), stop: func() bool { return true }}
	opener := openerFunc(func(life context.Context) (Terminal, error) {
		cancel(errCancelled)
		<-life.Done()
		term.Kill()
		return term, nil
	})
	table := rpcTerminals()
	if h, err := table.open(ctx, t.Context(), &Session{ID: "s", Terminals: opener}, TerminalRequest{Command: "vi"}); !errors.Is(err, errCancelled) {
		t.Errorf("open() = %+v, %v; want %v", h, err, errCancelled)
	}
	if len(table.list()) != 0 || table.opening != 0 {
		t.Errorf("%d terminals, %d being opened", len(table.list()), table.opening)
	}
}

type openerFunc func(life context.Context) (Terminal, error)

func (f openerFunc) Open(life context.Context, _ TerminalRequest) (Terminal, error) { return f(life) }

// Plans are made by the policy of the client's contract and tools, unless the request has its own.
func TestRPCPlanPolicy(t *testing.T) {
	t.Parallel()
	var asked []string
	bad := errors.New("a rule cannot be compiled")
	c := connect(t, func(o *Options) {
		o.Policy = func(contract tool.Name, tools []string) (policy.Checker, error) {
			asked = append(asked, fmt.Sprintf("%s %q", contract, tools))
			if len(tools) == 0 {
				return nil, bad
			}
			return nil, nil //nolint:nilnil // no rules
		}
	})
	c.hello(`,"contract":"B","toolNames":["read"]`)
	for _, row := range []struct{ params, want string }{
		{`{"arguments":{"command":"x"}}`, `"command":"x"`},
		{`{"arguments":{"command":"x"},"toolNames":["grep"]}`, `"command":"x"`},
		{`{"arguments":{"command":"x"},"toolNames":[]}`, "-32602 invalid-params"},
		{`{"arguments":{"command":"x"},"contract":"modes"}`, `"command":"x"`},
		{`[]`, "-32602 invalid-params"},
	} {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/plan","params":` + row.params + `}`)
		if got := c.answer().text(); !strings.Contains(got, row.want) {
			t.Errorf("tools/plan %s: %s; want %s", row.params, got, row.want)
		}
	}
	if got := strings.Join(asked, ", "); got != `plain ["read"], plain ["grep"], plain []` {
		t.Errorf("the policy was asked for as %s", got)
	}
}

// The ends of a session's jobs that cannot be had any more are noted once; calls go on.
func TestNewsThatFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("the stream broke")
	for name, serve := range map[string]func(o Options) func(){
		"rpc": func(o Options) func() {
			c := connect(t, func(to *Options) { *to = o })
			c.hello("")
			return func() {
				if got := c.ask("bash", `{"command":"echo on"}`).text(); !strings.Contains(got, `"text":"on"`) {
					t.Errorf("a call: %s", got)
				}
			}
		},
		"mcp": func(o Options) func() {
			c := connectMCP(t, o)
			return func() {
				if text, _ := c.call(t, "bash", map[string]any{"command": "echo on"}); text != "on" {
					t.Errorf("a call: %s", text)
				}
			}
		},
	} {
		notes := make(chan string, 10)
		o := mcpOptions(&fakeHost{})
		o.Host = changedHost(&fakeHost{}, func(s *Session) { s.News = failingNews{broken} })
		o.Note = func(text string) { notes <- text }
		call := serve(o)
		call()
		if got, want := <-notes, "session session-1: the ends of its jobs are not reported any more: the stream broke"; got != want {
			t.Errorf("%s: the note is %q; want %q", name, got, want)
		}
		call()
		if len(notes) != 0 {
			t.Errorf("%s: another note: %s", name, <-notes)
		}
	}
}

type failingNews struct{ err error }

func (f failingNews) Deliveries(context.Context, func(context.Context, []tool.Delivery) error) error {
	return f.err
}

func (failingNews) Background(string) error { return agent.ErrNoCall }

// A connection ends in every state that it can be in: no request is left, and every session that it
// has started is stopped.
func TestRPCEndInEveryState(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		hello string
		lines []string
		ready func(c *client) // returns when the state is there
	}{
		{name: "at once"},
		{name: "after initialize", hello: " "},
		{"a call waits for its turn", " ", []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep"}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo"}}}`,
		}, func(c *client) { c.host.session(c.t, 0).runs(c.t, 1) }},
		{"a job is waited for", " ", []string{`{"jsonrpc":"2.0","id":1,"method":"job/wait","params":{"id":"bg_1"}}`}, func(c *client) { c.host.session(c.t, 0) }},
		{"the client is asked for a terminal", `,"client":{"terminal":true}`, []string{`{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"client make"}}`}, func(c *client) { c.next() }},
		{"the user is asked", `,"client":{"askNetwork":true}`, []string{`{"jsonrpc":"2.0","id":1,"method":"network/propose","params":{"rule":"a.example:443","reason":"x"}}`}, func(c *client) { c.next() }},
		{"connections are waited for", " ", []string{`{"jsonrpc":"2.0","id":1,"method":"network/log","params":{"wait":true}}`}, func(c *client) { c.host.session(c.t, 0) }},
		{"half a line", " ", []string{`{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"sleep"}}`, "{\"jsonrpc\":"}, func(c *client) { c.next() }},
	} {
		for _, how := range []string{"input", "context"} {
			host := &fakeHost{}
			o := mcpOptions(host)
			o.ClientTerminal = true
			o.Host = changedHost(host, func(s *Session) { s.Network = &fakeNetwork{more: make(chan struct{})} })
			fromClient, in := io.Pipe()
			out, toClient := io.Pipe()
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			c := &client{t: t, host: host, in: in, lines: make(chan string, 1000), ended: make(chan error, 1), other: true}
			go func() { c.ended <- RPC(ctx, o, fromClient, toClient) }()
			go func() {
				for dec := json.NewDecoder(out); ; {
					var line json.RawMessage
					if dec.Decode(&line) != nil {
						return
					}
					c.lines <- string(line)
				}
			}()
			if row.hello != "" {
				c.hello(row.hello)
			}
			c.send(row.lines...)
			if row.ready != nil {
				row.ready(c)
			}
			if how == "context" {
				cancel()
			} else {
				_ = in.Close() // never fails
			}
			select {
			case err := <-c.ended:
				if err != nil {
					t.Errorf("%s, by its %s: the server ended with %v", row.name, how, err)
				}
			case <-time.After(patience):
				t.Fatalf("%s, by its %s: the server does not end", row.name, how)
			}
			for _, s := range host.all() {
				if state := s.state(); !state.stopped || state.running != 0 {
					t.Errorf("%s, by its %s: the session is left %+v", row.name, how, state)
				}
			}
			_, _ = in.Close(), toClient.Close() // never fail
			cancel()
		}
	}
}

// Input that cannot be read is an error of the server, once what was asked has been answered.
func TestRPCInputBreaks(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	var out bytes.Buffer
	in := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"nosuch"}`+"\n"+`{"half`), iotest.ErrReader(broken))
	if err := RPC(t.Context(), mcpOptions(&fakeHost{}), in, &out); !errors.Is(err, broken) {
		t.Errorf("RPC() = %v; want %v", err, broken)
	}
	if got := out.String(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,`) || strings.Count(got, "\n") != 1 {
		t.Errorf("answered: %s", got)
	}
}
