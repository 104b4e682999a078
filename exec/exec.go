// Package exec runs commands in a container, through runners. A runner is a process of
// ours inside the container that forks a command, carries its streams, and ends it.
//
// A Runner is the connection to one such process, and runs one command at a time. A Pool
// keeps several runners for a session, opened ahead of need. How a command ended comes in
// frames of package internal/wire, which the command can neither see nor forge. The content
// of its output never decides anything.
//
// The package works on streams, which its caller opens. It does not know engines.
package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// DefaultGrace is how long a process group has between SIGTERM and SIGKILL.
const DefaultGrace = 250 * time.Millisecond

// sweepTime is the most time that a runner takes to kill what is left after SIGKILL, plus
// some time for its answer to arrive.
const sweepTime = 2*time.Second + 250*time.Millisecond

// Causes that a caller gives the end of a context. They determine the Reason of a command
// that was killed by it. Any other cause means Cancelled.
var (
	ErrTimeout     = errors.New("the command has timed out")
	ErrOutputLimit = errors.New("the command's output limit is reached")
	// ErrInterrupt means that the user has sent SIGINT. The Reason is Cancelled. The command gets
	// SIGINT first, and SIGTERM a grace later.
	ErrInterrupt = errors.New("interrupted")
)

// Reason says how a command that ran has ended.
type Reason string

// Reasons.
const (
	Exited      Reason = "exited"       // by itself; Status.Code is set
	Signalled   Reason = "signalled"    // by a signal that was not ours
	TimedOut    Reason = "timed-out"    // killed because it had not ended by its timeout
	Cancelled   Reason = "cancelled"    // killed because the caller's context ended
	OOMKilled   Reason = "oom-killed"   // killed by the kernel at the memory limit
	OutputLimit Reason = "output-limit" // killed because it wrote too much
	HandedOver  Reason = "handed-over"  // not ended: it goes on as the job Status.Handed
)

// Command is a command to run. The zero value of an optional field is its default.
type Command struct {
	Path   string   // program; empty: the shell named by Shell runs Script
	Shell  string   // "bash" or "sh"
	Script string   // at most wire.MaxScript bytes, without NUL
	Args   []string // after the program's own name; $1 and so on of a script
	Env    []string // the whole environment, K=V
	Dir    string   // absolute
	UID    uint32
	GID    uint32

	// Stdin is the standard input; nil means /dev/null. It is read from the command's start
	// to its end, up to wire.StdinWindow bytes ahead of what the command reads. It is not
	// read if the command does not start. If a Read blocks when the command ends, and Stdin
	// has a method SetReadDeadline, a deadline ends the Read and is then removed. Otherwise
	// the Read keeps its goroutine until it returns.
	Stdin io.Reader
	// Stdout and Stderr get the output, in order and from one goroutine. If Stderr is nil,
	// Stdout gets both streams, in the order in which the command wrote them. If a Write
	// fails, the rest of that stream is dropped and the error is in Status.Write. A Write
	// that still blocks after a kill is abandoned, and the bytes that it did not take are
	// counted in Status.Dropped.
	Stdout io.Writer
	Stderr io.Writer

	// OnRunner, if not nil, is called with the pid of the runner in the session, before it
	// starts the command. It must not block.
	OnRunner func(pid int)
	// OnKill, if not nil, is called when the runner is asked to kill the command. It must
	// not block.
	OnKill func()

	Exclusive bool          // refuse while any other command runs in the session
	Timeout   time.Duration // from the start; 0: none
	Grace     time.Duration // from SIGTERM to SIGKILL; 0: DefaultGrace

	Job *Job // nil: the command ends with this process, at the latest

	// Watch lists file systems to check if the command fails; see Status.NoRoom. The runner
	// of an earlier version ignores it.
	Watch []string
}

// Status says how a command that ran has ended.
type Status struct {
	Reason  Reason
	Code    int           // exit code 0–255; 0 when a signal ended it
	Signal  int           // the signal that ended the leader, or 0
	Elapsed time.Duration // from the start to the end
	CPU     time.Duration // user and system time of the command and its waited-for descendants
	MaxRSS  int64         // bytes; the largest resident set of one process
	// Processes is how many processes and threads were started in the session while the
	// command ran, by it or by others. 0 if the kernel does not provide it.
	Processes int64
	Stdout    int64     // bytes that it wrote, as the runner counted them
	Stderr    int64     // bytes; 0 if the streams were merged
	Dropped   int64     // bytes of these that the writers did not take
	Rung      wire.Rung // how far the kill ladder went
	Left      int       // processes that live on in the background; the kernel proves a 0
	Write     error     // the first error of Stdout or Stderr
	Handed    *Started  // the job that the command has become, or nil
	// NoRoom lists the file systems, of Command.Watch and those in memory, that were full
	// when the command failed.
	NoRoom []wire.NoRoom
}

// An exit code that stands for a signal, as in a shell.
const (
	signalBase = 128
	sigkill    = 9 // what the kernel ends a command with at the memory limit
)

