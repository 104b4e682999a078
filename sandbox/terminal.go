package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sink"
)

// TerminalOptions describe the terminal of a command. The zero value is valid.
type TerminalOptions struct {
	Size screen.Size // 0 by 0: 80 by 24
	// Terms are values for TERM, in order of preference. The first that the image
	// describes is used, or xterm-256color. A TERM in the command's Env overrides them.
	Terms []string
	// Live gets every byte that the terminal shows, as it arrives. It is the user's own
	// terminal: nothing is masked, and it answers the queries that programs send to a
	// terminal. Without a Live the Terminal answers them. A Write that blocks also blocks
	// the command. It must not block for long after the command was killed.
	Live io.Writer
	// Held has nothing of the output read before the first call of Attach, so that the user
	// gets all of it. A command that ends before that waits for it for 10 s.
	Held bool
}

// Terminal is a command on a terminal of its own. It is safe for concurrent use.
// What the command shows is read at once, whether the caller reads it or not.
type Terminal struct {
	session *Session
	command Command
	term    *exec.Terminal
	stream  engine.Stream
	out     *sink.Sink
	screen  *screen.Screen
	end     context.CancelCauseFunc // kills the command
	hurry   atomic.Bool             // the command has ended: do not draw the rest
	replies chan struct{}           // a token: the screen has answers to send
	writing sync.Mutex              // one write at a time

	mu       sync.Mutex
	bytes    int64         // guarded by mu; shown so far
	lastRead time.Time     // guarded by mu: when output last came
	lastSent time.Time     // guarded by mu: when input was last sent
	changed  chan struct{} // guarded by mu; closed and replaced when something is shown

	// showing is held while a piece of output is shown, although a user's terminal may block
	// that: what is shown to the next user begins where the screen ends.
	showing sync.Mutex
	live    *viewer         // guarded by showing; nil: this Terminal answers queries
	seen    context.Context //nolint:containedctx // ends when no viewer is waited for any more
	unsee   context.CancelFunc
	begin   func()        // has the output read; may be called more than once
	begun   chan struct{} // closed by begin

	done   chan struct{} // closed when all is over
	result Result        // set before done is closed
	err    error         // set before done is closed
}

// Terminal starts a command on a terminal and returns when it has started. The caller must
// call Wait. The command ends by itself, or it is killed at its Timeout, when ctx ends, or by
// Kill. A kill also ends everything that the command has started in the background.
// Terminal ignores c.Stdin, c.Job and c.Output.Streams, because a terminal has one stream in
// each direction. Errors are those of Run.
func (s *Session) Terminal(ctx context.Context, c Command, opts TerminalOptions) (*Terminal, error) {
	res := Result{Session: s.ID()}
	over, err := s.admit(ctx, &c, ModeTerminal, &res)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	t := &Terminal{
		session: s, command: c, end: end, screen: screen.New(opts.Size), begun: make(chan struct{}),
		replies: make(chan struct{}, 1), changed: make(chan struct{}), done: make(chan struct{}),
		result: res,
	}
	t.seen, t.unsee = context.WithCancel(context.WithoutCancel(ctx))
	t.begin = sync.OnceFunc(func() { close(t.begun) })
	if !opts.Held {
		t.begin()
	}
	if opts.Live != nil {
		t.live = &viewer{show: func(_ context.Context, p []byte) error {
			_, err := opts.Live.Write(p)
			return err
		}, lost: end}
	}
	c.Output.Streams, c.Output.LiveStderr = sink.Merged, nil
	c.Output.Text.Return = sink.NewlineReturn
	c.Output.OnLimit = func() { end(exec.ErrOutputLimit) }
	released, release := context.WithCancel(context.WithoutCancel(ctx))
	c.Output.Release = released.Done()
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(cmp.Or(s.engine.opts.Grace, exec.DefaultGrace)/2, release)
	})
	if t.out, err = s.sink(c.Output); err == nil {
		if c.Watch != nil {
			c.Watch(t.out)
		}
		err = t.open(ctx, opts)
	}
	if err != nil {
		stop()
		release()
		end(nil)
		t.unsee()
		if t.out != nil {
			t.out.Close()
		}
		err = fmt.Errorf("session %s: %w", s.ID(), ptyError(err))
		over(t.result, err)
		return nil, err
	}
	go func() {
		defer close(t.done)
		defer func() { over(t.result, t.err) }()
		defer release()
		defer stop()
		defer end(nil)
		defer t.unsee()
		t.run(ctx)
	}()
	return t, nil
}

