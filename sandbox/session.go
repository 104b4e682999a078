package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Session is one agent's long-lived container. It is safe for concurrent use:
// up to 8 commands run at once, later ones wait in order.
type Session struct {
	engine  *Engine
	handle  engine.Handle
	info    Info
	pool    *exec.Pool
	notes   []string
	left    []string
	reading bool                          // it is a reader: see startReader
	spare   bool                          // it was prepared and not taken; cleared before it is
	kept    func() (*sink.Session, error) // artifacts, opened once

	resetting sync.Mutex // one reset at a time
	restarted *restarted
	raising   sync.Mutex     // one raise of the pids limit at a time
	holding   sync.WaitGroup // containers that hold the workspace over a reset
	losses    atomic.Int64   // resets that have lost a workspace in memory
	released  atomic.Bool    // this process has let go of it

	mu       sync.Mutex
	noted    map[string]bool // guarded by mu; tags of the jobs whose end was observed
	baseline string          // guarded by mu; see Baseline; "" is unknown
}

// ID returns the session's id.
func (s *Session) ID() string { return s.info.ID }

// Info describes the session as it was when it was opened.
func (s *Session) Info() Info { return s.info }

// Notes are what the owner of the session should know: what stood in for a
// default image, what a network reaches, what the engine cannot do.
func (s *Session) Notes() []string { return s.notes }

// LeftOut lists what a copied workspace was made without, because it looked like
// credentials.
func (s *Session) LeftOut() []string { return s.left }

// Result is how a command that ran has ended, and its output.
type Result struct {
	exec.Status
	Session string
	Output  sink.Output
	// Killed says how far the kill had to go: "" (it ended by itself), "int", "term",
	// "kill" (by the kernel's word nothing of it is left), "reset" (the container was started again; files of the
	// workspace kept) or "removed" (the session is gone). With these two its runner
	// had gone silent: no end was seen by then, and nothing of it is there any more; it
	// may have ended by itself shortly before.
	Killed string
	// WorkspaceLost is set if the container was reset meanwhile, for this command or
	// another, and a workspace in memory (Limits.Disk) could not be held over it: it is
	// empty now. It is also set along with an error.
	WorkspaceLost bool
	// Room is set when leftovers of earlier commands had to be killed so that
	// this one could start.
	Room bool
	// Full lists what of the session had no room left when the command failed.
	Full []Full
	// Policy is what the policy has decided; the zero value if there is none.
	Policy policy.Decision
	// Job is set when the command has become a job: its Reason is exec.HandedOver,
	// and the Output what it had written by then.
	Job *Job
}

// Run runs one command. A nil error means that it ran and has ended, whatever
// its exit code, or goes on as the job Result.Job. Otherwise the error is a *policy.Denial, an *InputError, or an
// *exec.Error (as by errors.As) that says whether it may have run, and the
// Result has no more than the output so far. It returns at most 5 s after the
// timeout or after the end of ctx.
func (s *Session) Run(ctx context.Context, c Command) (Result, error) {
	mode := ModeCommand
	if c.Job != nil && c.Job.After == 0 {
		mode = ModeJob
	}
	res := Result{Session: s.ID()}
	over, err := s.admit(ctx, &c, mode, &res)
	if err != nil {
		return res, err
	}
	err = s.run(ctx, c, &res)
	over(res, err)
	return res, err
}

// admit checks a command, asks the policy, and tells the observer that it is about to run.
// What it returns must be called once, with what has become of the command. A command that
// is not admitted must not run.
func (s *Session) admit(ctx context.Context, c *Command, mode Mode, res *Result) (over func(Result, error), err error) {
	if rules := s.engine.opts.Policy; rules != nil {
		err = s.Admit(c, rules)
		res.Policy = c.Decided
	} else {
		err = c.Check() // a caller may have asked rules of its own: Decided stays
	}
	if err != nil {
		return nil, err
	}
	if over, err = s.Observe(ctx, *c, mode, InContainer); err != nil {
		return nil, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	return over, nil
}

// run runs a command that was admitted: it opens the sink, attempts the command, and
// settles the result. With an error res has no more than the output.
func (s *Session) run(ctx context.Context, c Command, res *Result) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	blocked, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	c.Output.OnLimit = func() { end(exec.ErrOutputLimit) }
	c.Output.Release = blocked.Done()
	out, err := s.sink(c.Output)
	if err != nil {
		return err
	}
	if c.Watch != nil {
		c.Watch(out)
	}
	command := s.command(c)
	command.Stdout = out.Stdout()
	if c.Output.Streams == sink.Split {
		command.Stderr = out.Stderr()
	}
	command.OnKill = func() { releaseLater(ctx, command.Grace, release) }
	if c.Job != nil {
		if err := s.offer(&command, c.Job, release); err != nil {
			return fmt.Errorf("session %s: %w", s.ID(), err)
		}
	}
	err = s.attempt(ctx, command, res)
	return s.conclude(command, c.Job, out, res, err)
}

// releaseLater gives up live writers that block, at half of the last grace of a kill:
// until then they take what there is, and the pool need not give up on the sink.
func releaseLater(ctx context.Context, grace time.Duration, release func()) {
	grace = cmp.Or(grace, exec.DefaultGrace)
	patience := grace / 2
	if errors.Is(context.Cause(ctx), exec.ErrInterrupt) {
		patience += grace // the one that follows SIGINT
	}
	time.AfterFunc(patience, release)
}

