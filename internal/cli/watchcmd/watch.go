// Package watchcmd is the command watch: sessions in a terminal, or as lines; and what `serve web` shows.
package watchcmd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/internal/watch"
	"github.com/sandboxbash/sandboxbash/internal/watch/tui"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// command is the command watch.
type command struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	notes      *core.Notes
	connection *core.Connection
	source     func() (*Source, error)

	control, plain bool // flags
}

// Command is the command watch.
func Command(p *core.Parts) *cobra.Command {
	c := &command{
		streams: p.Streams, cfg: p.Cfg, notes: p.Notes, connection: p.Connection,
		source: func() (*Source, error) { return NewSource(p) },
	}
	cmd := &cobra.Command{
		Use: "watch [flags] [SESSION]", Short: "Watch sessions: what runs, its output, terminals, network, changes",
		Long: `Watch the sessions of this machine while agents use them: what runs and ran, its output
as it comes, terminals as they look, jobs, connections, and what was changed. It reads
the journals, starts nothing in a session, and changes nothing. ? shows the keys; q
quits, and the sessions go on.

With --control, keys can also attach to a session, stop it, allow it a host and apply
its changes. Each asks first.

If standard output is not a terminal, or with --plain, each event is a line, from now on
until Ctrl-C; with --json, an object.`,
		Example: "  sandboxbash watch\n  sandboxbash watch --control web\n  sandboxbash watch --plain | grep -v 'exit 0'\n  sandboxbash watch --json web | jq -r 'select(.k==\"command\").text'",
		Args:    flags.Args(0, 1, "one session, or none for all"), ValidArgsFunction: p.Connection.CompleteSession,
	}
	cmd.GroupID = flags.GroupOutput
	flags.Add(cmd, "json")
	cmd.Flags().BoolVar(&c.control, "control", false, "let keys attach, stop, allow and apply")
	cmd.Flags().BoolVar(&c.plain, "plain", false, "print a line for each event, also on a terminal")
	cmd.RunE = p.Cfg.Does(func(ctx context.Context, args []string) error { return c.run(ctx, flags.Arg(args, 0)) })
	return cmd
}

func (c *command) run(ctx context.Context, ref string) error {
	lines := c.plain || c.cfg.JSON || !stdio.IsTerminal(c.streams.RawStdout) || !stdio.IsTerminal(c.streams.Stdin)
	if lines && c.control {
		return exit.Misuse("leave out --control, --plain and --json, and start it on a terminal", "--control needs a terminal with keys, and this call prints lines")
	}
	source, err := c.source()
	if err != nil {
		return err
	}
	session, err := c.find(ctx, source, ref)
	if err != nil {
		return errors.Join(err, source.Close())
	}
	if lines {
		return errors.Join(c.lines(ctx, source, session), source.Close())
	}
	return errors.Join(c.screen(ctx, source, session), source.Close())
}

// find returns the id of the session that is meant; "" for all.
func (c *command) find(ctx context.Context, source *Source, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	list, err := source.dir.Sessions()
	if err != nil {
		return "", err
	}
	var ids []string
	for _, s := range slices.Backward(list) {
		if s.Name == ref { // the one that was active last
			return s.ID, nil
		}
		ids = append(ids, s.ID)
	}
	return c.connection.Stored(ctx, ids, ref)
}

// screen shows sessions on this terminal.
func (c *command) screen(ctx context.Context, source *Source, session string) error {
	scr, err := tcell.NewScreen()
	if err != nil {
		return exit.Misuse("set TERM to a type that this system knows, as xterm-256color, or print lines with --plain", "this terminal cannot be used: %v", err)
	}
	c.notes.Restart() // they would be in the picture
	c.streams.AtExit(scr.Fini)
	o := tui.Options{Hub: source.Hub, Screen: scr, Ask: source.actions, Session: session, Words: exit.Words}
	if c.control {
		o.Control, o.Attach = source.Control(), attach(ctx)
	}
	err = source.Run(ctx, func(ctx context.Context) error { return tui.Run(ctx, o) })
	if ctx.Err() != nil {
		return exit.StatusError(exit.Cancelled)
	}
	return err
}

// attach runs the command that attaches, on this terminal.
func attach(ctx context.Context) func(session, terminal string) error {
	return func(session, terminal string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		args := []string{"session", "attach", session}
		if terminal != "" {
			args = []string{"pty", "attach", terminal}
		}
		cmd := exec.CommandContext(context.WithoutCancel(ctx), self, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			if _, ended := errors.AsType[*exec.ExitError](err); ended {
				return nil // the status of the shell
			}
			return err
		}
		return nil
	}
}

// Source is what sessions are watched by: the journals, and the engine for what they do not say.
type Source struct {
	Hub *watch.Hub

	dir     *journal.Dir
	actions actions
}

// NewSource returns a Source. The caller must call Close.
func NewSource(p *core.Parts) (*Source, error) {
	path := p.Cfg.JournalDir()
	if path == "" {
		return nil, exit.Misuse("set journal.dir to a directory of yours", "there is no directory for journals, which is what is watched")
	}
	if !p.Cfg.Journal.Enabled {
		p.Notes.Add("journal.enabled is false: what sessions do from now on is not recorded, and cannot be watched")
	}
	if err := p.Secrets.Ready(); err != nil {
		return nil, err
	}
	s := &Source{dir: journal.Open(path), actions: newActions(p)}
	s.Hub = watch.New(watch.Options{
		Dir: s.dir, Secrets: p.Secrets.Known(), Known: s.known, Gone: sandbox.ProcessGone, Terminals: terminals{p.Env},
	})
	return s, nil
}

// Close lets go of the engine.
func (s *Source) Close() error { return s.actions.Close(context.Background()) }

// Ask answers what the journals do not say.
func (s *Source) Ask() watch.Asker { return s.actions }

// Control does what a person asks for.
func (s *Source) Control() watch.Controller { return s.actions }

// Run follows the journals while show runs.
func (s *Source) Run(ctx context.Context, show func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	followed := make(chan error, 1)
	go func() {
		defer cancel()
		followed <- s.Hub.Run(ctx)
	}()
	select {
	case <-s.Hub.Ready():
	case <-ctx.Done():
	}
	err := show(ctx)
	cancel()
	if failed := <-followed; failed != nil {
		return failed
	}
	return err
}

// known returns the sessions that the engine has.
func (s *Source) known(ctx context.Context) ([]watch.Known, error) {
	owner, err := s.actions.Engine(ctx)
	if err != nil {
		return nil, errors.New(exit.Words(err))
	}
	list, err := owner.List(ctx)
	if err != nil {
		return nil, errors.New(exit.Words(err))
	}
	var known []watch.Known
	for _, i := range list {
		k := watch.Known{State: string(i.Status), Session: journal.Session{
			ID: i.ID, Name: i.Name, Image: i.Image, Profile: string(i.Profile), Network: string(i.Network), Workspace: core.WorkspaceText(i.Workspace), Created: i.Created,
		}}
		if i.Kept != nil {
			k.State = "kept"
		}
		known = append(known, k)
	}
	return known, nil
}
