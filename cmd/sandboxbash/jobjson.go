package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// jobJSON is a job as --json prints it.
type jobJSON struct {
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
	TimeoutMs  int64            `json:"timeoutMs,omitempty"`
	Bytes      int64            `json:"bytes"`   // of output
	Kept       int64            `json:"kept"`    // of those, in the output file
	Receipt    *sandbox.Receipt `json:"receipt"` // null unless it has ended and its end is known
	Output     *string          `json:"output,omitempty"`
	Truncation *sink.Truncation `json:"truncation,omitempty"`
}

func (a *app) newJobJSON(info sandbox.JobInfo) jobJSON {
	j := jobJSON{
		ID: info.ID, State: info.State, Reason: info.Reason, PID: info.PID, OutputFile: info.OutputFile, Artifact: info.Artifact,
		Session: info.Session, Owner: info.Owner, Label: a.scrub(info.Label), Started: info.Started, Ended: info.Ended,
		WallTimeMs: info.Elapsed.Milliseconds(), TimeoutMs: info.Timeout.Milliseconds(), Bytes: info.Bytes, Kept: info.Kept, Receipt: info.Receipt(),
	}
	if info.Signal != 0 {
		j.Signal = signalName(info.Signal)
	}
	switch info.Reason { //nolint:exhaustive // the others have no exit code
	case exec.Exited, exec.Signalled, exec.OOMKilled:
		code := commandStatus(*info.Status)
		j.ExitCode = &code
	}
	return j
}

// exit is how the job ended, for a table.
func (j jobJSON) exit() string {
	switch {
	case j.ExitCode != nil:
		return strconv.Itoa(*j.ExitCode)
	case j.State == sandbox.JobRunning:
		return "-"
	default:
		return string(j.Reason)
	}
}

// startJob starts a job in a session, and tells how to find it.
func (a *app) startJob(ctx context.Context, session *sandbox.Session, command sandbox.Command) error {
	job, err := session.StartJob(ctx, command, sandbox.JobOptions{})
	if err != nil {
		return err
	}
	info := job.Info()
	if a.cfg.JSON {
		return printJSON(a.stdout, a.newJobJSON(info))
	}
	_, err = fmt.Fprintf(a.stdout, "%s %d %s\n", info.ID, info.PID, info.OutputFile)
	return err
}

// jobOptions make a command one that becomes a job when it takes long, if that
// was asked for.
func (a *app) jobOptions() *sandbox.JobOptions {
	if a.cfg.Run.BackgroundAfter == 0 {
		return nil
	}
	return &sandbox.JobOptions{
		After:   a.cfg.Run.BackgroundAfter,
		Refused: func(err error) { a.note("the command goes on in the foreground: " + wordsOf(err)) },
	}
}
