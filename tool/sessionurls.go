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
	"strings"
	"sync"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// place is where a session's commands run.
type place struct {
	dir, home string // in the container
	host      string // what dir is, or was made of, on the host; "" if there is no such thing
}

// outside is a directory of the session as the host has it, "" if it has not.
func (p place) outside(dir string) string {
	if dir == "" {
		dir = p.dir
	}
	if p.host == "" || !strings.HasPrefix(dir+"/", p.dir+"/") {
		return ""
	}
	return filepath.Join(p.host, filepath.FromSlash(strings.TrimPrefix(dir, p.dir)))
}

// maxPlaced is how much a URL may stand for.
const maxPlaced = 256 << 20 // bytes

// TooLargeError is a URL that stands for more than is copied into a session.
type TooLargeError struct {
	URL   string
	Limit int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s is larger than %d MiB, the most that is copied into the session", e.URL, e.Limit>>20)
}

// places copies what URLs stand for to where commands can read it.
type places struct {
	box  placer
	at   place
	urls URLs
	key  string // begins the names of directories: no other Session replaces what is in them

	mu   sync.Mutex
	done map[string]bool // guarded by mu; names of what is there
}

// source is what a URL stands for, on the host.
type source struct {
	root *os.Root // no link leads out of it
	name string   // below root
	at   string   // its name in the session: another one as soon as anything of it changes
	as   string
}

// put sees to it that commands find what a URL stands for, and says where.
func (s *Session) put(ctx context.Context, e Expansion) (string, error) {
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
	if _, err = s.places.box.Place(ctx, src.at, src.as, tree); err != nil {
		if errors.Is(err, sandbox.ErrTooLarge) { // it has grown meanwhile
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

// foresee says where put would put it.
func (s *Session) foresee(e Expansion) (string, error) {
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

// source finds what a URL stands for. If there is no such thing, its root is nil,
// and the path leads nowhere in the session either.
func (p *places) source(e Expansion) (source, error) {
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

// root is the directory of the host that nothing of a URL may lead out of, and what
// the URL stands for below it: the skill's for a skill. Of what a host has named
// itself, file by file, links are followed.
func (p *places) root(e Expansion) (dir, name string) {
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

// fingerprint names the state of a file or directory: by paths, sizes, modes and
// times. It refuses what is too large.
func fingerprint(tree fs.FS, name string, e Expansion) (string, error) {
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
