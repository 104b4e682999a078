package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// A Scan finds out what is in a directory of this machine, as a session would get it. It leaves
// out what looks like credentials, and what is neither a file nor a directory nor a link.
type Scan struct {
	State State // once Read has returned
	Index Index // of the files in State
	Files int   // that Read has read: the others were in its index

	root  *os.Root
	begun time.Time
	found []foundFile
}

type foundFile struct {
	name string
	info fs.FileInfo
}

// OpenScan walks through a directory without reading its files. The caller calls Close.
func OpenScan(dir string) (*Scan, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Scan{root: root, begun: time.Now(), Index: Index{}}
	err = fs.WalkDir(walked{root}, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name != "." && missing(err):
			return nil
		case err != nil:
			return err
		case name == ".":
			return nil
		case IsCredential(name) || ofOurs(path.Base(name)) || isGitLock(name):
			return skip(d)
		}
		info, err := d.Info()
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if kindOf(info) == Other {
			return nil
		}
		if len(s.found) >= DefaultLimits.Entries {
			return fmt.Errorf("%s has more than %d files", dir, DefaultLimits.Entries)
		}
		s.found = append(s.found, foundFile{name, info})
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// isGitLock reports whether a name is that of a file that git makes while it works in a repository:
// in a session it would lock the repository for good.
func isGitLock(name string) bool { return strings.HasSuffix(name, ".lock") && repositoryOf(name) != "" }

// Close closes the directory.
func (s *Scan) Close() error { return s.root.Close() }

// Read reads the files that are not in an index as they are, and sets State and Index.
func (s *Scan) Read(ctx context.Context, known Index) error {
	state := make([]Entry, 0, len(s.found))
	for _, f := range s.found {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		e, ok, err := s.entry(f, known)
		if err != nil {
			return fmt.Errorf("%s: %w", shown(f.name), err)
		}
		if ok {
			state = append(state, e)
		}
	}
	s.found = nil
	s.State = NewState(state)
	return nil
}

// entry returns what has been found; false if it has gone since.
func (s *Scan) entry(f foundFile, known Index) (Entry, bool, error) {
	e := Entry{Name: f.name, Kind: kindOf(f.info), Mode: f.info.Mode().Perm()}
	switch e.Kind {
	case Link:
		target, err := s.root.Readlink(filepath.FromSlash(f.name))
		if err != nil {
			return e, false, ignoreMissing(err)
		}
		e.Target = filepath.ToSlash(target)
	case File:
		if was, ok := known.find(f.name, f.info); ok {
			s.Index[f.name] = known[f.name]
			return was, true, nil
		}
		s.Files++
		sum, size, err := Tree{Root: s.root, Clean: Clean}.content(f.name)
		if err != nil {
			return e, false, ignoreMissing(err)
		}
		e.Sum, e.Size = &sum, size
		s.Index.add(f.name, f.info, e, s.begun)
	case Dir, Other:
	}
	return e, true, nil
}

func ignoreMissing(err error) error {
	if missing(err) {
		return nil
	}
	return err
}
