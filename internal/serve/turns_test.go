package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/tool"
)

// has reports whether a position has the turn.
func (p *position) has() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	var all turns
	first, second, third, other := all.join("a"), all.join("a"), all.join("a"), all.join("b")
	if !first.has() || second.has() || third.has() || !other.has() {
		t.Fatal("the first of each queue has the turn, and no other")
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := second.wait(ctx); !errors.Is(err, gone) {
		t.Errorf("wait() = %v; want %v", err, gone)
	}
	second.leave() // before its turn
	if third.has() {
		t.Error("the third has the turn while the first has it")
	}
	first.leave()
	first.leave() // does nothing
	if err := third.wait(t.Context()); err != nil || !third.has() {
		t.Errorf("wait() of the only position = %v", err)
	}
	if next := all.join("a"); next.has() {
		t.Error("two positions of a queue have the turn")
	} else {
		third.leave()
		if !next.has() {
			t.Error("no position has the turn")
		}
		next.leave()
	}
	third.leave() // of a queue that is gone
	other.leave()
	if len(all.queues) != 0 {
		t.Errorf("%d queues are left", len(all.queues))
	}
	if again := all.join("a"); !again.has() {
		t.Error("a queue that was empty has no turn")
	}
}

// A client may name as many sessions and terminals as it likes, and none of them is there: nothing
// is kept of their names.
func TestRPCQueuesAreRemoved(t *testing.T) {
	t.Parallel()
	in, w := io.Pipe()
	out, toClient := io.Pipe()
	p := &peer{o: mcpOptions(&fakeHost{}), methods: methods, terminals: rpcTerminals()}
	ended := make(chan error, 1)
	go func() { ended <- speak(t.Context(), p, in, toClient) }()
	answers := bufio.NewScanner(out)
	const names = 100
	fmt.Fprintln(w, `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocol":"1"}}`)
	if !answers.Scan() {
		t.Fatal(answers.Err())
	}
	for i := range names {
		for _, row := range []struct {
			line string
			kind Kind
		}{
			{`"method":"tools/call","params":{"session":"none-%d","name":"bash"}}`, KindUnknownSession},
			{`"method":"pty/write","params":{"terminal":"pty_%d","text":"x"}}`, KindUnknownTerminal},
		} {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,`+row.line+"\n", i)
			if !answers.Scan() || !strings.Contains(answers.Text(), `"kind":"`+string(row.kind)+`"`) {
				t.Fatalf("%s: %s, %v; want %s", row.line, answers.Text(), answers.Err(), row.kind)
			}
		}
	}
	_ = w.Close() // never fails
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := len(p.queues.queues); n != 0 {
		t.Errorf("%d queues are left", n)
	}
}

// Calls of different sessions do not wait for each other, and those of one session go on behind a
// call that was cancelled before its turn.
func TestRPCOrderOfSessions(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello("")
	c.ask("session/start", `{}`)
	c.ask("session/start", `{}`)
	call := func(id int, session, command string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"session":%q,"name":"bash","arguments":{"command":%q}}}`, id, session, command)
	}
	c.send(call(1, "session-1", "sleep"))
	c.host.session(t, 0).runs(t, 1)
	c.send(call(2, "session-1", "echo one"), call(3, "session-2", "echo two"))
	if got := c.answer(); string(got.ID) != "3" || !strings.Contains(got.text(), `"text":"two"`) {
		t.Errorf("the first answer is %s; want that of the other session", got.text())
	}
	// A tool that is not the shell keeps no order.
	c.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"session":"session-1","name":"` + tool.JobName + `","arguments":{}}}`)
	if got := c.answer(); string(got.ID) != "4" {
		t.Errorf("the second answer is %s; want that of the tool job", got.text())
	}
	c.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	var ids []string
	for range 2 {
		ids = append(ids, string(c.answer().ID))
	}
	if !slices.Equal(ids, []string{"1", "2"}) {
		t.Errorf("then came %q; want 1 and 2", ids)
	}
}
