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

// A job is a command that goes on without the process that has started it. The
// session keeps it: its runner writes down its output, and how it ended. Any
// process that opens the session finds it there.

// JobOptions make a command one that becomes a job. Zero values are defaults.
type JobOptions struct {
	// Owner is who hears of the job's end: see Deliver. Owners do not see each
	// other's jobs. At most wire.MaxJobText bytes, as Label.
	Owner string
	Label string // what people know it by; empty: the start of the script
	// Most is how many jobs may run in the session; 0: DefaultJobs.
	Most int
	// After is when the command becomes a job, counted from its start: at once if
	// it is 0, and only on Request if it is negative.
	After time.Duration
	// Request makes the command a job when it is closed. It may be nil.
	Request <-chan struct{}
	// Refused is called, if not nil, when the command cannot be made a job after
	// its start. It goes on as a command. It must not block.
	Refused func(error)
}

// Limits of jobs.
const (
	// DefaultJobs is how many jobs run in a session unless JobOptions says so.
	DefaultJobs = 15
	// MaxJobs is the most that JobOptions may say.
	MaxJobs = 100
	// JobCap is how much is kept of a job's output, in bytes. What is beyond is
	// counted, and the output's file says so.
	JobCap = 1 << 30
)

// How long jobs that have ended are kept, and with them their ids.
const (
	// JobKept counts from the end of a job, or from when its owner knows of it if that
	// is later.
	JobKept = 5 * time.Minute
	// JobUntold counts from the end of a job whose owner does not know of it.
	JobUntold = 24 * time.Hour
)

var jobKeep = wire.JobKeep{Known: JobKept, Unknown: JobUntold}

var (
	// ErrUnknownJob is returned for an id that no job has, or none that the owner
	// may see.
	ErrUnknownJob = errors.New("unknown job")
	// ErrJobRunning is returned for what can only be done to a job that has ended.
	ErrJobRunning = errors.New("the job is running")
)

// check refuses options that cannot be.
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

// most is the limit on jobs that the options mean.
func (o *JobOptions) most() int {
	if o.Most == 0 {
		return DefaultJobs
	}
	return o.Most
}

// labelUnits is how long a label is that was made of a script, in UTF-16 units.
const labelUnits = 120

// JobLabel is what a script is known by as a job: all of it if it is short, else
// its start.
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

// StartJob starts a command as a job and returns when it has started. Of c it
// takes no Stdin, no Output and no Watch. The timeout is kept in the session. It
// returns the errors of Run, CauseJobLimit among their causes.
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
	if res.Job == nil { // a runner that does not keep to the protocol
		return nil, fmt.Errorf("session %s: %w", s.ID(), &exec.Error{
			Outcome: exec.Unknown, Cause: exec.CauseProtocol, Err: fmt.Errorf("the job ended as a command: %s", res.Reason),
		})
	}
	return res.Job, nil
}

// offer makes a command one that can become a job. release gives up live writers
// that block.
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
		// The runner's answer stands behind what live writers have not taken.
		Asked: func() { late = time.AfterFunc(graceOf(c), release) },
		Refused: func(err error) {
			if late != nil { // as with every runner that keeps to the protocol
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

// graceOf is how long a command's live writers may block when it is let go.
func graceOf(c *exec.Command) time.Duration { return cmp.Or(c.Grace, exec.DefaultGrace) }

// limitText says what the limit is, of an error that says that it is reached.
func limitText(err error, o *JobOptions) error {
	e, ok := errors.AsType[*exec.Error](err)
	if !ok || e.Cause != exec.CauseJobLimit {
		return err
	}
	return &exec.Error{Outcome: e.Outcome, Cause: e.Cause, Err: JobLimitError(o.most())}
}

// JobLimitError says in the words of the contracts that so many jobs run.
type JobLimitError int

func (e JobLimitError) Error() string {
	return fmt.Sprintf("Background job limit reached (%d). Wait for running jobs to finish or cancel one.", int(e))
}

// handedOver looks whether a command that was lost track of has become a job: the
// answer may have been lost on the way.
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

// jobOf is a job that this call has started.
func (s *Session) jobOf(c exec.Command, started *exec.Started) *Job {
	return &Job{session: s, info: JobInfo{
		Session: s.ID(), ID: started.ID, State: JobRunning, PID: started.PID, OutputFile: wire.JobOutput(started.ID),
		Owner: c.Job.Owner, Label: c.Job.Label, Started: time.Now(), Timeout: c.Timeout, tag: c.Job.Tag,
	}}
}

// askJobs asks the session about its jobs. The answer goes to out.
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

// Jobs describes the jobs of an owner, or of all if owner is "", by their numbers.
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

// Job finds a job of an owner, or of any if owner is "". It returns an error
// wrapping ErrUnknownJob if there is none.
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
