package runcmd

import (
	"errors"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// ResultJSON is a command's result as --json prints it. Where there is none,
// Error is set, Reason is null, and the output is what there was so far.
type ResultJSON struct {
	Stdout          string         `json:"stdout"`
	Stderr          string         `json:"stderr"`
	Reason          *exec.Reason   `json:"reason"`
	ExitCode        *int           `json:"exitCode"` // null unless exited, signalled or oom-killed
	Signal          string         `json:"signal,omitempty"`
	WallTimeMs      int64          `json:"wallTimeMs"`
	Usage           usageJSON      `json:"usage"`
	Bytes           bytesJSON      `json:"bytes"`                     // written by the command
	Binary          bool           `json:"binary,omitempty"`          // the text is not faithful: it has NULs, or is not UTF-8
	Killed          string         `json:"killed,omitempty"`          // how far the kill had to go
	WorkspaceLost   bool           `json:"workspaceLost,omitempty"`   // it was in memory (--disk), and went with the container's reset
	LeftoversKilled bool           `json:"leftoversKilled,omitempty"` // of earlier commands, to make room
	Background      int            `json:"background,omitempty"`      // processes that live on
	Full            []sandbox.Full `json:"full,omitempty"`            // paths that had no room left when it failed; pids, memory: limits that were met
	// Network is what rules refused while it ran, and how much they allowed.
	Network *sandbox.NetworkUse `json:"network,omitempty"`
	// Offline is a hint: the session has no network, and the output ends as if a name had not resolved.
	Offline bool `json:"offline,omitempty"`
	// Ports are those that a process of the session has begun to listen to.
	Ports []sandbox.Port `json:"ports,omitempty"`
	// Receipt is null if the command did not end, or its end is unknown.
	Receipt    *sandbox.Receipt `json:"receipt"`
	Session    string           `json:"session"`
	Artifact   *artifactJSON    `json:"artifact,omitempty"`
	Truncation *truncationJSON  `json:"truncation,omitempty"`
	Policy     *policyJSON      `json:"policy,omitempty"` // unless it is sure that the script may run
	Job        *JobJSON         `json:"job,omitempty"`    // that the command has become
	PTY        *bool            `json:"pty,omitempty"`    // with --pty: whether there was a terminal to run on
	Notes      []string         `json:"notes,omitempty"`
	Error      *core.ErrorJSON  `json:"error,omitempty"`
}

type usageJSON struct {
	CPUMs       int64 `json:"cpuMs"`
	MaxRSSBytes int64 `json:"maxRssBytes"`
}

type bytesJSON struct {
	Stdout  int64 `json:"stdout"`
	Stderr  int64 `json:"stderr"`
	Dropped int64 `json:"dropped,omitempty"` // of these: not taken in time, and lost
}

type artifactJSON struct {
	ID       string `json:"id"`
	Path     string `json:"path,omitempty"`
	Bytes    int64  `json:"bytes"`
	Complete bool   `json:"complete"`
	Cause    string `json:"cause,omitempty"` // why it is not
}

type truncationJSON struct {
	Stdout *sink.Truncation `json:"stdout,omitempty"`
	Stderr *sink.Truncation `json:"stderr,omitempty"`
}

type policyJSON struct {
	Verdict policy.Verdict `json:"verdict"`
	Rule    string         `json:"rule"`
	Reason  string         `json:"reason"`
}

// newPolicyJSON is nil for what is allowed, and where there is no policy.
func newPolicyJSON(d policy.Decision, err error) *policyJSON {
	if denial, ok := errors.AsType[*policy.Denial](err); ok {
		d = denial.Decision
	}
	if d.Verdict == "" || d.Verdict == policy.Allow {
		return nil
	}
	return &policyJSON{Verdict: d.Verdict, Rule: d.Rule, Reason: d.Reason}
}

// NewResultJSON is the document for a result, or for an error and what came
// before it.
func NewResultJSON(res sandbox.Result, err error) ResultJSON {
	out := res.Output
	j := ResultJSON{
		Stdout: out.Stdout.Text(), Stderr: out.Stderr.Text(),
		Bytes:  bytesJSON{Stdout: out.Stdout.Bytes, Stderr: out.Stderr.Bytes},
		Binary: out.Stdout.Binary || out.Stderr.Binary, Session: res.Session, Artifact: newArtifactJSON(out.Artifact),
		Policy: newPolicyJSON(res.Policy, err), WorkspaceLost: res.WorkspaceLost,
	}
	if out.Truncated() {
		j.Truncation = &truncationJSON{Stdout: out.Stdout.Truncation, Stderr: out.Stderr.Truncation}
	}
	if err != nil {
		v := exit.Judge(err)
		j.Error = &core.ErrorJSON{Outcome: v.Outcome, Cause: v.Cause, Message: exit.Words(err), Hint: v.Todo}
		return j
	}
	j.Reason, j.Receipt = &res.Reason, res.Receipt()
	j.WallTimeMs = res.Elapsed.Milliseconds()
	j.Usage = usageJSON{CPUMs: res.CPU.Milliseconds(), MaxRSSBytes: res.MaxRSS}
	j.Bytes = bytesJSON{Stdout: res.Stdout, Stderr: res.Stderr, Dropped: res.Dropped}
	j.Killed, j.LeftoversKilled, j.Background = res.Killed, res.Room, res.Left
	j.Full, j.Network, j.Offline, j.Ports = res.Full, res.Network, res.Offline, res.Ports
	j.ExitCode = exit.Code(res.Status)
	if res.Signal != 0 {
		j.Signal = exit.SignalName(res.Signal)
	}
	return j
}

// newArtifactJSON is nil where no file was wanted or could be named.
func newArtifactJSON(a sink.Artifact) *artifactJSON {
	if !a.Stored && a.Cause == "" {
		return nil
	}
	return &artifactJSON{ID: a.ID, Path: a.Path, Bytes: a.Bytes, Complete: a.Complete, Cause: a.Cause}
}
