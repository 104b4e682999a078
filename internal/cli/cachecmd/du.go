package cachecmd

import (
	"context"
	"fmt"
	"io"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// UsageCommand is the command du.
func UsageCommand(p *core.Parts) *cobra.Command {
	a := newCommands(p)
	cmd := &cobra.Command{
		Use: "du [flags]", Short: "Show how much room everything takes that is stored",
		Long: `Show how much room everything takes that sandboxbash has stored: on the engine, the
sessions that live, workspaces that are kept of others, caches, images that it has made
and what sessions share; on this machine, the artifacts. The engine reads all of its
volumes for that, which may take long. Layers that images share count for each.

Session stop, cache prune, image prune and artifact gc make room.`,
		Example: "  sandboxbash du\n  sandboxbash du --json",
		Args:    flags.Args(0, 0, "no arguments"),
		GroupID: flags.GroupSetup,
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		wait := a.cfg.Waiting("asking the engine for sizes")
		stored, err := sessions.Stored(ctx)
		wait.Done()
		if err != nil {
			return err
		}
		kept, err := a.storedArtifacts()
		if err != nil {
			return err
		}
		return a.printUsage(append(usageOf(ctx, sessions, stored), kept...))
	})
	return cmd
}

// usageRow is one thing that takes room.
type usageRow struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`         // of a session, a cache or an image; of artifacts, their session's id
	ID    string `json:"id,omitempty"` // of the session
	Bytes *int64 `json:"bytes"`        // null: the engine does not tell
	InUse bool   `json:"inUse"`
}

// kindArtifact is what du calls artifacts; the other kinds are those of package engine.
const kindArtifact = "artifact"

// usageOf gives sessions their names.
func usageOf(ctx context.Context, sessions *sandbox.Engine, stored []engine.Stored) []usageRow {
	names := map[string]string{}
	if list, err := sessions.List(ctx); err == nil { // else they have the names that are made up
		for _, s := range list {
			names[s.ID] = s.Name
		}
	}
	var rows []usageRow
	for _, s := range stored {
		row := usageRow{Kind: string(s.Kind), Name: s.Name, Bytes: known(s.Bytes), InUse: s.InUse}
		if s.Kind == engine.StoredSession || s.Kind == engine.StoredKept {
			row.ID = s.Name
			if row.Name = names[s.Name]; row.Name == "" {
				row.Name = sandbox.MadeUpName(s.Name)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// storedArtifacts returns a row for each session that has artifacts.
func (a *commands) storedArtifacts() ([]usageRow, error) {
	store, err := a.artifacts.Store()
	if err != nil || store == nil {
		return nil, err
	}
	list, err := store.List("")
	if err != nil {
		return nil, err
	}
	var rows []usageRow
	at := map[string]int{}
	for _, i := range list {
		n, there := at[i.Session]
		if !there {
			n, at[i.Session] = len(rows), len(rows)
			rows = append(rows, usageRow{Kind: kindArtifact, Name: sandbox.MadeUpName(i.Session), ID: i.Session, Bytes: new(int64)})
		}
		*rows[n].Bytes += i.Bytes
	}
	return rows, nil
}

func (a *commands) printUsage(rows []usageRow) error {
	if rows == nil {
		rows = []usageRow{}
	}
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, rows)
	}
	var total int64
	unknown := 0
	for _, r := range rows {
		if r.Bytes == nil {
			unknown++
		} else {
			total += *r.Bytes
		}
	}
	err := a.streams.Table("KIND\tNAME\tIN USE\tSIZE", func(w io.Writer) {
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Kind, a.streams.Name(r.Name), yesNo(r.InUse), sizeText(r.Bytes))
		}
		fmt.Fprintf(w, "total\t\t\t%s\n", units.HumanSize(float64(total)))
	})
	if unknown > 0 {
		a.notes.Add(fmt.Sprintf("the engine does not tell the size of %d of them: the total is without these", unknown))
	}
	return err
}
