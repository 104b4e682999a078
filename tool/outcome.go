package tool

import (
	"errors"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Outcome is what became of a plan, whoever ran it: a session, a terminal of it, or
// the client's own terminal. It has a Reason or an Err.
type Outcome struct {
	Reason  exec.Reason
	Code    int           // of exec.Exited
	Signal  int           // of exec.Signalled
	Elapsed time.Duration // from the start to the end
	// Output is what is kept of the output, by AgentOutput or ModesOutput.
	Output sink.Output
	Plain  *PlainStreams // instead of Output, for contract plain; nil is no output
	// Err is why there is no reason: an *exec.Error says whether it may have run.
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

// RunInfo is what else is known of a run. It is off the model's path.
type RunInfo struct {
	CPUMs       int64  `json:"cpuMs,omitempty"`
	MaxRSSBytes int64  `json:"maxRssBytes,omitempty"`
	Background  int    `json:"background,omitempty"` // processes that live on
	Killed      string `json:"killed,omitempty"`     // how far the kill had to go
	Where       string `json:"where,omitempty"`      // "client": not in the session
	// Receipt is what the kernel says of it; nil of what did not run in the session or
	// has not ended.
	Receipt *sandbox.Receipt `json:"receipt,omitempty"`
	// StateLost is why the exported variables and functions of the shell are gone.
	StateLost string `json:"stateLost,omitempty"`
}

// signalled is added to a signal's number for an exit code, as a shell does.
const (
	signalled = 128
	sigkill   = 9
)

// exitCode is the code of a command that has ended by itself or by a signal.
func (o Outcome) exitCode() (code int, ok bool) {
	switch o.Reason {
	case exec.Exited:
		return o.Code, true
	case exec.Signalled:
		return signalled + o.Signal, true
	case exec.OOMKilled:
		return signalled + sigkill, true
	default:
		return 0, false
	}
}

// end is how a plan ended, as far as the texts of the contracts tell it apart.
type end int

const (
	ended      end = iota // there is an exit code
	timedOut              // ended at its deadline
	cancelled             // ended by the caller, or by the program's own end
	overLimit             // ended because it wrote too much
	notStarted            // nothing has run
	unknownEnd            // it may have run, and nobody knows how it ended
)

func (o Outcome) end() end {
	if e, ok := errors.AsType[*exec.Error](o.Err); ok {
		switch {
		case e.Cause == exec.CauseCancelled:
			return cancelled
		case e.Outcome == exec.NotStarted:
			return notStarted
		}
		return unknownEnd
	}
	if o.Err != nil {
		return notStarted
	}
	switch o.Reason {
	case exec.TimedOut:
		return timedOut
	case exec.Cancelled:
		return cancelled
	case exec.OutputLimit:
		return overLimit
	case exec.Exited, exec.Signalled, exec.OOMKilled:
		return ended
	default:
		return unknownEnd
	}
}

// cause is the words of the error, without those that are for programs.
func (o Outcome) cause() string {
	if e, ok := errors.AsType[*exec.Error](o.Err); ok && e.Err != nil {
		return e.Err.Error()
	}
	if o.Err == nil {
		return "nobody knows how it ended"
	}
	return o.Err.Error()
}

// ClientExit makes an outcome of what a client says of the end of its terminal's
// command. Any signal is taken for SIGKILL; neither of the two means that nobody
// knows.
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
