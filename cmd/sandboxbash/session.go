package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

func (a *app) sessionCommand() *cobra.Command {
	c := family("session", "Start, use and stop sessions that outlive this process",
		`  id=$(sandboxbash session start --workspace copy:.)
  sandboxbash session exec $id 'make test'
  sandboxbash session ls
  sandboxbash session stop $id`,
		a.startCommand(), a.listCommand(), a.showCommand(), a.execCommand(), a.attachCommand(), a.psCommand(),
		a.pushCommand(), a.pullCommand(), a.diffCommand(), a.stopCommand(), a.reapCommand())
	c.Long = `A session is one container. It lives until it is stopped, or until nobody has asked
anything of it for as long as --idle says.

Wherever an ID is asked for, the begin of one will do. One that no session has is
bad input: exit status 2.`
	c.GroupID = groupRun
	return c
}

func (a *app) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start [flags]",
		Short: "Start a session and print its id",
		Example: `  sandboxbash session start
  sandboxbash session start --workspace bind:$PWD --idle 8h
  sandboxbash session start --image python:3.13 --profile dev --network bridge --json`,
		Args: words(0, 0, "no arguments"),
	}
	addFlags(cmd, sessionFlags...)
	addFlags(cmd, "session.idle", "json", "quiet")
	cmd.RunE = a.does(func(ctx context.Context, _ []string) error { return a.start(ctx) })
	return cmd
}

func (a *app) start(ctx context.Context) error {
	spec, err := a.spec()
	if err != nil {
		return err
	}
	spec.Lease = a.cfg.Session.Idle
	if err := a.secrets(ctx); err != nil {
		return err
	}
	progress := a.progress()
	sessions, err := a.sessions(ctx, progress.show)
	if err != nil {
		return err
	}
	collected := a.collect()
	s, err := sessions.Start(ctx, spec)
	collected()
	progress.close()
	if err != nil {
		return err
	}
	a.startNotes(s)
	info := s.Info()
	err = sessions.Close(ctx)
	if a.cfg.JSON {
		return errors.Join(err, printJSON(a.stdout, struct {
			sandbox.Info
			LeftOut []string `json:"leftOut,omitempty"`
			Notes   []string `json:"notes,omitempty"`
		}{info, s.LeftOut(), a.takeNotes()}))
	}
	_, printErr := fmt.Fprintln(a.stdout, info.ID)
	return errors.Join(err, printErr)
}

// query is a command that asks about sessions: its owner of sessions is made and
// let go of around it.
type query func(ctx context.Context, sessions *sandbox.Engine, args []string) error

// asks makes a query a command's.
func (a *app) asks(do query) func(*cobra.Command, []string) error {
	return a.does(func(ctx context.Context, args []string) error {
		sessions, err := a.sessions(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, sessions, args), sessions.Close(context.WithoutCancel(ctx)))
	})
}

// open opens a session whose contents will be shown: what is masked in commands'
// output is masked there too.
func (a *app) open(ctx context.Context, sessions *sandbox.Engine, id string) (*sandbox.Session, error) {
	if err := a.secrets(ctx); err != nil {
		return nil, err
	}
	return sessions.Open(ctx, id)
}

func (a *app) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the sessions on the engine, whoever has started them",
		Example: "  sandboxbash session ls\n  sandboxbash session ls --json | jq -r '.[].id'",
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, "json")
	cmd.RunE = a.asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		list, err := sessions.List(ctx)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			if list == nil {
				list = []sandbox.Info{}
			}
			return printJSON(a.stdout, list)
		}
		return a.table("ID\tSTATUS\tAGE\tIMAGE\tPROFILE\tNETWORK\tWORKSPACE", func(w io.Writer) {
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
					s.ID, s.Status, age(s.Created, time.Now()), a.safe(s.Image), s.Profile, s.Network, a.safe(workspaceText(s.Workspace)))
			}
		})
	})
	return cmd
}

// table prints aligned columns, in one write.
func (a *app) table(head string, rows func(io.Writer)) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	rows(w)
	return w.Flush()
}

// fields prints what is known of one thing: a name and a value a line. What has
// no value is left out.
func (a *app) fields(rows [][2]string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", row[0], a.safe(row[1]))
		}
	}
	return w.Flush()
}

func workspaceText(w sandbox.Workspace) string {
	if w.Kind == sandbox.WorkspaceVolume {
		return string(w.Kind)
	}
	text := string(w.Kind) + ":" + w.Dir
	if w.ReadOnly {
		text += ":ro"
	}
	return text
}

func (a *app) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] ID", Short: "Describe a session",
		Example:           "  sandboxbash session show 0199\n  sandboxbash session show --json 0199",
		Args:              words(1, 1, "the id of a session"),
		ValidArgsFunction: a.completeSessions,
	}
	addFlags(cmd, "json")
	cmd.RunE = a.oneObject(a.asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		s, err := sessions.Show(ctx, args[0])
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return printJSON(a.stdout, s)
		}
		return a.describe(s)
	}))
	return cmd
}

func (a *app) describe(s sandbox.Info) error {
	disk := "no limit"
	if s.Limits.Disk > 0 {
		disk = units.BytesSize(float64(s.Limits.Disk))
	}
	return a.fields([][2]string{
		{"id", s.ID},
		{"status", s.Status},
		{"created", s.Created.Local().Format(time.RFC3339) + " (" + age(s.Created, time.Now()) + " ago)"},
		{"image", s.Image + " (" + s.ImageID + ")"},
		{"profile", string(s.Profile)},
		{"user", fmt.Sprintf("%d:%d", s.User.UID, s.User.GID)},
		{"network", string(s.Network)},
		{"workspace", workspaceText(s.Workspace) + " at " + s.Workspace.Target},
		{"memory", units.BytesSize(float64(s.Limits.Memory))},
		{"cpus", fmt.Sprint(s.Limits.CPUs)},
		{"pids", fmt.Sprint(s.Limits.Pids)},
		{"disk", disk},
		{"idle", s.LeaseText},
		{"owner", s.Owner},
		{"container", s.Container},
	})
}

