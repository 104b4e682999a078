package runcmd

import (
	"context"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// AttachDirectly opens this terminal, for as long as this process runs, in the session of a reference; "" is the default one.
func (a *Runner) AttachDirectly(ctx context.Context, ref string, words core.Words, timeout time.Duration) error {
	own, ok := a.console()
	if !ok {
		return errNoConsole
	}
	command := sandbox.Command{
		Script: ShellScripts[a.cfg.Shell], Shell: a.cfg.Shell, Env: a.secrets.CommandEnv(), Dir: a.cfg.Run.Dir,
		Timeout: timeout, Output: a.cfg.OutputOptions(),
	}
	if words.Any() {
		var err error
		if command.Script, command.Args, err = core.Script(ctx, a.cfg.Run, a.streams.Stdin, words); err != nil {
			return err
		}
	}
	if err := a.secrets.Ready(); err != nil {
		return err
	}
	rules, err := a.connection.Admit(command)
	if err != nil {
		return err
	}
	session, release, err := a.sessionFor(ctx, target{ref: ref}, rules)
	if err != nil {
		return err
	}
	return a.runOnConsole(ctx, session, release, command, own)
}

// ShellScripts start the shell that a person types into.
var ShellScripts = map[string]string{"bash": "exec bash -i", "sh": "exec sh -i"}
