package sessioncmd

import (
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
		Use:   "exec [flags] [SESSION] [--] COMMAND [ARG...]",
		Short: "Run one command in a session",
		Long: `Run one command in a session, as run does. The session continues afterwards, with the
files and background processes that the command has left.

The first word is the session, unless it is behind -- or --session names one.
` + core.References + `

` + core.WordsHelp + `

` + core.StdinHelp,
		Example: `  sandboxbash session exec web make test
  sandboxbash session exec -- make test
  sandboxbash session exec web 'cd src && make'
  sandboxbash session exec --timeout 1h --json -s web ./build.sh
  sandboxbash session exec web - <script.sh`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.connection.CompleteSessions(cmd, args, word)
		},
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, "session.id")
	flags.Add(cmd, flags.Command...)
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ref, rest, err := execWords(cmd, args)
		if err != nil {
			return err
		}
		return a.runner.AsJSON(cmd, func() error {
			if err := a.runner.Load(cmd); err != nil {
				return err
			}
			if ref != nil && *ref == "" {
				return core.ErrNoSessionID
			}
			words := core.WordsOf(cmd, rest)
			if ref == nil {
				return a.runner.RunIn(cmd.Context(), "", words)
			}
			if !words.Any() && a.cfg.Run.File == "" {
				return exit.Misuse("write `sandboxbash session exec SESSION COMMAND` or, for the session of this directory, `sandboxbash session exec -- COMMAND`",
					"session exec takes the id of a session and a command, and was given one word")
			}
			return core.Unnamed(a.runner.RunIn(cmd.Context(), *ref, words), *ref, "sandboxbash session exec -- COMMAND")
		})
	}
	return cmd
}

// execWords splits the words of exec into the session, nil for the default one, and the script with
// its arguments. Flags may stand behind the session too, and -- in front of the script.
func execWords(cmd *cobra.Command, args []string) (ref *string, rest []string, err error) {
	script := cmd.Flags().Changed("command") || cmd.Flags().Changed("file")
	if cmd.ArgsLenAtDash() == 0 || cmd.Flags().Changed("session") || len(args) == 0 && script {
		return nil, args, nil
	}
	if len(args) == 0 {
		return nil, nil, exit.Misuse("use it as `"+cmd.UseLine()+"`; see `"+cmd.CommandPath()+" --help`", "%s takes the id of a session and a command, and was given 0 arguments", cmd.CommandPath())
	}
	if err := cmd.ParseFlags(args[1:]); err != nil {
		return nil, nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if rest = cmd.Flags().Args(); cmd.Flags().Changed("session") {
		return nil, nil, exit.Misuse("leave one of them out", "the session is named twice: by --session and by %q", args[0])
	}
	return &args[0], rest, nil
}
