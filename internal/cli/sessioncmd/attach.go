package sessioncmd

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
)

func (a *commands) attachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach [flags] [ID] [-- SCRIPT [ARG...]]",
		Short: "Open a shell, or run a script, on this terminal in a session",
		Long: `Open an interactive shell, or run a script, on this terminal in a session. All keys
are passed on, Ctrl-C included; --kill-keys names keys that end the command. There is
no timeout unless --timeout sets one. ID may be left out if there is only one session.

What is typed into the shell is not checked against the policy, and secrets are not
masked on this terminal.`,
		Example: `  sandboxbash session attach 0199
  sandboxbash session attach
  sandboxbash session attach 0199 -- 'vi notes.txt'`,
		ValidArgsFunction: a.CompleteSessions,
	}
	cmd.Flags().SetInterspersed(true)
	flags.Add(cmd, "session.id", "timeout", "grace", "run.cwd", "env.set", "env.unsafe", "shell", "pty.kill-keys", "pty.unattended", "quiet")
	_ = cmd.RegisterFlagCompletionFunc("session", a.CompleteSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := runcmd.New(a.App)
		if err := r.Load(cmd); err != nil {
			return err
		}
		id, script := args, []string(nil)
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			id, script = args[:dash], args[dash:]
		}
		if len(id) > 1 {
			return exit.Misuse("put a script after --, as in `sandboxbash session attach ID -- vi`", "%s takes the id of one session, and was given %d words", cmd.CommandPath(), len(id))
		}
		if len(id) == 1 && id[0] == "" {
			return core.ErrNoSessionID
		}
		timeout := a.Cfg.Timeout
		if !cmd.Flags().Changed("timeout") {
			timeout = 0
		}
		return r.Attach(cmd.Context(), cmp.Or(flags.Arg(id, 0), a.Cfg.Session.ID), script, timeout)
	}
	return cmd
}
