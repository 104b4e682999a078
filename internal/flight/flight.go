// Package flight runs a call once for all callers that ask for the same at the same time.
package flight

import (
	"context"
	"slices"
	"sync"

	"github.com/sandboxbash/sandboxbash/engine"
)

// maxPending bounds the progress kept for a waiter that is slow to read it: one entry
// per layer or step. A waiter does not see the steps beyond it.
const maxPending = 256

// Group runs one call per key at a time. A caller that asks while the call runs waits
// for the same outcome, and is shown the progress so far and from then on. The call is
// cancelled when its last waiter has gone. The zero value is ready to use.
//
// It is golang.org/x/sync/singleflight with progress, and with a call that outlives the
// context of the caller that started it.
type Group[T any] struct {
	mu      sync.Mutex
	running map[string]*flight[T] // guarded by mu
}

type flight[T any] struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	value   T                    // readable once done is closed
	err     error                // as value
	waiters map[*waiter]struct{} // guarded by Group.mu
	latest  []engine.Progress    // guarded by Group.mu; shown to a waiter that joins later
}

// waiter holds the progress that its caller has not been shown yet. The caller's own
// goroutine shows it, so that a slow caller delays no other.
type waiter struct {
	ready   chan struct{} // buffered, 1
	mu      sync.Mutex
	pending []engine.Progress // guarded by mu; the latest of each ID
}

// Do returns the outcome of call for key. A nil progress is allowed; it is
// called by this goroutine only, and not after Do has returned.
func (f *Group[T]) Do(ctx context.Context, key string, progress func(engine.Progress), call func(context.Context, func(engine.Progress)) (T, error)) (T, error) {
	if progress == nil {
		progress = func(engine.Progress) {}
	}
	w := &waiter{ready: make(chan struct{}, 1)}
	fl := f.join(ctx, key, w, call)
	for {
		select {
		case <-w.ready:
			w.show(progress)
		case <-fl.done:
			w.show(progress)
			return fl.value, fl.err
		case <-ctx.Done():
			if f.leave(key, fl, w) {
				<-fl.done // the last waiter waits for what it started
			}
			var zero T
			return zero, context.Cause(ctx)
		}
	}
}

func (f *Group[T]) join(ctx context.Context, key string, w *waiter, call func(context.Context, func(engine.Progress)) (T, error)) *flight[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.running[key]; ok {
		fl.waiters[w] = struct{}{}
		for _, p := range fl.latest {
			w.add(p)
		}
		return fl
	}
	shared, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	fl := &flight[T]{cancel: cancel, done: make(chan struct{}), waiters: map[*waiter]struct{}{w: {}}}
	if f.running == nil {
		f.running = make(map[string]*flight[T])
	}
	f.running[key] = fl
	go func() {
		defer close(fl.done)
		defer cancel(nil)
		fl.value, fl.err = call(shared, func(p engine.Progress) { f.tell(fl, p) })
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.running[key] == fl {
			delete(f.running, key)
		}
	}()
	return fl
}

// leave removes w from fl and reports whether it was the last waiter. If so, the call is
// cancelled, and the next caller starts a new one.
func (f *Group[T]) leave(key string, fl *flight[T], w *waiter) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(fl.waiters, w)
	if len(fl.waiters) > 0 {
		return false
	}
	fl.cancel(context.Canceled)
	if f.running[key] == fl {
		delete(f.running, key)
	}
	return true
}

func (f *Group[T]) tell(fl *flight[T], p engine.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.latest, _ = merge(fl.latest, p)
	for w := range fl.waiters {
		w.add(p)
	}
}

func (w *waiter) add(p engine.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ok bool
	if w.pending, ok = merge(w.pending, p); !ok {
		return
	}
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// merge replaces the last step of p's ID by p, or appends p if there is room.
func merge(list []engine.Progress, p engine.Progress) ([]engine.Progress, bool) {
	i := slices.IndexFunc(list, func(old engine.Progress) bool { return old.ID == p.ID })
	switch {
	case i >= 0:
		list[i] = p
	case len(list) == maxPending:
		return list, false
	default:
		list = append(list, p)
	}
	return list, true
}

func (w *waiter) show(progress func(engine.Progress)) {
	w.mu.Lock()
	pending := w.pending
	w.pending = nil
	w.mu.Unlock()
	for _, p := range pending {
		progress(p)
	}
}
