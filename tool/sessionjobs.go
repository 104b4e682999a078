package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// statusOf is where a job is, in the words of the contract.
func statusOf(info sandbox.JobInfo) JobStatus {
	switch info.State {
	case sandbox.JobRunning:
		return JobRunning
	case sandbox.JobCompleted:
		return JobCompleted
	case sandbox.JobCancelled:
		return JobCancelled
	case sandbox.JobFailed, sandbox.JobUnknown:
	}
	return JobFailed
}

// describe says of a job what the model is told. The result of one that has ended
// is worded once: that takes reading its output.
func (s *Session) describe(ctx context.Context, info sandbox.JobInfo) (finished, error) {
	j := Job{ID: info.ID, Label: info.Label, Status: statusOf(info), Elapsed: info.Elapsed}
	if j.Status == JobRunning || j.Status == JobCancelled {
		return finished{job: j}, nil
	}
	key := keyOf(info)
	if done, ok := s.jobs.result(key); ok {
		return done, nil
	}
	done, err, _ := s.jobs.wording.Do(fmt.Sprint(key), func() (any, error) {
		done, err := s.word(context.WithoutCancel(ctx), info, j) // also for others than this caller
		if err == nil {
			s.jobs.keep(key, done)
		}
		return done, err
	})
	return done.(finished), err
}

// word reads what a job has written, and words its result.
func (s *Session) word(ctx context.Context, info sandbox.JobInfo, j Job) (finished, error) {
	plan, ours := s.jobs.plan(keyOf(info))
	if !ours { // of another process
		plan = Plan{Contract: Agent, Command: info.Label, Timeout: Timeout{Seconds: info.Timeout.Seconds()}}
	}
	o, err := s.jobOutcome(ctx, info, plan)
	if err != nil {
		return finished{}, err
	}
	var done finished
	done.job, _ = Finished(j, agentContract{}.Result(plan, o))
	if o.Output.Artifact.Stored {
		done.artifact = o.Output.Artifact.ID
	}
	s.bringBack(ctx)
	return done, nil
}

// jobOutcome is how a job has ended, with the output that is shown of it.
func (s *Session) jobOutcome(ctx context.Context, info sandbox.JobInfo, p Plan) (Outcome, error) {
	o := Outcome{Reason: info.Reason, Elapsed: info.Elapsed}
	if st := info.Status; st != nil {
		o.Code, o.Signal = st.Code, st.Signal
		o.Run = RunInfo{CPUMs: st.CPU.Milliseconds(), MaxRSSBytes: st.MaxRSS, Background: st.Left, Receipt: info.Receipt()}
	} else {
		o.Reason, o.Err = "", &exec.Error{
			Outcome: exec.Unknown, Cause: exec.CauseRunnerLost, Err: fmt.Errorf("job %s: nobody has seen its end (%s)", info.ID, info.Reason),
		}
	}
	if info.State == sandbox.JobUnknown {
		return o, nil
	}
	j, err := s.find(ctx, info.ID)
	if err != nil {
		return o, err
	}
	opts := s.output(p, nil)
	opts.Limit = 0                // it has ended
	if info.Bytes > maxFollowUp { // a follow-up may not show all of it
		opts.Artifact = sink.Always
	}
	o.Output, err = j.Output(ctx, sandbox.JobOutput{}, opts)
	if id := j.Info().Artifact; id != "" && id == o.Output.Artifact.ID {
		o.Output.Artifact.Stored = true // by an earlier reader
	}
	return o, err
}

// JobOutput reads a job's output, as sandbox.Job.Output does.
func (s *Session) JobOutput(ctx context.Context, id string, part sandbox.JobOutput, o sink.Options) (sink.Output, error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return sink.Output{}, err
	}
	return j.Output(ctx, part, o)
}

