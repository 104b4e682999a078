package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
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
	network *exceptions // guarded by engine.mu; nil: there are none, or another process serves them
	inward  *inward     // nil in a reader
	notes   []string
	left    []string
	// standing are those of notes that StandingNotes returns.
	standing []string
	reading  bool                          // it is a reader: see startReader
	spare    bool                          // it is prepared and unused; cleared before its first use
	kept     func() (*sink.Session, error) // artifacts, opened once

	resetting sync.Mutex // one reset at a time
	restarted *restarted
	raising   sync.Mutex     // one raise of the pids limit at a time
	holding   sync.WaitGroup // containers that hold the workspace over a reset
	ports     newPorts
	ran       ran
	losses    atomic.Int64 // resets that lost a workspace in memory
	released  atomic.Bool  // this process has released it

	placeholders []string // of secrets, as variables K=V; set before the first command

	mu       sync.Mutex
	noted    map[string]bool // guarded by mu; tags of the jobs whose end was observed
	baseline string          // guarded by mu; see Baseline; "" is unknown
}

// ID returns the session's id.
func (s *Session) ID() string { return s.info.ID }

// Info returns the description of the session from when it was opened.
func (s *Session) Info() Info { return s.info }

// Notes returns notes for the owner of the session, such as which image replaced the default
// one, what the network reaches, and what the engine cannot do.
func (s *Session) Notes() []string {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.notes
}

// StandingNotes returns those of Notes that each session of this image, engine and network has, and
// that a user who starts many need not read each time.
func (s *Session) StandingNotes() []string {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.standing
}

// LeftOut lists the files that were not copied into the workspace because they looked like
// credentials.
func (s *Session) LeftOut() []string { return s.left }

// Result says how a command that ran has ended, and holds its output.
type Result struct {
	exec.Status
	Session string
	Output  sink.Output
	// Killed says how far the kill had to go:
	//
	//	""         the command ended by itself
	//	"int"      SIGINT ended it
	//	"term"     SIGTERM ended it
	//	"kill"     SIGKILL ended it, and the kernel has confirmed that nothing is left
	//	"reset"    the container was started again; the workspace was kept
	//	"removed"  the session is gone
	//
	// With "reset" and "removed" the runner had become silent. Nothing of the command is
	// left, but its end was not seen, and it may have ended by itself shortly before.
	Killed string
	// WorkspaceLost means that the container was reset while the command ran, for this
	// command or another, and that a workspace in memory (Limits.Disk) was lost and is now
	// empty. It may be set together with an error.
	WorkspaceLost bool
	// Room means that survivors of earlier commands were killed so that this command could
	// start.
	Room bool
	// Full lists the file systems of the session that were full when the command failed, and the limits that
	// were met while it ran.
	Full []Full
	// MemoryLimit is the session's, in bytes, if Reason is exec.OOMKilled.
	MemoryLimit int64
	// Network describes the session's connections, allowed and refused, while the command ran. It
	// is nil if there were none.
	Network *NetworkUse
	// Offline is a hint: the command failed in a session that has no network and no rules, and its
	// output ends as if a name had not resolved. The command wrote that text, so that a program
	// must not decide anything by it.
	Offline bool
	// Ports are the ports that processes of the session have begun to listen to, as seen when the
	// command ended. They are looked for only after a command of this Session has left processes
	// behind or has become a job.
	Ports []Port
	// Policy is the policy's decision; the zero value if there is no policy.
	Policy policy.Decision
	// Job is set if the command has become a job. Then the Reason is exec.HandedOver, and
	// Output is what it had written until then.
	Job *Job

	carried bool // something carries connections of the session, and knows what was refused
}

