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

// ID returns the job's id: bg_1, bg_2, … It is used again when the job has been
// removed.
func (j *Job) ID() string { return j.info.ID }

// Info describes the job as it was when it was found.
func (j *Job) Info() JobInfo { return j.info }

// Now describes the job as it is. It returns an error wrapping ErrUnknownJob when
// the job has been removed, whatever has its id meanwhile.
func (j *Job) Now(ctx context.Context) (JobInfo, error) {
	all, err := j.session.Jobs(ctx, "")
	if err != nil {
		return JobInfo{}, err
	}
	for _, info := range all {
		// One whose record has been tampered with has no tag any more.
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

// Wait waits for the job's end, and describes it. It waits as long as ctx does, also
// while jobs leave no room to ask.
func (j *Job) Wait(ctx context.Context) (JobInfo, error) {
	info, err := j.Now(ctx)
	for err == nil && info.State == JobRunning || noRoom(err) && pause(ctx) {
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

// noRoom reports whether a question found no room in the session.
func noRoom(err error) bool {
	e, ok := errors.AsType[*exec.Error](err)
	return ok && e.Cause == exec.CauseResources
}

// killSlack is what a kill takes at most besides its grace: the sweep of the
// runner, and the way there and back.
const killSlack = 4 * time.Second

// Kill ends the job and waits for its end: SIGTERM to its process group, SIGKILL
// to every descendant after the grace. If it has not ended by then, or the session is
// so full that nothing can be asked, the session is reset, as after a command that
// cannot be killed, and the job is lost with all others; where that fails the error is
// outcome-unknown. Kill does nothing to a job that has ended.
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

// errStuck is the cause of the end of a wait for a job that was killed.
var errStuck = errors.New("the job was killed, and has not ended since")

// kill asks for the job's end, and waits for it for as long as a kill takes at most.
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

// Remove forgets a job that has ended, its output included. It returns an error
// wrapping ErrJobRunning for one that has not.
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

// Acknowledge notes that the owner knows the end: Deliver does not report it
// again, and the job is kept no longer than JobKept from then on.
func (j *Job) Acknowledge(ctx context.Context) error {
	return j.ask(ctx, wire.JobQuery{Verb: wire.JobNote, Known: true}, helperStreams{timeout: helperTime})
}

// JobOutput says which part of a job's output is wanted. The zero value is what
// there is now.
type JobOutput struct {
	Follow bool // wait for what comes, until the job has ended
	// Tail is how many bytes at the end of what there is are wanted; 0: all. It is
	// for a window: live writers get more.
	Tail int64
}

// scrubMargin is how much more than a tail is read, so that no secret is cut that
// ends in it. It is the longest secret in its longest encoding, rounded up.
const scrubMargin = 1 << 20 // bytes

// Output reads a job's output, scrubs it, and keeps of it what opts say, as of a
// command's. The whole output of a job that has ended becomes the job's artifact,
// once, if opts want one; a part does not become one. The artifact that another call
// has made is only named.
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
	if part.Follow { // for as long as the job runs: the spare room is not for that
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

// complete checks that all has arrived of a job that has ended.
func (j *Job) complete(ctx context.Context, got sink.Output) (JobInfo, error) {
	info, err := j.Now(ctx)
	if err != nil || info.Status == nil {
		return info, err // how much there should be is not known
	}
	if got.Stdout.Bytes != info.Kept {
		return info, fmt.Errorf("session %s: job %s: %d bytes of output arrived, but its runner has kept %d: a command has changed %s",
			j.session.ID(), j.info.ID, got.Stdout.Bytes, info.Kept, info.OutputFile)
	}
	return info, nil
}

// keep notes the artifact of a whole output, or removes that of a part.
func (j *Job) keep(ctx context.Context, got *sink.Output, whole bool) error {
	ctx = context.WithoutCancel(ctx)
	if !whole {
		return j.session.discard(got)
	}
	return j.ask(ctx, wire.JobQuery{Verb: wire.JobNote, Artifact: got.Artifact.ID}, helperStreams{timeout: helperTime})
}

// discard removes the artifact of an output that is only the first part of one.
func (s *Session) discard(out *sink.Output) error {
	id := out.Artifact.ID
	out.Artifact = sink.Artifact{}
	return s.engine.opts.Artifacts.Remove(s.ID(), id)
}
