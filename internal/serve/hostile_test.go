package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/tool"
)

// TestRPCHostileLines sends lines that are not requests. Each has its answer, and the
// connection goes on.
func TestRPCHostileLines(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	ping := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"session/list"}` }
	for _, test := range []struct{ name, line, want string }{
		{"no JSON", `nonsense`, "null: -32700 parse-error"},
		{"half an object", `{"jsonrpc":"2.0","id":1,"method":"x"`, "null: -32700 parse-error"},
		{"two objects", ping("1") + ping("2"), "null: -32700 parse-error"},
		{"a NUL", "{\"jsonrpc\":\"2.0\",\"id\":1\x00}", "null: -32700 parse-error"},
		{"no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"x\"}", "null: -32700 parse-error"},
		{"half of a character", `{"jsonrpc":"2.0","id":"\ud800","method":"x"}`, "null: -32700 parse-error"},
		{"the other half", `{"jsonrpc":"2.0","id":"\udc00\ud800","method":"x"}`, "null: -32700 parse-error"},
		{"a name twice", `{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`, "null: -32700 parse-error"},
		{"a name twice, escaped", `{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}`, "null: -32700 parse-error"},
		{"a name twice, within", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[{"y":1,"y":2}]}}`, "null: -32700 parse-error"},
		{"deep", `{"jsonrpc":"2.0","id":1,"method":"x","params":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, "null: -32700 parse-error"},
		{"deep and open", strings.Repeat(`{"a":`, 100_000), "null: -32700 parse-error"},
		{"a number", `1e999`, "null: -32602"},
		{"null", `null`, "null: -32600"},
		{"a text", `"x"`, "null: -32602"},
		{"a batch", `[` + ping("1") + `]`, "null: -32600 invalid-request"},
		{"an empty batch", `[]`, "null: -32600 invalid-request"},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"session/list"}`, "1: -32600 invalid-request"},
		{"no version", `{"id":1,"method":"session/list"}`, "1: -32600 invalid-request"},
		{"no method", `{"jsonrpc":"2.0","id":1}`, "1: -32600 invalid-request"},
		{"a method that is a number", `{"jsonrpc":"2.0","id":1,"method":1}`, "null: -32600"},
		{"other letters", `{"JSONRPC":"2.0","ID":1,"Method":"session/list"}`, "null: -32600"},
		{"a field more", `{"jsonrpc":"2.0","id":1,"method":"session/list","x":1}`, "null: -32600"},
		{"an id of null", ping("null"), "null: -32600"},
		{"an id that is an object", ping("{}"), "null: -32600"},
		{"an id that is true", ping("true"), "null: -32600"},
		{"a fraction", ping("1.5"), "null: -32600"},
		{"an exponent", ping("1e3"), "null: -32600"},
		{"a huge number", ping("1e999"), "null: -32600"},
		{"too many digits", ping("12345678901234567890"), "null: -32600"},
		{"a long id", ping(`"` + strings.Repeat("x", 1000) + `"`), "null: -32600"},
		{"parameters in order", `{"jsonrpc":"2.0","id":1,"method":"session/read","params":["a"]}`, "1: -32602 invalid-params"},
		{"parameters of no kind", `{"jsonrpc":"2.0","id":1,"method":"session/read","params":7}`, "1: -32602 invalid-params"},
		{"another type", `{"jsonrpc":"2.0","id":1,"method":"session/read","params":{"path":7}}`, "1: -32602 invalid-params"},
		{"a huge offset", `{"jsonrpc":"2.0","id":1,"method":"session/read","params":{"path":"a","offset":1e999}}`, "1: -32602 invalid-params"},
		{"an unknown field", `{"jsonrpc":"2.0","id":1,"method":"session/read","params":{"path":"a","Offset":1}}`, "1: -32602 invalid-params"},
		{"an unknown field within", `{"jsonrpc":"2.0","id":1,"method":"session/start","params":{"Image":"x"}}`, "1: -32602 invalid-params"},
		{"an empty line and a good one", "\n\r\n  \n" + ping("1"), `1: {"sessions":[]}`},
	} {
		c.send(test.line)
		a := c.answer()
		got := a.text()
		want := strings.ReplaceAll(test.want, "null: -32602", "null: -32600")
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", test.name, got, want)
		}
	}
}

