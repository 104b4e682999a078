package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/tool"
)

func TestRPCMethods(t *testing.T) {
	t.Parallel()
	c := connect(t, func(o *Options) {
		o.Check = func(row json.RawMessage) (any, error) { return map[string]any{"verdict": "allow"}, nil }
	})
	c.hello("")
	for _, test := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"bash","arguments":{"command":"echo hi"}}`, `{"text":"hi","isError":false,"details":{"timeoutSeconds":300,"reason":"exited"}}`},
		{"tools/call", `{"name":"no"}`, `-32602 invalid-params`},
		{"tools/call", `{}`, `-32602 invalid-params`},
		{"bash", `{"command":"echo user"}`, `{"text":"user","isError":false,"details":{"timeoutSeconds":300,"reason":"exited"}}`},
		{"abort_bash", `{}`, `{"aborted":0}`},
		{"session/info", `{"session":"session-1"}`, `"held":"own","default":true`},
		{"session/info", `{"session":"session-9"}`, `-32010 unknown-session`},
		{"session/write", `{"path":"a","content":"hello"}`, `{}`},
		{"session/read", `{"path":"a","offset":1,"limit":2}`, `{"content":"el","encoding":"utf-8"}`},
		{"session/read", `{"path":"a"}`, `{"content":"hello","encoding":"utf-8","end":true}`},
		{"session/write", `{"path":"b","content":"/w==","encoding":"base64"}`, `{}`},
		{"session/read", `{"path":"b"}`, `{"content":"/w==","encoding":"base64","end":true}`},
		{"session/write", `{"path":"b","content":"_","encoding":"base64"}`, `-32602 invalid-params`},
		{"session/read", `{"path":"none"}`, `-32015 file`},
		{"session/read", `{"path":"a","offset":-1}`, `-32602 invalid-params`},
		{"session/read", `{"path":"a","limit":999999999}`, `-32602 invalid-params`},
		{"session/read", `{}`, `-32602 invalid-params`},
		{"session/files", `{}`, `{"entries":[{"name":"a","type":"file","size":1,"mode":"0644"}]}`},
		{"session/push", `{"from":"/x","to":"."}`, `{"leftOut":[".env"]}`},
		{"session/pull", `{"from":"x","to":"/y"}`, `-32015 file`},
		{"job/list", `{}`, `"id":"bg_1","state":"running"`},
		{"job/wait", `{"id":"bg_1","timeoutMs":1}`, `"state":"running"`},
		{"job/kill", `{"id":"bg_1"}`, `"state":"cancelled"`},
		{"job/kill", `{"id":"bg_2"}`, `-32011 unknown-job`},
		{"job/kill", `{}`, `-32602 invalid-params`},
		{"job/output", `{"id":"bg_1","tail":7}`, `{"text":"the last 7 bytes"}`},
		{"job/output", `{"id":"bg_1","tail":-7}`, `-32602 invalid-params`},
		{"job/background", `{"request":99}`, `-32014 unknown-request`},
		{"artifact/list", `{}`, `{"artifacts":[{"id":"0","bytes":10,"complete":true}]}`},
		{"artifact/read", `{"id":"0","offset":8}`, `{"content":"89","encoding":"utf-8","end":true,"size":10}`},
		{"artifact/read", `{"id":"1"}`, `-32013 unknown-artifact`},
		{"policy/check", `{"command":"ls"}`, `{"verdict":"allow"}`},
		{"tools/plan", `{"arguments":{"command":"cd src && make"}}`, `"command":"make","cwd":"src"`},
		{"tools/plan", `{"arguments":{"command":"x"},"contract":"modes"}`, `"timeoutSeconds":30`},
		{"tools/plan", `{"arguments":{"command":"x"},"nothing":1}`, `-32602 invalid-params`},
		{"initialize", `{"protocol":"1"}`, `-32004 already-initialized`},
		{"pty/start", `{"command":""}`, `-32602 invalid-params`},
		{"pty/screen", `{"terminal":"pty_1"}`, `-32012 unknown-terminal`},
		{"no/such", `{}`, `-32601 method-not-found`},
		{"session/stop", `{"session":"nope"}`, `-32010 unknown-session`},
		{"session/stop", `{}`, `{}`},
		{"session/list", `{}`, `{"sessions":[]}`},
	} {
		if got := c.ask(test.method, test.params).text(); !strings.Contains(got, test.want) {
			t.Errorf("%s %s\n got %s\nwant %s", test.method, test.params, got, test.want)
		}
	}
	if err := c.end(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if s := c.host.session(t, 0).state(); !s.stopped || s.released || s.running != 0 {
		t.Errorf("the first session ended as %+v; want it stopped", s)
	}
}

// TestRPCOrder holds tools to the order in which calls came, one at a time, and
// everything else to none.
func TestRPCOrder(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	const calls = 100
	for i := range calls {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo %d"}}}`, i, i))
	}
	for range calls {
		if a := c.answer(); a.Error != nil {
			t.Fatal(a.text())
		}
	}
	s := c.host.session(t, 0).state()
	if s.most != 1 || len(s.order) != calls {
		t.Fatalf("%d calls ran, %d at once; want %d, one at a time", len(s.order), s.most, calls)
	}
	for i, command := range s.order {
		if want := fmt.Sprintf("echo %d", i); command != want {
			t.Fatalf("call %d ran %q; want %q", i, command, want)
		}
	}
}

