package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// Widths of help in columns.
const (
	usualWidth = 80  // the default of terminals, for a pipe or a file
	leastWidth = 40  // a narrower terminal breaks the lines itself
	mostWidth  = 100 // longer lines are hard to read
)

// helpWidth is the width of help for what it is printed on.
func (a *program) helpWidth() int {
	if cols := stdio.Width(a.Streams.Stdout); cols > 0 {
		return min(max(cols, leastWidth), mostWidth)
	}
	return usualWidth
}

// A command with more than fewFlags flags shows mostUsed of them first, in the order of
// commonFlags, and the others at the end: the first screen has usage, examples and these.
const (
	fewFlags = 9
	mostUsed = 5
)

var commonFlags = []string{
	"session", "name", "workspace", "command", "env", "timeout", "image", "allow", "json", "background", "follow", "all", "memory", "quiet",
}

// page is the help of a command, in lines of at most width columns where words allow it. What is
// looked up most comes first: usage, what the command is, examples, and its commands or flags.
func page(cmd *cobra.Command, width int) string {
	parts := []string{hanging("Usage: ", usageLine(cmd), width), fitted(sentence(cmd.Short), width)}
	if len(cmd.Aliases) > 0 {
		parts = append(parts, hanging("Aliases: ", strings.Join(cmd.Aliases, ", "), width))
	}
	if cmd.Example != "" {
		parts = append(parts, "Examples:\n"+strings.TrimRight(cmd.Example, "\n"))
	}
	parts = append(parts, commandLists(cmd, width)...)
	first, rest := flagsOf(cmd)
	switch {
	case len(rest) > 0:
		parts = append(parts, "Most used flags:\n"+flagList(first, width))
	case len(first) > 0:
		parts = append(parts, "Flags:\n"+flagList(first, width))
	}
	if cmd.Long != "" {
		parts = append(parts, strings.TrimSpace(fitted(cmd.Long, width)))
	}
	if len(rest) > 0 {
		parts = append(parts, "More flags:\n"+flagList(rest, width))
	}
	see := "See `" + cmd.Root().Name() + " help flags` for the flags that every command has."
	if cmd.HasAvailableSubCommands() {
		see = "See `" + cmd.CommandPath() + " COMMAND --help` for more about a command."
	}
	if !cmd.HasParent() {
		parts = append(parts, topicList(width))
	}
	return strings.Join(append(parts, fitted(see, width)), "\n\n") + "\n"
}

// usageLine is the line that says how a command is used.
func usageLine(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

// sentence ends a short description, which has no full stop in a list.
func sentence(short string) string {
	if short == "" || strings.HasSuffix(short, ".") {
		return short
	}
	return short + "."
}

// commandLists are the commands below a command, a list for each group.
func commandLists(cmd *cobra.Command, width int) (lists []string) {
	groups := append(slices.Clone(cmd.Groups()), &cobra.Group{Title: "Commands:"})
	for _, g := range groups {
		var rows [][2]string
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && (c.IsAvailableCommand() || c.Name() == "help") {
				rows = append(rows, [2]string{"  " + c.Name(), c.Short})
			}
		}
		if len(rows) > 0 {
			lists = append(lists, g.Title+"\n"+columns(rows, width))
		}
	}
	return lists
}

// flagsOf are a command's own flags: those that help shows first, and the rest.
func flagsOf(cmd *cobra.Command) (first, rest []*pflag.Flag) {
	if !cmd.HasParent() {
		return nil, nil // every command has them: they have a page of their own
	}
	var all []*pflag.Flag
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			all = append(all, f)
		}
	})
	if len(all) <= fewFlags {
		return all, nil
	}
	for _, name := range commonFlags {
		at := slices.IndexFunc(all, func(f *pflag.Flag) bool { return f.Name == name })
		if at >= 0 && len(first) < mostUsed {
			first, all = append(first, all[at]), slices.Delete(all, at, at+1)
		}
	}
	return first, all
}

// flagList lists flags as pflag does, but for a narrower first column.
func flagList(list []*pflag.Flag, width int) string {
	var rows [][2]string
	for _, f := range list {
		left := "      --" + f.Name
		if f.Shorthand != "" {
			left = "  -" + f.Shorthand + ", --" + f.Name
		}
		holder, about := pflag.UnquoteUsage(f)
		if holder != "" {
			left += " " + holder
		}
		if !slices.Contains([]string{"", "false", "0", "[]"}, f.DefValue) {
			about += " (default " + f.DefValue + ")"
		}
		rows = append(rows, [2]string{left, about})
	}
	return columns(rows, width)
}

// mostColumn bounds the first of two columns. A longer text has its line to itself.
const mostColumn = 26

