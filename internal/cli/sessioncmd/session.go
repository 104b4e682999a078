// Package sessioncmd is the command session: sessions started, used, compared with this machine
// and stopped.
package sessioncmd

import (
	"context"
	"errors"
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

// commands are the session commands.
type commands struct{ *core.App }

// Command is the command session.
func Command(app *core.App) *cobra.Command {
	a := &commands{app}
	c := flags.Family("session", "Start, use and stop sessions that outlive this process",
		`  id=$(sandboxbash session start --workspace copy:.)
  sandboxbash session exec $id 'make test'
  sandboxbash session ls
  sandboxbash session stop $id`,
		a.startCommand(), a.listCommand(), a.showCommand(), a.execCommand(), a.attachCommand(), a.psCommand(),
		a.pushCommand(), a.pullCommand(), a.diffCommand(), a.stopCommand(), a.reapCommand())
	c.Long = `A session is one container. It runs until it is stopped, or until it has been idle for
--idle. After that its workspace is kept for a day (keep.for), unless it is a bind or has
a --disk: ls lists it, diff and pull read it, stop removes it.

An ID may be shortened to a unique start. An unknown ID is bad input: exit status 2.`
	c.GroupID = flags.GroupRun
	return c
}

func (a *commands) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start [flags]",
		Short: "Start a session and print its id",
		Example: `  sandboxbash session start
  sandboxbash session start --workspace bind:$PWD --idle 8h
  sandboxbash session start --image python:3.13 --profile dev --network bridge --json`,
		Args: flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, flags.Session...)
	flags.Add(cmd, "session.idle", "json", "quiet")
	cmd.RunE = a.Does(func(ctx context.Context, _ []string) error { return a.start(ctx) })
	return cmd
}

func (a *commands) start(ctx context.Context) error {
	spec, err := a.Spec()
	if err != nil {
		return err
	}
	spec.Lease, spec.Keep = a.Cfg.Session.Idle, a.KeepFor()
	if err := a.Secrets(); err != nil {
		return err
	}
	progress := a.Progress()
	sessions, err := a.Sessions(ctx, progress.Show, nil)
	if err != nil {
		return err
	}
	collected := a.Collect()
	s, err := sessions.Start(ctx, spec)
	collected()
	progress.Close()
	if err != nil {
		return err
	}
	a.StartNotes(s)
	info := s.Info()
	err = sessions.Close(ctx)
	if a.Cfg.JSON {
		return errors.Join(err, stdio.PrintJSON(a.Stdout, struct {
			sandbox.Info
			LeftOut []string `json:"leftOut,omitempty"`
			Notes   []string `json:"notes,omitempty"`
		}{info, s.LeftOut(), a.TakeNotes()}))
	}
	_, printErr := fmt.Fprintln(a.Stdout, info.ID)
	return errors.Join(err, printErr)
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List all sessions on the engine",
		Example: "  sandboxbash session ls\n  sandboxbash session ls --json | jq -r '.[].id'",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		list, err := sessions.List(ctx)
		if err != nil {
			return err
		}
		if a.Cfg.JSON {
			if list == nil {
				list = []sandbox.Info{}
			}
			return stdio.PrintJSON(a.Stdout, list)
		}
		return a.Table("ID\tSTATUS\tAGE\tIMAGE\tPROFILE\tNETWORK\tWORKSPACE", func(w io.Writer) {
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
					s.ID, s.Status, stdio.Age(s.Created, time.Now()), a.Safe(s.Image), s.Profile, s.Network, a.Name(core.WorkspaceText(s.Workspace)))
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
		ValidArgsFunction: a.CompleteSessions,
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.OneObject(a.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		s, err := sessions.Show(ctx, args[0])
		if err != nil {
			return err
		}
		if a.Cfg.JSON {
			return stdio.PrintJSON(a.Stdout, s)
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
	return a.Fields([][2]string{
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

func (a *commands) execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [flags] ID [--] SCRIPT [ARG...]",
		Short: "Run one script in a session",
		Long: `Run one script in a session, as run does. The session continues afterwards, with the
files and background processes that the command has left.`,
		Example: `  sandboxbash session exec 0199 'make test'
  sandboxbash session exec --timeout 1h --json 0199 ./build.sh
  sandboxbash session exec 0199 - <script.sh`,
		Args: flags.Args(1, -1, "the id of a session and a script"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.CompleteSessions(cmd, args, word)
		},
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, flags.Command...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, rest := args[0], args[1:]
		if cmd.ArgsLenAtDash() < 0 { // flags may stand behind the id too
			if err := cmd.ParseFlags(rest); err != nil {
				return cmd.FlagErrorFunc()(cmd, err)
			}
			rest = cmd.Flags().Args()
		} else if cmd.ArgsLenAtDash() == 0 {
			rest = args[1:]
		}
		r := runcmd.New(a.App)
		return r.AsJSON(cmd, func() error {
			if err := r.Load(cmd); err != nil {
				return err
			}
			if id == "" {
				return core.ErrNoSessionID
			}
			return r.RunScript(cmd.Context(), id, rest)
		})
	}
	return cmd
}

func (a *commands) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ps [flags] ID", Short: "List the processes that commands have left in a session",
		Example:           "  sandboxbash session ps 0199",
		Args:              flags.Args(1, 1, "the id of a session"),
		ValidArgsFunction: a.CompleteSessions,
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		s, err := a.Open(ctx, sessions, args[0])
		if err != nil {
			return err
		}
		list, err := s.Processes(ctx)
		if err != nil {
			return err
		}
		for i := range list {
			list[i].Command = a.Scrub(list[i].Command)
		}
		if a.Cfg.JSON {
			if list == nil {
				list = []sandbox.Process{}
			}
			return stdio.PrintJSON(a.Stdout, list)
		}
		return a.Table("PID\tPPID\tPGID\tSTATE\tCPU\tRSS\tCOMMAND", func(w io.Writer) {
			for _, p := range list {
				fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%v\t%s\t%s\n", p.PID, p.Parent, p.Group, a.Safe(p.State),
					p.CPU, units.BytesSize(float64(p.Resident)), strings.TrimSpace(a.Name(p.Command)))
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
		Example:           "  sandboxbash session stop 0199\n  sandboxbash session ls --json | jq -r '.[].id' | xargs sandboxbash session stop",
		Args:              flags.Args(1, -1, "ids of sessions"),
		ValidArgsFunction: a.CompleteSessions,
	}
	flags.Add(cmd, "quiet")
	cmd.RunE = a.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		return a.Each(args, func(id string) (string, error) {
			holder.EndAll(ctx, a.App, sessions, id)
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
	cmd.RunE = a.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		if dir, err := holder.Dir(a.App); err == nil {
			if err := holder.Prune(ctx, dir, a.Note); err != nil {
				return err
			}
		}
		reaped, err := sessions.Reap(ctx)
		for _, id := range reaped {
			fmt.Fprintln(a.Stdout, id)
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

// openFiles opens a session, or what is kept of one, for its files alone. The caller
// calls done.
func (a *commands) openFiles(ctx context.Context, sessions *sandbox.Engine, id string) (s *sandbox.Session, done func(), err error) {
	if err := a.Secrets(); err != nil {
		return nil, nil, err
	}
	s, end, err := sessions.OpenFiles(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return s, func() {
		if err := end(context.WithoutCancel(ctx)); err != nil {
			a.Note("the container that read the workspace was not removed: " + err.Error())
		}
	}, nil
}
