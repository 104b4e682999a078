//go:build linux

package tree

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Copy copies what is in a directory into an empty one, and the directory's own mode, owner and times. Where the file
// system can, files share their blocks until one is written to. It reports what may have changed while it was copied: if
// that is nothing, the copy is the tree as it was at one moment.
func Copy(from, to string, l Limits) (wire.Tree, error) {
	src, err := unix.Open(from, openDir, 0)
	if err != nil {
		return wire.Tree{}, fmt.Errorf("%s: %w", from, err)
	}
	defer unix.Close(src)
	dst, err := unix.Open(to, openDir, 0)
	if err != nil {
		return wire.Tree{}, fmt.Errorf("%s: %w", to, err)
	}
	defer unix.Close(dst)
	if left, err := names(dst); err != nil || len(left) > 0 {
		return wire.Tree{}, errors.Join(fmt.Errorf("%s: it is not empty", to), err)
	}
	unix.Umask(0)
	c := &copying{limits: l, hard: map[inode]*node{}, slots: make(chan struct{}, 2*runtime.NumCPU())}
	top := &node{}
	if err := c.top(top, src, dst); err != nil {
		return wire.Tree{}, err
	}
	if err := c.link(dst); err != nil {
		return wire.Tree{}, err
	}
	c.report.Entries, c.report.Bytes, c.report.Shared = c.entries.Load(), c.bytes.Load(), c.shared.Load()
	return c.report, top.compare(src, &c.report)
}

// copying is one Copy. Directories, and parts of large ones, are copied by several goroutines, as far as there are slots:
// otherwise by the goroutine that has found them.
type copying struct {
	limits  Limits
	slots   chan struct{}
	running sync.WaitGroup
	failed  atomic.Pointer[error]
	entries atomic.Int64
	bytes   atomic.Int64
	shared  atomic.Int64
	plain   atomic.Bool // blocks cannot be shared here

	mu     sync.Mutex
	hard   map[inode]*node // guarded by mu; the first name of a file that has several
	later  []hardLink      // guarded by mu
	report wire.Tree       // guarded by mu
}

type inode struct{ dev, ino uint64 }

// hardLink is a further name of a file, in an order that does not matter.
type hardLink struct{ first, as *node }

// directory is one that is copied. It is finished when nothing in it is left to do.
type directory struct {
	*node

	up       *directory
	src, dst int
	st       unix.Stat_t
	depth    int
	left     atomic.Int64
}

// part is how many entries of a directory one goroutine copies.
const part = 128

