package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// seat is where the program is run from: an engine's address, and a home.
type seat struct{ host, home string }

// hereSeat is at the engine that the environment names.
func hereSeat(t *testing.T) seat {
	t.Helper()
	needEngine(t)
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	return seat{host: host, home: t.TempDir()}
}

// at is the same home at another address of the engine.
func (s seat) at(host string) seat { return seat{host: host, home: s.home} }

// programTime is how long the program may take for anything that these tests ask of
// it. It is beyond every bound that it promises.
const programTime = 2 * time.Minute

func (s seat) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(built, "sandboxbash"), args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+s.host, "HOME="+s.home, "XDG_STATE_HOME="+s.home, "XDG_CONFIG_HOME="+s.home,
		"XDG_CACHE_HOME="+s.home, "SANDBOXBASH_IMAGE=host", "SANDBOXBASH_QUIET=true")
	return cmd
}

// run runs a command that must succeed.
func (s seat) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.try(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try runs a command and returns what it prints; an error has its complaint.
func (s seat) try(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	cmd := s.command(ctx, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return strings.TrimSpace(string(out)), fmt.Errorf("sandboxbash %q: %w\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// docker asks this seat's engine.
func (s seat) docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", append([]string{"-H", s.host}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %q: %w\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// status is the exit status that an error of a command stands for; -1: a signal's.
func status(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		return -1
	}
}

// ledger compares the outcomes of a session's commands with what they have
// really done: each records its start and its end in a file of the workspace.
// The file is read on the engine's machine, without any program of ours.
type ledger struct {
	seat    seat // without any fault
	session string
	file    string

	mu   sync.Mutex
	next int // guarded by mu
}

// markVariable is in the environment of every command of a ledger, and of all
// that it starts.
const markVariable = "E2E_MARK"

// newLedger starts a session with one; it is stopped with the test if it is there.
func newLedger(t *testing.T, s seat, args ...string) *ledger {
	t.Helper()
	l, err := openLedger(t.Context(), s, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.stop(t) })
	return l
}

func openLedger(ctx context.Context, s seat, args ...string) (*ledger, error) {
	id, err := s.try(ctx, append([]string{"session", "start"}, args...)...)
	if err != nil {
		return nil, err
	}
	dir, err := s.docker(ctx, "volume", "inspect", "--format", "{{.Mountpoint}}", "sandboxbash-"+id)
	return &ledger{seat: s, session: id, file: filepath.Join(dir, ".ledger")}, err
}

func (l *ledger) stop(t *testing.T) {
	t.Helper()
	out, err := l.seat.try(context.WithoutCancel(t.Context()), "session", "stop", l.session)
	if err != nil && !strings.Contains(err.Error(), "unknown session") {
		t.Errorf("session stop: %v\n%s", err, out)
	}
}

// entry is one command and its reported outcome.
type entry struct {
	mark   string
	stdout string // what it prints if it ends by itself

	status int    // of the program
	said   []byte // its standard output
	errors string // its standard error
	took   time.Duration
}

// mark makes a name for a command.
func (l *ledger) mark() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return fmt.Sprintf("%s-%d", l.session, l.next)
}

// exec runs a command over the seat; body runs between its two lines. It prints
// its mark at its end.
func (l *ledger) exec(ctx context.Context, s seat, body string, flags ...string) *entry {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	e, cmd := l.command(ctx, s, body, flags...)
	began := time.Now()
	e.said, _ = cmd.Output()
	e.took = time.Since(began)
	e.status = cmd.ProcessState.ExitCode()
	return e
}

// command prepares what exec runs. The caller starts it and fills in how it ended.
func (l *ledger) command(ctx context.Context, s seat, body string, flags ...string) (*entry, *exec.Cmd) {
	e := &entry{mark: l.mark()}
	e.stdout = "end " + e.mark + "\n"
	script := fmt.Sprintf("echo begin %[1]s >>/workspace/.ledger\n%[2]s\necho end %[1]s >>/workspace/.ledger; echo end %[1]s", e.mark, body)
	cmd := s.command(ctx, append(append([]string{"session", "exec", "--json", "--env", markVariable + "=" + e.mark}, flags...), l.session, script)...)
	cmd.Stderr = &limitedText{to: &e.errors}
	return e, cmd
}

// limitedText keeps the beginning of what is written.
type limitedText struct{ to *string }

func (l *limitedText) Write(b []byte) (int, error) {
	if len(*l.to) < 4<<10 {
		*l.to += string(b)
	}
	return len(b), nil
}

// told is what --json says.
type told struct {
	Stdout   string
	Reason   *string
	ExitCode *int
	Killed   string
	Session  string
	Artifact *struct {
		ID       string
		Path     string
		Bytes    int64
		Complete bool
		Cause    string
	}
	Error *struct{ Outcome, Cause, Message string }
}

// reason is how the command has ended, or what is known instead.
func (d told) reason() string {
	switch {
	case d.Error != nil:
		return d.Error.Outcome + "{" + d.Error.Cause + "}"
	case d.Reason != nil:
		return *d.Reason
	default:
		return "nothing"
	}
}

// done returns how often a command has begun and ended.
func (l *ledger) done(mark string) (begun, ended int, err error) {
	text, err := os.ReadFile(l.file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, 0, nil // of a session that was removed nothing is known
	}
	for line := range strings.Lines(string(text)) {
		switch strings.TrimSuffix(line, "\n") {
		case "begin " + mark:
			begun++
		case "end " + mark:
			ended++
		}
	}
	return begun, ended, err
}

// outcomes are the exit statuses that go with an outcome without a result.
var outcomes = map[string][]int{
	"not-started":     {125, 2, 130},
	"outcome-unknown": {125},
	"session-lost":    {125},
}

// check compares a command with the promises: it has one outcome, which is true,
// it was not run twice, and none of its processes survives. It returns the
// reported outcome.
func (l *ledger) check(e *entry) (told, error) {
	var d told
	if err := json.Unmarshal(e.said, &d); err != nil { // two objects are an error too
		return d, fmt.Errorf("exit status %d with no JSON: %w\nstdout: %.500q\nstderr: %.500q", e.status, err, e.said, e.errors)
	}
	begun, ended, err := l.done(e.mark)
	if err != nil {
		return d, err
	}
	complain := func(format string, args ...any) error {
		return fmt.Errorf("%s, exit status %d, begun %d times and ended %d: "+format+"\n%.1000s",
			append([]any{d.reason(), e.status, begun, ended}, append(args, e.said)...)...)
	}
	if begun > 1 {
		return d, complain("it was run twice")
	}
	if (d.Error == nil) == (d.Reason == nil) {
		return d, complain("want a reason or an error, and not both")
	}
	if d.Error != nil {
		return d, l.checkError(e, d, begun, complain)
	}
	switch *d.Reason {
	case "exited":
		if begun != 1 || ended != 1 || d.ExitCode == nil || *d.ExitCode != e.status || d.Stdout != e.stdout {
			return d, complain("want that of a command that went to its end, with %q", e.stdout)
		}
	case "timed-out", "cancelled", "output-limit", "oom-killed", "signalled":
		// Where the container had to be reset the runner had not said a word: by then the
		// command may have ended, and this host cannot know it.
		if ended != 0 && d.Killed != "reset" && d.Killed != "removed" {
			return d, complain("it went to its end")
		}
	default:
		return d, complain("unknown reason")
	}
	return d, l.gone(e.mark)
}

func (l *ledger) checkError(e *entry, d told, begun int, complain func(string, ...any) error) error {
	known := false
	for _, status := range outcomes[d.Error.Outcome] {
		known = known || status == e.status
	}
	switch {
	case !known:
		return complain("the outcome and the exit status do not go together")
	case d.ExitCode != nil:
		return complain("an exit code of what has no result")
	case d.Error.Cause == "" || d.Error.Message == "":
		return complain("no cause or no message")
	case d.Error.Outcome == "not-started" && begun != 0:
		return complain("it has started")
	}
	return l.gone(e.mark)
}

// sweepPatience is how long the survivors of a command may live after its end
// was reported as unknown: the shortest lease, and the sweep.
const sweepPatience = 20 * time.Second

// gone waits until no process in a container has the mark.
func (l *ledger) gone(mark string) error {
	pattern := regexp.MustCompile(regexp.QuoteMeta(markVariable+"="+mark) + "(\x00|$)")
	for deadline := time.Now().Add(sweepPatience); ; time.Sleep(50 * time.Millisecond) {
		left := inContainers(pattern)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("command %s lives on after %s: %v", mark, sweepPatience, left)
		}
	}
}

// goesOn checks that the session runs the next command, or is reported as lost.
func (l *ledger) goesOn(ctx context.Context) error {
	d, err := l.another(ctx)
	return errors.Join(err, d.goesOn())
}

// another runs one more command, checks it, and returns its reported outcome.
func (l *ledger) another(ctx context.Context) (told, error) {
	d, err := l.check(l.exec(ctx, l.seat, ":", "--timeout", "20s"))
	if err != nil {
		err = fmt.Errorf("the next command: %w", err)
	}
	return d, err
}

func (d told) goesOn() error {
	if d.Error == nil && d.reason() == "exited" || d.Error != nil && (d.Error.Outcome == "session-lost" || d.Error.Cause == "unknown-session") {
		return nil
	}
	return fmt.Errorf("the next command: %s; want it to work, or a session that is lost", d.reason())
}
