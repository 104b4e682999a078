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

// restarted keeps commands from a container that has been started again until its
// confinement has been checked and its user has a home again: what was in memory is
// gone. The zero value keeps nothing from anything. It is safe for concurrent use.
type restarted struct {
	pending atomic.Bool
	turn    chan struct{} // holds a token while a caller settles
}

func newRestarted() *restarted { return &restarted{turn: make(chan struct{}, 1)} }

// startSlack is how long after its creation a container of ours is started at most. One
// that was started later has been started again.
const startSlack = 30 * time.Second

// settled makes the container ready for commands if it was started again. One that is
// not confined as it should be is removed.
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

// settleAgain checks the container and makes the home, by a runner of its own: those of
// the pool wait for it.
func (s *Session) settleAgain(ctx context.Context) error {
	info, err := s.engine.info(ctx)
	if err != nil {
		return err
	}
	s.usualPids(ctx) // the check below asks for it, and it may be raised: see withSpare
	stream, err := s.engine.backend.Open(ctx, s.handle, engine.Exec{Args: serveCommand(), User: "0:0"})
	if err != nil {
		return err
	}
	// The end of ctx is the end of all this: no kill is waited for.
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
