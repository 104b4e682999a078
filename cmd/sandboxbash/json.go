package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// printJSON writes one document, on one line. It holds nothing that a CI runner
// takes for a command, whatever is in v: those of GitHub begin a line or have ##
// in them, as have those of Azure and TeamCity, and one # is written as \u0023;
// those of GitLab have control characters.
func printJSON(w io.Writer, v any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	// Only within texts: a key or a number has no #, and no escape ends with one.
	_, err := raw(w).Write(bytes.ReplaceAll(doc.Bytes(), []byte("##"), []byte(`#\u0023`)))
	return err
}

// resultJSON is a command's result as --json prints it. Where there is none,
// Error is set, Reason is null, and the output is what there was so far.
type resultJSON struct {
	Stdout          string       `json:"stdout"`
	Stderr          string       `json:"stderr"`
	Reason          *exec.Reason `json:"reason"`
	ExitCode        *int         `json:"exitCode"` // null unless exited, signalled or oom-killed
	Signal          string       `json:"signal,omitempty"`
	WallTimeMs      int64        `json:"wallTimeMs"`
	Usage           usageJSON    `json:"usage"`
	Bytes           bytesJSON    `json:"bytes"`                     // written by the command
	Binary          bool         `json:"binary,omitempty"`          // the text is not faithful: it has NULs, or is not UTF-8
	Killed          string       `json:"killed,omitempty"`          // how far the kill had to go
	LeftoversKilled bool         `json:"leftoversKilled,omitempty"` // of earlier commands, to make room
	Background      int          `json:"background,omitempty"`      // processes that live on
	// Receipt is null where the command did not end, or nobody knows how.
	Receipt    *sandbox.Receipt `json:"receipt"`
	Session    string           `json:"session"`
	Artifact   *artifactJSON    `json:"artifact,omitempty"`
	Truncation *truncationJSON  `json:"truncation,omitempty"`
	Policy     *policyJSON      `json:"policy,omitempty"` // unless it is sure that the script may run
	Job        *jobJSON         `json:"job,omitempty"`    // that the command has become
	PTY        *bool            `json:"pty,omitempty"`    // with --pty: whether there was a terminal to run on
	Notes      []string         `json:"notes,omitempty"`
	Error      *errorJSON       `json:"error,omitempty"`
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

type errorJSON struct {
	Outcome exec.Outcome `json:"outcome"`
	Cause   string       `json:"cause"`
	Message string       `json:"message"`
}

// newResultJSON is the document for a result, or for an error and what came
// before it.
func newResultJSON(res sandbox.Result, err error) resultJSON {
	out := res.Output
	j := resultJSON{
		Stdout: out.Stdout.Text(), Stderr: out.Stderr.Text(),
		Bytes:  bytesJSON{Stdout: out.Stdout.Bytes, Stderr: out.Stderr.Bytes},
		Binary: out.Stdout.Binary || out.Stderr.Binary, Session: res.Session, Artifact: newArtifactJSON(out.Artifact),
		Policy: newPolicyJSON(res.Policy, err),
	}
	if out.Truncated() {
		j.Truncation = &truncationJSON{Stdout: out.Stdout.Truncation, Stderr: out.Stderr.Truncation}
	}
	if err != nil {
		v := judge(err)
		j.Error = &errorJSON{Outcome: v.outcome, Cause: v.cause, Message: wordsOf(err)}
		return j
	}
	j.Reason, j.Receipt = &res.Reason, res.Receipt()
	j.WallTimeMs = res.Elapsed.Milliseconds()
	j.Usage = usageJSON{CPUMs: res.CPU.Milliseconds(), MaxRSSBytes: res.MaxRSS}
	j.Bytes = bytesJSON{Stdout: res.Stdout, Stderr: res.Stderr, Dropped: res.Dropped}
	j.Killed, j.LeftoversKilled, j.Background = res.Killed, res.Room, res.Left
	switch res.Reason { //nolint:exhaustive // the others have no exit code
	case exec.Exited, exec.Signalled, exec.OOMKilled:
		code := commandStatus(res.Status)
		j.ExitCode = &code
	}
	if res.Signal != 0 {
		j.Signal = signalName(res.Signal)
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

const firstRealtime = 34 // SIGRTMIN of the GNU C library

func signalName(n int) string {
	if n >= firstRealtime {
		return fmt.Sprintf("SIGRTMIN+%d", n-firstRealtime)
	}
	return cmp.Or(wire.SignalName(n), "SIG"+strconv.Itoa(n))
}
