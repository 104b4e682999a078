package ptycmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// handover is the line that the holder of a terminal reads from its standard
// input: nothing of it is in its arguments, in its environment or in a file.
type handover struct {
	Environ []string    `json:"environ"`
	Flags   []string    `json:"flags"`
	Session string      `json:"session"`
	Script  string      `json:"script"`
	Args    []string    `json:"args"`
	Size    screen.Size `json:"size"`
}

// handoverAnswer is what it says to that, a line too. The starter that has read it sends one more
// byte: without that byte no process knows of the terminal, and it ends.
type handoverAnswer struct {
	Terminal *holder.Row    `json:"terminal,omitempty"`
	Notes    []string       `json:"notes,omitempty"`
	Error    *handoverError `json:"error,omitempty"`
}

// handoverError is a holder's error, with what it means.
type handoverError struct {
	Message string       `json:"message"`
	Status  int          `json:"status"`
	Outcome exec.Outcome `json:"outcome"`
	Cause   string       `json:"cause"`
	Todo    string       `json:"todo"`
}

func (e *handoverError) Error() string { return e.Message }

// Verdict is what the holder has made of it.
func (e *handoverError) Verdict() exit.Verdict {
	return exit.Verdict{Status: e.Status, Outcome: e.Outcome, Cause: e.Cause, Todo: e.Todo}
}

// maxHandover is how long that line may be: the largest script, as JSON may have to
// write it, an environment and a command line.
const maxHandover = 80 << 20 // bytes

// holdFlags are those of what runs on a terminal.
var holdFlags = []string{
	"timeout", "grace", "run.cwd", "env.set", "env.unsafe", "shell", "output.limit", "pty.unattended", "pty.size", "session.idle", "artifacts.mode", "json", "quiet",
}

// holdCommand is the process that keeps a terminal.
type holdCommand struct {
	version    string // of this program
	streams    *stdio.Streams
	env        *core.Environment
	cfg        *core.Configuration
	notes      *core.Notes
	secrets    *core.Secrets
	connection *core.Connection
}

func newHoldCommand(p *core.Parts) *cobra.Command {
	c := &holdCommand{
		version: p.Version, streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, connection: p.Connection,
	}
	cmd := &cobra.Command{
		Use: "hold ID", Hidden: true, Short: "Keep a terminal (started by `pty start`)",
		Example: "  sandboxbash pty start 0199 -- vi",
		Args:    flags.Args(1, 1, "the id of a terminal"),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	flags.Add(cmd, holdFlags...)
	return cmd
}

func (c *holdCommand) run(cmd *cobra.Command, id string) error {
	in := bufio.NewReader(io.LimitReader(c.streams.Stdin, maxHandover))
	line, err := in.ReadBytes('\n')
	var h handover
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err != nil {
		return exit.Misuse("start a terminal with `sandboxbash pty start`", "there is no handover on standard input: %v", err)
	}
	c.env.Use(h.Environ)
	err = cmd.ParseFlags(h.Flags)
	if err == nil {
		err = c.cfg.Load(cmd)
	}
	if err == nil {
		err = os.Chdir("/") // what it was started in may go
	}
	if err != nil {
		return c.answer(handoverAnswer{}, err)
	}
	c.notes.Restart() // the starter has loaded the same and shows those so far
	return c.hold(cmd.Context(), &keeper{holdCommand: c, id: id, timeout: c.cfg.TerminalTimeout(cmd)}, h, in)
}

// answer tells the starter, who alone says what is wrong.
func (c *holdCommand) answer(answer handoverAnswer, err error) error {
	answer.Notes = c.notes.Gathered()
	if err != nil {
		v := exit.Judge(err)
		answer.Error = &handoverError{Message: c.streams.Scrub(exit.Words(err)), Status: v.Status, Outcome: v.Outcome, Cause: v.Cause, Todo: v.Todo}
		return errors.Join(stdio.PrintJSON(c.streams.Stdout, answer), exit.StatusError(v.Status))
	}
	return stdio.PrintJSON(c.streams.Stdout, answer)
}

// hold keeps a terminal from its start to its end.
func (c *holdCommand) hold(ctx context.Context, k *keeper, h handover, in io.Reader) error {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	starter := watchStarter(in, end)
	defer k.close()
	if err := k.open(life, h); err != nil {
		if life.Err() != nil {
			err = context.Cause(life)
		}
		return c.answer(handoverAnswer{}, err)
	}
	defer func() {
		end(nil)
		_, _ = k.terminal.Wait() // its outcome was given to those that asked
	}()
	row := k.row()
	if err := c.answer(handoverAnswer{Terminal: &row}, nil); err != nil {
		return err
	}
	select {
	case known := <-starter:
		if !known {
			return errStarterGone
		}
	case <-life.Done():
		return context.Cause(life)
	}
	k.serve(life)
	return nil
}

// errStarterGone is the cause of the end of a terminal that no process knows of.
var errStarterGone = errors.New("the process that started the terminal has gone")

// watchStarter tells whether the starter knows of the terminal. If it goes before,
// that ends everything.
func watchStarter(in io.Reader, end context.CancelCauseFunc) <-chan bool {
	known := make(chan bool, 1)
	go func() { // standard input ends with its other side, at the latest
		n, _ := in.Read(make([]byte, 1))
		if n == 0 {
			end(errStarterGone)
		}
		known <- n > 0
	}()
	return known
}

// keeper is a holder's terminal and its socket.
type keeper struct {
	*holdCommand

	id       string
	timeout  time.Duration // 0: none
	sessions *sandbox.Engine
	session  string
	terminal *sandbox.Terminal
	holder   *serve.Holder
	listener *net.UnixListener
	path     string // of the socket; "" before it has its name
	started  time.Time
	command  string
}

// open starts the command on a terminal, and listens.
func (k *keeper) open(ctx context.Context, h handover) error {
	dir, err := holder.Dir(k.env)
	if err != nil {
		return err
	}
	if err := k.secrets.Ready(); err != nil {
		return err
	}
	command := sandbox.Command{
		Script: h.Script, Args: h.Args, Shell: k.cfg.Shell, Env: k.secrets.CommandEnv(), Dir: k.cfg.Run.Dir, Timeout: k.timeout, Output: k.cfg.OutputOptions(),
	}
	if k.cfg.PTY.Unattended {
		command.Env = append(runcmd.Unattended(), command.Env...)
	}
	rules, err := k.connection.Admit(command)
	if err != nil {
		return err
	}
	if k.sessions, err = k.connection.Sessions(ctx, nil, rules); err != nil {
		return err
	}
	session, err := k.sessions.Open(ctx, h.Session)
	if err != nil {
		return err
	}
	began := filepath.Join(dir, k.id+holder.NewSuffix)
	if k.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: began, Net: "unix"}); err != nil {
		return err
	}
	k.listener.SetUnlinkOnClose(false)
	k.path = began
	if err := os.Chmod(began, 0o600); err != nil {
		return err
	}
	if k.terminal, err = session.Terminal(ctx, command, sandbox.TerminalOptions{Size: h.Size}); err != nil {
		return err
	}
	k.session, k.started, k.command = session.ID(), time.Now(), k.streams.Name(stdio.OneLine(h.Script))
	k.holder = serve.NewHolder(serve.HeldTerminal{
		Terminal: k.terminal, ID: k.id, Session: k.session, Command: k.command, Version: core.Build(k.version).Version,
	})
	path := filepath.Join(dir, k.id+holder.SocketSuffix)
	if err := os.Rename(began, path); err != nil {
		return err
	}
	k.path = path
	return nil
}

