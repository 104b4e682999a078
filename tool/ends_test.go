package tool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
)

// Ends that the corpus has no rows for.
func TestAgentEnds(t *testing.T) {
	t.Parallel()
	unknown := &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseRunnerLost, Err: errors.New("the runner is gone")}
	for _, test := range []struct {
		name string
		o    Outcome
		text string
		how  Thrown
	}{
		{"signal", Outcome{Reason: exec.Signalled, Signal: 9}, "out\n\nWall time: 0.00 seconds\n\nCommand exited with code 137", Returned},
		{"memory", Outcome{Reason: exec.OOMKilled}, "out\n\nWall time: 0.00 seconds\n\nCommand exited with code 137", Returned},
		{"limit", Outcome{Reason: exec.OutputLimit}, "[Command wrote more than the output limit]\nout", ToolError},
		{"shutdown", Outcome{Reason: exec.Cancelled}, "[Command cancelled]\nout", ToolError},
		{"unknown", Outcome{Err: unknown}, "out\n\nWall time: 0.00 seconds\n\nCommand failed: missing exit status", ToolError},
		{"terminal, timeout", Outcome{Reason: exec.TimedOut, Terminal: true}, "out", ToolError},
		{"client, timeout", Outcome{Reason: exec.TimedOut, Client: &Client{}}, "out", ToolError},
		{"client says nothing", ClientExit(nil, ""), "out\n\nWall time: 0.00 seconds\n\nCommand failed: missing exit status", ToolError},
		{"no session", Outcome{Err: errors.New("no engine answers")}, "no engine answers", ToolError},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			res := agentContract{}.Result(Plan{Contract: Agent, Timeout: Timeout{Seconds: 5}}, ran(t, "out", test.o))
			if res.Text != test.text || res.Thrown != test.how || !res.IsError || res.Details.TimeoutSeconds != 5 {
				t.Errorf("Result() = %+v; want %q, thrown %q", res, test.text, test.how)
			}
		})
	}
	for _, test := range []struct {
		o    Outcome
		text string
	}{
		{Outcome{Reason: exec.TimedOut, Terminal: true}, "Command timed out after 5 seconds"},
		{Outcome{Reason: exec.Cancelled, Terminal: true}, "Command aborted"},
	} {
		if res := (agentContract{}).Result(Plan{Contract: Agent, Timeout: Timeout{Seconds: 5}}, test.o); res.Text != test.text {
			t.Errorf("a terminal without output, %s: %q; want %q", test.o.Reason, res.Text, test.text)
		}
	}
}

func TestModesEnds(t *testing.T) {
	t.Parallel()
	refused := &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseNoShell, Err: errors.New("the image has no bash")}
	lost := &exec.Error{Outcome: exec.Lost, Cause: exec.CauseEngine, Err: errors.New("the container is gone")}
	for _, test := range []struct {
		name string
		o    Outcome
		text string
	}{
		{"signal", Outcome{Reason: exec.Signalled, Signal: 15}, "[command failed: exit code -1]\nout"},
		{"killed", Outcome{Reason: exec.Signalled, Signal: 9}, "[command failed: exit code -1]\nout"},
		{"memory", Outcome{Reason: exec.OOMKilled}, "[command failed: exit code -1]\nout"},
		{"time", timeout, "[command timed out after 900s]\nout"},
		{"cancel", Outcome{Reason: exec.Cancelled}, "[command cancelled]"},
		{"limit", Outcome{Reason: exec.OutputLimit}, "[command ended: it wrote more than the output limit]\nout"},
		{"no shell", Outcome{Err: refused}, "Failed to spawn process: the image has no bash"},
		{"lost", Outcome{Err: lost}, "Command execution failed: the container is gone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := kept(t, "out", test.o, ModesOutput(), nil)
			res := modesContract{}.Result(Plan{Contract: Modes, Timeout: Timeout{Seconds: 900}}, o)
			if res.Text != test.text || !res.IsError {
				t.Errorf("Result() = %+v; want %q", res, test.text)
			}
		})
	}
}

func TestPlainEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		o    Outcome
		text string
	}{
		{timeout, `{"error":"Command timed out after 30 seconds"}`},
		{Outcome{Reason: exec.Cancelled}, `{"error":"Command cancelled"}`},
		{Outcome{Reason: exec.OutputLimit}, `{"error":"Command wrote more than the output limit"}`},
		{Outcome{Err: errors.New("no <engine>")}, `{"error":"no <engine>"}`},
		{Outcome{}, `{"error":"its end is not known"}`},
		{Outcome{Reason: exec.Signalled, Signal: 15}, `{"stdout":"","stderr":"","exitCode":143}`},
	} {
		p := Plan{Contract: Plain, Timeout: Timeout{Seconds: plainTimeout}}
		if got := (plainContract{}).Result(p, test.o).Text; got != test.text {
			t.Errorf("Result(%+v) = %s; want %s", test.o, got, test.text)
		}
	}
	p := Plan{Contract: Plain, Command: "make"}
	o := Outcome{Reason: exec.Exited, Code: 2, Elapsed: time.Second, Plain: &PlainStreams{}}
	if _, err := o.Plain.Options().LiveStderr.Write([]byte("oops")); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(PlainLog(p, o)); got != "[command=make exitCode=2 stdoutBytes=0 stderrBytes=4 elapsed=1s]" {
		t.Errorf("PlainLog() = %s", got)
	}
}

// The limit of contract plain, byte by byte, and what its writers keep.
func TestPlainStreams(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		unit string
		n    int
		kept int
		cut  bool
	}{
		{"y", plainMost, plainMost, false},
		{"y", plainMost + 1, plainMost, true},
		{"日", 400_000, 1_048_575, true},
	} {
		var s PlainStreams
		text := strings.Repeat(test.unit, test.n)
		for part := range slices.Chunk([]byte(text), 60_001) {
			if n, err := s.stderr.Write(part); n != len(part) || err != nil {
				t.Fatalf("Write() = %d, %v; want %d", n, err, len(part))
			}
		}
		want := text[:test.kept]
		if test.cut {
			want += "... (truncated)"
		}
		if got := s.stderr.text(); got != want || s.stdout.text() != "" {
			t.Errorf("%d × %s: %d bytes; want %d", test.n, test.unit, len(got), len(want))
		}
	}
}