// columns aligns the second text of each row, and wraps it.
func columns(rows [][2]string, width int) string {
	column := 0
	for _, row := range rows {
		if n := len(row[0]); n <= mostColumn {
			column = max(column, n)
		}
	}
	column += 2
	var lines []string
	for _, row := range rows {
		left := row[0]
		if len(left) > column-2 {
			lines, left = append(lines, left), ""
		}
		for _, text := range wrapped("", row[1], max(width-column, leastWidth/2)) {
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%-*s%s", column, left, text), " "))
			left = ""
		}
	}
	return strings.Join(lines, "\n")
}

// hanging is a text behind a title. Its further lines are indented.
func hanging(title, text string, width int) string {
	lines := wrapped("", text, width-len(title))
	return title + strings.Join(lines, "\n"+strings.Repeat(" ", len(title)))
}

// A topic is a page of help about no command.
type topic struct {
	name, short string
	text        func(root *cobra.Command, width int) string
}

var topics = []topic{
	{"flags", "The flags that every command has", globalFlags},
	{"status", "Exit statuses of run and session exec", func(_ *cobra.Command, width int) string { return fitted(statusText, width) }},
}

func topicList(width int) string {
	var rows [][2]string
	for _, t := range topics {
		rows = append(rows, [2]string{"  " + t.name, t.short})
	}
	return "Topics of `sandboxbash help`:\n" + columns(rows, width)
}

// globalFlags is the topic flags.
func globalFlags(root *cobra.Command, width int) string {
	var list []*pflag.Flag
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	root.LocalFlags().VisitAll(func(f *pflag.Flag) {
		shown := *f
		switch f.Name {
		case "help":
			shown.Usage = "print the help of the command"
		case "version":
			shown.Usage = "print the version, where there is no COMMAND"
		}
		list = append(list, &shown)
	})
	return strings.Join([]string{
		"Usage: sandboxbash COMMAND [flags]",
		fitted("Every command has these flags, in front of its name or behind it. Flags behind the COMMAND of run and "+
			"session exec are that command's own.", width),
		"Flags:\n" + flagList(list, width),
		fitted("Flags that are settings have a variable and a key of the configuration file too: see `sandboxbash help config`.", width),
	}, "\n\n")
}

// helpAsIs prints help without masking it. Help has no text from outside, so the configured
// secrets need not be fetched for it.
func (a *program) helpAsIs(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = io.WriteString(stdio.PastMasks(a.Streams.Stdout), page(cmd, a.helpWidth()))
	})
}

// helpCommand makes cobra's command help ours: it knows topics, and refuses wrong words.
func (a *program) helpCommand(cmd *cobra.Command) {
	root := cmd.Root()
	cmd.Use, cmd.Short = "help [COMMAND|TOPIC]", "Help about a command or a topic"
	cmd.Example = "  sandboxbash help session start\n  sandboxbash help config\n  sandboxbash help status"
	cmd.Long = ""
	cmd.Run = nil
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			if at := slices.IndexFunc(topics, func(t topic) bool { return t.name == args[0] }); at >= 0 {
				_, err := io.WriteString(stdio.PastMasks(a.Streams.Stdout), topics[at].text(root, a.helpWidth())+"\n")
				return err
			}
		}
		about, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			if about == nil {
				about, rest = root, args
			}
			return flags.NoSuchCommand(about, rest)
		}
		return about.Help()
	}
	offered := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		offers, directive := offered(c, args, word)
		for _, t := range topics {
			if len(args) == 0 && strings.HasPrefix(t.name, word) {
				offers = append(offers, cobra.CompletionWithDesc(t.name, t.short))
			}
		}
		return offers, directive | cobra.ShellCompDirectiveNoFileComp
	}
}

// flagError words an error of the flags of a command line.
func flagError(cmd *cobra.Command, err error) error {
	return exit.Misuse(flags.Meant(cmd, err), "%v", err)
}

// fitted returns a text with no line wider than width: paragraphs are filled again, and
// the words of an indented line that do not fit go on below it with the same indentation.
func fitted(text string, width int) string {
	var out, paragraph []string
	fill := func() {
		if len(paragraph) > 0 {
			out = append(out, wrapped("", strings.Join(paragraph, " "), width)...)
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\t", "    "), "\n") {
		words := strings.TrimLeft(line, " ")
		switch indent := line[:len(line)-len(words)]; {
		case words == "":
			fill()
			out = append(out, "")
		case indent == "":
			paragraph = append(paragraph, words)
		case len(line) <= width:
			fill()
			out = append(out, line)
		default:
			fill()
			out = append(out, wrapped(indent, words, width)...)
		}
	}
	fill()
	return strings.Join(out, "\n")
}

// wrapped returns the words of a text in indented lines of at most width columns, or of
// one word if that is wider.
func wrapped(indent, text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = indent + word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = indent + word
		}
	}
	return append(lines, line)
}
