package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// shellScripts start the shell that a person types into.
var shellScripts = map[string]string{"bash": "exec bash -i", "sh": "exec sh -i"}

func (a *app) attachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach [flags] [ID] [-- SCRIPT [ARG...]]",
		Short: "Open this terminal in a session: a shell, or a script of yours",
		Long: `Open this terminal in a session: an interactive shell, or a script. Keys go to it as
they are, Ctrl-C included; pressing Esc twice ends it (--kill-keys). It has no
timeout unless --timeout gives it one. Without an ID it is the only session there is.

What is typed into a shell is not checked against the policy, and secrets are not
masked on this terminal.`,
		Example: `  sandboxbash session attach 0199
  sandboxbash session attach
  sandboxbash session attach 0199 -- 'vi notes.txt'`,
		ValidArgsFunction: a.completeSessions,
	}
	cmd.Flags().SetInterspersed(true)
	addFlags(cmd, "session.id", "timeout", "grace", "run.cwd", "env.set", "shell", "pty.kill-keys", "pty.unattended", "quiet")
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd); err != nil {
			return err
		}
		id, script := args, []string(nil)
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			id, script = args[:dash], args[dash:]
		}
		if len(id) > 1 {
			return misuse("put a script behind --, as in `sandboxbash session attach ID -- vi`", "%s takes the id of one session, and was given %d words", cmd.CommandPath(), len(id))
		}
		if len(id) == 1 {
			a.cfg.Session.ID = id[0]
		}
		timeout := a.cfg.Timeout
		if !cmd.Flags().Changed("timeout") {
			timeout = 0
		}
		return a.attach(cmd.Context(), script, timeout)
	}
	return cmd
}

func (a *app) attach(ctx context.Context, words []string, timeout time.Duration) error {
	own, ok := a.console()
	if !ok {
		return misuse("run a script in the session with `sandboxbash session exec`", "standard input and output are no terminal to attach")
	}
	command := sandbox.Command{
		Script: shellScripts[a.cfg.Shell], Shell: a.cfg.Shell, Env: a.commandEnv(), Dir: a.cfg.Run.Dir,
		Timeout: timeout, Output: a.outputOptions(),
	}
	if len(words) > 0 {
		command.Script, command.Args = words[0], words[1:]
	}
	if err := a.secrets(ctx); err != nil {
		return err
	}
	if err := a.admit(command); err != nil {
		return err
	}
	id := a.cfg.Session.ID
	if id == "" {
		var err error
		if id, err = a.onlySession(ctx); err != nil {
			return err
		}
	}
	session, release, err := a.sessionFor(ctx, id)
	if err != nil {
		return err
	}
	return a.runOnConsole(ctx, session, release, command, own)
}

// onlySession returns the id of the session, if there is just one.
func (a *app) onlySession(ctx context.Context) (string, error) {
	sessions, err := a.sessions(ctx, nil)
	if err != nil {
		return "", err
	}
	list, err := sessions.List(ctx)
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", misuse("name one, from `sandboxbash session ls`", "there are %d sessions to attach to", len(list))
	}
	return list[0].ID, nil
}
