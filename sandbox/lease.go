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

// Forever is a Spec.Lease, or an argument of Session.Keep, with which a session does not end because it
// is idle.
const Forever = 100 * 365 * 24 * time.Hour

// leaseText is a lease for people.
func leaseText(d time.Duration) string {
	if d >= Forever {
		return "none"
	}
	return d.String()
}

// Keep has the session live for at least this long from now on, however idle it is. It ends no earlier
// than its lease says either. 0 takes an earlier call back. The session itself remembers it, also over a
// reset.
func (s *Session) Keep(ctx context.Context, d time.Duration) error {
	if d < 0 {
		return badInput("for", "for %s: it must not be negative", d)
	}
	if err := s.noteLease(ctx, wire.LeaseArgs{Do: wire.LeaseKeep, For: min(d, Forever)}); err != nil {
		return fmt.Errorf("session %s: keep: %w", s.ID(), err)
	}
	return nil
}

// noteLease changes when the session ends because it is idle. Like every call it starts the lease again.
func (s *Session) noteLease(ctx context.Context, args wire.LeaseArgs) error {
	return s.withSpare(ctx, func() error {
		return s.helperAs(ctx, User{}, helperStreams{timeout: helperTime}, wire.VerbLease.Command(&args))
	})
}

// errNoPause is the error of Pause and Resume on an engine that is not an engine.Pauser.
var errNoPause = fmt.Errorf("this engine cannot pause sessions: %w", errors.ErrUnsupported)

// Pause stops all processes of the session where they are. Until Resume every command fails with
// CausePaused. The lease starts again when the session is resumed, and the session is not reaped while
// it is paused, if it was started with a lease of more than DefaultLease or with a Spec.Keep. Timeouts go on. A command
// that this or another process waits for is lost if the pause is longer than a minute; jobs and other
// processes that live on by themselves are not. Pause does nothing if the session is paused already.
func (s *Session) Pause(ctx context.Context) error {
	pauser, ok := s.engine.backend.(engine.Pauser)
	if !ok {
		return fmt.Errorf("session %s: %w", s.ID(), errNoPause)
	}
	if s.isPaused(ctx) {
		return nil
	}
	err := s.noteLease(ctx, wire.LeaseArgs{Do: wire.LeasePause})
	if err == nil {
		err = pauser.Pause(ctx, s.handle)
	}
	if err != nil {
		return fmt.Errorf("session %s: pause: %w", s.ID(), err)
	}
	return nil
}

// Resume lets the processes of a paused session go on, and starts its lease again. It does nothing else
// if the session is not paused.
func (s *Session) Resume(ctx context.Context) error {
	pauser, ok := s.engine.backend.(engine.Pauser)
	if !ok {
		return fmt.Errorf("session %s: %w", s.ID(), errNoPause)
	}
	err := pauser.Resume(ctx, s.handle)
	if err == nil {
		err = s.noteLease(ctx, wire.LeaseArgs{Do: wire.LeaseResume})
	}
	if errors.Is(err, errOlder) { // it was paused by something else, and has no note
		err = nil
	}
	if err != nil {
		return fmt.Errorf("session %s: resume: %w", s.ID(), err)
	}
	return nil
}

// An End says why a session has ended.
type End struct {
	Session string     `json:"session"`
	Name    string     `json:"name"`
	Cause   exec.Cause `json:"cause"`
	Text    string     `json:"message"` // the cause in words
}

// endLook is the pause between two looks at a session that does not run, which may be a reset.
const endLook = 50 * time.Millisecond

const endedAndKept = "it has ended, and its workspace is kept"

// Wait waits until a session has ended, and says why it has. ref is as for Open. A session of which only
// the workspace is kept has ended before.
func (e *Engine) Wait(ctx context.Context, ref string) (End, error) {
	waiter, ok := e.backend.(engine.Waiter)
	if !ok {
		return End{}, fmt.Errorf("this engine does not tell when sessions end: %w", errors.ErrUnsupported)
	}
	info, err := e.Show(ctx, ref)
	if err != nil {
		return End{}, err
	}
	end := End{Session: info.ID, Name: info.Name}
	if info.Kept != nil {
		end.Cause, end.Text = info.Kept.Cause, endedAndKept
		return end, nil
	}
	var idle time.Time // since when it does not run; zero: it runs
	for {
		state, err := e.backend.Find(ctx, info.ID)
		if err == nil && state.Status == engine.StatusKept { // a reap was faster
			if info, err = e.describe(state); err == nil {
				end.Cause, end.Text = info.Kept.Cause, endedAndKept
			}
			return end, err
		}
		switch {
		case errors.Is(err, engine.ErrNotFound), err == nil && state.Ref != info.Container:
			end.Cause, end.Text = CauseRemoved, "it was stopped and removed"
			return end, nil
		case err != nil:
			return End{}, fmt.Errorf("session %s: %w", info.ID, err)
		case state.Status == engine.StatusRunning || state.Status == engine.StatusPaused:
			idle = time.Time{}
			if err := waiter.Wait(ctx, state.Handle); err != nil && !errors.Is(err, engine.ErrNotFound) {
				return End{}, fmt.Errorf("session %s: %w", info.ID, err)
			}
			continue
		case state.Status == engine.StatusExited && (state.ExitCode == wire.ExitLeaseOver || state.ExitCode == wire.ExitStopped || state.OOMKilled),
			!idle.IsZero() && time.Since(idle) > settleTime:
			why := lost(state)
			end.Cause, end.Text = why.Cause, why.Err.Error()
			return end, nil
		case idle.IsZero():
			idle = time.Now()
		}
		if !pause(ctx, endLook) {
			return End{}, context.Cause(ctx)
		}
	}
}
