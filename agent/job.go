package agent

import (
	"context"
	"errors"
	"maps"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// jobKey identifies a job for the life of the container. An id alone does not: ids are
// used again.
type jobKey struct {
	id  string
	pid int
}

func keyOf(info sandbox.JobInfo) jobKey { return jobKey{info.ID, info.PID} }

// jobBook is what this process knows of jobs and their session does not.
type jobBook struct {
	wording singleflight.Group // of results

	mu       sync.Mutex
	plans    map[jobKey]tool.Plan     // guarded by mu; of jobs that this process has started
	worded   map[jobKey]finished      // guarded by mu; results of jobs that have ended
	watchers map[jobKey]int           // guarded by mu; calls of the job tool that will report it
	idle     map[jobKey]chan struct{} // guarded by mu; closed when the last of them is over
}

// finished is a job that has ended, as it is worded for the model.
type finished struct {
	job      tool.Job
	artifact string
}

func newJobBook() *jobBook {
	return &jobBook{
		plans: map[jobKey]tool.Plan{}, worded: map[jobKey]finished{}, watchers: map[jobKey]int{}, idle: map[jobKey]chan struct{}{},
	}
}

// begun notes a job. An earlier job with the same id is gone.
func (b *jobBook) begun(info sandbox.JobInfo, p tool.Plan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	same := func(k jobKey) bool { return k.id == info.ID }
	maps.DeleteFunc(b.plans, func(k jobKey, _ tool.Plan) bool { return same(k) })
	maps.DeleteFunc(b.worded, func(k jobKey, _ finished) bool { return same(k) })
	b.plans[keyOf(info)] = p
}

// plan returns the plan of a job that this process has started.
func (b *jobBook) plan(k jobKey) (tool.Plan, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.plans[k]
	return p, ok
}

// result returns a job that has been worded.
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

// canBeJob reports whether a call can become a job.
func (s *Session) canBeJob(c *running) bool {
	_, on := tool.JobTool{}.Definition(s.opts.Settings)
	return on && c.on.CallID != "" && c.plan.Contract == tool.Agent
}

// handle registers a call for Background under its id.
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

// startJob starts a command as a job. Its shell shares no state with others.
func (s *Session) startJob(ctx context.Context, c *running) tool.Result {
	cmd := s.command(c)
	c.shell = nil
	use := s.enter(ctx, c, &cmd)
	s.leave(ctx, c, use, &tool.Outcome{})
	j, err := s.sandbox.StartJob(ctx, cmd, s.jobOptions(c))
	if err != nil {
		return s.contract.Result(c.plan, tool.Outcome{Err: err, Aborted: aborted(ctx)})
	}
	s.jobs.begun(j.Info(), c.plan)
	c.on.update(tool.JobUpdate(j.Info().ID, ""))
	return tool.Started(c.plan, j.Info().ID, "")
}

// becomeJob returns the result of a command that has become a job.
func (s *Session) becomeJob(_ context.Context, c *running, j sandboxJob, o tool.Outcome) tool.Result {
	s.jobs.begun(j.Info(), c.plan)
	preview := o.Output.Stdout.Text()
	c.on.update(tool.JobUpdate(j.Info().ID, preview))
	return tool.Started(c.plan, j.Info().ID, preview)
}

// modesBackground starts a background command of contract modes.
func (s *Session) modesBackground(ctx context.Context, c *running) tool.Result {
	j, err := s.sandbox.StartJob(ctx, s.command(c), s.jobOptions(c))
	if e, ok := errors.AsType[*exec.Error](err); ok && e.Cause == exec.CauseJobs {
		return tool.ModesNoFile(e.Err)
	}
	if err != nil {
		if aborted(ctx) {
			return s.contract.Result(c.plan, notBegun(ctx, err))
		}
		return tool.ModesNotStarted(err)
	}
	return tool.ModesStarted(j.Info().PID, j.Info().OutputFile)
}

// Jobs returns the owner's jobs as they are now, in the order of their numbers, those
// that have ended with their results.
func (s *Session) Jobs(ctx context.Context) ([]tool.Job, error) {
	infos, err := s.sandbox.Jobs(ctx, s.opts.Owner)
	if err != nil {
		return nil, err
	}
	all := make([]tool.Job, 0, len(infos))
	for _, info := range infos {
		if s.opts.Owner == "" && info.Owner != "" {
			continue // for the sandbox session "" means every owner
		}
		done, err := s.describe(ctx, info)
		if err != nil { // the other jobs can still be shown
			done.job = tool.Job{ID: info.ID, Label: info.Label, Status: sandbox.JobFailed, Elapsed: info.Elapsed, Error: "its output cannot be read: " + err.Error()}
		}
		all = append(all, done.job)
	}
	return all, nil
}

// ErrUnknownJob is returned for a job that the owner does not have.
var ErrUnknownJob = sandbox.ErrUnknownJob

// find finds a job of the owner.
func (s *Session) find(ctx context.Context, id string) (sandboxJob, error) {
	j, err := s.sandbox.Job(ctx, s.opts.Owner, id)
	if err == nil && j.Info().Owner != s.opts.Owner {
		return nil, ErrUnknownJob
	}
	return j, err
}

// Job returns a job as it is now.
func (s *Session) Job(ctx context.Context, id string) (tool.Job, error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return tool.Job{}, err
	}
	done, err := s.describe(ctx, j.Info())
	return done.job, err
}

// cancelJob ends a job and everything it has started, and returns the result. A
// cancelled job is not delivered.
func (s *Session) cancelJob(ctx context.Context, id string) (tool.Cancellation, error) {
	j, err := s.find(ctx, id)
	if errors.Is(err, ErrUnknownJob) {
		return tool.Cancelled(id, tool.Job{}, false), nil
	}
	if err != nil {
		return s.cancelUnseen(ctx, id)
	}
	before := j.Info()
	if before.State == sandbox.JobRunning {
		// Acknowledge it before it ends: its end must not be delivered.
		if err := j.Acknowledge(ctx); err != nil {
			return s.cancelUnseen(ctx, id)
		}
	}
	after, err := j.Kill(ctx)
	if err != nil {
		return tool.Cancellation{}, err
	}
	return cancelled(id, statusOf(before), after), nil
}

// cancelUnseen cancels a job that the session could not be asked about, for example because
// it has no room for another process. KillJob resets such a session.
func (s *Session) cancelUnseen(ctx context.Context, id string) (tool.Cancellation, error) {
	after, err := s.sandbox.KillJob(ctx, s.opts.Owner, id)
	if err != nil {
		return tool.Cancellation{}, err
	}
	if err := s.acknowledgeJob(ctx, id); err != nil {
		return tool.Cancellation{}, err
	}
	return cancelled(id, sandbox.JobRunning, after), nil
}

// cancelled is the result of a cancellation of a job with a status from before.
func cancelled(id string, was sandbox.JobState, after sandbox.JobInfo) tool.Cancellation {
	if was == sandbox.JobRunning && after.State != sandbox.JobCancelled {
		was = statusOf(after) // it ended before the kill
	}
	return tool.Cancelled(id, tool.Job{ID: id, Status: was}, true)
}

// acknowledgeJob notes that the owner knows how a job has ended: it is not delivered
// any more.
func (s *Session) acknowledgeJob(ctx context.Context, id string) error {
	j, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	return j.Acknowledge(ctx)
}
