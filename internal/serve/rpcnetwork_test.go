package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// fakeNetwork is a network whose connections end when the test says so.
type fakeNetwork struct {
	mu          sync.Mutex
	allow, deny []network.Rule
	log         []sandbox.Connection
	more        chan struct{}
	watches     int
}

func (f *fakeNetwork) NetworkRules() (allow, deny []network.Rule, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.allow, f.deny, nil
}

func (f *fakeNetwork) UpdateNetworkRules(change func(allow, deny []network.Rule) ([]network.Rule, []network.Rule, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	allow, deny, err := change(f.allow, f.deny)
	if err == nil {
		f.allow, f.deny = allow, deny
	}
	return err
}

func (f *fakeNetwork) ConnectionsAfter(from uint64) ([]sandbox.Connection, uint64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log[min(int(from), len(f.log)):], uint64(len(f.log)), f.more
}

func (f *fakeNetwork) add(c sandbox.Connection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, c)
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fakeNetwork) watch() func() *sandbox.NetworkUse {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches++
	return func() *sandbox.NetworkUse {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.watches--
		return &sandbox.NetworkUse{Count: len(f.log)}
	}
}

// holderClient speaks to a NetworkHolder.
type holderClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	sent int
	over chan error
}

func newHolderClient(t *testing.T, h *NetworkHolder) *holderClient {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &holderClient{t: t, conn: ours, in: bufio.NewReader(ours), over: make(chan error, 1)}
	go func() { c.over <- h.Serve(context.WithoutCancel(t.Context()), theirs, theirs); _ = theirs.Close() }()
	t.Cleanup(c.close)
	if got := c.ask("initialize", `{"protocol":"1"}`); !strings.Contains(got, `"protocol":"1"`) {
		t.Fatalf("initialize: %s", got)
	}
	return c
}

func (c *holderClient) close() {
	_ = c.conn.Close()
	if c.over != nil {
		<-c.over //nolint:errcheck // only that it has ended counts
		c.over = nil
	}
}

// ask returns the result or the error, as JSON.
func (c *holderClient) ask(method, params string) string {
	c.t.Helper()
	c.sent++
	if _, err := fmt.Fprintf(c.conn, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.sent, method, params); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.in.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	var answer struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(line, &answer); err != nil {
		c.t.Fatal(err)
	}
	return string(answer.Result) + string(answer.Error)
}

func TestNetworkHolderRules(t *testing.T) {
	t.Parallel()
	h := NewNetworkHolder(HeldNetwork{Network: &fakeNetwork{more: make(chan struct{})}, Session: "s", PID: 7})
	c := newHolderClient(t, h)
	for _, row := range []struct{ method, params, want string }{
		{"network/rules", `{}`, `{"allow":[],"deny":[]}`},
		{"network/allow", `{"rules":["a.example","@npm"]}`, `{"allow":["a.example","@npm"],"deny":[]}`},
		{"network/allow", `{"rules":["A.example."]}`, `{"allow":["a.example","@npm"],"deny":[]}`}, // each once
		{"network/deny", `{"rules":["*.example"]}`, `"deny":["*.example"]`},
		{"network/allow", `{"rules":["b.example"]}`, `the rule b.example allows nothing, because the rule *.example denies all of it`},
		{"network/deny", `{"remove":["*.example"]}`, `"deny":[]`},
		{"network/deny", `{"remove":["*.example"]}`, `*.example is not one of the deny rules`},
		{"network/allow", `{"rules":["b.example","exa mple"]}`, `rules: entry 2, column 1: `},
		{"network/allow", `{}`, `rules is required`},
		{"network/rules", `{}`, `{"allow":["a.example","@npm","b.example"],"deny":[]}`},
		{"network/status", `{}`, `"pid":7`},
		{"tools/call", `{}`, `there is no method`},
	} {
		if got := c.ask(row.method, row.params); !strings.Contains(got, row.want) {
			t.Errorf("%s %s = %s; want %s", row.method, row.params, got, row.want)
		}
	}
}

// A client that has gone leaves no watch behind.
func TestNetworkHolderWatch(t *testing.T) {
	t.Parallel()
	f := &fakeNetwork{more: make(chan struct{})}
	h := NewNetworkHolder(HeldNetwork{Network: f, Watch: f.watch})
	c := newHolderClient(t, h)
	if got := c.ask("network/watch", `{}`); got != "{}" {
		t.Fatalf("network/watch: %s", got)
	}
	if got := c.ask("network/watch", `{}`); !strings.Contains(got, "watches already") {
		t.Errorf("a second watch: %s", got)
	}
	f.add(sandbox.Connection{Host: "a.example", Elapsed: 1500 * time.Millisecond})
	if got := c.ask("network/use", `{}`); got != `{"use":{"count":1}}` {
		t.Errorf("network/use: %s", got)
	}
	if got := c.ask("network/use", `{}`); got != `{"use":null}` {
		t.Errorf("network/use without a watch: %s", got)
	}
	c.ask("network/watch", `{}`)
	c.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches != 0 {
		t.Errorf("%d watches are left", f.watches)
	}
}

