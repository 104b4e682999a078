package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sink"
)

// A job is a command that goes on without the process that started it. Its runner keeps it
// and records its output and its end in the session, where any process that opens the
// session finds them.

// JobOptions say when a command becomes a job. The zero value makes it a job at once.
type JobOptions struct {
	// Owner names who owns the job. Deliver reports its end to that owner, and owners do
	// not see each other's jobs. Owner and Label are at most wire.MaxJobText bytes long.
	Owner string
	Label string // a name for people; empty: the start of the script
	// Most is how many jobs may run in the session; 0: DefaultJobs.
	Most int
	// After is how long after its start the command becomes a job. 0 means at once; if it
	// is negative, only Request makes it a job.
	After time.Duration
	// Request makes the command a job when it is closed. It may be nil.
	Request <-chan struct{}
	// Refused, if not nil, is called when a running command cannot become a job. The
	// command goes on as a command. Refused must not block.
	Refused func(error)
}

// Limits of jobs.
const (
	// DefaultJobs is how many jobs may run in a session if JobOptions.Most is 0.
	DefaultJobs = 15
	// MaxJobs is the largest JobOptions.Most.
	MaxJobs = 100
	// JobCap is how many bytes of a job's output are kept. The rest is counted and
	// dropped, and a note in the output's file says so.
	JobCap = 1 << 30
)

// How long a job that has ended, and its id, are kept.
const (
	// JobKept counts from the job's end, or from its acknowledgement if that is later.
	JobKept = 5 * time.Minute
	// JobUntold counts from the end of a job that is never acknowledged.
	JobUntold = 24 * time.Hour
)

var jobKeep = wire.JobKeep{Known: JobKept, Unknown: JobUntold}

var (
	// ErrUnknownJob is returned if no job has the id, or if the job has another owner.
	ErrUnknownJob = errors.New("unknown job")
	// ErrJobRunning is returned by methods that need a job that has ended.
	ErrJobRunning = errors.New("the job is running")
)

// check returns an error if the options are not valid.
func (o *JobOptions) check() error {
	switch {
	case len(o.Owner) > wire.MaxJobText:
		return badInput("job", "the owner is %d bytes long; the limit is %d", len(o.Owner), wire.MaxJobText)
	case len(o.Label) > wire.MaxJobText:
		return badInput("job", "the label is %d bytes long; the limit is %d", len(o.Label), wire.MaxJobText)
	case o.Most < 0 || o.Most > MaxJobs:
		return badInput("job", "a limit of %d jobs: it can be 1 to %d", o.Most, MaxJobs)
	}
	return nil
}

// most returns the limit on running jobs.
func (o *JobOptions) most() int {
	if o.Most == 0 {
		return DefaultJobs
	}
	return o.Most
}

// labelUnits is the most UTF-16 units of a label that is made from a script.
const labelUnits = 120

// JobLabel returns a label for a script: the whole script if it is short, else its start.
func JobLabel(script string) string {
	units := 0
	cut := 0 // where labelUnits-3 units end
	for i, r := range script {
		n := 1
		if r > 0xffff {
			n = 2
		}
		if units+n <= labelUnits-3 {
			cut = i + len(string(r))
		}
		if units += n; units > labelUnits {
			return script[:cut] + "..."
		}
	}
	return script
}

// StartJob starts a command as a job and returns when the job has started. It does not use
// c.Stdin, c.Output and c.Watch. The timeout is kept in the session, so it holds without
// this process. The errors are those of Run; one of their causes is exec.CauseJobLimit.
func (s *Session) StartJob(ctx context.Context, c Command, o JobOptions) (*Job, error) {
	if c.Stdin != nil {
		return nil, badInput("stdin", "a job has no standard input")
	}
	o.After, c.Job = 0, &o
	c.Output, c.Watch = sink.Options{Streams: sink.Merged, Artifact: sink.Never}, nil
	res, err := s.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	if res.Job == nil { // the runner does not follow the protocol
		return nil, fmt.Errorf("session %s: %w", s.ID(), &exec.Error{
			Outcome: exec.Unknown, Cause: exec.CauseProtocol, Err: fmt.Errorf("the job ended as a command: %s", res.Reason),
		})
	}
	return res.Job, nil
}

