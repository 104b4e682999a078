package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Session is one agent's long-lived container. It is safe for concurrent use:
// up to 8 commands run at once, later ones wait in order.
type Session struct {
	engine    *Engine
	container engine.ContainerID
	info      Info
	pool      *exec.Pool
	notes     []string
	left      []string
	spare     bool                          // nobody has been given it; set before anybody is
	kept      func() (*sink.Session, error) // artifacts, opened once

	resetting sync.Mutex // one reset at a time

	mu    sync.Mutex
	noted map[string]bool // guarded by mu; tags of the jobs whose end was told
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
	// Killed says how far the kill had to go: "" (it ended by itself), "term",
	// "kill", "stuck", "reset" (the container was started again; files of the
	// workspace kept) or "removed" (the session is gone). With these two its runner
	// had gone silent: no end was seen by then, and nothing of it is there any more; it
	// may have ended by itself shortly before.
	Killed string
	// Room is set when leftovers of earlier commands had to be killed so that
	// this one could start.
	Room bool
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
	res := Result{Session: s.ID()}
	if err := c.Check(); err != nil {
		return res, err
	}
	if rules := s.engine.opts.Policy; rules != nil {
		res.Policy = rules.Check(policy.Input{Script: c.Script})
		if res.Policy.Blocked {
			s.Denied(c, res.Policy)
			return res, &policy.Denial{Decision: res.Policy}
		}
		c.Decided = res.Policy
	}
	mode := ModeCommand
	if c.Job != nil && c.Job.After == 0 {
		mode = ModeJob
	}
	over, err := s.Observe(ctx, c, mode, InContainer)
	if err != nil {
		return res, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	err = s.run(ctx, c, &res)
	over(res, err)
	return res, err
}

// run runs a command that may run. With an error res has no more than the output.
func (s *Session) run(ctx context.Context, c Command, res *Result) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.Output.OnLimit = func() { end(exec.ErrOutputLimit) }
	blocked, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
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
	// Live writers have half of the grace to take what there is; then the pool
	// need not give up on the sink.
	command.OnKill = func() { time.AfterFunc(cmp.Or(command.Grace, exec.DefaultGrace)/2, release) }
	if c.Job != nil {
		if err := s.offer(&command, c.Job, release); err != nil {
			return fmt.Errorf("session %s: %w", s.ID(), err)
		}
	}
	start := time.Now()
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
	res.Output = out.Close()
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), limitText(err, c.Job))
	}
	if started := res.Handed; started != nil {
		res.Job = s.handle(command, started)
		if res.Output.Artifact.Stored {
			// The whole output becomes one when the job has ended. If this one stays it is
			// an artifact too many.
			_ = s.discard(&res.Output)
		}
	}
	return nil
}

var rungs = map[wire.Rung]string{wire.RungTerm: "term", wire.RungKill: "kill", wire.RungStuck: "stuck"}

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
		Exclusive: c.Exclusive, Timeout: c.Timeout, Grace: s.engine.opts.Grace,
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
	return s.engine.docker.OpenExec(ctx, s.container, engine.Exec{Args: serveCommand(), User: "0:0"})
}

// isPaused asks the engine. One that does not answer says nothing of a pause.
func (s *Session) isPaused(ctx context.Context) bool {
	state, err := s.engine.docker.Container(ctx, string(s.container))
	return err == nil && state.Status == "paused"
}

// mayOpen reports whether a runner that could not be opened could be at another
// try: its container runs, and has room for one.
func (s *Session) mayOpen(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	state, err := s.engine.docker.Container(ctx, string(s.container))
	return err == nil && state.Status == "running" && !s.isFull(ctx)
}

// Release closes this process's hold on the session, which kills what it still
// runs in the foreground. The session lives on until its lease is over.
func (s *Session) Release() {
	s.engine.mu.Lock()
	if s.engine.sessions[s.ID()] == s {
		delete(s.engine.sessions, s.ID())
	}
	s.engine.mu.Unlock()
	s.pool.Close()
	if kept, err := s.kept(); err == nil && kept != nil {
		_ = kept.Close() // of what is only read and locked
	}
}

// Stop ends the session and everything in it, and removes what was made for it.
func (s *Session) Stop(ctx context.Context) error {
	start := time.Now()
	err := s.engine.remove(ctx, s.container, s.ID())
	if !s.spare {
		s.engine.noteSession(EventSessionStop, s.ID(), start, err)
	}
	s.Release()
	if store := s.engine.opts.Artifacts; store != nil {
		err = errors.Join(err, store.Forget(s.ID()))
	}
	return err
}
