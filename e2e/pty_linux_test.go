package e2e

import (
	"strings"
	"testing"
)

// An editor is used by calls that return between its keys.
func TestKeptEditor(t *testing.T) {
	t.Parallel()
	id := newSession(t, "--workspace", "copy:"+bring(t, "vi"))
	pty := strings.TrimSpace(says(t, "pty", "start", "--size", "60x12", id, "-c", `printf 'one\ntwo\n' >notes.txt; `+useBrought+`vi -u NONE notes.txt`))
	said := func(want string, args ...string) {
		t.Helper()
		if got := says(t, args...); !strings.Contains(got, want) {
			t.Errorf("sandboxbash %s: %q; want %q in it", strings.Join(args, " "), got, want)
		}
	}
	said("needs_input", "pty", "wait", "--input", pty)
	said("one\ntwo\n~\n", "pty", "screen", "-q", pty)
	said("", "pty", "write", "--keys", "down A ! esc", pty)
	said("output", "pty", "wait", "--text", "two!", pty)
	said(`"cursor":{"col":3,"row":1,"visible":true},"alternate":true`, "pty", "screen", "--json", pty)
	said("", "pty", "resize", pty, "40x8")
	said("", "pty", "write", "--keys", "enter", pty, ":set columns? lines?")
	said("output", "pty", "wait", "--text", "lines=8", pty)
	said("", "pty", "write", "--keys", "enter", pty, ":wq")
	said("ended", "pty", "wait", "--end", pty)
	said("one\ntwo!\n", "session", "exec", id, "cat notes.txt")
	said("", "pty", "stop", pty)
	if left := says(t, "pty", "ls"); strings.Contains(left, pty) {
		t.Errorf("pty ls behind its end:\n%s", left)
	}
}
