package runcmd

import (
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// The first key is held until the next one, or its time is over; what is pasted does not detach.
func TestDetachKeys(t *testing.T) {
	t.Parallel()
	const p, q = "\x10", "\x11"
	for _, row := range []struct {
		name, keys string
		typed      []string // "" is the end of the time
		want       string   // what arrives
		leaves     bool
	}{
		{"both", "ctrl-p,ctrl-q", []string{p, q}, "", true},
		{"at once", "ctrl-p,ctrl-q", []string{p + q}, "", true},
		{"with spaces", "ctrl-p ctrl-q", []string{p, q}, "", true},
		{"a modern terminal", "ctrl-p,ctrl-q", []string{"\x1b[112;5u", "\x1b[113;5u"}, "", true},
		{"other keys", "ctrl-p,ctrl-q", []string{"ls", "\r"}, "ls\r", false},
		{"the first alone", "ctrl-p,ctrl-q", []string{p, ""}, p, false},
		{"too late", "ctrl-p,ctrl-q", []string{p, "", q}, p + q, false},
		{"another one between", "ctrl-p,ctrl-q", []string{p, "x", q}, p + "x" + q, false},
		{"the first twice", "ctrl-p,ctrl-q", []string{p, p, q}, p, true},
		{"the second alone", "ctrl-p,ctrl-q", []string{q}, q, false},
		{"pasted", "ctrl-p,ctrl-q", []string{"a" + p + q + "b"}, "a" + p + q + "b", false},
		{"more than that", "ctrl-p,ctrl-q", []string{p + q + "b"}, p + q + "b", false},
		{"one key", "ctrl-]", []string{"x", "\x1d"}, "x", true},
		{"three keys", "ctrl-a,d,d", []string{"\x01", "d", "x", "\x01", "d", "d"}, "\x01dx", true},
		{"none", "none", []string{p, q}, p + q, false},
		{"nothing", "", []string{p, q}, p + q, false},
	} {
		d, err := newDetachKeys(row.keys)
		if err != nil {
			t.Fatal(err)
		}
		got, left := "", false
		for _, in := range row.typed {
			var pass []byte
			if in == "" {
				pass = d.expire()
			} else {
				pass, left = d.take([]byte(in))
			}
			got += string(pass)
		}
		if got != row.want || left != row.leaves {
			t.Errorf("%s: %q arrives, left %t; want %q, %t", row.name, got, left, row.want, row.leaves)
		}
	}
	if _, err := newDetachKeys("ctrl-p,hyper-x"); err == nil || exit.Judge(err).Status != exit.Usage {
		t.Errorf("newDetachKeys(hyper-x) = %v; want wrong use", err)
	}
}
