package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Causes that this package finds, besides those of package exec.
const (
	CauseOOM         exec.Cause = "oom"         // the kernel killed PID 1 at the memory limit
	CauseLeaseOver   exec.Cause = "lease-over"  // it was idle for longer than its lease
	CauseStopped     exec.Cause = "stopped"     // a person or the end of the engine stopped the container
	CauseKilled      exec.Cause = "killed"      // it was killed from outside
	CauseRemoved     exec.Cause = "removed"     // it was removed from outside
	CauseUnreachable exec.Cause = "unreachable" // the engine does not answer
	CausePaused      exec.Cause = "paused"      // it is paused
)

// resetTime bounds the last two rungs of the kill ladder, reset and removal. When all is dead, the
// engine may take longer to start the container again: see engine.Engine.
const resetTime = 2 * time.Second

// removeTime bounds the removal of a container that could not be started again. It is short
// because the call has used most of its 5 s by then. A later reap removes the rest.
const removeTime = 250 * time.Millisecond

// noticeTime is how long the engine may take to notice that a container has ended.
const noticeTime = 500 * time.Millisecond

// makeRoom has PID 1 kill the survivors of earlier commands, if the engine's own count says
// that no more processes can be started. It reports whether another try may succeed.
func (s *Session) makeRoom(ctx context.Context, err error) bool {
	var e *exec.Error
	if !errors.As(err, &e) || e.Outcome != exec.NotStarted || ctx.Err() != nil {
		return false
	}
	switch e.Cause {
	case exec.CauseResources:
	case exec.CauseEngine:
		// An engine that cannot start a runner returns only a text, which proves nothing.
		// Its count does.
		if !s.isFull(ctx) {
			return false
		}
	default:
		return false
	}
	return s.sweep(ctx) == nil
}

// The room that a new runner needs: its threads, those of the engine's helper that starts
// it, and their memory.
const (
	runnerPids   = 40
	runnerMemory = 32 << 20 // bytes
)

// isFull asks the engine whether the session is at a limit.
func (s *Session) isFull(ctx context.Context) bool {
	use, err := s.engine.backend.Usage(ctx, s.handle)
	if err != nil {
		return false
	}
	pids := min(use.PidsLimit, s.info.Limits.Pids) // the limit may be raised at the moment
	return use.PidsLimit > 0 && use.Pids+runnerPids > pids ||
		use.MemoryLimit > 0 && use.Memory+runnerMemory > use.MemoryLimit
}

// sweep has PID 1 kill all survivors, and waits until the engine's count shows room. It
// sends a signal and starts no process.
func (s *Session) sweep(ctx context.Context) error {
	if err := s.engine.backend.Sweep(ctx, s.handle); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	for s.isFull(ctx) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// recover handles a runner's error. It finds out what happened to the session, and makes
// sure that nothing of the command is left, if necessary by a reset. After a reset the
// command has ended, with the reason that its context gives.
func (s *Session) recover(ctx context.Context, err error) (exec.Status, string, error) {
	var e *exec.Error
	if !errors.As(err, &e) {
		return exec.Status{}, "", err
	}
	switch {
	case e.Outcome == exec.Unknown && e.Cause == exec.CauseUnconfirmed:
		how, resetErr := s.reset(ctx)
		if resetErr != nil {
			return exec.Status{}, "", &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseUnconfirmed, Err: errors.Join(e.Err, resetErr)}
		}
		return exec.Status{Reason: reasonOf(ctx)}, how, nil
	case s.released.Load():
		// Its runners kill their commands when their streams end. Jobs go on.
		return exec.Status{}, "", err
	case e.Outcome == exec.Unknown, e.Cause == exec.CauseEngine, e.Cause == exec.CauseProtocol:
		return exec.Status{}, "", s.diagnose(ctx, e)
	default:
		return exec.Status{}, "", err
	}
}

// reasonOf returns why a command was killed. If ctx has not ended, it was the timeout,
// which belongs to the context of the runner only.
func reasonOf(ctx context.Context) exec.Reason {
	switch {
	case errors.Is(context.Cause(ctx), exec.ErrOutputLimit):
		return exec.OutputLimit
	case ctx.Err() != nil:
		return exec.Cancelled
	default:
		return exec.TimedOut
	}
}