func TestRPCBeforeInitialize(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	if got := c.ask("tools/list", `{}`).text(); got != "1: -32003 not-initialized" {
		t.Error(got)
	}
	for _, params := range []string{`{}`, `{"protocol":"2"}`, `{"protocol":"1","contract":"z"}`, `{"protocol":"1","settings":{}}`} {
		if got := c.ask("initialize", params).text(); got != "1: -32602 invalid-params" {
			t.Errorf("initialize %s: %s", params, got)
		}
	}
	c.hello(`,"contract":"C"`)
}

func TestRPCLongLine(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	ok := `{"jsonrpc":"2.0","id":1,"method":"session/write","params":{"path":"a","content":"`
	for _, test := range []struct {
		length int
		want   string
	}{
		{MaxLine + 1, "null: -32001 too-large"},
		{3 * MaxLine, "null: -32001 too-large"},
		{MaxLine, "1: -32602 invalid-params"}, // a line, but too large a file
		{maxFile, "1: {}"},
	} {
		c.send(ok + strings.Repeat("x", test.length-len(ok)-3) + `"}}`)
		if a := c.answer(); a.text() != test.want {
			t.Errorf("%d bytes: %s; want %s", test.length, a.text(), test.want)
		}
	}
}

// TestRPCMemory sends a line that never ends.
func TestRPCMemory(t *testing.T) { //nolint:paralleltest // it looks at the memory of the process
	line := &endless{left: 1 << 30}
	var out bytes.Buffer
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := RPC(t.Context(), Options{Host: &fakeHost{}}, line, &out); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := after.Sys - before.Sys; after.Sys > before.Sys && grown > 96<<20 {
		t.Errorf("a line of 1 GiB took %d MiB", grown>>20)
	}
	if !strings.Contains(out.String(), `"code":-32001`) {
		t.Errorf("the answer is %s", out.String())
	}
}

// endless is a line of brackets.
type endless struct{ left int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.left)
	for i := range p[:n] {
		p[i] = '['
	}
	e.left -= n
	return int(n), nil
}

func TestRPCSameID(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	c.send(`{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"sleep"}}`)
	if got := c.ask("tools/list", `{}`).text(); got != "null: -32600 invalid-request" {
		t.Errorf("the id of a request that is being answered: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	c.answer()
	if a := c.ask("tools/list", `{}`); a.Error != nil {
		t.Errorf("the same id later: %s", a.text())
	}
}

func TestRPCTooMany(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	for i := range maxInFlight + 10_000 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"bash","params":{"command":"sleep"}}`, i))
		if i < maxInFlight {
			continue
		}
		if a := c.answer(); a.text() != fmt.Sprintf("%d: -32002 overloaded", i) {
			t.Fatal(a.text())
		}
	}
	c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":0}}`)
	c.answer()
	c.send(`{"jsonrpc":"2.0","id":"room","method":"abort_bash","params":{"session":"none"}}`)
	if got := c.answer().text(); got != `"room": {"aborted":0}` {
		t.Errorf("a request where one has ended: %s", got)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if s := c.host.session(t, 0).state(); s.running != 0 || !s.stopped {
		t.Errorf("at the end: %+v", s)
	}
}

func TestRPCTooManySessions(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	for range maxSessions {
		if a := c.ask("session/start", `{}`); a.Error != nil {
			t.Fatal(a.text())
		}
	}
	if got := c.ask("session/start", `{}`).text(); got != "1: -32002 overloaded" {
		t.Error(got)
	}
	if got := c.ask("session/stop", `{"session":"session-3"}`).text(); got != "1: {}" {
		t.Error(got)
	}
	if a := c.ask("session/start", `{}`); a.Error != nil {
		t.Error(a.text())
	}
}

// TestRPCEnd closes the input while commands run: they end, sessions that were
// started are stopped, those that were only opened are let go of.
func TestRPCEnd(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	c.ask("session/start", `{"image":"host"}`)
	c.ask("session/attach", `{"session":"0199"}`)
	c.ask("pty/start", `{"command":"vi"}`)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"sleep"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"session":"0199","name":"bash","arguments":{"command":"sleep"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"job/wait","params":{"id":"bg_1"}}`)
	c.host.session(t, 0).runs(t, 1)
	c.host.session(t, 1).runs(t, 1)
	if err := c.end(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if s := c.host.session(t, 0).state(); s.running != 0 || !s.stopped {
		t.Errorf("the session that was started: %+v", s)
	}
	if s := c.host.session(t, 1).state(); s.running != 0 || s.stopped || !s.released {
		t.Errorf("the session that was opened: %+v", s)
	}
}

// TestRPCEndWhileStarting closes the input before the first session is there.
func TestRPCEndWhileStarting(t *testing.T) {
	t.Parallel()
	host := &fakeHost{gate: make(chan struct{})}
	c := connect(t, func(o *Options) { o.Host = host })
	c.hello("")
	c.send(`{"jsonrpc":"2.0","id":1,"method":"bash","params":{"command":"sleep"}}`)
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if len(host.started) != 0 {
		t.Errorf("%d sessions were started", len(host.started))
	}
}

// TestRPCStartsOnce asks for the first session many times at once, and again
// after a start that failed.
func TestRPCStartsOnce(t *testing.T) {
	t.Parallel()
	host := &fakeHost{fail: errors.New("no engine")}
	c := connect(t, func(o *Options) { o.Host = host })
	c.hello("")
	if got := c.ask("bash", `{"command":"echo"}`).text(); got != "1: -32030 not-started" {
		t.Error(got)
	}
	host.fail = nil
	for i := range 50 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"bash","params":{"command":"echo"}}`, i))
	}
	for range 50 {
		if a := c.answer(); a.Error != nil {
			t.Error(a.text())
		}
	}
	if len(host.started) != 1 {
		t.Errorf("%d sessions were started", len(host.started))
	}
}

