package tool

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

type asyncRow struct {
	Settings json.RawMessage `json:"settings"`
	Call     map[string]any  `json:"call"`
	Manager  *bool           `json:"job_manager"`
	JobCall  json.RawMessage `json:"job_call"`
	Tools    []string        `json:"tools_available"`
	Given    []struct {
		ID      string           `json:"id"`
		Command string           `json:"command"`
		Status  sandbox.JobState `json:"status"`
		Result  string           `json:"resultText"`
		Error   string           `json:"errorText"`
	} `json:"given"`
	Deliveries []struct{ JobID, Result string } `json:"deliveries"`

	Error         *string          `json:"error"`
	ErrorContains *string          `json:"error_contains"`
	SecondError   *string          `json:"second_error_contains"`
	SchemaLacks   []string         `json:"schema_lacks"`
	TextExact     *string          `json:"text_exact"`
	TextContains  []string         `json:"text_contains"`
	TextRegex     *string          `json:"text_regex"`
	Delivered     *string          `json:"delivered_text_regex"`
	DeliveredHas  []string         `json:"delivered_text_contains"`
	UpdateState   sandbox.JobState `json:"update_details_state"`
	JobState      sandbox.JobState `json:"job_status"`
	Updates       map[string]any   `json:"updates_details"`
	Details       map[string]any   `json:"details"`
	Lacks         []string         `json:"details_lacks"`
	JobIDs        []string         `json:"job_ids"`
	LabelLength   int              `json:"label_length"`
	LabelSuffix   string           `json:"label_suffix"`
	Label         string           `json:"label"`
	Cases         [][2]*float64    `json:"cases"`
	JobCount      int              `json:"details_job_count"`
	Values        map[string]int   `json:"values"`
	Default       string           `json:"default"`
	UpdateText    *string          `json:"update_text"`
	IntervalMs    int64            `json:"update_interval_ms"`
	FollowUp      *string          `json:"followup_exact"`
	BaseMs        int64            `json:"base_ms"`
	MaxMs         int64            `json:"max_ms"`
	JitterMs      int64            `json:"jitter_max_ms"`
	RetentionMs   int64            `json:"retention_ms"`
	EndsWith      *string          `json:"file_ends_with"`
	FileExact     *string          `json:"file_exact"`
	FileContains  []string         `json:"file_contains"`
}

func TestAsyncCorpus(t *testing.T) {
	t.Parallel()
	corpus.File{Path: "tool/testdata/async.jsonl", Elsewhere: corpus.ManagerRows, Ran: 43}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r asyncRow
		c.Into(t, &r)
		switch {
		case c.Contract == "C":
			checkBackground(t, r)
		case r.JobCall != nil:
			checkJobTool(t, r)
		case r.Call != nil && (r.Call["async"] == true || strings.HasPrefix(c.Name, "auto-background")):
			checkStart(t, c, r)
		default:
			checkJobFacts(t, r)
		}
	})
}

// hostOf is the host of a row.
func hostOf(t *testing.T, r asyncRow) Host {
	t.Helper()
	s, err := parseSettings(r.Settings)
	if err != nil {
		t.Fatal(err)
	}
	return Host{Settings: s, Tools: r.Tools, NoJobs: r.Manager != nil && !*r.Manager}
}

func checkStart(t *testing.T, c corpus.Row, r asyncRow) {
	t.Helper()
	if parts, ok := r.Call["command"].(map[string]any); ok {
		list := parts["concat"].([]any)
		more := list[1].(map[string]any)
		r.Call["command"] = list[0].(string) + strings.Repeat(more["repeat"].(string), int(more["count"].(float64)))
	}
	p := agentContract{}.Plan(corpus.Arguments(t, r.Call), hostOf(t, r))
	res, refused := p.Refused()
	if want := r.Error; want != nil && res.Text != *want || r.ErrorContains != nil && !strings.Contains(res.Text, *r.ErrorContains) {
		t.Errorf("refused with %q; want %v or %v", res.Text, r.Error, r.ErrorContains)
	}
	if r.Error != nil || r.ErrorContains != nil {
		if !refused || res.Thrown != ToolError {
			t.Errorf("refused %v, thrown %q; want an error", refused, res.Thrown)
		}
		return
	}
	if refused {
		t.Fatalf("refused with %q", res.Text)
	}
	label := sandbox.JobLabel(p.Command)
	if r.LabelLength > 0 && (len(label) != r.LabelLength || !strings.HasSuffix(label, r.LabelSuffix)) || r.Label != "" && label != r.Label {
		t.Errorf("label %q; want %q, or %d characters and %q at the end", label, r.Label, r.LabelLength, r.LabelSuffix)
	}
	switch {
	case r.Lacks != nil: // it ends in time, or cannot become a job
		if p.Route == Background || p.Route == Managed && p.Wait < 2*time.Second {
			t.Errorf("route %s, wait %v; want the foreground", p.Route, p.Wait)
		}
		res = agentContract{}.Result(p, ran(t, r.TextContainsOr("x")+"\n", success))
		if res.Details.Async != nil {
			t.Errorf("details.async = %+v; want none", res.Details.Async)
		}
	case c.Name == "auto-background: preview, blank line, start text":
		if p.Route != Managed || p.Wait != 300*time.Millisecond {
			t.Errorf("route %s, wait %v; want managed for 300 ms", p.Route, p.Wait)
		}
		res = Started(p, "bg_1", "start\n")
	default:
		if p.Route != Background {
			t.Errorf("route %s; want background", p.Route)
		}
		res = Started(p, "bg_1", "")
	}
	checkStarted(t, p, r, res)
}

