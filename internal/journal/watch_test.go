package journal

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A Watch tells of sessions that begin and of those that are named, and of nothing else.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	watch, err := Open(dir).Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close() //nolint:errcheck // nothing to tell
	if err := watch.Add("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Add() of no journal = %v; want that it does not exist", err)
	}
	if err := watch.Add(".."); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Add() of no session = %v; want that it does not exist", err)
	}
	wait := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for {
			ids, _, err := watch.Wait(ctx)
			if err != nil {
				t.Fatalf("Wait() = %v; want %s", err, want)
			}
			if slices.Contains(ids, want) {
				return
			}
		}
	}
	w := NewWriter(dir, Options{})
	defer w.Close()
	w.Put("one", Record{Kind: SessionStart}, nil)
	wait("one")
	for range 3 { // it is watched from then on
		w.Put("one", Record{Kind: Denied}, nil)
		wait("one")
		time.Sleep(2 * batchTime)
	}
	watch.Remove("one")
	w.Put("two", Record{Kind: SessionStart}, nil)
	wait("two")

	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	for range 100 { // events that were not fetched come first or not at all
		if _, _, err = watch.Wait(ctx); err != nil {
			break
		}
	}
	if !errors.Is(err, over) {
		t.Errorf("Wait() of a context that has ended = %v; want its cause", err)
	}
}
