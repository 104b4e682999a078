// Package artifactcmd is the command artifact: the full outputs of commands, listed, described, read,
// searched and removed.
package artifactcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sink"
)

// commands are the artifact commands.
type commands struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	secrets    *core.Secrets
	notes      *core.Notes
	artifacts  *core.Artifacts
	connection *core.Connection // for references of sessions
}

// Command is the command artifact.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, secrets: p.Secrets, notes: p.Notes, artifacts: p.Artifacts, connection: p.Connection}
	c := flags.Family("artifact", "Read the full output of commands", `  sandboxbash artifact ls
  sandboxbash artifact cat -s web 3
  sandboxbash artifact cat --lines 1-20 3
  sandboxbash artifact grep 'error|panic'`,
		a.listCommand(), a.showCommand(), a.catCommand(), a.grepCommand(), a.removeCommand(), a.gcCommand())
	c.Long = `When a command's output is longer than its result shows, the full output is kept on
this machine as an artifact, with secrets masked. Ids are numbers within a session;
if several sessions have one, it is that of --session, else of the session of this
directory, else of the only one.`
	c.GroupID = flags.GroupOutput
	for _, child := range c.Commands() {
		if child.Flags().Lookup("session") != nil {
			_ = child.RegisterFlagCompletionFunc("session", a.completeStored)
			child.ValidArgsFunction = a.completeIDs
		}
	}
	return c
}

// completeStored offers the sessions that have artifacts.
func (a *commands) completeStored(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if err := a.cfg.Load(cmd); err != nil {
		return nil, directive
	}
	store, err := a.artifacts.Store()
	if err != nil || store == nil {
		return nil, directive
	}
	list, err := store.List("")
	if err != nil {
		return nil, directive
	}
	var names []string
	for _, i := range list {
		if strings.HasPrefix(i.Session, word) && !slices.Contains(names, i.Session) {
			names = append(names, i.Session)
		}
	}
	return names, directive
}

// completeIDs offers the ids of artifacts: to grep behind its pattern, to rm any number, to others one.
func (a *commands) completeIDs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	before, most := 0, 1
	switch cmd.Name() {
	case "ls":
		most = 0
	case "grep":
		before, most = 1, 2
	case "rm":
		most = len(args) + 1
	}
	if len(args) < before || len(args) >= most || a.cfg.Load(cmd) != nil {
		return nil, directive
	}
	store, err := a.artifacts.Store()
	if err != nil || store == nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), core.CompleteTime)
	defer cancel()
	list, err := a.inScope(ctx, store)
	if err != nil {
		return nil, directive
	}
	return core.CompleteArtifacts(list, args, word), directive
}

// asks is a command over the store.
func (a *commands) asks(do func(ctx context.Context, store *sink.Store, args []string) error) func(*cobra.Command, []string) error {
	return a.cfg.Does(func(ctx context.Context, args []string) error {
		store, err := a.artifacts.Store()
		if err != nil {
			return err
		}
		if store == nil {
			return exit.Misuse("set artifacts.dir, or HOME", "there is no directory for artifacts: this user has no home directory")
		}
		return do(ctx, store, args)
	})
}

// inScope lists the artifacts of the session that is named, or all. Sessions that have ended are known by
// their ids and the names made up from them; the engine knows the others.
func (a *commands) inScope(ctx context.Context, store *sink.Store) ([]sink.Info, error) {
	list, err := store.List("")
	if err != nil {
		return nil, err
	}
	ref := a.cfg.Session.ID
	if ref == "" {
		return list, nil
	}
	var ids []string
	for _, i := range list {
		ids = append(ids, i.Session)
	}
	session, err := a.connection.Stored(ctx, ids, ref)
	if _, wrong := errors.AsType[*exit.UsageError](err); wrong {
		return nil, err
	}
	if err != nil { // neither the store nor the engine knows it
		return nil, fmt.Errorf("session %q has none: %w", ref, sink.ErrNotFound)
	}
	list = slices.DeleteFunc(list, func(i sink.Info) bool { return i.Session != session })
	if len(list) == 0 {
		return nil, fmt.Errorf("session %q has none: %w", ref, sink.ErrNotFound)
	}
	return list, nil
}