// Run runs one command and waits for it to end, or to become the job Result.Job. It returns
// at most 5 s after the command's timeout or the end of ctx.
//
// A nil error means that the command ran, whatever its exit code. Otherwise errors.As finds
// a *policy.Denial, an *InputError, or an *exec.Error that says whether the command may have
// run, and the Result has nothing but the output so far.
func (s *Session) Run(ctx context.Context, c Command) (res Result, err error) {
	c.id, _ = newID() // without one it is not known which connections are its own
	res.Session = s.ID()
	over, err := s.admit(ctx, &c, c.mode(), &res)
	if err != nil {
		return res, err
	}
	defer func() { over(res, err) }()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	out, release, err := s.openSink(ctx, c, end)
	if err != nil {
		return res, err
	}
	defer release()
	command, err := s.connect(ctx, c, out, release)
	if err == nil {
		err = s.attempt(ctx, c, command, &res)
	}
	err = s.settle(ctx, command, out, &res, err)
	return res, err
}

// admit checks a command, asks the policy, and notifies the observer that the command is
// about to run. The caller must call over once, with the result of the command. If admit
// returns an error, the command must not run.
func (s *Session) admit(ctx context.Context, c *Command, mode Mode, res *Result) (over func(Result, error), err error) {
	if rules := s.engine.opts.Policy; rules != nil {
		err = s.Admit(c, rules)
		res.Policy = c.Decided
	} else {
		err = c.Check() // c.Decided stays as it is: the caller may have asked its own rules
	}
	if err != nil {
		return nil, err
	}
	if over, err = s.Observe(ctx, *c, mode, InContainer); err != nil {
		return nil, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	return over, nil
}

// openSink opens the writers that the command's output goes through, and passes them to
// c.Watch. Output above the limit calls end. The caller must call release in the end; before
// that, release makes live writers give up that block.
func (s *Session) openSink(ctx context.Context, c Command, end context.CancelCauseFunc) (out *sink.Sink, release func(), err error) {
	blocked, release := context.WithCancel(context.WithoutCancel(ctx))
	c.Output.OnLimit = func() { end(exec.ErrOutputLimit) }
	c.Output.Release = blocked.Done()
	if out, err = s.sink(c.Output); err != nil {
		release()
		return nil, nil, err
	}
	if c.Watch != nil {
		c.Watch(out)
	}
	return out, release, nil
}

// connect returns the command as the pool takes it: it writes to out, and may become a job if
// c.Job allows it.
func (s *Session) connect(ctx context.Context, c Command, out *sink.Sink, release func()) (exec.Command, error) {
	command := s.command(c)
	command.Stdout = out.Stdout()
	if c.Output.Streams == sink.Split {
		command.Stderr = out.Stderr()
	}
	command.OnKill = func() { releaseLater(ctx, command.Grace, release) }
	if c.Job != nil {
		if err := s.offer(&command, c.Job, release); err != nil {
			return exec.Command{}, err
		}
	}
	return command, nil
}

// releaseLater makes live writers that block give up, after half of a kill's last grace.
// They have until then to take the output, and the pool never has to abandon the sink.
func releaseLater(ctx context.Context, grace time.Duration, release func()) {
	grace = cmp.Or(grace, exec.DefaultGrace)
	patience := grace / 2
	if errors.Is(context.Cause(ctx), exec.ErrInterrupt) {
		patience += grace // SIGINT is followed by a grace of its own
	}
	time.AfterFunc(patience, release)
}

// attempt runs the command in the pool. If the session has no room for it, attempt makes
// room and tries once more. If it fails, rescue finds out what happened.
func (s *Session) attempt(ctx context.Context, c Command, command exec.Command, res *Result) (err error) {
	used, carried := s.watchNetwork(ctx, c)
	res.carried = carried
	var over func(job bool)
	command.OnRunner, over = s.ran.follow(c.id)
	start, losses := time.Now(), s.losses.Load()
	res.Status, err = s.pool.Run(ctx, command)
	if err != nil && s.makeRoom(ctx, err) {
		res.Room = true
		res.Status, err = s.pool.Run(ctx, command)
	}
	res.Killed = rungs[res.Rung]
	if err != nil {
		err = s.rescue(ctx, command.Job, res, err)
		res.Elapsed = time.Since(start)
	}
	res.WorkspaceLost = s.losses.Load() != losses
	over(res.Handed != nil)
	res.Network = used()
	return limitText(err, c.Job)
}

// rescue completes the result of a command for which the pool has returned err. If the runner
// was lost, the command may have become a job, or the session may have to be reset.
func (s *Session) rescue(ctx context.Context, job *exec.Job, res *Result, err error) error {
	if started := s.handedOver(ctx, job, err); started != nil {
		res.Status = exec.Status{Reason: exec.HandedOver, Handed: started}
		return nil
	}
	res.Status, res.Killed, err = s.recover(ctx, err)
	return err
}

// settle closes the sink and completes the result. It returns err as an error of the session.
func (s *Session) settle(ctx context.Context, command exec.Command, out *sink.Sink, res *Result, err error) error {
	if err == nil {
		res.Ports = s.startedPorts(ctx, res.Status)
	}
	res.Output, res.Full = out.Close(), s.info.labels.full(res.NoRoom)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), err)
	}
	res.Offline = s.info.Network == NetworkNone && !res.carried && offline(res.Status, res.Output)
	if res.Reason == exec.OOMKilled {
		res.MemoryLimit = s.info.Limits.Memory
	}
	if res.Handed == nil {
		return nil
	}
	res.Job = s.jobOf(command, res.Handed)
	if res.Output.Artifact.Stored {
		// The whole output becomes an artifact when the job has ended, so this one is removed.
		// If that fails, one artifact too many remains.
		_ = s.discard(&res.Output)
	}
	return nil
}

