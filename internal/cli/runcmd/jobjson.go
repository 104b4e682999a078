package runcmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// JobJSON is a job as --json prints it.
type JobJSON struct {
	ID         string           `json:"id"`
	State      sandbox.JobState `json:"state"`
	Reason     exec.Reason      `json:"reason,omitempty"` // why it has ended
	ExitCode   *int             `json:"exitCode"`         // null unless exited, signalled or oom-killed
	Signal     string           `json:"signal,omitempty"`
	PID        int              `json:"pid"` // in the session; also its process group
	OutputFile string           `json:"outputFile"`
	Artifact   string           `json:"artifact,omitempty"`
	Session    string           `json:"session"`
	Owner      string           `json:"owner,omitempty"`
	Label      string           `json:"label"`
	Started    time.Time        `json:"started,omitzero"`
	Ended      time.Time        `json:"ended,omitzero"`
	WallTimeMs int64            `json:"wallTimeMs"`
	TimeoutMs  int64            `json:"timeoutMs,omitempty"` // left out: it has none
	Bytes      int64            `json:"bytes"`               // of output
	Kept       int64            `json:"kept"`                // of those, in the output file
	Full       []sandbox.Full   `json:"full,omitempty"`      // paths that had no room left when it failed; pids, memory: limits that were met
	Receipt    *sandbox.Receipt `json:"receipt"`             // null unless it has ended and its end is known
	Output     *string          `json:"output,omitempty"`
	Truncation *sink.Truncation `json:"truncation,omitempty"`
}

// NewJobJSON is the document for a job.
func NewJobJSON(out *stdio.Streams, info sandbox.JobInfo) JobJSON {
	j := JobJSON{
		ID: info.ID, State: info.State, Reason: info.Reason, PID: info.PID, OutputFile: info.OutputFile, Artifact: info.Artifact,
		Session: info.Session, Owner: info.Owner, Label: out.Scrub(info.Label), Started: info.Started, Ended: info.Ended,
		WallTimeMs: info.Elapsed.Milliseconds(), TimeoutMs: info.Timeout.Milliseconds(), Bytes: info.Bytes, Kept: info.Kept, Receipt: info.Receipt(), Full: info.Full,
	}
	if info.Signal != 0 {
		j.Signal = exit.SignalName(info.Signal)
	}
	if info.Status != nil {
		j.ExitCode = exit.Code(*info.Status)
	}
	return j
}

// Exit is how the job ended, for a table.
func (j JobJSON) Exit() string {
	switch {
	case j.ExitCode != nil:
		return strconv.Itoa(*j.ExitCode)
	case j.State == sandbox.JobRunning:
		return "-"
	default:
		return string(j.Reason)
	}
}

// TimeoutText is the timeout of a job, for a table.
func (j JobJSON) TimeoutText() string {
	if j.TimeoutMs == 0 {
		return "none"
	}
	text := (time.Duration(j.TimeoutMs) * time.Millisecond).String() // such as 1h0m0s
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// startJob starts a job in a session, and prints its id.
func (a *Runner) startJob(ctx context.Context, session *sandbox.Session, command sandbox.Command) error {
	job, err := session.StartJob(ctx, command, sandbox.JobOptions{})
	if err != nil {
		return err
	}
	info := job.Info()
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, NewJobJSON(a.streams, info))
	}
	_, err = fmt.Fprintln(a.streams.Stdout, info.ID)
	return err
}

// jobOptions make a command one that becomes a job when it takes long, if that
// was asked for.
func (a *Runner) jobOptions() *sandbox.JobOptions {
	if a.cfg.Run.BackgroundAfter == 0 {
		return nil
	}
	return &sandbox.JobOptions{
		After:   a.cfg.Run.BackgroundAfter,
		Refused: func(err error) { a.notes.Add("the command goes on in the foreground: " + exit.Words(err)) },
	}
}
