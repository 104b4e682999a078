package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// starter starts sessions.
type starter struct {
	streams    *stdio.Streams
	env        *core.Environment // says where the holders of networks are
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
		Long: `Start a session and print its id. A command without a SESSION uses the session that
was started in its directory, or in the nearest one above.`,
		Example: `  sandboxbash session start
  sandboxbash session start --name web --workspace copy:.
  sandboxbash session start --workspace bind:$PWD --idle 8h
  sandboxbash session start --env CI=1 --env LANG
  sandboxbash session start --mount ./data:/data:ro
  sandboxbash session start --cache pip:/home/agent/.cache/pip
  sandboxbash session start --allow @pypi --allow api.example.com
  sandboxbash session start --image python:3.13 --profile dev --network bridge`,
		Args: flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, flags.Session...)
	flags.Add(cmd, flags.Network...)
	flags.Add(cmd, "session.name", "session.idle", "env.set", "env.unsafe", "json", "quiet")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.cfg.Load(cmd); err != nil {
			return err
		}
		return a.start(cmd.Context(), givenEnv(cmd, a.cfg.Env.Set))
	}
	return cmd
}

// givenEnv returns the variables that the command line gives a session. What the configuration file and
// variables say is for each command, from the process that runs it.
func givenEnv(cmd *cobra.Command, configured []string) []string {
	names := map[string]bool{}
	for _, flag := range []string{"env", "env-unsafe"} {
		list, ok := cmd.Flags().Lookup(flag).Value.(interface{ GetSlice() []string })
		if !ok {
			continue
		}
		for _, kv := range list.GetSlice() {
			name, _, _ := strings.Cut(kv, "=")
			names[name] = true
		}
	}
	var given []string
	for _, kv := range configured {
		if name, _, _ := strings.Cut(kv, "="); names[name] {
			given = append(given, kv)
		}
	}
	return given
}

func (a *starter) start(ctx context.Context, env []string) error {
	spec, err := a.cfg.ServedSpec()
	if err != nil {
		return err
	}
	spec.Env = env
	spec.Directory = core.ThisDirectory()
	if len(spec.Allow) > 0 {
		if _, err := holder.NetworkDir(a.env); err != nil {
			return err
		}
	}
	spec.Detached = true // its connections are carried by a process of their own
	spec.Lease, spec.Keep = a.cfg.Idle(), a.cfg.KeepFor()
	if err := a.secrets.Ready(); err != nil {
		return err
	}
	spec.Secrets = a.secrets.Hosted()
	progress := core.NewProgress(a.cfg, "starting the session")
	defer progress.Close()
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
	a.env.NoteUse(info.ID)
	if len(spec.Allow) > 0 {
		if err := a.connection.HoldNetwork(ctx, info.ID); err != nil {
			return errors.Join(err, s.Stop(context.WithoutCancel(ctx)), sessions.Close(context.WithoutCancel(ctx)))
		}
	}
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