// diagnose asks the engine for the container's state, and returns the error that explains e.
func (s *Session) diagnose(ctx context.Context, e *exec.Error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
	defer cancel()
	state, err := s.state(ctx)
	// A runner's stream ends before the engine has noticed the end of the container, so
	// ask for a while.
	for until := time.Now().Add(noticeTime); err == nil && state.Status == engine.StatusRunning && e.Outcome == exec.Unknown && time.Now().Before(until); {
		time.Sleep(noticeTime / 20)
		state, err = s.state(ctx)
	}
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return &exec.Error{Outcome: exec.Lost, Cause: CauseRemoved, Err: fmt.Errorf("its container was removed: start another session (%w)", e.Err)}
	case err != nil:
		return &exec.Error{Outcome: e.Outcome, Cause: CauseUnreachable, Err: errors.Join(e.Err, err)}
	case state.Status == engine.StatusPaused:
		return &exec.Error{Outcome: e.Outcome, Cause: CausePaused, Err: fmt.Errorf("it is paused: resume it (%w)", e.Err)}
	case state.Status != engine.StatusRunning:
		return lost(state)
	case e.Outcome == exec.Unknown:
		s.restarted.pending.Store(true) // another process may have done it
		// The runner is gone and the container is not. The command's processes have passed
		// to PID 1. In profile dev the command may itself have killed the runner.
		if s.info.Profile == Dev {
			_, err = s.reset(ctx)
		} else {
			err = s.sweep(ctx)
		}
		return &exec.Error{Outcome: e.Outcome, Cause: e.Cause, Err: errors.Join(e.Err, err)}
	case e.Cause == exec.CauseEngine && s.isFull(ctx):
		return &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseResources, Err: fullError{e.Err}}
	default:
		return e
	}
}

// fullError reports that no more processes can be started in a session, and what to do. It
// wraps the text of the engine or of a runtime.
type fullError struct{ err error }

func (e fullError) Error() string {
	return "the session is at its pids or memory limit: end what runs in it; where that is a job that leaves no room to ask for its end, stop the session"
}

func (e fullError) Unwrap() error { return e.err }

// lost returns the error that says why a session is not running.
func lost(state engine.Session) *exec.Error {
	e := &exec.Error{Outcome: exec.Lost, Cause: CauseKilled}
	switch {
	case state.Status == engine.StatusRemoving:
		e.Cause = CauseRemoved
		e.Err = errors.New("its container is being removed; start another session")
	case state.OOMKilled:
		e.Cause = CauseOOM
		e.Err = &hinted{hint: HintMemory, error: errors.New("its PID 1 was killed, and the engine notes that memory ran out in it; start another session, with more memory")}
	case state.ExitCode == wire.ExitLeaseOver && state.Status == engine.StatusExited:
		e.Cause = CauseLeaseOver
		e.Err = errors.New("its lease is over: it was idle for that long; start another session")
	case state.ExitCode == wire.ExitStopped && state.Status == engine.StatusExited:
		e.Cause = CauseStopped
		e.Err = errors.New("its container was stopped from outside, or because its engine ended; start another session")
	default:
		e.Err = fmt.Errorf("its container is %s with exit code %d; start another session", state.Status, state.ExitCode)
	}
	return e
}

// Values of Result.Killed for the last rungs.
const (
	killedReset   = "reset"
	killedRemoved = "removed"
)

// reset kills the container and starts it again. The workspace is kept (hold does that for
// a workspace in memory), and everything else that is in memory is lost. If the container
// does not start, or is not confined as it should be, reset removes it. It returns
// killedReset or killedRemoved.
func (s *Session) reset(ctx context.Context) (string, error) {
	s.resetting.Lock()
	defer s.resetting.Unlock()
	base := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(base, resetTime)
	defer cancel()
	info, err := s.engine.backend.Info(ctx)
	if err == nil && info.ResetKeeps == engine.KeepsNone {
		return killedRemoved, s.removed(base)
	}
	letGo := s.hold(ctx)
	defer letGo()
	s.restarted.pending.Store(true)
	err = s.engine.backend.Reset(ctx, s.handle)
	switch {
	case errors.Is(err, engine.ErrNotRunning): // it was killed, and did not start again
		return killedRemoved, s.removed(base)
	case err != nil:
		return "", fmt.Errorf("reset: %w", err)
	}
	err = s.settled(ctx)
	if _, ok := errors.AsType[*PostureError](err); ok {
		return killedRemoved, nil
	}
	return killedReset, nil // if there was no time to settle it, that is done before the next command
}

// removed ends the session. Unless its workspace is to be kept, it also removes what is left
// of the session. The next reap does what there was no time for, and keeps the workspace.
func (s *Session) removed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	err := s.engine.backend.End(ctx, s.handle)
	if err == nil && !s.info.keeps() {
		_ = s.engine.backend.Remove(ctx, s.handle)
	}
	return err
}
