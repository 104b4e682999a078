package auditcmd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// lab is a program with a session and an audit log, whose files are small.
type lab struct {
	*clitest.Memory

	t   *testing.T
	dir string
	log *audit.Log
	id  string // of the session
	n   int    // of the last command
}

func newLab(t *testing.T, on bool) *lab {
	t.Helper()
	l := &lab{Memory: clitest.NewMemory(t), t: t, dir: filepath.Join(t.TempDir(), "audit")}
	l.id = l.Session(1, sandbox.Spec{Image: "x", Name: "web"})
	l.Environ = append(l.Environ, "SANDBOXBASH_AUDIT_DIR="+l.dir, fmt.Sprintf("SANDBOXBASH_AUDIT_ENABLED=%v", on))
	return l
}

func (l *lab) add(records ...audit.Record) {
	l.t.Helper()
	if l.log == nil {
		log, err := audit.Open(l.dir, audit.Options{FileBytes: 1 << 10})
		if err != nil {
			l.t.Fatal(err)
		}
		l.log = log
		l.t.Cleanup(func() { _ = log.Close() })
	}
	for _, r := range records {
		if r.Session == "" {
			r.Session = l.id
		}
		if err := l.log.Append(r); err != nil {
			l.t.Fatal(err)
		}
	}
}

// ran adds the records of a command that has exited with 0.
func (l *lab) ran(script string) {
	l.t.Helper()
	l.n++
	code, id := 0, fmt.Sprint(l.n)
	l.add(audit.Record{Kind: audit.Intent, ID: id, Mode: "command", Command: script}, audit.Record{Kind: audit.Outcome, ID: id, Mode: "command", Reason: "exited", Code: &code})
}

// What was run is printed in rows that fit, of this session alone.
func TestSessionLogs(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	l.add(audit.Record{Kind: audit.SessionStart})
	l.ran("echo \x1b[2J " + strings.Repeat("long ", 40))
	l.add(
		audit.Record{Kind: audit.Denied, ID: "d", Mode: "command", Command: "git add -A", Policy: &audit.Policy{Rule: "add"}},
		audit.Record{Kind: audit.Connection, Network: json.RawMessage(`{}`)},
		audit.Record{Kind: audit.JobEnd, Mode: "job", Job: "bg_1", Reason: "timed-out"},
		audit.Record{Kind: audit.Intent, ID: "o", Session: clitest.ID(2), Mode: "command", Command: "another"},
		audit.Record{Kind: audit.Intent, ID: "f", Mode: "command", Command: "fails"},
		audit.Record{Kind: audit.Outcome, ID: "f", Mode: "command", Error: &audit.Failure{Outcome: "not-started", Cause: "directory-missing"}},
		audit.Record{Kind: audit.Intent, ID: "r", Mode: "terminal", Command: "runs"},
	)
	for _, ref := range []string{"web", l.id} {
		status, out, errs := l.Call("session", "logs", ref)
		want := regexp.MustCompile(`^TIME +WHAT +END +COMMAND
[0-9: -]{14}  start +- *
.{14}  command +exit 0 +echo .*…
.{14}  denied +by add +git add -A
.{14}  job-end +timed-out +bg_1
.{14}  command +not-started: directory-missing  fails
.{14}  terminal +running +runs
$`)
		if status != 0 || errs != "" || !want.MatchString(out) || strings.Contains(out, "\x1b") {
			t.Errorf("session logs %s = %d, %q and:\n%s", ref, status, errs, out)
		}
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(line) - 1; n > 80 {
				t.Errorf("a row has %d columns: %q", n, line)
			}
		}
	}
	status, out, errs := l.Call("session", "logs", "--json", "web")
	if status != 0 || strings.Count(out, "\n") != 9 || strings.Contains(out, "another") || !strings.Contains(out, `"kind":"connection"`) {
		t.Errorf("session logs --json = %d, %q, %q; want the 9 records of this session", status, out, errs)
	}
	// A session that has gone is known by its id, and no one is waited for.
	l.ran("its last")
	l.Engine.Lose(l.id, true)
	if status, out, errs := l.Call("session", "logs", "-f", l.id); status != 0 || !strings.Contains(out, "its last") {
		t.Errorf("session logs -f of one that has gone = %d, %q, %q", status, out, errs)
	}
	if status, out, errs := l.Call("session", "logs", "frob"); status != exit.Usage || out != "" || !strings.Contains(errs, "unknown session") {
		t.Errorf("session logs of an unknown one = %d, %q, %q", status, out, errs)
	}
}

