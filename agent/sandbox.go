package agent

import (
	"context"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// sandboxSession is what a Session needs of a *sandbox.Session, which documents the
// methods. It is an interface for tests, and because jobs are interfaces here too.
type sandboxSession interface { //nolint:interfacebloat // it is what a Session of package sandbox does for an agent
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	Terminal(ctx context.Context, c sandbox.Command, o sandbox.TerminalOptions) (*sandbox.Terminal, error)
	Ask(ctx context.Context, c sandbox.Command) ([]byte, exec.Status, error)

	StartJob(ctx context.Context, c sandbox.Command, o sandbox.JobOptions) (sandboxJob, error)
	Deliver(ctx context.Context, owner string, hand func(context.Context, sandboxJob) error) error
	Jobs(ctx context.Context, owner string) ([]sandbox.JobInfo, error)
	Job(ctx context.Context, owner, id string) (sandboxJob, error)
	KillJob(ctx context.Context, owner, id string) (sandbox.JobInfo, error)

	Place(ctx context.Context, at, as string, tree sandbox.Tree) (string, error)
	Replace(ctx context.Context, src, dir string) error
	Pull(ctx context.Context, src, to string, o sandbox.PullOptions) (sandbox.Pulled, error)
	Diff(ctx context.Context, src, dir string) ([]sandbox.Change, error)

	Denied(c sandbox.Command, d policy.Decision)
	Observe(ctx context.Context, c sandbox.Command, mode sandbox.Mode, where sandbox.Where) (func(sandbox.Result, error), error)
}

// sandboxJob is a *sandbox.Job.
type sandboxJob interface {
	Info() sandbox.JobInfo
	Now(ctx context.Context) (sandbox.JobInfo, error)
	Wait(ctx context.Context) (sandbox.JobInfo, error)
	Kill(ctx context.Context) (sandbox.JobInfo, error)
	Output(ctx context.Context, part sandbox.JobOutput, o sink.Options) (sink.Output, error)
	Acknowledge(ctx context.Context) error
}

// adapter makes a *sandbox.Session a sandboxSession: its jobs become interfaces.
type adapter struct{ *sandbox.Session }

func (a adapter) StartJob(ctx context.Context, c sandbox.Command, o sandbox.JobOptions) (sandboxJob, error) {
	j, err := a.Session.StartJob(ctx, c, o)
	if err != nil {
		return nil, err // a nil *sandbox.Job would not be a nil interface
	}
	return j, nil
}

func (a adapter) Deliver(ctx context.Context, owner string, hand func(context.Context, sandboxJob) error) error {
	return a.Session.Deliver(ctx, owner, func(ctx context.Context, j *sandbox.Job) error { return hand(ctx, j) })
}

func (a adapter) Job(ctx context.Context, owner, id string) (sandboxJob, error) {
	j, err := a.Session.Job(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return j, nil
}
