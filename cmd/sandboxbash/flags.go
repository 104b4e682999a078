package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
)

// Settings that several commands take as flags.
var (
	sessionFlags = []string{
		"image", "workspace", "user", "profile", "network", "runtime",
		"limits.memory", "limits.cpus", "limits.pids", "limits.disk",
	}
	commandFlags = []string{
		"timeout", "grace", "run.cwd", "env.set", "run.stdin", "output.limit", "shell", "run.exclusive", "run.file",
		"run.background", "run.background-after", "run.preview",
		"pty.ask", "pty.kill-keys", "pty.unattended",
		"report.junit", "report.summary",
		"artifacts.mode", "json", "quiet",
	}
)

// addFlags gives a command flags, each of them a setting. What they hold is
// read through the configuration only.
func addFlags(cmd *cobra.Command, keys ...string) {
	for _, key := range keys {
		s := addFlag(cmd.Flags(), key)
		if s.Kind == config.Choice {
			_ = cmd.RegisterFlagCompletionFunc(s.Flag, cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

func addFlag(flags *pflag.FlagSet, key string) config.Setting {
	s, ok := config.Lookup(key)
	if !ok || s.Flag == "" {
		panic("no flag for the setting " + key) // a mistake in this program, found by its first test
	}
	holder := s.Holder
	if s.Kind == config.Choice {
		holder = strings.Join(s.Choices, "|")
	}
	switch s.Kind {
	case config.Switch:
		flags.BoolP(s.Flag, s.Short, false, s.Usage)
	case config.List, config.Lines:
		flags.VarP(&listValue{holder: holder}, s.Flag, s.Short, s.Usage)
	default:
		flags.VarP(&textValue{text: s.Default, holder: holder}, s.Flag, s.Short, s.Usage)
	}
	return s
}

// textValue is the text of a flag. Its type, as help shows it, is its holder.
type textValue struct{ text, holder string }

func (v *textValue) String() string { return v.text }
func (v *textValue) Type() string   { return v.holder }

func (v *textValue) Set(text string) error {
	v.text = text
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
