package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/tool"
)

// client speaks to a server over pipes.
type client struct {
	t     *testing.T
	host  *fakeHost
	in    io.WriteCloser
	lines chan string
	ended chan error
	other bool // it is not JSON-RPC of ours that is spoken
}

// connect starts a server for the length of the test.
func connect(t *testing.T, change func(*Options)) *client {
	t.Helper()
	host := &fakeHost{}
	o := Options{Version: "1.2.3", Contract: tool.Agent, Settings: tool.DefaultSettings(), Dir: "/workspace", Host: host}
	if change != nil {
		change(&o)
		if h, ok := o.Host.(*fakeHost); ok {
			host = h
		}
	}
	fromClient, in := io.Pipe()
	out, toClient := io.Pipe()
	c := &client{t: t, host: host, in: in, lines: make(chan string, 1000), ended: make(chan error, 1)}
	go func() {
		c.ended <- RPC(context.WithoutCancel(t.Context()), o, fromClient, toClient)
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
		_ = in.Close() // never fails
		for line := range c.lines {
			checkMessage(t, line)
		}
	})
	return c
}

// send writes lines as they are.
func (c *client) send(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(c.in, line+"\n"); err != nil {
			c.t.Fatalf("send: %v", err)
		}
	}
}

// patience is how long an answer may take: a machine that is busy, under the race
// detector, needs half a minute for the longest line.
const patience = 2 * time.Minute

// next is the next message.
func (c *client) next() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the server has ended")
		}
		if !c.other {
			checkMessage(c.t, line)
		}
		return line
	case <-time.After(patience):
		c.t.Fatal("no message came")
		return ""
	}
}

// answer is the next message with an id.
func (c *client) answer() rpcAnswer {
	c.t.Helper()
	for {
		line := c.next()
		var a rpcAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		if a.Method == "" || a.ID != nil {
			return a
		}
	}
}

type rpcAnswer struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *Error
}

// text is the answer in one line.
func (a rpcAnswer) text() string {
	if a.Error != nil {
		return fmt.Sprintf("%s: %d %s", a.ID, a.Error.Code, a.Error.Data.Kind)
	}
	return fmt.Sprintf("%s: %s", a.ID, a.Result)
}

// hello begins a connection.
func (c *client) hello(more string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocol":"1"` + more + `}}`)
	if a := c.answer(); a.Error != nil {
		c.t.Fatalf("initialize: %v", a.Error)
	}
}

// ask sends a request and returns its answer.
func (c *client) ask(method, params string) rpcAnswer {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`)
	a := c.answer()
	checkAnswer(c.t, method, params, a)
	return a
}

// end closes the input and waits for the server.
func (c *client) end() error {
	c.t.Helper()
	_ = c.in.Close() // never fails
	select {
	case err := <-c.ended:
		return err
	case <-time.After(patience):
		c.t.Fatal("the server does not end")
		return nil
	}
}