// Where the log is off this is an error, unless it has something of the session.
func TestSessionLogsOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, false)
	off := func(when string) {
		t.Helper()
		for _, args := range [][]string{{"session", "logs", "web"}, {"session", "logs", "-f", "web"}} {
			status, out, errs := l.Call(args...)
			if status != exit.Usage || out != "" || !strings.Contains(errs, "the audit log is off") || !strings.Contains(errs, "audit.enabled") {
				t.Errorf("%s: %q = %d, %q, %q; want an error that names the setting", when, args, status, out, errs)
			}
		}
	}
	off("no log")
	l.add(audit.Record{Kind: audit.SessionStart, Session: clitest.ID(2)})
	off("of another session")
	l.ran("recorded")
	status, out, errs := l.Call("session", "logs", "web")
	if status != 0 || !strings.Contains(out, "recorded") || !strings.Contains(errs, "the audit log is off here") {
		t.Errorf("session logs = %d, %q, %q; want what there is, and a note", status, out, errs)
	}
}

// following is a call whose output is read as it comes.
type following struct {
	t      *testing.T
	out    *bufio.Reader
	errs   bytes.Buffer
	end    context.CancelCauseFunc
	status chan int
}

func (l *lab) follow(args ...string) *following {
	l.t.Helper()
	ctx, end := context.WithCancelCause(l.t.Context())
	r, w := io.Pipe()
	f := &following{t: l.t, out: bufio.NewReader(r), end: end, status: make(chan int, 1)}
	parts := core.New("", l.Environ, strings.NewReader(""), w, &f.errs)
	parts.Connection.Backend = func(context.Context) (engine.Engine, sandbox.Images, error) { return l.Engine, nil, nil }
	go func() {
		defer w.Close() //nolint:errcheck // of a pipe it is nil
		f.status <- cli.RunWith(ctx, parts, args)
	}()
	l.t.Cleanup(func() { end(nil); _ = r.Close() })
	return f
}

// sees reads up to a line with a text.
func (f *following) sees(text string) {
	f.t.Helper()
	for {
		line, err := f.out.ReadString('\n')
		if err != nil {
			f.t.Fatalf("it ended, and %q was not printed: %v, %s", text, err, f.errs.String())
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// ends reads the rest, and returns it with the exit status.
func (f *following) ends() (int, string) {
	f.t.Helper()
	rest, err := io.ReadAll(f.out)
	if err != nil {
		f.t.Fatal(err)
	}
	return <-f.status, string(rest)
}

// Following goes on through rotations, until the session has ended or Ctrl-C.
func TestFollow(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"session", "logs", "-f", "web"}, {"session", "logs", "-f", "--json", "web"}, {"audit", "show", "--follow"}}
	for _, test := range []struct {
		name string
		end  func(l *lab, f *following)
		want []int // by command; audit show knows no end
	}{
		{"the log tells", func(l *lab, _ *following) { l.add(audit.Record{Kind: audit.SessionStop}) }, []int{0, 0}},
		{"the engine tells", func(l *lab, _ *following) { l.Engine.Lose(l.id, true) }, []int{0, 0}},
		{"Ctrl-C", func(_ *lab, f *following) { f.end(exit.ErrInterrupted) }, []int{exit.Cancelled, exit.Cancelled, exit.Cancelled}},
	} {
		for i, want := range test.want {
			t.Run(test.name+": "+strings.Join(commands[i], " "), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, true)
				l.ran("before")
				f := l.follow(commands[i]...)
				f.sees("before")
				for n := range 10 {
					text := fmt.Sprintf("script-%d", n)
					l.ran(text)
					f.sees(text)
				}
				if _, err := os.Stat(filepath.Join(l.dir, "audit-00000002.jsonl")); err != nil {
					t.Errorf("the log was not rotated: %v", err)
				}
				l.add(audit.Record{Kind: audit.Intent, ID: "x", Mode: "command", Command: "long-one"})
				f.sees("long-one")
				code := 7
				l.add(audit.Record{Kind: audit.Outcome, ID: "x", Mode: "command", Reason: "exited", Code: &code})
				f.sees(map[bool]string{true: `"exitCode":7`, false: "exit 7"}[i == 1])
				test.end(l, f)
				if status, rest := f.ends(); status != want {
					t.Errorf("it ended with %d, %q, %q; want %d", status, rest, f.errs.String(), want)
				}
			})
		}
	}
}
