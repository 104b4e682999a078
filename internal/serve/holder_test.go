package serve

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/screen"
)

// holderTest is a Holder of a fake terminal, and the clients that there are.
type holderTest struct {
	*Holder
	t        *testing.T
	terminal *fakeTerminal
	clients  sync.WaitGroup
}

func newHolderTest(t *testing.T) *holderTest {
	t.Helper()
	f := &fakeTerminal{done: make(chan struct{}), stop: func() bool { return true }, size: screen.DefaultSize}
	h := &holderTest{t: t, terminal: f, Holder: NewHolder(HeldTerminal{Terminal: f, ID: "pty_a", Session: "s", Command: "vi", Version: "1"})}
	t.Cleanup(func() {
		f.Kill()
		h.clients.Wait()
	})
	return h
}

// heldClient is one client of it, which has said hello.
type heldClient struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
}

func (h *holderTest) client(ctx context.Context) *heldClient {
	h.t.Helper()
	ours, theirs := net.Pipe()
	h.clients.Go(func() {
		defer theirs.Close()
		_ = h.Serve(ctx, theirs, theirs) // clients of these tests go as they like
	})
	h.t.Cleanup(func() { _ = ours.Close() })
	c := &heldClient{t: h.t, conn: ours, lines: bufio.NewReader(ours)}
	if got := c.ask("initialize", `{"protocol":"1"}`); !strings.Contains(got, `"pty/list"`) || strings.Contains(got, "pty/start") {
		h.t.Fatalf("initialize: %s", got)
	}
	return c
}

func (c *heldClient) send(method, params string) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", method, params); err != nil {
		c.t.Fatal(err)
	}
}

func (c *heldClient) ask(method, params string) string {
	c.t.Helper()
	c.send(method, params)
	line, err := c.lines.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	checkMessage(c.t, line)
	return line
}

// Clients come and go, and see the same terminal. A client's end is not its.
func TestHolderOutlivesClients(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	one, two := h.client(t.Context()), h.client(t.Context())
	one.ask("pty/write", `{"terminal":"pty_a","text":"one "}`)
	two.ask("pty/write", `{"terminal":"pty_a","text":"two"}`)
	_ = one.conn.Close()
	if got := h.client(t.Context()).ask("pty/read", `{"terminal":"pty_a","from":0}`); !strings.Contains(got, `{"text":"one two","next":7}`) {
		t.Errorf("a third client reads %s", got)
	}
	for _, method := range []string{"pty/start", "session/start", "bash", "tools/call"} {
		if got := two.ask(method, `{}`); !strings.Contains(got, `"method-not-found"`) {
			t.Errorf("%s: %s; want it not to be there", method, got)
		}
	}
	select {
	case <-h.terminal.done:
		t.Error("the terminal has ended with a client")
	case <-h.Forgotten():
		t.Error("it is forgotten")
	default:
	}
	if got := two.ask("pty/end", `{"terminal":"pty_a"}`); !strings.Contains(got, `"reason":"cancelled"`) {
		t.Errorf("pty/end: %s", got)
	}
	<-h.Forgotten()
	if got := two.ask("pty/screen", `{"terminal":"pty_a"}`); !strings.Contains(got, `"unknown-terminal"`) {
		t.Errorf("behind the end: %s", got)
	}
}

// A client that takes no answers holds up no other, and not the end.
func TestHolderStuckClient(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	stuck := h.client(ctx)
	for range 3 * maxQueued {
		stuck.send("pty/screen", `{"terminal":"pty_a"}`)
	}
	other := h.client(ctx)
	if got := other.ask("pty/wait", `{"terminal":"pty_a","timeoutMs":1}`); !strings.Contains(got, `"event":"timeout"`) {
		t.Errorf("the other client: %s", got)
	}
	end()
	h.clients.Wait() // the stuck client still takes no answers
}

// A client that waits counts as a request; one that has gone does not.
func TestHolderIdle(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	c := h.client(t.Context())
	c.send("pty/wait", `{"terminal":"pty_a","end":true}`)
	for h.Idle() > 0 { // until the request has arrived
		time.Sleep(time.Millisecond)
	}
	resting := make(chan struct{})
	go func() {
		defer close(resting)
		h.Rest(t.Context())
	}()
	select {
	case <-resting:
		t.Error("it rests while a client waits")
	case <-time.After(20 * time.Millisecond):
	}
	_ = c.conn.Close()
	<-resting
	for h.Idle() < 5*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
}

// A client that waits for the end learns how the program ended.
func TestHolderEnd(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	c := h.client(t.Context())
	c.send("pty/wait", `{"terminal":"pty_a","end":true}`)
	for h.Idle() > 0 {
		time.Sleep(time.Millisecond)
	}
	h.terminal.Kill()
	line, err := c.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	checkMessage(t, line)
	if !strings.Contains(line, `"event":"ended"`) || !strings.Contains(line, `"state":"ended","reason":"cancelled"`) {
		t.Errorf("pty/wait: %s", line)
	}
}