// one finds the artifact of an id among those in scope; "" is the one written last. Of several sessions
// with such an artifact, the default session is meant.
func (a *commands) one(ctx context.Context, store *sink.Store, id string) (sink.Info, error) {
	list, err := a.inScope(ctx, store)
	if err != nil {
		return sink.Info{}, err
	}
	if id == "" {
		if len(list) == 0 {
			return sink.Info{}, fmt.Errorf("there are none: %w", sink.ErrNotFound)
		}
		return slices.MaxFunc(list, func(x, y sink.Info) int { return x.Written.Compare(y.Written) }), nil
	}
	list = slices.DeleteFunc(list, func(i sink.Info) bool { return i.ID != id })
	switch len(list) {
	case 0:
		return sink.Info{}, fmt.Errorf("%q: %w", id, sink.ErrNotFound)
	case 1:
		return list[0], nil
	}
	if here, err := a.connection.Lookup(ctx, ""); err == nil {
		if at := slices.IndexFunc(list, func(i sink.Info) bool { return i.Session == here.ID }); at >= 0 {
			return list[at], nil
		}
	}
	return sink.Info{}, exit.Misuse("say which with --session; `sandboxbash artifact ls` lists them", "%d sessions have an artifact %s", len(list), id)
}

// infoJSON is a stored artifact as --json prints it.
type infoJSON struct {
	Session string     `json:"session"`
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Bytes   int64      `json:"bytes"`
	Written time.Time  `json:"written"`
	State   sink.State `json:"state"`
	Cause   string     `json:"cause,omitempty"`
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List artifacts",
		Example: "  sandboxbash artifact ls\n  sandboxbash artifact ls -s web --json",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = a.asks(func(ctx context.Context, store *sink.Store, _ []string) error {
		list, err := a.inScope(ctx, store)
		if err != nil && !errors.Is(err, sink.ErrNotFound) {
			return err
		}
		if a.cfg.JSON {
			out := make([]infoJSON, 0, len(list))
			for _, i := range list {
				out = append(out, infoJSON(i))
			}
			return stdio.PrintJSON(a.streams.Stdout, out)
		}
		return a.table(list)
	})
	return cmd
}

func (a *commands) table(list []sink.Info) error {
	return a.streams.Table("SESSION\tID\tSIZE\tAGE\tSTATE", func(w io.Writer) {
		for _, i := range list {
			state := string(i.State)
			if i.Cause != "" {
				state += ": " + a.streams.Safe(i.Cause)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", i.Session, i.ID, sink.FormatBytes(i.Bytes), stdio.Age(i.Written, time.Now()), state)
		}
	})
}

func (a *commands) catCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cat [flags] [ID]", Short: "Print an artifact, by default the last one",
		Long: `Print an artifact, by default the last one: byte by byte into a pipe or file, made safe
on a terminal. If its command is still running, print the output so far.`,
		Example: "  sandboxbash artifact cat >output.log\n  sandboxbash artifact cat -s web --lines 100-200 3\n  sandboxbash artifact cat --bytes 0-65536 3",
		Args:    flags.Args(0, 1, "at most one id"),
	}
	flags.Add(cmd, "session.id", "artifacts.bytes", "artifacts.lines")
	cmd.RunE = a.asks(func(ctx context.Context, store *sink.Store, args []string) error {
		return a.cat(ctx, store, flags.Arg(args, 0))
	})
	return cmd
}

func (a *commands) cat(ctx context.Context, store *sink.Store, id string) error {
	byBytes, byLines := a.cfg.Artifacts.Bytes, a.cfg.Artifacts.Lines
	if byBytes != "" && byLines != "" {
		return exit.Misuse("give one of them", "--bytes and --lines exclude each other")
	}
	from, to, err := parseRange(cmp.Or(byBytes, byLines, "-"))
	if err != nil {
		return err
	}
	info, err := a.one(ctx, store, id)
	if err != nil {
		return err
	}
	art, err := store.Open(info.Session, info.ID)
	if err != nil {
		return err
	}
	defer art.Close() //nolint:errcheck // only read
	w, done := a.readable()
	if byLines != "" {
		if to == 0 {
			return exit.Misuse("lines are counted from 1", "%q is not a range of lines", byLines)
		}
		err = art.CopyLines(w, max(from, 1), to)
	} else {
		err = art.CopyBytes(w, from, to)
	}
	return errors.Join(err, done())
}

// readable is standard output, made safe if it is a terminal.
func (a *commands) readable() (io.Writer, func() error) {
	if !stdio.IsTerminal(a.streams.Stdout) {
		return a.streams.Stdout, func() error { return nil }
	}
	safe := sink.NewSafeText(a.streams.Stdout, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible}, a.secrets.Known())
	return safe, safe.Close
}

