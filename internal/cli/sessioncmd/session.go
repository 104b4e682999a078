// Package sessioncmd is the command session: sessions started, used, compared with this machine
// and stopped.
package sessioncmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Command is the command session.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}
	start := &starter{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, artifacts: p.Artifacts, connection: p.Connection}
	in := &runs{cfg: p.Cfg, connection: p.Connection, runner: runcmd.New(p)}
	f := &files{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, connection: p.Connection}
	c := flags.Family("session", "Start, use and stop sessions that outlive this process",
		`  id=$(sandboxbash session start --workspace copy:.)
  sandboxbash session exec $id 'make test'
  sandboxbash session ls
  sandboxbash session stop $id`,
		start.command(), a.listCommand(), a.showCommand(), in.execCommand(), in.attachCommand(), a.psCommand(),
		f.pushCommand(), f.pullCommand(), f.diffCommand(), a.stopCommand(), a.reapCommand())
	c.Long = `A session is one container. It runs until it is stopped, or until it has been idle for
--idle. After that its workspace is kept for a day (keep.for), unless it is a bind or has
a --disk: ls lists it, diff and pull read it, stop removes it.

An ID may be shortened to a unique start. An unknown ID is bad input: exit status 2.`
	c.GroupID = flags.GroupRun
	return c
}

// commands list, describe and end sessions.
type commands struct {
	streams    *stdio.Streams
	env        *core.Environment // says where the holders of terminals are
	cfg        *core.Configuration
	notes      *core.Notes
	connection *core.Connection
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List all sessions on the engine",
		Example: "  sandboxbash session ls\n  sandboxbash session ls --json | jq -r '.[].id'",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		list, err := sessions.List(ctx)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			if list == nil {
				list = []sandbox.Info{}
			}
			return stdio.PrintJSON(a.streams.Stdout, list)
		}
		return a.streams.Table("ID\tSTATUS\tAGE\tIMAGE\tPROFILE\tNETWORK\tWORKSPACE", func(w io.Writer) {
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
					s.ID, s.Status, stdio.Age(s.Created, time.Now()), a.streams.Safe(s.Image), s.Profile, s.Network, a.streams.Name(core.WorkspaceText(s.Workspace)))
			}
		})
	})
	return cmd
}

func (a *commands) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] ID", Short: "Describe a session",
		Example:           "  sandboxbash session show 0199\n  sandboxbash session show --json 0199",
		Args:              flags.Args(1, 1, "the id of a session"),
		ValidArgsFunction: a.connection.CompleteSessions,
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.notes.OneObject(a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		s, err := sessions.Show(ctx, args[0])
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, s)
		}
		return a.describe(s)
	}))
	return cmd
}

func (a *commands) describe(s sandbox.Info) error {
	size := func(bytes int64) string {
		if bytes == 0 {
			return "no limit"
		}
		return units.BytesSize(float64(bytes)) + ", in memory"
	}
	return a.streams.Fields([][2]string{
		{"id", s.ID},
		{"status", string(s.Status)},
		{"created", s.Created.Local().Format(time.RFC3339) + " (" + stdio.Age(s.Created, time.Now()) + " ago)"},
		{"image", s.Image + " (" + s.ImageID + ")"},
		{"profile", string(s.Profile)},
		{"user", fmt.Sprintf("%d:%d", s.User.UID, s.User.GID)},
		{"network", string(s.Network)},
		{"workspace", core.WorkspaceText(s.Workspace) + " at " + s.Workspace.Target},
		{"memory", units.BytesSize(float64(s.Limits.Memory))},
		{"cpus", fmt.Sprint(s.Limits.CPUs)},
		{"pids", fmt.Sprint(s.Limits.Pids)},
		{"disk", size(s.Limits.Disk)},
		{"home", size(s.Limits.Home)},
		{"tmp", size(s.Limits.Tmp)},
		{"idle", s.LeaseText},
		{"owner", s.Owner},
		{"container", s.Container},
		{"kept", keptText(s.Kept)},
	})
}

func (a *commands) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ps [flags] ID", Short: "List the processes that commands have left in a session",
		Example:           "  sandboxbash session ps 0199",
		Args:              flags.Args(1, 1, "the id of a session"),
		ValidArgsFunction: a.connection.CompleteSessions,
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		s, err := a.connection.Open(ctx, sessions, args[0])
		if err != nil {
			return err
		}
		list, err := s.Processes(ctx)
		if err != nil {
			return err
		}
		for i := range list {
			list[i].Command = a.streams.Scrub(list[i].Command)
		}
		if a.cfg.JSON {
			if list == nil {
				list = []sandbox.Process{}
			}
			return stdio.PrintJSON(a.streams.Stdout, list)
		}
		return a.streams.Table("PID\tPPID\tPGID\tSTATE\tCPU\tRSS\tCOMMAND", func(w io.Writer) {
			for _, p := range list {
				fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%v\t%s\t%s\n", p.PID, p.Parent, p.Group, a.streams.Safe(p.State),
					p.CPU, units.BytesSize(float64(p.Resident)), strings.TrimSpace(a.streams.Name(p.Command)))
			}
		})
	})
	return cmd
}

func (a *commands) stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop ID...", Aliases: []string{"rm"}, Short: "Stop sessions, and remove their containers and workspaces",
		Long: `Stop sessions, and remove their containers and workspaces at once. For a session that has
ended by itself, remove the workspace that is kept of it.`,
		Example:           "  sandboxbash session stop 0199\n  sandboxbash session ls --json | jq -r '.[].id' |\n    xargs sandboxbash session stop",
		Args:              flags.Args(1, -1, "ids of sessions"),
		ValidArgsFunction: a.connection.CompleteSessions,
	}
	flags.Add(cmd, "quiet")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		return core.Each(a.streams.Listing(a.cfg.Quiet), args, func(id string) (string, error) {
			holder.EndAll(ctx, a.env, sessions, id)
			info, err := sessions.Stop(ctx, id)
			return info.ID, err
		})
	})
	return cmd
}

func (a *commands) reapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reap", Short: "Remove leftovers of sessions whose owner is gone",
		Long: `Remove leftovers of sessions: containers that have ended, containers that were never
used and whose owner is gone, and workspaces without a container. Prints their ids.
The workspace of a session that has ended by itself is first kept for keep.for, within
the bounds of keep.count and keep.disk. Sockets of terminals whose holder has died are
removed too. Every command that starts a session does the same first.`,
		Example: "  sandboxbash session reap",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		if dir, err := holder.Dir(a.env); err == nil {
			if err := holder.Prune(ctx, dir, a.notes.Add); err != nil {
				return err
			}
		}
		reaped, err := sessions.Reap(ctx)
		for _, id := range reaped {
			fmt.Fprintln(a.streams.Stdout, id)
		}
		return err
	})
	return cmd
}

// keptText is what show says of a kept workspace.
func keptText(k *sandbox.Kept) string {
	if k == nil {
		return ""
	}
	return fmt.Sprintf("%s, until %s; the session has ended: %s", core.KeptSize(k), k.Until.Local().Format(time.RFC3339), k.Cause)
}
