package report

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
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

func newTestReports(to config.Report) *Reports {
	return &Reports{
		To: to, Getenv: func(string) string { return "" }, Note: func(string) {}, Held: exit.Limits{Timeout: time.Second},
		Out: stdio.New(nil, io.Discard, io.Discard, func() *sink.Secrets { return nil }),
	}
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
		r := newTestReports(config.Report{JUnit: file})
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		r.Add(c.script, c.res, c.err)
		r.Add(c.script, c.res, c.err) // once is enough
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
	var got JunitSuite
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
	if c := got.Cases[2]; len(c.Stdout) > MaxJUnitText+10 || !strings.HasPrefix(c.Stdout, "[…]\nline\n") || c.Name != "sleep 9 …" || c.Failure.Type != "timed-out" {
		t.Errorf("a long case is %d bytes, named %q", len(c.Stdout), c.Name)
	}
	if c := got.Cases[3]; c.Error == nil || !strings.Contains(c.Error.Type, "unknown-session") {
		t.Errorf("what did not run is %+v", c)
	}
}

// A case has the same class and name in every session: CI servers tell by them what was there before.
func TestJUnitNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ label, script, want string }{
		{"", "make test\nmake more", "make test …"},
		{"unit tests", "make test\nmake more", "unit tests"},
		{"two\nlines", "make", "two …"},
	} {
		file := filepath.Join(t.TempDir(), "junit.xml")
		for _, session := range []string{"0199", "0200"} {
			res := resultOf(exec.Exited, 0, "")
			res.Session = session
			newTestReports(config.Report{JUnit: file, Name: row.label}).Add(row.script, res, nil)
		}
		suite, err := readJUnit(file)
		if err != nil || len(suite.Cases) != 2 {
			t.Fatalf("%+v, %v; want two cases", suite, err)
		}
		for _, c := range suite.Cases {
			if c.Class != "sandboxbash" || c.Name != row.want {
				t.Errorf("the case of %q, called %q, is %s / %s; want sandboxbash / %s", row.script, row.label, c.Class, c.Name, row.want)
			}
		}
	}
	r := newTestReports(config.Report{Name: "a name alone"})
	r.Add("x", sandbox.Result{}, nil) // nothing was asked for
}

// A summary shows what is not ours as code, and nothing in it leads out of that.
func TestSummary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "summary.md")
	r := newTestReports(config.Report{Summary: "auto"})
	r.Getenv = func(name string) string { return map[string]string{"GITHUB_STEP_SUMMARY": file}[name] }
	r.Add("echo `date` <b>", resultOf(exec.Exited, 1, hostileText), nil)
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
	r = newTestReports(config.Report{Summary: "auto"})
	if err := r.Check(); err == nil {
		t.Error("check() = nil without a file for auto; want an error")
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