// TestRPCLostSession loses the first session: a request that names none gets another.
func TestRPCLostSession(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	c.ask("bash", `{"command":"echo"}`)
	c.host.session(t, 0).die()
	eventually(t, "another session is started", func() bool {
		c.ask("bash", `{"command":"echo"}`)
		return len(c.host.all()) == 2
	})
}

// stuck is a client that reads nothing.
type stuck struct{ gone chan struct{} }

func (s stuck) Write([]byte) (int, error) {
	<-s.gone
	return 0, io.ErrClosedPipe
}

// TestRPCStuckClient ends a server whose client reads nothing: its commands end,
// and so does it.
func TestRPCStuckClient(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	in, w := io.Pipe()
	out := stuck{make(chan struct{})}
	defer close(out.gone)
	ended := make(chan error, 1)
	go func() {
		ended <- RPC(context.WithoutCancel(t.Context()), Options{Contract: tool.Agent, Settings: tool.DefaultSettings(), Host: host}, in, out)
	}()
	fmt.Fprintln(w, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":"1"}}`)
	fmt.Fprintln(w, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"spam"}}}`)
	host.session(t, 0).runs(t, 1)
	_ = w.Close() // never fails
	select {
	case err := <-ended:
		if !errors.Is(err, errBroken) {
			t.Errorf("the server ended with %v; want %v", err, errBroken)
		}
	case <-time.After(patience):
		t.Fatal("the server does not end")
	}
	if s := host.session(t, 0).state(); s.running != 0 || !s.stopped {
		t.Errorf("the session: %+v", s)
	}
}

// TestStuckClientWithAnswers has more answers than are queued for a client that
// reads nothing, over both protocols.
func TestStuckClientWithAnswers(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	for name, serve := range map[string]func(io.Reader, io.Writer) error{
		"rpc": func(in io.Reader, out io.Writer) error { return RPC(t.Context(), mcpOptions(host), in, out) },
		"mcp": func(in io.Reader, out io.Writer) error {
			m, err := NewMCP(mcpOptions(host))
			if err != nil {
				return err
			}
			defer m.Close()
			return m.Serve(t.Context(), in, out)
		},
	} {
		in, w := io.Pipe()
		out := stuck{make(chan struct{})}
		defer close(out.gone) //nolint:revive // there are two
		ended := make(chan error, 1)
		go func() { ended <- serve(in, out) }()
		for i := range 3 * maxQueued {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i)
		}
		_ = w.Close() // never fails
		select {
		case err := <-ended:
			if !errors.Is(err, errBroken) {
				t.Errorf("%s: the server ended with %v; want %v", name, err, errBroken)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the server does not end", name)
		}
	}
}

// TestRPCFlood has a client that sends lines of no use and reads nothing, and does
// not end.
func TestRPCFlood(t *testing.T) {
	t.Parallel()
	in, w := io.Pipe()
	defer w.Close() //nolint:errcheck // never fails
	out := stuck{make(chan struct{})}
	defer close(out.gone)
	ended := make(chan error, 1)
	go func() { ended <- RPC(context.WithoutCancel(t.Context()), mcpOptions(&fakeHost{}), in, out) }()
	go func() {
		for {
			if _, err := io.WriteString(w, "nonsense\n"); err != nil {
				return
			}
		}
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, errBroken) {
			t.Errorf("the server ended with %v; want %v", err, errBroken)
		}
	case <-time.After(patience):
		t.Fatal("the server does not end")
	}
	_ = in.Close() // never fails
}

// TestRPCBurst has a client that sends many lines of no use at once, and only then
// begins to read: each is answered.
func TestRPCBurst(t *testing.T) {
	t.Parallel()
	const lines = 20 * (maxRefusals + maxQueued)
	for name, serve := range map[string]func(context.Context, io.Reader, io.Writer) error{
		"rpc": func(ctx context.Context, in io.Reader, out io.Writer) error {
			return RPC(ctx, mcpOptions(&fakeHost{}), in, out)
		},
		"mcp": func(ctx context.Context, in io.Reader, out io.Writer) error {
			m, err := NewMCP(mcpOptions(&fakeHost{}))
			if err != nil {
				return err
			}
			defer m.Close()
			return m.Serve(ctx, in, out)
		},
	} {
		in, w := io.Pipe()
		out, toClient := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- serve(t.Context(), in, toClient)
			_ = toClient.Close()
		}()
		unread := make(chan struct{}) // closed when more was sent than the server keeps answers of
		go func() {
			for i := range lines {
				if _, err := io.WriteString(w, "nonsense\n"); err != nil {
					return
				}
				if i == maxRefusals+maxQueued/2 {
					close(unread)
				}
			}
		}()
		<-unread // the client is busy with something else
		answers := bufio.NewScanner(out)
		for i := range lines {
			if !answers.Scan() {
				t.Fatalf("%s: %d answers; want %d: %v", name, i, lines, answers.Err())
			}
			if !strings.Contains(answers.Text(), "-32700") {
				t.Fatalf("%s: answer %d: %s", name, i, answers.Text())
			}
		}
		_ = w.Close() // never fails
		if err := <-ended; err != nil {
			t.Errorf("%s: the server ended with %v", name, err)
		}
	}
}

// TestRPCGoneClient breaks the output: there is no client to work for.
func TestRPCGoneClient(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	in, w := io.Pipe()
	defer w.Close() //nolint:errcheck // never fails
	out, toClient := io.Pipe()
	_ = out.Close() // never fails
	ended := make(chan error, 1)
	go func() {
		ended <- RPC(context.WithoutCancel(t.Context()), Options{Contract: tool.Agent, Settings: tool.DefaultSettings(), Host: host}, in, toClient)
	}()
	fmt.Fprintln(w, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":"1"}}`)
	select {
	case err := <-ended:
		if !errors.Is(err, errBroken) {
			t.Errorf("the server ended with %v; want %v", err, errBroken)
		}
	case <-time.After(patience):
		t.Fatal("the server does not end")
	}
}

func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo"}}}`,
		`{"a":[{"b":"\ud83d\ude00"},1e999,null,true]}`, `[{},[]]`, `{"a":1,"\u0061":2}`, "\xff", `{"a":"\ud800"}`, `"\\u`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if checkJSON(line) != nil {
			return
		}
		m, err := decode[message](line)
		if err == nil {
			_, _ = checkID(m.ID)
			_, _ = decode[initialize](m.Params)
			_, _ = decode[waitPTY](m.Params)
		}
	})
}
