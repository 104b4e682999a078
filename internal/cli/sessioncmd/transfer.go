package sessioncmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// inSession splits "ID:PATH".
func inSession(word string) (id, path string, err error) {
	id, path, ok := strings.Cut(word, ":")
	if !ok || id == "" {
		return "", "", exit.Misuse("write the session's id, a colon and a path in it, as in 0199:/workspace", "%q does not name a path in a session", word)
	}
	if path == "" {
		path = "."
	}
	return id, path, nil
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
	if err := a.secrets.Ready(); err != nil {
		return nil, nil, err
	}
	s, end, err := sessions.OpenFiles(ctx, id)
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
		Use: "push SRC ID:DIR", Short: "Copy a file or directory of this machine into a session",
		Long: `Copy a file or directory of this machine into a directory of a session, under its own
name. A relative DIR starts at the workspace. Files that look like credentials are left
out.`,
		Example: "  sandboxbash session push main.go 0199:\n  sandboxbash session push ./testdata 0199:/workspace/src",
		Args:    flags.Args(2, 2, "what to copy, and ID:DIR"),
	}
	flags.Add(cmd, "quiet")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		id, dir, err := inSession(args[1])
		if err != nil {
			return err
		}
		s, err := a.connection.Open(ctx, sessions, id)
		if err != nil {
			return err
		}
		left, err := s.Push(ctx, args[0], dir)
		if err == nil {
			a.notes.Listed("left out, because they look like credentials: ", left)
		}
		return err
	})
	return cmd
}

func (a *files) pullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pull [flags] ID:PATH TO", Short: "Copy a file or directory of a session to this machine",
		Long: `Copy the contents of a session's directory into the directory TO, or copy a file to TO:
into TO if TO is a directory or ends in a slash, else under the name TO. Missing
directories are created.

Nothing is written outside TO. These are left out, and listed: anything other than
regular files, directories and links that stay inside; files that look like credentials;
and files that programs of this machine would run, such as hooks and configuration in .git.

Files that the session has not changed are not written. If a file was changed here since
it was copied into the session, or is not known to be a copy, nothing is written at all;
--force overwrites such files. Nothing is deleted here: files that the session has
deleted are listed.`,
		Example: "  sandboxbash session pull 0199:result.txt .\n  sandboxbash session pull 0199:result.txt ./new.txt\n  sandboxbash session pull 0199:/workspace/dist ./out",
		Args:    flags.Args(2, 2, "ID:PATH, and where to"),
	}
	flags.Add(cmd, "quiet")
	pull := &pull{files: a}
	cmd.Flags().BoolVarP(&pull.force, "force", "f", false, "overwrite files that were changed here since they were copied")
	cmd.RunE = a.connection.Asks(pull.run)
	return cmd
}

// pull is the command pull.
type pull struct {
	*files

	force bool // the flag; only the command line has it: no file and no variable makes every pull overwrite
}

func (p *pull) run(ctx context.Context, sessions *sandbox.Engine, args []string) error {
	id, path, err := inSession(args[0])
	if err != nil {
		return err
	}
	if args[1] == "-" {
		return exit.Misuse("show a file with `sandboxbash session exec "+id+" cat …`, or write ./- for a file of that name", "pull does not write to standard output")
	}
	s, done, err := p.open(ctx, sessions, id)
	if err != nil {
		return err
	}
	defer done()
	pulled, err := s.Pull(ctx, path, args[1], sandbox.PullOptions{Force: p.force})
	p.notes.Listed("left out: ", pulled.LeftOut)
	p.notes.Listed("deleted in the session, still here: ", pulled.Deleted)
	return err
}

func (a *files) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [flags] ID [DIR]", Short: "Compare a session's workspace with a directory of this machine",
		Long: `Compare a session's workspace with a directory of this machine, by default the one that
it was copied from: A added, M modified, D deleted, T changed type in the session. If the
common origin is known, as for a copied workspace, (here) marks files that were changed
on this machine only, and (both) those that were changed on both sides.`,
		Example:           "  sandboxbash session diff 0199\n  sandboxbash session diff --exit-code 0199 ./expected",
		Args:              flags.Args(1, 2, "the id of a session and optionally a directory"),
		ValidArgsFunction: a.connection.CompleteSessions,
	}
	flags.Add(cmd, "json", "diff.exit-code")
	cmd.RunE = a.connection.Asks(a.diff)
	return cmd
}

func (a *files) diff(ctx context.Context, sessions *sandbox.Engine, args []string) error {
	s, done, err := a.open(ctx, sessions, args[0])
	if err != nil {
		return err
	}
	defer done()
	dir := s.Info().Workspace.Dir
	if len(args) > 1 {
		dir = args[1]
	}
	if dir == "" {
		return exit.Misuse("name the directory to compare with: `sandboxbash session diff ID DIR`", "the workspace of session %s is not a copy of a directory", s.ID())
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return exit.Misuse("name the directory to compare with: `sandboxbash session diff ID DIR`", "%s is not a directory of this machine", dir)
	}
	changes, err := s.Diff(ctx, ".", dir)
	if err != nil {
		return err
	}
	return a.showChanges(changes)
}

func (a *files) showChanges(changes []sandbox.Change) error {
	if a.cfg.JSON {
		if changes == nil {
			changes = []sandbox.Change{}
		}
		if err := stdio.PrintJSON(a.streams.Stdout, changes); err != nil {
			return err
		}
	} else {
		letters := map[string]string{"added": "A", "modified": "M", "deleted": "D", "type": "T"}
		for _, c := range changes {
			if _, err := fmt.Fprintf(a.streams.Stdout, "%s %s%s\n", letters[c.Kind], a.streams.Name(c.Path), sides[c.By]); err != nil {
				return err
			}
		}
	}
	if a.cfg.ExitCode && slices.ContainsFunc(changes, func(c sandbox.Change) bool { return c.By != sandbox.ChangedHere }) {
		return exit.StatusError(exit.Findings)
	}
	return nil
}

// sides say who has changed something, if it is not the session alone.
var sides = map[sandbox.Side]string{sandbox.ChangedHere: " (here)", sandbox.ChangedByBoth: " (both)"}
