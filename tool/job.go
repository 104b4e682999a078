package tool

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// JobStatus is how far a job is.
type JobStatus string

// Statuses.
const (
	JobRunning   JobStatus = "running"
	JobCompleted JobStatus = "completed"
	JobFailed    JobStatus = "failed" // also: its command exited with a code other than 0
	JobCancelled JobStatus = "cancelled"
)

// Job is what is known of a job.
type Job struct {
	ID      string
	Label   string
	Status  JobStatus
	Elapsed time.Duration // so far, or in all
	Result  string        // of a completed job
	Error   string        // of a failed one
}

// jobType is the only one there is.
const jobType = "bash"

// Numbers of the job manager.
const (
	maxJobs = 100 // that may be running

	// PollUpdate is how often a waiting job tool sends an update, with an empty text.
	PollUpdate = 500 * time.Millisecond

	defaultPollWait = 30 * time.Second
	maxFollowUp     = 12_000 // UTF-16 units of a result
	keptFollowUp    = 4_000  // UTF-16 units of one that is longer
)

// ClampMaxJobs brings async.maxJobs into its range.
func ClampMaxJobs(n float64) int {
	if math.IsNaN(n) {
		return maxJobs
	}
	return int(max(1, min(math.Floor(n), maxJobs)))
}

// PollWait is how long the job tool waits, by async.pollWaitDuration. What is no
// such duration is the default.
func PollWait(text string) time.Duration {
	switch text {
	case "5s", "10s", "30s", "1m", "5m":
		if d, err := time.ParseDuration(text); err == nil {
			return d
		}
	}
	return defaultPollWait
}

// Started is the result of contract agent for a command that goes on as a job. The
// preview is its output so far.
func Started(p Plan, jobID, preview string) Result {
	var lines []string
	if preview = strings.TrimRightFunc(preview, isSpace); preview != "" {
		lines = append(lines, preview, "")
	}
	if len(p.Notices) > 0 {
		lines = append(append(lines, p.Notices...), "")
	}
	lines = append(lines, fmt.Sprintf("Background job %s started: %s", jobID, sandbox.JobLabel(p.Command)),
		"Result will be delivered automatically when complete.",
		"You can use `job` to poll until complete, but prefer to continue with another task in the meanwhile if it's not blocking.")
	d := p.details()
	d.Async = &Async{State: JobRunning, JobID: jobID, Type: jobType}
	return Result{Text: strings.Join(lines, "\n"), Details: d}
}

// Update is what is told of a command of contract agent while it runs: the end of
// its output so far.
type Update struct {
	Text    string
	Details UpdateDetails
}

// UpdateDetails of an update, as JSON: empty for a command that is no job yet.
type UpdateDetails struct {
	TerminalID string `json:"terminalId,omitempty"` // in the client's terminal
	Async      *Async `json:"async,omitempty"`
}

// JobUpdate is the update of a job.
func JobUpdate(jobID, text string) Update {
	return Update{Text: text, Details: UpdateDetails{Async: &Async{State: JobRunning, JobID: jobID, Type: jobType}}}
}

// Finished is how a job of contract agent has ended. Its result's text is
// delivered, as an error if it has failed.
func Finished(j Job, r Result) (Job, *Details) {
	j.Status, j.Result = JobCompleted, r.Text
	if r.IsError {
		j.Status, j.Result, j.Error = JobFailed, "", r.Text
	}
	d := Details{}
	if r.Details != nil {
		d = *r.Details
	}
	d.Async = &Async{State: j.Status, JobID: j.ID, Type: jobType}
	return j, &d
}

// Delivery is a finished job's result on its way to the model.
type Delivery struct {
	JobID, Label string
	Text         string
	ArtifactID   string // with all of the text; "" if there is none
}

// FollowUp is the message that delivers results, in their order.
func FollowUp(results []Delivery) string {
	var b strings.Builder
	b.WriteString("<system-notice>\n")
	if len(results) == 1 {
		fmt.Fprintf(&b, "Background job %s has completed. Resume your work using the result below.\n%s\n", results[0].JobID, results[0].text())
	} else {
		fmt.Fprintf(&b, "%d background jobs have completed. Resume your work using the results below.\n", len(results))
		for _, r := range results {
			fmt.Fprintf(&b, "\n── Job %s (%s) ──\n%s\n", r.JobID, r.Label, r.text())
		}
	}
	b.WriteString("</system-notice>")
	return b.String()
}

func (d Delivery) text() string {
	if utf16Length(d.Text) <= maxFollowUp {
		return d.Text
	}
	text := utf16Head(d.Text, keptFollowUp) + "\n\n[Output truncated. Showing first 4,000 characters.]"
	if d.ArtifactID != "" {
		text += "\nFull output: artifact://" + d.ArtifactID
	}
	return text
}

// utf16Length is the length of a text in JavaScript.
func utf16Length(text string) int {
	n := 0
	for _, r := range text {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// utf16Head is at most n UTF-16 units from the begin of text, and no half of one.
func utf16Head(text string, n int) string {
	for i, r := range text {
		if n -= max(1, utf16.RuneLen(r)); n < 0 {
			return text[:i]
		}
	}
	return text
}
