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

// TerminalOptions say what kind of terminal a command gets. Zero values are
// defaults.
type TerminalOptions struct {
	Size screen.Size // 0 by 0: 80 by 24
	// Terms are values for TERM, the best first: the first that the image knows is
	// taken, then xterm-256color. A TERM in the command's Env wins.
	Terms []string
	// Live gets what the terminal shows as it comes, byte for byte: it is a
	// person's own terminal, and nothing is masked in it. It answers what programs
	// ask of a terminal, so that without a Live the Terminal itself does. While it
	// blocks, so does the command; it must not for long after the command has been
	// killed.
	Live io.Writer
}

// Terminal is a command on a terminal of its own. It is safe for concurrent use.
// What the command shows is read at once, whether the caller reads it or not.
type Terminal struct {
	session *Session
	command Command
	live    io.Writer // the reader's; nil once it has failed
	draws   bool      // there is no other terminal that answers what the program asks
	term    *exec.Terminal
	stream  engine.Stream
	out     *sink.Sink
	screen  *screen.Screen
	end     context.CancelCauseFunc // kills the command
	hurry   atomic.Bool             // it has ended: what is left is not worth drawing
	replies chan struct{}           // a token: the screen owes an answer
	writing sync.Mutex              // one write at a time

	mu       sync.Mutex
	bytes    int64         // guarded by mu; shown so far
	lastRead time.Time     // guarded by mu; time of the last output
	lastSent time.Time     // guarded by mu; time of the last input
	changed  chan struct{} // guarded by mu; closed and replaced when something is shown

	done   chan struct{} // closed when all is over
	result Result        // set before done is closed
	err    error         // set before done is closed
}

// Terminal starts a command on a terminal and returns when it has been started.
// It ends by itself, at its Timeout, with ctx, or by Kill, and everything that it
// has started in the background with it unless it ended by itself. Wait must be
// called. The command's Stdin, Job and Output.Streams are not heeded: there is one
// stream both ways. Errors are those of Run.
func (s *Session) Terminal(ctx context.Context, c Command, opts TerminalOptions) (*Terminal, error) {
	res := Result{Session: s.ID()}
	over, err := s.admit(ctx, &c, ModeTerminal, &res)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	t := &Terminal{
		session: s, command: c, live: opts.Live, draws: opts.Live == nil, end: end, screen: screen.New(opts.Size),
		replies: make(chan struct{}, 1), changed: make(chan struct{}), done: make(chan struct{}),
		result: res,
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
		t.run(ctx)
	}()
	return t, nil
}

// ptyError marks what goes wrong with the terminal itself. What is wrong with the
// command is said as it is without one.
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
	res.Status, res.Full = st, t.session.info.labels.full(st.NoRoom)
	if err != nil {
		err = ptyError(err)
		t.note(err)
		t.err = fmt.Errorf("session %s: %w", t.session.ID(), err)
	}
	res.Output = t.out.Close()
}

// note puts an error where the output is: at the start of a line.
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
	// drainTime is how long a terminal may show nothing, after the end of its
	// command, before it is given up. As a rule it ends at once.
	drainTime = time.Second
	// drawTime is how long what it does show is still drawn on the screen: a flood
	// is skipped, but sequences can be made to cost a millisecond each.
	drawTime     = 5 * time.Second
	drawTimeKill = 500 * time.Millisecond // of a command that was killed
)

// drain waits until all that the command has written is read: without end after
// its own end, as long as there is more; for drainTime after a kill.
func (t *Terminal) drain(ctx context.Context, read <-chan struct{}) {
	patience := drawTime
	if ctx.Err() != nil {
		patience = drawTimeKill
	}
	draw := time.AfterFunc(patience, func() { t.hurry.Store(true) })
	defer draw.Stop()
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

// exitTime is how long the engine may take to note how a command has ended. As a rule
// that is a few milliseconds.
const exitTime = time.Second

// exitCode is the exit code as the engine reports it. An engine that does not know it
// gives an error, never a 0.
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

// Kill ends the command and everything it has started, as the end of the context
// would. It does not wait for it.
func (t *Terminal) Kill() { t.end(context.Canceled) }

// Done is closed when the command has ended and all of its output is there.
func (t *Terminal) Done() <-chan struct{} { return t.done }

// Wait waits for the command's end and returns what Run would, except that the
// output is in one stream: what the terminal showed, as text. An error of the
// terminal also is the last line of that, as "PTY error: …". It may be called more
// than once.
func (t *Terminal) Wait() (Result, error) {
	<-t.done
	return t.result, t.err
}
