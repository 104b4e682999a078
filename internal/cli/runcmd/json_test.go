package runcmd

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// What --json prints, to the byte: programs read it.
func TestResultJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		res  sandbox.Result
		err  error
		want string
	}{
		{
			"exited",
			sandbox.Result{
				Session: "s1",
				Status: exec.Status{
					Reason: exec.Exited, Code: 3, Elapsed: 1500 * time.Millisecond, CPU: 20 * time.Millisecond,
					MaxRSS: 4096, Processes: 2, Stdout: 3, Stderr: 4,
				},
				Output: sink.Output{Stdout: sink.Stream{Head: "hi\n"}, Stderr: sink.Stream{Head: "<é>"}},
			},
			nil,
			`{"stdout":"hi\n","stderr":"<é>","reason":"exited","exitCode":3,"wallTimeMs":1500,"usage":{"cpuMs":20,"maxRssBytes":4096},"bytes":{"stdout":3,"stderr":4},"receipt":{"wallMs":1500,"cpuMs":20,"peakRssBytes":4096,"processes":2,"stdoutBytes":3,"stderrBytes":4,"killed":"","survivors":0,"proved":true},"session":"s1"}`,
		},
		{
			"signalled",
			sandbox.Result{Session: "s1", Status: exec.Status{Reason: exec.Signalled, Signal: 15}},
			nil,
			`{"stdout":"","stderr":"","reason":"signalled","exitCode":143,"signal":"SIGTERM","wallTimeMs":0,"usage":{"cpuMs":0,"maxRssBytes":0},"bytes":{"stdout":0,"stderr":0},"receipt":{"wallMs":0,"cpuMs":0,"peakRssBytes":0,"processes":null,"stdoutBytes":0,"stderrBytes":0,"killed":"","survivors":0,"proved":true},"session":"s1"}`,
		},
		{
			"out of memory",
			sandbox.Result{Session: "s1", Status: exec.Status{Reason: exec.OOMKilled, Signal: 9}},
			nil,
			`{"stdout":"","stderr":"","reason":"oom-killed","exitCode":137,"signal":"SIGKILL","wallTimeMs":0,"usage":{"cpuMs":0,"maxRssBytes":0},"bytes":{"stdout":0,"stderr":0},"receipt":{"wallMs":0,"cpuMs":0,"peakRssBytes":0,"processes":null,"stdoutBytes":0,"stderrBytes":0,"killed":"","survivors":0,"proved":true},"session":"s1"}`,
		},
		{
			"timed out, with all that can be said",
			sandbox.Result{
				Session: "s1", Killed: "kill", Room: true,
				Status: exec.Status{Reason: exec.TimedOut, Signal: 9, Left: 2, Stdout: 10, Dropped: 3},
				Output: sink.Output{
					Stdout: sink.Stream{
						Head: "end", Binary: true,
						Truncation: &sink.Truncation{
							Direction: sink.DirectionTail, TruncatedBy: sink.ByBytes, TotalLines: 1, TotalBytes: 10,
							OutputLines: 1, OutputBytes: 3, ShownRange: &sink.Range{Start: 1, End: 1}, ElidedBytes: 7,
						},
					},
					Artifact: sink.Artifact{ID: "4", Path: "/a/4.bash.log", Bytes: 9, Stored: true, Cause: "no space left"},
				},
			},
			nil,
			`{"stdout":"end","stderr":"","reason":"timed-out","exitCode":null,"signal":"SIGKILL","wallTimeMs":0,"usage":{"cpuMs":0,"maxRssBytes":0},"bytes":{"stdout":10,"stderr":0,"dropped":3},"binary":true,"killed":"kill","leftoversKilled":true,"background":2,"receipt":{"wallMs":0,"cpuMs":0,"peakRssBytes":0,"processes":null,"stdoutBytes":10,"stderrBytes":0,"killed":"kill","survivors":2,"proved":false},"session":"s1","artifact":{"id":"4","path":"/a/4.bash.log","bytes":9,"complete":false,"cause":"no space left"},"truncation":{"stdout":{"direction":"tail","truncatedBy":"bytes","totalLines":1,"totalBytes":10,"outputLines":1,"outputBytes":3,"shownRange":{"start":1,"end":1},"elidedBytes":7}}}`,
		},
		{
			"lost, with partial output",
			sandbox.Result{Session: "s1", Output: sink.Output{Stdout: sink.Stream{Head: "so far", Bytes: 6}}},
			fmt.Errorf("session s1: %w", &exec.Error{Outcome: exec.Lost, Cause: sandbox.CauseOOM, Err: errors.New("gone")}),
			`{"stdout":"so far","stderr":"","reason":null,"exitCode":null,"wallTimeMs":0,"usage":{"cpuMs":0,"maxRssBytes":0},"bytes":{"stdout":6,"stderr":0},"receipt":null,"session":"s1","error":{"outcome":"session-lost","cause":"oom","message":"session s1: session-lost{oom}: gone"}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			if err := stdio.PrintJSON(&got, NewResultJSON(test.res, test.err)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want+"\n", got.String()); diff != "" {
				t.Errorf("newResultJSON() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing is said of a policy that has nothing to say.
func TestNewPolicyJSON(t *testing.T) {
	t.Parallel()
	opaque := policy.Decision{Verdict: policy.Opaque, Rule: "r", Reason: "why"}
	for _, test := range []struct {
		name string
		d    policy.Decision
		err  error
		want *policyJSON
	}{
		{"no policy", policy.Decision{}, nil, nil},
		{"allowed", policy.Decision{Verdict: policy.Allow}, nil, nil},
		{"opaque", opaque, nil, &policyJSON{policy.Opaque, "r", "why"}},
		{"denied", policy.Decision{}, fmt.Errorf("x: %w", &policy.Denial{Decision: opaque}), &policyJSON{policy.Opaque, "r", "why"}},
	} {
		got := NewResultJSON(sandbox.Result{Policy: test.d}, test.err).Policy
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: differs (-want +got):\n%s", test.name, diff)
		}
	}
}
