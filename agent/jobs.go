package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// statusOf is the state of a job as the contract knows it: a job whose end is
// unknown has failed.
func statusOf(info sandbox.JobInfo) sandbox.JobState {
	if info.State == sandbox.JobUnknown {
		return sandbox.JobFailed
	}
	return info.State
}

// describe words a job for the model. A job that has ended is worded once, because its
// output must be read for that.
func (s *Session) describe(ctx context.Context, info sandbox.JobInfo) (finished, error) {
	j := tool.Job{ID: info.ID, Label: info.Label, Status: statusOf(info), Elapsed: info.Elapsed}
	if j.Status == sandbox.JobRunning || j.Status == sandbox.JobCancelled {
		return finished{job: j}, nil
	}
	key := keyOf(info)
	if done, ok := s.jobs.result(key); ok {
		return done, nil
	}
	done, err, _ := s.jobs.wording.Do(fmt.Sprint(key), func() (any, error) {
		done, err := s.word(context.WithoutCancel(ctx), info, j) // other callers may wait for it too
		if err == nil {
			s.jobs.keep(key, done)
		}
		return done, err
	})
	return done.(finished), err
}

// word reads the output of a job, and words its result.
func (s *Session) word(ctx context.Context, info sandbox.JobInfo, j tool.Job) (finished, error) {
	plan, ours := s.jobs.plan(keyOf(info))
	if !ours { // another process has started it
		plan = tool.Plan{Contract: tool.Agent, Command: info.Label, Timeout: tool.Timeout{Seconds: info.Timeout.Seconds()}}
	}
	o, err := s.jobOutcome(ctx, info, plan)
	if err != nil {
		return finished{}, err
	}
	var done finished
	done.job, _ = tool.Finished(j, s.contract.Result(plan, o))
	if o.Output.Artifact.Stored {
		done.artifact = o.Output.Artifact.ID
	}
	s.bringBack(ctx)
	return done, nil
}

// jobOutcome returns how a job has ended, with the output to show.
func (s *Session) jobOutcome(ctx context.Context, info sandbox.JobInfo, p tool.Plan) (tool.Outcome, error) {
	o := tool.Outcome{Reason: info.Reason, Elapsed: info.Elapsed}
	if st := info.Status; st != nil {
		o.Code, o.Signal = st.Code, st.Signal
		o.Run = tool.RunInfo{CPUMs: st.CPU.Milliseconds(), MaxRSSBytes: st.MaxRSS, Background: st.Left, Full: info.Full, Receipt: info.Receipt()}
	} else {
		o.Reason, o.Err = "", &exec.Error{
			Outcome: exec.Unknown, Cause: exec.CauseRunnerLost, Err: fmt.Errorf("job %s: its end was not seen (%s)", info.ID, info.Reason),
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
	opts.Limit = 0                     // the job has ended
	if info.Bytes > tool.MaxFollowUp { // a follow-up does not show all of it
		opts.Artifact = sink.Always
	}
	o.Output, err = j.Output(ctx, sandbox.JobOutput{}, opts)
	if id := j.Info().Artifact; id != "" && id == o.Output.Artifact.ID {
		o.Output.Artifact.Stored = true // an earlier reader has stored it
	}
	return o, err
}

// job is a call of the tool job.
func (s *Session) job(ctx context.Context, arguments json.RawMessage, on Events) tool.Result {
	call, err := tool.JobTool{}.Parse(arguments)
	if err != nil {
		return s.failed(err)
	}
	if _, there := (tool.JobTool{}).Definition(s.opts.Settings); !there {
		text, details := tool.JobTool{}.NoJobManager()
		return tool.Result{Text: text, JobDetails: &details}
	}
	var cancels []tool.Cancellation
	for _, id := range call.Cancel {
		c, err := s.cancelJob(ctx, id)
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
	return tool.Result{Text: text, JobDetails: &details}
}

// reported acknowledges the jobs that have ended.
func (s *Session) reported(ctx context.Context, jobs []tool.Job) error {
	for _, j := range jobs {
		if j.Status == sandbox.JobRunning {
			continue
		}
		if err := s.acknowledgeJob(ctx, j.ID); err != nil && !errors.Is(err, ErrUnknownJob) {
			return err
		}
	}
	return nil
}

// watchJobs waits until the first of several jobs has ended, the time that the settings
// allow is over, or ctx has ended. It returns the jobs as they are then.
func (s *Session) watchJobs(ctx context.Context, jobs []tool.Job, on Events) ([]tool.Job, error) {
	var run []sandboxJob
	for _, j := range jobs {
		if j.Status != sandbox.JobRunning {
			return jobs, nil // one has ended already
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
	shown := tool.JobCall{Poll: ids}.Shown(now)
	return shown, s.reported(context.WithoutCancel(ctx), shown)
}

// awaitFirst waits for the first job to end. Meanwhile it sends updates.
func (s *Session) awaitFirst(ctx context.Context, jobs []sandboxJob, on Events) {
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
	ticker := time.NewTicker(tool.PollUpdate)
	defer ticker.Stop()
	on.update(tool.Update{})
	for {
		select {
		case <-first:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			on.update(tool.Update{})
		}
	}
}
