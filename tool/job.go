package tool

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Job is what is known of a job.
type Job struct {
	ID      string
	Label   string
	Status  sandbox.JobState // never JobUnknown, which the contract does not have
	Elapsed time.Duration    // so far, or in all
	Result  string           // of a completed job
	Error   string           // of a failed one
}

// jobType is the only type of jobs.
const jobType = BashName

// Numbers of the job manager.
const (
	maxJobs = 100 // that may be running

	// PollUpdate is how often a waiting job tool sends an update, with an empty text.
	PollUpdate = 500 * time.Millisecond

	defaultPollWait = 30 * time.Second
	MaxFollowUp     = 12_000 // UTF-16 units of a result
	keptFollowUp    = 4_000  // UTF-16 units of one that is longer
)

// clampMaxJobs brings async.maxJobs into its range.
func clampMaxJobs(n float64) int {
	if math.IsNaN(n) {
		return maxJobs
	}
	return int(max(1, min(math.Floor(n), maxJobs)))
}

// PollWait returns how long the job tool waits, by async.pollWaitDuration. A text that
// is not such a duration means the default.
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
	d.Async = &Async{State: sandbox.JobRunning, JobID: jobID, Type: jobType}
	return Result{Text: strings.Join(lines, "\n"), Details: d}
}

// Update is a report on a command of contract agent while it runs: the end of its
// output so far.
type Update struct {
	Text    string
	Details UpdateDetails
}

// UpdateDetails of an update, as JSON: empty for a command that has not become a job.
type UpdateDetails struct {
	TerminalID string `json:"terminalId,omitempty"` // in the client's terminal
	Async      *Async `json:"async,omitempty"`
}

// JobUpdate is the update of a job.
func JobUpdate(jobID, text string) Update {
	return Update{Text: text, Details: UpdateDetails{Async: &Async{State: sandbox.JobRunning, JobID: jobID, Type: jobType}}}
}

// Finished returns a job of contract agent with its result. The text of the result is
// delivered, as an error if the job has failed.
func Finished(j Job, r Result) (Job, *Details) {
	j.Status, j.Result = sandbox.JobCompleted, r.Text
	if r.IsError {
		j.Status, j.Result, j.Error = sandbox.JobFailed, "", r.Text
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
	if utf16Length(d.Text) <= MaxFollowUp {
		return d.Text
	}
	text := utf16Head(d.Text, keptFollowUp) + "\n\n[Output truncated. Showing first 4,000 characters.]"
	if d.ArtifactID != "" {
		text += "\nFull output: artifact://" + d.ArtifactID
	}
	return text
}

// utf16Length returns the length of a text in JavaScript.
func utf16Length(text string) int {
	n := 0
	for _, r := range text {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// utf16Head returns at most n UTF-16 units from the start of text. It does not split a
// character.
func utf16Head(text string, n int) string {
	for i, r := range text {
		if n -= max(1, utf16.RuneLen(r)); n < 0 {
			return text[:i]
		}
	}
	return text
}
