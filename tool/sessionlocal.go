package tool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// localDir is local://: a directory of the host, and its copy in the session that
// commands work on. What they do there is done on the host after each command, as
// soon as one has named a URL of it.
type localDir struct {
	box  mirror
	host string // absolute
	dir  string // in the container

	mu   sync.Mutex      // held while files go to and fro
	used bool            // guarded by mu; there is a copy
	last string          // guarded by mu; the host's state when both were alike
	both map[string]bool // guarded by mu; what both had then
}

func newLocalDir(b mirror, home string, l Local) (*localDir, error) {
	host, err := filepath.Abs(l.root())
	if err != nil {
		return nil, err
	}
	return &localDir{box: b, host: host, dir: path.Join(home, ".sandboxbash", "local", safeSession(l.Session))}, nil
}

// seen is where commands see a path of the host.
func (l *localDir) seen(hostPath string) (string, error) {
	rel, err := filepath.Rel(l.host, hostPath)
	if err != nil || !filepath.IsLocal(rel) {
		return "", refuse("local:// URL escapes local root")
	}
	return path.Join(l.dir, filepath.ToSlash(rel)), nil
}

// provide makes the copy like the host's, with the directory that a path lies in,
// and says where commands see that path.
func (l *localDir) provide(ctx context.Context, hostPath string) (string, error) {
	seen, err := l.seen(hostPath)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.makeParent(hostPath); err != nil {
		return "", err
	}
	now, names, err := l.state()
	if err != nil {
		return "", err
	}
	if l.used && now == l.last {
		return seen, nil
	}
	if err := l.box.Replace(ctx, l.host, l.dir); err != nil {
		return "", err
	}
	l.used, l.last, l.both = true, now, names
	return seen, nil
}

// makeParent makes the directory of a path below the host's, over no link that
// leads out.
func (l *localDir) makeParent(hostPath string) error {
	if err := os.MkdirAll(l.host, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(l.host)
	if err != nil {
		return err
	}
	defer root.Close()
	rel, err := filepath.Rel(l.host, hostPath)
	if err != nil || rel == "." {
		return err
	}
	return root.MkdirAll(filepath.Dir(rel), 0o700)
}

// state names what is in the host's directory, by sizes and times, and lists it.
func (l *localDir) state() (string, map[string]bool, error) {
	sum := sha256.New()
	names := map[string]bool{}
	var total int64
	err := filepath.WalkDir(l.host, func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		name, err := filepath.Rel(l.host, file)
		if err != nil || name == "." {
			return err
		}
		if total += info.Size(); total > maxPlaced {
			return &TooLargeError{URL: "local://", Limit: maxPlaced}
		}
		name = filepath.ToSlash(name)
		names[name] = true
		if d.IsDir() { // its time changes with what is in it, which is looked at anyway
			fmt.Fprintf(sum, "%q %v\n", name, info.Mode())
			return nil
		}
		fmt.Fprintf(sum, "%q %d %v %d\n", name, info.Size(), info.Mode(), info.ModTime().UnixNano())
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), names, err
}

// bringBack does on the host what commands have done in the copy.
func (l *localDir) bringBack(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.used {
		return nil
	}
	changes, err := l.box.Diff(ctx, l.dir, l.host)
	if err != nil { // a command has removed it, or the session was reset
		l.used = false
		return err
	}
	if len(changes) == 0 {
		return nil
	}
	if err := l.apply(ctx, changes); err != nil {
		return err
	}
	l.last, l.both, err = l.state()
	if large := (*TooLargeError)(nil); errors.As(err, &large) {
		l.last, err = "", nil // what there is stays; it is not copied in again
	}
	return err
}

// apply makes the host's directory like the copy. What the host alone has is of
// the host's making, unless both have had it.
func (l *localDir) apply(ctx context.Context, changes []sandbox.Change) error {
	parent, err := os.OpenRoot(filepath.Dir(l.host))
	if err != nil {
		return err
	}
	defer parent.Close()
	root, err := parent.OpenRoot(filepath.Base(l.host))
	if err != nil {
		return err
	}
	defer root.Close()
	// A file of the host's own tools is replaced at once or not at all: they may be
	// reading it.
	staged, err := os.MkdirTemp(filepath.Dir(l.host), ".pull-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	if err := l.fetch(ctx, changes, staged); err != nil {
		return err
	}
	var errs []error
	for _, c := range changes {
		switch {
		case c.Kind != "deleted":
			errs = append(errs, l.move(parent, root, filepath.Base(staged), c))
		case l.both[c.Path]:
			errs = append(errs, root.RemoveAll(filepath.FromSlash(c.Path)))
		}
	}
	return errors.Join(errs...)
}

// fetch pulls the copy, if there is anything in it to fetch.
func (l *localDir) fetch(ctx context.Context, changes []sandbox.Change, to string) error {
	for _, c := range changes {
		if c.Kind != "deleted" {
			_, err := l.box.Pull(ctx, l.dir, to)
			return err
		}
	}
	return nil
}

// move puts what has been fetched in the place of what there is.
func (l *localDir) move(parent, root *os.Root, staged string, c sandbox.Change) error {
	name := filepath.FromSlash(c.Path)
	from := filepath.Join(staged, name)
	info, err := parent.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // left out: no file, a link that leads out, or with a directory that has been moved
	}
	if err != nil {
		return err
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if info.IsDir() {
		if old, err := root.Lstat(name); err == nil && old.IsDir() {
			return nil
		}
	}
	if c.Kind == "type" || info.IsDir() {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return parent.Rename(from, filepath.Join(filepath.Base(l.host), name))
}

// bringBack does it for every local:// there is. What goes wrong with it is not
// the command's.
func (s *Session) bringBack(ctx context.Context) {
	if s.local == nil {
		return
	}
	if err := s.local.bringBack(context.WithoutCancel(ctx)); err != nil {
		s.opts.Log.WarnContext(ctx, "bring local:// back", "dir", s.local.host, "error", err)
	}
}