var rungs = map[wire.Rung]string{wire.RungTerm: "term", wire.RungKill: "kill", wire.RungInt: "int"}

// command returns the command as the pool takes it.
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
		Shell: shell, Script: c.Script, Args: c.Args, Env: overlay(slices.Concat(l.environment(), l.Env, s.placeholders), c.Env), Dir: dir,
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

// NoRoom reports whether the runner was ended by the Go runtime because it could not start a
// thread. It decides by the exit code that the engine reports.
func (r runnerStream) NoRoom() bool {
	ctx, cancel := context.WithTimeout(context.Background(), noticeTime)
	defer cancel()
	code, err := r.ExitCode(ctx)
	return err == nil && code == runtimeAbort
}

// state asks the engine for the state of the session. It returns an engine.ErrNotFound if the
// container was removed, even if the workspace is kept.
func (s *Session) state(ctx context.Context) (engine.Session, error) {
	state, err := s.engine.backend.Find(ctx, s.handle.ID)
	if err == nil && state.Handle != s.handle {
		err = fmt.Errorf("session %s was removed: %w", s.handle.ID, engine.ErrNotFound)
	}
	return state, err
}

// isPaused reports whether the session is paused. If the engine does not answer, it returns
// false.
func (s *Session) isPaused(ctx context.Context) bool {
	state, err := s.state(ctx)
	return err == nil && state.Status == engine.StatusPaused
}

// mayOpen returns nil if another try to open a runner may succeed: the container must be running
// and have room for it. Otherwise it returns the error for the caller. That a session is full is
// said with what was counted now, because its commands may have ended at the next count.
func (s *Session) mayOpen(ctx context.Context, e *exec.Error) *exec.Error {
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	state, err := s.state(ctx)
	switch {
	case err != nil || state.Status != engine.StatusRunning:
		return e
	case s.isFull(ctx):
		return &exec.Error{Outcome: e.Outcome, Cause: exec.CauseResources, Err: fullError{e.Err}}
	}
	return nil
}

// Release closes this process's runners of the session, which kills the commands that they
// still run. Jobs go on. The session lives on until its lease is over.
func (s *Session) Release() {
	s.engine.mu.Lock()
	if s.engine.sessions[s.ID()] == s {
		delete(s.engine.sessions, s.ID())
	}
	x := s.network
	s.engine.mu.Unlock()
	s.released.Store(true)
	s.inward.close()
	x.close()
	s.pool.Close()
	s.holding.Wait()
	if kept, err := s.kept(); err == nil && kept != nil {
		_ = kept.Close() // nothing was written through it
	}
}

// Stop ends the session and everything in it, and removes everything made for it.
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
