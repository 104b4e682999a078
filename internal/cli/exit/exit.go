// Package exit says how a call of the program ends: its exit statuses, what an error
// means and what to do about it, and in words how a command ended.
package exit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Exit statuses that are not a command's own. 124 to 126 are those of timeout(1)
// and docker-run(1); 128+n stands for signal n, as in a shell.
const (
	Findings    = 1 // differences, failed checks, nothing found
	Usage       = 2 // wrong use, bad input; nothing has run
	OutputLimit = 122
	HandedOver  = 123 // it goes on as a job
	Timeout     = 124
	Engine      = 125 // the engine failed, or the outcome is lost or unknown
	Denied      = 126
	Cancelled   = 130 // 128+SIGINT
	BrokenPipe  = 141 // 128+SIGPIPE
)

// ErrInterrupted is the cause of a context that a signal has ended.
var ErrInterrupted = errors.New("interrupted")

// InterruptError is errInterrupted by SIGINT, which commands get as such.
type InterruptError struct{}

func (InterruptError) Error() string { return ErrInterrupted.Error() }

// Is reports whether target says that a person has interrupted the program.
func (InterruptError) Is(target error) bool {
	return target == ErrInterrupted || target == exec.ErrInterrupt
}

// ErrHangup is the cause of a context that ended because this process's terminal has gone. It is an
// ErrInterrupted, too.
var ErrHangup error = hangupError{}

type hangupError struct{}

func (hangupError) Error() string { return ErrInterrupted.Error() }

func (hangupError) Unwrap() error { return ErrInterrupted }

// ErrBrokenPipe is the cause of a run that ended because its output has no reader any more.
var ErrBrokenPipe = errors.New("the reader of the output has gone")

// UsageError is wrong use of a command.
type UsageError struct {
	Text string
	Todo string // what to do; may be ""
}

func (e *UsageError) Error() string { return e.Text }

// Misuse returns a UsageError: its text, and what to do.
func Misuse(todo, format string, args ...any) error {
	return &UsageError{Text: fmt.Sprintf(format, args...), Todo: todo}
}

// StatusError ends the program with a status and prints nothing.
type StatusError int

