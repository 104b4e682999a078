package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostMeant bounds how many names one hint has.
const mostMeant = 3

// Meant says what to do about an error of the flags of a command line: which flag of the command
// was probably meant, or which commands have the flag.
func Meant(cmd *cobra.Command, err error) string {
	see := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	if cmd.Flags().Lookup("command") != nil {
		see += "; give a script that starts with - as -c SCRIPT"
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return see
	}
	name := unknown.GetSpecifiedName()
	if like := likeFlags(cmd, name); len(like) > 0 {
		return fmt.Sprintf("did you mean %s? See `%s --help`", anyOf(like), cmd.CommandPath())
	}
	if have := commandsWith(cmd.Root(), name); len(have) > 0 {
		return fmt.Sprintf("it is a flag of %s; %s", anyOf(have), see)
	}
	return see
}

// nearest are the names of the commands below a command that are closest to a word: those that go on
// from it, and those with the smallest distance, at most 1 for short words and 2 for others.
func nearest(cmd *cobra.Command, word string) (names []string) {
	for most := 1; most == 1 || most == 2 && len(word) > 4; most++ {
		cmd.SuggestionsMinimumDistance = most
		if names = cmd.SuggestionsFor(word); len(names) > 0 {
			break
		}
	}
	return names
}

// likeFlags are the flags of a command whose names are close to a name. To cobra they are commands
// here: it has no such search for flags.
func likeFlags(cmd *cobra.Command, name string) (like []string) {
	names := &cobra.Command{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	for _, n := range nearest(names, name) {
		like = append(like, "--"+n)
	}
	return like
}

// commandsWith are the commands of a tree that have a flag of their own of a name.
func commandsWith(root *cobra.Command, name string) (have []string) {
	each(root, func(c *cobra.Command) {
		if f := c.LocalNonPersistentFlags().Lookup(name); f != nil && !f.Hidden && name != "help" {
			have = append(have, "`"+c.CommandPath()+"`")
		}
	})
	return have
}

// likeCommands are the lines of the commands that a word below a command probably meant: those
// with a name that is close to it or, if there are none, those elsewhere with this very name.
func likeCommands(cmd *cobra.Command, word string) (like []string) {
	for _, n := range nearest(cmd, word) {
		like = append(like, "`"+cmd.CommandPath()+" "+n+"`")
	}
	if len(like) > 0 {
		return like
	}
	each(cmd.Root(), func(c *cobra.Command) {
		if c.IsAvailableCommand() && c.HasParent() && (c.Name() == word || slices.Contains(c.Aliases, word)) {
			like = append(like, "`"+c.CommandPath()+"`")
		}
	})
	return like
}

// each calls do for a command and all below it.
func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		each(c, do)
	}
}

// anyOf joins names: a, b or c.
func anyOf(names []string) string {
	if len(names) > mostMeant {
		names = append(slices.Clone(names[:mostMeant]), "another")
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
