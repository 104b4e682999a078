package sandbox

import (
	"context"
	"errors"
	"io"

	"github.com/sandboxbash/sandboxbash/engine"
)

// sparePids is how many more processes a session may have while it is asked something
// at its limit: a runner and the verb that it starts, with their threads, and the
// engine's own program that starts them.
const sparePids = 64

// maxSpare bounds how far the limit is raised: others that ask have runners there too,
// and what forks as fast as it can may have taken the room of a question before.
const maxSpare = 4 * sparePids

// withSpare calls do, and once more if the session had no room for it, with a pids
// limit that is higher for that time. An engine that cannot change it
// leaves the error as it is. A program that forks as fast as it can may take the spare
// room too: then do fails again.
func (s *Session) withSpare(ctx context.Context, do func() error) error {
	err := do()
	limiter, ok := s.engine.backend.(engine.Limiter)
	if !noRoom(err) || !ok || ctx.Err() != nil {
		return err
	}
	s.raising.Lock()
	defer s.raising.Unlock()
	usual := s.info.Limits.Pids
	most := usual + sparePids
	if use, useErr := s.engine.backend.Usage(ctx, s.handle); useErr == nil {
		most = min(max(usual, use.Pids)+sparePids, usual+maxSpare)
	}
	if raiseErr := limiter.Limit(ctx, s.handle, engine.Usage{PidsLimit: most}); raiseErr != nil {
		return errors.Join(err, raiseErr)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
		defer cancel()
		s.usualPids(ctx)
	}()
	return do()
}

// usualPids sets the pids limit of the session's start again. A limit that stays raised,
// because the engine did not answer or the host ended, costs its session nothing: it is
// set again before the session is checked after its next reset.
func (s *Session) usualPids(ctx context.Context) {
	if limiter, ok := s.engine.backend.(engine.Limiter); ok {
		_ = limiter.Limit(ctx, s.handle, engine.Usage{PidsLimit: s.info.Limits.Pids})
	}
}

// withSpareOnce is withSpare for what writes: it is not called again once it has
// written something.
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
