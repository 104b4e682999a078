package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// JobTool is the second tool of contract agent: it waits for jobs and cancels them.
// Agents have it if the settings allow jobs.
type JobTool struct{}

const jobSchema = `{
  "type": "object",
  "properties": {
    "poll": {"type": "array", "items": {"type": "string"}, "description": "Ids of jobs to wait for, until the first of them has finished. Without poll and cancel: all that are running."},
    "cancel": {"type": "array", "items": {"type": "string"}, "description": "Ids of jobs to cancel."},
    "list": {"type": "boolean", "description": "Show all jobs as they are, and wait for none."}
  },
  "additionalProperties": false
}`

// Definition describes the tool to a model; ok reports whether agents have it.
func (JobTool) Definition(s Settings) (d Definition, ok bool) {
	return Definition{
		Name: JobName, Description: "Wait for background jobs, cancel them, or list them.",
		InputSchema: json.RawMessage(jobSchema), Strict: true,
	}, s.Async || s.AutoBackground
}

// JobCall is a call of the job tool. Its lists are in the caller's order and hold
// every id once.
type JobCall struct {
	Poll, Cancel []string
	List         bool
	// Watch is set if the call waits for jobs: for those of Poll or, without Poll, for
	// all that run.
	Watch bool
	All   bool
}

// Parse reads the arguments.
func (JobTool) Parse(arguments json.RawMessage) (JobCall, error) {
	var c JobCall
	members, err := parseObject(arguments)
	polled := false
	for _, m := range members {
		if err != nil {
			break
		}
		switch m.name {
		case "poll":
			polled = true
			c.Poll, err = m.texts()
		case "cancel":
			c.Cancel, err = m.texts()
		case "list":
			c.List, err = m.flag()
		default:
			err = &fault{what: unknown, field: m.name}
		}
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return c, Refusef("Invalid job arguments: %s", f.text())
	}
	if c.List && len(c.Poll)+len(c.Cancel) > 0 {
		return c, Refusef("`list` cannot be combined with `poll` or `cancel`.")
	}
	c.Poll, c.Cancel = unique(c.Poll), unique(c.Cancel)
	c.All = len(c.Poll) == 0 && len(c.Cancel) == 0
	c.Watch = !c.List && (polled && len(c.Poll) > 0 || c.All)
	return c, nil
}

func unique(list []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// Cancellation is the result of cancelling a job.
type Cancellation struct {
	ID     string `json:"id"`
	Status string `json:"status"` // "cancelled", "not_found" or "already_completed"

	was sandbox.JobState
}

// Cancelled returns the result of cancelling a job, which may be unknown.
func Cancelled(id string, job Job, known bool) Cancellation {
	switch {
	case !known:
		return Cancellation{ID: id, Status: "not_found"}
	case job.Status == sandbox.JobRunning:
		return Cancellation{ID: id, Status: "cancelled"}
	default:
		return Cancellation{ID: id, Status: "already_completed", was: job.Status}
	}
}

func (c Cancellation) text() string {
	switch c.Status {
	case "cancelled":
		return fmt.Sprintf("Cancelled background job %s.", c.ID)
	case "not_found":
		return "Background job not found: " + c.ID
	default:
		return fmt.Sprintf("Background job %s is already %s.", c.ID, c.was)
	}
}

// JobDetails of a result of the job tool, as JSON.
type JobDetails struct {
	Jobs      []JobDetail    `json:"jobs"`
	Cancelled []Cancellation `json:"cancelled,omitempty"`
}

// JobDetail describes one job in JobDetails.
type JobDetail struct {
	ID         string           `json:"id"`
	Type       string           `json:"type"`
	Status     sandbox.JobState `json:"status"`
	Label      string           `json:"label"`
	DurationMs int64            `json:"durationMs"`
	ResultText string           `json:"resultText,omitempty"`
	ErrorText  string           `json:"errorText,omitempty"`
}

// NoJobManager is the result if the settings allow no jobs.
func (JobTool) NoJobManager() (string, JobDetails) {
	return "Async execution is disabled; no background jobs are available.", JobDetails{Jobs: []JobDetail{}}
}

// Shown picks the jobs that the result is about: those with the call's ids, each once;
// all that run if the call has no ids; all jobs for a list.
func (c JobCall) Shown(jobs []Job) []Job {
	if c.List {
		return jobs
	}
	if c.All {
		return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return j.Status != sandbox.JobRunning })
	}
	var shown []Job
	for _, id := range unique(append(slices.Clone(c.Cancel), c.Poll...)) {
		if i := slices.IndexFunc(jobs, func(j Job) bool { return j.ID == id }); i >= 0 {
			shown = append(shown, jobs[i])
		}
	}
	return shown
}

