package watchcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/ptycmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/sessioncmd"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/internal/watch"
)

// actions implement watch.Asker and watch.Controller.
type actions struct {
	*sessioncmd.Actions

	env   *core.Environment
	shell func(ctx context.Context, session string) (terminal string, err error)
}

func newActions(p *core.Parts) actions {
	return actions{sessioncmd.NewActions(p), p.Env, func(ctx context.Context, session string) (string, error) { return ptycmd.StartShell(ctx, p, session) }}
}

// Attach implements watch.Controller.
func (a actions) Attach(ctx context.Context, session string) (string, error) {
	if !holder.Keeps {
		return "", exit.Misuse("use `sandboxbash session attach` in a terminal", "this system keeps no terminals")
	}
	return a.shell(ctx, session)
}

// Type implements watch.Controller.
func (a actions) Type(ctx context.Context, terminal, text string, keys []string) error {
	dir, err := holder.Dir(a.env)
	if err != nil {
		return err
	}
	id, err := holder.Find(dir, terminal)
	if err != nil {
		return err
	}
	c, err := holder.Dial(ctx, dir, id)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // all was said
	typed := map[string]any{"terminal": id}
	if text != "" {
		typed["text"] = text
	} else {
		typed["keys"] = keys
	}
	return c.Call(ctx, holder.AskTime, "pty/write", typed, nil)
}

// terminals implement watch.Terminals: those that processes of this machine keep.
type terminals struct{ env holder.Environment }

// List implements watch.Terminals.
func (t terminals) List(ctx context.Context, session string) ([]watch.Terminal, error) {
	dir, err := holder.Dir(t.env)
	if err != nil {
		return nil, nil //nolint:nilerr // this system or user has none
	}
	rows, err := holder.List(ctx, dir)
	var list []watch.Terminal
	for _, r := range rows {
		if r.Session == session && r.State == "running" {
			list = append(list, watch.Terminal{ID: r.ID, Command: r.Command, Started: r.Started, Cols: r.Cols, Rows: r.Rows, Writable: true})
		}
	}
	return list, err
}

// Times of following a terminal.
const (
	seenTime  = 24 * time.Hour        // for one change of the screen; then it is asked for again
	seenPause = 33 * time.Millisecond // between two changes at least
)

// Follow implements watch.Terminals.
func (t terminals) Follow(ctx context.Context, id string, show func(watch.Terminal)) error {
	dir, err := holder.Dir(t.env)
	if err != nil {
		return err
	}
	c, err := holder.Dial(ctx, dir, id)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it was only looked at
	row, err := c.Describe(ctx)
	if err != nil {
		return err
	}
	seen := ""
	for {
		var next struct {
			Screen struct {
				Cols, Rows int
				Lines      []string
				Cursor     screen.Cursor
				Title      string
			}
			Digest   string
			Terminal *holder.Held
		}
		if err := c.Call(ctx, seenTime, "pty/next", map[string]any{"terminal": id, "seen": seen}, &next); err != nil {
			if e, ok := errors.AsType[*serve.Error](err); ok && e.Data.Kind == serve.KindMethod {
				return fmt.Errorf("its process is of an older version, which does not show screens: %w", err)
			}
			return err
		}
		seen = next.Digest
		s := next.Screen
		shown := watch.Terminal{
			ID: id, Command: row.Command, Started: row.Started, Cols: s.Cols, Rows: s.Rows, Lines: s.Lines, Cursor: s.Cursor, Title: s.Title, Writable: true,
		}
		if next.Terminal != nil {
			shown.End = ending(next.Terminal.AsRow(id))
		}
		show(shown)
		if next.Terminal != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(seenPause):
		}
	}
}

// ending says in words how a terminal has ended.
func ending(r holder.Row) string {
	if r.ExitCode != nil {
		return fmt.Sprintf("exit %d", *r.ExitCode)
	}
	return r.State + " " + r.Exit()
}