func (a *app) execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [flags] ID [--] SCRIPT [ARG...]",
		Short: "Run one script in a session",
		Long: `Run one script in a session, as run does. The session goes on afterwards, with what
the command has left in its files and running in the background.`,
		Example: `  sandboxbash session exec 0199 'make test'
  sandboxbash session exec --timeout 1h --json 0199 ./build.sh
  sandboxbash session exec 0199 - <script.sh`,
		Args: words(1, -1, "the id of a session and a script"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completeSessions(cmd, args, word)
		},
	}
	cmd.Flags().SetInterspersed(false)
	addFlags(cmd, commandFlags...)
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
		return a.asJSON(cmd, func() error {
			if err := a.load(cmd); err != nil {
				return err
			}
			return a.runScript(cmd.Context(), id, rest)
		})
	}
	return cmd
}

func (a *app) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ps [flags] ID", Short: "List the processes that commands have left in a session",
		Example:           "  sandboxbash session ps 0199",
		Args:              words(1, 1, "the id of a session"),
		ValidArgsFunction: a.completeSessions,
	}
	addFlags(cmd, "json")
	cmd.RunE = a.asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		s, err := a.open(ctx, sessions, args[0])
		if err != nil {
			return err
		}
		list, err := s.Processes(ctx)
		if err != nil {
			return err
		}
		for i := range list {
			list[i].Command = a.scrub(list[i].Command)
		}
		if a.cfg.JSON {
			if list == nil {
				list = []sandbox.Process{}
			}
			return printJSON(a.stdout, list)
		}
		return a.table("PID\tPPID\tPGID\tSTATE\tCPU\tRSS\tCOMMAND", func(w io.Writer) {
			for _, p := range list {
				fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%v\t%s\t%s\n", p.PID, p.Parent, p.Group, a.safe(p.State),
					p.CPU, units.BytesSize(float64(p.Resident)), strings.TrimSpace(a.safe(p.Command)))
			}
		})
	})
	return cmd
}

func (a *app) stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop ID...", Aliases: []string{"rm"}, Short: "End sessions and remove what was made for them",
		Example:           "  sandboxbash session stop 0199\n  sandboxbash session ls --json | jq -r '.[].id' | xargs sandboxbash session stop",
		Args:              words(1, -1, "ids of sessions"),
		ValidArgsFunction: a.completeSessions,
	}
	addFlags(cmd, "quiet")
	cmd.RunE = a.asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		return a.each(args, func(id string) (string, error) {
			a.endTerminals(ctx, sessions, id)
			info, err := sessions.Stop(ctx, id)
			return info.ID, err
		})
	})
	return cmd
}

// each does the same to several things, and prints what do returns of those it was
// done to, unless --quiet.
func (a *app) each(ids []string, do func(id string) (done string, err error)) error {
	var errs []error
	for _, id := range ids {
		done, err := do(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !a.cfg.Quiet {
			fmt.Fprintln(a.stdout, done)
		}
	}
	return errors.Join(errs...)
}

func (a *app) reapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reap", Short: "Remove what is left of sessions whose owner has gone",
		Long: `Remove what is left of sessions: containers that have ended, or that were never
used and whose owner has gone, and workspaces without a container. Prints their ids.
Sockets of terminals whose holder has died are removed too.
Every command that starts a session does the same first.`,
		Example: "  sandboxbash session reap",
		Args:    words(0, 0, "no arguments"),
	}
	cmd.RunE = a.asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		if dir, err := a.terminalDir(); err == nil {
			if err := a.prune(ctx, dir); err != nil {
				return err
			}
		}
		reaped, err := sessions.Reap(ctx)
		for _, id := range reaped {
			fmt.Fprintln(a.stdout, id)
		}
		return err
	})
	return cmd
}

// completeTime bounds what completion asks of the engine.
const completeTime = 2 * time.Second

// completes offers the words that list makes, each with a TAB and a description
// behind it, as far as they go on from the word that is being typed and were not
// given before.
func (a *app) completes(cmd *cobra.Command, args []string, word string, list func(context.Context, *sandbox.Engine) []string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	if err := a.load(cmd); err != nil {
		return nil, directive
	}
	sessions, err := a.sessions(ctx, nil)
	if err != nil {
		return nil, directive
	}
	defer sessions.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only lets go
	return slices.DeleteFunc(list(ctx, sessions), func(offer string) bool {
		id, _, _ := strings.Cut(offer, "\t")
		return !strings.HasPrefix(id, word) || slices.Contains(args, id)
	}), directive
}

// completeSessions offers the ids of the sessions that there are.
func (a *app) completeSessions(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.completes(cmd, args, word, func(ctx context.Context, sessions *sandbox.Engine) (ids []string) {
		list, err := sessions.List(ctx)
		if err != nil {
			return nil
		}
		for _, s := range list {
			ids = append(ids, fmt.Sprintf("%s\t%s, %s old, %s", s.ID, s.Status, age(s.Created, time.Now()), a.safe(s.Image)))
		}
		return ids
	})
}
