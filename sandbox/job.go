package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Job is a job of a session. It is safe for concurrent use.
type Job struct {
	session *Session
	info    JobInfo
}

// ID returns the job's id: bg_1, bg_2, and so on. When the job has been removed, another
// job may get the id.
func (j *Job) ID() string { return j.info.ID }

// Info returns the description of the job from when it was found. It makes no request.
func (j *Job) Info() JobInfo { return j.info }

// Now describes the job as it is now. If the job has been removed, it returns an error
// wrapping ErrUnknownJob, even if another job has the id.
func (j *Job) Now(ctx context.Context) (JobInfo, error) {
	all, err := j.session.Jobs(ctx, "")
	if err != nil {
		return JobInfo{}, err
	}
	for _, info := range all {
		// A job whose record was tampered with has no tag.
		if info.ID == j.info.ID && (info.tag == j.info.tag || info.tag == "") {
			return info, nil
		}
	}
	return JobInfo{}, j.session.unknownJob(j.info.ID)
}

// ask asks the session about this job.
func (j *Job) ask(ctx context.Context, q wire.JobQuery, streams helperStreams) error {
	q.ID = j.info.ID
	if err := j.session.askJobs(ctx, q, streams); err != nil {
		return fmt.Errorf("session %s: job %s: %w", j.session.ID(), j.info.ID, err)
	}
	return nil
}

// Wait waits until the job has ended or ctx has, and describes the job. While the session
// has no room for the process that asks, Wait tries again.
func (j *Job) Wait(ctx context.Context) (JobInfo, error) {
	info, err := j.Now(ctx)
	for err == nil && info.State == JobRunning || noRoom(err) && pause(ctx, busyPause) {
		if err = j.ask(ctx, wire.JobQuery{Verb: wire.JobWait}, helperStreams{}); err == nil {
			info, err = j.Now(ctx)
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		j.session.noteJob(info)
	}
	return info, err
}

// noRoom reports whether the session had no room for the process that asks.
func noRoom(err error) bool {
	e, ok := errors.AsType[*exec.Error](err)
	return ok && e.Cause == exec.CauseResources
}

// killSlack is the most that a kill takes in addition to its grace: the runner's sweep, and
// the time for request and answer.
const killSlack = 4 * time.Second

// Kill ends the job and waits for its end. It sends SIGTERM to the job's process group and,
// after the grace, SIGKILL to every descendant. If the job still has not ended, or if the
// session has no room for the request, Kill resets the session, and all of its jobs are
// lost. If that fails too, the error has the outcome exec.Unknown. Kill is a no-op once the
// job has ended.
func (j *Job) Kill(ctx context.Context) (JobInfo, error) {
	info, err := j.kill(ctx)
	if !errors.Is(err, errStuck) && !noRoom(err) {
		return info, err
	}
	base := context.WithoutCancel(ctx)
	if _, resetErr := j.session.reset(base); resetErr != nil {
		return info, &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseUnconfirmed, Err: errors.Join(err, resetErr)}
	}
	return j.Now(base)
}

// KillJob is like Job and then Kill. If the session has no room for the process that looks for
// the job, KillJob resets the session too.
func (s *Session) KillJob(ctx context.Context, owner, id string) (JobInfo, error) {
	j, err := s.Job(ctx, owner, id)
	if err == nil {
		return j.Kill(ctx)
	}
	if !noRoom(err) {
		return JobInfo{}, err
	}
	base := context.WithoutCancel(ctx)
	if _, resetErr := s.reset(base); resetErr != nil {
		return JobInfo{}, &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseUnconfirmed, Err: errors.Join(err, resetErr)}
	}
	if j, err = s.Job(base, owner, id); err != nil {
		return JobInfo{}, err
	}
	return j.Info(), nil
}

// errStuck is the cause of the end of a wait for a job that was killed.
var errStuck = errors.New("the job was killed, and has not ended since")

// kill asks the session to end the job, and waits as long as a kill takes at most.
func (j *Job) kill(ctx context.Context) (JobInfo, error) {
	info, err := j.Now(ctx)
	if err != nil || info.State != JobRunning {
		return info, err
	}
	err = j.session.withSpare(ctx, func() error {
		return j.ask(ctx, wire.JobQuery{Verb: wire.JobKill, Runner: info.runner}, helperStreams{timeout: helperTime})
	})
	if err != nil {
		return info, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, max(j.session.engine.opts.Grace, exec.DefaultGrace)+killSlack, errStuck)
	defer cancel()
	return j.Wait(ctx)
}

