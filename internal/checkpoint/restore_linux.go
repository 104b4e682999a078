package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A restore changes the directory so that it is as a plan says. It can be killed at any point, with the container or
// the machine's engine:
//
//	journal     what is there                          mend
//	none        the old state                          nothing to do
//	staging     the old state, and the staging         the staging goes: the old state
//	applying    anything between both                  each step is done that is not yet done: the new state
//	none        the new state
//
// What is new is written into the staging first, a directory on the same file system, so that a full disk is met while
// nothing has changed. The steps can be repeated. No command starts while there is a journal: the runner that is
// asked to start one mends first.

// A plan is the changes that bring a state back.
type plan struct {
	do       string // wire.CheckpointUndo, CheckpointRedo or CheckpointRestore
	from, to uint64 // checkpoints
	name     string // of the checkpoint that a restore becomes
	made     uint64 // its ID
	base     uint64 // the step that it starts from
	redo     []uint64
	changes  []change // from what is there to what is to be
	dirs     []entry  // those on the way to the changes, as they are and stay

	left []wire.CheckpointGap // what is not done, and why
}

const journalVersion = "sandboxbash-undo-1"

// Phases of a journal.
const (
	phaseStaging  = 's'
	phaseApplying = 'a'
)

func (p *plan) append(phase byte) ([]byte, error) {
	var b bytes.Buffer
	w := newRecordWriter(&b)
	head := append(appendString(nil, journalVersion), phase)
	for _, s := range []string{p.do, p.name} {
		head = appendString(head, s)
	}
	ids := append([]uint64{p.from, p.to, p.made, p.base, uint64(len(p.changes))}, p.redo...)
	for _, n := range ids {
		head = appendString(head, strconv.FormatUint(n, 10))
	}
	if err := w.write(head); err != nil {
		return nil, err
	}
	if phase == phaseApplying {
		for _, c := range p.changes {
			if err := w.write(c.append(nil)); err != nil {
				return nil, err
			}
		}
	}
	dirs := p.dirs
	if phase == phaseStaging && len(p.changes) > 0 && p.changes[0].name() == "" { // the staging changes its time
		dirs = append(slices.Clone(dirs), p.changes[0].was)
	}
	for _, d := range dirs {
		if err := w.write(d.append(nil, false)); err != nil {
			return nil, err
		}
	}
	err := w.close()
	return b.Bytes(), err
}

func readPlan(b []byte) (p *plan, phase byte, err error) {
	r := newRecordReader(bytes.NewReader(b))
	head, err := r.next()
	if err != nil {
		return nil, 0, err
	}
	f := fields{b: head}
	if f.string() != journalVersion {
		return nil, 0, errStore
	}
	phase = f.byte()
	p = &plan{do: f.string(), name: f.string()}
	var ids []uint64
	for len(f.b) > 0 {
		n, err := strconv.ParseUint(f.string(), 10, 64)
		if err != nil {
			return nil, 0, errStore
		}
		ids = append(ids, n)
	}
	if f.err != nil || len(ids) < 5 {
		return nil, 0, errStore
	}
	p.from, p.to, p.made, p.base, p.redo = ids[0], ids[1], ids[2], ids[3], ids[5:]
	changes := ids[4]
	if phase == phaseStaging {
		changes = 0
	}
	for {
		record, err := r.next()
		if err != nil {
			return nil, 0, err
		}
		if record == nil {
			break
		}
		f := fields{b: record}
		if uint64(len(p.changes)) < changes {
			p.changes = append(p.changes, f.change())
		} else {
			p.dirs = append(p.dirs, f.entry(false))
		}
		if f.err != nil {
			return nil, 0, f.err
		}
	}
	return p, phase, nil
}

// leave notes that something is not done.
func (p *plan) leave(name, format string, args ...any) {
	p.left = append(p.left, wire.CheckpointGap{Path: name, Why: fmt.Sprintf(format, args...)})
}

