package transfer

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Report is what Finish has done.
type Report struct {
	LeftOut []Omission
	// Deleted names what the session no longer has and is still here: nothing is
	// ever deleted.
	Deleted []string
	Written int
	Files   int   // of those that were written, how many are files
	Bytes   int64 // and how large they are
	Alike   int   // files that were not written because they are here already
	State   State // what is alike on both sides now, as far as is known
}

// ConflictError says that a tree was not taken, and nothing written: something is
// here that would be lost.
type ConflictError struct {
	Changed []string // differs from the state that was alike on both sides, or is not known
	Blocked []string // is a directory or leads elsewhere: not even Force replaces it
}

func (e *ConflictError) Error() string {
	var parts []string
	if len(e.Changed) > 0 {
		parts = append(parts, "changed here since it was copied, or not known to be a copy: "+few(e.Changed))
	}
	if len(e.Blocked) > 0 {
		parts = append(parts, "a directory is in the way of a file, or a file or link of a directory: "+few(e.Blocked))
	}
	return "nothing was written: " + strings.Join(parts, "; ")
}

// fewNames is how many names a message lists.
const fewNames = 10

func few(names []string) string {
	var some []string
	for _, name := range names[:min(len(names), fewNames)] {
		some = append(some, shown(name))
	}
	if len(names) > fewNames {
		return fmt.Sprintf("%s and %d more", strings.Join(some, ", "), len(names)-fewNames)
	}
	return strings.Join(some, ", ")
}

// Finish decides what is to be done with what was taken, and does it. With an error
// of type *ConflictError nothing was written.
func (b *Inbox) Finish() (Report, error) {
	if err := b.sort(); err != nil {
		return Report{}, err
	}
	if err := b.decide(); err != nil {
		return Report{}, err
	}
	if b.o.Named && len(b.left) > 0 {
		return Report{}, fmt.Errorf("left out: %s", b.left[0])
	}
	if err := b.checkCase(); err != nil {
		return Report{}, err
	}
	report := Report{LeftOut: b.leftOut(), State: b.state()}
	if !b.o.Named {
		report.Deleted = b.deleted()
	}
	written, err := b.commit()
	report.Written = written
	for _, it := range b.items {
		switch {
		case it.Kind != File:
		case it.what == write:
			report.Files++
			report.Bytes += it.Size
		case it.what == keep:
			report.Alike++
		}
	}
	return report, err
}

func (b *Inbox) find(name string) (*item, bool) {
	i, ok := slices.BinarySearchFunc(b.items, name, func(it item, name string) int { return cmp.Compare(it.Name, name) })
	if !ok {
		return nil, false
	}
	return &b.items[i], true
}

// sort sorts the items, and refuses a tree that cannot be one.
func (b *Inbox) sort() error {
	slices.SortFunc(b.items, func(x, y item) int { return cmp.Compare(x.Name, y.Name) })
	for i, it := range b.items {
		if i > 0 && b.items[i-1].Name == it.Name {
			return fmt.Errorf("%s comes twice", shown(it.Name))
		}
		if dir := path.Dir(it.Name); dir != "." {
			if above, ok := b.find(dir); !ok || above.Kind != Dir {
				return fmt.Errorf("%s comes without its directory", shown(it.Name))
			}
		}
	}
	return nil
}

// decide says what is to be done with each item.
func (b *Inbox) decide() error {
	tree := make([]Entry, len(b.items))
	for i, it := range b.items {
		tree[i] = it.Entry
	}
	g := newGuard(b.tree.Root, b.dir, tree)
	links := &resolver{root: b.tree.Root, pending: map[string]string{}, made: func(name string) (Kind, bool) {
		it, ok := b.find(name)
		if !ok || it.Kind == Link {
			return 0, false
		}
		return it.Kind, true
	}}
	for _, e := range tree {
		if e.Kind == Link {
			links.pending[e.Name] = e.Target
		}
	}
	conflict := &ConflictError{}
	way := &ways{b: b, known: map[string]way{".": wayOpen}}
	for i := range b.items {
		it := &b.items[i]
		known, isKnown := b.o.Base.Find(it.Name)
		if isKnown && !b.o.Named && known.Same(it.Entry) {
			continue // whatever has become of it here
		}
		to := way.to(path.Dir(it.Name))
		same, exists := false, false
		var err error
		if to == wayOpen {
			same, exists, err = b.tree.is(it.Entry)
		}
		if err != nil {
			return err
		}
		if same {
			continue
		}
		if why := b.refusal(it.Entry, g, links); why != "" {
			it.what = leave
			b.left = append(b.left, Omission{it.Name, why})
			continue
		}
		it.what = write
		if to == wayBlocked {
			conflict.block(path.Dir(it.Name))
			continue
		}
		if err := b.weigh(it, known, isKnown, exists, conflict); err != nil {
			return err
		}
	}
	if len(conflict.Changed)+len(conflict.Blocked) > 0 {
		return conflict
	}
	return nil
}

