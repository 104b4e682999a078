// Package sessioncmd is the command session: sessions started, used, compared with this machine
// and stopped.
package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/auditcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/ptycmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Command is the command session.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}
	start := &starter{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, artifacts: p.Artifacts, connection: p.Connection}
	in := &runs{cfg: p.Cfg, connection: p.Connection, runner: runcmd.New(p)}
	f := &files{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, connection: p.Connection}
	n := &networks{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}
	c := flags.Family("session", "Start, use and stop sessions that outlive this process",
		`  sandboxbash session start --name web --workspace copy:.
  sandboxbash session exec web 'make test'
  sandboxbash session exec -- 'make test'
  sandboxbash session ls
  sandboxbash session stop web`,
		start.command(), a.listCommand(), a.showCommand(), auditcmd.SessionLogs(p), in.execCommand(), ptycmd.SessionAttach(p), a.psCommand(), a.portsCommand(), a.forwardCommand(),
		f.copyCommand(), f.pushCommand(), f.pullCommand(), f.diffCommand(), f.applyCommand(), f.syncCommand(), n.allowCommand(), n.denyCommand(), n.recordCommand(),
		a.pauseCommand(), a.resumeCommand(), a.keepCommand(), a.waitCommand(), a.stopCommand(), a.reapCommand(), newHoldCommand(p))
	c.Long = `A session is one container. It runs until it is stopped, or until it has been idle for
--idle (0: never; session keep does the same later). After that its workspace is kept for a day (keep.for), unless it is a bind or has
a --disk: ls lists it, diff, apply, cp and pull read it, stop removes it.

` + core.References + `
An unknown one is bad input: exit status 2.`
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

func (a *commands) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] [SESSION]", Short: "Describe a session",
		Example:           "  sandboxbash session show\n  sandboxbash session show --json web",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = a.notes.OneObject(a.connection.AsksOf("", func(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
		s, err := a.connection.Find(ctx, sessions, ref)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, a.listed(s))
		}
		return a.describe(ctx, s)
	}))
	return cmd
}

func (a *commands) describe(ctx context.Context, s sandbox.Info) error {
	size := func(bytes int64) string {
		if bytes == 0 {
			return "no limit"
		}
		return units.BytesSize(float64(bytes)) + ", in memory"
	}
	rows := [][2]string{
		{"name", s.Name},
		{"id", s.ID},
		{"status", string(s.Status)},
		{"created", whenText(s.Created)},
		{"used", whenText(a.env.LastUsed(s.ID))},
		{"directory", s.Directory},
		{"image", s.Image + " (" + s.ImageID + ")"},
		{"profile", string(s.Profile)},
		{"user", userText(s)},
		{"variables", strings.Join(s.Env, ", ")},
		{"network", string(s.Network)},
	}
	rows = append(rows, a.describeNetwork(ctx, s)...)
	return a.streams.Fields(append(rows, [][2]string{
		{"workspace", core.WorkspaceText(s.Workspace) + " at " + s.Workspace.Target},
		{"mounts", mountsText(s.Mounts)},
		{"memory", units.BytesSize(float64(s.Limits.Memory))},
		{"cpus", fmt.Sprint(s.Limits.CPUs)},
		{"pids", fmt.Sprint(s.Limits.Pids)},
		{"disk", size(s.Limits.Disk)},
		{"home", homeText(s, size(s.Limits.Home))},
		{"tmp", size(s.Limits.Tmp)},
		{"idle", s.LeaseText},
		{"kept until", untilText(a.env.KeptUntil(s.ID))},
		{"owner", s.Owner},
		{"container", s.Container},
		{"kept", keptText(s.Kept)},
	}...))
}

// userText is a session's user, with its name.
func userText(s sandbox.Info) string {
	text := fmt.Sprintf("%d:%d", s.User.UID, s.User.GID)
	if s.UserName != "" {
		text += " (" + s.UserName + ")"
	}
	return text
}

// homeText is what show says of a session's home: its size or, if it is not in memory, where it lies.
func homeText(s sandbox.Info, size string) string {
	for _, m := range s.Mounts {
		if m.Target == s.Home {
			return "mounted, see mounts"
		}
	}
	if strings.HasPrefix(s.Home, s.Workspace.Target+"/") {
		return s.Home + ", in the workspace"
	}
	return size
}

