package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

func TestCommandStatus(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		st   exec.Status
		want int
	}{
		{exec.Status{Reason: exec.Exited}, 0},
		{exec.Status{Reason: exec.Exited, Code: 7}, 7},
		{exec.Status{Reason: exec.Exited, Code: 255}, 255},
		{exec.Status{Reason: exec.Signalled, Signal: 15}, 143},
		{exec.Status{Reason: exec.Signalled, Signal: 11}, 139},
		{exec.Status{Reason: exec.OOMKilled, Signal: 9}, 137},
		{exec.Status{Reason: exec.OOMKilled, Code: 1}, 137},
		{exec.Status{Reason: exec.TimedOut, Signal: 9}, 124},
		{exec.Status{Reason: exec.Cancelled, Signal: 15}, 130},
		{exec.Status{Reason: exec.OutputLimit, Signal: 15}, 122},
		{exec.Status{}, 125},
	} {
		if got := OfCommand(test.st); got != test.want {
			t.Errorf("commandStatus(%+v) = %d; want %d", test.st, got, test.want)
		}
		code := Code(test.st)
		switch test.st.Reason {
		case exec.Exited, exec.Signalled, exec.OOMKilled:
			if code == nil || *code != test.want {
				t.Errorf("Code(%+v) = %v; want %d", test.st, code, test.want)
			}
		default:
			if code != nil {
				t.Errorf("Code(%+v) = %d; want none", test.st, *code)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	run := func(outcome exec.Outcome, cause exec.Cause) error {
		return fmt.Errorf("session x: %w", &exec.Error{Outcome: outcome, Cause: cause, Err: errors.New("words")})
	}
	call := func(kind error) error {
		return fmt.Errorf("x: %w", &engine.Error{Op: "op", Kind: kind, Err: errors.New("words")})
	}
	for _, test := range []struct {
		name    string
		err     error
		status  int
		outcome exec.Outcome
		cause   string
	}{
		{"directory", run(exec.NotStarted, exec.CauseDirMissing), 2, exec.NotStarted, "directory-missing"},
		{"no shell", run(exec.NotStarted, exec.CauseNoShell), 2, exec.NotStarted, "no-shell"},
		{"busy", run(exec.NotStarted, exec.CauseBusy), 2, exec.NotStarted, "busy"},
		{"limits", run(exec.NotStarted, exec.CauseResources), 125, exec.NotStarted, "resources-exhausted"},
		{"exec", run(exec.NotStarted, exec.CauseEngine), 125, exec.NotStarted, "engine"},
		{"cancelled", run(exec.NotStarted, exec.CauseCancelled), 130, exec.NotStarted, "cancelled"},
		{"unknown", run(exec.Unknown, exec.CauseRunnerLost), 125, exec.Unknown, "runner-lost"},
		{"lost", run(exec.Lost, sandbox.CauseOOM), 125, exec.Lost, "oom"},
		{"denied", fmt.Errorf("x: %w", &policy.Denial{Decision: policy.Decision{Rule: "r", Reason: "no"}}), 126, exec.NotStarted, "denied"},
		{"input", &sandbox.InputError{Field: "env", Text: "bad"}, 2, exec.NotStarted, "bad-env"},
		{"usage", Misuse("", "wrong"), 2, exec.NotStarted, "usage"},
		{"config", errors.Join(&config.Error{Key: "k"}), 2, exec.NotStarted, "bad-config"},
		{"key", &config.UnknownKeyError{Key: "k"}, 2, exec.NotStarted, "bad-config"},
		{"session", fmt.Errorf("x: %w", sandbox.ErrUnknownSession), 2, exec.NotStarted, "unknown-session"},
		{"artifact", fmt.Errorf("x: %w", sink.ErrNotFound), 2, exec.NotStarted, "unknown-artifact"},
		{"reference", &images.InvalidRefError{Ref: "X"}, 2, exec.NotStarted, "unknown-image"},
		{"image", errors.Join(&images.UnresolvedError{Ref: "x"}), 2, exec.NotStarted, "unknown-image"},
		{"missing image", fmt.Errorf("x: %w", &images.MissingError{Ref: "x"}), 2, exec.NotStarted, "unknown-image"},
		{"archive", fmt.Errorf("x: %w", &images.SourceError{Err: errors.New("words")}), 2, exec.NotStarted, "bad-image"},
		{"address", call(engine.ErrAddress), 2, exec.NotStarted, "bad-engine"},
		{"posture", fmt.Errorf("x: %w", &sandbox.PostureError{}), 125, exec.NotStarted, "posture"},
		{"unreachable", call(engine.ErrUnreachable), 125, exec.NotStarted, "unreachable"},
		{"too old", call(engine.ErrTooOld), 125, exec.NotStarted, "engine-too-old"},
		{"refused", call(engine.ErrInvalid), 125, exec.NotStarted, "engine"},
		{"anything", errors.New("boom"), 125, exec.NotStarted, "engine"},
		{"interrupted", fmt.Errorf("x: %w", ErrInterrupted), 130, exec.NotStarted, "cancelled"},
		{"context", fmt.Errorf("x: %w", context.Canceled), 130, exec.NotStarted, "cancelled"},
	} {
		if got := Judge(test.err); got.Status != test.status || got.Outcome != test.outcome || got.Cause != test.cause {
			t.Errorf("%s: judge(%v) = %+v; want %d, %s, %s", test.name, test.err, got, test.status, test.outcome, test.cause)
		}
	}
}

// What an error means decides what is said to do about it.
func TestTodo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want string
	}{
		{&exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseDirDenied}, nameDir},
		{&exec.Error{Outcome: exec.Unknown, Cause: exec.CauseRunnerLost}, lookFirst},
		{&exec.Error{Outcome: exec.Lost, Cause: sandbox.CauseRemoved, Err: sandbox.ErrUnknownSession}, ""},
		{&exec.Error{Outcome: exec.Unknown, Cause: exec.CauseEngine, Err: context.Canceled}, ""},
		{&policy.Denial{Decision: policy.Decision{Tool: "read"}}, "use the tool read instead; see what it sees with `sandboxbash policy explain`"},
		{sandbox.ErrJobRunning, "end it first with `sandboxbash job stop`"},
		{&images.MissingError{Ref: "x"}, "name another image with --image; --image host is a snapshot of this machine's programs"},
		{&config.Error{Key: "k"}, "correct it; `sandboxbash help config` lists the keys"},
		{Misuse("do this", "wrong"), "do this"},
		{errors.New("boom"), ""},
	} {
		if got := Judge(fmt.Errorf("x: %w", test.err)).Todo; got != test.want {
			t.Errorf("Judge(%v) says %q; want %q", test.err, got, test.want)
		}
	}
}

