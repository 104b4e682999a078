package runcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// In a session that there is, run runs a command and leaves the session.
func TestRunInSession(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "LANG=C.UTF-8")
	id := m.Session(1, sandbox.Spec{})
	var asked wire.Request
	m.Answer = func(req wire.Request, input []byte) (stdout, stderr []byte, end wire.Exit) {
		asked = req
		return append([]byte("in: "), input...), nil, wire.Exit{}
	}
	for _, test := range []struct {
		name, input, out string
		args             []string
		is               func() bool
	}{
		{"a script", "unread", "in: ", []string{"true"}, func() bool { return string(asked.Script) == "true" && !asked.Stdin && asked.Shell == "bash" }},
		{"its input", "abc", "in: abc", []string{"--stdin", "cat"}, func() bool { return asked.Stdin }},
		{"a variable", "", "in: ", []string{"--env", "A=1 2", "env"}, func() bool { return slices.Contains(asked.Env, "A=1 2") }},
		{"another shell", "", "in: ", []string{"--shell", "sh", "env"}, func() bool { return asked.Shell == "sh" }},
		{"a directory", "", "in: ", []string{"--cwd", "sub", "env"}, func() bool { return asked.Dir == "/workspace/sub" }},
		{"exclusive", "", "in: ", []string{"--exclusive", "env"}, func() bool { return asked.Exclusive }},
		{"two streams", "", "in: ", []string{"env"}, func() bool { return !asked.Merged && asked.Job == nil }},
		{"one stream", "", "in: ", []string{"--merge", "env"}, func() bool { return asked.Merged }},
		{"a job some day", "", "in: ", []string{"--background-after", "1h", "env"}, func() bool { return asked.Job != nil && asked.Job.Timeout == 0 }},
		{"with a timeout", "", "in: ", []string{"--background-after", "1h", "--timeout", "7s", "env"}, func() bool { return asked.Job.Timeout == 7*time.Second }},
	} {
		status, out, errs := m.Feed(test.input, append([]string{"run", "--session", id}, test.args...)...)
		if status != 0 || out != test.out || errs != "" || !test.is() {
			t.Errorf("%s: run = %d, %q, %q, for %+v; want %q", test.name, status, out, errs, asked, test.out)
		}
	}
	if all := m.Sessions(); len(all) != 1 || all[0].ID != id {
		t.Errorf("there are %+v; want the session as it was", all)
	}
}

// What an existing session cannot follow is refused, and so is what goes together with nothing.
func TestRunConflicts(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Answer = func(req wire.Request, _ []byte) (stdout, stderr []byte, end wire.Exit) {
		t.Errorf("%q ran", req.Script)
		return nil, nil, wire.Exit{}
	}
	id := m.Session(1, sandbox.Spec{})
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--session", id, "--memory", "1g", "true"}, []string{"--memory cannot change session " + id, "session start"}},
		{[]string{"--session", id, "--allow", "example.com", "true"}, []string{"--allow cannot change session"}},
		{[]string{"--session", id, "--network", "bridge", "true"}, []string{"--network cannot change session"}},
		{[]string{"--session", "", "true"}, []string{"the session's id is empty", "session ls"}},
		{[]string{"--session", clitest.ID(9), "true"}, []string{"unknown session"}},
		{[]string{"--background", "true"}, []string{"a job needs a session", "--session"}},
		{[]string{"--session", id, "--background", "--stdin", "true"}, []string{"a job has no standard input"}},
		{[]string{"--session", id, "--background", "--pty", "true"}, []string{"a job has no terminal"}},
		{[]string{"--session", id, "--stdin", "-"}, []string{"--stdin", "--file"}},
		{[]string{"--session", id, "--file", "/no/such/file"}, []string{"/no/such/file"}},
		{[]string{"--session", id, "--cwd", "/a\x00", "true"}, []string{"NUL byte"}},
	} {
		status, out, errs := m.Call(append([]string{"run"}, test.args...)...)
		if status != exit.Usage || out != "" {
			t.Errorf("run %q = %d, %q, %q; want status %d", test.args, status, out, errs, exit.Usage)
		}
		for _, want := range test.want {
			if !strings.Contains(errs, want) {
				t.Errorf("run %q says %q; want %q in it", test.args, errs, want)
			}
		}
		status, out, errs = m.Call(slices.Insert(slices.Clone(test.args), 0, "run", "--json")...)
		var j struct {
			Reason, ExitCode any
			Error            struct{ Outcome, Message string }
		}
		if err := json.Unmarshal([]byte(out), &j); err != nil || status != exit.Usage || errs != "" || j.Reason != nil || j.ExitCode != nil || j.Error.Outcome != "not-started" || j.Error.Message == "" {
			t.Errorf("run --json %q = %d, %q, %q: %v; want one object with an error", test.args, status, out, errs, err)
		}
	}
}