// mountsText is what show says of the mounts and caches of a session.
func mountsText(all []sandbox.Mount) string {
	var texts []string
	for _, m := range all {
		kind := ""
		if m.Cache != "" {
			kind = "cache "
		}
		texts = append(texts, kind+m.String())
	}
	return strings.Join(texts, ", ")
}

// untilText is until when a session is kept from ending, "" if it is not.
func untilText(until time.Time) string {
	switch left := time.Until(until); {
	case left <= 0:
		return ""
	case left > farAway:
		return "it is stopped"
	}
	return until.Local().Format(time.RFC3339)
}

// whenText is a time, and how long ago it was; "" for none.
func whenText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Local().Format(time.RFC3339) + " (" + stdio.Age(at, time.Now()) + " ago)"
}

func (a *commands) stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop [flags] [SESSION...]", Aliases: []string{"rm"}, Short: "Stop sessions, and remove their containers and workspaces",
		Long: `Stop sessions, and remove their containers and workspaces at once. For a session that has
ended by itself, remove the workspace that is kept of it. Prints their ids.

Without a SESSION, stop the one of --session, of SANDBOXBASH_SESSION, or of this directory,
and say which it was. A session that is only the only one must be named.`,
		Example:           "  sandboxbash session stop\n  sandboxbash session stop web\n  sandboxbash session ls -q | xargs sandboxbash session stop",
		ValidArgsFunction: a.connection.CompleteSessions,
	}
	flags.Add(cmd, "session.id", "quiet")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && cmd.Flags().Changed("session") {
			return exit.Misuse("leave one of them out", "the session is named twice: by --session and by %q", args[0])
		}
		if slices.Contains(args, "") {
			return core.ErrNoSessionID
		}
		return a.connection.Asks(a.stop)(cmd, args)
	}
	return cmd
}

func (a *commands) stop(ctx context.Context, sessions *sandbox.Engine, refs []string) error {
	if len(refs) == 0 {
		refs = []string{""}
	}
	return core.Each(a.streams.Listing(a.cfg.Quiet), refs, func(ref string) (string, error) {
		id := ref
		if !engine.ValidID(ref) { // what is left of a session is known by its id alone
			info, why, err := a.connection.FindToEnd(ctx, sessions, ref)
			if err != nil {
				return "", err
			}
			if id = info.ID; why != "" {
				a.notes.Add("stopped session " + info.Name + ", the one " + why)
			}
		}
		holder.EndAll(ctx, a.env, sessions, id)
		info, err := sessions.Stop(ctx, id)
		if err == nil {
			holder.EndNetwork(ctx, a.env, info.ID)
			a.env.ForgetUse(info.ID)
		}
		return info.ID, err
	})
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
		return errors.Join(err, a.reapNetworks(ctx, sessions))
	})
	return cmd
}

// reapNetworks removes what holders of sessions' networks that were killed have left.
func (a *commands) reapNetworks(ctx context.Context, sessions *sandbox.Engine) error {
	_, died, err := holder.Networks(ctx, a.env)
	if err != nil {
		return nil //nolint:nilerr // this system or user has none
	}
	if died > 0 {
		a.notes.Add(fmt.Sprintf("%d processes that carried the connections of sessions were killed: the next commands of these sessions start them again", died))
	}
	list, err := sessions.List(ctx)
	if err != nil {
		return err
	}
	address, err := a.connection.Address(ctx)
	if err != nil {
		return err
	}
	holder.SweepRules(a.env, address, func(session string) bool {
		return slices.ContainsFunc(list, func(s sandbox.Info) bool { return s.ID == session && s.Kept == nil })
	})
	return nil
}

// keptText is what show says of a kept workspace.
func keptText(k *sandbox.Kept) string {
	if k == nil {
		return ""
	}
	return fmt.Sprintf("%s, until %s; the session has ended: %s", core.KeptSize(k), k.Until.Local().Format(time.RFC3339), k.Cause)
}