// parseRange reads "A-B", "A-", "-B" or "-"; an end left out is -1.
func parseRange(text string) (from, to int64, err error) {
	wrong := exit.Misuse("write it as A-B, A- or -B", "%q is not a range", text)
	a, b, ok := strings.Cut(text, "-")
	if !ok {
		return 0, 0, wrong
	}
	to = -1
	if a != "" {
		if from, err = strconv.ParseInt(a, 10, 64); err != nil {
			return 0, 0, wrong
		}
	}
	if b != "" {
		if to, err = strconv.ParseInt(b, 10, 64); err != nil || to < from {
			return 0, 0, wrong
		}
	}
	return from, to, nil
}

func (a *commands) grepCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "grep [flags] PATTERN [ID]", Short: "Print the lines of artifacts that match a pattern",
		Long: `Print the lines that match a pattern (RE2), with their numbers, in one artifact, in
all artifacts of a session, or in all artifacts. Exit status 1 if no line matches.`,
		Example: "  sandboxbash artifact grep 'error|panic'\n  sandboxbash artifact grep -s web '(?i)fail' 3",
		Args:    flags.Args(1, 2, "a pattern and optionally an id"),
	}
	flags.Add(cmd, "session.id")
	cmd.RunE = a.asks(func(ctx context.Context, store *sink.Store, args []string) error {
		re, err := regexp.Compile(args[0])
		if err != nil {
			return exit.Misuse("patterns are RE2: https://pkg.go.dev/regexp/syntax", "%v", err)
		}
		list, err := a.inScope(ctx, store)
		if id := flags.Arg(args, 1); id != "" {
			var info sink.Info
			info, err = a.one(ctx, store, id)
			list = []sink.Info{info}
		}
		if err != nil {
			return err
		}
		return a.grep(store, re, list)
	})
	return cmd
}

func (a *commands) grep(store *sink.Store, re *regexp.Regexp, list []sink.Info) error {
	w, done := a.readable()
	found := false
	for _, info := range list {
		art, err := store.Open(info.Session, info.ID)
		if errors.Is(err, sink.ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		name := ""
		if len(list) > 1 {
			name = info.Session + "/" + info.ID + ":"
		}
		err = art.Grep(re, func(line int64, text []byte) error {
			found = true
			_, err := fmt.Fprintf(w, "%s%d:%s\n", name, line, text)
			return err
		})
		if err = errors.Join(err, art.Close()); err != nil {
			return err
		}
	}
	if err := done(); err != nil {
		return err
	}
	if !found {
		return exit.StatusError(exit.Findings)
	}
	return nil
}

func (a *commands) removeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm [flags] [ID...]", Short: "Remove artifacts; with --all, remove all (of --session, if given)",
		Example: "  sandboxbash artifact rm -s web 3\n  sandboxbash artifact rm -s web --all",
	}
	flags.Add(cmd, "session.id", "rm.all")
	cmd.RunE = a.asks(func(ctx context.Context, store *sink.Store, args []string) error {
		if a.cfg.All == (len(args) > 0) {
			return exit.Misuse("see `sandboxbash artifact rm --help`", "give artifact ids or --all, not both")
		}
		var list []sink.Info
		var errs []error
		if a.cfg.All {
			var err error
			if list, err = a.inScope(ctx, store); err != nil {
				return err
			}
		}
		for _, id := range args {
			info, err := a.one(ctx, store, id)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			list = append(list, info)
		}
		for _, info := range list {
			errs = append(errs, store.Remove(info.Session, info.ID))
		}
		return errors.Join(errs...)
	})
	return cmd
}

func (a *commands) gcCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "gc [flags]", Short: "Remove artifacts older than artifacts.retention, and print them",
		Example: "  sandboxbash artifact gc\n  SANDBOXBASH_ARTIFACTS_RETENTION=1d sandboxbash artifact gc",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	cmd.RunE = a.asks(func(_ context.Context, store *sink.Store, _ []string) error {
		removed, err := store.GC(time.Now())
		for _, info := range removed {
			if _, printErr := fmt.Fprintf(a.streams.Stdout, "%s/%s\n", info.Session, info.ID); printErr != nil {
				return printErr
			}
		}
		return err
	})
	return cmd
}
