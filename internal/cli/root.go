package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/artifactcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/auditcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/cachecmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/configcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/doctorcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/imagecmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/jobcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/networkcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/plancmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/policycmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/ptycmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/servecmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/sessioncmd"
)

const rootLong = `sandboxbash runs shell commands in hardened, long-lived containers.

A session is a container without a network and with a read-only root. Its commands run
as an ordinary user without capabilities, and start as fast as outside.`

// statusText is the topic of help about exit statuses.
const statusText = `Exit status of run and session exec: the command's own, or
  128+n  signal n ended the command; 137 also if it reached the memory limit
  124    the command was killed at its timeout
  122    the command was killed at its output limit
  123    the command continues as a job
  130    cancelled
  141    the reader of the output has gone
  126    denied by the policy; nothing has run
  125    the engine failed, or the outcome or output is lost or unknown
  2      wrong use or bad input; nothing has run`

const rootExample = `  sandboxbash run 'echo hello from $(whoami)'
  sandboxbash run --workspace copy:. --timeout 10m 'go test ./...'
  sandboxbash session start --name web --workspace copy:.
  sandboxbash session exec web make test
  sandboxbash session diff web
  sandboxbash session stop web`

// root returns the whole tree of commands. It does nothing that costs.
func (a *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "sandboxbash",
		Short:         "Run shell commands in hardened containers",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          flags.NoSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(
		&cobra.Group{ID: flags.GroupRun, Title: "Run commands:"},
		&cobra.Group{ID: flags.GroupOutput, Title: "Inspect output:"},
		&cobra.Group{ID: flags.GroupSetup, Title: "Set up and check:"},
	)
	root.SetHelpCommandGroupID(flags.GroupSetup)
	root.SetCompletionCommandGroupID(flags.GroupSetup)
	root.PersistentFlags().Var(a.Cfg.FileFlag(), "config", "read the configuration from `FILE` (default: $SANDBOXBASH_CONFIG, else sandboxbash/config.yaml in the user's configuration directory)")
	for _, key := range []string{"engine", "ci", "color", "log.level", "log.format"} {
		if s := flags.AddTo(root.PersistentFlags(), key); s.Kind == config.Choice {
			_ = root.RegisterFlagCompletionFunc(s.Flag, cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	root.Version = cmp.Or(core.Build(a.Version).Version, "(devel)")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		runcmd.Command(a.Parts), sessioncmd.Command(a.Parts), jobcmd.Command(a.Parts), ptycmd.Command(a.Parts),
		artifactcmd.Command(a.Parts), imagecmd.Command(a.Parts), cachecmd.Command(a.Parts), cachecmd.UsageCommand(a.Parts), auditcmd.Command(a.Parts),
		policycmd.Command(a.Parts), networkcmd.Command(a.Parts), plancmd.Command(a.Parts), servecmd.Command(a.Parts),
		doctorcmd.Command(a.Parts), a.versionCommand(), configcmd.Command(a.Parts),
	)
	return root
}

// fitBuiltins has cobra's own commands refuse wrong words as ours do.
func (a *program) fitBuiltins(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			a.helpCommand(cmd)
		case "completion":
			cmd.Short = "Print a script that makes a shell complete command lines"
			cmd.Example = "  source <(sandboxbash completion bash)\n  sandboxbash completion fish >~/.config/fish/completions/sandboxbash.fish"
			cmd.Args, cmd.RunE = flags.NoSuchCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = flags.Args(0, 0, "no arguments")
			}
		}
	}
}
