package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// busyPause is the pause between two tries while other commands use all slots or all
// processes of the session.
const busyPause = 200 * time.Millisecond

// pause waits between two tries. It reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// open opens the terminal and starts the command on it.
func (t *Terminal) open(ctx context.Context, opts TerminalOptions) error {
	command := t.session.command(t.command)
	if !hasName(t.command.Env, "TERM") {
		command.Env = overlay(command.Env, []string{"TERM=" + t.session.term(ctx, opts.Terms)})
	}
	for {
		err := t.tryOpen(ctx, command)
		e, _ := errors.AsType[*exec.Error](err)
		switch {
		case e == nil:
			return err
		case !t.result.Room && t.session.makeRoom(ctx, err):
			t.result.Room = true
			continue
		case e.Cause == exec.CauseEngine:
			return t.session.diagnose(ctx, e)
		case e.Cause != exec.CauseBusy || command.Exclusive:
			return err
		}
		if !pause(ctx, busyPause) {
			return &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: context.Cause(ctx)}
		}
	}
}

func (t *Terminal) tryOpen(ctx context.Context, command exec.Command) error {
	s := t.session
	helper := s.attend(ctx, command.Exclusive)
	if err := exec.AwaitAttendant(ctx, helper); err != nil {
		return err
	}
	size := t.screen.Snapshot().Size
	stream, err := s.engine.backend.Open(ctx, s.handle, engine.Exec{
		Args: append([]string{engine.RunnerPath}, wire.VerbPTY.Command()...), User: "0:0", TTY: true, Rows: uint(size.Rows), Cols: uint(size.Cols),
	})
	if err != nil {
		helper.close()
		return &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseEngine, Err: err}
	}
	term, err := exec.GreetTerminal(ctx, stream)
	if err != nil {
		helper.close()
		return err
	}
	t.term, t.stream = term, stream
	// Some engines ignore the size at the start. The command has not started yet, so it
	// never sees another size.
	_ = t.resize(ctx, size) // a terminal of another size is better than none
	return term.Start(ctx, helper, command)
}

func hasName(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}

// defaultTerm is the TERM of package screen. Nearly every terminal of today supports it.
const defaultTerm = "xterm-256color"

// lastTerm is the TERM for images without descriptions of terminals. Programs that bring
// their own descriptions know it.
const lastTerm = "xterm"

// term chooses a value for TERM. It does not wait in the queue.
func (s *Session) term(ctx context.Context, wanted []string) string {
	var known bytes.Buffer
	l := s.info.labels
	st, err := s.pool.Aside(ctx, exec.Command{
		Path: engine.RunnerPath, Args: wire.VerbTerms.Command(), Env: l.environment(), Dir: "/", UID: l.User.UID, GID: l.User.GID,
		Stdin:  bytes.NewReader(wire.AppendTerms(nil, append(slices.Clone(wanted), defaultTerm, lastTerm))),
		Stdout: &limited{w: &known, left: maxHelperOutput}, Stderr: io.Discard, Timeout: helperTime,
	})
	if names := wire.ParseTerms(known.Bytes()); err == nil && st.Code == 0 && len(names) > 0 {
		return names[0]
	}
	return lastTerm
}

// attendant is the host's end of `runner attend`.
type attendant struct {
	io.Reader
	io.Writer
	close func()
}

func (a *attendant) Close() error {
	a.close()
	return nil
}

// attend starts `runner attend` as a command, which uses the slot of the terminal. It ends
// when it is closed and when its runner ends, at the latest with this process.
func (s *Session) attend(ctx context.Context, exclusive bool) *attendant {
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var stderr tail
	command := exec.Command{
		Path: engine.RunnerPath, Args: wire.VerbAttend.Command(), Env: s.info.labels.environment(), Dir: "/",
		Stdin: in, Stdout: out, Stderr: &stderr, Exclusive: exclusive,
	}
	go func() { // ends with the runner's program
		defer cancel()
		st, err := s.pool.Run(ctx, command)
		if err == nil && st.Code != 0 {
			err = errors.New(strings.TrimSpace(stderr.String()))
		}
		_ = in.Close() // a pipe's never fails
		_ = out.CloseWithError(err)
	}()
	return &attendant{Reader: fromOut, Writer: toIn, close: func() {
		_ = toIn.Close()
		_ = fromOut.Close() // nothing reads it any more
		cancel()            // it may still be in the queue
	}}
}

// Resize sets the size of the terminal. It is a no-op once the command has ended.
func (t *Terminal) Resize(ctx context.Context, size screen.Size) error {
	t.screen.Resize(size)
	return t.resize(ctx, t.screen.Snapshot().Size)
}

func (t *Terminal) resize(ctx context.Context, size screen.Size) error {
	err := t.stream.Resize(ctx, uint(size.Rows), uint(size.Cols))
	select {
	case <-t.done: // some engines have other words for it
		return nil
	default:
	}
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrNotRunning) {
		return nil
	}
	return err
}
