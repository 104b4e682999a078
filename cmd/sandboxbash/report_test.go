package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// hostileText tries to be markup, a fence, a command of a runner, or invalid.
const hostileText = "</system-out><failure/>]]>&amp;<script>\n::add-path::/x\n ##[group]a ##vso[a.b]c\n```\n# Heading\n````\n</details>\nsection_start:1:a\n\uFFFE\x00end"

func resultOf(reason exec.Reason, code int, text string) sandbox.Result {
	var res sandbox.Result
	res.Session, res.Reason, res.Code, res.Elapsed = "0199", reason, code, 1234*time.Millisecond
	res.Output = sink.Output{Stdout: sink.Stream{Tail: text}, Stderr: sink.Stream{Tail: text}}
	return res
}

// Each command is a case of one suite, and no text of theirs is markup or a command.
func TestJUnit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "junit.xml")
	for _, c := range []struct {
		script string
		res    sandbox.Result
		err    error
	}{
		{"true", resultOf(exec.Exited, 0, "good\n"), nil},
		{hostileText, resultOf(exec.Exited, 3, hostileText), nil},
		{"sleep 9\nsleep 9", resultOf(exec.TimedOut, 0, strings.Repeat("line\n", 10<<10)), nil},
		{"x", sandbox.Result{}, sandbox.ErrUnknownSession},
	} {
		a := newApp(nil, nil, nil, nil)
		a.cfg, a.ran = &config.Config{Timeout: time.Second, Report: config.Report{JUnit: file}}, c.script
		if err := a.checkReports(); err != nil {
			t.Fatal(err)
		}
		a.addReport(c.res, c.err)
		a.addReport(c.res, c.err) // once is enough
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"##", "\n::", " ::", "section_start:", "<failure/>", "<script>"} {
		if strings.Contains(string(text), command) {
			t.Errorf("the file holds %q:\n%s", command, text)
		}
	}
	var got junitSuite
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if got.Tests != 4 || got.Failures != 2 || got.Errors != 1 || len(got.Cases) != 4 || got.Time < 3.7 || got.Time > 3.71 {
		t.Errorf("the suite is %+v; want 4 cases, 2 failures, 1 error, 3.702 s", got)
	}
	want := strings.NewReplacer("\uFFFE", "\uFFFD", "\x00", "\uFFFD").Replace(hostileText)
	if c := got.Cases[1]; c.Stdout != want || c.Stderr != want || c.Failure == nil || c.Failure.Message != "exit status 3" {
		t.Errorf("a hostile case is read as %+v; want %q", c, want)
	}
	if c := got.Cases[2]; len(c.Stdout) > maxJUnitText+10 || !strings.HasPrefix(c.Stdout, "[…]\nline\n") || c.Name != "sleep 9 …" || c.Failure.Type != "timed-out" {
		t.Errorf("a long case is %d bytes, named %q", len(c.Stdout), c.Name)
	}
	if c := got.Cases[3]; c.Error == nil || !strings.Contains(c.Error.Type, "unknown-session") {
		t.Errorf("what did not run is %+v", c)
	}
}

// A summary shows what is not ours as code, and nothing in it leads out of that.
func TestSummary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "summary.md")
	a := newApp([]string{"GITHUB_STEP_SUMMARY=" + file}, nil, nil, nil)
	a.cfg, a.ran = &config.Config{Report: config.Report{Summary: "auto"}}, "echo `date` <b>"
	a.addReport(resultOf(exec.Exited, 1, hostileText), nil)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if want := "#### ❌ `` echo `date` <b> ``"; lines[0] != want {
		t.Errorf("it begins with %q; want %q", lines[0], want)
	}
	var fence string
	for _, line := range lines[1:] {
		switch ticks := strings.TrimRight(line, "tex"); {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = ticks
		case line == fence:
			fence = ""
		case fence == "" && strings.ContainsAny(line, "<#") && !strings.HasPrefix(line, "<details><summary>standard ") && line != "</details>":
			t.Errorf("%q stands outside of code", line)
		}
	}
	if fence != "" || len(commandLines(string(text))) > 0 {
		t.Errorf("open fence %q, commands %q in:\n%s", fence, commandLines(string(text)), text)
	}
	a.environ, a.reported = nil, false
	if err := a.checkReports(); err == nil {
		t.Error("checkReports() = nil without a file for auto; want an error")
	}
}

func commandLines(text string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") || strings.Contains(line, "##vso[") {
			found = append(found, line)
		}
	}
	return found
}

// A file that is somebody else's is left as it is, and nothing runs.
func TestReportsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "other.xml")
	if err := os.WriteFile(other, []byte("<testsuite name='pytest'/>"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--junit", other}, {"--junit", dir}, {"--summary", filepath.Join(dir, "no", "file")}, {"--summary", "auto"}} {
		status, _, stderr := call(t, noEngine(t), append(append([]string{"run"}, args...), "true")...)
		if status != statusUsage || !strings.Contains(stderr, args[0][2:]) {
			t.Errorf("run %q = %d, %q; want it refused", args, status, stderr)
		}
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "<testsuite name='pytest'/>" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}
