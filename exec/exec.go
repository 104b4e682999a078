// Package exec runs one command in one container, through a runner: the process
// of ours inside the container that forks it, carries its streams and ends it.
//
// A Runner is a connection to one such process and runs one command at a time.
// A Pool keeps several of them for a session, opened ahead of need. What a
// command does to its output never decides anything here: how it ended comes in
// frames of package internal/wire that it can neither see nor forge.
//
// The package knows streams, not engines: its caller opens them.
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

// sweepTime is how long a runner takes at most to kill what is left after
// SIGKILL, and the slack for its answer to arrive.
const sweepTime = 2*time.Second + 250*time.Millisecond

// Causes of a context's end that become reasons. Any other cause is a cancel.
var (
	ErrTimeout     = errors.New("the command's time is over")
	ErrOutputLimit = errors.New("the command's output limit is reached")
	// ErrInterrupt is a cancel by a person's SIGINT: the command gets that first.
	ErrInterrupt = errors.New("interrupted")
)

// Reason says how a command that ran has ended.
type Reason string

// Reasons.
const (
	Exited      Reason = "exited"       // by itself; Status.Code is set
	Signalled   Reason = "signalled"    // by a signal that was not ours
	TimedOut    Reason = "timed-out"    // no end was seen by its timeout, and it was killed
	Cancelled   Reason = "cancelled"    // killed because the caller's context ended
	OOMKilled   Reason = "oom-killed"   // killed by the kernel at the memory limit
	OutputLimit Reason = "output-limit" // killed because it wrote too much
	HandedOver  Reason = "handed-over"  // it has not: it goes on as the job Status.Handed
)

// Command is what to run. The zero value of an optional field is its default.
type Command struct {
	Path   string   // program; empty: the shell named by Shell runs Script
	Shell  string   // "bash" or "sh"
	Script string   // at most wire.MaxScript bytes, without NUL
	Args   []string // after the program's own name; $1 and so on of a script
	Env    []string // the whole environment, K=V
	Dir    string   // absolute
	UID    uint32
	GID    uint32

	// Stdin is read from the command's start to its end, a window ahead of it; nil is
	// /dev/null. A command that is not started leaves it unread. Where it has read
	// deadlines, one ends a Read that is under way at the command's end, and none is left.
	Stdin io.Reader
	// Stdout takes the output in order, from one goroutine at a time. A nil
	// Stderr merges both streams into it, in true order. An error of Write
	// drops the rest of that stream and is reported in the Status. A Write that
	// still blocks when the command has been killed is given up on, and what it
	// did not take is counted in Status.Dropped.
	Stdout io.Writer
	Stderr io.Writer

	// OnKill is called, if not nil, when the runner is asked to end the command. It
	// must not block.
	OnKill func()

	Exclusive bool          // refuse while any other command runs in the session
	Timeout   time.Duration // from the start; 0: none
	Grace     time.Duration // from SIGTERM to SIGKILL; 0: DefaultGrace

	Job *Job // nil: the command ends with this process, at the latest

	// Watch are file systems to look at if it fails: see Status.NoRoom. A runner of an
	// earlier version takes none.
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
	// Processes is how many processes and threads began in the session meanwhile:
	// at most so many are the command's. 0 if its kernel does not tell.
	Processes int64
	Stdout    int64     // bytes it wrote, by the runner's count
	Stderr    int64     // bytes; 0 when merged
	Dropped   int64     // bytes of those that the writers did not take
	Rung      wire.Rung // how far the kill ladder went
	Left      int       // processes that live on in the background; 0 is proved by the kernel
	Write     error     // the first error of Stdout or Stderr
	Handed    *Started  // the job that the command has become
	// NoRoom lists what of Command.Watch, and of what is in memory, was full when the
	// command failed.
	NoRoom []wire.NoRoom
}

// Outcome says what is known of a command without a Status.
type Outcome string

// Outcomes.
const (
	NotStarted Outcome = "not-started"     // nothing has run
	Unknown    Outcome = "outcome-unknown" // it may have run, and may have ended
	Lost       Outcome = "session-lost"    // the container is gone, and the command with it
)

// Cause is a word for why there is no Status.
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

// failure turns a runner's refusal into an error.
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
	// Open starts a runner process and returns its standard streams. It must
	// honour its context for the opening only.
	Open func(ctx context.Context) (io.ReadWriteCloser, error)
	// Lease is how long the container lives without contact from this process, and
	// a runner, but at most a minute. It must be positive.
	Lease time.Duration
	// Paused reports whether the container is paused, so that its runners cannot
	// answer. nil: it never is.
	Paused func(ctx context.Context) bool
	// Again reports whether a runner that could not be opened is worth another try:
	// an engine that is being restarted is soon there again. nil: it never is.
	Again func(ctx context.Context) bool
	// Openings bounds how many runners are opened at a time, over all pools of an
	// engine. nil: one of this pool's own.
	Openings *Openings
	// Ahead is how many idle runners are kept open. 0 opens them on demand.
	Ahead int
}