func (e StatusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// OfCommand is the exit status for a command that ran.
func OfCommand(st exec.Status) int {
	switch st.Reason {
	case exec.TimedOut:
		return Timeout
	case exec.Cancelled:
		return Cancelled
	case exec.OutputLimit:
		return OutputLimit
	case exec.HandedOver:
		return HandedOver
	default: // it has an exit code
	}
	if code, ok := st.ExitCode(); ok {
		return code
	}
	return Engine
}

// Code is the exit code of a command as JSON has it: nil unless it exited, or a signal or
// the memory limit ended it.
func Code(st exec.Status) *int {
	if code, ok := st.ExitCode(); ok {
		return &code
	}
	return nil
}

// statuses are the exit statuses of errors.
var statuses = map[sandbox.Fault]int{
	sandbox.FaultEngine: Engine, sandbox.FaultInput: Usage, sandbox.FaultPolicy: Denied, sandbox.FaultCaller: Cancelled, sandbox.FaultConflict: Findings,
}

// todos say what to do about an error of a cause. The others say all there is to say.
var todos = map[exec.Cause]string{
	exec.CauseNoShell:            "use another image, or the POSIX shell with --shell sh",
	exec.CauseDirMissing:         nameDir,
	exec.CauseNotDir:             nameDir,
	exec.CauseDirDenied:          nameDir,
	exec.CauseBusy:               "try again later, or leave out --exclusive to wait in the queue",
	exec.CauseResources:          "stop the session and start one with more --pids or --memory",
	exec.CauseRunnerLost:         lookFirst,
	exec.CauseUnconfirmed:        lookFirst,
	sandbox.CauseUnrecorded:      "audit.required is on: see to the log's directory, and check the log with `sandboxbash audit verify`",
	sandbox.CauseConflict:        "see the session's side with `sandboxbash session diff`, and pull to another directory, or overwrite what was changed here with `sandboxbash session pull --force`",
	sandbox.CauseUnmerged:        "see the session's side with `sandboxbash session diff -u`, then merge the named files by hand, or name paths that can be applied",
	sandbox.CauseApplying:        "try again when it has ended",
	sandbox.CauseUnknownCache:    "list the caches with `sandboxbash cache ls`",
	sandbox.CausePaused:          "resume it with `sandboxbash session resume`",
	sandbox.CauseUnknownSession:  "list the sessions with `sandboxbash session ls`, or start one with `sandboxbash session start`",
	sandbox.CauseUnknownJob:      "list the jobs with `sandboxbash job ls`",
	sandbox.CauseJobRunning:      "end it first with `sandboxbash job stop`",
	sandbox.CauseUnknownArtifact: "list the artifacts with `sandboxbash artifact ls`",
	sandbox.CauseUnknownImage:    "name another image with --image; --image host is a snapshot of this machine's programs",
	sandbox.CausePosture:         "see what this engine can do with `sandboxbash doctor`",
}

const (
	nameDir   = "name a directory of the session with --cwd; without it the command runs in the workspace"
	lookFirst = "it is unknown whether the command has ended: look at its effects before running it again"
)

// Verdict is what the user learns of an error: the exit status, and in JSON how
// much is known of the command and why.
type Verdict struct {
	Status  int
	Outcome exec.Outcome
	Cause   string
	Todo    string // what to do; may be ""
}

// verdicter is an error that says itself what it means.
type verdicter interface {
	error
	Verdict() Verdict
}

// Judge says what an error means. It decides by types, never by texts: sandbox.Judge does,
// and this adds errors of the command line's own, exit statuses and words.
func Judge(err error) Verdict {
	v := judged(err)
	if v.Todo == "" {
		v.Todo = Hint(err)
	}
	return v
}

// judged is Judge but for the hints of package sandbox.
func judged(err error) Verdict {
	_, ran := errors.AsType[*exec.Error](err)
	if !ran {
		if e, ok := errors.AsType[verdicter](err); ok {
			return e.Verdict()
		}
		if e, ok := errors.AsType[*UsageError](err); ok {
			return Verdict{Usage, exec.NotStarted, "usage", e.Todo}
		}
		if IsConfig(err) {
			return Verdict{Usage, exec.NotStarted, "bad-config", "correct it; `sandboxbash help config` lists the keys"}
		}
	}
	j := sandbox.Judge(err)
	if !ran && j.Cause == exec.CauseEngine && (errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled)) {
		j.Fault, j.Cause = sandbox.FaultCaller, exec.CauseCancelled
	}
	v := Verdict{statuses[j.Fault], j.Outcome, string(j.Cause), todos[j.Cause]}
	if d, ok := errors.AsType[*policy.Denial](err); ok && !ran {
		v.Todo = insteadOf(d.Decision)
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

// IsConfig reports whether err is about the configuration.
func IsConfig(err error) bool {
	_, bad := errors.AsType[*config.Error](err)
	_, unknown := errors.AsType[*config.UnknownKeyError](err)
	return bad || unknown
}

// Words is the text of an error. For a command that has not started, its
// outcome and cause do not help a reader: the sentence after them does.
func Words(err error) string {
	if e, ok := errors.AsType[*exec.Error](err); ok && e.Outcome == exec.NotStarted && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// Report prints an error, what to do about it indented below. name is the program's, perhaps in a
// colour.
func Report(w io.Writer, name, text, todo string) {
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
	if todo != "" {
		text += "\n  " + todo
	}
	fmt.Fprintf(w, "%s %s\n", name, text)
}

// Limits are what a command was held to, for ending to name.
type Limits struct {
	Timeout time.Duration // 0: not known
	Output  int64         // bytes
}

// Ending says how a command ended that did not exit by itself; "" if it did.
func Ending(res sandbox.Result, held Limits) string {
	var text string
	switch res.Reason {
	case exec.TimedOut:
		text = "timed out"
		if held.Timeout > 0 {
			text += fmt.Sprintf(" after %v", held.Timeout)
		}
	case exec.Cancelled:
		text = "cancelled"
	case exec.OutputLimit:
		text = fmt.Sprintf("ended at the output limit of %d bytes", held.Output)
	case exec.OOMKilled:
		text = "ended by the kernel at the memory limit"
		if res.MemoryLimit > 0 {
			text += " of " + units.BytesSize(float64(res.MemoryLimit))
		}
		return text + "; give the session more with --memory"
	case exec.Signalled:
		return "ended by " + SignalName(res.Signal)
	case exec.HandedOver:
		return fmt.Sprintf("it goes on as job %s, process group %d, with its output in %s", res.Job.ID(), res.Job.Info().PID, res.Job.Info().OutputFile)
	case exec.Exited:
		return ""
	}
	if res.Killed != "" {
		text += fmt.Sprintf(" (killed: %s)", res.Killed)
	}
	return text
}

const firstRealtime = 34 // SIGRTMIN of the GNU C library

// SignalName is the name of a signal of Linux, such as SIGTERM.
func SignalName(n int) string {
	if n >= firstRealtime {
		return fmt.Sprintf("SIGRTMIN+%d", n-firstRealtime)
	}
	return cmp.Or(wire.SignalName(n), "SIG"+strconv.Itoa(n))
}

// With is the error that ends the program with a status; nil for 0.
func With(status int) error {
	if status == 0 {
		return nil
	}
	return StatusError(status)
}