// Report is the result for the jobs that Shown picked, as they are now, and for the
// cancellations.
func (c JobCall) Report(shown []Job, cancels []Cancellation) (string, JobDetails) {
	d := JobDetails{Jobs: []JobDetail{}, Cancelled: cancels}
	for _, j := range shown {
		d.Jobs = append(d.Jobs, JobDetail{
			ID: j.ID, Type: jobType, Status: j.Status, Label: j.Label, DurationMs: j.Elapsed.Milliseconds(),
			ResultText: j.Result, ErrorText: j.Error,
		})
	}
	if len(shown) == 0 && len(cancels) == 0 && !c.List {
		if len(c.Poll) > 0 {
			return "No matching jobs found for IDs: " + strings.Join(c.Poll, ", "), d
		}
		return "No running background jobs to wait for.", d
	}
	var lines []string
	if len(cancels) > 0 {
		lines = append(lines, fmt.Sprintf("## Cancelled (%d)\n", len(cancels)))
		for _, k := range cancels {
			lines = append(lines, "- "+k.text())
		}
		lines = append(lines, "")
	}
	lines = append(append(lines, finishedJobs(shown)...), runningJobs(shown)...)
	text := strings.TrimRightFunc(strings.Join(lines, "\n"), isSpace)
	if len(shown) > 1 { // the window of its command bounds a single one
		text = boundedReport(text)
	}
	return text, d
}

// Bounds of a result about several jobs. Up to maxReport bytes are shown whole; a
// longer one shows as much of its start and of its end as these say. The numbers are
// the contract's for results without an artifact.
const (
	maxReport      = 50 << 10 // bytes
	reportEnd      = 20 << 10 // bytes
	reportEndLines = 500
)

func boundedReport(text string) string {
	if len(text) <= maxReport {
		return text
	}
	short := cutMiddle(text, cutLimits{Lines: 2 * reportEndLines, Bytes: 2 * reportEnd, HeadLines: reportEndLines, HeadBytes: reportEnd})
	return short.Text + "\n\n[Poll fewer jobs at a time to see all of their results.]"
}

func finishedJobs(jobs []Job) []string {
	var lines []string
	n := 0
	for _, j := range jobs {
		if j.Status == sandbox.JobRunning {
			continue
		}
		n++
		lines = append(lines, fmt.Sprintf("### %s [%s] — %s", j.ID, jobType, j.Status), "Label: "+j.Label)
		if j.Result != "" {
			lines = append(lines, "```", j.Result, "```")
		}
		if j.Error != "" {
			lines = append(lines, "Error: "+j.Error)
		}
		lines = append(lines, "")
	}
	if n == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("## Completed (%d)\n", n)}, lines...)
}

func runningJobs(jobs []Job) []string {
	var lines []string
	for _, j := range jobs {
		if j.Status == sandbox.JobRunning {
			lines = append(lines, fmt.Sprintf("- `%s` [%s] — %s", j.ID, jobType, j.Label))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("## Still Running (%d)\n", len(lines))}, lines...)
}
