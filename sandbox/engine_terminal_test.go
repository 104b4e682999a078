package sandbox_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// onTerminal runs a script on a terminal, types input, and returns what was shown
// and the exit code.
func onTerminal(t *testing.T, s *sandbox.Session, text, input string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	term, err := s.Terminal(ctx, sandbox.Command{Script: text}, 43, 132)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close() //nolint:errcheck // it may be gone already
	if _, err := io.WriteString(term, input); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = term.Close() })
	defer stop()
	shown, err := io.ReadAll(term)
	if err != nil {
		t.Fatalf("after %q: %v", shown, err)
	}
	code, err := term.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(shown), code
}

// A terminal is the command's own: a real one, of the size asked for, that the
// session's user may open again by its path, and the exit code is the engine's
// word.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	for _, row := range []struct {
		name, script, input, shown string
		code                       int
	}{
		{"size and device", `sleep 0.3; stty size; tty`, "", "43 132\r\n/dev/pts/", 0},
		{"opened again by its path", `: >$(tty) && echo x >/dev/tty && echo y >/dev/stderr`, "", "x\r\ny\r\n", 0},
		{"owner of the group", `stat -c %g:%a "$(tty)"`, "", "1000:660", 0},
		{"input", `read -r line; echo "got $line"; exit 7`, "typed\n", "got typed", 7},
		{"no capabilities", `grep CapEff /proc/self/status`, "", "CapEff:\t0000000000000000", 0},
		{"signalled", `kill -KILL $$`, "", "", 137},
		{"end of input", `cat; echo done`, "\x04", "done", 0},
	} {
		shown, code := onTerminal(t, s, row.script, row.input)
		if !strings.Contains(shown, row.shown) || code != row.code {
			t.Errorf("%s: shown %q, exit code %d; want %q in it, %d", row.name, shown, code, row.shown, row.code)
		}
	}
}

// Kill ends a terminal's command and what it has started, however it hides.
func TestTerminalKill(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	term, err := s.Terminal(t.Context(), sandbox.Command{Script: `trap "" TERM HUP; setsid sleep 4711 & echo ready; sleep 4711`}, 24, 80)
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close() //nolint:errcheck // it may be gone already
	ready := make([]byte, 5)
	if _, err := io.ReadFull(term, ready); err != nil || string(ready) != "ready" {
		t.Fatalf("shown %q, %v; want ready", ready, err)
	}
	if err := term.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if code, err := term.Wait(ctx); code != 137 || err != nil {
		t.Errorf("Wait() = %d, %v; want 137, nil", code, err)
	}
	if left := script(t, s, `pgrep -f "sleep 471[1]" || echo none`); strings.TrimSpace(left) != "none" {
		t.Errorf("processes left: %q; want none", left)
	}
}
