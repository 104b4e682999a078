package runcmd

import (
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// typed is a piece of input, and the pause before it.
type typed struct {
	pause time.Duration
	text  string
}

func TestKillKeys(t *testing.T) {
	t.Parallel()
	const soon, late = 300 * time.Millisecond, 500 * time.Millisecond
	for _, row := range []struct {
		name, keys string
		input      []typed
		want       int // the piece that ends the command, from 1; 0 for none
	}{
		{"twice", "esc esc", []typed{{0, "\x1b"}, {soon, "\x1b"}}, 2},
		{"twice at once", "esc esc", []typed{{0, "\x1b\x1b"}}, 1},
		{"a modern terminal", "esc esc", []typed{{0, "\x1b[27u"}, {soon, "\x1b[27u"}}, 2},
		{"once", "esc esc", []typed{{0, "\x1b"}}, 0},
		{"too late", "esc esc", []typed{{0, "\x1b"}, {late, "\x1b"}}, 0},
		{"too late, and then twice", "esc esc", []typed{{0, "\x1b"}, {late, "\x1b"}, {soon, "\x1b"}}, 3},
		{"something between", "esc esc", []typed{{0, "\x1b"}, {soon, "a"}, {soon, "\x1b"}}, 0},
		{"arrows", "esc esc", []typed{{0, "\x1b[A"}, {soon, "\x1b[A"}}, 0},
		{"arrow after", "esc esc", []typed{{0, "\x1b"}, {soon, "\x1b[A"}}, 0},
		{"alt and arrow", "esc esc", []typed{{0, "\x1b\x1b[A"}}, 0},
		{"in a pasted text", "esc esc", []typed{{0, "a\x1b\x1bb"}}, 0},
		{"three times", "esc esc", []typed{{0, "\x1b"}, {soon, "\x1b"}, {soon, "\x1b"}}, 2},
		{"one key", "ctrl-]", []typed{{0, "x"}, {0, "\x1d"}}, 2},
		{"three keys", "ctrl-a k y", []typed{{0, "\x01"}, {soon, "k"}, {soon, "y"}}, 3},
		{"none", "none", []typed{{0, "\x1b"}, {0, "\x1b"}}, 0},
	} {
		k, err := newKillKeys(row.keys)
		if err != nil {
			t.Fatal(err)
		}
		got, now := 0, time.Unix(1_000_000, 0)
		for i, in := range row.input {
			if now = now.Add(in.pause); k.pressed([]byte(in.text), now) {
				got = i + 1
				break
			}
		}
		if got != row.want {
			t.Errorf("%s: piece %d ends it; want %d", row.name, got, row.want)
		}
	}
	if _, err := newKillKeys("esc hyper-x"); err == nil || exit.Judge(err).Status != exit.Usage {
		t.Errorf("newKillKeys(hyper-x) = %v; want wrong use", err)
	}
}

// What keeps a command from waiting does not keep it from being on a terminal.
func TestUnattended(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for _, kv := range Unattended() {
		has[kv] = true
	}
	if len(has) != 37 || !has["PAGER=cat"] || !has["GIT_EDITOR=true"] || has["TERM=dumb"] {
		t.Errorf("unattended() = %d variables: %v", len(has), has)
	}
}
