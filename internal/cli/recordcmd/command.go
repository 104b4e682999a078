// Package recordcmd is what shows what was done in a session, from its journal: the commands session log, session
// replay and session export. They ask no engine, so that they also work for sessions that have ended.
package recordcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/auditcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// commands show journals.
type commands struct {
	streams *stdio.Streams
	cfg     *core.Configuration
	notes   *core.Notes
	secrets *core.Secrets
}

// Commands are session log, session replay and session export.
func Commands(p *core.Parts) []*cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets}
	return []*cobra.Command{a.logCommand(), a.replayCommand(), a.exportCommand()}
}

const which = `
Without SESSION it is the one that was used last. A session is named by its name, its id or a
part of the id, also after it has ended, as long as its journal is kept (journal.retention).`

func (a *commands) logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "log [flags] [SESSION]", SuggestFor: []string{"history"}, Short: "Print what was done in a session, with the output",
		Long: `Print what was done in a session as a shell session: commands, their output and how they
ended, copies, connections and refusals, by every process that used it. It comes from the
session's journal, with secrets masked. What terminals show is there with
journal.terminals: true. With --json, print the records, one per line.
` + which,
		Example: "  sandboxbash session log\n  sandboxbash session log -n 5 web\n  sandboxbash session log --since 2h --json web | jq -r .command",
		Args:    flags.Args(0, 1, "one session"),
	}
	flags.Add(cmd, "session.id", "audit.since", "journal.last", "json")
	cmd.Flags().Lookup("since").Usage = "show what has begun from this time on: a time such as 2026-01-31T15:04:05Z, or an age such as 2h"
	cmd.RunE = a.cfg.Does(func(_ context.Context, args []string) error { return ended(a.log(args)) })
	return cmd
}

// ended is an error of output: without a reader the program ends quietly.
func ended(err error) error {
	if stdio.IsBrokenPipe(err) {
		return exit.StatusError(exit.BrokenPipe)
	}
	return err
}

func (a *commands) log(args []string) error {
	since, err := auditcmd.SinceWhen(a.cfg.Audit.Since, time.Now())
	if err != nil {
		return err
	}
	rec, err := a.load(args)
	if err != nil {
		return err
	}
	rec.keep(since, a.cfg.Journal.Last)
	if a.cfg.JSON {
		return printJSON(a.streams.Lines(a.streams.RawStdout), rec)
	}
	p := &printer{streams: a.streams, secrets: a.secrets.Known(), out: bufio.NewWriter(a.streams.Stdout)}
	return p.print(rec)
}

func (a *commands) replayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay [flags] [SESSION|FILE]", Short: "Show again what a session has shown, with its times",
		Long: `Show again what a session has shown: commands, and their output with its times. FILE is a
recording in the format asciicast, version 2 or 3, and is what a name with a slash or a dot means. What
would do more to this terminal than draw is left out. Ctrl-C ends it.
` + which,
		Example: "  sandboxbash session replay web\n  sandboxbash session replay --speed 4 --idle-limit 1s web\n  sandboxbash session replay ./web.cast",
		Args:    flags.Args(0, 1, "one session or file"),
	}
	flags.Add(cmd, "session.id", "journal.speed", "journal.idle-limit")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, args []string) error { return ended(a.replay(ctx, args)) })
	return cmd
}

