package runcmd

import (
	"context"
	"io"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// An Invocation is a script that another program has this one run, as it would have run a shell.
type Invocation struct {
	Script string
	Shell  string // bash or sh
	Args   []string
	Ref    string // of the session, "" for the configured or the default one
	// Place fits the command to the session that was opened: its directory, its variables. An error
	// means that nothing runs.
	Place func(sandbox.Info, *sandbox.Command) error
	// Stdin is the script's standard input; nil: there is none.
	Stdin io.Reader
	// Terminal gives the script this process's terminal, if it is on one.
	Terminal bool
	// Timeout is 0 for a script that lasts until its work is done.
	Timeout time.Duration
}

// Invoke runs an invocation in the session that the configuration names, or in the default one. It
// returns how the command ended, nil if it did not run or its end is not known; the error is what
// Finish returns.
func (a *Runner) Invoke(ctx context.Context, in Invocation) (*sandbox.Result, error) {
	if err := a.secrets.Ready(); err != nil {
		return nil, err
	}
	a.ran = in.Script
	err := a.run(ctx, target{ref: in.Ref, terminal: in.Terminal, place: in.Place}, sandbox.Command{
		Script: in.Script, Args: in.Args, Shell: in.Shell, Env: a.secrets.CommandEnv(), Stdin: in.Stdin,
		Timeout: in.Timeout, Output: a.cfg.OutputOptions(),
	})
	return a.ended, err
}

// OnTerminal reports whether both the standard input and the standard output are a terminal.
func (a *Runner) OnTerminal() bool {
	_, ok := a.console()
	return ok
}

// DiedOf returns the number of the signal that a shell would have died of in the place of this
// program, or 0: the one that ended the command, or the one that this process was sent.
func DiedOf(ctx context.Context, res *sandbox.Result) int {
	switch {
	case res == nil:
		return 0
	case res.Reason == exec.Signalled:
		return res.Signal
	case res.Reason == exec.OOMKilled:
		return sigKill
	case res.Reason == exec.Cancelled:
		return exit.SignalOf(context.Cause(ctx))
	}
	return 0
}

const sigKill = 9
