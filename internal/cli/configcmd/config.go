// Package configcmd is the command config: the settings, where each comes from, and the file.
package configcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// commands are the config commands.
type commands struct {
	streams *stdio.Streams
	cfg     *core.Configuration
	notes   *core.Notes
}

// Command is the command config. Its help is a page about all settings, which is made when it
// is shown, and not for every call.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes}
	c := flags.Family("config", "Show and change the configuration: its file, keys and variables",
		`  sandboxbash help config
  sandboxbash config show
  sandboxbash config set limits.memory 4g
  SANDBOXBASH_TIMEOUT=10m sandboxbash run make test`,
		a.showCommand(), a.getCommand(), a.setCommand(), a.pathCommand(), a.initCommand())
	c.GroupID = flags.GroupSetup
	c.SetHelpFunc(func(cmd *cobra.Command, words []string) {
		if cmd == c {
			cmd.Long = text()
		}
		c.Parent().HelpFunc()(cmd, words)
	})
	return c
}

// valueJSON is a setting as --json prints it.
type valueJSON struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// values are the settings as they count for a command, masked.
func (a *commands) values(cmd *cobra.Command) ([]valueJSON, error) {
	if err := a.cfg.Load(cmd); err != nil {
		return nil, err
	}
	values, err := config.Values(a.cfg.Source(cmd))
	list := make([]valueJSON, len(values))
	for i, v := range values {
		list[i] = valueJSON{v.Key, a.streams.Scrub(v.Text), v.Origin}
	}
	return list, err
}

func (a *commands) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] [KEY...]", Short: "List the settings, with the origin of each value",
		Long: `List all settings, or those of the given keys and of the tables of these names. The origin
is the flag, the variable or the file that the value comes from, or default.`,
		Example:           "  sandboxbash config show\n  sandboxbash config show limits\n  sandboxbash config show --json timeout",
		ValidArgsFunction: completeKeys,
	}
	flags.Add(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := a.values(cmd)
		if err != nil {
			return err
		}
		for _, key := range args {
			if !slices.ContainsFunc(list, func(v valueJSON) bool { return within(v.Key, key) }) {
				return unknownKey(key)
			}
		}
		if len(args) > 0 {
			list = slices.DeleteFunc(list, func(v valueJSON) bool {
				return !slices.ContainsFunc(args, func(key string) bool { return within(v.Key, key) })
			})
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, list)
		}
		a.notes.Print()
		return a.streams.Table("KEY\tVALUE\tORIGIN", func(w io.Writer) {
			for _, v := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\n", v.Key, a.streams.Name(v.Value), a.streams.Name(v.Origin))
			}
		})
	}
	return cmd
}

// within reports whether a setting is that of a key, or in the table of that name.
func within(setting, key string) bool {
	return setting == key || strings.HasPrefix(setting, key+".")
}

func unknownKey(key string) error {
	return exit.Misuse("`sandboxbash config show` lists all keys", "%v", config.UnknownKey(key))
}

func (a *commands) getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get [flags] KEY", Short: "Print the value of one setting",
		Example: "  sandboxbash config get timeout", Args: flags.Args(1, 1, "one key"), ValidArgsFunction: completeKeys,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := a.values(cmd)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(v valueJSON) bool { return v.Key == args[0] })
		if i < 0 {
			return unknownKey(args[0])
		}
		_, err = fmt.Fprintln(a.streams.Stdout, a.streams.Safe(list[i].Value))
		return err
	}
	return cmd
}

func (a *commands) setCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set [flags] KEY VALUE...", Short: "Set one setting in the configuration file",
		Long: `Set one setting in the configuration file, which is created if there is none. A list takes
any number of values. The value is checked first, and all other lines of the file stay.`,
		Example: "  sandboxbash config set timeout 10m\n  sandboxbash config set env.pass LANG TZ",
		Args:    flags.Args(1, -1, "a key and its value"), ValidArgsFunction: completeKeys,
	}
	flags.Add(cmd, "quiet")
	cmd.Flags().SetInterspersed(false) // a value may begin with a dash
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		src := a.cfg.Source(cmd)
		if err := config.Set(src, args[0], args[1:]...); err != nil {
			exit.WordConfig(err)
			return exit.Misuse("", "%v", err)
		}
		if err := a.cfg.Load(cmd); err != nil {
			return err
		}
		values, err := config.Values(a.cfg.Source(cmd))
		if err != nil {
			return err
		}
		path, err := config.Path(src)
		if err != nil {
			return err
		}
		for _, v := range values {
			if v.Key == args[0] && v.Origin != path {
				a.notes.Add(fmt.Sprintf("%s is set in the file, but %s counts more", v.Key, v.Origin))
			}
		}
		a.notes.Print()
		return nil
	}
	return cmd
}

func (a *commands) pathCommand() *cobra.Command {
	return &cobra.Command{
		Use: "path", Short: "Print the name of the configuration file",
		Long:    "Print the name of the configuration file that is read, or that would be if it existed.",
		Example: "  sandboxbash config path\n  $EDITOR \"$(sandboxbash config path)\"", Args: flags.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := config.Path(a.cfg.Source(cmd))
			switch {
			case err != nil:
				return exit.Misuse("", "%v", err)
			case path == "":
				return exit.Misuse("name a file with --config", "there is no configuration file, because the user's configuration directory is not known")
			}
			if _, err := os.Stat(path); err != nil {
				a.notes.Add("the file does not exist; `sandboxbash config init` creates it")
				a.notes.Print()
			}
			_, err = fmt.Fprintln(a.streams.Stdout, a.streams.Safe(path))
			return err
		},
	}
}

func (a *commands) initCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Create a configuration file with all settings as comments",
		Long:    "Create a configuration file with all settings and their defaults, as comments. A file that exists is not touched.",
		Example: "  sandboxbash config init\n  sandboxbash --config ci.yaml config init", Args: flags.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := config.Init(a.cfg.Source(cmd))
			if errors.Is(err, config.ErrExists) {
				return exit.Misuse("change a setting with `sandboxbash config set`, or name another file with --config", "%v", err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.streams.Stdout, a.streams.Safe(path))
			return err
		},
	}
}

// completeKeys completes the first word of a command.
func completeKeys(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var keys []string
	for s := range config.Settings() {
		if strings.HasPrefix(s.Key, word) {
			keys = append(keys, s.Key+"\t"+s.Usage)
		}
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}