func (a *commands) replay(ctx context.Context, args []string) error {
	var c *cast
	if len(args) == 1 && strings.ContainsAny(args[0], "./") {
		f, err := os.Open(args[0])
		if err != nil {
			return exit.Misuse("give the name of a session, or a file that is there", "%v", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		if c, err = readCast(f); err != nil {
			return exit.Misuse("give a file of `sandboxbash session export --format asciicast-v3`", "%s: %v", args[0], err)
		}
	} else {
		rec, err := a.load(args)
		if err != nil {
			return err
		}
		c = newCast(rec, a.secrets.Known())
	}
	if cols := stdio.Width(a.streams.RawStdout); stdio.IsTerminal(a.streams.RawStdout) && cols < c.cols {
		a.notes.Add(fmt.Sprintf("it was recorded on a terminal with %d columns, and this one has %d", c.cols, cols))
	}
	return c.play(ctx, a.streams.Stdout, a.cfg.Journal.Speed, a.cfg.Journal.IdleLimit)
}

func (a *commands) exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "export [flags] [SESSION]", Short: "Write what was done in a session to a file, for others",
		Long: `Write what was done in a session to a file. The formats:

  html          one page that needs no server and no other file; it loads nothing
  markdown      for a pull request: a summary, and each command with its output to be opened
  asciicast-v2  for the players of asciinema
  asciicast-v3  the same, in the later form

Secrets stay masked. Read the file before you give it to others: what is secret without
being known as a secret is in it.
` + which,
		Example: "  sandboxbash session export -o web.html web\n  sandboxbash session export --format markdown web | gh pr comment --body-file -\n  sandboxbash session export --format asciicast-v3 -o web.cast web",
		Args:    flags.Args(0, 1, "one session"),
	}
	flags.Add(cmd, "session.id", "journal.to", "journal.idle-limit", "audit.since", "journal.last")
	cmd.Flags().Lookup("since").Usage = "write what has begun from this time on: a time such as 2026-01-31T15:04:05Z, or an age such as 2h"
	cmd.Flags().Lookup("last").Usage = "write the last N commands only (0: all)"
	cmd.Flags().Lookup("idle-limit").Usage = "have players shorten pauses that are longer (0s: never)"
	format := cmd.Flags().String("format", formats[0], "`FORMAT`: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = a.cfg.Does(func(_ context.Context, args []string) error { return ended(a.export(*format, args)) })
	return cmd
}

// formats of session export; the first is the default.
var formats = []string{"html", "markdown", "asciicast-v2", "asciicast-v3"}

func (a *commands) export(format string, args []string) error {
	if !slices.Contains(formats, format) {
		return exit.Misuse("give one of "+strings.Join(formats, ", "), "--format: %q is not a format", format)
	}
	since, err := auditcmd.SinceWhen(a.cfg.Audit.Since, time.Now())
	if err != nil {
		return err
	}
	rec, err := a.load(args)
	if err != nil {
		return err
	}
	rec.keep(since, a.cfg.Journal.Last)
	write := func(w io.Writer) error {
		switch secrets := a.secrets.Known(); format {
		case "markdown":
			return writeMarkdown(w, rec, secrets)
		case "asciicast-v2", "asciicast-v3":
			c := newCast(rec, secrets)
			c.idle = a.cfg.Journal.IdleLimit
			version := 3
			if format == "asciicast-v2" {
				version = 2
			}
			return c.write(w, version)
		default:
			return writeHTML(w, rec, secrets)
		}
	}
	if a.cfg.Journal.To == "" || a.cfg.Journal.To == "-" {
		return write(a.streams.Stdout)
	}
	return writeFile(a.cfg.Journal.To, write)
}

// writeFile replaces a file when all of it is written. Only this user can read it.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".sandboxbash-*")
	if err != nil {
		return exit.Misuse("name a file in a directory that is there", "--output: %v", err)
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// load reads the journal of the session that the arguments name.
func (a *commands) load(args []string) (*recording, error) {
	dir := a.cfg.JournalDir()
	if dir == "" {
		return nil, exit.Misuse("set journal.dir", "there is no directory for journals")
	}
	ref := a.cfg.Session.ID
	if len(args) == 1 {
		if ref = args[0]; ref == "" {
			return nil, core.ErrNoSessionID
		}
	}
	d := journal.Open(dir)
	all, err := d.Sessions()
	if err != nil {
		return nil, err
	}
	s, err := a.find(all, ref)
	if err != nil {
		return nil, err
	}
	rec, err := load(d, s)
	if errors.Is(err, fs.ErrNotExist) {
		err = exit.Misuse("", "the journal of session %s was removed", s.ID)
	}
	return rec, err
}

// find returns the journal of the session with an id, the last one with a name, or the one with a part of the id; without a
// reference the one with the last record.
func (a *commands) find(all []journal.Session, ref string) (journal.Session, error) {
	todo := "journals are kept from a session's first command on, unless journal.enabled is false"
	if len(all) == 0 {
		return journal.Session{}, exit.Misuse(todo, "there is no journal in %s", a.cfg.JournalDir())
	}
	if ref == "" {
		return all[len(all)-1], nil
	}
	var found, parts []journal.Session
	for _, s := range all {
		switch {
		case s.ID == ref:
			return s, nil
		case s.Name == ref || s.Name == "" && sandbox.MadeUpName(s.ID) == ref:
			found = append(found, s)
		case strings.Contains(s.ID, ref):
			parts = append(parts, s)
		}
	}
	switch {
	case len(found) > 0:
		if len(found) > 1 {
			a.notes.Add(fmt.Sprintf("%d sessions were named %s; this is the last one: name another by its id", len(found), ref))
		}
		return found[len(found)-1], nil
	case len(parts) == 1:
		return parts[0], nil
	case len(parts) > 1:
		return journal.Session{}, exit.Misuse("give more of the id", "%d sessions match %q", len(parts), ref)
	}
	return journal.Session{}, exit.Misuse(todo, "there is no journal of a session %q", ref)
}
