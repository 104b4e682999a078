package main

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
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/serve"
)

func (a *app) ptyCommand() *cobra.Command {
	c := family("pty", "Keep a program on a terminal between calls: type, look, wait",
		`  id=$(sandboxbash pty start 0199 -- 'python3 -i')
  sandboxbash pty wait --input $id
  sandboxbash pty write --keys enter $id '6*7'
  sandboxbash pty screen $id
  sandboxbash pty end $id`,
		a.ptyStartCommand(), a.ptyListCommand(), a.ptyWriteCommand(), a.ptyResizeCommand(), a.ptyReadCommand(),
		a.ptyScreenCommand(), a.ptyWaitCommand(), a.ptyEndCommand(), a.ptyHoldCommand())
	c.Long = `A terminal goes on when the call that has started it returns: editors, REPLs, debuggers
and prompts can be used step by step, from scripts and by programs. A process of its own
keeps it, until its program has ended and somebody knows how, until it is ended, until
its session is, or until nobody has asked anything of it for --idle.

Wherever an ID is asked for, the begin of one will do. For a person's own terminal there
are ` + "`run --pty` and `session attach`."
	c.GroupID = groupRun
	return c
}

func (a *app) ptyStartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "start [flags] SESSION [-- SCRIPT [ARG...]]", Short: "Start a program on a terminal that goes on, and print its id",
		Long: `Start a script, or a shell, on a terminal that goes on when this call returns, and print
the terminal's id. As with run, - reads the script from standard input. It has no timeout unless
--timeout gives it one, and ends when nobody asks anything of it for as long as --idle says.`,
		Example: `  sandboxbash pty start 0199
  sandboxbash pty start --size 132x43 0199 -- 'vi notes.txt'
  sandboxbash pty start --json --idle 10m 0199 -- 'gdb ./a.out'`,
		ValidArgsFunction: a.completeSessions,
	}
	addFlags(cmd, holdFlags...)
	cmd.Flags().Lookup("idle").Usage = "how long the terminal lives without a word from anybody"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.asJSON(cmd, func() error {
			if err := a.load(cmd); err != nil {
				return err
			}
			dash := cmd.ArgsLenAtDash()
			if dash < 0 {
				dash = len(args)
			}
			if dash != 1 {
				return misuse("put a script behind --, as in `sandboxbash pty start ID -- vi`; `sandboxbash session ls` lists the sessions",
					"%s takes the id of one session, and was given %d words", cmd.CommandPath(), dash)
			}
			return a.startPTY(cmd, args[0], args[1:])
		})
	}
	return cmd
}

