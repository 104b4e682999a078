// Package report writes what became of a command for a CI job: a case in a JUnit file and
// a section of the job's summary.
package report

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Of each stream reports hold the end, so much of it. GitHub takes a mebibyte of
// summary a step, and JUnit files are read whole.
const (
	MaxJUnitText   = 16 << 10 // bytes
	maxSummaryText = 4 << 10  // bytes
	maxReportName  = 120      // characters of a script
)

// Reports are the files that tell of one command, if any are asked for.
type Reports struct {
	To     config.Report
	Getenv func(string) string
	Out    *stdio.Streams
	Note   func(text string)
	Held   exit.Limits // To name
	Done   bool        // they tell of it
}

// A caseReport is what --junit and --summary tell of one command.
type caseReport struct {
	name           string // the script's first line
	label          string // what the user calls it in JUnit, or ""
	reason         string // how it ended, in a word
	text           string // how it ended, for a reader
	failed         bool   // it ran, and not to a good end
	broken         bool   // it did not run, or its end is unknown
	elapsed        time.Duration
	stdout, stderr string
}

// newCaseReport tells of a result, or of an error and what came before it.
func (a *Reports) newCaseReport(script string, res sandbox.Result, err error) caseReport {
	r := caseReport{
		name: a.Out.Safe(firstLine(script)), label: a.Out.Safe(firstLine(a.To.Name)), elapsed: res.Elapsed,
		stdout: res.Output.Stdout.Text(), stderr: res.Output.Stderr.Text(),
	}
	if err != nil {
		v := exit.Judge(err)
		r.broken, r.reason, r.text = true, strings.Trim(string(v.Outcome)+" "+v.Cause, " "), a.Out.Clean(exit.Words(err))
		return r
	}
	status := exit.OfCommand(res.Status)
	r.failed = status != 0 && res.Reason != exec.HandedOver
	r.reason, r.text = string(res.Reason), exit.Ending(res, a.Held)
	if res.Reason == exec.Exited {
		r.text = fmt.Sprintf("exit status %d", status)
	}
	return r
}

func firstLine(script string) string {
	line, _, more := strings.Cut(strings.TrimSpace(script), "\n")
	if runes := []rune(line); len(runes) > maxReportName {
		line, more = string(runes[:maxReportName]), true
	}
	if more {
		line += " …"
	}
	return line
}

// last returns the end of a text, whole lines if there are any.
func last(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	if _, rest, ok := strings.Cut(text, "\n"); ok {
		text = rest
	}
	return "[…]\n" + strings.ToValidUTF8(text, "")
}

// summaryFile is where --summary goes, "" if there is none.
func (a *Reports) summaryFile() (string, error) {
	file := a.To.Summary
	if file != "auto" {
		return file, nil
	}
	const variable = "GITHUB_STEP_SUMMARY"
	if file = a.Getenv(variable); file == "" {
		return "", exit.Misuse("name a file", "--summary auto is the file that $%s names, and it names none", variable)
	}
	return file, nil
}

// Check makes sure that reports can be written, before anything runs.
func (a *Reports) Check() error {
	if file := a.To.JUnit; file != "" {
		if _, err := readJUnit(file); err != nil {
			return exit.Misuse("name another file, or remove it", "--junit: %v", err)
		}
	}
	summary, err := a.summaryFile()
	if err != nil {
		return err
	}
	for flag, file := range map[string]string{"junit": a.To.JUnit, "summary": summary} {
		if file == "" {
			continue
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			return exit.Misuse("", "--%s: %v", flag, err)
		}
		if err := f.Close(); err != nil {
			return exit.Misuse("", "--%s: %v", flag, err)
		}
	}
	return nil
}

// Add writes what was asked for of one command, once.
func (a *Reports) Add(script string, res sandbox.Result, err error) {
	if a.Done || a.To.JUnit == "" && a.To.Summary == "" {
		return
	}
	a.Done = true
	r := a.newCaseReport(script, res, err)
	if file := a.To.JUnit; file != "" {
		if err := addToJUnit(file, r); err != nil {
			a.Note("the JUnit report was not written: " + err.Error())
		}
	}
	file, err := a.summaryFile()
	if err != nil || file == "" {
		return // checkReports has told
	}
	if err := appendFile(file, r.markdown()); err != nil {
		a.Note("the summary was not written: " + err.Error())
	}
}

func appendFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// JunitSuite is a JUnit file of ours: one suite, whose cases are commands.
type JunitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     seconds     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Time    seconds   `xml:"time,attr"`
	Failure *junitEnd `xml:"failure"`
	Error   *junitEnd `xml:"error"`
	Stdout  string    `xml:"system-out,omitempty"`
	Stderr  string    `xml:"system-err,omitempty"`
}

type junitEnd struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
}

type seconds float64

// MarshalText is what encoding/xml calls for an attribute.
func (s seconds) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", float64(s)), nil
}

// caseClass is the class of every case. CI servers know a case of one run in the next by its class and its
// name, so neither may name the session.
const caseClass = "sandboxbash"

// maxJUnit bounds the file that cases are added to.
const maxJUnit = 64 << 20 // bytes

// readJUnit reads a file that cases are added to; one that is missing or empty is
// a suite without any.
func readJUnit(file string) (JunitSuite, error) {
	suite := JunitSuite{Name: "sandboxbash"}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return suite, nil
	}
	if err == nil && info.Size() > maxJUnit {
		err = fmt.Errorf("%s is larger than %d bytes", file, maxJUnit)
	}
	if err != nil {
		return suite, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return suite, err
	}
	if err := xml.Unmarshal(text, &suite); err != nil || suite.Name != "sandboxbash" {
		return suite, fmt.Errorf("%s is not a JUnit report of sandboxbash", file)
	}
	return suite, nil
}

// harmless writes in other characters of XML what CI runners take for commands:
// who prints the file prints none, and who parses it finds the text as it was.
var harmless = strings.NewReplacer("##", "#&#35;", "::", ":&#58;", "section_start:", "section_start&#58;", "section_end:", "section_end&#58;")

// addToJUnit adds a case to the file, which is replaced whole: a reader never
// finds half of it.
func addToJUnit(file string, r caseReport) error {
	suite, err := readJUnit(file)
	if err != nil {
		return err
	}
	c := junitCase{
		Class: caseClass, Name: cmp.Or(r.label, r.name), Time: seconds(r.elapsed.Seconds()),
		Stdout: last(r.stdout, MaxJUnitText), Stderr: last(r.stderr, MaxJUnitText),
	}
	end := &junitEnd{Type: r.reason, Message: r.text}
	suite.Tests++
	suite.Time += c.Time
	switch {
	case r.broken:
		c.Error, suite.Errors = end, suite.Errors+1
	case r.failed:
		c.Failure, suite.Failures = end, suite.Failures+1
	}
	suite.Cases = append(suite.Cases, c)
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".sandboxbash-junit-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // it is not there if all went well
	_, err = tmp.WriteString(xml.Header + harmless.Replace(string(text)) + "\n")
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// markdown is a section of a job's summary. What is not ours stands in code, whose
// fence is longer than any in it.
func (r caseReport) markdown() string {
	mark := "✅"
	if r.failed || r.broken {
		mark = "❌"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "#### %s %s\n\n%s, %v\n\n", mark, span(r.name), span(r.text), r.elapsed.Round(time.Millisecond))
	for _, s := range []struct{ name, text string }{{"standard output", r.stdout}, {"standard error", r.stderr}} {
		if s.text == "" {
			continue
		}
		text := strings.TrimRight(last(s.text, maxSummaryText), "\n")
		f := strings.Repeat("`", max(3, longestTicks(text)+1))
		fmt.Fprintf(&b, "<details><summary>%s</summary>\n\n%stext\n%s\n%s\n\n</details>\n\n", s.name, f, text, f)
	}
	var safe strings.Builder
	d := sink.NewDefused(&safe, sink.AllRunners) // the file may be printed
	_, _ = d.Write([]byte(b.String()))
	_ = d.Close()
	return safe.String()
}

// span is a text as code in a line of Markdown.
func span(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "(nothing)"
	}
	ticks := strings.Repeat("`", longestTicks(text)+1)
	return ticks + " " + text + " " + ticks
}

func longestTicks(text string) int {
	longest := 0
	for _, run := range strings.FieldsFunc(text, func(r rune) bool { return r != '`' }) {
		longest = max(longest, len(run))
	}
	return longest
}