// TextContainsOr is the output that a row's command has.
func (r asyncRow) TextContainsOr(other string) string {
	if len(r.TextContains) > 0 {
		return r.TextContains[0]
	}
	return other
}

func checkStarted(t *testing.T, p Plan, r asyncRow, res Result) {
	t.Helper()
	if r.TextExact != nil && res.Text != *r.TextExact || res.IsError {
		t.Errorf("text %q, error %v; want %q", res.Text, res.IsError, *r.TextExact)
	}
	for _, part := range r.TextContains {
		if !strings.Contains(res.Text, part) {
			t.Errorf("text %q; want %q in it", res.Text, part)
		}
	}
	if r.Details != nil && !corpus.Subset(t, res.Details, r.Details) || r.Updates != nil && !corpus.Subset(t, JobUpdate("bg_1", "1\n").Details, r.Updates) {
		t.Errorf("details %+v; want %v or %v", res.Details, r.Details, r.Updates)
	}
	end := ran(t, "hi\n", success)
	if r.JobState == sandbox.JobFailed {
		end = ran(t, "start\n", timeout)
	}
	job, d := Finished(Job{ID: "bg_1"}, agentContract{}.Result(p, end))
	text := job.Result + job.Error
	if r.Delivered != nil && !regexp.MustCompile(*r.Delivered).MatchString(text) {
		t.Errorf("delivered %q; want %s", text, *r.Delivered)
	}
	for _, part := range r.DeliveredHas {
		if !strings.Contains(text, part) {
			t.Errorf("delivered %q; want %q in it", text, part)
		}
	}
	if r.UpdateState != "" && d.Async.State != r.UpdateState || r.JobState != "" && job.Status != r.JobState {
		t.Errorf("states %s and %s; want %s and %s", d.Async.State, job.Status, r.UpdateState, r.JobState)
	}
}