func (a *app) startPTY(cmd *cobra.Command, session string, words []string) error {
	ctx := cmd.Context()
	size, err := parseSize(a.cfg.PTY.Size)
	if err != nil {
		return err
	}
	h := handover{Environ: a.environ, Flags: changedFlags(cmd), Session: session, Script: shellScripts[a.cfg.Shell], Size: size}
	if len(words) > 0 {
		if h.Script, h.Args, err = a.script(ctx, words); err != nil {
			return err
		}
	}
	dir, err := a.terminalDir()
	if err == nil {
		err = makeTerminalDir(dir)
	}
	if err != nil {
		return err
	}
	if err := a.prune(ctx, dir); err != nil {
		return err
	}
	holder, err := startHolder(ctx, a.getenv, h)
	if err != nil {
		return err
	}
	defer holder.close()
	answer, err := holder.answer(ctx)
	if err != nil {
		return err
	}
	for _, n := range answer.Notes {
		a.note(n)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if a.cfg.JSON {
		err = printJSON(a.stdout, struct {
			*terminalRow
			Notes []string `json:"notes,omitempty"`
		}{answer.Terminal, a.takeNotes()})
	} else {
		_, err = fmt.Fprintln(a.stdout, answer.Terminal.ID)
	}
	if err != nil {
		return err // and nobody knows of the terminal, which ends
	}
	return holder.release()
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

// prune tells of terminals whose holders have died, and forgets them.
func (a *app) prune(ctx context.Context, dir string) error {
	lost, err := pruneTerminals(ctx, dir)
	for _, id := range lost {
		a.note("terminal " + id + " is lost: the process that kept it has died, and what ran on it was killed with it")
	}
	return err
}

// startedHolder is a holder that is being started. It ends unless it is released.
type startedHolder struct {
	in  *os.File
	out *os.File
}

// holderEnv are the variables that a holder's environment has. All others it is
// told, and gives to nobody: another process of this user's can read an environment.
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
	cmd := detached(ctx, path, "pty", "hold", newTerminalID())
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
	_ = cmd.Process.Release() // never fails; whoever adopts it waits for it
	_ = theirIn.Close()
	if _, err := in.Write(append(line, '\n')); err != nil {
		s.close()
		return nil, errNoHandover
	}
	return s, nil
}

// errNoHandover is a holder that has ended without a word.
var errNoHandover = &exec.Error{Outcome: exec.NotStarted, Cause: causeHolder, Err: errors.New("the process that was to keep the terminal has ended without a word")}

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

// terminalRow is a terminal as --json prints it.
type terminalRow struct {
	ID       string       `json:"id"`
	Session  string       `json:"session"`
	State    string       `json:"state"` // "running", "ended", "lost", or "silent": its holder does not answer
	Reason   exec.Reason  `json:"reason,omitempty"`
	ExitCode *int         `json:"exitCode"` // null unless exited
	Signal   string       `json:"signal,omitempty"`
	Cols     int          `json:"cols"`
	Rows     int          `json:"rows"`
	Started  time.Time    `json:"started,omitzero"`
	Command  string       `json:"command"`
	Error    *serve.Error `json:"error,omitempty"` // of one that is lost

	signal int
}

// heldTerminal is a terminal as its holder describes it.
type heldTerminal struct {
	Session  string       `json:"session"`
	Command  string       `json:"command"`
	Started  time.Time    `json:"started"`
	Cols     int          `json:"cols"`
	Rows     int          `json:"rows"`
	State    string       `json:"state"`
	Reason   exec.Reason  `json:"reason"`
	ExitCode *int         `json:"exitCode"`
	Signal   int          `json:"signal"`
	Error    *serve.Error `json:"error"`
}

func (t heldTerminal) row(id string) terminalRow {
	row := terminalRow{
		ID: id, Session: t.Session, State: t.State, Reason: t.Reason, ExitCode: t.ExitCode, Cols: t.Cols, Rows: t.Rows,
		Started: t.Started, Command: t.Command, Error: t.Error, signal: t.Signal,
	}
	if t.Signal != 0 {
		row.Signal = signalName(t.Signal)
	}
	return row
}

// exit is how it has ended, for a table.
func (r terminalRow) exit() string {
	switch {
	case r.ExitCode != nil:
		return fmt.Sprint(*r.ExitCode)
	case r.Signal != "":
		return r.Signal
	case r.Reason != "":
		return string(r.Reason)
	}
	return "-"
}

// status is how its command has ended.
func (r terminalRow) status() exec.Status {
	st := exec.Status{Reason: r.Reason, Signal: r.signal}
	if r.ExitCode != nil {
		st.Code = *r.ExitCode
	}
	return st
}

// terminalRows asks all holders. Those that have died are not in it.
func terminalRows(ctx context.Context, dir string) ([]terminalRow, error) {
	ids, err := terminalIDs(dir)
	if err != nil {
		return nil, err
	}
	rows := make([]terminalRow, len(ids))
	var asked sync.WaitGroup
	for i, id := range ids {
		asked.Go(func() {
			row, err := describeTerminal(ctx, dir, id)
			e, ok := errors.AsType[*exec.Error](err)
			switch {
			case err == nil:
				rows[i] = row
			case ok && e.Cause == causeNoAnswer:
				rows[i] = terminalRow{ID: id, State: "silent"}
			}
		})
	}
	asked.Wait()
	rows = slices.DeleteFunc(rows, func(r terminalRow) bool { return r.ID == "" }) // it has ended meanwhile
	slices.SortFunc(rows, func(x, y terminalRow) int { return x.Started.Compare(y.Started) })
	return rows, ctx.Err()
}

func describeTerminal(ctx context.Context, dir, id string) (terminalRow, error) {
	c, err := dialTerminal(ctx, dir, id)
	if err != nil {
		return terminalRow{}, err
	}
	defer c.close() //nolint:errcheck // all was said
	var list struct {
		Terminals []heldTerminal `json:"terminals"`
	}
	if err := c.call(ctx, lookTime, "pty/list", nil, &list); err != nil {
		return terminalRow{}, err
	}
	if len(list.Terminals) != 1 {
		return terminalRow{}, fmt.Errorf("terminal %s: %w", id, errUnknownTerminal)
	}
	return list.Terminals[0].row(id), nil
}

func (a *app) ptyListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the terminals that are kept on this machine",
		Example: "  sandboxbash pty ls\n  sandboxbash pty ls --json --session 0199 | jq -r '.[].id'",
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, "session.id", "json", "quiet")
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeSessions)
	cmd.RunE = a.does(func(ctx context.Context, _ []string) error {
		dir, err := a.terminalDir()
		if err != nil {
			return err
		}
		if err := a.prune(ctx, dir); err != nil {
			return err
		}
		rows, err := terminalRows(ctx, dir)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(r terminalRow) bool { return !strings.HasPrefix(r.Session, a.cfg.Session.ID) })
		if a.cfg.JSON {
			if rows == nil {
				rows = []terminalRow{}
			}
			return printJSON(a.stdout, rows)
		}
		return a.table("ID\tSESSION\tSTATE\tEXIT\tSIZE\tAGE\tCOMMAND", func(w io.Writer) {
			for _, r := range rows {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%dx%d\t%s\t%s\n", r.ID, r.Session, r.State, r.exit(), r.Cols, r.Rows,
					age(r.Started, time.Now()), a.safe(r.Command))
			}
		})
	})
	return cmd
}

// endTerminals ends the terminals of a session that is about to end, so that nothing
// of them is left behind it. What of that fails their holders do soon after.
func (a *app) endTerminals(ctx context.Context, sessions *sandbox.Engine, id string) {
	dir, err := a.terminalDir()
	if err != nil {
		return
	}
	rows, err := terminalRows(ctx, dir)
	if err != nil || len(rows) == 0 {
		return
	}
	info, err := sessions.Show(ctx, id)
	if err != nil {
		return
	}
	for _, r := range rows {
		if r.Session == info.ID {
			_, _ = endTerminal(ctx, dir, r.ID)
		}
	}
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
