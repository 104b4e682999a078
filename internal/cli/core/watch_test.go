package core_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
)

func write(t *testing.T, name string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A change is noticed wherever it is, also in a directory that was made after the last one.
func TestWatcher(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "b", "f"))
	w, err := core.NewWatcher(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, name := range []string{"top", "a/b/f", "a/new/deep/f", "a/new/deep/g"} {
		if err := w.Cover(); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := w.Wait(ctx, 10*time.Millisecond, time.Second); err != nil {
			t.Errorf("after a change of %s, Wait() = %v", name, err)
		}
		cancel()
	}
}

// Without a change it waits, and ends with its context.
func TestWatcherWaits(t *testing.T) {
	t.Parallel()
	w, err := core.NewWatcher(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Cover(); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
	defer cancel()
	if err := w.Wait(ctx, 0, time.Second); !errors.Is(err, cause) {
		t.Errorf("Wait() = %v; want %v", err, cause)
	}
}

// Changes without end are not waited for.
func TestWatcherBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := core.NewWatcher(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Cover(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)
			time.Sleep(time.Millisecond)
		}
	}()
	err = w.Wait(ctx, time.Minute, 20*time.Millisecond)
	cancel()
	<-done
	if err != nil {
		t.Errorf("Wait() = %v", err)
	}
}
