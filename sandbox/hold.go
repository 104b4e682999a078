package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// holdTime is how long a reset waits for the container that holds a workspace in memory. It
// is a part of resetTime.
const holdTime = time.Second

var errHold = errors.New("the workspace in memory could not be held in time")

// hold keeps a workspace in memory over a reset. Such a workspace exists only while a
// container mounts it, so a reader mounts it during the reset. The caller must call release
// after the reset. If the engine cannot start the reader in time, the workspace is lost, and
// the results of the commands that run at that time say so.
func (s *Session) hold(ctx context.Context) (release func()) {
	info, err := s.engine.backend.Info(ctx)
	if s.info.Limits.Disk == 0 || s.info.Workspace.Kind == WorkspaceBind || err == nil && info.ResetKeeps == engine.KeepsMemory {
		return func() {}
	}
	if s.engine.workspaces == nil {
		s.losses.Add(1)
		return func() {}
	}
	over := make(chan struct{})
	held := make(chan error, 1)
	base := context.WithoutCancel(ctx)
	s.holding.Go(func() { // it may outlast the reset, which is bounded; Stop waits for it
		work, cancel := context.WithTimeout(base, callTime)
		defer cancel()
		h, err := s.engine.startReader(work, readerSpec{
			over: []engine.Attachment{{Session: s.ID(), Target: s.info.Workspace.Target}}, labels: s.info.labels,
		})
		held <- err
		<-over
		if err == nil {
			_ = s.engine.remove(base, h) // what is left of it ends with its lease
		}
	})
	wait, cancel := context.WithTimeoutCause(ctx, holdTime, errHold)
	defer cancel()
	select {
	case err = <-held:
	case <-wait.Done():
		err = context.Cause(wait)
	}
	if err != nil {
		s.losses.Add(1)
	}
	return func() { close(over) }
}
