package sessioncmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// changes makes a command one that changes a session, and prints its id.
func (a *commands) changes(cmd *cobra.Command, do func(ctx context.Context, s *sandbox.Session) error) *cobra.Command {
	cmd.ValidArgsFunction = a.connection.CompleteSession
	flags.Add(cmd, "session.id", "quiet")
	cmd.RunE = a.connection.AsksOf("", func(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
		s, err := a.connection.Open(ctx, sessions, ref)
		if err != nil {
			return err
		}
		if err := do(ctx, s); err != nil {
			return err
		}
		if a.cfg.Quiet {
			return nil
		}
		_, err = fmt.Fprintln(a.streams.Stdout, s.ID())
		return err
	})
	return cmd
}

func (a *commands) pauseCommand() *cobra.Command {
	return a.changes(&cobra.Command{
		Use: "pause [flags] [SESSION]", Short: "Stop all processes of a session where they are, until resume",
		Long: `Stop all processes of a session where they are: they take no processor time, and keep
their memory. Until ` + "`sandboxbash session resume`" + ` every command in it fails and says so.

A paused session does not end because it is idle, and its idle time starts again when it
is resumed. Timeouts run on. Jobs, and what commands have left running, go on afterwards;
a command that a call waits for is lost if the pause is longer than a minute.`,
		Example: "  sandboxbash session pause\n  sandboxbash session pause web",
	}, func(ctx context.Context, s *sandbox.Session) error { return s.Pause(ctx) })
}

func (a *commands) resumeCommand() *cobra.Command {
	return a.changes(&cobra.Command{
		Use: "resume [flags] [SESSION]", Aliases: []string{"unpause"}, Short: "Let the processes of a paused session go on",
		Example: "  sandboxbash session resume\n  sandboxbash session resume web",
	}, func(ctx context.Context, s *sandbox.Session) error { return s.Resume(ctx) })
}

func (a *commands) keepCommand() *cobra.Command {
	var cmd *cobra.Command
	cmd = a.changes(&cobra.Command{
		Use: "keep [flags] [SESSION]", Short: "Keep a session that is idle from ending",
		Long: `Keep a session that is idle from ending: until it is stopped or, with --for, at least for
that long from now on. The session itself remembers it. --for 0 takes it back: the
session ends again when it has been idle for as long as --idle of its start says.

A session that is not to end by itself from the start on: session start --idle 0.`,
		Example: "  sandboxbash session keep\n  sandboxbash session keep --for 3d web\n  sandboxbash session keep --for 0 web",
	}, func(ctx context.Context, s *sandbox.Session) error {
		long := sandbox.Forever
		if cmd.Flags().Changed("for") {
			long = a.cfg.Session.For
		}
		if err := s.Keep(ctx, long); err != nil {
			return err
		}
		until := time.Time{}
		if long > 0 {
			until = time.Now().Add(long)
		}
		a.env.NoteKept(s.ID(), until)
		return nil
	})
	flags.Add(cmd, "session.for")
	cmd.Flags().Lookup("for").DefValue = "" // until it is stopped
	return cmd
}

func (a *commands) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [flags] [SESSION]", Short: "Wait until a session has ended, and print why",
		Long: `Wait until a session has ended, and print the cause in one word:

  lease-over  it was idle for longer than --idle of its start
  removed     it was stopped with session stop, or removed
  stopped     its container was stopped, or its engine ended
  oom         it was at its memory limit, and its first process was killed
  killed      its first process was killed

The exit status is 0, whatever the cause. Waiting does not keep the session from ending.`,
		Example:           "  sandboxbash session wait web\n  sandboxbash session wait --json web | jq -r .cause",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json", "quiet")
	cmd.RunE = a.notes.OneObject(a.connection.AsksOf("", func(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
		info, err := a.connection.Find(ctx, sessions, ref)
		if err != nil {
			return err
		}
		end, err := sessions.Wait(ctx, info.ID)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, end)
		}
		if _, err := fmt.Fprintln(a.streams.Stdout, end.Cause); err != nil {
			return err
		}
		a.notes.Add("session " + end.Name + ": " + end.Text)
		return nil
	}))
	return cmd
}