func TestNetworkHolderLog(t *testing.T) {
	t.Parallel()
	f := &fakeNetwork{more: make(chan struct{})}
	h := NewNetworkHolder(HeldNetwork{Network: f})
	c := newHolderClient(t, h)
	if got := c.ask("network/log", `{}`); got != `{"connections":[],"next":0}` {
		t.Errorf("an empty log: %s", got)
	}
	go f.add(sandbox.Connection{Host: "a.example", Elapsed: 1500 * time.Millisecond})
	if got := c.ask("network/log", `{"wait":true}`); !strings.Contains(got, `"host":"a.example"`) || !strings.Contains(got, `"ms":1500`) || !strings.Contains(got, `"next":1`) {
		t.Errorf("the first connection: %s", got)
	}
	f.add(sandbox.Connection{Host: "b.example"})
	f.add(sandbox.Connection{Host: "c.example"})
	if got := c.ask("network/log", `{"limit":1}`); strings.Contains(got, "b.example") || !strings.Contains(got, "c.example") {
		t.Errorf("the last connection: %s", got)
	}
	if got := c.ask("network/log", `{"limit":-1}`); !strings.Contains(got, "limit: it can be 1 to 1000") {
		t.Errorf("a bad limit: %s", got)
	}
	select {
	case <-h.Ended():
		t.Error("it has ended before network/end")
	default:
	}
	c.ask("network/end", `{}`)
	<-h.Ended()
}

// failingNetwork is a network whose connections another process carries.
type failingNetwork struct {
	*fakeNetwork
	err error
}

func (f failingNetwork) NetworkRules() (allow, deny []network.Rule, err error) {
	return nil, nil, f.err
}

func (f failingNetwork) UpdateNetworkRules(func(allow, deny []network.Rule) ([]network.Rule, []network.Rule, error)) error {
	return f.err
}

// The network of a client's own sessions, each of which has its own rules and connections.
func TestRPCNetwork(t *testing.T) {
	t.Parallel()
	var nets []*fakeNetwork
	c := connect(t, func(o *Options) {
		o.Host = changedHost(&fakeHost{}, func(s *Session) {
			n := &fakeNetwork{more: make(chan struct{})}
			nets, s.Network = append(nets, n), n
		})
	})
	c.hello("")
	c.ask("session/start", `{}`)
	c.ask("session/start", `{}`)
	for i := range 5 {
		nets[1].add(sandbox.Connection{Kind: "connection", Host: fmt.Sprintf("%d.example", i)})
	}
	for _, row := range []struct{ method, params, want string }{
		{"network/allow", `{"rules":["a.example","b.example"]}`, `1: {"allow":["a.example","b.example"],"deny":[]}`},
		{"network/rules", `{"session":"session-2"}`, `1: {"allow":[],"deny":[]}`},
		{"network/deny", `{"session":"session-2","rules":["*"]}`, `1: {"allow":[],"deny":["*"]}`},
		{"network/allow", `{"rules":["c.example"],"remove":["a.example"]}`, `1: {"allow":["b.example","c.example"],"deny":[]}`},
		{"network/allow", `{"rules":["d.example"],"remove":["a.example"]}`, `1: -32602 invalid-params`},
		{"network/rules", `{}`, `1: {"allow":["b.example","c.example"],"deny":[]}`}, // all of a change or nothing
		{"network/rules", `{"session":"none"}`, `1: -32010 unknown-session`},
		{"network/rules", `{"session":7}`, `1: -32602 invalid-params`},
		{"network/allow", `{"rules":"a.example"}`, `1: -32602 invalid-params`},
		{"network/log", `{}`, `1: {"connections":[],"next":0}`},
		{"network/log", `{"session":"session-2","after":5}`, `1: {"connections":[],"next":5}`},
		{"network/log", `{"session":"session-2","after":-1}`, `1: -32602 invalid-params`},
		{"network/log", `{"session":"session-2","limit":1001}`, `1: -32602 invalid-params`},
	} {
		if got := c.ask(row.method, row.params).text(); got != row.want {
			t.Errorf("%s %s: %s; want %s", row.method, row.params, got, row.want)
		}
	}
	if got := c.ask("network/log", `{"session":"session-2","after":3}`).text(); strings.Contains(got, "2.example") || !strings.Contains(got, "3.example") || !strings.HasSuffix(got, `"next":5}`) {
		t.Errorf("the log from 3 on: %s", got)
	}
	// What is waited for ends with its request.
	c.send(`{"jsonrpc":"2.0","id":"w","method":"network/log","params":{"wait":true}}`, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"w"}}`)
	if got := c.answer().text(); got != `"w": -32800 cancelled` {
		t.Errorf("a wait that was cancelled: %s", got)
	}
}
