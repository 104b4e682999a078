package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// racyTime is how long before a scan a file must have changed for its stamp to be believed: the kernel's clock for
// files moves in steps of up to 10 ms.
const racyTime = int64(10 * time.Millisecond)

// stagingName is the directory that restores use, in the directory that they restore.
const stagingName = ".sandboxbash-undo"

const (
	workers    = 2   // that read contents
	maxQueue   = 128 // contents that wait for a worker; each has an open file
	maxNamed   = 50  // paths that are named as uncovered, or as uncertain
	maxDepth   = 1024
	abortEvery = 64 // entries between two looks whether a command has started
)

// errGivenUp is the error of a scan during which a command has started.
var errGivenUp = errors.New("a command has started meanwhile")

// taking is a scan of the directory that is compared with the manifest, and becomes the next one.
//
// The thread that walks has the rights of the session's user. Contents are read by workers from files that it has
// opened, and written with the rights of the store. Entries whose content is not known yet wait in queue; all others are
// written at once if nothing waits before them.
type taking struct {
	s       *store
	uid     uint32
	rules   rules
	mounts  map[string]bool
	forced  map[[16]byte]bool // files that a process maps or has open for writing
	abort   func() bool
	started int64

	old     *recordReader // nil for the first checkpoint
	oldFile *os.File
	record  []byte // the next one of old; nil at its end
	was     entry
	oldAt   int64  // where record begins
	carry   string // what lies below is taken over as it was, because it cannot be looked at
	carries bool

	headFile, deltaFile *os.File // nil until something differs
	head, delta         *recordWriter
	scratch             []byte

	queue   []*item
	jobs    chan *item
	group   sync.WaitGroup
	leaders map[uint64]*item
	limit   int64 // bytes that contents may take
	seen    int

	count       int // changes
	significant int // those that are more than the time of a directory
	read        int // contents
	entries     uint64
	made        wire.Checkpoint // its counts
	uncovered   []wire.CheckpointGap
	uncoveredN  uint64
}

// item is an entry on its way to the manifest.
type item struct {
	e, was entry
	raw    []byte // instead: a record as it was
	f      *os.File
	leader *item
	done   chan struct{} // nil: nothing to wait for
	err    error
	moved  bool // it was written while it was read
}

// scan compares the directory with the manifest. It must be called as the session's user.
func (t *taking) scan(top int) error {
	t.started = now()
	t.leaders = map[uint64]*item{}
	if t.s.state.Head > 0 {
		if err := t.advance(); err != nil {
			return err
		}
	}
	t.jobs = make(chan *item, maxQueue)
	for range workers {
		t.group.Go(t.work)
	}
	err := t.top(top)
	close(t.jobs)
	t.group.Wait()
	if err != nil {
		for _, i := range t.queue {
			if i.f != nil {
				i.f.Close()
			}
		}
		return err
	}
	return nil
}