// block notes what is in the way, once.
func (e *ConflictError) block(name string) {
	if n := len(e.Blocked); n == 0 || e.Blocked[n-1] != name {
		e.Blocked = append(e.Blocked, name)
	}
}

// way says what is on the way to a directory.
type way byte

const (
	wayOpen    way = iota // directories
	wayMissing            // it is to be made
	wayBlocked            // a file, or a link: what lies behind is not looked at
)

// ways remembers what is on the way to directories.
type ways struct {
	b     *Inbox
	known map[string]way
}

// to is asked of directories that come before what is in them.
func (w *ways) to(dir string) way {
	if to, ok := w.known[dir]; ok {
		return to
	}
	to := w.to(path.Dir(dir))
	if it, ok := w.b.find(dir); ok && it.what == write && to != wayBlocked {
		to = wayMissing // even if there is a file, which it replaces
	} else if to == wayOpen {
		info, err := w.b.tree.Root.Lstat(filepath.FromSlash(dir))
		switch {
		case missing(err):
			to = wayMissing
		case err != nil || !info.IsDir():
			to = wayBlocked
		}
	}
	w.known[dir] = to
	return to
}

// refusal says why an entry is left out, or "".
func (b *Inbox) refusal(e Entry, g *guard, links *resolver) Reason {
	switch {
	case g.refuses(e):
		return RunByTools
	case !b.o.Named && b.tree.leaves(e.Name):
		return Credential
	case e.Kind == Link && !(plainTarget(e.Name, e.Target) && links.inside(e.Name, e.Target)):
		return LeadsOut
	}
	return ""
}

// weigh notes what would be lost by writing an item.
func (b *Inbox) weigh(it *item, known Entry, isKnown, exists bool, conflict *ConflictError) error {
	if !exists {
		if isKnown && !b.o.Force {
			conflict.Changed = append(conflict.Changed, it.Name)
		}
		return nil
	}
	info, err := b.tree.Root.Lstat(filepath.FromSlash(it.Name))
	if err != nil {
		return err
	}
	if info.IsDir() {
		conflict.block(it.Name)
		return nil
	}
	if b.o.Force || b.o.Named && !isKnown {
		return nil
	}
	untouched := false
	if isKnown {
		if untouched, _, err = b.tree.is(known); err != nil {
			return err
		}
	}
	if !untouched {
		conflict.Changed = append(conflict.Changed, it.Name)
	}
	return nil
}

// checkCase refuses a tree in which two names are one on this file system.
func (b *Inbox) checkCase() error {
	if b.stage == "" {
		return nil
	}
	if _, err := b.tree.Root.Lstat(strings.ToUpper(b.stage)); err != nil {
		return nil //nolint:nilerr // it tells capitals from small letters, as most do
	}
	return oneName(b.items)
}

// oneName refuses items of which two have one name where capitals do not count.
func oneName(items []item) error {
	seen := map[string]string{}
	for _, it := range items {
		if it.what == leave {
			continue
		}
		name := strings.Join(foldAll(it.Name), "/")
		if other, ok := seen[name]; ok {
			return fmt.Errorf("nothing was written: %s and %s are one name on this file system", shown(other), shown(it.Name))
		}
		seen[name] = it.Name
	}
	return nil
}

// state is what will be alike on both sides.
func (b *Inbox) state() State {
	all := slices.Clone([]Entry(b.o.Base))
	for _, it := range b.items {
		known, ok := b.o.Base.Find(it.Name)
		if it.what != leave && !(ok && known.Same(it.Entry)) {
			all = append(all, it.Entry)
		}
	}
	return NewState(all)
}

// deleted names what is known, no longer in the session, and still here. What lies
// below a directory that is named is not.
func (b *Inbox) deleted() []string {
	var out []string
	for _, e := range b.o.Base {
		if n := len(out); n > 0 && strings.HasPrefix(e.Name, out[n-1]+"/") {
			continue
		}
		if _, ok := b.find(e.Name); ok {
			continue
		}
		if unwanted, _ := b.o.Skip.of(e.Name, e.Kind == Dir); unwanted {
			continue
		}
		if _, err := b.tree.Root.Lstat(filepath.FromSlash(e.Name)); err == nil {
			out = append(out, e.Name)
		}
	}
	return out
}

// leftOut is what was left out, without what lies below a directory that was.
func (b *Inbox) leftOut() []Omission {
	slices.SortFunc(b.left, func(x, y Omission) int { return cmp.Compare(x.Name, y.Name) })
	var out []Omission
	for _, l := range b.left {
		if n := len(out); n > 0 && strings.HasPrefix(l.Name, out[n-1].Name+"/") {
			continue
		}
		out = append(out, l)
	}
	return out
}