// A command that the policy denies does not run: exit status 126, the rule and its alternative.
func TestRunDenied(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "SANDBOXBASH_POLICY_CHECKS=push")
	ran := false
	m.Answer = func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
		ran = true
		return nil, nil, wire.Exit{}
	}
	id := m.Session(1, sandbox.Spec{})
	const script = "git push --force"
	status, out, errs := m.Call("run", "--session", id, script)
	if status != exit.Denied || out != "" || ran || !strings.Contains(errs, "push") {
		t.Errorf("run %q = %d, %q, %q; ran: %t; want it denied", script, status, out, errs, ran)
	}
	status, out, errs = m.Call("run", "--json", "--session", id, script)
	var j struct {
		Policy struct{ Verdict, Rule, Reason string }
		Error  struct{ Outcome, Cause string }
	}
	if err := json.Unmarshal([]byte(out), &j); err != nil || status != exit.Denied || errs != "" || ran || j.Policy.Verdict != "deny" || j.Policy.Rule == "" || j.Error.Outcome != "not-started" {
		t.Errorf("run --json %q = %d, %q, %q: %v; ran: %t", script, status, out, errs, err, ran)
	}
}

// The reports are written of what ran and of what did not.
func TestRunReports(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{})
	for name, test := range map[string]struct {
		end    wire.Exit
		id     string
		status int
		want   []string
	}{
		"passed": {wire.Exit{}, id, 0, []string{`tests="1"`, `failures="0"`, `errors="0"`}},
		"failed": {wire.Exit{Code: 3}, id, 3, []string{`failures="1"`, `errors="0"`, "3"}},
		"no run": {wire.Exit{}, clitest.ID(9), exit.Usage, []string{`failures="0"`, `errors="1"`, "unknown session"}},
	} {
		file := filepath.Join(t.TempDir(), "junit.xml")
		m.Answer = func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
			return []byte("out\n"), nil, test.end
		}
		if status, _, errs := m.Call("run", "--session", test.id, "--junit", file, "make"); status != test.status {
			t.Errorf("%s: run = %d, %q; want %d", name, status, errs, test.status)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range test.want {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: the report is %s; want %q in it", name, text, want)
			}
		}
	}
}

// --preview shows what an agent would see: the end of a long output, and where the rest is.
func TestRunPreview(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "X_TOKEN=c4nary-0123456789")
	id := m.Session(1, sandbox.Spec{})
	m.Answer = func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
		return []byte(strings.Repeat("line\n", 8000) + "the end c4nary-0123456789\n"), nil, wire.Exit{Code: 4}
	}
	status, out, _ := m.Call("run", "--session", id, "--preview", "make")
	if status != 4 || !strings.Contains(out, "the end [REDACTED:X_TOKEN]") || strings.Contains(out, "c4nary") || strings.Count(out, "\n") > 8000 {
		t.Errorf("run --preview = %d, %d lines; want the end of the output: %.300q", status, strings.Count(out, "\n"), out)
	}
}

// With --merge all output is the standard output, in the JSON too.
func TestRunMergedJSON(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{})
	m.Answer = func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
		return []byte("out\nerr\nout\n"), nil, wire.Exit{Code: 2}
	}
	status, out, errs := m.Call("run", "--json", "--merge", "--session", id, "make")
	var j struct{ Stdout, Stderr string }
	if err := json.Unmarshal([]byte(out), &j); err != nil || status != 2 || errs != "" || j.Stdout != "out\nerr\nout\n" || j.Stderr != "" {
		t.Errorf("run --json --merge = %d, %q, %q: %v", status, out, errs, err)
	}
}

// An engine whose session is lost meanwhile makes the outcome an error with its cause.
func TestRunLost(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{})
	m.Answer = func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
		m.Lose(id, true)
		return nil, nil, wire.Exit{}
	}
	status, out, errs := m.Call("run", "--session", id, "--json", "make")
	var j struct {
		ExitCode any
		Error    struct{ Outcome, Cause string }
	}
	if err := json.Unmarshal([]byte(out), &j); err != nil || status != exit.Engine || errs != "" || j.ExitCode != nil || (j.Error.Outcome != "session-lost" && j.Error.Outcome != "outcome-unknown") {
		t.Errorf("run = %d, %q, %q: %v; want that the session is lost", status, out, errs, err)
	}
}

// A command that may have failed because there is no network gets a note with the flag; one that succeeds does not.
func TestRunOffline(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{Detached: true})
	var code int
	m.Answer = func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
		return nil, []byte("curl: (6) Could not resolve host: sandbox.example\n"), wire.Exit{Code: code}
	}
	hint := "sandboxbash: note: the session has no network, which may be why the command failed: `sandboxbash session allow " + id + " HOST` lets it reach a host (docs/dependencies.md)\n"
	for range 2 { // it tells of this run: each time
		code = 6
		if status, _, errs := m.Call("run", "--session", id, "curl sandbox.example"); status != 6 || !strings.HasSuffix(errs, "\n"+hint) {
			t.Errorf("run = %d, %q; want %q", status, errs, hint)
		}
		code = 0
		if status, _, errs := m.Call("run", "--session", id, "curl sandbox.example"); status != 0 || strings.Contains(errs, "note") {
			t.Errorf("run of what succeeds = %d, %q; want no note", status, errs)
		}
	}
	code = 6
	status, out, _ := m.Call("run", "--json", "--session", id, "curl sandbox.example")
	var j struct {
		Offline bool
		Notes   []string
	}
	if err := json.Unmarshal([]byte(out), &j); err != nil || status != 6 || !j.Offline || len(j.Notes) != 1 || !strings.Contains(j.Notes[0], "session allow") {
		t.Errorf("run --json = %d, %s: %v; want the hint", status, out, err)
	}
}
