package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// restarted holds commands back from a container that was started again. What was in memory
// is gone then, so its confinement must be checked and its user's home created first. The
// zero value holds nothing back. It is safe for concurrent use.
type restarted struct {
	pending atomic.Bool
	turn    chan struct{} // holds a token while a caller settles
}

func newRestarted() *restarted { return &restarted{turn: make(chan struct{}, 1)} }

// startSlack is the most time between the creation of a container and its first start. A
// container with a later start time has been started again.
const startSlack = 30 * time.Second

// settled makes the container ready for commands if it was started again. If it is not
// confined as it should be, settled removes it.
func (s *Session) settled(ctx context.Context) error {
	if s.reading { // no command runs in a reader
		return nil
	}
	if !s.restarted.pending.Load() {
		return nil
	}
	select {
	case s.restarted.turn <- struct{}{}:
		defer func() { <-s.restarted.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !s.restarted.pending.Load() {
		return nil
	}
	err := s.settleAgain(ctx)
	if err == nil {
		s.restarted.pending.Store(false)
		return nil
	}
	err = fmt.Errorf("session %s: after its container was started again: %w", s.ID(), err)
	if _, ok := errors.AsType[*PostureError](err); ok {
		err = errors.Join(err, s.removed(ctx))
	}
	return err
}

// settleAgain checks the container and creates the home. It opens a runner of its own,
// because the pool's commands wait for it.
func (s *Session) settleAgain(ctx context.Context) error {
	info, err := s.engine.backend.Info(ctx)
	if err != nil {
		return err
	}
	s.usualPids(ctx) // the check below asks for it, and it may be raised: see withSpare
	stream, err := s.engine.backend.Open(ctx, s.handle, engine.Exec{Args: serveCommand(), User: "0:0"})
	if err != nil {
		return err
	}
	// When ctx ends, the stream is closed, and no kill is waited for.
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	runner, err := exec.NewRunner(ctx, stream, s.info.Lease)
	if err != nil {
		return err
	}
	defer runner.Close()
	if _, _, err := s.posture(ctx, runner.Run, info); err != nil {
		return err
	}
	if err := s.helperTo(ctx, helperStreams{timeout: helperTime, run: runner.Run}, wire.VerbHome.Command()); err != nil {
		return fmt.Errorf("home: %w", err)
	}
	return nil
}
