package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// A Watch says which journals have changed. It does nothing while none does. Add, Remove and Close may be called
// concurrently with Wait; Wait is for one goroutine.
type Watch struct {
	dir string
	fs  *fsnotify.Watcher
}

// ErrTooMany means that this system watches no more files or directories.
var ErrTooMany = errors.New("this system's limit of watched directories is reached")

// Watch returns a Watch of the sessions that begin from now on, and of those that Add names. It creates the directory
// if necessary. The caller must call Close.
func (d *Dir) Watch() (*Watch, error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	dir, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(dir); err != nil {
			err = errors.Join(err, w.Close())
		}
	}
	if err != nil {
		return nil, watchError(err)
	}
	return &Watch{dir, w}, nil
}

func watchError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EMFILE) {
		err = ErrTooMany
	}
	return fmt.Errorf("watch journals: %w", err)
}

// Add watches the journal of a session. The error wraps fs.ErrNotExist if there is none. To miss nothing, call Add before
// reading the journal to its end.
func (w *Watch) Add(id string) error {
	if !validSession(id) {
		return fmt.Errorf("journal of session %q: %w", id, fs.ErrNotExist)
	}
	name := filepath.Join(w.dir, id)
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %w", name, syscall.ENOTDIR)
	}
	if err := w.fs.Add(name); err != nil {
		return watchError(err)
	}
	return nil
}

// Remove does not watch the journal of a session any more.
func (w *Watch) Remove(id string) { _ = w.fs.Remove(filepath.Join(w.dir, id)) } // it may have gone

// Close ends the watch. A Wait returns then.
func (w *Watch) Close() error { return w.fs.Close() }

// Wait waits until journals have changed, and returns the ids of their sessions: at least one. Sessions that have begun
// are among them, and are watched from then on. If the system could not count the changes, all is true:
// any journal may have changed. When ctx ends, the error is its cause.
func (w *Watch) Wait(ctx context.Context) (ids []string, all bool, err error) {
	for len(ids) == 0 && !all {
		select {
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		case e, ok := <-w.fs.Events:
			if !ok {
				return nil, false, fsnotify.ErrClosed
			}
			ids = w.note(ids, e)
		case err, ok := <-w.fs.Errors:
			switch {
			case !ok:
				return nil, false, fsnotify.ErrClosed
			case !errors.Is(err, fsnotify.ErrEventOverflow):
				return nil, false, watchError(err)
			}
			all = true
		}
	}
	for { // what else has happened by now
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return ids, all, nil
			}
			ids = w.note(ids, e)
		default:
			return ids, all, nil
		}
	}
}

// note adds the session of an event to ids.
func (w *Watch) note(ids []string, e fsnotify.Event) []string {
	rel, err := filepath.Rel(w.dir, e.Name)
	if err != nil {
		return ids
	}
	id, file := filepath.Split(rel)
	if id = filepath.Clean(id); id == "." {
		if id = file; !validSession(id) || !e.Has(fsnotify.Create) {
			return ids
		}
		_ = w.Add(id) // it may have gone already
	} else if segmentNumber(file) == 0 && file != sessionName {
		return ids // the lock
	}
	if slices.Contains(ids, id) {
		return ids
	}
	return append(ids, id)
}
