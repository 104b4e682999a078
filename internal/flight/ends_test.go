package flight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Different keys have calls of their own, which run at the same time, and an error is the
// outcome of all that wait for it, once.
func TestKeysAndErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group[string]
		var wg sync.WaitGroup
		began := time.Now()
		calls := map[string]int{}
		var mu sync.Mutex
		for _, key := range []string{"a", "b", "a", "b", "a"} {
			wg.Go(func() {
				got, err := g.Do(t.Context(), key, nil, func(context.Context, func(engine.Progress)) (string, error) {
					mu.Lock()
					calls[key]++
					mu.Unlock()
					time.Sleep(time.Second)
					return key, errors.New("broken " + key)
				})
				if got != key || err == nil || err.Error() != "broken "+key {
					t.Errorf("Do(%s) = %q, %v; want that key's outcome", key, got, err)
				}
			})
		}
		wg.Wait()
		if calls["a"] != 1 || calls["b"] != 1 || time.Since(began) != time.Second {
			t.Errorf("calls %v in %v; want one for each key, at the same time", calls, time.Since(began))
		}
		if len(g.running) != 0 {
			t.Errorf("%d calls are kept after their end", len(g.running))
		}
	})
}

// A caller that comes while a cancelled call cleans up gets a call of its own, and the end of
// the old one does not take it away from later callers.
func TestCallAfterACancelledOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		var calls atomic.Int32
		call := func(ctx context.Context, _ func(engine.Progress)) (int, error) {
			n := calls.Add(1)
			if n == 1 {
				<-ctx.Done()
				time.Sleep(2 * time.Second) // cleans up
				return 0, context.Cause(ctx)
			}
			time.Sleep(5 * time.Second)
			return int(n), nil
		}
		var wg sync.WaitGroup
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wg.Go(func() { _, _ = g.Do(gone, "k", nil, call) })
		for _, at := range []time.Duration{1500 * time.Millisecond, 4 * time.Second} { // while it cleans up, and afterwards
			wg.Go(func() {
				time.Sleep(at)
				if got, err := g.Do(t.Context(), "k", nil, call); got != 2 || err != nil {
					t.Errorf("Do() after %v = %d, %v; want 2 of the second call", at, got, err)
				}
			})
		}
		wg.Wait()
		if calls.Load() != 2 {
			t.Errorf("%d calls; want 2", calls.Load())
		}
	})
}

// A caller that is slow to look at progress delays neither the call nor other callers, and
// sees the latest of each step; none is shown after Do has returned.
func TestSlowProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		call := func(_ context.Context, tell func(engine.Progress)) (int, error) {
			for n := range 10 {
				tell(engine.Progress{ID: "a", Current: int64(n)})
				tell(engine.Progress{ID: "b", Current: int64(n)})
				time.Sleep(time.Second)
			}
			return 1, nil
		}
		var wg sync.WaitGroup
		for _, pause := range []time.Duration{0, 30 * time.Second} {
			wg.Go(func() {
				var seen []engine.Progress
				returned := false
				began := time.Now()
				_, err := g.Do(t.Context(), "k", func(p engine.Progress) {
					if returned {
						t.Error("progress is shown after the end")
					}
					seen = append(seen, p)
					time.Sleep(pause)
				}, call)
				returned = true
				if last := seen[len(seen)-2:]; err != nil || !slices.Equal(last, []engine.Progress{{ID: "a", Current: 9}, {ID: "b", Current: 9}}) {
					t.Errorf("with pauses of %v the last steps are %v, %v; want 9 of both", pause, last, err)
				}
				if pause == 0 && time.Since(began) != 10*time.Second {
					t.Errorf("the fast caller waited %v; want 10s", time.Since(began))
				}
				if pause > 0 && len(seen) > 6 {
					t.Errorf("the slow caller was shown %d steps; want the latest only", len(seen))
				}
			})
		}
		wg.Wait()
	})
}
