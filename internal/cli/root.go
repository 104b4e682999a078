package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/artifactcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/auditcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/doctorcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
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
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

const rootLong = `sandboxbash runs shell commands in hardened, long-lived containers.

A session is a container without a network and with a read-only root. Its commands run
as an ordinary user without capabilities, and start as fast as outside.

Exit status of run and session exec: the command's own, or
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
  id=$(sandboxbash session start --workspace copy:.)
  sandboxbash session exec $id 'make test'
  sandboxbash session diff $id
  sandboxbash session stop $id`

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
	root.SuggestionsMinimumDistance = 2
	root.AddGroup(
		&cobra.Group{ID: flags.GroupRun, Title: "Run commands:"},
		&cobra.Group{ID: flags.GroupOutput, Title: "Inspect output:"},
		&cobra.Group{ID: flags.GroupSetup, Title: "Set up and check:"},
	)
	root.SetHelpCommandGroupID(flags.GroupSetup)
	root.SetCompletionCommandGroupID(flags.GroupSetup)
	root.PersistentFlags().Var(a.Cfg.FileFlag(), "config", "read the configuration from `FILE` (default: $SANDBOXBASH_CONFIG, else sandboxbash/config.yaml in the user's configuration directory)")
	for _, key := range []string{"engine", "ci", "log.level", "log.format"} {
		flags.AddTo(root.PersistentFlags(), key)
	}
	root.Version = cmp.Or(core.Build(a.Version).Version, "(devel)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Misuse(fmt.Sprintf("see `%s --help`; put a script that starts with - after --", cmd.CommandPath()), "%v", err)
	})
	root.AddCommand(
		runcmd.Command(a.Parts), sessioncmd.Command(a.Parts), jobcmd.Command(a.Parts), ptycmd.Command(a.Parts),
		artifactcmd.Command(a.Parts), imagecmd.Command(a.Parts), auditcmd.Command(a.Parts),
		policycmd.Command(a.Parts), networkcmd.Command(a.Parts), plancmd.Command(a.Parts), servecmd.Command(a.Parts),
		doctorcmd.Command(a.Parts), a.versionCommand(), configTopic(),
	)
	return root
}

// fitBuiltins has cobra's own commands refuse wrong words as ours do.
func fitBuiltins(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run = nil
			cmd.RunE = func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					if about == nil {
						about, rest = root, args
					}
					return flags.NoSuchCommand(about, rest)
				}
				about.InitDefaultHelpFlag()
				return about.Help()
			}
		case "completion":
			cmd.Args, cmd.RunE = flags.NoSuchCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = flags.Args(0, 0, "no arguments")
			}
		}
	}
}

// configText is the page of help about the configuration.
func configText() string {
	var b strings.Builder
	b.WriteString(`A setting is taken from its flag, else from its environment variable, else from the
configuration file, else it has its default. The file is YAML:

  image: host
  timeout: 10m
  limits:
    memory: 4g
  env:
    pass: [LANG, TZ]
  secrets:
    - {name: GH_TOKEN, from: env, inject: true}
    - {name: deploy-key, from: file, source: ~/.ssh/deploy}

The file is --config, else $SANDBOXBASH_CONFIG, else sandboxbash/config.yaml in the
user's configuration directory. The current directory is never searched.

Paths in the file are relative to the file; paths in flags and variables are relative
to the current directory. A leading ~ is the home directory. Flags that are not listed
below apply to a single call: they have no key and no variable.

A secret has at least 8 bytes, comes from env, file or command, and is masked in all
output. With inject: true commands get it as a variable of its name.

Keys, with their variables and flags:
`)
	for s := range config.Settings() {
		fmt.Fprintf(&b, "\n  %s\n      %s", s.Key, s.Env())
		if s.Flag != "" {
			fmt.Fprintf(&b, ", --%s", s.Flag)
		}
		if s.Default != "" {
			fmt.Fprintf(&b, " (default %s)", s.Default)
		}
		fmt.Fprintf(&b, "\n      %s", s.Usage)
	}
	b.WriteString("\n\n  secrets, policy.rules\n      in the file only")
	return b.String()
}

// configTopic is a page of help. Its text is made when it is shown, and not for every call.
func configTopic() *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "The configuration: its file, keys and variables", GroupID: flags.GroupSetup,
		Args: flags.Args(0, 0, "no arguments"), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Example: "  sandboxbash help config\n  SANDBOXBASH_TIMEOUT=10m sandboxbash run 'make test'",
	}
	c.SetHelpFunc(func(cmd *cobra.Command, words []string) {
		cmd.Long = configText()
		cmd.Parent().HelpFunc()(cmd, words)
	})
	return c
}

// helpAsIs prints help without masking it, and in lines that fit a terminal. Help has no
// text from outside, so the configured secrets need not be fetched for it.
func (a *program) helpAsIs(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetUsageTemplate(usageTemplate(root))
	root.SetHelpFunc(func(cmd *cobra.Command, words []string) {
		cmd.SetOut(stdio.PastMasks(a.Streams.Stdout))
		cmd.Long = fitted(cmd.Long, helpWidth)
		help(cmd, words)
	})
}
