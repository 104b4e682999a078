package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// allOutcomes are all ways in which a command can end, where it can run, and with output or none.
func allOutcomes(t *testing.T, contract Name) map[string]Outcome {
	t.Helper()
	ends := map[string]Outcome{
		"success":     {Reason: exec.Exited},
		"failure":     {Reason: exec.Exited, Code: 1},
		"timeout's":   {Reason: exec.Exited, Code: 124},
		"not found":   {Reason: exec.Exited, Code: 127},
		"signal":      {Reason: exec.Signalled, Signal: 15},
		"memory":      {Reason: exec.OOMKilled},
		"timeout":     {Reason: exec.TimedOut},
		"cancelled":   {Reason: exec.Cancelled},
		"aborted":     {Reason: exec.Cancelled, Aborted: true},
		"limit":       {Reason: exec.OutputLimit},
		"no reason":   {},
		"not started": {Err: &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseNoShell, Err: errors.New("no shell")}},
		"unknown":     {Err: &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseRunnerLost, Err: errors.New("the runner is gone")}},
		"lost":        {Err: &exec.Error{Outcome: exec.Lost, Cause: exec.CauseEngine, Err: errors.New("the container is gone")}},
		"caller":      {Err: &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: errors.New("cancelled")}, Aborted: true},
	}
	all := map[string]Outcome{}
	for name, o := range ends {
		o.Elapsed = 1250 * time.Millisecond
		for _, output := range []string{"", "line one\nline two\n", strings.Repeat("0123456789\n", 20_000)} {
			about := fmt.Sprintf("%s, %d bytes", name, len(output))
			switch contract {
			case Plain:
				p := &PlainStreams{}
				kept := kept(t, output, o, p.Options(), nil)
				kept.Plain = p
				all[about] = kept
			case Modes:
				all[about] = kept(t, output, o, ModesOutput(), nil)
			case Agent:
				all[about] = ran(t, output, o)
				terminal, client := all[about], all[about]
				terminal.Terminal, client.Client = true, &Client{ID: "t1", Truncated: true}
				all[about+", in a terminal"], all[about+", in the client"] = terminal, client
			}
		}
	}
	return all
}

// TestAgentOutcomes: a result is an error or it is not, says once how the command ended, and holds
// its numbers in the details.
func TestAgentOutcomes(t *testing.T) {
	t.Parallel()
	requested := 9000.0
	p := Plan{Contract: Agent, Timeout: clampTimeout(&requested, 0), Notices: []string{"a notice"}}
	for name, o := range allOutcomes(t, Agent) {
		r := agentContract{}.Result(p, o)
		code, hasCode := o.exitCode()
		hasCode = hasCode && o.Err == nil && o.End() == EndExited
		wantError := !hasCode || code != 0
		if r.IsError != wantError || (r.Thrown != Returned) == hasCode || r.Plain != nil || r.Text == "" {
			t.Errorf("%s: error %t, thrown %q, plain %v; want an error: %t", name, r.IsError, r.Thrown, r.Plain, wantError)
		}
		if (r.Thrown == ToolAbort) != (o.Aborted && o.End() == EndCancelled) {
			t.Errorf("%s: thrown is %q", name, r.Thrown)
		}
		d := r.Details
		if d.TimeoutSeconds != 3600 || *d.RequestedTimeoutSeconds != 9000 || d.Reason != o.Reason || d.Async != nil {
			t.Errorf("%s: details %+v", name, d)
		}
		if (d.ExitCode != nil) != (hasCode && code != 0) || d.ExitCode != nil && *d.ExitCode != code {
			t.Errorf("%s: the exit code of the details is %v; want %d, and none for 0", name, d.ExitCode, code)
		}
		if (d.WallTimeMs == nil) != (o.End() == EndNotStarted) || d.WallTimeMs != nil && *d.WallTimeMs != 1250 {
			t.Errorf("%s: the details' time is %v", name, d.WallTimeMs)
		}
		if (d.TerminalID == "t1") != (o.Client != nil) || (d.Run != nil) != (o.Client != nil) {
			t.Errorf("%s: the details' terminal is %q, of the run they have %+v", name, d.TerminalID, d.Run)
		}
		hasWall := hasCode || o.End() == EndUnknown
		for part, want := range map[string]bool{
			"\n\nWall time: 1.25 seconds\n": hasWall,
			"\na notice":                    hasWall,
			"(output truncated)":            hasWall && o.Client != nil,
			"\n\nCommand exited with code " + strconv.Itoa(code): hasCode && code != 0,
			"\n\nCommand failed: missing exit status":            o.End() == EndUnknown,
			"Command timed out after 3600 seconds":               o.End() == EndTimedOut && (o.Client == nil && !o.Terminal || o.Output.Stdout.Text() == ""),
			"(no output)":                                        hasWall && o.Output.Stdout.Text() == "",
			"\n\n[Showing lines ":                                hasCode && o.Output.Stdout.Truncation != nil,
			"[Command wrote more than the output limit]\n":       o.End() == EndOverLimit,
			"Command aborted":                                    o.End() == EndCancelled && (o.Client != nil || o.Terminal && o.Output.Stdout.Text() == ""),
			"[Command cancelled]\n" + o.Output.Stdout.Text():     o.End() == EndCancelled && o.Client == nil && !o.Terminal,
		} {
			if got := strings.Count(r.Text, part); got > 1 || got == 1 != want {
				t.Errorf("%s: %.60q is %d times in the text …%.200q; want it: %t", name, part, got, r.Text[max(0, len(r.Text)-200):], want)
			}
		}
		if output := o.Output.Stdout.Text(); hasWall && output != "" && !strings.HasPrefix(r.Text, output+"\n\nWall time: ") {
			t.Errorf("%s: the text begins with %.60q; want the output, not trimmed", name, r.Text)
		}
		if (d.Meta != nil) != (hasCode && o.Output.Stdout.Truncation != nil) {
			t.Errorf("%s: meta is %+v", name, d.Meta)
		}
	}
}

