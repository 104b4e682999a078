// Package cachecmd is the commands cache and du: directories that an engine keeps between sessions, and
// how much room everything takes that this program has stored.
package cachecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// commands are the cache commands.
type commands struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	notes      *core.Notes
	artifacts  *core.Artifacts
	connection *core.Connection
}

func newCommands(p *core.Parts) *commands {
	return &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, artifacts: p.Artifacts, connection: p.Connection}
}

// Command is the command cache.
func Command(p *core.Parts) *cobra.Command {
	a := newCommands(p)
	c := flags.Family("cache", "Manage directories that are kept between sessions", `  sandboxbash run --cache pip:/home/agent/.cache/pip \
    --allow @pypi 'pip install requests'
  sandboxbash cache ls
  sandboxbash cache prune --unused-for 7d`,
		a.listCommand(), a.removeCommand(), a.pruneCommand())
	c.Long = `A cache is a directory on the engine that sessions share, one after the other or at
once: --cache NAME:PATH gives it to a session, and makes it where there is none. It
belongs to the uid of the session that made it; sessions of another uid cannot have it.

What one session writes there the next one reads, and runs if it is a program: give a
session that you trust less the cache with :ro, or one of its own.`
	c.GroupID = flags.GroupSetup
	return c
}

// cacheJSON is a cache as --json prints it.
type cacheJSON struct {
	Name    string    `json:"name"`
	UID     uint32    `json:"uid"`
	Bytes   *int64    `json:"bytes"` // null: the engine does not tell
	InUse   bool      `json:"inUse"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the caches on the engine",
		Long: `List the caches on the engine. USED is when a session last started with the cache, to an
hour; SIZE is - if the engine does not tell.`,
		Example: "  sandboxbash cache ls\n  sandboxbash cache ls --json",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		list, err := sessions.Caches(ctx)
		if err != nil {
			return err
		}
		rows := a.measured(ctx, sessions, list)
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, rows)
		}
		now := time.Now()
		return a.streams.Table("NAME\tUID\tSIZE\tIN USE\tAGE\tUSED", func(w io.Writer) {
			for _, c := range rows {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", a.streams.Name(c.Name), c.UID, sizeText(c.Bytes), yesNo(c.InUse), stdio.Age(c.Created, now), stdio.Age(c.Used, now))
			}
		})
	})
	return cmd
}

// measured adds to caches what the engine tells of their sizes. It always returns a list.
func (a *commands) measured(ctx context.Context, sessions *sandbox.Engine, list []sandbox.Cache) []cacheJSON {
	rows := []cacheJSON{}
	if len(list) == 0 {
		return rows
	}
	stored, err := sessions.Stored(ctx)
	if err != nil {
		a.notes.Add("the engine does not tell how large the caches are: " + err.Error())
	}
	at := map[string]engine.Stored{}
	for _, s := range stored {
		if s.Kind == engine.StoredCache {
			at[s.Name] = s
		}
	}
	for _, c := range list {
		row := cacheJSON{Name: c.Name, UID: c.UID, Created: c.Created, Used: c.Used}
		if s, ok := at[c.Name]; ok {
			row.Bytes, row.InUse = known(s.Bytes), s.InUse
		}
		rows = append(rows, row)
	}
	return rows
}

// known is a size, nil if it is not known.
func known(bytes int64) *int64 {
	if bytes < 0 {
		return nil
	}
	return &bytes
}

func sizeText(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return units.HumanSize(float64(*bytes))
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (a *commands) removeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm [flags] NAME...", Short: "Remove caches, and print their names",
		Example:           "  sandboxbash cache rm pip npm",
		Args:              flags.Args(1, -1, "names of caches"),
		ValidArgsFunction: a.complete,
	}
	flags.Add(cmd, "quiet")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, names []string) error {
		return core.Each(a.streams.Listing(a.cfg.Quiet), names, func(name string) (string, error) {
			return name, inUse(name, sessions.RemoveCache(ctx, name))
		})
	})
	return cmd
}

// inUse words the error for a cache that a session has.
func inUse(name string, err error) error {
	if !errors.Is(err, engine.ErrConflict) {
		return err
	}
	return exit.Misuse("stop the sessions that have it: `sandboxbash session show` lists the mounts of a session", "cache %s is in use by a session", name)
}

func (a *commands) complete(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.connection.Completes(cmd, args, word, func(ctx context.Context, sessions *sandbox.Engine) (names []string) {
		list, err := sessions.Caches(ctx)
		if err != nil {
			return nil
		}
		for _, c := range list {
			names = append(names, c.Name+"\tused "+stdio.Age(c.Used, time.Now())+" ago")
		}
		return names
	})
}

func (a *commands) pruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune [flags]", Short: "Remove caches that no session has started with for long",
		Long: `Remove caches that no session has started with for --unused-for, and print their names.
Those that a session has stay.`,
		Example: "  sandboxbash cache prune\n  sandboxbash cache prune --unused-for 7d",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "cache.unused-for", "quiet")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		list, err := sessions.Caches(ctx)
		if err != nil {
			return err
		}
		before := time.Now().Add(-a.cfg.Cache.UnusedFor)
		var names []string
		for _, c := range list {
			if !c.Used.After(before) {
				names = append(names, c.Name)
			}
		}
		out := a.streams.Listing(a.cfg.Quiet)
		if out == nil {
			out = io.Discard
		}
		var errs []error
		for _, name := range names {
			err := sessions.RemoveCache(ctx, name)
			switch {
			case err == nil:
				_, err = fmt.Fprintln(out, name)
			case errors.Is(err, engine.ErrConflict), errors.Is(err, sandbox.ErrUnknownCache): // in use, or removed meanwhile
				err = nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return cmd
}
