package flags_test

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
)

// command returns a command with the flags of settings, that does nothing.
func command(keys ...string) *cobra.Command {
	c := &cobra.Command{Use: "do", Args: flags.Args(0, 1, "at most one word"), RunE: func(*cobra.Command, []string) error { return nil }}
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(io.Discard)
	flags.Add(c, keys...)
	return c
}

// A flag that holds one value is refused if it is given twice, unless a switch says the same
// again. What is accepted reaches the configuration.
func TestFlagsGivenTwice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		want string // in the error; "" for none
	}{
		{"once", []string{"--timeout=5s", "--json"}, ""},
		{"text twice", []string{"--timeout=5s", "--timeout=6s"}, "it is given twice"},
		{"text twice the same", []string{"--timeout=5s", "--timeout=5s"}, "it is given twice"},
		{"empty text twice", []string{"--timeout=", "--timeout="}, "it is given twice"},
		{"switch twice", []string{"--json", "--json"}, ""},
		{"switch twice, otherwise", []string{"--json", "--json=false"}, "it is given twice"},
		{"switch twice, off", []string{"--json=false", "--json=0"}, ""},
		{"switch of a word", []string{"--json=perhaps"}, "it must be true or false"},
		{"list twice", []string{"--check=rm", "--check=push"}, ""},
	} {
		c := command("timeout", "json", "policy.checks")
		c.SetArgs(test.args)
		err := c.Execute()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %q = %v; want an error with %q", test.name, test.args, err, test.want)
		}
	}
}

// Completion parses a command line more than once, also for the commands below.
func TestAllowRepeats(t *testing.T) {
	t.Parallel()
	root, child := command("timeout"), command("grace")
	flags.AddTo(root.PersistentFlags(), "engine")
	root.AddCommand(child)
	flags.AllowRepeats(root)
	for name, set := range map[string]*pflag.FlagSet{"timeout": root.Flags(), "engine": root.PersistentFlags(), "grace": child.Flags()} {
		for _, value := range []string{"1", "2"} {
			if err := set.Set(name, value); err != nil {
				t.Errorf("--%s=%s: %v; want it accepted", name, value, err)
			}
		}
		if got := set.Lookup(name).Value.String(); got != "2" {
			t.Errorf("--%s is %q; want the last value", name, got)
		}
	}
}

// Each setting that has a flag becomes one, with its name, letter, help and default, and
// reaches the configuration whole.
func TestEachSettingMakesItsFlag(t *testing.T) {
	t.Parallel()
	for s := range config.Flags() {
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		if got := flags.AddTo(set, s.Key); got.Key != s.Key {
			t.Errorf("AddTo(%s) = the setting %s", s.Key, got.Key)
		}
		f := set.Lookup(s.Flag)
		usage := s.Usage
		if s.Kind == config.Choice && s.Holder != "" { // the choices are too long for a placeholder
			usage += " (" + strings.Join(s.Choices, ", ") + ")"
		}
		if f == nil || f.Usage != usage || f.Shorthand != s.Short {
			t.Errorf("%s: the flag is %+v; want the setting's name, letter and usage", s.Key, f)
			continue
		}
		placeholder, value := s.Holder, s.Default
		switch s.Kind {
		case config.Choice:
			placeholder = cmp.Or(s.Holder, strings.Join(s.Choices, "|"))
		case config.Switch:
			placeholder, value = "bool", "false"
			if f.NoOptDefVal != "true" {
				t.Errorf("--%s alone is %q; want true", s.Flag, f.NoOptDefVal)
			}
		case config.List, config.Lines:
			value = ""
		case config.Text, config.Duration, config.Size, config.Count, config.Number:
		}
		if f.Value.Type() != placeholder || f.DefValue != value {
			t.Errorf("--%s is shown as %q with the default %q; want %q and %q", s.Flag, f.Value.Type(), f.DefValue, placeholder, value)
		}
	}
}

// A value reaches the configuration byte by byte.
func TestListsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	c := command("env.set")
	want := []string{"A=1,2", "B= x\ny ", `C="q"`, "D="}
	args := []string{}
	for _, kv := range want {
		args = append(args, "--env", kv)
	}
	c.SetArgs(args)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.Source{Flags: c.Flags()})
	if err != nil || !slices.Equal(got.Env.Set, want) {
		t.Errorf("env.set is %q, %v; want %q", got.Env.Set, err, want)
	}
}

// A setting without a flag is a mistake of the program, and not of its user.
func TestNoFlagPanics(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"agent.async", "no.such.key", ""} {
		func() {
			defer func() {
				if r := recover(); r != "no flag for the setting "+key {
					t.Errorf("AddTo(%q) has panicked with %v", key, r)
				}
			}()
			flags.AddTo(pflag.NewFlagSet("test", pflag.ContinueOnError), key)
			t.Errorf("AddTo(%q) has returned", key)
		}()
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		least, most, given int
		ok                 bool
	}{
		{0, 0, 0, true},
		{0, 0, 1, false},
		{1, 2, 0, false},
		{1, 2, 2, true},
		{1, 2, 3, false},
		{1, -1, 0, false},
		{1, -1, 9, true},
	} {
		err := flags.Args(test.least, test.most, "some words")(command(), make([]string, test.given))
		if (err == nil) != test.ok {
			t.Errorf("%d words where %d to %d are taken: %v; want accepted = %t", test.given, test.least, test.most, err, test.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "do takes some words, and was given") {
			t.Errorf("the error is %q; want what is taken and given", err)
		}
	}
}

// A command that only holds others shows its help, names a command that was probably
// meant, and refuses any other word.
func TestFamily(t *testing.T) {
	t.Parallel()
	family := flags.Family("things", "Things", "", command())
	if err := flags.NoSuchCommand(family, nil); err != nil {
		t.Errorf("no word: %v", err)
	}
	for word, want := range map[string]string{"dp": "did you mean `things do`?", "elsewhere": "it has do; see `things --help`"} {
		err := flags.NoSuchCommand(family, []string{word})
		misuse, ok := errors.AsType[*exit.UsageError](err)
		if !ok || misuse.Text != `things has no command "`+word+`"` || misuse.Todo != want {
			t.Errorf("NoSuchCommand(%q) = %+v; want the hint %q", word, misuse, want)
		}
	}
}

func TestArg(t *testing.T) {
	t.Parallel()
	for at, want := range []string{"a", "b", "", ""} {
		if got := flags.Arg([]string{"a", "b"}, at); got != want {
			t.Errorf("Arg(%d) = %q; want %q", at, got, want)
		}
	}
}

// Flags that exclude each other are wrong use together, and not alone.
func TestOneOf(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"": "", "--a": "", "--b": "", "--a --b": "--a and --b cannot be given together", "--b --a --c": "--a and --b cannot be given together"} {
		cmd := command()
		cmd.RunE = func(*cobra.Command, []string) error { return nil }
		for _, name := range []string{"a", "b", "c"} {
			cmd.Flags().Bool(name, false, "")
		}
		flags.OneOf(cmd, "a", "b")
		cmd.SetArgs(strings.Fields(line))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			continue
		}
		if misuse, ok := errors.AsType[*exit.UsageError](err); !ok || misuse.Text != want {
			t.Errorf("%q: %v; want %q", line, err, want)
		}
	}
}
