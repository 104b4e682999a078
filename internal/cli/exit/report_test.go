package exit

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Every line behind the first is indented, so that what belongs to one error is seen.
func TestReport(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, todo, want string }{
		{"broken", "", "sandboxbash: broken\n"},
		{"broken\n", "mend it", "sandboxbash: broken\n  mend it\n"},
		{"one\ntwo\n\n", "", "sandboxbash: one\n  two\n"},
		{"one\ntwo", "mend both", "sandboxbash: one\n  two\n  mend both\n"},
	} {
		var b bytes.Buffer
		if Report(&b, "sandboxbash:", row.text, row.todo); b.String() != row.want {
			t.Errorf("Report(%q, %q) = %q; want %q", row.text, row.todo, b.String(), row.want)
		}
	}
}

// An interrupt is one for the command line and for package exec, whatever it is wrapped in,
// and a broken pipe is not.
func TestInterruptError(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("x: %w", InterruptError{})
	if !errors.Is(err, ErrInterrupted) || !errors.Is(err, exec.ErrInterrupt) || errors.Is(err, ErrBrokenPipe) {
		t.Errorf("%v is not what ended the command: it must be ErrInterrupted and exec.ErrInterrupt alone", err)
	}
	if errors.Is(ErrInterrupted, exec.ErrInterrupt) {
		t.Error("SIGTERM is taken for SIGINT")
	}
	if v := Judge(err); v.Status != Cancelled || v.Cause != "cancelled" {
		t.Errorf("Judge(%v) = %+v; want status %d, cancelled", err, v, Cancelled)
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	if err := With(0); err != nil {
		t.Errorf("With(0) = %v; want nil", err)
	}
	status, ok := errors.AsType[StatusError](fmt.Errorf("x: %w", With(Findings)))
	if !ok || int(status) != Findings {
		t.Errorf("With(%d) = %v; want that status", Findings, status)
	}
}

type spoken struct{ v Verdict }

func (spoken) Error() string      { return "spoken" }
func (s spoken) Verdict() Verdict { return s.v }

// An error that says what it means is believed, but not for a command that has run.
func TestVerdictOfItsOwn(t *testing.T) {
	t.Parallel()
	own := spoken{Verdict{Status: 42, Outcome: exec.NotStarted, Cause: "mine", Todo: "do"}}
	if v := Judge(fmt.Errorf("x: %w", own)); v != own.v {
		t.Errorf("Judge() = %+v; want %+v", v, own.v)
	}
	ran := &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseRunnerLost, Err: own}
	if v := Judge(ran); v.Status != Engine || v.Outcome != exec.Unknown || v.Todo != lookFirst {
		t.Errorf("Judge(of a command whose end is unknown) = %+v; want status %d, unknown, and to look first", v, Engine)
	}
}

// A denial says where, and with which tool.
func TestDenialSays(t *testing.T) {
	t.Parallel()
	d := policy.Decision{Rule: "r", Reason: "no", Tool: "edit", Position: policy.Position{Line: 3, Column: 9}}
	v := Judge(&policy.Denial{Decision: d})
	if want := "at line 3, column 9; use the tool edit instead; see what it sees with `sandboxbash policy explain`"; v.Todo != want || v.Status != Denied {
		t.Errorf("Judge(denial) = %+v; want %q, status %d", v, want, Denied)
	}
}

// A timeout that is not known, as that of a client, is not named; and what a kill needed is.
func TestEndingWithoutLimits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		res  sandbox.Result
		want string
	}{
		{sandbox.Result{Status: exec.Status{Reason: exec.TimedOut}}, "timed out"},
		{sandbox.Result{Status: exec.Status{Reason: exec.TimedOut}, Killed: "removed"}, "timed out (killed: removed)"},
		{sandbox.Result{Status: exec.Status{Reason: exec.Signalled, Signal: 40}, Killed: "kill"}, "ended by SIGRTMIN+6"},
		{sandbox.Result{Status: exec.Status{Reason: exec.Exited, Code: 3}, Killed: "term"}, ""},
	} {
		if got := Ending(row.res, Limits{}); got != row.want {
			t.Errorf("Ending(%+v) = %q; want %q", row.res.Status, got, row.want)
		}
	}
}

// What is said to do names commands of this program in backticks, and ends without a full stop.
func TestTodosReadAlike(t *testing.T) {
	t.Parallel()
	for cause, todo := range todos {
		if todo == "" || strings.HasSuffix(todo, ".") || strings.Count(todo, "`")%2 != 0 || strings.ToLower(todo[:1]) != todo[:1] {
			t.Errorf("%s says %q", cause, todo)
		}
		if strings.Count(todo, "sandboxbash ") != strings.Count(todo, "`sandboxbash ") {
			t.Errorf("%s names a command without backticks: %q", cause, todo)
		}
	}
}
