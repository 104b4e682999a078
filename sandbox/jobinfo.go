package sandbox

import (
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// JobState is the state of a job.
type JobState string

// States.
const (
	JobRunning   JobState = "running"
	JobCompleted JobState = "completed" // exit code 0
	JobFailed    JobState = "failed"    // another exit code, a signal, its timeout, or it was lost
	JobCancelled JobState = "cancelled" // killed on demand
	// JobUnknown is the state of a job whose record was not written by a runner of this
	// session. Nothing is known of the job.
	JobUnknown JobState = "unknown"
)

// Reasons of jobs, besides those of package exec.
const (
	JobLost    exec.Reason = "lost"    // the container was reset or the runner killed, so the end was not recorded
	JobMissing exec.Reason = "unknown" // the end in its record was not written by a runner of this session
)

// JobInfo describes a job at one moment.
type JobInfo struct {
	Session    string        `json:"session"`
	ID         string        `json:"id"`
	State      JobState      `json:"state"`
	Reason     exec.Reason   `json:"reason,omitempty"` // why it has ended; empty while it runs
	ExitCode   *int          `json:"exitCode"`         // nil unless it has exited
	Signal     int           `json:"signal,omitempty"`
	PID        int           `json:"pid"` // of the leader and its process group; 0 if that is not known
	OutputFile string        `json:"outputFile"`
	Artifact   string        `json:"artifact,omitempty"` // id of the artifact with its whole output, on some host
	Owner      string        `json:"owner,omitempty"`
	Label      string        `json:"label"`
	Started    time.Time     `json:"started,omitzero"`
	Ended      time.Time     `json:"ended,omitzero"`
	Elapsed    time.Duration `json:"-"`
	Timeout    time.Duration `json:"-"`
	Bytes      int64         `json:"bytes"`          // of output so far
	Kept       int64         `json:"kept"`           // of those, in the file
	Told       bool          `json:"told"`           // its owner knows of its end
	Full       []Full        `json:"full,omitempty"` // as in a Result
	// Status says how the job ended. It is nil while the job runs, and if its end is not known.
	Status *exec.Status `json:"-"`

	tag    string
	runner int
}

// describeJob converts what the runner reports of a job. It trusts only records that are
// sealed with this session's key.
func (s *Session) describeJob(state wire.JobState) JobInfo {
	info := JobInfo{
		Session: s.ID(), ID: state.ID, State: JobUnknown, Reason: JobMissing, OutputFile: wire.JobOutput(state.ID),
		Bytes: int64(state.Size), Kept: int64(state.Size), Told: state.Known, Artifact: decimal(state.Artifact),
	}
	start, err := wire.OpenJobStart(s.info.key, state.Start)
	if err != nil || start.ID != state.ID {
		return info
	}
	info.PID, info.Owner, info.Label, info.Started, info.Timeout = start.PID, start.Owner, start.Label, start.Started, start.Timeout
	info.tag, info.runner = start.Tag, start.Runner
	switch {
	case state.Alive:
		info.State, info.Reason, info.Elapsed = JobRunning, "", time.Since(start.Started)
		return info
	case len(state.End) == 0:
		info.State, info.Reason = JobFailed, JobLost
		return info
	}
	end, err := wire.OpenJobEnd(s.info.key, state.End)
	if err != nil || end.ID != state.ID || end.Tag != start.Tag {
		return info
	}
	info.end(end)
	info.Full = s.info.labels.full(end.NoRoom)
	return info
}

// end fills in how a job has ended.
func (i *JobInfo) end(end wire.JobEnd) {
	st := &exec.Status{
		Reason: exec.Exited, Code: end.Code, Signal: end.Signal, Elapsed: end.Elapsed, CPU: end.CPU, MaxRSS: int64(end.MaxRSS), Processes: int64(end.Processes),
		Stdout: int64(end.Written), Rung: end.Rung, Left: int(end.Left), NoRoom: end.NoRoom,
	}
	i.State = JobFailed
	switch {
	case end.Ending == wire.EndedTimeout:
		st.Reason = exec.TimedOut
	case end.Ending == wire.EndedByDemand:
		st.Reason, i.State = exec.Cancelled, JobCancelled
	case end.OOM:
		st.Reason = exec.OOMKilled
	case end.Signal != 0:
		st.Reason = exec.Signalled
	case end.Code == 0:
		i.State = JobCompleted
	}
	if st.Reason == exec.Exited {
		i.ExitCode = &st.Code
	}
	i.Status, i.Reason, i.Signal = st, st.Reason, end.Signal
	i.Ended, i.Elapsed, i.Bytes, i.Kept = end.Ended, end.Elapsed, int64(end.Written), int64(end.Kept)
}

// decimal returns id if it can be an artifact's id, else "". In profile dev a command can
// write any text there.
func decimal(id string) string {
	for _, r := range id {
		if r < '0' || r > '9' {
			return ""
		}
	}
	if len(id) > 18 {
		return ""
	}
	return id
}
