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
	"strings"
	"sync"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// directories are those that a session's commands run in.
type directories struct {
	dir, home string // in the container
	host      string // the directory on the host that dir is, or is a copy of; "" if there is none
}

// outside returns the path on the host of a directory of the session, "" if the host
// does not have it.
func (p directories) outside(dir string) string {
	if dir == "" {
		dir = p.dir
	}
	if p.host == "" || !strings.HasPrefix(dir+"/", p.dir+"/") {
		return ""
	}
	return filepath.Join(p.host, filepath.FromSlash(strings.TrimPrefix(dir, p.dir)))
}

// maxPlaced bounds the size of the files that a URL stands for.
const maxPlaced = 256 << 20 // bytes

// TooLargeError reports a URL whose files are too large to be copied into a session.
type TooLargeError struct {
	URL   string
	Limit int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %d MiB, the most that is copied into the session", e.URL, e.Limit>>20)
}

// urlFiles copies the files that URLs stand for into the session.
type urlFiles struct {
	sandbox sandboxSession
	at      directories
	urls    tool.URLs
	key     string // the prefix of the directories' names, so that no other Session replaces their files

	mu   sync.Mutex
	done map[string]bool // guarded by mu; the paths that have been copied
}

// source is what a URL stands for, on the host.
type source struct {
	root *os.Root // no link leads out of it
	name string   // below root
	at   string   // the name of its directory in the session; it changes when the source does
	as   string
}

// put copies what a URL stands for into the session, unless it is there, and returns its
// path there.
func (s *Session) put(ctx context.Context, e tool.Expansion) (string, error) {
	if e.Kind == "local" {
		return s.local.provide(ctx, e.Path)
	}
	src, err := s.places.source(e)
	if err != nil || src.root == nil {
		return sandbox.PlacedPath(src.at, src.as), err
	}
	defer src.root.Close()
	to := sandbox.PlacedPath(src.at, src.as)
	s.places.mu.Lock()
	there := s.places.done[to]
	s.places.mu.Unlock()
	if there {
		return to, nil
	}
	tree := sandbox.Tree{FS: src.root.FS(), Name: src.name, Limit: maxPlaced}
	if _, err = s.places.sandbox.Place(ctx, src.at, src.as, tree); err != nil {
		if errors.Is(err, sandbox.ErrTooLarge) { // it has grown since its size was checked
			return "", &TooLargeError{URL: e.URL, Limit: maxPlaced}
		}
		return "", err
	}
	s.places.mu.Lock()
	defer s.places.mu.Unlock()
	if s.places.done == nil {
		s.places.done = map[string]bool{}
	}
	s.places.done[to] = true
	return to, nil
}

// foresee returns the path that put would return. It copies nothing.
func (s *Session) foresee(e tool.Expansion) (string, error) {
	if e.Kind == "local" {
		return s.local.seen(e.Path)
	}
	src, err := s.places.source(e)
	if err != nil {
		return "", err
	}
	if src.root != nil {
		defer src.root.Close()
	}
	return sandbox.PlacedPath(src.at, src.as), nil
}

// source finds what a URL stands for. If that does not exist its root is nil, and the
// path in the session does not exist either.
func (p *urlFiles) source(e tool.Expansion) (source, error) {
	src := source{as: path.Base(filepath.ToSlash(e.Path)), at: "none"}
	root, name := p.root(e)
	opened, err := os.OpenRoot(root)
	if errors.Is(err, fs.ErrNotExist) {
		return src, nil
	}
	if err != nil {
		return src, err
	}
	state, err := fingerprint(opened.FS(), filepath.ToSlash(name), e)
	if errors.Is(err, fs.ErrNotExist) {
		return src, opened.Close()
	}
	if err != nil {
		return src, errors.Join(err, opened.Close())
	}
	src.root, src.name, src.at = opened, filepath.ToSlash(name), p.key+"-"+state
	return src, nil
}

// root returns the directory of the host that links below a URL must not lead out of,
// and the name below it that the URL stands for. For a skill it is the skill's
// directory. Links in paths that the host itself has named, file by file, are followed.
func (p *urlFiles) root(e tool.Expansion) (dir, name string) {
	file := e.Path
	for _, skill := range p.urls.Skills {
		if e.Kind != "skill" {
			break
		}
		dir, err := filepath.Abs(skill.Dir)
		if rel, relErr := filepath.Rel(dir, file); err == nil && relErr == nil && filepath.IsLocal(rel) {
			return dir, rel
		}
	}
	if e.Kind == "skill" || e.Kind == "rule" {
		if target, err := filepath.EvalSymlinks(file); err == nil {
			file = target
		}
	}
	return filepath.Dir(file), filepath.Base(file)
}

// fingerprint returns a name for the state of a file or directory, by paths, sizes,
// modes and times. It returns an error for what is too large.
func fingerprint(tree fs.FS, name string, e tool.Expansion) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n", e.Path)
	var total int64
	err := fs.WalkDir(tree, name, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			total += info.Size()
		}
		if total > maxPlaced {
			return &TooLargeError{URL: e.URL, Limit: maxPlaced}
		}
		fmt.Fprintf(sum, "%q %d %v %d\n", name, info.Size(), info.Mode(), info.ModTime().UnixNano())
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)[:8]), err
}