func TestWordsOf(t *testing.T) {
	t.Parallel()
	dir := &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseDirMissing, Err: errors.New("Working directory does not exist: /x")}
	lost := &exec.Error{Outcome: exec.Lost, Cause: sandbox.CauseOOM, Err: errors.New("gone")}
	for err, want := range map[error]string{
		fmt.Errorf("session s: %w", dir):  "Working directory does not exist: /x",
		fmt.Errorf("session s: %w", lost): "session s: session-lost{oom}: gone",
		errors.New("plain"):               "plain",
	} {
		if got := Words(err); got != want {
			t.Errorf("wordsOf(%v) = %q; want %q", err, got, want)
		}
	}
}

func TestEnding(t *testing.T) {
	t.Parallel()
	held := Limits{Timeout: 2 * time.Second, Output: 1000}
	for _, test := range []struct {
		res  sandbox.Result
		want string
	}{
		{sandbox.Result{Status: exec.Status{Reason: exec.Exited, Code: 1}}, ""},
		{sandbox.Result{Status: exec.Status{Reason: exec.TimedOut}, Killed: "kill"}, "timed out after 2s (killed: kill)"},
		{sandbox.Result{Status: exec.Status{Reason: exec.Cancelled}, Killed: "term"}, "cancelled (killed: term)"},
		{sandbox.Result{Status: exec.Status{Reason: exec.OutputLimit}, Killed: "reset"}, "ended at the output limit of 1000 bytes (killed: reset)"},
		{sandbox.Result{Status: exec.Status{Reason: exec.Signalled, Signal: 11}}, "ended by SIGSEGV"},
		{
			sandbox.Result{Status: exec.Status{Reason: exec.OOMKilled, Signal: 9}, MemoryLimit: 512 << 20},
			"ended by the kernel at the memory limit of 512MiB; give the session more with --memory",
		},
		{sandbox.Result{Status: exec.Status{Reason: exec.OOMKilled, Signal: 9}}, "ended by the kernel at the memory limit; give the session more with --memory"},
	} {
		if got := Ending(test.res, held); got != test.want {
			t.Errorf("ending(%+v) = %q; want %q", test.res.Status, got, test.want)
		}
	}
}

func TestSignalName(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "SIGHUP", 9: "SIGKILL", 15: "SIGTERM", 31: "SIGSYS", 32: "SIG32", 34: "SIGRTMIN+0", 64: "SIGRTMIN+30", 0: "SIG0"} {
		if got := SignalName(n); got != want {
			t.Errorf("signalName(%d) = %s; want %s", n, got, want)
		}
	}
}