func TestRPCCancel(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	call := func(id, command string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"bash","arguments":{"command":"` + command + `"}}}`
	}
	c.send(call(`"a"`, "sleep"), call(`"b"`, "echo never"), call(`"c"`, "echo last"))
	c.host.session(t, 0).runs(t, 1)
	// The second has not begun: nothing comes of it.
	c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"b"}}`)
	if a := c.answer(); a.text() != `"b": -32800 cancelled` {
		t.Errorf("the call that had not begun: %s", a.text())
	}
	c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"a"}}`)
	a := c.answer()
	if !strings.Contains(a.text(), `"a": {"text":"[Command cancelled]\n","isError":true,"thrown":"abort"`) {
		t.Errorf("the call that ran: %s", a.text())
	}
	if a := c.answer(); !strings.Contains(a.text(), `"c": {"text":"last"`) {
		t.Errorf("the call behind them: %s", a.text())
	}
	// A notification that is unknown, or names no request, changes nothing.
	c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"a"}}`, `{"jsonrpc":"2.0","method":"$/cancelRequest"}`, `{"jsonrpc":"2.0","method":"hm"}`)
	if s := c.host.session(t, 0).state(); len(s.order) != 2 {
		t.Errorf("there ran %q", s.order)
	}
}

func TestRPCUserCommands(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"bash","params":{"command":"sleep user"}}`)
	c.host.session(t, 0).runs(t, 2)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"abort_bash"}`)
	seen := map[string]bool{}
	for range 2 {
		a := c.answer()
		seen[string(a.ID)] = true
	}
	if !seen["2"] || !seen["3"] {
		t.Errorf("answered: %v; want the user's command and abort_bash", seen)
	}
}

func TestRPCBackground(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep"}}}`)
	c.host.session(t, 0).runs(t, 1)
	c.send(`{"jsonrpc":"2.0","id":8,"method":"job/background","params":{"request":7}}`)
	var got []string
	for range 2 {
		a := c.answer()
		got = append(got, a.text())
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, "7: {\"text\":\"Background job bg_1 started") || !strings.Contains(all, "8: {}") {
		t.Errorf("got %s", all)
	}
	c.host.session(t, 0).jobs <- []tool.Delivery{{JobID: "bg_1", Label: "sleep", Text: "done", ArtifactID: "3"}}
	line := c.next()
	for _, want := range []string{`"method":"job/completed"`, `"jobs":[{"id":"bg_1","label":"sleep","text":"done","artifact":"3"}]`, `Background job bg_1 has completed.`} {
		if !strings.Contains(line, want) {
			t.Errorf("job/completed is %s; want %s in it", line, want)
		}
	}
}

