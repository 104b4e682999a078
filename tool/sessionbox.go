package tool

import (
	"context"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// commands run in a sandbox session.
type commands interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	Terminal(ctx context.Context, c sandbox.Command, o sandbox.TerminalOptions) (*sandbox.Terminal, error)
	Ask(ctx context.Context, c sandbox.Command) ([]byte, exec.Status, error)
}

// starter starts jobs, and tells their ends.
type starter interface {
	StartJob(ctx context.Context, c sandbox.Command, o sandbox.JobOptions) (boxJob, error)
	Deliver(ctx context.Context, owner string, hand func(context.Context, boxJob) error) error
}

// finder finds jobs.
type finder interface {
	Jobs(ctx context.Context, owner string) ([]sandbox.JobInfo, error)
	Job(ctx context.Context, owner, id string) (boxJob, error)
}

// placer copies files that commands only read.
type placer interface {
	Place(ctx context.Context, at, as string, tree sandbox.Tree) (string, error)
}

// mirror copies directories to and fro.
type mirror interface {
	Replace(ctx context.Context, src, dir string) error
	Pull(ctx context.Context, src, dir string) (skipped []string, err error)
	Diff(ctx context.Context, src, dir string) ([]sandbox.Change, error)
}

// jobLife is how a job goes on.
type jobLife interface {
	Now(ctx context.Context) (sandbox.JobInfo, error)
	Wait(ctx context.Context) (sandbox.JobInfo, error)
	Kill(ctx context.Context) (sandbox.JobInfo, error)
}

// jobYield is what comes of a job.
type jobYield interface {
	Info() sandbox.JobInfo
	Output(ctx context.Context, part sandbox.JobOutput, o sink.Options) (sink.Output, error)
	Acknowledge(ctx context.Context) error
}

// boxJob is a *sandbox.Job.
type boxJob interface {
	jobLife
	jobYield
}

// recorder puts on record what does not run in the session.
type recorder interface {
	Denied(c sandbox.Command, d policy.Decision)
	Observe(ctx context.Context, c sandbox.Command, mode sandbox.Mode, where sandbox.Where) (func(sandbox.Result, error), error)
}

// box is what a Session needs of a *sandbox.Session.
type box struct {
	commands
	starter
	finder
	placer
	mirror
	recorder
}

func sandboxBox(s *sandbox.Session) box {
	return box{s, sandboxJobs{s}, sandboxJobs{s}, s, s, s}
}

// sandboxJobs are a session's jobs behind the interfaces of this package.
type sandboxJobs struct{ *sandbox.Session }

func (s sandboxJobs) StartJob(ctx context.Context, c sandbox.Command, o sandbox.JobOptions) (boxJob, error) {
	j, err := s.Session.StartJob(ctx, c, o)
	if err != nil {
		return nil, err
	}
	return j, nil
}

func (s sandboxJobs) Deliver(ctx context.Context, owner string, hand func(context.Context, boxJob) error) error {
	return s.Session.Deliver(ctx, owner, func(ctx context.Context, j *sandbox.Job) error { return hand(ctx, j) })
}

func (s sandboxJobs) Job(ctx context.Context, owner, id string) (boxJob, error) {
	j, err := s.Session.Job(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return j, nil
}