func checkJobTool(t *testing.T, r asyncRow) {
	t.Helper()
	call, err := JobTool{}.Parse(r.JobCall)
	if r.Error != nil {
		if err == nil || err.Error() != *r.Error {
			t.Errorf("Parse(%s) = %v; want %q", r.JobCall, err, *r.Error)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	jobs := []Job{{ID: "bg_1", Label: "echo done", Status: sandbox.JobCompleted, Result: "done"}}
	if r.Given != nil || r.TextExact != nil {
		jobs = nil
	}
	for _, g := range r.Given {
		jobs = append(jobs, Job{ID: g.ID, Label: g.Command, Status: g.Status, Result: g.Result, Error: g.Error})
	}
	var cancels []Cancellation
	for _, id := range call.Cancel {
		i := slices.IndexFunc(jobs, func(j Job) bool { return j.ID == id })
		if i < 0 {
			cancels = append(cancels, Cancelled(id, Job{}, false))
			continue
		}
		cancels = append(cancels, Cancelled(id, jobs[i], true))
		jobs[i].Status = sandbox.JobCancelled
	}
	shown := call.Shown(jobs)
	if len(r.Given) == 2 { // the first of two has ended while it was waited for
		shown[0].Status = sandbox.JobCompleted
	}
	text, details := call.Report(shown, cancels)
	if r.Manager != nil && !*r.Manager {
		text, details = JobTool{}.NoJobManager()
	}
	if r.TextExact != nil && text != *r.TextExact {
		t.Errorf("text %q; want %q", text, *r.TextExact)
	}
	for _, part := range r.TextContains {
		if !strings.Contains(text, part) {
			t.Errorf("text %q; want %q in it", text, part)
		}
	}
	if r.Details != nil && !corpus.Subset(t, details, r.Details) || r.JobCount > 0 && len(details.Jobs) != r.JobCount {
		t.Errorf("details %+v; want %v, or %d jobs", details, r.Details, r.JobCount)
	}
	if r.UpdateText != nil && (*r.UpdateText != "" || PollUpdate.Milliseconds() != r.IntervalMs || !call.Watch) {
		t.Errorf("watches %v with an update every %v; want every %d ms", call.Watch, PollUpdate, r.IntervalMs)
	}
}

func checkJobFacts(t *testing.T, r asyncRow) {
	t.Helper()
	checked := false
	check := func(ok bool, format string, args ...any) {
		t.Helper()
		checked = true
		if !ok {
			t.Errorf(format, args...)
		}
	}
	for _, name := range r.SchemaLacks {
		d := agentContract{}.Definition(hostOf(t, r))
		check(!strings.Contains(string(d.InputSchema), name), "the schema has %s", name)
	}
	if r.SecondError != nil {
		got := sandbox.JobLimitError(1).Error()
		check(strings.Contains(got, *r.SecondError), "JobLimitError(1) says %q; want %q in it", got, *r.SecondError)
	}
	for _, c := range r.Cases {
		raw := json.RawMessage("null")
		if c[0] != nil {
			raw = json.RawMessage(jsNumber(*c[0]))
		}
		s, err := parseSettings(json.RawMessage(`{"async.maxJobs":` + string(raw) + `}`))
		check(err == nil && s.MaxJobs == int(*c[1]), "async.maxJobs %s is %d, %v; want %v", raw, s.MaxJobs, err, *c[1])
	}
	for text, ms := range r.Values {
		check(PollWait(text).Milliseconds() == int64(ms), "PollWait(%s) = %v; want %d ms", text, PollWait(text), ms)
		check(PollWait("2s") == PollWait(r.Default), "PollWait(2s) = %v; want the default", PollWait("2s"))
	}
	if r.FollowUp != nil {
		got := FollowUp([]Delivery{{JobID: r.Deliveries[0].JobID, Text: r.Deliveries[0].Result}})
		check(got == *r.FollowUp, "FollowUp() = %q; want %q", got, *r.FollowUp)
	}
	if r.BaseMs > 0 {
		first, second, last := sandbox.RetryPause(1), sandbox.RetryPause(2), sandbox.RetryPause(1000)
		ok := first.Milliseconds() == r.BaseMs && second == 2*first && last.Milliseconds() == r.MaxMs
		check(ok && sandbox.RetryJitter.Milliseconds() == r.JitterMs+1, "pauses %v, %v, …, %v, and up to %v", first, second, last, sandbox.RetryJitter)
	}
	if r.RetentionMs > 0 {
		check(sandbox.JobKept.Milliseconds() == r.RetentionMs, "JobKept = %v", sandbox.JobKept)
	}
	if r.JobIDs != nil {
		var ids []string
		for range r.JobIDs {
			ids = append(ids, wire.NextJobID(func(id string) bool { return slices.Contains(ids, id) }))
		}
		check(slices.Equal(ids, r.JobIDs), "ids %q; want %q", ids, r.JobIDs)
	}
	if !checked {
		t.Error("nothing of this row was checked")
	}
}

func checkBackground(t *testing.T, r asyncRow) {
	t.Helper()
	p := modesContract{}.Plan(corpus.Arguments(t, r.Call), defaultHost())
	if p.Err != nil || p.Route != Background {
		t.Fatalf("route %s, error %q; want background", p.Route, errorOf(p))
	}
	if r.TextRegex != nil {
		res := ModesStarted(4711, "/tmp/output")
		m := regexp.MustCompile(*r.TextRegex).FindStringSubmatch(res.Text)
		if m == nil || m[1] != "4711" || m[3] != "4711" || res.IsError {
			t.Errorf("ModesStarted() = %+v; want it to match %s", res, *r.TextRegex)
		}
		return
	}
	o := runLocal(t, p, t.TempDir(), nil)
	file := o.Output.Stdout.Text() + wire.JobEnd{Code: o.Code, Signal: o.Signal}.Completion()
	if r.EndsWith != nil && !strings.HasSuffix(file, *r.EndsWith) || r.FileExact != nil && file != *r.FileExact {
		t.Errorf("file %q; want %v or %v", file, r.EndsWith, r.FileExact)
	}
	for _, part := range r.FileContains {
		if !strings.Contains(file, part) {
			t.Errorf("file %q; want %q in it", file, part)
		}
	}
}

func TestFollowUp(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("😀", 6001)
	got := FollowUp([]Delivery{{JobID: "bg_1", Label: "make", Text: "one"}, {JobID: "bg_2", Label: "ls", Text: long, ArtifactID: "7"}})
	want := "<system-notice>\n2 background jobs have completed. Resume your work using the results below.\n" +
		"\n── Job bg_1 (make) ──\none\n" +
		"\n── Job bg_2 (ls) ──\n" + strings.Repeat("😀", 2000) + "\n\n[Output truncated. Showing first 4,000 characters.]\nFull output: artifact://7\n" +
		"</system-notice>"
	if got != want {
		t.Errorf("FollowUp() = %q; want %q", got, want)
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	seven := 7200.0
	p := Plan{Command: "make", Timeout: clampTimeout(&seven, 0)}
	p.Notices = []string{p.Timeout.notice()}
	want := "out\n\nTimeout clamped to 3600s (requested 7200s; allowed range 1-3600s).\n\nBackground job bg_4 started: make\n"
	if got := Started(p, "bg_4", "out\n \n"); !strings.HasPrefix(got.Text, want) || *got.Details.RequestedTimeoutSeconds != 7200 {
		t.Errorf("Started() = %q; want it to begin with %q", got.Text, want)
	}
	// A command that fails is a failed job, whose error is its result's text.
	job, d := Finished(Job{ID: "bg_1"}, agentContract{}.Result(p, ran(t, "no\n", Outcome{Reason: exec.Exited, Code: 2})))
	if job.Status != sandbox.JobFailed || job.Result != "" || !strings.HasSuffix(job.Error, "Command exited with code 2") || d.Async.State != sandbox.JobFailed || *d.ExitCode != 2 {
		t.Errorf("Finished() = %+v, %+v; want it failed", job, d)
	}
	call, err := JobTool{}.Parse(json.RawMessage(`{"cancel":["bg_1","bg_1"],"poll":["bg_2"]}`))
	if err != nil || !slices.Equal(call.Cancel, []string{"bg_1"}) || !call.Watch {
		t.Errorf("Parse() = %+v, %v", call, err)
	}
	text, _ := call.Report(nil, []Cancellation{Cancelled("bg_1", Job{Status: sandbox.JobFailed}, true)})
	if text != "## Cancelled (1)\n\n- Background job bg_1 is already failed." {
		t.Errorf("Report() = %q", text)
	}
	if _, err := (JobTool{}).Parse(json.RawMessage(`{"poll":"bg_1"}`)); err == nil || err.Error() != "Invalid job arguments: poll: expected an array of strings, got a string" {
		t.Errorf("Parse() = %v", err)
	}
	if _, there := (JobTool{}).Definition(DefaultSettings()); there {
		t.Error("the job tool is there, and no jobs are")
	}
}

// A result of several jobs is bounded; one job's own is as long as it is.
func TestLongReports(t *testing.T) {
	t.Parallel()
	long := Job{ID: "bg_1", Label: "make", Status: sandbox.JobCompleted, Result: strings.Repeat(strings.Repeat("x", 99)+"\n", 511)}
	if text, _ := (JobCall{}).Report([]Job{long}, nil); !strings.Contains(text, long.Result) {
		t.Errorf("a job's result of %d bytes is shown in %d", len(long.Result), len(text))
	}
	last := Job{ID: "bg_9", Label: "last", Status: sandbox.JobRunning}
	text, details := (JobCall{}).Report([]Job{long, long, last}, nil)
	want := regexp.MustCompile(`(?s)\A## Completed \(2\)\n\n### bg_1 .+\n\[… 62\d lines elided \(6\d\.\dKB\) …\]\n.+- .bg_9. \[bash\] — last\n\n\[Poll fewer jobs at a time to see all of their results.\]\z`)
	if len(text) > 2*reportEnd+200 || !want.MatchString(text) {
		t.Errorf("Report() has %d bytes: %.300q … %q", len(text), text, text[max(0, len(text)-300):])
	}
	if len(details.Jobs) != 3 || details.Jobs[1].ResultText != long.Result {
		t.Error("details lack a result")
	}
}