func (t *taking) top(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	e := entryOf("", &st, t.uid)
	if e.left == leftForeign {
		return refuse(wire.CheckpointWrong, "%s belongs to another user than the session's", t.s.state.Settings.Dir)
	}
	if err := t.put(e, &st, fd, "", fd); err != nil {
		return err
	}
	if err := t.below(fd, "", 0); err != nil {
		return err
	}
	for t.record != nil {
		if err := t.gone(); err != nil {
			return err
		}
	}
	if err := t.flush(0); err != nil {
		return err
	}
	for _, w := range []*recordWriter{t.head, t.delta} {
		if w != nil {
			if err := w.close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// open opens the old manifest, as uid 0.
func (t *taking) open() error {
	if t.s.state.Head == 0 {
		return nil
	}
	f, err := os.Open(t.s.path(numbered("head", t.s.state.Head)))
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	t.oldFile, t.old = f, newRecordReader(f)
	return nil
}

func (t *taking) close() {
	for _, f := range []*os.File{t.oldFile, t.headFile, t.deltaFile} {
		if f != nil {
			f.Close()
		}
	}
}

// advance reads the next record of the old manifest.
func (t *taking) advance() (err error) {
	if t.old == nil {
		return nil
	}
	t.oldAt = t.old.off
	if t.record, err = t.old.next(); err != nil || t.record == nil {
		return err
	}
	f := fields{b: t.record}
	t.was = f.entry(true)
	return f.err
}

// below walks through a directory.
func (t *taking) below(fd int, dirName string, depth int) error {
	if depth > maxDepth {
		return refuse(wire.CheckpointWrong, "%s: it is deeper than %d directories", dirName, maxDepth)
	}
	list, err := names(fd, make([]byte, 32<<10))
	if err != nil {
		return fmt.Errorf("%s: %w", dirName, err)
	}
	if t.s.state.Settings.Gitignore {
		if _, found := slices.BinarySearch(list, ".gitignore"); found {
			content, err := readSmall(fd, ".gitignore")
			if err != nil {
				return err
			}
			leave := t.rules.enter(dirName, content)
			defer leave()
		}
	}
	for _, base := range list {
		if t.seen++; t.seen%abortEvery == 0 && t.abort() {
			return errGivenUp
		}
		if dirName == "" && base == stagingName {
			continue
		}
		if err := t.one(fd, path.Join(dirName, base), base, depth); err != nil {
			return err
		}
	}
	return nil
}

// maxIgnore bounds what is read of a file .gitignore.
const maxIgnore = 256 << 10 // bytes

func readSmall(dirfd int, name string) ([]byte, error) {
	fd, err := openat(dirfd, name, unix.O_RDONLY)
	if err != nil {
		return nil, nil // it is a link, or may not be read: it says nothing then
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxIgnore))
}

// one looks at what is at a name of a directory.
func (t *taking) one(dirfd int, name, base string, depth int) error {
	var st unix.Stat_t
	if _, err := retry(func() (int, error) { return 0, unix.Fstatat(dirfd, base, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	e := entryOf(name, &st, t.uid)
	switch isDir := e.kind == dir; {
	case t.mounts[name]:
		e = entry{name: name, kind: e.kind, left: leftMount}
	case t.rules.leave(name, isDir):
		e = entry{name: name, kind: e.kind, left: leftRule}
	}
	if e.kind != dir || e.left != leftNone {
		err := t.put(e, &st, dirfd, base, -1)
		if e.kind == dir {
			t.carry, t.carries = name, true
		}
		return err
	}
	fd, err := openat(dirfd, base, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.EACCES):
		e.left = leftUnread
		err := t.put(e, &st, dirfd, base, -1)
		t.carry, t.carries = name, true
		return err
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // the next scan finds what is there now
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	defer unix.Close(fd)
	if err := t.put(e, &st, dirfd, base, fd); err != nil {
		return err
	}
	return t.below(fd, name, depth+1)
}

// put compares what was found with the manifest. fd is the directory itself if it is one, and open.
func (t *taking) put(e entry, st *unix.Stat_t, dirfd int, base string, fd int) error {
	for t.record != nil && before(t.was.name, e.name) {
		if err := t.gone(); err != nil {
			return err
		}
	}
	t.entries++
	i := &item{e: e}
	known := t.record != nil && t.was.name == e.name
	if known {
		i.was = t.was
	}
	if e.kind == file && st.Nlink > 1 && e.left == leftNone {
		if first := t.leaders[st.Ino]; first != nil {
			i.leader, i.e.leader = first, first.e.name
		} else {
			t.leaders[st.Ino] = i
		}
	}
	if known && t.unchanged(i, st) {
		i.e = i.was
		t.note(&i.e)
		if err := t.keep(t.record, i); err != nil {
			return err
		}
		return t.advance()
	}
	if err := t.differs(); err != nil {
		return err
	}
	if known {
		if err := t.advance(); err != nil {
			return err
		}
	}
	if err := t.look(i, dirfd, base, fd); err != nil {
		return err
	}
	t.note(&i.e)
	return t.add(i)
}

// unchanged reports whether the stamp proves that an entry is as it was.
func (t *taking) unchanged(i *item, st *unix.Stat_t) bool {
	e, was := &i.e, &i.was
	if e.kind != was.kind {
		return false
	}
	switch e.left {
	case leftRule, leftMount, leftKind, leftForeign:
		return e.left == was.left
	case leftNone, leftUnread, leftLarge:
	}
	if was.left != leftNone && was.left != leftUnread && was.left != leftLarge || e.left == leftUnread && was.left != leftUnread {
		return false
	}
	return e.stamp.ctime == was.stamp.ctime && e.stamp.ino == was.stamp.ino && !was.stamp.racy &&
		e.size == was.size && e.mode == was.mode && e.mtime == was.mtime && e.leader == was.leader &&
		(e.kind != file || !t.forced[key(st)])
}

// note lists what is not covered.
func (t *taking) note(e *entry) {
	if e.left.covered() {
		return
	}
	t.uncoveredN++
	if len(t.uncovered) < maxNamed {
		t.uncovered = append(t.uncovered, wire.CheckpointGap{Path: e.name, Why: leftWords[e.left]})
	}
}

// look reads what belongs to an entry that has changed, and starts to read its content.
func (t *taking) look(i *item, dirfd int, base string, fd int) (err error) {
	e := &i.e
	e.stamp.racy = e.stamp.ctime > t.started-racyTime
	switch {
	case e.kind == dir && fd >= 0:
		e.xattrs, err = packXattrs(fd)
	case e.kind == link && e.left == leftNone:
		if e.target, err = readlinkat(dirfd, base); errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			e.stamp.racy, err = true, nil
		}
	case e.kind != file || e.left != leftNone:
	case t.s.state.Settings.MaxFile > 0 && uint64(e.size) > t.s.state.Settings.MaxFile:
		e.left = leftLarge
	case i.leader != nil:
		i.done = i.leader.done
	default:
		return t.openContent(i, dirfd, base)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

func (t *taking) openContent(i *item, dirfd int, base string) error {
	e := &i.e
	fd, err := openat(dirfd, base, unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.EACCES):
		e.left = leftUnread
		if was := &i.was; was.known() && was.stamp.ino == e.stamp.ino && was.size == e.size && was.mtime == e.mtime {
			e.sum, e.xattrs = was.sum, was.xattrs
		}
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		e.stamp.racy, e.left = true, leftUnread // it is another file by now: the next scan looks again
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", e.name, err)
	}
	f := os.NewFile(uintptr(fd), e.name)
	if e.xattrs, err = packXattrs(fd); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if e.size > t.limit {
		f.Close()
		return refuse(wire.CheckpointFull, "%s has %s, and checkpoint.disk is %s", e.name, sizeText(e.size), sizeText(t.limit))
	}
	i.f, i.done = f, make(chan struct{})
	t.read++
	t.jobs <- i
	return nil
}

// work stores contents.
func (t *taking) work() {
	buf := make([]byte, smallContent)
	for i := range t.jobs {
		i.err = t.store(i, buf)
		i.f.Close()
		i.f = nil
		close(i.done)
	}
}

func (t *taking) store(i *item, buf []byte) error {
	var st unix.Stat_t
	for try := 0; ; try++ {
		of, n, err := t.s.keep(i.f, i.e.size, buf)
		if err != nil {
			return fmt.Errorf("%s: %w", i.e.name, err)
		}
		i.e.sum = of
		if int64(t.s.state.Used)+t.s.stored.Load() > t.limit {
			return refuse(wire.CheckpointFull, "the contents that it would keep are more than checkpoint.disk, which is %s", sizeText(t.limit))
		}
		if err := unix.Fstat(int(i.f.Fd()), &st); err != nil {
			return err
		}
		same := st.Ctim.Nano() == i.e.stamp.ctime && st.Size == i.e.size && n == i.e.size
		i.e.size = n
		if same || try > 0 {
			i.moved = !same
			i.e.stamp.racy = i.e.stamp.racy || i.moved
			return nil
		}
		i.e.size, i.e.stamp.ctime, i.e.mtime = st.Size, st.Ctim.Nano(), st.Mtim.Nano()
		if _, err := i.f.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// gone notes that what the next record names is not there any more.
func (t *taking) gone() error {
	if t.carries && t.was.name != t.carry && under(t.was.name, t.carry) {
		if err := t.keep(t.record, &item{e: t.was}); err != nil {
			return err
		}
		return t.advance()
	}
	if err := t.differs(); err != nil {
		return err
	}
	i := &item{was: t.was}
	if err := t.advance(); err != nil {
		return err
	}
	return t.add(i)
}

// differs begins the new manifest, which up to here is the old one.
func (t *taking) differs() error {
	if t.headFile != nil {
		return nil
	}
	// The descriptor decides what may be written, so the thread's user does not matter: see create.
	t.headFile, t.deltaFile = t.s.spare[0], t.s.spare[1]
	t.s.spare = [2]*os.File{}
	if t.oldFile != nil {
		if _, err := io.Copy(t.headFile, io.NewSectionReader(t.oldFile, 0, t.oldAt)); err != nil {
			return err
		}
	}
	t.head, t.delta = newRecordWriter(t.headFile), newRecordWriter(t.deltaFile)
	return nil
}

// keep writes a record as it was.
func (t *taking) keep(record []byte, i *item) error {
	switch {
	case t.head == nil:
		return nil
	case len(t.queue) == 0:
		return t.head.write(record)
	}
	i.raw = bytes.Clone(record)
	return t.add(i)
}

// add writes an entry once those before it are written.
func (t *taking) add(i *item) error {
	if len(t.queue) == 0 && i.done == nil {
		return t.write(i)
	}
	t.queue = append(t.queue, i)
	return t.flush(maxQueue)
}

// flush writes what is ready, and waits until at most so many entries are left.
func (t *taking) flush(most int) error {
	n := 0
	for _, i := range t.queue {
		if i.done != nil {
			if len(t.queue)-n <= most {
				select {
				case <-i.done:
				default:
					t.queue = t.queue[n:]
					return nil
				}
			}
			<-i.done
		}
		if err := t.write(i); err != nil {
			t.queue = t.queue[n:]
			return err
		}
		n++
	}
	t.queue = t.queue[:0]
	return nil
}

// write writes one entry, and what has changed of it.
func (t *taking) write(i *item) error {
	if i.raw != nil {
		return t.head.write(i.raw)
	}
	if i.err != nil {
		return i.err
	}
	e := &i.e
	if i.leader != nil {
		if i.leader.err != nil {
			return i.leader.err
		}
		e.sum, e.size, e.left, e.xattrs = i.leader.e.sum, i.leader.e.size, i.leader.e.left, i.leader.e.xattrs
	}
	if e.kind != none {
		t.scratch = e.append(t.scratch[:0], true)
		if err := t.head.write(t.scratch); err != nil {
			return err
		}
	}
	if i.moved && len(t.made.Uncertain) < maxNamed {
		t.made.Uncertain = append(t.made.Uncertain, e.name)
	}
	if e.same(&i.was) || e.aside() && i.was.aside() {
		return nil
	}
	c := change{was: i.was, now: *e}
	t.counted(&c)
	if t.old == nil { // nothing goes back to before the first checkpoint
		return nil
	}
	t.scratch = c.append(t.scratch[:0])
	return t.delta.write(t.scratch)
}

func (t *taking) counted(c *change) {
	t.count++
	if c.was.kind == dir && c.now.kind == dir {
		if c.was.mode != c.now.mode || c.was.xattrs != c.now.xattrs || c.was.left != c.now.left {
			t.significant++
		}
		return
	}
	t.significant++
	wasFile, isFile := c.was.kind != none && c.was.kind != dir, c.now.kind != none && c.now.kind != dir
	switch {
	case wasFile && isFile:
		t.made.Modified++
	case isFile:
		t.made.Added++
	case wasFile:
		t.made.Deleted++
	}
}