// attempt runs the command in the pool. Where it could not start for want of room it
// makes room and tries once more; where a runner was lost it rescues what is known: the
// command may have become a job, or the session may have to be reset.
func (s *Session) attempt(ctx context.Context, command exec.Command, res *Result) (err error) {
	start, losses := time.Now(), s.losses.Load()
	res.Status, err = s.pool.Run(ctx, command)
	if err != nil && s.makeRoom(ctx, err) {
		res.Room = true
		res.Status, err = s.pool.Run(ctx, command)
	}
	if job := s.handedOver(ctx, command.Job, err); job != nil {
		res.Status, err = exec.Status{Reason: exec.HandedOver, Elapsed: time.Since(start), Handed: job}, nil
	}
	res.Killed = rungs[res.Rung]
	if err != nil {
		res.Status, res.Killed, err = s.recover(ctx, err)
		res.Elapsed = time.Since(start)
	}
	res.WorkspaceLost = s.losses.Load() != losses
	return err
}

// conclude closes the sink and completes the result. It returns err in the session's words.
func (s *Session) conclude(command exec.Command, o *JobOptions, out *sink.Sink, res *Result, err error) error {
	res.Output, res.Full = out.Close(), s.info.labels.full(res.NoRoom)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), limitText(err, o))
	}
	if res.Handed == nil {
		return nil
	}
	res.Job = s.jobOf(command, res.Handed)
	if res.Output.Artifact.Stored {
		// The whole output becomes an artifact when the job has ended. If this one cannot be
		// removed, there is one too many.
		_ = s.discard(&res.Output)
	}
	return nil
}

var rungs = map[wire.Rung]string{wire.RungTerm: "term", wire.RungKill: "kill", wire.RungInt: "int"}

// command is what the runner is asked for.
func (s *Session) command(c Command) exec.Command {
	l := s.info.labels
	dir := c.Dir
	if dir == "" {
		dir = l.Workspace.Target
	}
	if !path.IsAbs(dir) {
		dir = path.Join(l.Workspace.Target, dir)
	}
	shell := c.Shell
	if shell == "" {
		shell = "bash"
	}
	return exec.Command{
		Shell: shell, Script: c.Script, Args: c.Args, Env: overlay(l.environment(), c.Env), Dir: dir,
		UID: l.User.UID, GID: l.User.GID, Stdin: c.Stdin,
		Exclusive: c.Exclusive, Timeout: c.Timeout, Grace: s.engine.opts.Grace, Watch: l.watch(),
	}
}

// sink makes the writers that a command's output goes through.
func (s *Session) sink(opts sink.Options) (*sink.Sink, error) {
	kept, err := s.kept()
	if err != nil {
		return nil, err
	}
	return sink.New(opts, kept, s.engine.opts.Secrets)
}

// artifacts opens the session's part of the store, once and when it is needed.
func (s *Session) artifacts() (*sink.Session, error) {
	if s.engine.opts.Artifacts == nil {
		return nil, nil //nolint:nilnil // sink takes nil for none
	}
	return s.engine.opts.Artifacts.Session(s.ID())
}

// openRunner opens an exec whose process is a runner.
func (s *Session) openRunner(ctx context.Context) (io.ReadWriteCloser, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	stream, err := s.engine.backend.Open(ctx, s.handle, engine.Exec{Args: serveCommand(), User: "0:0"})
	if err != nil {
		return nil, err
	}
	return runnerStream{stream}, nil
}

// runnerStream is the stream of a runner.
type runnerStream struct{ engine.Stream }

// NoRoom reports whether the runner's program was ended by its own runtime, which
// could not start a thread: by the exit code that the engine has of it.
func (r runnerStream) NoRoom() bool {
	ctx, cancel := context.WithTimeout(context.Background(), noticeTime)
	defer cancel()
	code, err := r.ExitCode(ctx)
	return err == nil && code == runtimeAbort
}

// state asks the engine for the session's. It is an engine.ErrNotFound where what ran was
// removed, even if its workspace is there.
func (s *Session) state(ctx context.Context) (engine.Session, error) {
	state, err := s.engine.backend.Find(ctx, s.handle.ID)
	if err == nil && state.Handle != s.handle {
		err = fmt.Errorf("session %s was removed: %w", s.handle.ID, engine.ErrNotFound)
	}
	return state, err
}

// isPaused asks the engine. One that does not answer says nothing of a pause.
func (s *Session) isPaused(ctx context.Context) bool {
	state, err := s.state(ctx)
	return err == nil && state.Status == engine.StatusPaused
}

// mayOpen reports whether a runner that could not be opened could be at another
// try: its container runs, and has room for one.
func (s *Session) mayOpen(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	state, err := s.state(ctx)
	return err == nil && state.Status == engine.StatusRunning && !s.isFull(ctx)
}

// Release closes this process's hold on the session, which kills what it still
// runs in the foreground. The session lives on until its lease is over.
func (s *Session) Release() {
	s.engine.mu.Lock()
	if s.engine.sessions[s.ID()] == s {
		delete(s.engine.sessions, s.ID())
	}
	s.engine.mu.Unlock()
	s.released.Store(true)
	s.pool.Close()
	s.holding.Wait()
	if kept, err := s.kept(); err == nil && kept != nil {
		_ = kept.Close() // of what is only read and locked
	}
}

// Stop ends the session and everything in it, and removes what was made for it.
func (s *Session) Stop(ctx context.Context) error {
	if s.reading { // the session has ended before
		return s.closeReader(ctx)
	}
	s.holding.Wait()
	start := time.Now()
	err := s.engine.remove(ctx, s.handle)
	if !s.spare {
		s.engine.noteSession(EventSessionStop, s.ID(), start, err)
	}
	s.Release()
	if store := s.engine.opts.Artifacts; store != nil {
		err = errors.Join(err, store.Forget(s.ID()))
	}
	return err
}
