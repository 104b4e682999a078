package sessioncmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// inSession splits "SESSION:PATH", where SESSION may be left out.
func inSession(word string) (ref, path string, err error) {
	ref, path, ok := strings.Cut(word, ":")
	if !ok {
		return "", "", exit.Misuse("write the session, a colon and a path in it, as in web:/workspace, or :/workspace for the session of this directory", "%q does not name a path in a session", word)
	}
	if path == "" {
		path = "."
	}
	return ref, path, nil
}

// files copy and compare files of sessions and of this machine.
type files struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	notes      *core.Notes
	secrets    *core.Secrets
	connection *core.Connection
}

// open opens a session, or what is kept of one, for its files alone. The caller
// calls done.
func (a *files) open(ctx context.Context, sessions *sandbox.Engine, id string) (s *sandbox.Session, done func(), err error) {
	s, end, err := a.connection.OpenFiles(ctx, sessions, id)
	if err != nil {
		return nil, nil, err
	}
	return s, func() {
		if err := end(context.WithoutCancel(ctx)); err != nil {
			a.notes.Add("the container that read the workspace was not removed: " + err.Error())
		}
	}, nil
}

func (a *files) pushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "push [flags] SRC [SESSION]:DIR", Short: "Copy a file or directory of this machine into a session",
		Long: `Copy a file or directory of this machine into a directory of a session, under its own
name. A relative DIR starts at the workspace. Files that look like credentials are left
out.`,
		Example:           "  sandboxbash session push main.go :\n  sandboxbash session push ./testdata web:/workspace/src",
		Args:              flags.Args(2, 2, "what to copy, and SESSION:DIR"),
		ValidArgsFunction: a.completeAt(1),
	}
	flags.Add(cmd, "session.id", "quiet")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		id, dir, err := inSession(args[1])
		if err != nil {
			return err
		}
		s, err := a.connection.Open(ctx, sessions, id)
		if err != nil {
			return err
		}
		wait := a.cfg.Waiting("copying " + args[0] + " into the session")
		left, err := s.Push(ctx, args[0], dir)
		wait.Done()
		if err == nil {
			a.notes.Listed("left out, because they look like credentials: ", left)
		}
		return err
	})
	return cmd
}

func (a *files) pullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pull [flags] [SESSION]:PATH... TO", Short: "Copy files or directories of a session to this machine",
		Long: `Copy the contents of a session's directory into the directory TO, or copy a file to TO:
into TO if TO is a directory or ends in a slash, else under the name TO. Missing
directories are created.

Several PATHs of one session go into the directory TO, each under its own name, one after
the other; DIR/. stands for what is in DIR.

Nothing is written outside TO. These are left out, and listed: anything other than
regular files, directories and links that stay inside; files that look like credentials;
and files that programs of this machine would run, such as hooks and configuration in .git.

Files that the session has not changed are not written. If a file was changed here since
it was copied into the session, or is not known to be a copy, nothing is written at all;
--force overwrites such files. Nothing is deleted here: files that the session has
deleted are listed.`,
		Example:           "  sandboxbash session pull :result.txt .\n  sandboxbash session pull web:result.txt ./new.txt\n  sandboxbash session pull web:/workspace/dist ./out\n  sandboxbash session pull :dist :junit.xml results/",
		Args:              flags.Args(2, -1, "SESSION:PATH, and where to"),
		ValidArgsFunction: a.completePull,
	}
	flags.Add(cmd, "session.id", "quiet")
	pull := &pull{files: a}
	cmd.PreRunE = func(_ *cobra.Command, words []string) error { return pull.prepare(words) }
	cmd.Flags().BoolVarP(&pull.force, "force", "f", false, "overwrite files that were changed here since they were copied")
	cmd.RunE = a.connection.Asks(pull.run)
	return cmd
}

// completeAt completes the word of an index as a path in a session, and others as files of this machine.
func (a *files) completeAt(at int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case at:
			return a.connection.CompletePath(cmd, args, word)
		case 0, 1:
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completePull completes paths in a session and, behind the first, files of this machine: the last word is one.
func (a *files) completePull(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return a.connection.CompletePath(cmd, args, word)
	case !strings.Contains(args[len(args)-1], ":"):
		return nil, cobra.ShellCompDirectiveNoFileComp // it was where to
	case strings.Contains(word, ":"):
		return a.connection.CompletePath(cmd, args, word)
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// pull is the command pull.
type pull struct {
	*files

	force bool // the flag; only the command line has it: no file and no variable makes every pull overwrite

	from []position // what prepare has read
	to   string
}

// prepare checks the command line, before any engine is asked.
func (p *pull) prepare(words []string) error {
	last := len(words) - 1
	p.to = words[last]
	for _, word := range words[:last] {
		ref, path, err := inSession(word)
		if err != nil {
			return err
		}
		if p.from, err = together(p.from, position{word: word, inside: true, ref: ref, path: path}); err != nil {
			return err
		}
	}
	if p.to == "-" {
		return exit.Misuse("show a file with `sandboxbash session exec "+p.from[0].ref+" cat …`, or write ./- for a file of that name", "pull does not write to standard output")
	}
	if len(p.from) == 1 {
		return nil // its contents, or under any name
	}
	return fits(p.from, p.to)
}

func (p *pull) run(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
	s, done, err := p.open(ctx, sessions, p.from[0].ref)
	if err != nil {
		return err
	}
	defer done()
	pulled, err := p.pullEach(ctx, s, p.from, p.to, sandbox.PullOptions{Force: p.force, Into: len(p.from) > 1})
	p.notes.Listed("deleted in the session, still here: ", pulled.Deleted)
	if err != nil && pulled.Files > 0 {
		p.notes.Add("before that, " + copiedText(pulled.Files, pulled.Bytes, pulled.Alike))
	}
	return err
}
