package tool

import (
	"errors"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Outcome says how a plan ended. The plan was run in a session, in one of its
// terminals, or in the client's own terminal. An Outcome has a Reason or an Err.
type Outcome struct {
	Reason  exec.Reason
	Code    int           // of exec.Exited
	Signal  int           // of exec.Signalled
	Elapsed time.Duration // from the start to the end
	// Output is what is kept of the output, by AgentOutput or ModesOutput.
	Output sink.Output
	Plain  *PlainStreams // instead of Output, for contract plain; nil: the command has written nothing
	// Err is why there is no Reason: an *exec.Error says whether the command may have run.
	Err error

	Aborted  bool    // the caller itself has cancelled
	Terminal bool    // it ran in a terminal of the session
	Client   *Client // it ran in the client's terminal
	Run      RunInfo
}

// Client is the client's terminal that a command ran in.
type Client struct {
	ID        string
	Truncated bool // the client did not give all of the output
}

// RunInfo holds further facts about a run. The model does not see them.
type RunInfo struct {
	CPUMs       int64  `json:"cpuMs,omitempty"`
	MaxRSSBytes int64  `json:"maxRssBytes,omitempty"`
	Background  int    `json:"background,omitempty"` // processes that live on
	Killed      string `json:"killed,omitempty"`     // how far the kill had to go
	Where       string `json:"where,omitempty"`      // "client": not in the session
	// Full lists the paths that had no room left when it failed, and pids or memory if that limit was met.
	Full []sandbox.Full `json:"full,omitempty"`
	// Network is what the rules refused while it ran, and how much they allowed; nil if nothing
	// was asked of them.
	Network *sandbox.NetworkUse `json:"network,omitempty"`
	// Offline is sandbox.Result.Offline.
	Offline bool `json:"offline,omitempty"`
	// Receipt is the kernel's account of it; nil if the command did not run in the
	// session or has not ended.
	Receipt *sandbox.Receipt `json:"receipt,omitempty"`
	// StateLost is why the exported variables and functions of the shell are gone.
	StateLost string `json:"stateLost,omitempty"`
}

// sigkill is its number on Linux.
const sigkill = 9

// exitCode is the code of a command that has ended by itself or by a signal.
func (o Outcome) exitCode() (code int, ok bool) {
	return exec.Status{Reason: o.Reason, Code: o.Code, Signal: o.Signal}.ExitCode()
}

// End says how a plan ended. It has a value for each ending that contracts word differently.
type End int

// Ends.
const (
	EndExited     End = iota // there is an exit code
	EndTimedOut              // ended at its deadline
	EndCancelled             // ended by the caller, or by the program's own end
	EndOverLimit             // ended because it wrote too much
	EndNotStarted            // nothing has run
	EndUnknown               // it may have run, and its end is not known
)

// End says how the plan ended.
func (o Outcome) End() End {
	if o.Err != nil {
		switch j := sandbox.Judge(o.Err); {
		case j.Fault == sandbox.FaultCaller:
			return EndCancelled
		case j.Outcome == exec.NotStarted:
			return EndNotStarted
		}
		return EndUnknown
	}
	switch o.Reason {
	case exec.TimedOut:
		return EndTimedOut
	case exec.Cancelled:
		return EndCancelled
	case exec.OutputLimit:
		return EndOverLimit
	case exec.Exited, exec.Signalled, exec.OOMKilled:
		return EndExited
	default:
		return EndUnknown
	}
}

// Cause returns the text of the error, without the codes that are for programs.
func (o Outcome) Cause() string {
	if o.Err == nil {
		return "its end is not known"
	}
	return sandbox.Judge(o.Err).Message
}

// ClientExit returns the outcome of a command in the client's terminal. Any signal
// counts as SIGKILL. If the client gives neither a code nor a signal, the end is not
// known.
func ClientExit(code *int, signal string) Outcome {
	switch {
	case code != nil:
		return Outcome{Reason: exec.Exited, Code: *code}
	case signal != "":
		return Outcome{Reason: exec.Signalled, Signal: sigkill}
	default:
		return Outcome{Err: &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseProtocol, Err: errNoStatus}}
	}
}

var errNoStatus = errors.New("the client gave no exit status")
