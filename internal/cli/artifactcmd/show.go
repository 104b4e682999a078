package artifactcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sink"
)

// detailJSON is an artifact as show --json prints it.
type detailJSON struct {
	infoJSON

	SessionName string `json:"sessionName,omitempty"` // "": the engine does not have the session any more
	Content     string `json:"content"`               // output, or original: what a minimizer has shortened
	Lines       int64  `json:"lines"`
	Path        string `json:"path"`
}

func (a *commands) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] [ID]", Short: "Describe an artifact, by default the last one",
		Example: "  sandboxbash artifact show\n  sandboxbash artifact show -s web --json 3 | jq -r .path",
		Args:    flags.Args(0, 1, "at most one id"),
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = a.notes.OneObject(a.asks(func(ctx context.Context, store *sink.Store, args []string) error {
		info, err := a.one(ctx, store, flags.Arg(args, 0))
		if err != nil {
			return err
		}
		return a.show(ctx, store, info)
	}))
	return cmd
}

func (a *commands) show(ctx context.Context, store *sink.Store, info sink.Info) error {
	art, err := store.Open(info.Session, info.ID)
	if err != nil {
		return err
	}
	defer art.Close() //nolint:errcheck // only read
	lines, err := art.Lines()
	if err != nil {
		return err
	}
	d := detailJSON{infoJSON: infoJSON(art.Info), SessionName: a.nameOf(ctx, info.Session), Content: "output", Lines: lines, Path: store.Path(art.Info)}
	if art.Original() {
		d.Content = "original"
	}
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, d)
	}
	session := d.Session
	if d.SessionName != "" {
		session += " (" + d.SessionName + ")"
	}
	return a.streams.Fields([][2]string{
		{"id", d.ID},
		{"session", session},
		{"state", string(d.State)},
		{"cause", d.Cause},
		{"content", d.Content},
		{"written", d.Written.Local().Format(time.RFC3339)},
		{"bytes", fmt.Sprint(d.Bytes)},
		{"lines", fmt.Sprint(d.Lines)},
		{"path", d.Path},
	})
}

// nameOf is the name of a session, "" if the engine does not know it or does not answer: artifacts outlive
// sessions, and are read without an engine.
func (a *commands) nameOf(ctx context.Context, session string) string {
	ctx, cancel := context.WithTimeout(ctx, core.CompleteTime)
	defer cancel()
	if info, err := a.connection.Lookup(ctx, session); err == nil && info.ID == session {
		return info.Name
	}
	return ""
}
