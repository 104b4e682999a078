package docker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Twenty callers at the same time ask once, and those that come later do not ask again.
func TestMemoAsksOnce(t *testing.T) {
	t.Parallel()
	var m memo[int]
	var asked atomic.Int32
	wait := make(chan struct{})
	ask := func(ctx context.Context) (int, error) { <-wait; return int(asked.Add(1)), ctx.Err() }
	var group errgroup.Group
	for range 20 {
		group.Go(func() error {
			if got, err := m.get(t.Context(), ask); got != 1 || err != nil {
				t.Errorf("get() = %d, %v; want 1", got, err)
			}
			return nil
		})
	}
	close(wait)
	_ = group.Wait()
	if got, err := m.get(t.Context(), ask); got != 1 || err != nil {
		t.Errorf("get() later = %d, %v; want the answer of the first request", got, err)
	}
}

// After an error the next caller asks again.
func TestMemoForgetsErrors(t *testing.T) {
	t.Parallel()
	var m memo[string]
	failed := errors.New("no answer")
	if _, err := m.get(t.Context(), func(context.Context) (string, error) { return "half", failed }); !errors.Is(err, failed) {
		t.Fatalf("get() = %v; want %v", err, failed)
	}
	if got, err := m.get(t.Context(), func(context.Context) (string, error) { return "whole", nil }); got != "whole" || err != nil {
		t.Errorf("get() = %q, %v; want the second answer", got, err)
	}
}
