package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// inSession splits "ID:PATH".
func inSession(word string) (id, path string, err error) {
	id, path, ok := strings.Cut(word, ":")
	if !ok || id == "" {
		return "", "", misuse("write the session's id, a colon and a path in it, as in 0199:/workspace", "%q names no place in a session", word)
	}
	if path == "" {
		path = "."
	}
	return id, path, nil
}

func (a *app) pushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "push SRC ID:DIR", Short: "Copy a file or directory of this machine into a session",
		Long: `Copy a file or directory of this machine into a directory of a session, under its own
name. A relative DIR is the workspace's. What looks like credentials stays out.`,
		Example: "  sandboxbash session push main.go 0199:\n  sandboxbash session push ./testdata 0199:/workspace/src",
		Args:    words(2, 2, "what to copy, and ID:DIR"),
	}
	addFlags(cmd, "quiet")
	cmd.RunE = a.asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		id, dir, err := inSession(args[1])
		if err != nil {
			return err
		}
		s, err := a.open(ctx, sessions, id)
		if err != nil {
			return err
		}
		left, err := s.Push(ctx, args[0], dir)
		if err == nil && len(left) > 0 {
			a.note("left out, because they look like credentials: " + someOf(left))
		}
		return err
	})
	return cmd
}

func (a *app) pullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pull ID:PATH DIR", Short: "Copy a file or directory of a session to this machine",
		Long: `Copy a file or directory of a session into a directory of this machine, which is made
if it is missing. Nothing is written outside of it; what is no regular file, directory or
link that stays inside is left out.`,
		Example: "  sandboxbash session pull 0199:result.txt .\n  sandboxbash session pull 0199:/workspace/dist ./out",
		Args:    words(2, 2, "ID:PATH, and a directory"),
	}
	addFlags(cmd, "quiet")
	cmd.RunE = a.asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		id, path, err := inSession(args[0])
		if err != nil {
			return err
		}
		s, err := a.open(ctx, sessions, id)
		if err != nil {
			return err
		}
		skipped, err := s.Pull(ctx, path, args[1])
		if len(skipped) > 0 {
			for i := range skipped {
				skipped[i] = a.safe(skipped[i])
			}
			a.note("left out, because they are no plain files or lead outside: " + someOf(skipped))
		}
		return err
	})
	return cmd
}

func (a *app) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [flags] ID [DIR]", Short: "Compare a session's workspace with a directory of this machine",
		Long: `Compare a session's workspace with a directory of this machine, by default the one that
it was copied from: A added, M modified, D deleted, T another type in the session.`,
		Example:           "  sandboxbash session diff 0199\n  sandboxbash session diff --exit-code 0199 ./expected",
		Args:              words(1, 2, "the id of a session, and perhaps a directory"),
		ValidArgsFunction: a.completeSessions,
	}
	addFlags(cmd, "json", "diff.exit-code")
	cmd.RunE = a.asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		s, err := a.open(ctx, sessions, args[0])
		if err != nil {
			return err
		}
		dir := s.Info().Workspace.Dir
		if len(args) > 1 {
			dir = args[1]
		}
		if dir == "" {
			return misuse("name the directory to compare with: `sandboxbash session diff ID DIR`", "the workspace of session %s is no copy of a directory", s.ID())
		}
		changes, err := s.Diff(ctx, ".", dir)
		if err != nil {
			return err
		}
		return a.showChanges(changes)
	})
	return cmd
}

func (a *app) showChanges(changes []sandbox.Change) error {
	if a.cfg.JSON {
		if changes == nil {
			changes = []sandbox.Change{}
		}
		if err := printJSON(a.stdout, changes); err != nil {
			return err
		}
	} else {
		letters := map[string]string{"added": "A", "modified": "M", "deleted": "D", "type": "T"}
		for _, c := range changes {
			if _, err := fmt.Fprintf(a.stdout, "%s %s\n", letters[c.Kind], a.safe(c.Path)); err != nil {
				return err
			}
		}
	}
	if len(changes) > 0 && a.cfg.ExitCode {
		return statusError(statusFindings)
	}
	return nil
}
