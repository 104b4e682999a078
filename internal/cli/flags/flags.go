// Package flags makes settings the flags of commands, and checks how many arguments a
// command is given.
package flags

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// Settings that several commands take as flags.
var (
	Session = []string{
		"image", "workspace", "mounts", "caches", "user", "user-name", "profile", "network", "runtime",
		"limits.memory", "limits.cpus", "limits.pids", "limits.disk", "limits.home", "limits.tmp", "session.home-in-workspace", "session.image-env",
	}
	// Network are for commands that hold the session as long as it lives.
	Network = []string{"network.allow", "network.deny"}
	// Asking are for those of them that can ask about what no rule allows.
	Asking  = []string{"network.ask", "network.ask-timeout"}
	Command = []string{
		"timeout", "grace", "run.cwd", "env.set", "env.unsafe", "run.stdin", "run.no-stdin", "output.limit", "shell", "run.exclusive", "run.command", "run.file",
		"run.background", "run.background-after", "run.merge", "run.preview",
		"pty.ask", "pty.kill-keys", "pty.unattended",
		"report.junit", "report.junit-name", "report.summary",
		"artifacts.mode", "json", "quiet",
	}
)

// Add gives a command flags, each of them a setting. What they hold is
// read through the configuration only.
func Add(cmd *cobra.Command, keys ...string) {
	for _, key := range keys {
		s := AddTo(cmd.Flags(), key)
		if s.Kind == config.Choice {
			_ = cmd.RegisterFlagCompletionFunc(s.Flag, cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// AddTo adds the flag of a setting.
func AddTo(flags *pflag.FlagSet, key string) config.Setting {
	s, ok := config.Lookup(key)
	if !ok || s.Flag == "" {
		panic("no flag for the setting " + key) // a mistake in this program, found by its first test
	}
	holder := s.Holder
	switch {
	case s.Kind == config.Choice && holder == "":
		holder = strings.Join(s.Choices, "|")
	case s.Kind == config.Choice:
		s.Usage += " (" + strings.Join(s.Choices, ", ") + ")"
	}
	switch s.Kind {
	case config.Switch:
		flags.VarPF(&switchValue{}, s.Flag, s.Short, s.Usage).NoOptDefVal = "true"
	case config.List, config.Lines:
		flags.VarP(&listValue{holder: holder}, s.Flag, s.Short, s.Usage)
	default:
		flags.VarP(&TextValue{Text: s.Default, holder: holder}, s.Flag, s.Short, s.Usage)
	}
	return s
}

// TextValue is the text of a flag that may be given once. Its type, as help shows
// it, is its holder.
type TextValue struct {
	Text, holder string
	set, repeats bool // it was given; it may be again
}

func (v *TextValue) String() string { return v.Text }

// Type is the placeholder for the value in the help.
func (v *TextValue) Type() string { return v.holder }

// Set takes the value. A flag that holds one value is refused when it is given twice.
func (v *TextValue) Set(text string) error {
	if v.set && !v.repeats {
		return errTwice
	}
	v.Text, v.set = text, true
	return nil
}

// errTwice keeps one of two values from being dropped silently.
var errTwice = errors.New("it is given twice")

// AllowRepeats is for cobra's completion, which parses a command line more than once.
func AllowRepeats(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if v, ok := f.Value.(*TextValue); ok {
				v.repeats = true
			}
		})
	}
	for _, c := range cmd.Commands() {
		AllowRepeats(c)
	}
}

// switchValue is a switch that may be repeated, but not taken back.
type switchValue struct{ on, set bool }

func (v *switchValue) String() string { return strconv.FormatBool(v.on) }
func (v *switchValue) Type() string   { return "bool" }

func (v *switchValue) Set(text string) error {
	on, err := strconv.ParseBool(text)
	switch {
	case err != nil:
		return errors.New("it must be true or false")
	case v.set && on != v.on:
		return errTwice
	}
	v.on, v.set = on, true
	return nil
}

// listValue is the texts of a flag that may be repeated.
type listValue struct {
	list   []string
	holder string
}

func (v *listValue) String() string     { return strings.Join(v.list, "\n") }
func (v *listValue) Type() string       { return v.holder }
func (v *listValue) GetSlice() []string { return v.list }

func (v *listValue) Set(text string) error {
	v.list = append(v.list, text)
	return nil
}

// OneOf refuses a command line that has more than one of some flags of a command. It sets the
// command's PreRunE.
func OneOf(cmd *cobra.Command, names ...string) {
	cmd.MarkFlagsMutuallyExclusive(names...) // completion leaves the others out
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		var given []string
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) < 2 {
			return nil
		}
		return exit.Misuse("leave out all but one", "%s cannot be given together", strings.Join(given, " and "))
	}
}

// Arg is the word at an index, or "".
func Arg(args []string, at int) string {
	if at >= len(args) {
		return ""
	}
	return args[at]
}

// NoSuchCommand refuses words that a command with subcommands does not know.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
		}
	}
	todo := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	if len(names) > 0 {
		todo = "it has " + strings.Join(names, ", ") + "; " + todo
	}
	if like := likeCommands(cmd, args[0]); len(like) > 0 {
		todo = "did you mean " + anyOf(like) + "?"
	}
	return exit.Misuse(todo, "%s has no command %q", cmd.CommandPath(), args[0])
}

// Family is a command that only holds others.
func Family(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// Args checks how many arguments a command has: from least to most, where -1
// is any number.
func Args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return exit.Misuse(fmt.Sprintf("use it as `%s`; see `%s --help`", cmd.UseLine(), cmd.CommandPath()),
			"%s takes %s, and was given %d arguments", cmd.CommandPath(), what, len(args))
	}
}

// Groups of commands in help.
const (
	GroupRun    = "run"
	GroupOutput = "output"
	GroupSetup  = "setup"
)