// only keeps the changes at or below some paths, and the directories that these need.
func (p *plan) only(paths []string) {
	if len(paths) == 0 {
		return
	}
	chosen, needed := map[string]bool{}, map[string]bool{}
	changed := map[string]bool{}
	for _, c := range p.changes {
		changed[c.name()] = true
		for _, top := range paths {
			if under(c.name(), top) {
				chosen[c.name()] = true
				for d := path.Dir(c.name()); c.now.kind != none && d != "."; d = path.Dir(d) {
					needed[d] = true
				}
			}
		}
	}
	p.changes = slices.DeleteFunc(p.changes, func(c change) bool {
		return !chosen[c.name()] && (!needed[c.name()] || c.now.kind != dir || c.was.kind == dir)
	})
	for i := range p.changes {
		if l := p.changes[i].now.leader; l != "" && changed[l] && !chosen[l] {
			p.changes[i].now.leader = "" // it becomes a file of its own
		}
	}
}

// covered drops the changes of what is not kept: it stays as it is.
func (p *plan) covered() {
	p.changes = slices.DeleteFunc(p.changes, func(c change) bool {
		if c.was.kind == file && c.now.kind == file && c.was.sameContent(&c.now) && c.was.known() {
			return false // it is not read, but is not written either
		}
		for _, e := range []*entry{&c.was, &c.now} {
			if e.kind == none || e.left.covered() || e.kind == dir && e.left == leftUnread {
				continue
			}
			so := "so that it stays as it is"
			if c.was.kind == none {
				so = "so that it does not come back"
			}
			p.leave(c.name(), "%s, %s", leftWords[e.left], so)
			return true
		}
		return false
	})
}

// fresh reports whether a file has to be replaced by a new one.
func (c *change) fresh() bool {
	return c.now.kind == file && (c.was.kind != file || !c.was.sameContent(&c.now) || c.was.leader != c.now.leader) ||
		c.now.kind == link
}

func staged(i int) string { return strconv.Itoa(i) }

// apply does a plan. The store must be locked, and the state recorded that the plan starts from.
func (s *store) apply(p *plan) error {
	set := s.state.Settings
	p.covered()
	err := asUser(set.UID, set.GID, func() error { return p.survey(set.Dir) })
	if err == nil {
		err = s.journal(p, phaseStaging)
	}
	if err != nil {
		return err
	}
	if err := asUser(set.UID, set.GID, func() error { return s.stage(p) }); err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: %w", err), s.mend())
	}
	if err := s.journal(p, phaseApplying); err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: %w", err), s.mend())
	}
	return s.finish(p)
}

// journal writes the journal, and waits until it is on the disk.
func (s *store) journal(p *plan, phase byte) error {
	b, err := p.append(phase)
	if err != nil {
		return err
	}
	return s.replace(journalFile, b, true)
}

