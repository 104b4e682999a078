//go:build linux

package tree

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Limits bound one tree. A tree that exceeds one is refused.
type Limits struct {
	Entries int   // files, directories and all others
	Depth   int   // directories
	Bytes   int64 // of all files together, holes included
}

// DefaultLimits are those of the verbs. 200 bytes of memory are kept of an entry.
var DefaultLimits = Limits{Entries: 2 << 20, Depth: 256, Bytes: 1 << 40}

// racy is how much older than the moment of its reading a change must be for a later change to have another time: the
// kernel's clock for them has ticks of up to 10 ms.
const racy = 20 * time.Millisecond

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// node is what is known of an entry that was read.
type node struct {
	name     string
	ino      uint64
	ctime    int64 // nanoseconds
	hot      bool  // it may have changed while it was read
	up       *node
	children []*node
}

// saw notes an entry before its content is read.
func (n *node) saw(st *unix.Stat_t) {
	n.ino, n.ctime = st.Ino, st.Ctim.Nano()
	n.hot = n.ctime > time.Now().Add(-racy).UnixNano()
}

// path is the name of an entry from the top.
func (n *node) path() string {
	var names []string
	for ; n.up != nil; n = n.up {
		names = append(names, n.name)
	}
	var b strings.Builder
	for i, name := range slices.Backward(names) {
		b.WriteString(name)
		if i > 0 {
			b.WriteByte('/')
		}
	}
	if b.Len() == 0 {
		return "."
	}
	return b.String()
}

// at adds to an error where it has happened.
func (n *node) at(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", shown(n.path()), err)
}

// shown is a name as a message has it: quoted, if it is not plain.
func shown(name string) string {
	const most = 200 // bytes
	if len(name) > most {
		name = "…" + name[len(name)-most:]
	}
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// compare notes in report what has changed below a directory since it was read. A tree in which nothing has is as it
// was at the moment when the last of it was read.
func (n *node) compare(dir int, report *wire.Tree) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return n.at(err)
	}
	n.check(&st, report)
	for _, child := range n.children {
		if err := unix.Fstatat(dir, child.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			child.changed(report)
			continue
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || child.children == nil {
			child.check(&st, report)
			continue
		}
		fd, err := unix.Openat(dir, child.name, openDir, 0)
		if err != nil {
			child.changed(report)
			continue
		}
		err = child.compare(fd, report)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *node) check(st *unix.Stat_t, report *wire.Tree) {
	if n.hot || st.Ino != n.ino || st.Ctim.Nano() != n.ctime {
		n.changed(report)
	}
}

func (n *node) changed(report *wire.Tree) { report.Change(n.path()) }

// kind says what a mode is, for people.
func kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFBLK, unix.S_IFCHR:
		return "a device"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a link"
	}
	return "a file"
}

// names returns what is in a directory.
func names(fd int) ([]string, error) {
	// A descriptor of its own: reading moves the offset, and closing it must leave the caller's open.
	own, err := unix.Openat(fd, ".", openDir, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), ".")
	defer f.Close()
	return f.Readdirnames(-1)
}

// readlink reads a link of a directory.
func readlink(dir int, name string) (string, error) {
	var text [unix.PathMax]byte
	n, err := unix.Readlinkat(dir, name, text[:])
	return string(text[:max(n, 0)]), err
}

// settable reports whether an extended attribute is one that the owner of a file can set, and that means the same
// elsewhere.
func settable(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

// attribute is an extended attribute.
type attribute struct {
	name  string
	value []byte
}

// attributes returns those of an open file that settable allows. A file system without them has none.
func attributes(fd int) ([]attribute, error) {
	var small [1 << 10]byte
	list := small[:]
	n, err := unix.Flistxattr(fd, list)
	for errors.Is(err, unix.ERANGE) {
		if n, err = unix.Flistxattr(fd, nil); err == nil {
			list = make([]byte, n+256)
			n, err = unix.Flistxattr(fd, list)
		}
	}
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("extended attributes: %w", err)
	}
	var all []attribute
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if !settable(name) {
			continue
		}
		value, err := attributeValue(fd, name)
		if errors.Is(err, unix.ENODATA) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("extended attribute %s: %w", shown(name), err)
		}
		all = append(all, attribute{name, value})
	}
	return all, nil
}

func attributeValue(fd int, name string) ([]byte, error) {
	for size := 256; ; size *= 16 {
		value := make([]byte, size)
		n, err := unix.Fgetxattr(fd, name, value)
		if err == nil {
			return value[:n], nil
		}
		if !errors.Is(err, unix.ERANGE) || size > 1<<20 {
			return nil, err
		}
	}
}

// setAttributes sets extended attributes of an open file.
func setAttributes(fd int, all []attribute) error {
	for _, a := range all {
		if err := unix.Fsetxattr(fd, a.name, a.value, 0); err != nil {
			return fmt.Errorf("extended attribute %s: %w", shown(a.name), err)
		}
	}
	return nil
}

// extent is a part of a file with data in it. What lies between extents is a hole.
type extent struct{ at, size int64 }

// extents returns where an open file of that size has data.
func extents(fd int, size int64) ([]extent, error) {
	var all []extent
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		}
		if err != nil {
			return nil, err
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if hole = min(hole, size); data >= size || hole <= data {
			break // it has shrunk meanwhile
		}
		all = append(all, extent{data, hole - data})
		at = hole
	}
	return all, nil
}

// sparse reports whether a file has holes.
func sparse(st *unix.Stat_t) bool { return st.Blocks*512 < st.Size }

// times are those of an entry as utimensat(2) takes them.
func times(st *unix.Stat_t) []unix.Timespec { return []unix.Timespec{st.Atim, st.Mtim} }

// setTimes sets the times of an entry of a directory, of a link itself.
func setTimes(dir int, name string, at []unix.Timespec) error {
	return unix.UtimesNanoAt(dir, name, at, unix.AT_SYMLINK_NOFOLLOW)
}

// open opens a directory below top, one name after the other.
func (n *node) open(top int) (int, error) {
	if n.up == nil {
		return unix.Openat(top, ".", openDir, 0)
	}
	above, err := n.up.open(top)
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	return unix.Openat(above, n.name, openDir, 0)
}
