package agent

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
	"github.com/sandboxbash/sandboxbash/tool"
)

// localDir is the directory of local:// on the host, and its copy in the session, which
// commands work on. The copy is made when a command first names a local:// URL; from
// then on changes in the copy are applied to the host after each command.
type localDir struct {
	sandbox sandboxSession
	host    string // absolute
	dir     string // in the container

	mu   sync.Mutex      // held while files are copied
	used bool            // guarded by mu; there is a copy
	last string          // guarded by mu; the host's state when both were equal
	both map[string]bool // guarded by mu; the files that both had then
}

func newLocalDir(b sandboxSession, home string, l tool.Local) (*localDir, error) {
	host, err := filepath.Abs(l.Root())
	if err != nil {
		return nil, err
	}
	return &localDir{sandbox: b, host: host, dir: path.Join(home, ".sandboxbash", "local", tool.SafeSession(l.Session))}, nil
}

// seen returns the path in the session for a path of the host.
func (l *localDir) seen(hostPath string) (string, error) {
	rel, err := filepath.Rel(l.host, hostPath)
	if err != nil || !filepath.IsLocal(rel) {
		return "", tool.Refusef("local:// URL escapes local root")
	}
	return path.Join(l.dir, filepath.ToSlash(rel)), nil
}

// provide brings the copy up to date with the host, makes the parent directory of a
// path, and returns where commands see that path.
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
	if err := l.sandbox.Replace(ctx, l.host, l.dir); err != nil {
		return "", err
	}
	l.used, l.last, l.both = true, now, names
	return seen, nil
}

// makeParent makes the parent directory of a path below the host's directory. It does
// not follow links that lead out of that.
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

// state returns a fingerprint of the host's directory, by sizes and times, and the files
// in it.
func (l *localDir) state() (string, map[string]bool, error) {
	sum := sha256.New()
	names := map[string]bool{}
	var total int64
	err := filepath.WalkDir(l.host, func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has been removed meanwhile
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it has been removed meanwhile
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
		if d.IsDir() { // its time changes with its entries, which are counted themselves
			fmt.Fprintf(sum, "%q %v\n", name, info.Mode())
			return nil
		}
		fmt.Fprintf(sum, "%q %d %v %d\n", name, info.Size(), info.Mode(), info.ModTime().UnixNano())
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), names, err
}

// bringBack applies the changes in the copy to the host.
func (l *localDir) bringBack(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.used {
		return nil
	}
	changes, err := l.sandbox.Diff(ctx, l.dir, l.host)
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
		l.last, err = "", nil // the host's files stay as they are
	}
	return err
}

// apply makes the host's directory equal to the copy. A file that only the host has
// stays, unless both have had it: then a command has removed it.
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
	// Files are replaced atomically: tools of the host may be reading them.
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

// fetch pulls the copy, if it has changed.
func (l *localDir) fetch(ctx context.Context, changes []sandbox.Change, to string) error {
	for _, c := range changes {
		if c.Kind != "deleted" {
			_, err := l.sandbox.Pull(ctx, l.dir, to, sandbox.PullOptions{Untracked: true})
			return err
		}
	}
	return nil
}

// move replaces a file of the host by the one that was fetched.
func (l *localDir) move(parent, root *os.Root, staged string, c sandbox.Change) error {
	name := filepath.FromSlash(c.Path)
	from := filepath.Join(staged, name)
	info, err := parent.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // left out: not a regular file, a link that leads out, or moved along with its directory
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

// bringBack applies the changes of commands below local:// to the host. An error does
// not change the command's result.
func (s *Session) bringBack(ctx context.Context) {
	if s.local == nil {
		return
	}
	if err := s.local.bringBack(context.WithoutCancel(ctx)); err != nil {
		s.opts.Log.WarnContext(ctx, "bring local:// back", "dir", s.local.host, "error", err)
	}
}
