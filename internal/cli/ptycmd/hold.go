package ptycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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

// handover is what the holder of a terminal reads from its starter.
type handover struct {
	holder.Handover

	Session string      `json:"session"`
	Script  string      `json:"script"`
	Args    []string    `json:"args"`
	Size    screen.Size `json:"size"`

	// The rest is for a terminal that its starter attaches to.
	Held   bool     `json:"held"`   // see sandbox.TerminalOptions
	Terms  []string `json:"terms"`  // see sandbox.TerminalOptions
	Prompt string   `json:"prompt"` // PS1, unless the user sets one
}

// maxHandover is how long a handover may be: the largest script, as JSON may have to
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
	var h handover
	in, err := holder.ReadHandover(c.streams.Stdin, maxHandover, &h, "pty start")
	if err != nil {
		return err
	}
	if err := c.cfg.TakeOver(cmd, h.Handover); err != nil {
		return c.notes.Answer(nil, err)
	}
	return c.hold(cmd.Context(), &keeper{holdCommand: c, id: id, timeout: c.cfg.LastingTimeout(cmd)}, h, in)
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
		return c.notes.Answer(nil, err)
	}
	defer func() {
		end(nil)
		_, _ = k.terminal.Wait() // its outcome was given to those that asked
	}()
	row := k.row()
	if err := c.notes.Answer(&row, nil); err != nil {
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
	listener *holder.Listener
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
	if h.Prompt != "" {
		command.Script = withPrompt(command.Script, h.Prompt, command.Env)
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
	if k.listener, err = holder.Listen(dir, k.id); err != nil {
		return err
	}
	if k.terminal, err = session.Terminal(ctx, command, sandbox.TerminalOptions{Size: h.Size, Terms: h.Terms, Held: h.Held}); err != nil {
		return err
	}
	k.session, k.started, k.command = session.ID(), time.Now(), k.streams.Name(stdio.OneLine(h.Script))
	k.holder = serve.NewHolder(serve.HeldTerminal{
		Terminal: k.terminal, ID: k.id, Session: k.session, Command: k.command, Version: core.Build(k.version).Version,
	})
	return k.listener.Publish()
}

func (k *keeper) row() holder.Row {
	size := k.terminal.Screen().Size
	return holder.Row{ID: k.id, Session: k.session, State: "running", Cols: size.Cols, Rows: size.Rows, Started: k.started.UTC(), Command: k.command}
}

// close lets go of all. It may be called before all is there.
func (k *keeper) close() {
	if k.listener != nil {
		k.listener.Close()
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
	served := make(chan struct{})
	go func() {
		defer close(served)
		k.listener.Accept(ctx, k.holder.Serve)
	}()
	k.wait(ctx)
	k.listener.Close()
	answering, cancel := context.WithTimeout(ctx, goodbye)
	k.holder.Rest(answering)
	cancel()
	end()
	k.terminal.Kill() // what is being typed ends with it
	<-served
}

// Times between two looks.
const (
	longestLook = 2 * time.Second  // at whether the terminal still has a user
	sessionLook = 30 * time.Second // at whether an ended terminal's session is still there
)

// wait returns when the terminal is not needed any more: it was ended or lost, its
// time is over, its socket was removed, or its session.
func (k *keeper) wait(ctx context.Context) {
	idle := k.cfg.Idle()
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
			if k.listener.Removed() || k.holder.Idle() > idle {
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

// withPrompt returns a script that has PS1 in its environment: that of env, or else prompt. A shell
// that is not interactive, as the one that runs the script, takes none from its own environment.
func withPrompt(script, prompt string, env []string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PS1="); ok {
			prompt = value
		}
	}
	return "PS1='" + strings.ReplaceAll(prompt, "'", `'\''`) + "'; export PS1; " + script
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