// job is a call of the tool job.
func (s *Session) job(ctx context.Context, arguments json.RawMessage, on Events) Result {
	call, err := JobTool{}.Parse(arguments)
	if err != nil {
		return s.failed(err)
	}
	if _, there := (JobTool{}).Definition(s.opts.Settings); !there {
		text, details := JobTool{}.NoJobManager()
		return Result{Text: text, JobDetails: &details}
	}
	var cancels []Cancellation
	for _, id := range call.Cancel {
		c, err := s.CancelJob(ctx, id)
		if err != nil {
			return s.failed(err)
		}
		cancels = append(cancels, c)
	}
	jobs, err := s.Jobs(ctx)
	if err != nil {
		return s.failed(err)
	}
	shown := call.Shown(jobs)
	if call.Watch {
		if shown, err = s.watchJobs(ctx, shown, on); err != nil {
			return s.failed(err)
		}
	}
	text, details := call.Report(shown, cancels)
	if err := s.reported(ctx, shown); err != nil {
		return s.failed(err)
	}
	return Result{Text: text, JobDetails: &details}
}

// reported says of the jobs that have ended that the owner knows.
func (s *Session) reported(ctx context.Context, jobs []Job) error {
	for _, j := range jobs {
		if j.Status == JobRunning {
			continue
		}
		if err := s.AcknowledgeJob(ctx, j.ID); err != nil && !errors.Is(err, ErrUnknownJob) {
			return err
		}
	}
	return nil
}

// CancelJobs ends all of the owner's jobs.
func (s *Session) CancelJobs(ctx context.Context) error {
	infos, err := s.box.Jobs(ctx, s.opts.Owner)
	for _, info := range infos {
		if info.Owner == s.opts.Owner && info.State == sandbox.JobRunning {
			_, cancelErr := s.CancelJob(ctx, info.ID)
			err = errors.Join(err, cancelErr)
		}
	}
	return err
}

// drainPoll is between two looks at whether all jobs have been told of.
const drainPoll = 50 * time.Millisecond

// Drain waits until all of the owner's jobs have ended and somebody has been told,
// by Deliveries that run or else. The error is that of ctx, or of looking.
func (s *Session) Drain(ctx context.Context) error {
	for {
		infos, err := s.box.Jobs(ctx, s.opts.Owner)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(infos, func(i sandbox.JobInfo) bool {
			return i.Owner == s.opts.Owner && (!i.Told || i.State == sandbox.JobRunning)
		}) {
			return nil
		}
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchJobs waits for the first of some jobs to end, as long as the settings say or
// ctx lasts, and says how they are then.
func (s *Session) watchJobs(ctx context.Context, jobs []Job, on Events) ([]Job, error) {
	var run []boxJob
	for _, j := range jobs {
		if j.Status != JobRunning {
			return jobs, nil // the first has ended before
		}
		b, err := s.find(ctx, j.ID)
		if err != nil && !errors.Is(err, ErrUnknownJob) {
			return nil, err
		}
		if err == nil {
			run = append(run, b)
		}
	}
	if len(run) == 0 {
		return jobs, nil
	}
	over := s.jobs.watch(run)
	defer over()
	s.awaitFirst(ctx, run, on)
	now, err := s.Jobs(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	shown := JobCall{Poll: ids}.Shown(now)
	return shown, s.reported(context.WithoutCancel(ctx), shown)
}

// awaitFirst waits for the first job to end. Meanwhile it sends updates.
func (s *Session) awaitFirst(ctx context.Context, jobs []boxJob, on Events) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Settings.PollWait)
	defer cancel()
	first := make(chan struct{}, len(jobs))
	done := make(chan struct{})
	go func() { // ends with ctx at the latest
		defer close(done)
		waitAll(ctx, jobs, first)
	}()
	defer func() {
		cancel()
		<-done
	}()
	ticker := time.NewTicker(PollUpdate)
	defer ticker.Stop()
	on.update(Update{})
	for {
		select {
		case <-first:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			on.update(Update{})
		}
	}
}
