package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
)

// Groups of commands in help.
const (
	groupRun    = "run"
	groupOutput = "output"
	groupSetup  = "setup"
)

const rootLong = `sandboxbash runs shell commands in hardened, long-lived containers.

One session is one container without network, on a read-only root, as an
ordinary user without capabilities. Commands run in it as quickly as at home.

Exit status of run and session exec: the command's own; 128+n if signal n or the
memory limit ended it; 124 timeout; 122 output limit; 123 it goes on as a job; 125 engine failure, or
outcome lost or unknown; 126 denied by policy; 130 cancelled; 2 wrong use or bad
input, where nothing has run.`

const rootExample = `  sandboxbash run 'echo hello from $(whoami)'
  sandboxbash run --workspace copy:. --timeout 10m 'go test ./...'
  id=$(sandboxbash session start --workspace copy:.)
  sandboxbash session exec $id 'make test'
  sandboxbash session diff $id
  sandboxbash session stop $id`

// root returns the whole tree of commands. It does nothing that costs.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "sandboxbash",
		Short:         "Run shell commands in hardened containers",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run commands:"},
		&cobra.Group{ID: groupOutput, Title: "Look at output:"},
		&cobra.Group{ID: groupSetup, Title: "Set up and check:"},
	)
	root.SetHelpCommandGroupID(groupSetup)
	root.SetCompletionCommandGroupID(groupSetup)
	root.PersistentFlags().StringVar(&a.configFile, "config", "", "configuration `FILE` (default: $SANDBOXBASH_CONFIG, else sandboxbash/config.yaml in the user's configuration directory)")
	for _, key := range []string{"engine", "ci", "log.level", "log.format"} {
		addFlag(root.PersistentFlags(), key)
	}
	root.Version = cmp.Or(build().Version, "(devel)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return misuse(fmt.Sprintf("see `%s --help`; a script that begins with - goes behind --", cmd.CommandPath()), "%v", err)
	})
	root.AddCommand(a.runCommand(), a.sessionCommand(), a.jobCommand(), a.ptyCommand(), a.artifactCommand(), a.imageCommand(), a.auditCommand(), a.policyCommand(), a.planCommand(), a.serveCommand(), a.doctorCommand(), a.versionCommand(), configTopic())
	completeChoices(root)
	return root
}

// completeChoices offers the values of flags that have only a few.
func completeChoices(cmd *cobra.Command) {
	for s := range config.Settings() {
		if s.Kind == config.Choice && cmd.Flags().Lookup(s.Flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(s.Flag, cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, c := range cmd.Commands() {
		completeChoices(c)
	}
}

// noSuchCommand refuses words that a command with subcommands does not know.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	todo := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		todo = fmt.Sprintf("did you mean `%s %s`?", cmd.CommandPath(), like[0])
	}
	return misuse(todo, "%s has no command %q", cmd.CommandPath(), args[0])
}

// family is a command that only holds others.
func family(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.SuggestionsMinimumDistance = 2
	c.AddCommand(commands...)
	return c
}

// words checks how many arguments a command has: from least to most, where -1
// is any number.
func words(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return misuse(fmt.Sprintf("use it as `%s`; see `%s --help`", cmd.UseLine(), cmd.CommandPath()),
			"%s takes %s, and was given %d words", cmd.CommandPath(), what, len(args))
	}
}

// action is what a command does, with its configuration loaded.
type action func(ctx context.Context, args []string) error

// does makes an action a command's.
func (a *app) does(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd); err != nil {
			return err
		}
		return do(cmd.Context(), args)
	}
}

// configTopic is a page of help.
func configTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString(`Settings come from flags, else from the environment, else from the configuration
file, else from defaults. The file is YAML:

  image: host
  timeout: 10m
  limits:
    memory: 4g
  env:
    pass: [LANG, TZ]
  secrets:
    - {name: GH_TOKEN, from: env, inject: true}
    - {name: deploy-key, from: file, source: /home/me/.ssh/deploy}

It is read from --config, else $SANDBOXBASH_CONFIG, else sandboxbash/config.yaml in
the user's configuration directory, and never from the current directory.

Secrets have at least 8 bytes, come from: env, file or command, and are masked in
all output. With inject: true commands get them as a variable of that name.

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
	return &cobra.Command{
		Use: "config", Short: "The configuration: its file, keys and variables", Long: b.String(), GroupID: groupSetup,
		Args: words(0, 0, "no arguments"), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Example: "  sandboxbash help config\n  SANDBOXBASH_TIMEOUT=10m sandboxbash run 'make test'",
	}
}