// TestPlainOutcomes: a result is what a command has written with its code, or an error, and never
// both but for a command that is not found.
func TestPlainOutcomes(t *testing.T) {
	t.Parallel()
	p := Plan{Contract: Plain, Timeout: Timeout{Seconds: plainTimeout}}
	words := map[End]string{EndTimedOut: "Command timed out after 30 seconds", EndCancelled: "Command cancelled", EndOverLimit: "Command wrote more than the output limit"}
	for name, o := range allOutcomes(t, Plain) {
		r := plainContract{}.Result(p, o)
		var fromText PlainOutput
		if err := json.Unmarshal([]byte(r.Text), &fromText); err != nil || cmp.Diff(*r.Plain, fromText) != "" {
			t.Errorf("%s: the text is not the JSON of the result: %v\n%s", name, err, cmp.Diff(*r.Plain, fromText))
		}
		if r.Details != nil || r.Thrown != Returned {
			t.Errorf("%s: details %v, thrown %q", name, r.Details, r.Thrown)
		}
		code, _ := o.exitCode()
		switch out := r.Plain; {
		case o.End() != EndExited:
			if out.Stdout != nil || out.Stderr != nil || out.ExitCode != nil || out.Error == "" || !r.IsError {
				t.Errorf("%s: %+v; want an error alone", name, out)
			}
			if want, ok := words[o.End()]; ok && out.Error != want || !ok && out.Error != o.Cause() {
				t.Errorf("%s: the error is %q", name, out.Error)
			}
		case *out.ExitCode != code || *out.Stdout != o.Plain.stdout.text() || *out.Stderr != "" || out.Error != "" || r.IsError:
			t.Errorf("%s: %+v; want the output and code %d", name, out, code)
		}
	}
}

// TestModesOutcomes: the text is the output alone, or has one line before it that says why not.
func TestModesOutcomes(t *testing.T) {
	t.Parallel()
	for name, o := range allOutcomes(t, Modes) {
		r := modesContract{}.Result(Plan{Contract: Modes, Timeout: Timeout{Seconds: 30}}, o)
		output := modesText(o.Output.Stdout)
		if len(output) > modesWindow().Whole+200 {
			t.Errorf("%s: the output has %d bytes; want at most %d", name, len(output), modesWindow().Whole+200)
		}
		var want string
		success := false
		switch {
		case o.Reason == exec.Cancelled, strings.HasPrefix(name, "caller"):
			want = "[command cancelled]"
		case o.End() == EndNotStarted:
			want = "Failed to spawn process: " + o.Cause()
		case o.End() == EndUnknown:
			want = "Command execution failed: " + o.Cause()
		case o.Reason == exec.TimedOut:
			want = "[command timed out after 30s]\n" + output
		case o.Reason == exec.OutputLimit:
			want = "[command ended: it wrote more than the output limit]\n" + output
		case o.Reason != exec.Exited:
			want = "[command failed: exit code -1]\n" + output
		case o.Code != 0:
			want = fmt.Sprintf("[command failed: exit code %d]\n%s", o.Code, output)
		default:
			want, success = output, true
		}
		if r.Text != want || r.IsError == success || r.Details != nil || r.Plain != nil || r.Thrown != Returned {
			t.Errorf("%s: %.80q, error %t; want %.80q", name, r.Text, r.IsError, want)
		}
	}
}

