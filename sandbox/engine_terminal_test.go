package sandbox_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// terminal starts a command on a terminal of 132 by 43. It is ended with the test.
func terminal(t *testing.T, s *sandbox.Session, c sandbox.Command, opts sandbox.TerminalOptions) *sandbox.Terminal {
	t.Helper()
	if opts.Size == (screen.Size{}) {
		opts.Size = screen.Size{Cols: 132, Rows: 43}
	}
	if c.Timeout == 0 {
		c.Timeout = 60 * time.Second
	}
	term, err := s.Terminal(t.Context(), c, opts)
	if err != nil {
		t.Fatalf("Terminal(%q) = %v", c.Script, err)
	}
	t.Cleanup(func() {
		term.Kill()
		_, _ = term.Wait()
	})
	return term
}

// seen waits until the screen shows a text.
func seen(t *testing.T, term *sandbox.Terminal, text string) screen.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var shot screen.Snapshot
	_, err := term.WaitFor(ctx, sandbox.Until{Match: func(s screen.Snapshot) bool {
		shot = s
		return strings.Contains(s.Text(), text)
	}})
	if shot = term.Screen(); !strings.Contains(shot.Text(), text) {
		t.Fatalf("waiting for %q: %v; the screen is\n%s", text, err, shot.Text())
	}
	return shot
}

// onTerminal runs a script on a terminal, types input, once the script has said
// that it is ready if it does so, and returns the result.
func onTerminal(t *testing.T, s *sandbox.Session, text, input string) sandbox.Result {
	t.Helper()
	term := terminal(t, s, sandbox.Command{Script: text}, sandbox.TerminalOptions{})
	if strings.Contains(text, "ready") { // for what is typed
		seen(t, term, "ready")
	}
	if _, err := io.WriteString(term, input); err != nil {
		t.Fatal(err)
	}
	res, err := term.Wait()
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return res
}

// A terminal is the command's own: a real one, of the size asked for, that the
// session's user may open again by its path, and the exit code is the engine's
// word.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	for _, row := range []struct {
		name, script, input, shown string
		code, signal               int
	}{
		{"size and device", `stty size; tty`, "", "43 132\n/dev/pts/", 0, 0},
		{"opened again by its path", `: >$(tty) && echo x >/dev/tty && echo y >/dev/stderr && echo z | tee /dev/stdout`, "", "x\ny\nz\nz\n", 0, 0},
		{"owner of the group", `stat -c %g:%a "$(tty)"`, "", "1000:660", 0, 0},
		{"input", `read -r line; echo "got $line"; exit 7`, "typed\n", "got typed", 7, 0},
		{"no capabilities", `grep CapEff /proc/self/status`, "", "CapEff:\t0000000000000000", 0, 0},
		{"its own session", `[ "$(ps -o sid= -p $$ | tr -d ' ')" = $$ ] && [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes`, "", "yes", 0, 0},
		{"signalled", `kill -KILL $$`, "", "", 0, 9},
		{"end of input", `cat; echo done`, "\x04", "done", 0, 0},
		{"interrupt", `trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done`, "\x03", "caught", 3, 0},
		{"long script", strings.Repeat("#\n", 100_000) + "echo long; exit 5", "", "long", 5, 0},
		{"kind of terminal", `echo $TERM`, "", "xterm-256color\n", 0, 0},
		{"detach keys are input", `stty raw -echo; echo ready; head -c 4 | od -An -tx1`, "\x10\x11\x10\x11", "10 11 10 11", 0, 0},
		{"no output", `true`, "", "", 0, 0},
		{"background", `set +m; sleep 60 & echo done`, "", "done\n", 0, 0},
	} {
		began := time.Now()
		res := onTerminal(t, s, row.script, row.input)
		if shown := res.Output.Stdout.Text(); !strings.Contains(shown, row.shown) || res.Code != row.code || res.Signal != row.signal {
			t.Errorf("%s: shown %q, exit code %d, signal %d; want %q in it, %d, %d", row.name, shown, res.Code, res.Signal, row.shown, row.code, row.signal)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: took %v", row.name, took)
		}
	}
}

// A call's own TERM wins, one that the image does not know is passed over.
func TestTerminalTERM(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	for _, row := range []struct {
		terms []string
		env   []string
		want  string
	}{
		{nil, []string{"TERM=weird"}, "weird\n"},
		{[]string{"no-such-terminal", "../x", "vt100"}, nil, "vt100\n"},
		{[]string{"no-such-terminal"}, nil, "xterm-256color\n"},
	} {
		term := terminal(t, s, sandbox.Command{Script: "echo $TERM", Env: row.env}, sandbox.TerminalOptions{Terms: row.terms})
		res, err := term.Wait()
		if got := res.Output.Stdout.Text(); got != row.want || err != nil {
			t.Errorf("TERM with %q and %q is %q, %v; want %q", row.terms, row.env, got, err, row.want)
		}
	}
}