func (c *copying) top(n *node, src, dst int) error {
	d := &directory{node: n, depth: 0}
	var err error
	if d.src, err = unix.Openat(src, ".", openDir, 0); err != nil {
		return err
	}
	if d.dst, err = unix.Openat(dst, ".", openDir, 0); err != nil {
		unix.Close(d.src)
		return err
	}
	d.left.Store(1)
	c.directory(d)
	c.running.Wait()
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail notes the first error. What runs stops soon.
func (c *copying) fail(err error) { c.failed.CompareAndSwap(nil, &err) }

// do runs a part of the work, on a goroutine of its own if there is a slot.
func (c *copying) do(work func()) {
	select {
	case c.slots <- struct{}{}:
		c.running.Go(func() {
			work()
			<-c.slots
		})
	default:
		work()
	}
}

// directory copies what is in a directory. Its caller has counted one in d.left for it.
func (c *copying) directory(d *directory) {
	defer c.done(d)
	if c.failed.Load() != nil {
		return
	}
	list, err := c.list(d)
	if err != nil {
		c.fail(d.at(err))
		return
	}
	for len(list) > 0 {
		some := list[:min(len(list), part)]
		list = list[len(some):]
		d.left.Add(1)
		if len(list) == 0 { // there is nothing else for this goroutine to do
			c.part(d, some)
			return
		}
		c.do(func() { c.part(d, some) })
	}
}

// list reads the names of a directory.
func (c *copying) list(d *directory) ([]*node, error) {
	if d.depth > c.limits.Depth {
		return nil, fmt.Errorf("it is deeper than %d directories", c.limits.Depth)
	}
	if err := unix.Fstat(d.src, &d.st); err != nil {
		return nil, err
	}
	d.saw(&d.st)
	list, err := names(d.src)
	if err != nil {
		return nil, err
	}
	if c.entries.Add(int64(len(list))) > int64(c.limits.Entries) {
		return nil, fmt.Errorf("there are more than %d files", c.limits.Entries)
	}
	d.children = make([]*node, len(list))
	nodes := make([]node, len(list))
	for i, name := range list {
		nodes[i] = node{name: name, up: d.node}
		d.children[i] = &nodes[i]
	}
	return d.children, nil
}

func (c *copying) part(d *directory, list []*node) {
	defer c.done(d)
	for _, n := range list {
		if c.failed.Load() != nil {
			return
		}
		if err := c.entry(d, n); err != nil {
			c.fail(n.at(err))
			return
		}
	}
}

// done ends a part of the work in a directory. The last one sets what the others would change.
func (c *copying) done(d *directory) {
	for ; d != nil && d.left.Add(-1) == 0; d = d.up {
		if c.failed.Load() == nil {
			if err := same(d.src, d.dst, &d.st); err != nil {
				c.fail(d.at(err))
			} else if err := setTimes(d.dst, ".", times(&d.st)); err != nil {
				c.fail(d.at(err))
			}
		}
		unix.Close(d.src)
		unix.Close(d.dst)
	}
}

// same gives a copy the owner, the mode and the attributes of its original.
func same(src, dst int, st *unix.Stat_t) error {
	if err := unix.Fchown(dst, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(dst, st.Mode&0o7777); err != nil { // after its owner, which takes bits away
		return err
	}
	all, err := attributes(src)
	if err != nil {
		return err
	}
	return setAttributes(dst, all)
}

// entry copies one entry. What has gone or become something else meanwhile is found by compare.
func (c *copying) entry(d *directory, n *node) error {
	var st unix.Stat_t
	err := unix.Fstatat(d.src, n.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = c.below(d, n)
	} else {
		n.saw(&st)
		if st.Nlink > 1 && !c.first(&st, n) {
			return nil
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			err = c.file(d, n)
		case unix.S_IFLNK:
			err = c.symlink(d, n, &st)
		case unix.S_IFIFO:
			err = c.fifo(d, n, &st)
		default:
			c.mu.Lock()
			c.report.Leave(n.path() + " (" + kind(st.Mode) + ")")
			c.mu.Unlock()
		}
	}
	if errors.Is(err, errGone) {
		n.hot = true
		return nil
	}
	return err
}

// errGone is the error of an entry that has gone, or become something else, since its directory was read.
var errGone = errors.New("it has gone")

// gone makes an error of opening an entry errGone if that is what it says.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return errGone
	}
	return err
}

// first reports whether a file with several names is met for the first time. Others become links later.
func (c *copying) first(st *unix.Stat_t, n *node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := inode{st.Dev, st.Ino}
	if first := c.hard[key]; first != nil {
		c.later = append(c.later, hardLink{first, n})
		return false
	}
	c.hard[key] = n
	return true
}

func (c *copying) below(d *directory, n *node) error {
	sub := &directory{node: n, up: d, depth: d.depth + 1}
	var err error
	if sub.src, err = unix.Openat(d.src, n.name, openDir, 0); err != nil {
		return gone(err)
	}
	if err := unix.Mkdirat(d.dst, n.name, 0o700); err != nil {
		unix.Close(sub.src)
		return err
	}
	if sub.dst, err = unix.Openat(d.dst, n.name, openDir, 0); err != nil {
		unix.Close(sub.src)
		return err
	}
	sub.left.Store(1)
	d.left.Add(1)
	c.do(func() { c.directory(sub) })
	return nil
}

func (c *copying) file(d *directory, n *node) error {
	// It may have become a FIFO since: opening must not wait for a writer.
	in, err := unix.Openat(d.src, n.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return gone(err)
	}
	defer unix.Close(in)
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errGone
	}
	if c.bytes.Add(st.Size) > c.limits.Bytes {
		return fmt.Errorf("all files together are larger than %d bytes", c.limits.Bytes)
	}
	n.saw(&st)
	out, err := unix.Openat(d.dst, n.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = c.content(in, out, &st)
	if err == nil {
		err = same(in, out, &st)
	}
	if err == nil {
		err = setTimes(d.dst, n.name, times(&st))
	}
	return errors.Join(err, unix.Close(out))
}

