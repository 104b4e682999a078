package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
)

// warmPool keeps sessions prepared ahead of need. All have the shape that was last asked for.
// Each session is given to one caller and used once.
type warmPool struct {
	helper sync.WaitGroup

	mu      sync.Mutex
	key     string     // guarded by mu; the shape of those in ready
	ready   []*Session // guarded by mu
	filling int        // guarded by mu
	closed  bool       // guarded by mu
}

// warmKey returns a key for a shape, without the directory that a workspace is copied from.
func warmKey(spec Spec) string {
	if spec.Workspace.Kind == WorkspaceCopy {
		spec.Workspace.Dir = ""
	}
	b, err := json.Marshal(struct {
		Spec
		Asks bool // whom is for the session's taker to say
	}{spec, spec.AskNetwork != nil})
	if err != nil {
		return "" // not equal to any key: nothing is prepared
	}
	return string(b) + spec.fingerprint()
}

// take returns a prepared session of that shape, or makes one.
func (w *warmPool) take(ctx context.Context, e *Engine, spec Spec) (*Session, error) {
	if e.opts.Warm == 0 {
		return e.prepare(ctx, spec)
	}
	key := warmKey(spec)
	w.mu.Lock()
	var stale []*Session
	if w.key != key {
		w.key, stale, w.ready = key, w.ready, nil
	}
	var s *Session
	for len(w.ready) > 0 && s == nil {
		s, w.ready = w.ready[0], w.ready[1:]
	}
	w.fill(e, spec, key)
	w.mu.Unlock()
	for _, old := range stale {
		_ = old.Stop(ctx) // if this fails, it is reaped later
	}
	if s != nil {
		s.info.Workspace.Dir = spec.Workspace.Dir
		s.network.askWith(spec.AskNetwork)
		return s, nil
	}
	return e.prepare(ctx, spec)
}

// fill prepares sessions in the background until there are enough. It needs mu.
func (w *warmPool) fill(e *Engine, spec Spec, key string) {
	for !w.closed && len(w.ready)+w.filling < e.opts.Warm {
		w.filling++
		if spec.Workspace.Kind == WorkspaceCopy {
			spec.Workspace.Dir = "" // labels cannot change, and must not name another caller's directory
		}
		w.helper.Go(func() {
			s, err := e.prepare(context.Background(), spec)
			w.mu.Lock()
			w.filling--
			keep := err == nil && !w.closed && w.key == key
			if keep {
				w.ready = append(w.ready, s)
			}
			w.mu.Unlock()
			if err == nil && !keep {
				_ = s.Stop(context.Background())
			}
		})
	}
}

// Warm prepares Options.Warm sessions for spec and waits until they are ready.
func (e *Engine) Warm(ctx context.Context, spec Spec) error {
	spec, err := spec.Normalize()
	if err != nil {
		return err
	}
	w := &e.warm
	w.mu.Lock()
	w.key = warmKey(spec)
	w.fill(e, spec, w.key)
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.helper.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *warmPool) close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	ready := w.ready
	w.ready = nil
	w.mu.Unlock()
	var errs []error
	for _, s := range ready {
		errs = append(errs, s.Stop(ctx))
	}
	w.helper.Wait()
	return errors.Join(errs...)
}