// ExitCode is the exit code that a shell would give the command: its own, or 128+n if
// signal n or the memory limit ended it. It is false for a command that was ended for
// another reason, or goes on.
func (s Status) ExitCode() (code int, ok bool) {
	switch s.Reason { //nolint:exhaustive // the others have no exit code
	case Exited:
		return s.Code, true
	case Signalled:
		return signalBase + s.Signal, true
	case OOMKilled:
		return signalBase + sigkill, true
	}
	return 0, false
}

// Outcome says what is known of a command that has no Status.
type Outcome string

// Outcomes.
const (
	NotStarted Outcome = "not-started"     // nothing has run
	Unknown    Outcome = "outcome-unknown" // it may have run, and may have ended
	Lost       Outcome = "session-lost"    // the container is gone, and the command with it
)

// Cause says why a command has no Status.
type Cause string

// Causes that this package finds.
const (
	CauseDirMissing  Cause = "directory-missing"
	CauseNotDir      Cause = "not-a-directory"
	CauseDirDenied   Cause = "directory-denied"
	CauseNoShell     Cause = "no-shell"
	CauseTooBig      Cause = "too-big"
	CauseResources   Cause = "resources-exhausted"
	CauseBusy        Cause = "busy"
	CauseCancelled   Cause = "cancelled"
	CauseRefused     Cause = "refused"          // the program could not be executed
	CauseRunnerLost  Cause = "runner-lost"      // the runner's stream ended
	CauseUnconfirmed Cause = "kill-unconfirmed" // killed, and the runner has not confirmed it
	CauseProtocol    Cause = "protocol"         // the runner speaks another version, or nonsense
	CauseEngine      Cause = "engine"           // the engine could not start a runner
	CauseJobs        Cause = "jobs"             // the session cannot keep the job
	CauseJobLimit    Cause = "job-limit"        // the limit of running jobs is reached
)

// Error reports a command that did not run, or whose end is unknown.
type Error struct {
	Outcome Outcome
	Cause   Cause
	Err     error // for people
}

func (e *Error) Error() string { return fmt.Sprintf("%s{%s}: %v", e.Outcome, e.Cause, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

func notStarted(cause Cause, format string, args ...any) *Error {
	return &Error{Outcome: NotStarted, Cause: cause, Err: fmt.Errorf(format, args...)}
}

// failure returns the error for a runner's refusal to start a command.
func failure(f wire.Failed) *Error {
	switch f.Failure {
	case wire.FailDirMissing:
		return notStarted(CauseDirMissing, "Working directory does not exist: %s", f.Detail)
	case wire.FailDirNotDir:
		return notStarted(CauseNotDir, "Working directory is not a directory: %s", f.Detail)
	case wire.FailDirDenied:
		return notStarted(CauseDirDenied, "Working directory may not be entered by the session's user: %s (errno %d)", f.Detail, f.Errno)
	case wire.FailNoShell:
		return notStarted(CauseNoShell, "the image has no %s", f.Detail)
	case wire.FailTooBig:
		return notStarted(CauseTooBig, "arguments and environment are larger than the kernel takes (2 MiB together, 128 KiB each)")
	case wire.FailResources:
		return notStarted(CauseResources, "the session is at its pids or memory limit: %s", f.Detail)
	case wire.FailBusy:
		return notStarted(CauseBusy, "the session is busy")
	case wire.FailJobs:
		return notStarted(CauseJobs, "the session cannot keep the job: %s", f.Detail)
	case wire.FailJobLimit:
		return notStarted(CauseJobLimit, "the job limit is reached")
	case wire.FailRequest:
		return notStarted(CauseProtocol, "the runner did not understand the request")
	default:
		return notStarted(CauseRefused, "%s", f.Detail)
	}
}

// maxRunners is how many commands run in a session at once.
const maxRunners = 8

// maxIdle is how long a runner beyond Ahead is kept for the next burst.
const maxIdle = time.Minute

// Options of a Pool.
type Options struct {
	// Open starts a runner process and returns its standard streams. The end of ctx must end
	// the opening, but not the streams that Open has returned.
	Open func(ctx context.Context) (io.ReadWriteCloser, error)
	// Lease is how long the container lives without contact from this process. A runner
	// lives as long, but at most a minute. It must be positive.
	Lease time.Duration
	// Paused reports whether the container is paused, so that its runners cannot answer.
	// nil means that it never is.
	Paused func(ctx context.Context) bool
	// Again is asked after each runner that could not be opened, with the error, whose cause is
	// CauseEngine. It returns nil to try again, such as while the engine is restarted, or the
	// error for the caller, whose cause it may know better. If Again is nil, nothing is tried
	// again.
	Again func(ctx context.Context, err *Error) *Error
	// Openings bounds how many runners are opened at a time by all pools that share it.
	// nil means that the pool has its own.
	Openings *Openings
	// Ahead is how many idle runners are kept open. 0 opens them on demand.
	Ahead int
}
