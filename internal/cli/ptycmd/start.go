// Package ptycmd is the command pty: programs on terminals that outlive the call that started
// them, and the process that keeps each.
package ptycmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
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

// Command is the command pty.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{
		streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection, runner: runcmd.New(p),
	}
	c := flags.Family("pty", "Keep programs on terminals between calls",
		`  id=$(sandboxbash pty start 0199 -- 'python3 -i')
  sandboxbash pty wait --input $id
  sandboxbash pty write --keys enter $id '6*7'
  sandboxbash pty screen $id
  sandboxbash pty end $id`,
		a.startCommand(), a.listCommand(), a.writeCommand(), a.resizeCommand(), a.readCommand(),
		a.screenCommand(), a.waitCommand(), a.endCommand(), newHoldCommand(p))
	c.Long = `A terminal outlives the call that started it: scripts and programs can use editors,
REPLs, debuggers and prompts step by step. A process of its own keeps the terminal until
its program has ended and its outcome was read, until it is ended by pty end, until its
session ends, or until it has been idle for --idle.

An ID may be shortened to a unique start. To work on your own terminal use
` + "`run --pty` or `session attach`."
	c.GroupID = flags.GroupRun
	return c
}

func (a *commands) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "start [flags] SESSION [-- SCRIPT [ARG...]]", Short: "Start a program on a new terminal, and print the terminal's id",
		Long: `Start a script, or a shell, on a terminal that outlives this call, and print the
terminal's id. As with run, - reads the script from standard input. There is no timeout
unless --timeout sets one; the terminal ends after it has been idle for --idle.`,
		Example: `  sandboxbash pty start 0199
  sandboxbash pty start --size 132x43 0199 -- 'vi notes.txt'
  sandboxbash pty start --json --idle 10m 0199 -- 'gdb ./a.out'`,
		ValidArgsFunction: a.connection.CompleteSessions,
	}
	flags.Add(cmd, holdFlags...)
	cmd.Flags().Lookup("timeout").DefValue = "" // none
	cmd.Flags().Lookup("idle").Usage = "end the terminal after it has been idle for this long"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.runner.AsJSON(cmd, func() error {
			if err := a.runner.Load(cmd); err != nil {
				return err
			}
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			if dash != 1 {
				return exit.Misuse("put a script after --, as in `sandboxbash pty start ID -- vi`; `sandboxbash session ls` lists the sessions",
					"%s takes the id of one session, and was given %d arguments", cmd.CommandPath(), dash)
			}
			if args[0] == "" {
				return core.ErrNoSessionID
			}
			return a.start(cmd, args[0], args[1:])
		})
	}
	return cmd
}

func (a *commands) start(cmd *cobra.Command, session string, words []string) error {
	ctx := cmd.Context()
	size, err := parseSize(a.cfg.PTY.Size)
	if err != nil {
		return err
	}
	h := handover{Environ: a.env.All(), Flags: changedFlags(cmd), Session: session, Script: runcmd.ShellScripts[a.cfg.Shell], Size: size}
	if len(words) > 0 {
		if h.Script, h.Args, err = a.runner.ScriptToRun(ctx, words); err != nil {
			return err
		}
	}
	dir, err := holder.Dir(a.env)
	if err == nil {
		err = holder.MakeDir(dir)
	}
	if err != nil {
		return err
	}
	if err := holder.Prune(ctx, dir, a.notes.Add); err != nil {
		return err
	}
	started, err := startHolder(ctx, a.env.Getenv, h)
	if err != nil {
		return err
	}
	defer started.close()
	answer, err := started.answer(ctx)
	if err != nil {
		return err
	}
	for _, n := range answer.Notes {
		a.notes.Add(n)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if a.cfg.JSON {
		err = stdio.PrintJSON(a.streams.Stdout, struct {
			*holder.Row
			Notes []string `json:"notes,omitempty"`
		}{answer.Terminal, a.notes.Gathered()})
	} else {
		_, err = fmt.Fprintln(a.streams.Stdout, answer.Terminal.ID)
	}
	if err != nil {
		return err // and the terminal, which no process knows of, ends
	}
	return started.release()
}

// changedFlags are the flags that were given, as they may be given again.
func changedFlags(cmd *cobra.Command) []string {
	var all []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
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

// startedHolder is a holder that is being started. It ends unless it is released.
type startedHolder struct {
	in  *os.File
	out *os.File
}

// holderEnv are the variables that a holder's environment has. It gets all
// others on standard input, because another process of this user can read an
// environment.
var holderEnv = []string{"PATH", "HOME", "TMPDIR", "XDG_STATE_HOME"}

// startHolder starts the holder of a terminal, and hands over.
func startHolder(ctx context.Context, getenv func(string) string, h handover) (*startedHolder, error) {
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer theirOut.Close()
	s := &startedHolder{in: in, out: out}
	cmd := holder.Detached(ctx, path, "pty", "hold", holder.NewID())
	cmd.Stdin, cmd.Stdout, cmd.Env = theirIn, theirOut, []string{}
	for _, name := range holderEnv {
		if v := getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	if err := cmd.Start(); err != nil {
		s.close()
		return nil, err
	}
	_ = cmd.Process.Release() // never fails; the process that adopts it waits for it
	_ = theirIn.Close()
	if _, err := in.Write(append(line, '\n')); err != nil {
		s.close()
		return nil, errNoHandover
	}
	return s, nil
}

// errNoHandover is a holder that has ended without a word.
var errNoHandover = &exec.Error{Outcome: exec.NotStarted, Cause: holder.CauseHolder, Err: errors.New("the process that was to keep the terminal has ended without a word")}

// answer waits for the holder to have started the terminal, or not. When ctx ends
// it is told to give up, and does so soon.
func (s *startedHolder) answer(ctx context.Context) (handoverAnswer, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.in.Close() })
	defer stop()
	var answer handoverAnswer
	line, err := bufio.NewReader(s.out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	switch {
	case ctx.Err() != nil:
		return answer, context.Cause(ctx)
	case err != nil || answer.Terminal == nil && answer.Error == nil:
		return answer, errNoHandover
	}
	return answer, nil
}

// release lets the holder go on.
func (s *startedHolder) release() error {
	_, err := s.in.Write([]byte{'\n'})
	return err
}

func (s *startedHolder) close() {
	_ = s.in.Close() // it may be
	_ = s.out.Close()
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the terminals that are kept on this machine",
		Example: "  sandboxbash pty ls\n  sandboxbash pty ls --json --session 0199 | jq -r '.[].id'",
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
		rows = slices.DeleteFunc(rows, func(r holder.Row) bool { return !strings.HasPrefix(r.Session, a.cfg.Session.ID) })
		if a.cfg.JSON {
			if rows == nil {
				rows = []holder.Row{}
			}
			return stdio.PrintJSON(a.streams.Stdout, rows)
		}
		return a.streams.Table("ID\tSESSION\tSTATE\tEXIT\tSIZE\tAGE\tCOMMAND", func(w io.Writer) {
			for _, r := range rows {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%dx%d\t%s\t%s\n", r.ID, r.Session, r.State, r.Exit(), r.Cols, r.Rows,
					stdio.Age(r.Started, time.Now()), a.streams.Name(r.Command))
			}
		})
	})
	return cmd
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
