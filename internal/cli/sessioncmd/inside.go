package sessioncmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// inside is what a command lists of the inside of a session.
type inside[T any] struct {
	ask     func(*sandbox.Session, context.Context) ([]T, error)
	command func(*T) *string // where a process has its command line, which may hold secrets
	head    string           // of the table
	row     func(T) string
}

// list makes it a command's.
func (i inside[T]) list(a *commands) func(*cobra.Command, []string) error {
	return a.connection.AsksOf("", func(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
		s, err := a.connection.Open(ctx, sessions, ref)
		if err != nil {
			return err
		}
		all, err := i.ask(s, ctx)
		if err != nil {
			return err
		}
		for n := range all {
			command := i.command(&all[n])
			*command = a.streams.Scrub(*command)
		}
		return core.List(a.cfg, all, i.head, i.row)
	})
}

func (a *commands) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ps [flags] [SESSION]", Short: "List the processes that commands have left in a session",
		Example:           "  sandboxbash session ps\n  sandboxbash session ps web",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = inside[sandbox.Process]{
		ask:     (*sandbox.Session).Processes,
		command: func(p *sandbox.Process) *string { return &p.Command },
		head:    "PID\tPPID\tPGID\tSTATE\tCPU\tRSS\tCOMMAND",
		row: func(p sandbox.Process) string {
			return fmt.Sprintf("%d\t%d\t%d\t%s\t%v\t%s\t%s", p.PID, p.Parent, p.Group, a.streams.Safe(p.State),
				p.CPU, units.BytesSize(float64(p.Resident)), strings.TrimSpace(a.streams.Name(p.Command)))
		},
	}.list(a)
	return cmd
}

func (a *commands) portsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ports [flags] [SESSION]", Short: "List the TCP ports that processes of a session listen to",
		Long: `List the TCP ports that processes of a session listen to, with one process of each.
` + "`sandboxbash session forward`" + ` makes a port reachable on this machine.`,
		Example:           "  sandboxbash session ports\n  sandboxbash session ports --json web",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = inside[sandbox.Port]{
		ask:     (*sandbox.Session).Ports,
		command: func(p *sandbox.Port) *string { return &p.Command },
		head:    "ADDRESS\tPORT\tPID\tCOMMAND",
		row: func(p sandbox.Port) string {
			return fmt.Sprintf("%s\t%d\t%d\t%s", p.Address, p.Port, p.PID, strings.TrimSpace(a.streams.Name(p.Command)))
		},
	}.list(a)
	return cmd
}
