package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
)

// terminals are the engine's calls on an exec with a terminal.
type terminals interface {
	Exec(ctx context.Context, id engine.ExecID) (engine.ExecState, error)
	ResizeExec(ctx context.Context, id engine.ExecID, rows, cols uint) error
}

// Terminal is a command on a terminal of its own. What it shows is the command's
// bytes as they are: nothing is scrubbed, made safe or kept. It is for a person.
type Terminal struct {
	*exec.Terminal
	session *Session
	exec    engine.ExecID
}

// Terminal starts a command on a terminal of rows and cols characters. Of c it
// takes Script, Args, Shell, Env, Dir and Exclusive. The caller closes the
// Terminal, and ends the command if it must not outlive that.
func (s *Session) Terminal(ctx context.Context, c Command, rows, cols uint) (*Terminal, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if allowed := s.engine.opts.Policy; allowed != nil {
		if err := allowed(ctx, c.Script); err != nil {
			return nil, err
		}
	}
	stream, err := s.engine.docker.OpenExec(ctx, s.container, engine.Exec{
		Args: []string{runnerPath, "pty"}, User: "0:0", TTY: true, Rows: rows, Cols: cols,
	})
	if err != nil {
		return nil, fmt.Errorf("session %s: terminal: %w", s.ID(), err)
	}
	t, err := exec.OpenTerminal(ctx, stream, s.command(c))
	if err != nil {
		return nil, fmt.Errorf("session %s: terminal: %w", s.ID(), err)
	}
	return &Terminal{Terminal: t, session: s, exec: stream.ID()}, nil
}

// Resize tells the terminal its new size. Of a command that has ended it is no
// error.
func (t *Terminal) Resize(ctx context.Context, rows, cols uint) error {
	err := t.session.engine.docker.ResizeExec(ctx, t.exec, rows, cols)
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrNotRunning) {
		return nil
	}
	return err
}

// Kill ends the command and everything it has started.
func (t *Terminal) Kill(ctx context.Context) error {
	return t.session.helperAs(ctx, User{}, helperStreams{timeout: helperTime}, "end", strconv.Itoa(t.PID()))
}

// exitPoll is between two looks at whether the engine has noted an end.
const exitPoll = 20 * time.Millisecond

// Wait waits for the command's end, after Read has returned io.EOF, and returns
// its exit code by the engine's word: 128+n for a signal. An engine that does
// not know says so by an error, never by a 0.
func (t *Terminal) Wait(ctx context.Context) (int, error) {
	for {
		state, err := t.session.engine.docker.Exec(ctx, t.exec)
		if err != nil {
			return 0, &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseEngine, Err: err}
		}
		if !state.Running && state.ExitCode != nil {
			return *state.ExitCode, nil
		}
		select {
		case <-time.After(exitPoll):
		case <-ctx.Done():
			return 0, &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseCancelled, Err: context.Cause(ctx)}
		}
	}
}
