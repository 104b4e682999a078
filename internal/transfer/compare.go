package transfer

import (
	"cmp"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Side says who has changed something.
type Side string

// Sides.
const (
	Session Side = "session"
	Here    Side = "host"
	Both    Side = "both"
)

// Change is one difference between a tree of a session and a directory.
type Change struct {
	Path string `json:"path"` // relative
	Kind string `json:"kind"` // "added", "modified", "deleted", "type"; to what the session has
	// By says who has changed it since both were alike; "" where that is not known.
	By Side `json:"by,omitempty"`
}

// Comparison compares a tree, entry by entry, with a directory: Take for each entry,
// then Finish.
type Comparison struct {
	tree    Tree
	base    State
	known   bool
	items   []Entry
	changes []Change
}

// Compare compares with a directory. base is what was alike on both sides; with nil
// that is not known, and all differences are.
func Compare(t Tree, base State) *Comparison {
	return &Comparison{tree: t, base: base, known: base != nil}
}

// Take compares one entry.
func (c *Comparison) Take(e Entry, content io.Reader) error {
	if e.Name == "." || e.Kind == Other || c.tree.leaves(e.Name) {
		return nil
	}
	if e.Kind == File {
		sum, _, err := sumOf(content)
		if err != nil {
			return err
		}
		e.Sum = &sum
	}
	c.items = append(c.items, Entry{Name: e.Name, Kind: e.Kind})
	same, exists, err := c.tree.is(e)
	if err != nil || same {
		return err
	}
	if !c.known {
		kind, err := c.kind(e, exists)
		if err == nil {
			c.note(e.Name, kind, "")
		}
		return err
	}
	was, ok := c.base.Find(e.Name)
	theirs := change(was, ok, e)
	if !ok && exists { // both have made it
		kind, err := c.kind(e, true)
		c.note(e.Name, kind, Both)
		return err
	}
	ours := ok
	if ok {
		alike, _, err := c.tree.is(was)
		if err != nil {
			return err
		}
		ours = !alike
	}
	switch {
	case theirs == "":
		kind, err := c.kind(e, exists)
		if kind == "added" {
			kind = "deleted" // by the user: it goes the other way
		}
		c.note(e.Name, kind, Here)
		return err
	case ours:
		c.note(e.Name, theirs, Both)
	default:
		c.note(e.Name, theirs, Session)
	}
	return nil
}

func (c *Comparison) note(name, kind string, by Side) {
	c.changes = append(c.changes, Change{Path: name, Kind: kind, By: by})
}

// kind says how an entry differs from what is here.
func (c *Comparison) kind(e Entry, exists bool) (string, error) {
	if !exists {
		return "added", nil
	}
	info, err := c.tree.Root.Lstat(filepath.FromSlash(e.Name))
	if err != nil {
		return "", err
	}
	if kindOf(info) != e.Kind {
		return "type", nil
	}
	return "modified", nil
}

func kindOf(info fs.FileInfo) Kind {
	switch {
	case info.IsDir():
		return Dir
	case info.Mode()&fs.ModeSymlink != 0:
		return Link
	case info.Mode().IsRegular():
		return File
	}
	return Other
}

// change says how an entry differs from what it was; "" if it does not.
func change(was Entry, known bool, now Entry) string {
	switch {
	case !known:
		return "added"
	case was.Kind != now.Kind:
		return "type"
	case !was.Same(now):
		return "modified"
	}
	return ""
}

// Finish adds what the session does not have, and returns all differences, sorted by
// path. A directory that one side lacks is one difference, without what is in it.
func (c *Comparison) Finish() ([]Change, error) {
	seen := NewState(c.items)
	err := fs.WalkDir(c.tree.Root.FS(), ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(file)
		if name == "." {
			return nil
		}
		if c.tree.leaves(name) || strings.HasPrefix(path.Base(name), stagePrefix) {
			return skip(d)
		}
		known := d.IsDir() || d.Type().IsRegular() || d.Type()&fs.ModeSymlink != 0
		if _, ok := seen.Find(name); ok || !known {
			return nil
		}
		if err := c.missing(name); err != nil {
			return err
		}
		return skip(d)
	})
	slices.SortFunc(c.changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return c.changes, err
}

func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// missing notes what is here and not in the session.
func (c *Comparison) missing(name string) error {
	if !c.known {
		c.note(name, "deleted", "")
		return nil
	}
	was, ok := c.base.Find(name)
	if !ok {
		c.note(name, "added", Here)
		return nil
	}
	alike, _, err := c.tree.is(was)
	if err != nil {
		return err
	}
	if alike {
		c.note(name, "deleted", Session)
	} else {
		c.note(name, "deleted", Both)
	}
	return nil
}
