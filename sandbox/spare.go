package sandbox

import (
	"context"
	"errors"
	"io"

	"github.com/sandboxbash/sandboxbash/engine"
)

// sparePids is by how much the pids limit of a full session is raised to ask it something.
// It is enough for a runner and the verb that it starts, with their threads, and the
// engine's program that starts them.
const sparePids = 64

// maxSpare bounds how far the limit is raised in all. Several processes may ask at the same
// time, and a program that forks quickly may have used up the room of an earlier question.
const maxSpare = 4 * sparePids

// withSpare calls do. If the session had no room for it, withSpare raises the pids limit,
// calls do once more, and lowers the limit again. A program that forks quickly may take the
// spare room first: then the limit is raised further, up to maxSpare, and the session's
// commands are held until the runner of do has started. If the engine cannot change the limit,
// the first error is returned.
func (s *Session) withSpare(ctx context.Context, do func() error) error {
	err := do()
	limiter, ok := s.engine.backend.(engine.Limiter)
	if !noRoom(err) || !ok || ctx.Err() != nil {
		return err
	}
	s.raising.Lock()
	defer s.raising.Unlock()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
		defer cancel()
		s.usualPids(ctx)
	}()
	holder, holds := s.engine.backend.(engine.Holder)
	usual := s.info.Limits.Pids
	raised := false
	for limit := usual; noRoom(err) && limit < usual+maxSpare && ctx.Err() == nil; {
		if use, useErr := s.engine.backend.Usage(ctx, s.handle); useErr == nil {
			limit = max(limit, use.Pids)
		}
		limit = min(limit+sparePids, usual+maxSpare)
		if raiseErr := limiter.Limit(ctx, s.handle, engine.Usage{PidsLimit: limit}); raiseErr != nil {
			return errors.Join(err, raiseErr)
		}
		if raised && holds {
			_ = holder.Hold(ctx, s.handle) // do says whether there is room
		}
		raised = true
		err = do()
	}
	return err
}

// usualPids sets the pids limit back to that of the session's start. If that does not
// happen, because the engine did not answer or the host ended, the session is not harmed.
// The limit is set back before the session is checked after its next reset.
func (s *Session) usualPids(ctx context.Context) {
	if limiter, ok := s.engine.backend.(engine.Limiter); ok {
		_ = limiter.Limit(ctx, s.handle, engine.Usage{PidsLimit: s.info.Limits.Pids})
	}
}

// withSpareOnce is like withSpare for a function that writes to w. It does not call do again
// once do has written something.
func (s *Session) withSpareOnce(ctx context.Context, w io.Writer, do func(io.Writer) error) error {
	out := &counted{w: w}
	var err error
	return s.withSpare(ctx, func() error {
		if out.n == 0 {
			err = do(out)
		}
		return err
	})
}

// counted counts the bytes that are written to w.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