// ptyError marks an error of the terminal itself. It leaves other errors as they are without
// a terminal.
func ptyError(err error) error {
	e, ok := errors.AsType[*exec.Error](err)
	if !ok {
		return fmt.Errorf("PTY error: %w", err)
	}
	switch e.Cause { //nolint:exhaustive // the others are the terminal's
	case exec.CauseDirMissing, exec.CauseNotDir, exec.CauseDirDenied, exec.CauseNoShell, exec.CauseTooBig, exec.CauseBusy, exec.CauseCancelled:
		return err
	}
	return &exec.Error{Outcome: e.Outcome, Cause: e.Cause, Err: fmt.Errorf("PTY error: %w", e.Err)}
}

// run reads the terminal and waits for the end.
func (t *Terminal) run(ctx context.Context) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		t.read()
	}()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		t.answer(read)
	}()
	timed := ctx
	if t.command.Timeout > 0 {
		var cancel context.CancelFunc
		timed, cancel = context.WithTimeoutCause(ctx, t.command.Timeout, exec.ErrTimeout)
		defer cancel()
	}
	began := time.Now()
	st, err := t.term.Wait(timed, t.session.engine.opts.Grace)
	if err == nil {
		t.drain(timed, read)
	}
	t.term.Close()
	t.begin()
	t.unsee() // a user who does not read does not hold up the end
	<-read
	<-answered
	res := &t.result
	res.Killed = rungs[st.Rung]
	if err == nil {
		st.Code, err = t.exitCode(timed, st)
	}
	if err != nil {
		losses := t.session.losses.Load()
		st, res.Killed, err = t.session.recover(ctx, err)
		res.WorkspaceLost = t.session.losses.Load() != losses
		st.Elapsed = time.Since(began)
	}
	st.Stdout, _ = t.shown()
	if res.Status, res.Full = st, t.session.info.labels.full(st.NoRoom); st.Reason == exec.OOMKilled {
		res.MemoryLimit = t.session.info.Limits.Memory
	}
	if err != nil {
		err = ptyError(err)
		t.note(err)
		t.err = fmt.Errorf("session %s: %w", t.session.ID(), err)
	}
	res.Output = t.out.Close()
}

// note writes an error into the output, on a line of its own.
func (t *Terminal) note(err error) {
	text := err.Error()
	if e, ok := errors.AsType[*exec.Error](err); ok {
		text = e.Err.Error()
	}
	if n, _ := t.shown(); n > 0 {
		text = "\r\n" + text
	}
	_, _ = io.WriteString(t.out.Stdout(), text+"\r\n")
}

const (
	// drainTime is how long to wait for output after the command has ended, if the
	// terminal's stream does not end. Usually it ends at once.
	drainTime = time.Second
	// heldTime is how long the output of a Held terminal waits for its user.
	heldTime = 10 * time.Second
	// drawTime is how long such output is still drawn on the screen. A flood is skipped, but
	// hostile sequences can cost a millisecond each.
	drawTime     = 5 * time.Second
	drawTimeKill = 500 * time.Millisecond // after a kill
)

// drain waits until all output is read. If the command ended by itself, drain waits as long
// as there is more. After a kill it waits for drainTime.
func (t *Terminal) drain(ctx context.Context, read <-chan struct{}) {
	patience := drawTime
	if ctx.Err() != nil {
		patience = drawTimeKill
	}
	draw := time.AfterFunc(patience, func() { t.hurry.Store(true) })
	defer draw.Stop()
	held := time.NewTimer(heldTime)
	defer held.Stop()
	select {
	case <-t.begun:
	case <-ctx.Done():
	case <-held.C:
	}
	t.begin()
	for {
		before, _ := t.shown()
		select {
		case <-read:
			return
		case <-time.After(drainTime):
		}
		if after, _ := t.shown(); after == before || ctx.Err() != nil {
			return
		}
	}
}

// exitTime is how long the engine may take to report the exit code. Usually it takes a few
// milliseconds.
const exitTime = time.Second

// exitCode returns the exit code that the engine reports. If the engine does not know it,
// exitCode returns an error.
func (t *Terminal) exitCode(ctx context.Context, st exec.Status) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitTime)
	defer cancel()
	code, err := t.stream.ExitCode(ctx)
	switch {
	case err != nil:
		return 0, &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseEngine, Err: err}
	case st.Signal != 0:
		return 0, nil
	}
	return code, nil
}

// Kill ends the command and everything that it has started, as the end of the context does.
// It does not wait for them to end.
func (t *Terminal) Kill() { t.end(context.Canceled) }

// Done returns a channel that is closed when the command has ended and all of its output has
// been read.
func (t *Terminal) Done() <-chan struct{} { return t.done }

// Wait waits for the command to end and returns the same as Run, except that the output is
// one stream, the text of what the terminal showed. An error of the terminal is also the
// last line of that text, as "PTY error: …". Wait may be called more than once.
func (t *Terminal) Wait() (Result, error) {
	<-t.done
	return t.result, t.err
}
