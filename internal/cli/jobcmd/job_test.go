package jobcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// job returns the commands with a configuration, and what they print.
func job(cfg config.Config) (a *commands, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	p := core.New("", []string{"X_TOKEN=c4nary-0123456789"}, strings.NewReader(""), out, errs)
	p.Cfg.Config = &cfg
	return &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}, out, errs
}

func ended(reason exec.Reason, st exec.Status) sandbox.JobInfo {
	st.Reason = reason
	return sandbox.JobInfo{Session: "s1", ID: "bg_1", State: sandbox.JobFailed, Reason: reason, Status: &st, Timeout: time.Minute}
}

// A wait exits as run would have, and says what the status leaves open.
func TestSay(t *testing.T) {
	t.Parallel()
	lost := sandbox.JobInfo{Session: "s1", ID: "bg_1", Reason: sandbox.JobLost}
	forged := sandbox.JobInfo{Session: "s1", ID: "bg_1", Reason: sandbox.JobMissing}
	for _, tt := range []struct {
		name   string
		info   sandbox.JobInfo
		status int
		cause  string // of the error; "" if there is a status
		says   string
	}{
		{"exited", ended(exec.Exited, exec.Status{}), 0, "", ""},
		{"failed", ended(exec.Exited, exec.Status{Code: 7}), 7, "", ""},
		{"signalled", ended(exec.Signalled, exec.Status{Signal: 15}), 143, "", "sandboxbash: job bg_1 ended by SIGTERM\n"},
		{"timed out", ended(exec.TimedOut, exec.Status{}), exit.Timeout, "", "sandboxbash: job bg_1 timed out after 1m0s\n"},
		{"at the limit", ended(exec.OutputLimit, exec.Status{}), exit.OutputLimit, "", "sandboxbash: job bg_1 ended at the output limit of 9 bytes\n"},
		{"lost", lost, exit.Engine, string(exec.CauseRunnerLost), ""},
		{"tampered with", forged, exit.Engine, string(exec.CauseProtocol), ""},
	} {
		a, out, errs := job(config.Config{Output: config.Output{Limit: 9}})
		err := a.say(tt.info, sink.Output{})
		_ = a.streams.EndMasked()
		status := 0
		if said, ok := errors.AsType[exit.StatusError](err); ok {
			status = int(said)
		} else if err != nil {
			v := exit.Judge(err)
			if status = v.Status; v.Cause != tt.cause || v.Outcome != exec.Unknown {
				t.Errorf("%s: %v is judged as %+v; want cause %q", tt.name, err, v, tt.cause)
			}
		}
		if status != tt.status || out.Len() > 0 || errs.String() != tt.says {
			t.Errorf("%s: say() = %v, %q, %q; want status %d and %q", tt.name, err, out, errs, tt.status, tt.says)
		}
		if quiet, _, errs := job(config.Config{Quiet: true}); tt.cause == "" {
			_ = quiet.say(tt.info, sink.Output{})
			if _ = quiet.streams.EndMasked(); errs.Len() > 0 {
				t.Errorf("%s: with --quiet say() says %q", tt.name, errs)
			}
		}
	}
}

// The JSON of a wait has the end of the output, also where the end is not known.
func TestSayJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		info   sandbox.JobInfo
		status int
		code   any
		signal string
	}{
		{ended(exec.Exited, exec.Status{Code: 7}), 7, 7.0, ""},
		{ended(exec.TimedOut, exec.Status{}), exit.Timeout, nil, ""},
		{ended(exec.Signalled, exec.Status{Signal: 9}), 137, 137.0, "SIGKILL"},
		{sandbox.JobInfo{Session: "s1", ID: "bg_1", Reason: sandbox.JobLost}, exit.Engine, nil, ""},
	} {
		tt.info.Label = "echo c4nary-0123456789"
		if tt.info.Status != nil {
			tt.info.Signal = tt.info.Status.Signal
		}
		a, out, errs := job(config.Config{JSON: true})
		err := a.say(tt.info, sink.Output{Stdout: sink.Stream{Head: "the end"}})
		var got map[string]any
		if jsonErr := json.Unmarshal(out.Bytes(), &got); jsonErr != nil || errs.Len() > 0 {
			t.Fatalf("%s: %q, %q", tt.info.Reason, out, errs)
		}
		said, _ := errors.AsType[exit.StatusError](err)
		if int(said) != tt.status || got["exitCode"] != tt.code || got["output"] != "the end" || got["reason"] != string(tt.info.Reason) || got["label"] != "echo [REDACTED:X_TOKEN]" {
			t.Errorf("%s: say() = %v, %s; want status %d and exit code %v", tt.info.Reason, err, out, tt.status, tt.code)
		}
		if signal, _ := got["signal"].(string); signal != tt.signal {
			t.Errorf("%s: the signal is %q; want %q", tt.info.Reason, signal, tt.signal)
		}
	}
}

// What a job is called is a script: it is masked, on one line, and nothing that a terminal
// acts on.
func TestShow(t *testing.T) {
	t.Parallel()
	info := ended(exec.Exited, exec.Status{Code: 3})
	info.Label, info.PID, info.Bytes, info.OutputFile = "echo \x1b[2J\n  c4nary-0123456789", 12, 34, "/run/jobs/bg_1/output"
	info.Started = time.Unix(1000, 0)
	a, out, _ := job(config.Config{})
	if err := a.show(info); err != nil {
		t.Fatal(err)
	}
	_ = a.streams.EndMasked()
	var rows []string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{"id bg_1", "state failed", "reason exited", "exit 3", "pid 12", "bytes 34", "timeout 1m", "output /run/jobs/bg_1/output", `script echo \x1b[2J [REDACTED:X_TOKEN]`} {
		found := false
		for _, row := range rows {
			found = found || row == want
		}
		if !found {
			t.Errorf("show() prints %q; want the row %q", rows, want)
		}
	}
	for _, row := range rows {
		if strings.HasPrefix(row, "artifact") || strings.HasPrefix(row, "full") {
			t.Errorf("show() prints %q; want no row without a value", row)
		}
	}
}

// The commands take the flags that they need, and complete ids.
func TestCommand(t *testing.T) {
	t.Parallel()
	cmd := Command(core.New("", nil, nil, io.Discard, io.Discard))
	want := map[string]string{
		"ls": "session json", "show": "session json", "logs": "session follow artifacts quiet", "wait": "session artifacts json quiet",
		"stop": "session quiet", "rm": "session quiet",
	}
	for _, child := range cmd.Commands() {
		for name := range strings.FieldsSeq(want[child.Name()]) {
			if child.Flags().Lookup(name) == nil {
				t.Errorf("job %s has no flag --%s", child.Name(), name)
			}
		}
		if child.ValidArgsFunction == nil || child.RunE == nil {
			t.Errorf("job %s completes no ids, or does nothing", child.Name())
		}
		delete(want, child.Name())
	}
	if len(want) > 0 {
		t.Errorf("there is no command %v", want)
	}
}
