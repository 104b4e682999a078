package sandbox

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sink"
)

// shownTerminal is a Terminal without a command: what is shown comes from the test.
func shownTerminal(t *testing.T) *Terminal {
	t.Helper()
	out, err := sink.New(sink.Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	term := &Terminal{
		out: out, screen: screen.New(screen.Size{Cols: 20, Rows: 3}), replies: make(chan struct{}, 1), changed: make(chan struct{}),
		begun: make(chan struct{}),
	}
	term.begin = sync.OnceFunc(func() { close(term.begun) })
	term.seen, term.unsee = context.WithCancel(t.Context())
	t.Cleanup(term.unsee)
	return term
}

// onlooker is a user's terminal.
type onlooker struct {
	bytes.Buffer

	err error // of what is shown next
}

func (u *onlooker) show(ctx context.Context, p []byte) error {
	if u.err != nil || ctx.Err() != nil {
		return errors.Join(u.err, ctx.Err())
	}
	_, err := u.Write(p)
	return err
}

const query = "\x1b[6n" // for the position of the cursor

// A user sees all from the first byte on, and answers queries while attached, and only then.
func TestTerminalAttach(t *testing.T) {
	t.Parallel()
	term := shownTerminal(t)
	answers := func() bool {
		select {
		case <-term.replies:
			return true
		default:
			return false
		}
	}
	var one onlooker
	detach := term.Attach(one.show)
	select {
	case <-term.begun:
	default:
		t.Error("the output is not read once a user is attached")
	}
	term.take([]byte("\x1b[31m$ \x1b[m" + query))
	if one.String() != "\x1b[31m$ \x1b[m"+query || answers() {
		t.Errorf("shown: %q; want every byte, and no answer", one.String())
	}
	term.take([]byte("\x1b[?2004h"))
	if got := string(detach()); got != "\x1b[?2004l" {
		t.Errorf("detach() = %q; want what resets the user's terminal", got)
	}
	if got := term.screen.Replies(); len(got) > 0 {
		t.Errorf("%q is still to be answered, though the user's terminal has done so", got)
	}
	term.take([]byte("alone" + query))
	if strings.Contains(one.String(), "alone") || !answers() {
		t.Errorf("shown after the end: %q; want nothing, and an answer", one.String())
	}
}

// The next user sees what the screen shows, and then all that follows. The one before is detached.
func TestTerminalAttachAgain(t *testing.T) {
	t.Parallel()
	term := shownTerminal(t)
	term.take([]byte("$ ls\r\na b\r\n$ "))
	var one, two onlooker
	detachOne := term.Attach(one.show)
	_ = term.Attach(two.show)
	_ = detachOne() // too late: the second is attached
	term.take([]byte("x"))
	shown := screen.New(screen.Size{Cols: 20, Rows: 3})
	_, _ = shown.Write(two.Bytes())
	if got := strings.Join(shown.Snapshot().Lines, "|"); got != "$ ls|a b|$ x" {
		t.Errorf("the second user sees %q", got)
	}
	if strings.HasSuffix(one.String(), "x") {
		t.Errorf("the first user sees %q", one.String())
	}
}

// A user whose terminal fails, or who is not waited for any more, is detached; the command is not
// ended.
func TestTerminalLosesUser(t *testing.T) {
	t.Parallel()
	term := shownTerminal(t)
	one := onlooker{err: errors.New("it has gone")}
	_ = term.Attach(one.show)
	term.take([]byte("a"))
	if term.live != nil {
		t.Error("a user whose terminal fails stays attached")
	}
	var two onlooker
	_ = term.Attach(two.show)
	term.unsee()
	term.take([]byte("b"))
	if term.live != nil || strings.HasSuffix(two.String(), "b") {
		t.Errorf("shown after the end: %q", two.String())
	}
}