// What does not start is an error of its own kind, and nothing is left of it.
func TestTerminalNotStarted(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	for _, row := range []struct {
		name    string
		command sandbox.Command
		cause   exec.Cause
	}{
		{"no directory", sandbox.Command{Script: "true", Dir: "/nowhere"}, exec.CauseDirMissing},
		{"a file", sandbox.Command{Script: "true", Dir: "/etc/passwd"}, exec.CauseNotDir},
	} {
		_, err := s.Terminal(t.Context(), row.command, sandbox.TerminalOptions{})
		if !isError(err, exec.NotStarted, row.cause) {
			t.Errorf("%s: %v; want not-started{%s}", row.name, err, row.cause)
		}
	}
	if _, err := s.Terminal(t.Context(), sandbox.Command{Script: " "}, sandbox.TerminalOptions{}); err == nil {
		t.Error("a blank script was started")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Terminal(ctx, sandbox.Command{Script: "true"}, sandbox.TerminalOptions{}); err == nil {
		t.Error("a command of a context that has ended was started")
	}
	if left := script(t, s, `pgrep -f "runner (pty|attend)" || echo none`); strings.TrimSpace(left) != "none" {
		t.Errorf("processes left: %q; want none", left)
	}
}

// Bytes pass both ways as they are, in raw mode all 256 of them.
func TestTerminalBytes(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	var all []byte
	for i := range 4096 {
		all = append(all, byte(i))
	}
	var live lockedBuffer
	term := terminal(t, s, sandbox.Command{Script: `stty raw -echo; printf ready; head -c 4096 | tee input; sha256sum <input`}, sandbox.TerminalOptions{Live: &live})
	waitFor(t, "ready", func() bool { return bytes.HasPrefix(live.Bytes(), []byte("ready")) })
	if _, err := term.Write(all); err != nil {
		t.Fatal(err)
	}
	res, err := term.Wait()
	if err != nil || res.Code != 0 {
		t.Fatalf("Wait() = %+v, %v", res.Status, err)
	}
	if got := live.Bytes(); !bytes.HasPrefix(got, append([]byte("ready"), all...)) {
		t.Errorf("shown %d bytes that are not those typed", len(got))
	}
	if !res.Output.Stdout.Binary {
		t.Error("the output is not called binary")
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 20s", what)
		}
	}
}

// Resize changes the size while the command runs, and is a no-op later.
func TestTerminalResize(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	term := terminal(t, s, sandbox.Command{Script: `trap 'echo now $(stty size)' WINCH; echo ready; while ! [ -e stop ]; do sleep 0.05; done`}, sandbox.TerminalOptions{})
	seen(t, term, "ready")
	if err := term.Resize(t.Context(), screen.Size{Cols: 101, Rows: 33}); err != nil {
		t.Fatal(err)
	}
	if shot := seen(t, term, "now 33 101"); shot.Cols != 101 || shot.Rows != 33 {
		t.Errorf("the screen is %+v; want 101 by 33", shot.Size)
	}
	script(t, s, "touch stop")
	if _, err := term.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := term.Resize(t.Context(), screen.Size{Cols: 80, Rows: 24}); err != nil {
		t.Errorf("Resize() after the end = %v; want nil", err)
	}
}

// Kill, the timeout and the end of the context end the command and what it has
// started, however it hides, also while the terminal is stopped.
func TestTerminalEnds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, script string
		timeout      time.Duration
		kill         bool
		reason       exec.Reason
	}{
		{"killed", `trap "" TERM HUP INT; setsid sleep 4711 & echo ready; sleep 4711`, 0, true, exec.Cancelled},
		{"timed out", `(setsid setsid sleep 4711 &) ; nohup sleep 4711 & echo ready; sleep 4711`, 2 * time.Second, false, exec.TimedOut},
		{"stopped by XOFF", `echo ready; while sleep 0.01; do echo flood; done`, 2 * time.Second, false, exec.TimedOut},
		{"flood", `echo ready; yes`, 0, true, exec.Cancelled},
		{"script", `echo ready; script -qc "sleep 4711" /dev/null`, 2 * time.Second, false, exec.TimedOut},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, sandbox.Spec{})
			term := terminal(t, s, sandbox.Command{Script: row.script, Timeout: row.timeout}, sandbox.TerminalOptions{})
			if row.name != "flood" {
				seen(t, term, "ready")
			}
			if row.name == "stopped by XOFF" {
				if err := term.Keys("ctrl-s"); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			if row.kill {
				term.Kill()
			}
			res, err := term.Wait()
			if err != nil || res.Reason != row.reason || res.Killed == "" {
				t.Errorf("Wait() = %s, killed %q, %v; want %s", res.Reason, res.Killed, err, row.reason)
			}
			if took := time.Since(began); took > row.timeout+5*time.Second {
				t.Errorf("ended after %v", took)
			}
			if left := script(t, s, `pgrep -f "[s]leep 4711|[y]es|runner [pa]t" || echo none`); strings.TrimSpace(left) != "none" {
				t.Errorf("processes left: %q; want none", left)
			}
		})
	}
}

