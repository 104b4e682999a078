package sessioncmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// starter starts sessions.
type starter struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	notes      *core.Notes
	secrets    *core.Secrets
	artifacts  *core.Artifacts
	connection *core.Connection
}

func (a *starter) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start [flags]",
		Short: "Start a session and print its id",
		Example: `  sandboxbash session start
  sandboxbash session start --workspace bind:$PWD --idle 8h
  sandboxbash session start --image python:3.13 --profile dev --network bridge`,
		Args: flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, flags.Session...)
	flags.Add(cmd, "session.idle", "json", "quiet")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, _ []string) error { return a.start(ctx) })
	return cmd
}

func (a *starter) start(ctx context.Context) error {
	spec, err := a.cfg.Spec()
	if err != nil {
		return err
	}
	if len(a.cfg.NetworkRules.Allow) > 0 {
		a.notes.Add("network rules do not hold in this session: no process stays to carry its connections; run and serve carry those of their own sessions")
	}
	spec.Lease, spec.Keep = a.cfg.Session.Idle, a.cfg.KeepFor()
	if err := a.secrets.Ready(); err != nil {
		return err
	}
	progress := core.NewProgress(a.streams, a.cfg)
	sessions, err := a.connection.Sessions(ctx, progress.Show, nil)
	if err != nil {
		return err
	}
	collected := a.artifacts.Collect()
	s, err := sessions.Start(ctx, spec)
	collected()
	progress.Close()
	if err != nil {
		return err
	}
	a.notes.OfSession(s)
	info := s.Info()
	err = sessions.Close(ctx)
	if a.cfg.JSON {
		return errors.Join(err, stdio.PrintJSON(a.streams.Stdout, struct {
			sandbox.Info
			LeftOut []string `json:"leftOut,omitempty"`
			Notes   []string `json:"notes,omitempty"`
		}{info, s.LeftOut(), a.notes.Gathered()}))
	}
	_, printErr := fmt.Fprintln(a.streams.Stdout, info.ID)
	return errors.Join(err, printErr)
}
