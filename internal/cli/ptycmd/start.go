// Package ptycmd is the command pty: programs on terminals that outlive the call that started
// them, and the process that keeps each.
package ptycmd

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// commands are the pty commands.
type commands struct {
	streams    *stdio.Streams
	env        *core.Environment
	cfg        *core.Configuration
	notes      *core.Notes
	connection *core.Connection // for the completion of sessions
	runner     *runcmd.Runner   // of what runs on a terminal
}

func newCommands(p *core.Parts) *commands {
	return &commands{
		streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection, runner: runcmd.New(p),
	}
}

// Command is the command pty.
func Command(p *core.Parts) *cobra.Command {
	a := newCommands(p)
	c := flags.Family("pty", "Keep programs on terminals between calls",
		`  id=$(sandboxbash pty start -- python3 -i)
  sandboxbash pty wait --input $id
  sandboxbash pty write --keys enter $id '6*7'
  sandboxbash pty screen $id
  sandboxbash pty stop $id`,
		a.startCommand(), a.attachCommand(), a.listCommand(), a.showCommand(), a.writeCommand(), a.resizeCommand(), a.logsCommand(),
		a.screenCommand(), a.waitCommand(), a.stopCommand(), newHoldCommand(p))
	c.Long = `A terminal outlives the call that started it: scripts and programs can use editors,
REPLs, debuggers and prompts step by step. A separate process keeps the terminal. It
removes the terminal when the program has ended and its outcome was read, at pty stop,
when the session ends, and when the terminal has been idle for --idle.

An ID may be shortened to a unique start. ` + "`pty attach` shows a terminal on your own;" + `
` + "`session attach` starts one and attaches to it."
	c.GroupID = flags.GroupRun
	return c
}

func (a *commands) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "start [flags] [SESSION] [-- COMMAND [ARG...]]", Short: "Start a program on a new terminal, and print the terminal's id",
		Long: `Start a program, or a shell, on a terminal that outlives this call, and print the
terminal's id. The words after -- mean what they mean to run. There is no timeout unless
--timeout sets one; the terminal ends after it has been idle for --idle.`,
		Example: `  sandboxbash pty start
  sandboxbash pty start --size 132x43 -- vi notes.txt
  sandboxbash pty start --json --idle 10m web -- gdb ./a.out`,
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id")
	flags.Add(cmd, holdFlags...)
	flags.Add(cmd, "run.command", "run.file")
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.Flags().Lookup("timeout").DefValue = "" // none
	cmd.Flags().Lookup("idle").Usage = "end the terminal after it has been idle for this long"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.runner.AsJSON(cmd, func() error {
			if err := a.runner.Load(cmd); err != nil {
				return err
			}
			ref, words, err := a.cfg.SplitScript(cmd, args)
			if err != nil {
				return err
			}
			return a.start(cmd, ref, words)
		})
	}
	return cmd
}

func (a *commands) start(cmd *cobra.Command, ref string, words core.Words) error {
	size, err := parseSize(a.cfg.PTY.Size)
	if err != nil {
		return err
	}
	h := handover{Size: size}
	if err := a.handOver(cmd, &h, words); err != nil {
		return err
	}
	session, err := a.find(cmd.Context(), ref)
	if err != nil {
		return err
	}
	h.Session = session.ID
	row, started, err := a.launch(cmd.Context(), h)
	if err != nil {
		return err
	}
	defer started.Close()
	if a.cfg.JSON {
		err = stdio.PrintJSON(a.streams.Stdout, struct {
			*holder.Row
			Notes []string `json:"notes,omitempty"`
		}{row, a.notes.Gathered()})
	} else {
		_, err = fmt.Fprintln(a.streams.Stdout, row.ID)
	}
	if err != nil {
		return err // and the terminal, which no process knows of, ends
	}
	return started.Release()
}

// handOver fills in what a holder gets from this command: its script, which is a shell without
// words, its flags and its environment.
func (a *commands) handOver(cmd *cobra.Command, h *handover, words core.Words) (err error) {
	h.Handover = holder.Handover{Environ: a.env.All(), Flags: changedFlags(cmd)}
	h.Script = runcmd.ShellScripts[a.cfg.Shell]
	if words.Any() || a.cfg.Run.File != "" {
		h.Script, h.Args, err = core.Script(cmd.Context(), a.cfg.Run, a.streams.Stdin, words)
	}
	return err
}

// find returns the session of a reference, once terminals can be kept here.
func (a *commands) find(ctx context.Context, ref string) (sandbox.Info, error) {
	dir, err := holder.Dir(a.env)
	if err == nil {
		err = holder.MakeDir(dir)
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	session, err := a.connection.Lookup(ctx, ref)
	if err != nil {
		return sandbox.Info{}, err
	}
	a.env.NoteUse(session.ID)
	return session, holder.Prune(ctx, dir, a.notes.Add)
}

// launch starts a holder, and returns its terminal. The terminal ends unless the caller calls
// Release of the starter, which it must close.
func (a *commands) launch(ctx context.Context, h handover) (*holder.Row, *holder.Starter, error) {
	started, err := holder.Start(ctx, a.env.Getenv, h, "pty", "hold", holder.NewID())
	if err != nil {
		return nil, nil, err
	}
	var answer holder.Answer
	err = started.Answer(ctx, &answer)
	for _, n := range answer.Notes {
		a.notes.Add(n)
	}
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	if err != nil {
		started.Close()
		return nil, nil, err
	}
	return answer.Terminal, started, nil
}

// changedFlags are the flags that were given, as they may be given again to the holder.
func changedFlags(cmd *cobra.Command) []string {
	var all []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "command", "file", "session": // the handover has them
			return
		case "detach-keys", "kill-keys": // they are for the user's end
			return
		}
		if list, ok := f.Value.(interface{ GetSlice() []string }); ok {
			for _, v := range list.GetSlice() {
				all = append(all, "--"+f.Name+"="+v)
			}
			return
		}
		all = append(all, "--"+f.Name+"="+f.Value.String())
	})
	return all
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the terminals that are kept on this machine",
		Example: "  sandboxbash pty ls\n  sandboxbash pty ls --json -s web | jq -r '.[].id'",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "session.id", "json", "quiet")
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.RunE = a.cfg.Does(func(ctx context.Context, _ []string) error {
		dir, err := holder.Dir(a.env)
		if err != nil {
			return err
		}
		if err := holder.Prune(ctx, dir, a.notes.Add); err != nil {
			return err
		}
		rows, err := holder.List(ctx, dir)
		if err != nil {
			return err
		}
		session, err := a.connection.Stored(ctx, sessionsOf(rows), a.cfg.Session.ID)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(r holder.Row) bool { return session != "" && r.Session != session })
		return core.List(a.cfg, rows, "ID\tSESSION\tSTATE\tEXIT\tSIZE\tAGE\tCOMMAND", func(r holder.Row) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%dx%d\t%s\t%s", r.ID, sandbox.ShortID(r.Session), r.State, r.Exit(), r.Cols, r.Rows,
				stdio.Age(r.Started, time.Now()), stdio.Fit(a.streams.Name(r.Command), commandWidth))
		})
	})
	return cmd
}

// commandWidth is what is left of 80 characters for the last column.
const commandWidth = 28

// sessionsOf are the sessions of terminals.
func sessionsOf(rows []holder.Row) (ids []string) {
	for _, r := range rows {
		ids = append(ids, r.Session)
	}
	return ids
}

// trimmedScreen is a screen's text without the empty lines at its end.
func trimmedScreen(lines []string) string {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(strings.TrimRight(l, " "))
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}
