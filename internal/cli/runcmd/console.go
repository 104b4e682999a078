package runcmd

import (
	"context"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Attach opens this terminal in a session; "" is the only one there is.
func (a *Runner) Attach(ctx context.Context, id string, words []string, timeout time.Duration) error {
	own, ok := a.console()
	if !ok {
		return exit.Misuse("run a script in the session with `sandboxbash session exec`", "standard input and output are not a terminal to attach")
	}
	command := sandbox.Command{
		Script: ShellScripts[a.cfg.Shell], Shell: a.cfg.Shell, Env: a.secrets.CommandEnv(), Dir: a.cfg.Run.Dir,
		Timeout: timeout, Output: a.cfg.OutputOptions(),
	}
	if len(words) > 0 {
		command.Script, command.Args = words[0], words[1:]
		if err := checkWords(command.Script, command.Args, false); err != nil {
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
	if id == "" {
		if id, err = a.onlySession(ctx); err != nil {
			return err
		}
	}
	session, release, err := a.sessionFor(ctx, id, rules)
	if err != nil {
		return err
	}
	return a.runOnConsole(ctx, session, release, command, own)
}

// ShellScripts start the shell that a person types into.
var ShellScripts = map[string]string{"bash": "exec bash -i", "sh": "exec sh -i"}

// onlySession returns the id of the session, if there is just one.
func (a *Runner) onlySession(ctx context.Context) (string, error) {
	sessions, err := a.connection.Sessions(ctx, nil, nil)
	if err != nil {
		return "", err
	}
	list, err := sessions.List(ctx)
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", exit.Misuse("name one, from `sandboxbash session ls`", "there are %d sessions to attach to", len(list))
	}
	return list[0].ID, nil
}
