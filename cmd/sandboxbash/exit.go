package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Exit statuses that are not a command's own. 124 to 126 are those of timeout(1)
// and docker-run(1); 128+n stands for signal n, as in a shell.
const (
	statusFindings    = 1 // differences, failed checks, nothing found
	statusUsage       = 2 // wrong use, bad input; nothing has run
	statusOutputLimit = 122
	statusHandedOver  = 123 // it goes on as a job
	statusTimeout     = 124
	statusEngine      = 125 // the engine failed, or the outcome is lost or unknown
	statusDenied      = 126
	statusCancelled   = 130 // 128+SIGINT
	statusOOM         = 137 // 128+SIGKILL
	statusBrokenPipe  = 141 // 128+SIGPIPE
	signalBase        = 128
)

// errBrokenPipe is the cause of a run that ended because nobody reads its output.
var errBrokenPipe = errors.New("nobody reads the output any more")

// usageError is wrong use of a command.
type usageError struct {
	text string
	todo string // what to do; may be ""
}

func (e *usageError) Error() string { return e.text }

func misuse(todo, format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...), todo: todo}
}

// statusError ends the program with a status and prints nothing: all has been
// said.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// commandStatus is the exit status for a command that ran.
func commandStatus(st exec.Status) int {
	switch st.Reason {
	case exec.Signalled:
		return signalBase + st.Signal
	case exec.OOMKilled:
		return statusOOM
	case exec.TimedOut:
		return statusTimeout
	case exec.Cancelled:
		return statusCancelled
	case exec.OutputLimit:
		return statusOutputLimit
	case exec.HandedOver:
		return statusHandedOver
	case exec.Exited:
		return st.Code
	default:
		return statusEngine
	}
}

// causes of ends that are the caller's input.
var inputCauses = map[exec.Cause]bool{
	exec.CauseDirMissing: true, exec.CauseNotDir: true, exec.CauseDirDenied: true,
	exec.CauseNoShell: true, exec.CauseTooBig: true, exec.CauseBusy: true, exec.CauseJobLimit: true,
}

// verdict is what is told of an error: the exit status, and for JSON how much
// is known of the command and why.
type verdict struct {
	status  int
	outcome exec.Outcome
	cause   string
	todo    string // what to do; may be ""
}

// judge says what an error means. It decides by types, never by texts.
func judge(err error) verdict {
	v := verdict{status: statusEngine, outcome: exec.NotStarted, cause: "engine"}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return judgeExec(e)
	}
	if e, ok := errors.AsType[*handoverError](err); ok {
		return e.verdict()
	}
	if e, ok := errors.AsType[*usageError](err); ok {
		return verdict{statusUsage, exec.NotStarted, "usage", e.todo}
	}
	if e, ok := errors.AsType[*policy.Denial](err); ok {
		return verdict{statusDenied, exec.NotStarted, "denied", insteadOf(e.Decision)}
	}
	if e, ok := errors.AsType[*sandbox.InputError](err); ok {
		return verdict{statusUsage, exec.NotStarted, "bad-" + e.Field, ""}
	}
	if _, ok := errors.AsType[*sandbox.ForeignBindError](err); ok {
		return verdict{statusUsage, exec.NotStarted, "foreign-bind", ""}
	}
	if isConfig(err) {
		return verdict{statusUsage, exec.NotStarted, "bad-config", "correct it; `sandboxbash help config` lists the keys"}
	}
	switch {
	case errors.Is(err, sandbox.ErrUnknownSession):
		v = verdict{statusUsage, exec.NotStarted, "unknown-session", "list the sessions with `sandboxbash session ls`, or start one with `sandboxbash session start`"}
	case errors.Is(err, sandbox.ErrUnknownJob):
		v = verdict{statusUsage, exec.NotStarted, "unknown-job", "list the jobs with `sandboxbash job ls`"}
	case errors.Is(err, sandbox.ErrJobRunning):
		v = verdict{statusUsage, exec.NotStarted, "job-running", "end it first with `sandboxbash job kill`"}
	case errors.Is(err, errUnknownTerminal):
		v = verdict{statusUsage, exec.NotStarted, "unknown-terminal", "list the terminals with `sandboxbash pty ls`, or start one with `sandboxbash pty start`"}
	case errors.Is(err, sink.ErrNotFound):
		v = verdict{statusUsage, exec.NotStarted, "unknown-artifact", "list the artifacts with `sandboxbash artifact ls`"}
	case isImage(err):
		v.status, v.cause = statusUsage, "unknown-image"
	case isPosture(err):
		v.cause, v.todo = "posture", "see what this engine can do with `sandboxbash doctor`"
	case errors.Is(err, engine.ErrUnreachable):
		v.cause = "unreachable"
	case errors.Is(err, engine.ErrTooOld):
		v.cause = "engine-too-old"
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		v.status, v.cause = statusCancelled, string(exec.CauseCancelled)
	}
	return v
}

// insteadOf says where a script was refused, and what to use in its place.
func insteadOf(d policy.Decision) string {
	text := "see what it sees with `sandboxbash policy explain`"
	if d.Tool != "" {
		text = "use the tool " + d.Tool + " instead; " + text
	}
	if d.Position != (policy.Position{}) {
		text = fmt.Sprintf("at line %d, column %d; %s", d.Position.Line, d.Position.Column, text)
	}
	return text
}

func judgeExec(e *exec.Error) verdict {
	v := verdict{status: statusEngine, outcome: e.Outcome, cause: string(e.Cause)}
	switch {
	case e.Cause == exec.CauseCancelled:
		v.status = statusCancelled
	case e.Outcome == exec.NotStarted && inputCauses[e.Cause]:
		v.status = statusUsage
	}
	switch e.Cause { //nolint:exhaustive // the others say all there is to say
	case exec.CauseNoShell:
		v.todo = "use another image, or the POSIX shell with --shell sh"
	case exec.CauseDirMissing, exec.CauseNotDir, exec.CauseDirDenied:
		v.todo = "name a directory of the session with --cwd; without it the command runs in the workspace"
	case exec.CauseBusy:
		v.todo = "try again later, or leave --exclusive out to wait in the queue"
	case exec.CauseResources:
		v.todo = "stop the session and start one with more --pids or --memory"
	case sandbox.CauseUnrecorded:
		v.todo = "audit.required is on: see to the log's directory, and check the log with `sandboxbash audit verify`"
	case exec.CauseRunnerLost, exec.CauseUnconfirmed:
		v.todo = "nobody can tell whether the command has ended: look at its effects before running it again"
	}
	return v
}

func isConfig(err error) bool {
	_, bad := errors.AsType[*config.Error](err)
	_, unknown := errors.AsType[*config.UnknownKeyError](err)
	return bad || unknown
}

func isImage(err error) bool {
	_, bad := errors.AsType[*images.InvalidRefError](err)
	_, missing := errors.AsType[*images.UnresolvedError](err)
	return bad || missing
}

func isPosture(err error) bool {
	_, ok := errors.AsType[*sandbox.PostureError](err)
	return ok
}

// wordsOf is what is told of an error. Of a command that has not started its
// outcome and cause are no help to a reader: the sentence behind them is.
func wordsOf(err error) string {
	if e, ok := errors.AsType[*exec.Error](err); ok && e.Outcome == exec.NotStarted && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// report prints an error, what to do about it indented below.
func report(w io.Writer, text, todo string) {
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
	if todo != "" {
		text += "\n  " + todo
	}
	fmt.Fprintf(w, "sandboxbash: %s\n", text)
}
