package flags_test

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
)

// A flag that is not there is taken for one with a name close to it, else for one of another
// command; any other mistake refers to the help.
func TestMeant(t *testing.T) {
	t.Parallel()
	leaf := func(use string, names ...string) *cobra.Command {
		c := &cobra.Command{Use: use, Run: func(*cobra.Command, []string) {}}
		for _, n := range names {
			c.Flags().String(n, "", "")
		}
		return c
	}
	for _, row := range []struct{ arg, want string }{
		{"--tiemout=1s", "did you mean --timeout? See `top one --help`"},
		{"--time", "did you mean --timeout? See `top one --help`"},
		{"--imagee", "did you mean --image or --images? See `top one --help`"},
		{"--imag", "did you mean --image or --images? See `top one --help`"},
		{"--iamge", "did you mean --image? See `top one --help`"},
		{"--all", "it is a flag of `top three` or `top two`; see `top one --help`; give a script that starts with - as -c SCRIPT"},
		{"--only", "it is a flag of `top two`; see `top one --help`; give a script that starts with - as -c SCRIPT"},
		{"--x", "see `top one --help`; give a script that starts with - as -c SCRIPT"},
		{"--nothing-alike", "see `top one --help`; give a script that starts with - as -c SCRIPT"},
		{"-z", "see `top one --help`; give a script that starts with - as -c SCRIPT"},
		{"--timeout", "see `top one --help`; give a script that starts with - as -c SCRIPT"},
	} {
		one := leaf("one", "timeout", "image", "images", "command")
		top := &cobra.Command{Use: "top"}
		top.AddCommand(one, leaf("two", "all", "only"), leaf("three", "all"))
		top.Commands() // sorts them
		err := one.ParseFlags([]string{row.arg})
		if err == nil {
			t.Fatalf("%s is taken", row.arg)
		}
		if got := flags.Meant(one, err); got != row.want {
			t.Errorf("Meant(%s) = %q; want %q", row.arg, got, row.want)
		}
	}
	if got := flags.Meant(leaf("one", "all"), errors.New("another")); got != "see `one --help`" {
		t.Errorf("Meant(another error) = %q", got)
	}
}

// A word that names nothing below a command is a command elsewhere, if that has this very name.
func TestNoSuchCommandElsewhere(t *testing.T) {
	t.Parallel()
	leaf := func(use string, aliases ...string) *cobra.Command {
		return &cobra.Command{Use: use, Aliases: aliases, Run: func(*cobra.Command, []string) {}}
	}
	top := flags.Family("top", "", "",
		flags.Family("a", "", "", leaf("ls", "list"), leaf("start")), flags.Family("b", "", "", leaf("ls", "list")),
		flags.Family("c", "", "", leaf("ls")), flags.Family("d", "", "", leaf("ls"), leaf("deep")))
	for word, want := range map[string]string{
		"start": "top has no command \"start\": did you mean `top a start`?",
		"list":  "top has no command \"list\": did you mean `top a ls` or `top b ls`?",
		"ls":    "top has no command \"ls\": did you mean `top a ls`, `top b ls`, `top c ls` or another?",
		"depe":  "top has no command \"depe\": it has a, b, c, d; see `top --help`",
	} {
		err := flags.NoSuchCommand(top, []string{word})
		if got := hinted(err); got != want {
			t.Errorf("NoSuchCommand(%s) = %q; want %q", word, got, want)
		}
	}
}

// hinted is an error of wrong use, with what to do.
func hinted(err error) string {
	misuse, ok := errors.AsType[*exit.UsageError](err)
	if !ok {
		return err.Error()
	}
	return misuse.Text + ": " + misuse.Todo
}