// TestRefusedResult: a plan that runs nothing has the same result whatever the outcome says.
func TestRefusedResult(t *testing.T) {
	t.Parallel()
	for _, contract := range []Name{Agent, Plain, Modes} {
		c := contractOf(t, string(contract))
		for _, p := range []Plan{
			{Contract: contract, Err: &Error{Text: "it is <wrong>"}},
			{Contract: contract, Denial: &Denial{Message: "it is <wrong>", Rule: "r"}},
		} {
			for name, o := range allOutcomes(t, contract) {
				r := c.Result(p, o)
				want := "it is <wrong>"
				if contract == Plain {
					want = `{"error":"it is <wrong>"}`
				}
				if r.Text != want || !r.IsError || (r.Thrown == ToolError) != (contract == Agent) {
					t.Errorf("%s, %s: %+v; want %q", contract, name, r, want)
				}
			}
		}
	}
}

// TestFailedStart: a background command of contract modes that does not start says why, and an
// error's outcome is not part of its words.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	cause := &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseNoShell, Err: errors.New("the image has no bash")}
	if r := ModesNotStarted(cause); r.Text != "Failed to start background process: the image has no bash" || !r.IsError {
		t.Errorf("ModesNotStarted() = %+v", r)
	}
	if r := ModesNoFile(errors.New("disk full")); r.Text != "Failed to create output file: disk full" || !r.IsError {
		t.Errorf("ModesNoFile() = %+v", r)
	}
	want := "<pid>42</pid>\n<output_file>/tmp/o</output_file>\n<reminder>To stop: kill -9 -42</reminder>"
	if r := ModesStarted(42, "/tmp/o"); r.Text != want || r.IsError {
		t.Errorf("ModesStarted() = %+v; want %q", r, want)
	}
}

// TestPlainLog: the log has the command, how it ended and how much it wrote, and nothing of that.
func TestPlainLog(t *testing.T) {
	t.Parallel()
	for name, o := range allOutcomes(t, Plain) {
		attrs := map[string]string{}
		for _, a := range PlainLog(Plan{Command: "make x"}, o) {
			attrs[a.Key] = a.Value.String()
			if strings.Contains(a.Value.String(), "line one") {
				t.Errorf("%s: %s has the output", name, a.Key)
			}
		}
		code, hasCode := o.exitCode()
		want := map[string]string{"command": "make x", "elapsed": "1.25s", "stderrBytes": "0", "stdoutBytes": strconv.FormatInt(o.Plain.stdout.bytes, 10)}
		if hasCode {
			want["exitCode"] = strconv.Itoa(code)
		} else {
			want["reason"] = string(o.Reason)
		}
		if diff := cmp.Diff(want, attrs); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// TestRunNotes: what a command that failed had no room for is in the text, in front of its end, and
// what is kept for programs is in the details alone.
func TestRunNotes(t *testing.T) {
	t.Parallel()
	full := sandbox.Full{Path: "/tmp"}
	o := ran(t, "out\n", Outcome{Reason: exec.Exited, Code: 1, Run: RunInfo{Full: []sandbox.Full{full}, CPUMs: 7, Killed: "kill", StateLost: "why"}})
	o.Output.Artifact = sink.Artifact{ID: "4", Stored: true}
	r := agentContract{}.Result(Plan{Contract: Agent, Timeout: clampTimeout(nil, 0)}, o)
	if want := "out\n\n\nWall time: 0.00 seconds\n" + full.String() + "\n\nCommand exited with code 1"; r.Text != want {
		t.Errorf("the text is %q; want %q", r.Text, want)
	}
	if r.Details.Run.CPUMs != 7 || r.Details.Run.Killed != "kill" || r.Details.Run.StateLost != "why" || r.Details.ArtifactID != "4" {
		t.Errorf("the details are %+v", r.Details)
	}
	o.Run = RunInfo{Offline: true}
	if got, want := (agentContract{}).Result(Plan{Contract: Agent}, o).Text, "seconds\n"+sandbox.OfflineText+"\n\nCommand exited"; !strings.Contains(got, want) {
		t.Errorf("without a network the text is %q; want %q in it", got, want)
	}
	b, err := json.Marshal(agentContract{}.Result(Plan{Contract: Agent}, ran(t, "", Outcome{Reason: exec.Exited})).Details)
	if want := `{"timeoutSeconds":0,"wallTimeMs":0,"reason":"exited"}`; err != nil || string(b) != want {
		t.Errorf("details of a run of which nothing is known are %s, %v; want %s", b, err, want)
	}
}
