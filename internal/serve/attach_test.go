package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/screen"
)

// attachedClient is a client of a Holder that has asked for pty/attach.
func (h *holderTest) attachedClient(size string) *heldClient {
	h.t.Helper()
	c := h.client(h.t.Context())
	c.send("pty/attach", `{"terminal":"pty_a",`+size+`}`)
	return c
}

// next is the next message: what is shown, or the answer to pty/attach.
func (c *heldClient) next() (shown string, over *Attached) {
	c.t.Helper()
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	var m struct {
		Method string
		Params AttachedOutput
		Result *Attached
		Error  *Error
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Error != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
	if m.Method == "pty/output" {
		return string(m.Params.Data), nil
	}
	return "", m.Result
}

// A user sees what the terminal shows, then all that it writes, and types bytes.
func TestHolderAttach(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	other := h.client(t.Context())
	other.ask("pty/write", `{"terminal":"pty_a","text":"before"}`)
	user := h.attachedClient(`"cols":100,"rows":30`)
	if shown, _ := user.next(); shown != "redrawn before" {
		t.Errorf("shown first: %q", shown)
	}
	if got := h.terminal.Screen().Size; got != (screen.Size{Cols: 100, Rows: 30}) {
		t.Errorf("the size is %+v; want the user's", got)
	}
	other.send("pty/input", `{"terminal":"pty_a","data":"AP8b"}`)
	if shown, _ := user.next(); shown != "\x00\xff\x1b" {
		t.Errorf("shown: %q; want the bytes as they are", shown)
	}
	if h.Idle() != 0 {
		t.Error("a terminal with a user is idle")
	}
	if _, err := user.conn.Write([]byte(`{"jsonrpc":"2.0","id":2,"method":"pty/detach","params":{"terminal":"pty_a"}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the answers to both, in any order
		if _, over := user.next(); over.Event != "" && (over.Event != AttachDetached || string(over.Restore) != "restored") {
			t.Errorf("the end: %+v", over)
		}
	}
	select {
	case <-h.terminal.done:
		t.Error("the terminal has ended with its user")
	default:
	}
}

// The next user takes over, and learns of the program's end.
func TestHolderAttachTwice(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	one := h.attachedClient(`"cols":80,"rows":24`)
	eventually(t, "the first is attached", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.attached != nil
	})
	two := h.attachedClient(`"cols":80,"rows":24`)
	if _, over := one.next(); over == nil || over.Event != AttachReplaced {
		t.Errorf("the first: %+v; want it replaced", over)
	}
	one.ask("pty/detach", `{"terminal":"pty_a"}`) // which is not its own any more
	h.terminal.Kill()
	if _, over := two.next(); over == nil || over.Event != AttachEnded || over.Reason != "cancelled" || over.ExitCode != nil {
		t.Errorf("the second: %+v; want the end", over)
	}
	if _, over := h.attachedClient(`"cols":80,"rows":24`).next(); over == nil || over.Event != AttachEnded {
		t.Errorf("after the end: %+v; want the end at once", over)
	}
}

// A user who has gone leaves the terminal to itself.
func TestHolderUserGoes(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	user := h.attachedClient(`"cols":80,"rows":24`)
	eventually(t, "the user is attached", func() bool { return h.Idle() == 0 })
	_ = user.conn.Close()
	eventually(t, "the user is not attached", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.attached == nil
	})
	if got := h.client(t.Context()).ask("pty/list", `{}`); !strings.Contains(got, `"state":"running"`) {
		t.Errorf("pty/list: %s", got)
	}
}

// What is wrong is refused, and no peer but a Holder's has these methods.
func TestHolderAttachWrong(t *testing.T) {
	t.Parallel()
	h := newHolderTest(t)
	c := h.client(t.Context())
	for method, params := range map[string]string{
		"pty/attach": `{"terminal":"pty_a","cols":0,"rows":24}`, "pty/input": `{"terminal":"pty_a","data":"not base64"}`,
	} {
		if got := c.ask(method, params); !strings.Contains(got, `"invalid-params"`) {
			t.Errorf("%s %s: %s", method, params, got)
		}
	}
	for method, rest := range map[string]string{"pty/attach": `,"cols":1,"rows":1`, "pty/input": `,"data":""`, "pty/detach": ``} {
		if got := c.ask(method, `{"terminal":"pty_b"`+rest+`}`); !strings.Contains(got, `"unknown-terminal"`) {
			t.Errorf("%s of another terminal: %s", method, got)
		}
		if _, ok := methods[method]; ok {
			t.Errorf("serve rpc has %s, whose output is not masked", method)
		}
	}
}
