package tool

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Details are the details of a result of contract agent, as JSON. The fields after
// Async are ours, not the contract's.
type Details struct {
	TimeoutSeconds          float64  `json:"timeoutSeconds"`
	RequestedTimeoutSeconds *float64 `json:"requestedTimeoutSeconds,omitempty"`
	WallTimeMs              *int64   `json:"wallTimeMs,omitempty"`
	ExitCode                *int     `json:"exitCode,omitempty"` // never 0
	TerminalID              string   `json:"terminalId,omitempty"`
	Meta                    *Meta    `json:"meta,omitempty"`
	Async                   *Async   `json:"async,omitempty"`

	Reason     exec.Reason `json:"reason,omitempty"`
	ArtifactID string      `json:"artifactId,omitempty"` // if there is a file
	Run        *RunInfo    `json:"run,omitempty"`
}

// Meta is what is known of a result's text.
type Meta struct {
	Truncation *sink.Truncation `json:"truncation,omitempty"`
}

// Async names the job that a result belongs to.
type Async struct {
	State sandbox.JobState `json:"state"`
	JobID string           `json:"jobId"`
	Type  string           `json:"type"` // "bash"
}

// AgentOutput says what is kept of a command's output for contract agent: the end
// of both streams together. A terminal's line ends are made LFs.
func AgentOutput(s Settings, route Route) sink.Options {
	opts := sink.Options{Streams: sink.Merged, Window: sink.HeadTail(s.HeadBytes, s.WindowBytes)}
	if route == Terminal {
		opts.Text.Return = sink.NewlineReturn
	}
	return opts
}

// details is what every result of a plan has.
func (p Plan) details() *Details {
	return &Details{TimeoutSeconds: p.Timeout.Seconds, RequestedTimeoutSeconds: p.Timeout.Requested}
}

// Result implements Contract.
func (agentContract) Result(p Plan, o Outcome) Result {
	if r, refused := p.Refused(); refused {
		return r
	}
	d := p.outcomeDetails(o)
	switch o.End() {
	case EndExited:
		return agentEnded(p, o, d)
	case EndTimedOut:
		return thrown(ToolError, interrupted(o, p.Timeout.Message(), p.Timeout.Message()), d)
	case EndCancelled:
		how := ToolError
		if o.Aborted {
			how = ToolAbort
		}
		return thrown(how, interrupted(o, "Command cancelled", "Command aborted"), d)
	case EndOverLimit:
		return thrown(ToolError, prefixed(o.Output.Stdout, "Command wrote more than the output limit"), d)
	case EndNotStarted:
		return thrown(ToolError, o.Cause(), d)
	default:
		text := agentText(p, o) + "\n\nCommand failed: missing exit status"
		return thrown(ToolError, text, d)
	}
}

func (p Plan) outcomeDetails(o Outcome) *Details {
	d := p.details()
	d.Reason = o.Reason
	if o.Output.Artifact.Stored {
		d.ArtifactID = o.Output.Artifact.ID
	}
	run := o.Run
	if o.Client != nil {
		d.TerminalID, run.Where = o.Client.ID, "client"
	}
	if !reflect.ValueOf(run).IsZero() {
		d.Run = &run
	}
	if o.End() != EndNotStarted {
		ms := o.Elapsed.Milliseconds()
		d.WallTimeMs = &ms
	}
	return d
}

// agentEnded is the result of a command that has an exit code.
func agentEnded(p Plan, o Outcome, d *Details) Result {
	r := Result{Text: agentText(p, o), Details: d}
	if code, _ := o.exitCode(); code != 0 {
		d.ExitCode, r.IsError = &code, true
		r.Text += fmt.Sprintf("\n\nCommand exited with code %d", code)
	}
	if t := Truncation(o.Output.Stdout, o.Output.Artifact); t != nil {
		d.Meta = &Meta{Truncation: t}
		r.Text += truncationNotice(o.Output.Stdout, o.Output.Artifact)
	}
	return r
}

// agentText is the output and what is said of the run, without its end.
func agentText(p Plan, o Outcome) string {
	output, _ := applyHeadTail(o.Output.Stdout.Text(), p.Head, p.Tail)
	if output == "" {
		output = "(no output)"
	}
	lines := []string{output, "", wallTime(o.Elapsed)}
	if o.Client != nil && o.Client.Truncated {
		lines = append(lines, "(output truncated)")
	}
	lines = append(lines, p.Notices...)
	for _, f := range o.Run.Full {
		lines = append(lines, f.String())
	}
	lines = append(lines, o.Run.Network.Text()...)
	if o.Run.Offline {
		lines = append(lines, sandbox.OfflineText)
	}
	return strings.Join(lines, "\n")
}

func wallTime(d time.Duration) string { return fmt.Sprintf("Wall time: %.2f seconds", d.Seconds()) }

// interrupted is the text for a command that was ended. One in a terminal shows its
// output alone, if it has any; the client's shows that only for a timeout.
func interrupted(o Outcome, notice, empty string) string {
	shown := o.Output.Stdout.Text()
	switch {
	case o.Client != nil && o.End() == EndCancelled:
		return empty
	case o.Client == nil && !o.Terminal:
		return prefixed(o.Output.Stdout, notice)
	case shown == "":
		return empty
	}
	return shown
}