// What a command leaves running when it ends by itself lives on, if it has taken
// care not to need the terminal.
func TestTerminalLeavesDaemons(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	res := onTerminal(t, s, `setsid -f sleep 4712 </dev/null >/dev/null 2>&1; nohup sleep 4713 </dev/null >/dev/null 2>&1 & until [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.05; done; echo done`, "")
	if res.Reason != exec.Exited || res.Code != 0 {
		t.Fatalf("%+v", res.Status)
	}
	if left := script(t, s, `pgrep -fc "[s]leep 471[23]"`); strings.TrimSpace(left) != "2" {
		t.Errorf("%s daemons live on; want 2", strings.TrimSpace(left))
	}
}

// A flood stays bounded, the terminal is there for its keys, and the last line is
// shown.
func TestTerminalFlood(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	term := terminal(t, s, sandbox.Command{Script: `trap 'echo; echo the last line; exit 3' INT; yes 'a line of a flood'; exit 3`}, sandbox.TerminalOptions{})
	seen(t, term, "a line of a flood")
	time.Sleep(time.Second) // the flood itself is what is tested
	if err := term.Keys("ctrl-c"); err != nil {
		t.Fatal(err)
	}
	res, err := term.Wait()
	if err != nil || res.Code != 3 {
		t.Fatalf("Wait() = %+v, %v; want exit code 3", res.Status, err)
	}
	t.Logf("%d bytes in %v", res.Stdout, res.Elapsed)
	if text := res.Output.Stdout.Text(); !strings.HasSuffix(text, "the last line\n") || len(text) > 60<<10 {
		t.Errorf("%d bytes are kept, the last %q", len(text), text[max(0, len(text)-100):])
	}
	if !strings.HasSuffix(term.Screen().Text(), "the last line") {
		t.Errorf("the screen is\n%s", term.Screen().Text())
	}
}

// The end of the output is never lost, however short the command.
func TestTerminalTail(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	for i := range 25 {
		res := onTerminal(t, s, `seq 1 20000; printf 'end of %s' it`, "")
		if text := res.Output.Stdout.Text(); !strings.HasSuffix(text, "20000\nend of it") {
			t.Fatalf("run %d: the output ends with %q", i, text[max(0, len(text)-60):])
		}
	}
}

// A terminal whose host has gone away ends, with all that runs on it.
func TestTerminalWithoutHost(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	e := newEngine(client, resolver(t, client), sandbox.Options{})
	s := startIn(t, client, e, sandbox.Spec{Lease: time.Minute})
	other, err := newEngine(client, resolver(t, client), sandbox.Options{}).Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	term := terminal(t, other, sandbox.Command{Script: `trap "" HUP TERM; echo ready; sleep 4714`}, sandbox.TerminalOptions{})
	seen(t, term, "ready")
	other.Release()
	if _, err := term.Wait(); !isError(err, exec.Unknown, exec.CauseRunnerLost, exec.CauseUnconfirmed) {
		t.Errorf("Wait() = %v; want outcome-unknown", err)
	}
	waitFor(t, "end of the command", func() bool {
		return strings.TrimSpace(script(t, s, `pgrep -f "[s]leep 4714" || echo none`)) == "none"
	})
}

// At the pids limit a terminal starts all the same, once there is room, and can be
// killed.
func TestTerminalAtThePidsLimit(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Pids: 128}})
	term := terminal(t, s, sandbox.Command{Script: `echo ready; while :; do sleep 100 & done 2>/dev/null`}, sandbox.TerminalOptions{})
	seen(t, term, "ready")
	time.Sleep(500 * time.Millisecond) // for the limit to be reached
	term.Kill()
	if res, err := term.Wait(); err != nil || res.Reason != exec.Cancelled {
		t.Errorf("Wait() = %s, %v; want cancelled", res.Reason, err)
	}
	if res := onTerminal(t, s, "echo again", ""); res.Output.Stdout.Text() != "again\n" {
		t.Errorf("the next one shows %q", res.Output.Stdout.Text())
	}
}
