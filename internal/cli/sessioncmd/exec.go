package sessioncmd

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
)

// runs run scripts and shells in sessions.
type runs struct {
	cfg        *core.Configuration
	connection *core.Connection // for the completion of sessions
	runner     *runcmd.Runner
}

func (a *runs) execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [flags] ID [--] SCRIPT [ARG...]",
		Short: "Run one script in a session",
		Long: `Run one script in a session, as run does. The session continues afterwards, with the
files and background processes that the command has left.`,
		Example: `  sandboxbash session exec 0199 'make test'
  sandboxbash session exec --timeout 1h --json 0199 ./build.sh
  sandboxbash session exec 0199 - <script.sh`,
		Args: flags.Args(1, -1, "the id of a session and a script"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.connection.CompleteSessions(cmd, args, word)
		},
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, flags.Command...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, rest := args[0], args[1:]
		if cmd.ArgsLenAtDash() < 0 { // flags may stand behind the id too
			if err := cmd.ParseFlags(rest); err != nil {
				return cmd.FlagErrorFunc()(cmd, err)
			}
			rest = cmd.Flags().Args()
		} else if cmd.ArgsLenAtDash() == 0 {
			rest = args[1:]
		}
		return a.runner.AsJSON(cmd, func() error {
			if err := a.runner.Load(cmd); err != nil {
				return err
			}
			if id == "" {
				return core.ErrNoSessionID
			}
			return a.runner.RunScript(cmd.Context(), id, rest)
		})
	}
	return cmd
}

func (a *runs) attachCommand() *cobra.Command {
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
		ValidArgsFunction: a.connection.CompleteSessions,
	}
	cmd.Flags().SetInterspersed(true)
	flags.Add(cmd, "session.id", "timeout", "grace", "run.cwd", "env.set", "env.unsafe", "shell", "pty.kill-keys", "pty.unattended", "quiet")
	cmd.Flags().Lookup("timeout").DefValue = "" // none
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.runner.Load(cmd); err != nil {
			return err
		}
		id, script := args, []string(nil)
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			id, script = args[:dash], args[dash:]
		}
		if len(id) > 1 {
			return exit.Misuse("put a script after --, as in `sandboxbash session attach ID -- vi`", "%s takes the id of one session, and was given %d arguments", cmd.CommandPath(), len(id))
		}
		if len(id) == 1 && id[0] == "" {
			return core.ErrNoSessionID
		}
		return a.runner.Attach(cmd.Context(), cmp.Or(flags.Arg(id, 0), a.cfg.Session.ID), script, a.cfg.TerminalTimeout(cmd))
	}
	return cmd
}