func TestRPCUpdates(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bash","arguments":{"command":"spam"}}}`)
	line := c.next()
	if want := `{"jsonrpc":"2.0","method":"tools/update","params":{"request":7,"text":"line 0\n","details":{}}}`; line != want {
		t.Errorf("the first update is %s; want %s", line, want)
	}
	c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":7}}`)
	if a := c.answer(); string(a.ID) != "7" {
		t.Errorf("answer: %s", a.text())
	}
}

// TestRPCClientTerminal runs a command in the client's terminal, if both sides
// want that.
func TestRPCClientTerminal(t *testing.T) {
	t.Parallel()
	c := connect(t, func(o *Options) { o.ClientTerminal = true })
	c.hello(`,"client":{"terminal":true}`)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bash","arguments":{"command":"client make"}}}`)
	for _, step := range []struct{ method, params, result string }{
		{"terminal/create", `{"command":"make","outputByteLimit":51200}`, `{"terminalId":"T1"}`},
		{"terminal/wait_for_exit", `{"terminalId":"T1"}`, `{"exitCode":3,"signal":null}`},
		{"terminal/output", `{"terminalId":"T1"}`, `{"output":"made","truncated":false,"exitStatus":{"exitCode":3}}`},
		{"terminal/release", `{"terminalId":"T1"}`, `{}`},
	} {
		a := c.answer()
		if a.Method != step.method || string(a.Params) != step.params {
			t.Fatalf("asked for %s %s; want %s %s", a.Method, a.Params, step.method, step.params)
		}
		c.send(`{"jsonrpc":"2.0","id":` + string(a.ID) + `,"result":` + step.result + `}`)
	}
	if a := c.answer(); !strings.Contains(a.text(), `"text":"T1 made 3 <nil>"`) {
		t.Errorf("the result is %s", a.text())
	}
	// A client that refuses, one that answers nonsense, and answers to nothing.
	for _, test := range []struct{ answer, want string }{
		{`"error":{"code":1,"message":"no \u001b room"}`, `the client refuses terminal/create: \"no \\x1b room\"`},
		{`"result":{"terminalId":7}`, `terminalId: expected a string, got number`},
		{`"result":{}`, `has no usable terminalId`},
		{`"result":null`, `has no usable terminalId`},
	} {
		c.send(`{"jsonrpc":"2.0","id":"server-99","result":{}}`)
		c.send(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"bash","arguments":{"command":"client make"}}}`)
		a := c.answer()
		c.send(`{"jsonrpc":"2.0","id":` + string(a.ID) + `,` + test.answer + `}`)
		if a := c.answer(); !strings.Contains(a.text(), test.want) {
			t.Errorf("to %s: %s; want %s", test.answer, a.text(), test.want)
		}
	}
}

func TestRPCClientTerminalNeedsBoth(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host  bool
		hello string
		want  bool
	}{
		{false, `,"client":{"terminal":true}`, false},
		{true, `,"client":{"terminal":false}`, false},
		{true, ``, false},
		{true, `,"client":{"terminal":true}`, true},
	} {
		c := connect(t, func(o *Options) { o.ClientTerminal = test.host })
		c.hello(test.hello)
		c.ask("bash", `{"command":"echo"}`)
		if got := c.host.session(t, 0).r.Terminal != nil; got != test.want {
			t.Errorf("host %v, client %s: terminal %v; want %v", test.host, test.hello, got, test.want)
		}
	}
}

func TestRPCTerminals(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	if got := c.ask("pty/start", `{"command":"vi","cols":10,"rows":5}`).text(); got != `1: {"terminal":"pty_1","session":"session-1"}` {
		t.Fatal(got)
	}
	// What is typed arrives in order, however many requests are under way.
	var want strings.Builder
	for i := range 100 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"pty/write","params":{"terminal":"pty_1","text":"%d "}}`, i, i))
		fmt.Fprintf(&want, "%d ", i)
	}
	for range 100 {
		if a := c.answer(); a.Error != nil {
			t.Fatal(a.text())
		}
	}
	if got := c.ask("pty/read", `{"terminal":"pty_1"}`).text(); got != `1: {"text":"`+want.String()+`"}` {
		t.Errorf("typed: %s", got)
	}
	all := len(want.String())
	for _, test := range []struct{ method, params, want string }{
		{"pty/read", fmt.Sprintf(`{"terminal":"pty_1","from":%d}`, all-6), fmt.Sprintf(`{"text":"98 99 ","next":%d}`, all)},
		{"pty/read", fmt.Sprintf(`{"terminal":"pty_1","from":%d}`, all), fmt.Sprintf(`{"text":"","next":%d}`, all)},
		{"pty/read", fmt.Sprintf(`{"terminal":"pty_1","from":%d}`, all+9), fmt.Sprintf(`{"text":"","next":%d}`, all)},
		{"pty/read", `{"terminal":"pty_1","from":-1}`, `-32602`},
		{"pty/list", `{}`, `{"terminals":[{"terminal":"pty_1","session":"session-1","command":"vi","started":"`},
		{"pty/list", `{}`, `"cols":10,"rows":5,"state":"running"}]}`},
		{"pty/write", `{"terminal":"pty_1","keys":["enter","ctrl-c"]}`, `{}`},
		{"pty/write", `{"terminal":"pty_1","paste":"p"}`, `{}`},
		{"pty/write", `{"terminal":"pty_1","keys":["nokey"]}`, `-32602`},
		{"pty/write", `{"terminal":"pty_1"}`, `-32602`},
		{"pty/write", `{"terminal":"pty_1","text":"a","paste":"b"}`, `-32602`},
		{"pty/write", `{"terminal":"pty_2","text":"a"}`, `-32012`},
		{"pty/resize", `{"terminal":"pty_1","cols":20,"rows":6}`, `{}`},
		{"pty/resize", `{"terminal":"pty_1"}`, `-32602`},
		{"pty/screen", `{"terminal":"pty_1"}`, `"cols":20,"rows":6,"lines":["0 1 `},
		{"pty/wait", `{"terminal":"pty_1","text":"<enter,ctrl-c>[p]"}`, `"event":"output"`},
		{"pty/wait", `{"terminal":"pty_1","pattern":"\\[p\\]$"}`, `"event":"output"`},
		{"pty/wait", `{"terminal":"pty_1","pattern":"("}`, `-32602`},
		{"pty/wait", `{"terminal":"pty_1","end":true,"timeoutMs":5}`, `"event":"timeout"`},
		{"pty/wait", fmt.Sprintf(`{"terminal":"pty_1","from":%d}`, all), `"event":"output"`},
		{"pty/wait", fmt.Sprintf(`{"terminal":"pty_1","from":%d,"timeoutMs":5}`, all+999), `"event":"timeout"`},
		{"pty/wait", `{"terminal":"pty_1","from":0,"end":true}`, `-32602`},
		{"pty/wait", `{"terminal":"pty_1","from":-1}`, `-32602`},
		{"pty/end", `{"terminal":"pty_1"}`, `{"reason":"cancelled","exitCode":null,"text":""}`},
		{"pty/end", `{"terminal":"pty_1"}`, `-32012`},
	} {
		if got := c.ask(test.method, test.params).text(); !strings.Contains(got, test.want) {
			t.Errorf("%s %s\n got %s\nwant %s", test.method, test.params, got, test.want)
		}
	}
	for range maxTerminals {
		c.ask("pty/start", `{"command":"vi"}`)
	}
	if got := c.ask("pty/start", `{"command":"vi"}`).text(); got != "1: -32002 overloaded" {
		t.Errorf("one terminal too many: %s", got)
	}
	if err := c.end(); err != nil { // and with it all terminals
		t.Error(err)
	}
}