// Remove removes a job that has ended, with its output. It returns an error wrapping
// ErrJobRunning if the job is running.
func (j *Job) Remove(ctx context.Context) error {
	info, err := j.Now(ctx)
	if err != nil {
		return err
	}
	if info.State == JobRunning {
		return fmt.Errorf("session %s: job %s: %w", j.session.ID(), j.info.ID, ErrJobRunning)
	}
	return j.ask(ctx, wire.JobQuery{Verb: wire.JobRemove}, helperStreams{timeout: helperTime})
}

// Acknowledge records that the owner knows of the job's end. Deliver does not report the
// job any more, and the job is kept for JobKept from then on.
func (j *Job) Acknowledge(ctx context.Context) error {
	return j.ask(ctx, wire.JobQuery{Verb: wire.JobNote, Known: true}, helperStreams{timeout: helperTime})
}

// JobOutput selects a part of a job's output. The zero value selects all that has been
// written so far.
type JobOutput struct {
	Follow bool // also read what is written from now on, until the job has ended
	// Tail, if not 0, selects that many bytes at the end of the output so far. It suits
	// a window. Live writers get some more.
	Tail int64
}

// scrubMargin is how much is read before a tail, so that a secret that ends in the tail is
// read as a whole. It is the length of the longest secret in its longest encoding, rounded
// up.
const scrubMargin = 1 << 20 // bytes

// Output reads a job's output, scrubs it, and keeps it as opts say, like a command's
// output. If opts ask for an artifact, the whole output of a job that has ended becomes the
// job's artifact. That happens once: later calls return the name of that artifact. A part
// of an output never becomes an artifact.
func (j *Job) Output(ctx context.Context, part JobOutput, opts sink.Options) (sink.Output, error) {
	info, err := j.Now(ctx)
	if err != nil {
		return sink.Output{}, err
	}
	whole := part.Tail == 0 && (part.Follow || info.State != JobRunning)
	if !whole || info.Artifact != "" {
		opts.Artifact = sink.Never
	}
	opts.Streams = sink.Merged
	out, err := j.session.sink(opts)
	if err != nil {
		return sink.Output{}, err
	}
	q := wire.JobQuery{Verb: wire.JobRead}
	switch {
	case part.Tail > 0:
		q.Verb, q.From = wire.JobTail, uint64(part.Tail+scrubMargin)
	case part.Follow:
		q.Verb = wire.JobFollow
	}
	ask := func(w io.Writer) error { return j.ask(ctx, q, helperStreams{out: w}) }
	if part.Follow { // it lasts as long as the job, so it must not take the spare room
		err = ask(out.Stdout())
	} else {
		err = j.session.withSpareOnce(ctx, out.Stdout(), ask)
	}
	got := out.Close()
	if err == nil && whole {
		info, err = j.complete(ctx, got)
	}
	if got.Artifact.Stored {
		err = errors.Join(err, j.keep(ctx, &got, err == nil))
	} else if info.Artifact != "" {
		got.Artifact = sink.Artifact{ID: info.Artifact}
	}
	return got, err
}

// complete checks that the whole output of a job that has ended has arrived.
func (j *Job) complete(ctx context.Context, got sink.Output) (JobInfo, error) {
	info, err := j.Now(ctx)
	if err != nil || info.Status == nil {
		return info, err // the length of the output is not known
	}
	if got.Stdout.Bytes != info.Kept {
		return info, fmt.Errorf("session %s: job %s: %d bytes of output arrived, but its runner has kept %d: a command has changed %s",
			j.session.ID(), j.info.ID, got.Stdout.Bytes, info.Kept, info.OutputFile)
	}
	return info, nil
}

// keep records the artifact of a whole output, or removes the artifact of a part.
func (j *Job) keep(ctx context.Context, got *sink.Output, whole bool) error {
	ctx = context.WithoutCancel(ctx)
	if !whole {
		return j.session.discard(got)
	}
	return j.ask(ctx, wire.JobQuery{Verb: wire.JobNote, Artifact: got.Artifact.ID}, helperStreams{timeout: helperTime})
}

// discard removes the artifact of an output of which only the first part was read.
func (s *Session) discard(out *sink.Output) error {
	id := out.Artifact.ID
	out.Artifact = sink.Artifact{}
	return s.engine.opts.Artifacts.Remove(s.ID(), id)
}