// mend finishes a restore that was interrupted, or takes back what it has staged.
func (s *store) mend() error {
	b, err := os.ReadFile(s.path(journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p, phase, err := readPlan(b)
	if err != nil {
		return err
	}
	if phase == phaseApplying {
		return s.finish(p)
	}
	set := s.state.Settings
	err = asUser(set.UID, set.GID, func() error {
		return withTree(set.Dir, func(t *tree) error {
			if err := t.clear(); err != nil {
				return err
			}
			t.setDirs(p)
			return nil
		})
	})
	if err != nil {
		return err
	}
	return os.Remove(s.path(journalFile))
}

// finish does the steps of a plan whose files are staged, and records the new state.
func (s *store) finish(p *plan) error {
	set := s.state.Settings
	err := asUser(set.UID, set.GID, func() error {
		return withTree(set.Dir, func(t *tree) error {
			t.steps(p)
			return t.clear()
		})
	})
	if err == nil {
		err = asUser(set.UID, set.GID, func() error {
			return withTree(set.Dir, func(t *tree) error {
				t.setDirs(p)
				return nil
			})
		})
	}
	if err != nil {
		return err
	}
	if err := s.settle(p); err != nil {
		return err
	}
	return os.Remove(s.path(journalFile))
}

// settle records what is there after a plan was done.
func (s *store) settle(p *plan) error {
	t, err := s.lookAt(never, true)
	if err != nil {
		return err
	}
	found, err := t.changes()
	if err != nil {
		return errors.Join(err, s.discard(t))
	}
	exact := p.compare(found, s.state.Step == p.base) && len(p.left) == 0
	if _, err := s.record(t, "", ""); err != nil {
		return err
	}
	next := s.state
	next.List = slices.Clone(next.List)
	if p.do == wire.CheckpointRestore {
		if next.Next > p.made { // it was done before it was interrupted
			return nil
		}
		c := t.made
		c.ID, c.Parent, c.Step, c.Name, c.Why, c.Time = p.made, next.Current, next.Step, p.name, "restore", time.Now().UTC()
		next.List, next.Current, next.Redo, next.Next = append(next.List, c), c.ID, nil, c.ID+1
		return s.commit(next)
	}
	next.Current, next.Redo = p.to, p.redo
	for i := range next.List {
		if next.List[i].ID == p.to && exact {
			next.List[i].Step = next.Step
		}
	}
	return s.commit(next)
}

// compare notes what is not as the plan says, and reports whether all is. found are the changes since the last recorded
// state, which is the one that the plan starts from if fresh is set.
func (p *plan) compare(found []change, fresh bool) bool {
	is := map[string]*entry{}
	for i := range found {
		is[found[i].name()] = &found[i].now
	}
	known := map[string]bool{}
	for _, l := range p.left {
		known[l.Path] = true
	}
	exact := true
	for i := range p.changes {
		c := &p.changes[i]
		e := is[c.name()]
		if e == nil && fresh {
			e = &c.was
		}
		delete(is, c.name())
		if e != nil && !e.same(&c.now) {
			exact = false
			if !known[c.name()] {
				p.leave(c.name(), "something has changed it meanwhile")
			}
		}
	}
	return exact && len(is) == 0
}

// survey notes the directories on the way to the changes. It must be called as the user.
func (p *plan) survey(top string) error {
	own := map[string]bool{}
	for _, c := range p.changes {
		if c.now.kind == dir {
			own[c.name()] = true
		}
	}
	seen := map[string]bool{}
	return withTree(top, func(t *tree) error {
		for _, c := range p.changes {
			for d := parentOf(c.name()); ; d = parentOf(d) {
				if seen[d] {
					break
				}
				seen[d] = true
				st, err := t.stat(d)
				if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && !own[d] {
					p.dirs = append(p.dirs, entryOf(d, &st, st.Uid))
				}
				if d == "" {
					break
				}
			}
		}
		if !seen[""] && !own[""] { // the staging is made in it
			st, err := t.stat("")
			if err != nil {
				return err
			}
			p.dirs = append(p.dirs, entryOf("", &st, st.Uid))
		}
		slices.SortFunc(p.dirs, func(a, b entry) int {
			if before(a.name, b.name) {
				return -1
			}
			return 1
		})
		return nil
	})
}

func parentOf(name string) string {
	if d := path.Dir(name); d != "." {
		return d
	}
	return ""
}

// stage writes what is new into the staging. It must be called as the user.
func (s *store) stage(p *plan) error {
	return withTree(s.state.Settings.Dir, func(t *tree) error {
		if err := t.clear(); err != nil { // of what was killed before there were journals of it
			return err
		}
		t.unlock("") // setDirs sets its mode at the end
		if err := unix.Mkdirat(t.top, stagingName, 0o700); err != nil {
			return fmt.Errorf("%s: %w", stagingName, err)
		}
		at, err := openat(t.top, stagingName, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		for i := range p.changes {
			c := &p.changes[i]
			if !c.fresh() || c.now.leader != "" {
				continue
			}
			if err := s.stageOne(at, staged(i), &c.now); err != nil {
				return fmt.Errorf("%s: %w", c.name(), err)
			}
		}
		return nil
	})
}

// stageOne makes a file or a link in a directory, with all that it has.
func (s *store) stageOne(at int, name string, e *entry) error {
	if e.kind == link {
		if err := unix.Symlinkat(e.target, at, name); err != nil {
			return err
		}
		return setTime(at, name, e.mtime)
	}
	var content *os.File
	err := aside(func() (err error) { // the store is not the user's
		content, err = s.content(e.sum)
		return err
	})
	if err != nil {
		return err
	}
	defer content.Close()
	fd, err := unix.Openat(at, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	n, err := copyHoles(f, content, e.size, nil)
	if err == nil && n != e.size {
		err = fmt.Errorf("%w: a content is cut", errStore)
	}
	if err == nil {
		err = setXattrs(fd, e.xattrs)
	}
	if err == nil {
		err = unix.Fchmod(fd, e.mode)
	}
	if err == nil {
		err = setTime(at, name, e.mtime)
	}
	return errors.Join(err, f.Close())
}

// aside calls do on another thread than this one, which has the rights of the user.
func aside(do func() error) error {
	done := make(chan error)
	go func() { done <- do() }()
	return <-done
}

// tree is the directory that is restored, as the user.
type tree struct {
	parents
}

func withTree(dir string, do func(*tree) error) error {
	top, err := openTop(dir)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	t := &tree{parents{top: top, fd: -1}}
	defer t.close()
	return do(t)
}

// place returns where a path is; the directory itself is "." of itself.
func (t *tree) place(name string) (fd int, base string, err error) {
	if name == "" {
		return t.top, ".", nil
	}
	return t.at(name)
}

func (t *tree) stat(name string) (st unix.Stat_t, err error) {
	fd, base, err := t.place(name)
	if err != nil {
		return st, err
	}
	err = unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// clear removes the staging.
func (t *tree) clear() error {
	at, err := openat(t.top, stagingName, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", stagingName, err)
	}
	defer unix.Close(at)
	list, err := names(at, make([]byte, 32<<10))
	if err != nil {
		return err
	}
	for _, name := range list {
		if err := unix.Unlinkat(at, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s/%s: %w", stagingName, name, err)
		}
	}
	return unix.Unlinkat(t.top, stagingName, unix.AT_REMOVEDIR)
}

const ownerAll = 0o700

// unlock has the user be able to write in a directory.
func (t *tree) unlock(name string) {
	st, err := t.stat(name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&ownerAll == ownerAll {
		return
	}
	if fd, base, err := t.place(name); err == nil {
		_ = unix.Fchmodat(fd, base, st.Mode&0o7777|ownerAll, 0) // if that fails, the steps say so
	}
}

// steps does what a plan says. Each step is skipped if it was done before.
func (t *tree) steps(p *plan) {
	for _, d := range p.dirs {
		t.unlock(d.name)
	}
	for i := range p.changes {
		if c := &p.changes[i]; c.was.kind == dir {
			t.unlock(c.name())
		}
	}
	try := func(c *change, err error) {
		if err != nil {
			p.leave(c.name(), "%v", err)
		}
	}
	for i := range slices.Backward(p.changes) {
		if c := &p.changes[i]; c.was.kind != none && c.was.kind != c.now.kind {
			try(c, t.remove(c))
		}
	}
	for i := range p.changes {
		if c := &p.changes[i]; c.now.kind == dir && c.was.kind != dir {
			try(c, t.mkdir(c.name()))
		}
	}
	staging, err := openat(t.top, stagingName, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		defer unix.Close(staging)
		for i := range p.changes {
			if c := &p.changes[i]; c.fresh() && c.now.leader == "" {
				try(c, t.bring(staging, staged(i), c))
			}
		}
		for i := range p.changes {
			if c := &p.changes[i]; c.fresh() && c.now.leader != "" {
				try(c, t.join(staging, staged(i), c))
			}
		}
	}
	for i := range p.changes {
		if c := &p.changes[i]; c.now.kind == file && !c.fresh() {
			try(c, t.touch(&c.now))
		}
	}
}

func (t *tree) remove(c *change) error {
	fd, base, err := t.place(c.name())
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	flags := 0
	if c.was.kind == dir {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(fd, base, flags)
	t.close() // it may hold a directory that is gone
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		return nil // it was done before
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return errors.New("it stays, because something in it is not kept by checkpoints")
	default:
		return err
	}
}

func (t *tree) mkdir(name string) error {
	fd, base, err := t.place(name)
	if err != nil {
		return err
	}
	err = unix.Mkdirat(fd, base, ownerAll)
	t.close()
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if st, err := t.stat(name); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("something else is there, which no checkpoint knows")
	}
	return nil
}

// bring moves what was staged to its place.
func (t *tree) bring(staging int, name string, c *change) error {
	var st unix.Stat_t
	if err := unix.Fstatat(staging, name, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
		return nil // it was done before
	}
	fd, base, err := t.place(c.name())
	if err != nil {
		return err
	}
	if c.was.kind == c.now.kind {
		return unix.Renameat(staging, name, fd, base)
	}
	err = unix.Renameat2(staging, name, fd, base, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // a file system that cannot do this
		if unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			err = unix.EEXIST
		} else {
			err = unix.Renameat(staging, name, fd, base)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		return errors.New("something else is there, which no checkpoint knows")
	}
	return err
}

// join makes a file another name of its leader.
func (t *tree) join(staging int, name string, c *change) error {
	fd, base, err := t.place(c.now.leader)
	if err != nil {
		return fmt.Errorf("%s: %w", c.now.leader, err)
	}
	if err := unix.Linkat(fd, base, staging, name, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if fd, base, err = t.place(c.name()); err != nil {
		return err
	}
	return unix.Renameat(staging, name, fd, base)
}

// touch gives a file whose content is as it should be all else.
func (t *tree) touch(e *entry) error {
	fd, base, err := t.place(e.name)
	if err != nil {
		return err
	}
	st, err := t.stat(e.name)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("something else is there, which no checkpoint knows")
	}
	if err := t.setAttributes(fd, base, st.Mode&0o7777, e); err != nil {
		return err
	}
	if err := unix.Fchmodat(fd, base, e.mode, 0); err != nil {
		return err
	}
	return setTime(fd, base, e.mtime)
}

func (t *tree) setAttributes(dirfd int, base string, mode uint32, e *entry) error {
	const ownerReadWrite = 0o600
	if mode&ownerReadWrite != ownerReadWrite {
		if err := unix.Fchmodat(dirfd, base, mode|ownerReadWrite, 0); err != nil {
			return err
		}
	}
	f, err := openat(dirfd, base, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(f)
	return setXattrs(f, e.xattrs)
}

// setDirs gives the directories their modes and times, the deepest first, when nothing is written in them any more.
func (t *tree) setDirs(p *plan) {
	all := slices.Clone(p.dirs)
	changed := map[string]bool{}
	for i := range p.changes {
		if c := &p.changes[i]; c.now.kind == dir {
			all = append(all, c.now)
			changed[c.name()] = true
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		if before(a.name, b.name) {
			return 1
		}
		return -1
	})
	for i := range all {
		if err := t.setDir(&all[i], changed[all[i].name]); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			p.leave(all[i].name, "%v", err)
		}
	}
}

func (t *tree) setDir(e *entry, attributes bool) error {
	fd, base, err := t.place(e.name)
	if err != nil {
		return err
	}
	st, err := t.stat(e.name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	if attributes && e.left == leftNone {
		d, err := openat(fd, base, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		err = setXattrs(d, e.xattrs)
		unix.Close(d)
		if err != nil {
			return err
		}
	}
	if st.Mode&0o7777 != e.mode {
		if err := unix.Fchmodat(fd, base, e.mode, 0); err != nil {
			return err
		}
	}
	return setTime(fd, base, e.mtime)
}