func (k *keeper) row() holder.Row {
	size := k.terminal.Screen().Size
	return holder.Row{ID: k.id, Session: k.session, State: "running", Cols: size.Cols, Rows: size.Rows, Started: k.started.UTC(), Command: k.command}
}

// close lets go of all. It may be called before all is there.
func (k *keeper) close() {
	if k.path != "" {
		_ = os.Remove(k.path) // it may be gone
	}
	if k.listener != nil {
		_ = k.listener.Close() // it is not used any more
	}
	if k.sessions != nil {
		_ = k.sessions.Close(context.Background()) // it only lets go
	}
}

const (
	// endedIdle is how long the end of a command is kept without a request.
	endedIdle = 10 * time.Minute
	// goodbye is how long answers may take that are under way at the end.
	goodbye = time.Second
)

// serve takes clients until the terminal is not needed any more.
func (k *keeper) serve(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var clients sync.WaitGroup
	clients.Go(func() { k.accept(ctx, &clients) })
	k.wait(ctx)
	_ = os.Remove(k.path) // no new client finds it
	_ = k.listener.Close()
	answering, cancel := context.WithTimeout(ctx, goodbye)
	k.holder.Rest(answering)
	cancel()
	end()
	k.terminal.Kill() // what is being typed ends with it
	clients.Wait()
}

func (k *keeper) accept(ctx context.Context, clients *sync.WaitGroup) {
	places := make(chan struct{}, holder.MaxClients)
	for {
		conn, err := k.listener.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return
		default: // no descriptors, as a rule
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		clients.Go(func() {
			defer func() { <-places }()
			defer conn.Close() //nolint:errcheck // the client may have closed it
			if holder.CheckPeer(conn) == nil {
				_ = k.holder.Serve(ctx, conn, conn) // of a client that has gone there is nothing to tell
			}
		})
	}
}

// Times between two looks.
const (
	longestLook = 2 * time.Second  // at whether the terminal still has a user
	sessionLook = 30 * time.Second // at whether an ended terminal's session is still there
)

// wait returns when the terminal is not needed any more: it was ended or lost, its
// time is over, its socket was removed, or its session.
func (k *keeper) wait(ctx context.Context) {
	idle := k.cfg.Session.Idle
	look := time.NewTicker(min(longestLook, idle/4))
	defer look.Stop()
	done := k.terminal.Done()
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.holder.Forgotten():
			return
		case <-done:
			if _, err := k.terminal.Wait(); k.sessionLost(err) {
				return
			}
			done, idle = nil, min(idle, endedIdle)
			_ = k.sessions.Close(context.WithoutCancel(ctx)) // the session is as idle as its users leave it
		case <-look.C:
			if _, err := os.Lstat(k.path); err != nil || k.holder.Idle() > idle {
				return
			}
			if done == nil && time.Since(looked) > sessionLook {
				looked = time.Now()
				if _, err := k.sessions.Show(ctx, k.session); errors.Is(err, sandbox.ErrUnknownSession) {
					return
				}
			}
		}
	}
}

// sessionLost tells whether the terminal has ended because its session has.
func (k *keeper) sessionLost(err error) bool {
	e, ok := errors.AsType[*exec.Error](err)
	return ok && e.Outcome == exec.Lost
}

// parseSize reads a size such as 132x43.
func parseSize(text string) (screen.Size, error) {
	var s screen.Size
	var rest string
	if n, _ := fmt.Sscanf(text+" .", "%dx%d %s", &s.Cols, &s.Rows, &rest); n != 3 || rest != "." || s.Cols < 1 || s.Rows < 1 {
		return s, exit.Misuse("give columns and rows, as in 132x43", "size %q", text)
	}
	return s, nil
}
