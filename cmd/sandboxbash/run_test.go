package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

func TestScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		file   string
		args   []string
		script string
		rest   []string
	}{
		{"word", "", []string{"echo hi"}, "echo hi", nil},
		{"arguments", "", []string{"echo hi", "a", "-b", "--", "c"}, "echo hi", []string{"a", "-b", "--", "c"}},
		{"standard input", "", []string{"-", "a"}, "from stdin\r\n", []string{"a"}},
		{"file", file, []string{"a", "b"}, "from file\n", []string{"a", "b"}},
		{"file without arguments", file, nil, "from file\n", nil},
		{"file is standard input", "-", []string{"a"}, "from stdin\r\n", []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newApp(nil, strings.NewReader("from stdin\r\n"), nil, nil)
			a.cfg = &config.Config{Run: config.Run{File: test.file}}
			script, rest, err := a.script(t.Context(), test.args)
			if err != nil || script != test.script || !slices.Equal(rest, test.rest) {
				t.Errorf("script(%q) = %q, %q, %v; want %q, %q", test.args, script, rest, err, test.script, test.rest)
			}
		})
	}
}

// A script that is too long is refused, and never cut.
func TestScriptLimit(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader(strings.Repeat("#", wire.MaxScript)), strings.NewReader("##"))
	var errs bytes.Buffer
	status := newApp(nil, endless, io.Discard, &errs).execute(t.Context(), []string{"run", "-"})
	if status != statusUsage || !strings.Contains(errs.String(), "10 MiB") {
		t.Errorf("execute(run -) = %d, %q; want %d and the limit", status, errs.String(), statusUsage)
	}
	if err := (sandbox.Command{Script: strings.Repeat("#", wire.MaxScript)}).Check(); err != nil {
		t.Errorf("Check() of a script at the limit = %v; want nil", err)
	}
}

// Interrupted while it waits for somebody to type the script.
func TestScriptInterrupted(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer w.Close() //nolint:errcheck // is always nil
	var errs bytes.Buffer
	status := newApp(nil, r, io.Discard, &errs).execute(interrupted(t), []string{"run", "-"})
	if status != statusCancelled {
		t.Errorf("execute(run -) = %d, %q; want %d", status, errs.String(), statusCancelled)
	}
}

// What commands get of this process's environment: what is named, and no more.
func TestCommandEnv(t *testing.T) {
	t.Parallel()
	a := newApp([]string{"HOME=/root", "LANG=de_DE", "LANGUAGE=de", "GH_TOKEN=canary-canary", "NOT_SO=secret-value", "PATH=/bin"}, nil, nil, io.Discard)
	a.cfg = &config.Config{
		Env:     config.Env{Pass: []string{"LANG", "MISSING"}, Set: []string{"A=1", "LANG=C"}},
		Secrets: []config.Secret{{Name: "GH_TOKEN", From: config.FromEnv, Source: "GH_TOKEN", Inject: true}, {Name: "NOT_SO", From: config.FromEnv, Source: "NOT_SO"}},
	}
	if err := a.secrets(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"LANG=de_DE", "GH_TOKEN=canary-canary", "A=1", "LANG=C"}
	if diff := cmp.Diff(want, a.commandEnv()); diff != "" {
		t.Errorf("commandEnv() differs (-want +got):\n%s", diff)
	}
	if got, want := a.scrub("canary-canary secret-value"), "[REDACTED:GH_TOKEN] [REDACTED:NOT_SO]"; got != want {
		t.Errorf("scrub() = %q; want %q", got, want)
	}
}

func TestSecretSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("value-of-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, bytes.Repeat([]byte("canary"), maxSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newApp([]string{"X=value-of-env", "PATH=" + os.Getenv("PATH")}, nil, nil, io.Discard)
	a.cfg = &config.Config{File: "/c.yaml"}
	for _, test := range []struct {
		from         config.From
		source, want string
		err          string
	}{
		{config.FromEnv, "X", "value-of-env", ""},
		{config.FromEnv, "MISSING", "", ""},
		{config.FromFile, path, "value-of-file", ""},
		{config.FromFile, dir + "/none", "", "secret s: "},
		{config.FromFile, big, "", "longer than"},
		{config.FromCommand, "echo value-of-command; echo canary >&2", "value-of-command", ""},
		{config.FromCommand, "echo canary; exit 3", "", "exit status 3"},
	} {
		got, err := a.secretValue(t.Context(), config.Secret{Name: "s", From: test.from, Source: test.source})
		if got != test.want || (err == nil) != (test.err == "") {
			t.Errorf("secretValue(%s %s) = %q, %v; want %q, error %q", test.from, test.source, got, err, test.want, test.err)
		}
		if err != nil && (!strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("secretValue(%s %s) = %v; want %q and no value", test.from, test.source, err, test.err)
		}
	}
}

// A secret that cannot be masked is told of, by its name.
func TestShortSecretWarns(t *testing.T) {
	t.Parallel()
	_, _, errs := call(t, noEngine(t), "run", "--env", "API_KEY=abc12", "true")
	if !strings.Contains(errs, "warning: secret API_KEY") || strings.Contains(errs, "abc12") {
		t.Errorf("run says %q; want a warning about API_KEY without its value", errs)
	}
	_, out, errs := call(t, noEngine(t), "run", "--json", "--env", "API_KEY=abc12", "true")
	if errs != "" || !strings.Contains(out, `"notes":["warning: secret API_KEY`) {
		t.Errorf("run --json = %q, %q; want the warning among the notes", out, errs)
	}
}

func TestEnding(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Timeout: 2 * time.Second, Output: config.Output{Limit: 1000}}
	for _, test := range []struct {
		res  sandbox.Result
		want string
	}{
		{sandbox.Result{Status: exec.Status{Reason: exec.Exited, Code: 1}}, ""},
		{sandbox.Result{Status: exec.Status{Reason: exec.TimedOut}, Killed: "kill"}, "timed out after 2s (killed: kill)"},
		{sandbox.Result{Status: exec.Status{Reason: exec.Cancelled}, Killed: "term"}, "cancelled (killed: term)"},
		{sandbox.Result{Status: exec.Status{Reason: exec.OutputLimit}, Killed: "reset"}, "ended at the output limit of 1000 bytes (killed: reset)"},
		{sandbox.Result{Status: exec.Status{Reason: exec.Signalled, Signal: 11}}, "ended by SIGSEGV"},
		{sandbox.Result{Status: exec.Status{Reason: exec.OOMKilled, Signal: 9}}, "ended by the kernel at the memory limit; give the session more with --memory"},
	} {
		if got := ending(test.res, cfg); got != test.want {
			t.Errorf("ending(%+v) = %q; want %q", test.res.Status, got, test.want)
		}
	}
}

// finish exits with the result's status and says what it does not tell.
func TestFinish(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	a := newApp(nil, nil, io.Discard, &errs)
	a.cfg = &config.Config{Timeout: time.Second}
	res := sandbox.Result{
		Status: exec.Status{Reason: exec.TimedOut, Dropped: 5}, Killed: "term", Room: true,
		Output: sink.Output{Artifact: sink.Artifact{ID: "3", Stored: true, Cause: "no space left on device"}},
	}
	err := a.finish(t.Context(), res, nil)
	if status, ok := errors.AsType[statusError](err); !ok || status != statusTimeout {
		t.Errorf("finish() = %v; want status %d", err, statusTimeout)
	}
	want := "sandboxbash: timed out after 1s (killed: term)\n" +
		"sandboxbash: note: what earlier commands had left running was killed, so that this one could start\n" +
		"sandboxbash: note: artifact 3 is incomplete: no space left on device\n" +
		"sandboxbash: note: 5 bytes of output were not taken in time and are lost\n"
	if diff := cmp.Diff(want, errs.String()); diff != "" {
		t.Errorf("finish() says otherwise (-want +got):\n%s", diff)
	}
}
