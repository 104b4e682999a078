package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// Causes that this package finds, beside those of package exec.
const (
	CauseOOM         exec.Cause = "oom"         // the kernel killed PID 1 at the memory limit
	CauseLeaseOver   exec.Cause = "lease-over"  // nobody asked anything of it for so long
	CauseStopped     exec.Cause = "stopped"     // somebody, or the engine's own end, stopped the container
	CauseKilled      exec.Cause = "killed"      // somebody killed the container
	CauseRemoved     exec.Cause = "removed"     // somebody removed the container
	CauseUnreachable exec.Cause = "unreachable" // the engine does not answer
	CausePaused      exec.Cause = "paused"      // somebody has paused the container
)

// resetTime bounds the last rungs of the kill ladder: the container's reset or
// its removal.
const resetTime = 2 * time.Second

// removeTime bounds the removal of a container that could not be started again. The
// call has taken most of its 5 s by then; what is not removed is reaped.
const removeTime = 250 * time.Millisecond

// noticeTime is how long the engine may take to notice that a container has ended.
const noticeTime = 500 * time.Millisecond

// makeRoom has PID 1 end what finished commands have left running, when it is
// by the engine's own count that nothing more can be started. It reports whether
// a second try makes sense.
func (s *Session) makeRoom(ctx context.Context, err error) bool {
	var e *exec.Error
	if !errors.As(err, &e) || e.Outcome != exec.NotStarted || ctx.Err() != nil {
		return false
	}
	switch e.Cause {
	case exec.CauseResources:
	case exec.CauseEngine:
		// What an engine says instead of starting a runner is a text, and nothing
		// to go by.
		if !s.isFull(ctx) {
			return false
		}
	default:
		return false
	}
	return s.sweep(ctx) == nil
}

// Room that a new runner needs: threads of its own and of the engine's helper
// that starts it, and their memory.
const (
	runnerPids   = 40
	runnerMemory = 32 << 20 // bytes
)

// isFull asks the engine whether the session is at a limit.
func (s *Session) isFull(ctx context.Context) bool {
	use, err := s.engine.docker.Usage(ctx, s.container)
	if err != nil {
		return false
	}
	return use.PidsLimit > 0 && use.Pids+runnerPids > use.PidsLimit ||
		use.MemoryLimit > 0 && use.Memory+runnerMemory > use.MemoryLimit
}

// sweep has PID 1 end everything that has been left to it, and waits until the
// engine counts room again. It starts no process: a signal is enough.
func (s *Session) sweep(ctx context.Context) error {
	if err := s.engine.docker.SignalContainer(ctx, s.container, "USR2"); err != nil {
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

// recover turns what happened to a runner into what happened to the session, and
// makes sure that nothing of the command is left. If that takes the container,
// the command has ended after all, for the reason that its context gives.
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
	case e.Outcome == exec.Unknown, e.Cause == exec.CauseEngine, e.Cause == exec.CauseProtocol:
		return exec.Status{}, "", s.diagnose(ctx, e)
	default:
		return exec.Status{}, "", err
	}
}

// reasonOf says why a command was killed. A timeout that only the runner's
// context had is told from a cancel by the caller's being alive.
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

// diagnose asks the engine what became of the container.
func (s *Session) diagnose(ctx context.Context, e *exec.Error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
	defer cancel()
	state, err := s.engine.docker.Container(ctx, string(s.container))
	// The stream of a runner ends before the engine has noticed the end of the
	// container: look for a while.
	for until := time.Now().Add(noticeTime); err == nil && state.Status == "running" && e.Outcome == exec.Unknown && time.Now().Before(until); {
		time.Sleep(noticeTime / 20)
		state, err = s.engine.docker.Container(ctx, string(s.container))
	}
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return &exec.Error{Outcome: exec.Lost, Cause: CauseRemoved, Err: fmt.Errorf("its container was removed (%w)", e.Err)}
	case err != nil:
		return &exec.Error{Outcome: e.Outcome, Cause: CauseUnreachable, Err: errors.Join(e.Err, err)}
	case state.Status == "paused":
		return &exec.Error{Outcome: e.Outcome, Cause: CausePaused, Err: fmt.Errorf("its container is paused: unpause it (%w)", e.Err)}
	case state.Status != "running":
		return lost(state)
	case e.Outcome == exec.Unknown:
		// The runner is gone and the container is not: what the runner ran has
		// passed to PID 1, or in profile dev has killed the runner.
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

// fullError says that nothing more can be started in a session, and what to do. What
// the engine or a runtime says of it instead is for who looks closer.
type fullError struct{ err error }

func (e fullError) Error() string {
	return "the session is at its pids or memory limit: end what runs in it; where that is a job that leaves no room to ask for its end, stop the session"
}

func (e fullError) Unwrap() error { return e.err }

// lost says why a session that is not running is not.
func lost(state engine.ContainerState) *exec.Error {
	e := &exec.Error{Outcome: exec.Lost, Cause: CauseKilled}
	switch {
	case state.Status == "removing":
		e.Cause = CauseRemoved
		e.Err = errors.New("its container is being removed; start another session")
	case state.OOMKilled:
		e.Cause = CauseOOM
		e.Err = errors.New("its PID 1 was killed, and the engine notes that memory ran out in it; start another session, with more --memory")
	case state.ExitCode == wire.ExitLeaseOver && state.Status == "exited":
		e.Cause = CauseLeaseOver
		e.Err = errors.New("its lease is over: nobody has asked anything of it for that long; start another session")
	case state.ExitCode == wire.ExitStopped && state.Status == "exited":
		e.Cause = CauseStopped
		e.Err = errors.New("its container was stopped, by somebody or because its engine ended; start another session")
	default:
		e.Err = fmt.Errorf("its container is %s with exit code %d; start another session", state.Status, state.ExitCode)
	}
	return e
}

// What the last rungs are called in a Result.
const (
	killedReset   = "reset"
	killedRemoved = "removed"
)

// reset kills the container and starts it again: files of the workspace are
// kept, everything in memory is lost. If it does not start, it is removed. It
// returns which of the two it took.
func (s *Session) reset(ctx context.Context) (string, error) {
	s.resetting.Lock()
	defer s.resetting.Unlock()
	base := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(base, resetTime)
	defer cancel()
	docker := s.engine.docker
	err := docker.SignalContainer(ctx, s.container, "KILL")
	if err == nil || errors.Is(err, engine.ErrNotRunning) {
		err = docker.WaitContainer(ctx, s.container)
	}
	if err != nil {
		return "", fmt.Errorf("reset: %w", err)
	}
	if err = docker.StartContainer(ctx, s.container); err == nil {
		return killedReset, nil
	}
	clean, cancelClean := context.WithTimeout(base, removeTime)
	defer cancelClean()
	return killedRemoved, docker.RemoveContainer(clean, s.container)
}
