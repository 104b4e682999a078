package cli_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
)

// Help is read in terminals of 80 columns.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	everyCommand(func(c *cobra.Command) {
		args := append([]string{"help"}, strings.Fields(c.CommandPath())[1:]...)
		_, out, _ := clitest.Call(t, nil, args...)
		for line := range strings.SplitSeq(out, "\n") {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%v prints a line of %d columns: %q", args, n, line)
			}
		}
		if strings.Contains(c.Long, "  ") && !strings.Contains(out, "\n  ") {
			t.Errorf("%v prints no indented line", args)
		}
	})
}

// The first screen of a terminal has the usage line first, what the command is, its examples, and
// the start of its flags or commands; no line is longer than a narrow terminal, but for examples.
func TestHelpFirstScreen(t *testing.T) {
	t.Parallel()
	everyCommand(func(c *cobra.Command) {
		text := cli.Page(c, 80)
		lines := strings.Split(text, "\n")
		screen := strings.Join(lines[:min(24, len(lines))], "\n")
		want := []string{strings.TrimSuffix(c.Short, "."), c.Example}
		switch {
		case c.HasAvailableSubCommands() && c.HasParent():
			want = append(want, "\nCommands:\n")
		case c.HasAvailableSubCommands():
			want = append(want, "\nRun commands:\n")
		case strings.Contains(text, "lags:\n"):
			want = append(want, "lags:\n  ")
		}
		for _, w := range want {
			if !strings.HasPrefix(text, "Usage: "+c.CommandPath()) || !strings.Contains(strings.Join(strings.Fields(screen), " "), strings.Join(strings.Fields(w), " ")) {
				t.Errorf("the first screen of %s has no %q:\n%s", c.CommandPath(), w, screen)
			}
		}
		narrow := strings.Replace(cli.Page(c, 50), c.Example, "", 1)
		for line := range strings.SplitSeq(narrow, "\n") {
			if words := strings.Fields(line); len(line) > 50 && len(words) > 2 {
				t.Errorf("%s: a line of %d columns in a terminal of 50: %q", c.CommandPath(), len(line), line)
			}
		}
	})
}

// Each flag of a command is in its help, once; those that every command has are a topic.
func TestHelpHasEveryFlag(t *testing.T) {
	t.Parallel()
	status, topic, errs := clitest.Call(t, nil, "help", "flags")
	if status != 0 || errs != "" || !strings.HasPrefix(topic, "Usage: ") || !strings.Contains(topic, "--help") {
		t.Errorf("help flags = %d, %q, %q", status, topic, errs)
	}
	everyCommand(func(c *cobra.Command) {
		text := cli.Page(c, 80)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			row := regexp.MustCompile(`(?m)^  (-., |    )--` + f.Name + `(\s|$)`)
			in := text
			if !c.HasParent() {
				in = topic
			}
			if f.Name != "help" && f.Name != "version" && len(row.FindAllString(in, -1)) != 1 {
				t.Errorf("%s: help has --%s %d times; want once", c.CommandPath(), f.Name, len(row.FindAllString(in, -1)))
			}
		})
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(text, "  --"+f.Name+" ") {
				t.Errorf("%s: help has --%s, which every command has", c.CommandPath(), f.Name)
			}
		})
	})
}

// Every way to ask for help prints the same, the program and a command without words included.
func TestHelpIsOne(t *testing.T) {
	t.Parallel()
	for _, lines := range [][][]string{
		{{}, {"--help"}, {"-h"}, {"help"}},
		{{"session"}, {"session", "--help"}, {"help", "session"}},
		{{"job", "ls", "--help"}, {"help", "job", "ls"}, {"job", "list", "-h"}, {"help", "job", "list"}},
		{{"help", "--help"}, {"help", "help"}},
	} {
		_, want, _ := clitest.Call(t, nil, lines[0]...)
		for _, args := range lines {
			status, got, errs := clitest.Call(t, nil, args...)
			if status != 0 || errs != "" || got != want || !strings.HasPrefix(got, "Usage: sandboxbash") {
				t.Errorf("%q = %d, %q, %q; want what %q prints", args, status, got, errs, lines[0])
			}
		}
	}
	status, out, errs := clitest.Call(t, nil, "help", "status")
	if status != 0 || errs != "" || !strings.HasPrefix(out, "Exit status of run") {
		t.Errorf("help status = %d, %q, %q", status, out, errs)
	}
	status, out, errs = clitest.Call(t, nil, "__complete", "help", "st")
	if status != 0 || !strings.Contains(out, "status\tExit statuses") {
		t.Errorf("completion of a topic = %d, %q, %q", status, out, errs)
	}
}
