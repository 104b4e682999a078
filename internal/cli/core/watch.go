package core

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// A Watcher waits for changes in a directory and in all directories in it. It does nothing while
// there are none. It is for one goroutine.
type Watcher struct {
	dir string
	fs  *fsnotify.Watcher
}

// NewWatcher makes a Watcher that watches nothing yet. The caller calls Close.
func NewWatcher(dir string) (*Watcher, error) {
	dir, err := filepath.EvalSymlinks(dir) // a walk does not follow it
	if err != nil {
		return nil, err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, watchError(dir, err)
	}
	return &Watcher{dir: dir, fs: w}, nil
}

// Close lets go of the directories.
func (w *Watcher) Close() { _ = w.fs.Close() } // of what was only read

// Cover watches all directories that there are now. Links are not followed.
func (w *Watcher) Cover() error {
	watched := map[string]bool{}
	for _, dir := range w.fs.WatchList() {
		watched[dir] = true
	}
	return filepath.WalkDir(w.dir, func(name string, d fs.DirEntry, err error) error {
		gone := errors.Is(err, fs.ErrNotExist) && name != w.dir
		switch {
		case gone:
			return nil
		case err != nil:
			return err
		case !d.IsDir() || watched[name]:
			return nil
		}
		if err := w.fs.Add(name); err != nil && (name == w.dir || !errors.Is(err, fs.ErrNotExist)) {
			return watchError(name, err)
		}
		return nil
	})
}

// watchError says what to do where the system watches no more.
func watchError(dir string, err error) error {
	err = fmt.Errorf("watch %s: %w", dir, err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) {
		return exit.Misuse("raise the limit, on Linux with `sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512`, or do it without --watch or --follow", "%v: this system's limit of watched directories is reached", err)
	}
	return err
}

// Wait returns when something has changed and nothing more does for the time quiet, or when changes have gone
// on for the time most. Changes that the system could not count are a change.
func (w *Watcher) Wait(ctx context.Context, quiet, most time.Duration) error {
	var settled, late <-chan time.Time // nil until the first change
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-settled:
			return nil
		case <-late:
			return nil
		case _, ok := <-w.fs.Events:
			if !ok {
				return fsnotify.ErrClosed
			}
		case err, ok := <-w.fs.Errors:
			if !ok {
				return fsnotify.ErrClosed
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return watchError(w.dir, err)
			}
		}
		settled = time.After(quiet)
		if late == nil {
			late = time.After(most)
		}
	}
}
