package flight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Callers of one key share a call, its outcome and its progress, also the progress from
// before they came. The call outlives the caller that started it.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		calls := 0
		call := func(ctx context.Context, tell func(engine.Progress)) (int, error) {
			calls++
			tell(engine.Progress{ID: "a", Current: 1})
			tell(engine.Progress{ID: "b", Current: 1})
			tell(engine.Progress{ID: "a", Current: 2})
			select {
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			case <-time.After(time.Minute):
				return 7, nil
			}
		}
		var wg sync.WaitGroup
		first, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wg.Go(func() {
			if got, err := g.Do(first, "k", nil, call); got != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Do() of the first = %d, %v; want its deadline", got, err)
			}
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				var seen []engine.Progress
				got, err := g.Do(t.Context(), "k", func(p engine.Progress) { seen = append(seen, p) }, call)
				if got != 7 || err != nil {
					t.Errorf("Do() = %d, %v; want 7, nil", got, err)
				}
				if want := []engine.Progress{{ID: "a", Current: 2}, {ID: "b", Current: 1}}; !slices.Equal(seen, want) {
					t.Errorf("Do() showed %v; want %v", seen, want)
				}
			})
		}
		wg.Wait()
		if calls != 1 {
			t.Errorf("%d calls; want 1", calls)
		}
		if _, err := g.Do(t.Context(), "k", nil, call); err != nil || calls != 2 {
			t.Errorf("Do() after the end = %v, %d calls; want a new one", err, calls)
		}
	})
}

// The last waiter ends the call when it leaves, and waits until it has ended.
func TestLastWaiterEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		ended := false
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Do(ctx, "k", nil, func(ctx context.Context, _ func(engine.Progress)) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // what it takes to clean up
			ended = true
			return 0, context.Cause(ctx)
		})
		if !errors.Is(err, context.DeadlineExceeded) || !ended {
			t.Errorf("Do() = %v, ended: %v; want its deadline, after the call's end", err, ended)
		}
	})
}

// Steps beyond what is kept for a waiter are not shown.
func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	var list []engine.Progress
	for i := range 2 * maxPending {
		var ok bool
		if list, ok = merge(list, engine.Progress{ID: string(rune('a' + i))}); ok != (i < maxPending) {
			t.Fatalf("merge() of step %d = %v", i, ok)
		}
	}
	if list, ok := merge(list, engine.Progress{ID: "a", Current: 5}); !ok || len(list) != maxPending || list[0].Current != 5 {
		t.Errorf("merge() of a known step = %v with %d steps; want it replaced", ok, len(list))
	}
}