// offer lets a command become a job. release makes live writers that block give up.
func (s *Session) offer(c *exec.Command, o *JobOptions, release func()) error {
	if err := o.check(); err != nil {
		return err
	}
	if s.info.key == nil {
		return &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseJobs, Err: errNoJobs}
	}
	tag := make([]byte, 16)
	_, _ = rand.Read(tag) // it never fails
	label := o.Label
	if label == "" {
		label = JobLabel(s.engine.opts.Secrets.Scrub(c.Script)) // a part of a secret is not recognised
	}
	label = s.engine.opts.Secrets.Scrub(label)
	var late *time.Timer // set and read on one goroutine
	c.Job = &exec.Job{
		After: o.After, Detach: o.Request, Tag: hex.EncodeToString(tag), Owner: o.Owner, Label: label,
		Cap: JobCap, Most: o.most(), Keep: jobKeep, Key: s.info.key,
		// The runner's answer comes after output that live writers have not taken yet.
		Asked: func() { late = time.AfterFunc(graceOf(c), release) },
		Refused: func(err error) {
			if late != nil { // a runner that follows the protocol was asked first
				late.Stop()
			}
			if o.Refused != nil {
				o.Refused(limitText(err, o))
			}
		},
	}
	return nil
}

var errNoJobs = errors.New("it was started by a version of sandboxbash that has no jobs: start another session")

// graceOf returns how long live writers may block once the hand-over was asked for.
func graceOf(c *exec.Command) time.Duration { return cmp.Or(c.Grace, exec.DefaultGrace) }

// limitText adds the limit to an error that says that the job limit is reached.
func limitText(err error, o *JobOptions) error {
	e, ok := errors.AsType[*exec.Error](err)
	if !ok || e.Cause != exec.CauseJobLimit {
		return err
	}
	return &exec.Error{Outcome: e.Outcome, Cause: e.Cause, Err: JobLimitError(o.most())}
}

// JobLimitError is the number of jobs that may run. Its text is that of the contracts.
type JobLimitError int

func (e JobLimitError) Error() string {
	return fmt.Sprintf("Background job limit reached (%d). Wait for running jobs to finish or cancel one.", int(e))
}

// handedOver asks whether a command whose end is unknown has become a job. The runner's
// answer may have been lost on its way.
func (s *Session) handedOver(ctx context.Context, job *exec.Job, err error) *exec.Started {
	e, ok := errors.AsType[*exec.Error](err)
	if job == nil || !ok || e.Outcome != exec.Unknown {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noticeTime)
	defer cancel()
	all, err := s.Jobs(ctx, "")
	if err != nil {
		return nil
	}
	for _, info := range all {
		if info.tag == job.Tag {
			return &exec.Started{ID: info.ID, PID: info.PID}
		}
	}
	return nil
}

// jobOf returns the Job of a command that was handed over.
func (s *Session) jobOf(c exec.Command, started *exec.Started) *Job {
	return &Job{session: s, info: JobInfo{
		Session: s.ID(), ID: started.ID, State: JobRunning, PID: started.PID, OutputFile: wire.JobOutput(started.ID),
		Owner: c.Job.Owner, Label: c.Job.Label, Started: time.Now(), Timeout: c.Timeout, tag: c.Job.Tag,
	}}
}

// askJobs asks the session about its jobs, with the streams of the question.
func (s *Session) askJobs(ctx context.Context, q wire.JobQuery, streams helperStreams) error {
	if s.info.key == nil {
		return errNoJobs
	}
	q.Keep = jobKeep
	streams.in, streams.run = bytes.NewReader(q.Append(nil)), s.pool.Aside
	return s.helperAs(ctx, User{}, streams, wire.VerbJobs.Command())
}

// jobStates lists the jobs as the runner reports them.
func (s *Session) jobStates(ctx context.Context) ([]wire.JobState, error) {
	var b bytes.Buffer
	err := s.withSpare(ctx, func() error {
		b.Reset()
		return s.askJobs(ctx, wire.JobQuery{}, helperStreams{out: &limited{w: &b, left: maxHelperOutput}, timeout: helperTime})
	})
	if err != nil {
		return nil, fmt.Errorf("session %s: jobs: %w", s.ID(), err)
	}
	all, err := wire.ParseJobStates(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("session %s: jobs: %w", s.ID(), err)
	}
	return all, nil
}

// Jobs describes the jobs of an owner, ordered by number. If owner is "", it describes the
// jobs of all owners.
func (s *Session) Jobs(ctx context.Context, owner string) ([]JobInfo, error) {
	states, err := s.jobStates(ctx)
	if err != nil {
		return nil, err
	}
	var all []JobInfo
	for _, state := range states {
		if info := s.describeJob(state); owner == "" || info.Owner == owner {
			all = append(all, info)
		}
	}
	return all, nil
}

// Job finds a job by its id. If owner is not "", the job must have that owner. It returns an
// error wrapping ErrUnknownJob if there is no such job.
func (s *Session) Job(ctx context.Context, owner, id string) (*Job, error) {
	all, err := s.Jobs(ctx, owner)
	if err != nil {
		return nil, err
	}
	for _, info := range all {
		if info.ID == id {
			return &Job{session: s, info: info}, nil
		}
	}
	return nil, s.unknownJob(id)
}

func (s *Session) unknownJob(id string) error {
	return fmt.Errorf("session %s: job %s: %w", s.ID(), printable(id), ErrUnknownJob)
}
