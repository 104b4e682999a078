package tool

import (
	"context"
	"errors"
	"maps"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// jobKey is one job for as long as the container lives: ids are used again.
type jobKey struct {
	id  string
	pid int
}

func keyOf(info sandbox.JobInfo) jobKey { return jobKey{info.ID, info.PID} }

// jobBook is what this process knows of jobs beyond what their session does.
type jobBook struct {
	wording singleflight.Group // of results

	mu       sync.Mutex
	plans    map[jobKey]Plan          // guarded by mu; of jobs begun here
	worded   map[jobKey]finished      // guarded by mu; results of jobs that have ended
	watchers map[jobKey]int           // guarded by mu; calls of the job tool that will tell of it
	idle     map[jobKey]chan struct{} // guarded by mu; closed when the last of them is over
	pending  bool                     // guarded by mu; there may be jobs that nobody has been told of
}

// finished is a job that has ended, as the model is told.
type finished struct {
	job      Job
	artifact string
}

func newJobBook() *jobBook {
	return &jobBook{
		plans: map[jobKey]Plan{}, worded: map[jobKey]finished{}, watchers: map[jobKey]int{}, idle: map[jobKey]chan struct{}{},
		pending: true, // of another process, under the same owner
	}
}

// begun notes a job. An earlier one of the same id is gone.
func (b *jobBook) begun(info sandbox.JobInfo, p Plan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	same := func(k jobKey) bool { return k.id == info.ID }
	maps.DeleteFunc(b.plans, func(k jobKey, _ Plan) bool { return same(k) })
	maps.DeleteFunc(b.worded, func(k jobKey, _ finished) bool { return same(k) })
	b.plans[keyOf(info)], b.pending = p, true
}

// plan is the plan of a job that was begun here.
func (b *jobBook) plan(k jobKey) (Plan, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.plans[k]
	return p, ok
}

// result is what has been worded of a job.
func (b *jobBook) result(k jobKey) (finished, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	done, ok := b.worded[k]
	return done, ok
}

func (b *jobBook) keep(k jobKey, done finished) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.worded[k] = done
}

// canBeJob tells whether a call can be handed over.
func (s *Session) canBeJob(c *running) bool {
	_, on := JobTool{}.Definition(s.opts.Settings)
	return on && c.on.CallID != "" && c.plan.Contract == Agent
}

// handle makes the call of an id one that Background finds.
func (s *Session) handle(callID string) (ask <-chan struct{}, over func()) {
	if callID == "" {
		return nil, func() {}
	}
	request := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[callID] = request
	return request, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.calls[callID] == request {
			delete(s.calls, callID)
		}
	}
}

func (s *Session) jobOptions(c *running) sandbox.JobOptions {
	return sandbox.JobOptions{Owner: s.opts.Owner, Label: sandbox.JobLabel(c.plan.Command), Most: s.opts.Settings.MaxJobs}
}

// startJob starts a command as a job. Its shell shares nothing with others.
func (s *Session) startJob(ctx context.Context, c *running) Result {
	cmd := s.command(c)
	c.shell = nil
	use := s.enter(ctx, c, &cmd)
	s.leave(ctx, c, use, &Outcome{})
	j, err := s.box.StartJob(ctx, cmd, s.jobOptions(c))
	if err != nil {
		return s.contract.Result(c.plan, Outcome{Err: err, Aborted: aborted(ctx)})
	}
	s.jobs.begun(j.Info(), c.plan)
	c.on.update(JobUpdate(j.Info().ID, ""))
	return Started(c.plan, j.Info().ID, "")
}

// becomeJob is the result of a command that has become a job.
func (s *Session) becomeJob(_ context.Context, c *running, j boxJob, o Outcome) Result {
	s.jobs.begun(j.Info(), c.plan)
	preview := o.Output.Stdout.Text()
	c.on.update(JobUpdate(j.Info().ID, preview))
	return Started(c.plan, j.Info().ID, preview)
}

// modesBackground starts a background command of contract modes.
func (s *Session) modesBackground(ctx context.Context, c *running) Result {
	j, err := s.box.StartJob(ctx, s.command(c), s.jobOptions(c))
	if e, ok := errors.AsType[*exec.Error](err); ok && e.Cause == exec.CauseJobs {
		return ModesNoFile(e.Err)
	}
	if err != nil {
		if aborted(ctx) {
			return s.contract.Result(c.plan, notBegun(ctx, err))
		}
		return ModesNotStarted(err)
	}
	return ModesStarted(j.Info().PID, j.Info().OutputFile)
}

// Jobs are the owner's jobs as they are, by their numbers. Those that have ended
// have their results.
func (s *Session) Jobs(ctx context.Context) ([]Job, error) {
	infos, err := s.box.Jobs(ctx, s.opts.Owner)
	if err != nil {
		return nil, err
	}
	all := make([]Job, 0, len(infos))
	for _, info := range infos {
		if s.opts.Owner == "" && info.Owner != "" {
			continue // "" asks the box for those of all
		}
		done, err := s.describe(ctx, info)
		if err != nil { // the others are as they are
			done.job = Job{ID: info.ID, Label: info.Label, Status: JobFailed, Elapsed: info.Elapsed, Error: "its output cannot be read: " + err.Error()}
		}
		all = append(all, done.job)
	}
	return all, nil
}

// ErrUnknownJob is returned for a job that the owner does not have.
var ErrUnknownJob = sandbox.ErrUnknownJob

// find finds a job of the owner.
func (s *Session) find(ctx context.Context, id string) (boxJob, error) {
	j, err := s.box.Job(ctx, s.opts.Owner, id)
	if err == nil && j.Info().Owner != s.opts.Owner {
		return nil, ErrUnknownJob
	}
	return j, err
}

// Job is one job as it is.
func (s *Session) Job(ctx context.Context, id string) (Job, error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return Job{}, err
	}
	done, err := s.describe(ctx, j.Info())
	return done.job, err
}

// WaitJob waits for a job's end as long as ctx does.
func (s *Session) WaitJob(ctx context.Context, id string) (Job, error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return Job{}, err
	}
	info, err := j.Wait(ctx)
	if err != nil {
		return Job{}, err
	}
	done, err := s.describe(ctx, info)
	return done.job, err
}

// CancelJob ends a job, with everything it has started, and says what came of it.
// Nothing is delivered of it.
func (s *Session) CancelJob(ctx context.Context, id string) (Cancellation, error) {
	j, err := s.find(ctx, id)
	if errors.Is(err, ErrUnknownJob) {
		return Cancelled(id, Job{}, false), nil
	}
	if err != nil {
		return Cancellation{}, err
	}
	before := j.Info()
	if before.State == sandbox.JobRunning {
		// Told before it has ended: nobody must deliver what somebody has cancelled.
		if err := j.Acknowledge(ctx); err != nil {
			return Cancellation{}, err
		}
	}
	after, err := j.Kill(ctx)
	if err != nil {
		return Cancellation{}, err
	}
	was := Job{ID: id, Status: statusOf(before)}
	if was.Status == JobRunning && after.State != sandbox.JobCancelled {
		was.Status = statusOf(after) // it was faster
	}
	return Cancelled(id, was, true), nil
}

// AcknowledgeJob says that the owner knows how a job has ended: it is not
// delivered any more.
func (s *Session) AcknowledgeJob(ctx context.Context, id string) error {
	j, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	return j.Acknowledge(ctx)
}