// content copies the content of a file: by sharing its blocks, or else its data without its holes.
func (c *copying) content(in, out int, st *unix.Stat_t) error {
	if st.Size == 0 {
		return nil
	}
	if !c.plain.Load() {
		err := unix.IoctlFileClone(out, in)
		if err == nil {
			c.shared.Add(st.Size)
			return nil
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EIO) {
			return err
		}
		// Another file may be of another kind, such as one without copy on write: only what is said of the file system counts.
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENOSYS) {
			c.plain.Store(true)
		}
	}
	all := []extent{{0, st.Size}}
	if sparse(st) {
		var err error
		if all, err = extents(in, st.Size); err != nil {
			return err
		}
	}
	end := int64(0)
	for _, e := range all {
		n, err := copyRange(in, out, e)
		if err != nil {
			return err
		}
		if end = e.at + n; n < e.size {
			return nil // it has shrunk meanwhile: see compare
		}
	}
	if end < st.Size {
		return unix.Ftruncate(out, st.Size)
	}
	return nil
}

// copyRange copies a part of a file inside the kernel, and returns how much of it there was.
func copyRange(in, out int, e extent) (int64, error) {
	done := int64(0)
	for done < e.size {
		from, to := e.at+done, e.at+done
		n, err := unix.CopyFileRange(in, &from, out, &to, int(min(e.size-done, 1<<30)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			more, err := copyBytes(in, out, extent{e.at + done, e.size - done})
			return done + more, err
		case err != nil:
			return done, err
		case n == 0:
			return done, nil
		}
		done += int64(n)
	}
	return done, nil
}

var buffers = sync.Pool{New: func() any { return new(make([]byte, 256<<10)) }}

// copyBytes copies a part of a file through memory.
func copyBytes(in, out int, e extent) (int64, error) {
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // New makes no other
	defer buffers.Put(buf)
	done := int64(0)
	for done < e.size {
		n, err := unix.Pread(in, (*buf)[:min(int64(len(*buf)), e.size-done)], e.at+done)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return done, err
		}
		if err := writeAll(out, (*buf)[:n], e.at+done); err != nil {
			return done, err
		}
		done += int64(n)
	}
	return done, nil
}

func writeAll(out int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(out, b, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func (c *copying) symlink(d *directory, n *node, st *unix.Stat_t) error {
	target, err := readlink(d.src, n.name)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return errGone
	}
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, d.dst, n.name); err != nil {
		return err
	}
	return owned(d.dst, n.name, st)
}

func (c *copying) fifo(d *directory, n *node, st *unix.Stat_t) error {
	if err := unix.Mknodat(d.dst, n.name, unix.S_IFIFO|st.Mode&0o7777, 0); err != nil {
		return err
	}
	return owned(d.dst, n.name, st)
}

// owned gives an entry without content an owner, a mode and times.
func owned(dir int, name string, st *unix.Stat_t) error {
	if err := unix.Fchownat(dir, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK { // the mode of a link says nothing
		if err := unix.Fchmodat(dir, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	return setTimes(dir, name, times(st))
}

// link gives files their further names. A directory gets its times back.
func (c *copying) link(top int) error {
	for _, l := range c.later {
		if err := l.make(top); err != nil && !errors.Is(err, errGone) {
			return l.as.at(err)
		}
	}
	return nil
}

func (l hardLink) make(top int) error {
	if l.first.hot { // it may not have been copied
		var st unix.Stat_t
		if err := l.first.stat(top, &st); err != nil {
			l.as.hot = true
			return gone(err)
		}
	}
	from, err := l.first.up.open(top)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := l.as.up.open(top)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	var st unix.Stat_t
	if err := unix.Fstat(to, &st); err != nil {
		return err
	}
	if err := unix.Linkat(from, l.first.name, to, l.as.name, 0); err != nil {
		return err
	}
	return setTimes(to, ".", times(&st))
}

// stat returns what a name of a copy is.
func (n *node) stat(top int, st *unix.Stat_t) error {
	dir, err := n.up.open(top)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Fstatat(dir, n.name, st, unix.AT_SYMLINK_NOFOLLOW)
}
