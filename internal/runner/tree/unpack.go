//go:build linux

package tree

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Owners say whose the entries of a stream become.
type Owners struct {
	From, To User // what belongs to From becomes To's
	// Only refuses what belongs to others; else it keeps the number of its user.
	Only bool
}

// User is a user and a group.
type User struct{ UID, GID uint32 }

// of returns the owner of an entry.
func (o Owners) of(h *tar.Header) (uid, gid int, err error) {
	const most = 1<<31 - 1 // as ParseUser of sessions takes them
	if h.Uid < 0 || h.Uid > most || h.Gid < 0 || h.Gid > most {
		return 0, 0, fmt.Errorf("its owner %d:%d is not a user", h.Uid, h.Gid)
	}
	uid, gid = h.Uid, h.Gid
	switch {
	case uid == int(o.From.UID):
		uid = int(o.To.UID)
	case o.Only:
		return 0, 0, fmt.Errorf("it belongs to user %d; a session of profile strict has files of its own user alone, which is %d in the archive", uid, o.From.UID)
	}
	switch {
	case gid == int(o.From.GID):
		gid = int(o.To.GID)
	case o.Only:
		return 0, 0, fmt.Errorf("it belongs to group %d; a session of profile strict has files of its own group alone, which is %d in the archive", gid, o.From.GID)
	}
	return uid, gid, nil
}

// Unpack fills an empty directory from a stream that Pack has written. It refuses anything else: other kinds of entries
// and records, names that are not those of a walk, entries that come twice, links to what did not come before. After an
// error the directory is to be thrown away.
func Unpack(in io.Reader, to string, o Owners, l Limits) (wire.Tree, error) {
	dst, err := unix.Open(to, openDir, 0)
	if err != nil {
		return wire.Tree{}, fmt.Errorf("%s: %w", to, err)
	}
	if left, err := names(dst); err != nil || len(left) > 0 {
		unix.Close(dst)
		return wire.Tree{}, errors.Join(fmt.Errorf("%s: it is not empty", to), err)
	}
	unix.Umask(0)
	sum := sha256.New()
	src := io.TeeReader(in, sum)
	u := &unpacking{owners: o, limits: l, dirs: []unpacked{{fd: dst}}}
	defer u.close()
	if err := u.read(tar.NewReader(src)); err != nil {
		return wire.Tree{}, err
	}
	if err := onlyZeros(src); err != nil {
		return wire.Tree{}, err
	}
	u.report.Sum = wire.Sum(sum.Sum(nil))
	return u.report, nil
}

// onlyZeros reads what is behind the end of a stream.
func onlyZeros(r io.Reader) error {
	var buf [32 << 10]byte
	for {
		n, err := r.Read(buf[:])
		if slices.ContainsFunc(buf[:n], func(b byte) bool { return b != 0 }) {
			return errors.New("there is something behind its end")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

type unpacking struct {
	owners Owners
	limits Limits
	dirs   []unpacked // the top, and the directories down to the one that is being filled
	report wire.Tree
}

// unpacked is an open directory, with what is set when it is complete.
type unpacked struct {
	fd         int
	name       string
	last       string // the name of the last entry in it: they are sorted
	h          *tar.Header
	uid, gid   int
	attributes []attribute
}

func (u *unpacking) close() {
	for _, d := range u.dirs {
		unix.Close(d.fd)
	}
	u.dirs = nil
}

func (u *unpacking) read(archive *tar.Reader) error {
	for count := 0; ; count++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			if count == 0 {
				return errors.New("it has no entries")
			}
			return u.leave(0)
		}
		if err != nil {
			return fmt.Errorf("after entry %d: %w", count, err)
		}
		if err := u.entry(h, archive, count == 0); err != nil {
			return fmt.Errorf("entry %d, %s: %w", count+1, shown(strings.TrimPrefix(h.Name, "./")), err)
		}
	}
}

// entry makes one entry.
func (u *unpacking) entry(h *tar.Header, content io.Reader, first bool) error {
	attrs, err := records(h)
	if err != nil {
		return err
	}
	if h.Mode&^0o7777 != 0 {
		return fmt.Errorf("its mode %o has bits that are none of a mode", h.Mode)
	}
	uid, gid, err := u.owners.of(h)
	if err != nil {
		return err
	}
	if first {
		if h.Name != "./" || h.Typeflag != tar.TypeDir {
			return errors.New("the first entry is not ./, the directory itself")
		}
		top := &u.dirs[0]
		top.h, top.uid, top.gid, top.attributes = h, uid, gid, attrs
		return nil
	}
	if u.report.Entries++; u.report.Entries > int64(u.limits.Entries) {
		return fmt.Errorf("there are more than %d files", u.limits.Entries)
	}
	base, err := u.enter(h)
	if err != nil {
		return err
	}
	dir := &u.dirs[len(u.dirs)-1]
	switch h.Typeflag {
	case tar.TypeDir:
		if err := unix.Mkdirat(dir.fd, base, 0o700); err != nil {
			return err
		}
		fd, err := unix.Openat(dir.fd, base, openDir, 0)
		if err != nil {
			return err
		}
		u.dirs = append(u.dirs, unpacked{fd: fd, name: base, h: h, uid: uid, gid: gid, attributes: attrs})
		return nil
	case tar.TypeReg:
		return u.file(h, content, base, made{dir.fd, uid, gid, attrs})
	}
	if len(attrs) > 0 {
		return errors.New("it has extended attributes, which only files and directories have")
	}
	st := unix.Stat_t{Mode: uint32(h.Mode), Uid: uint32(uid), Gid: uint32(gid), Atim: stamp(h), Mtim: stamp(h)}
	switch h.Typeflag {
	case tar.TypeSymlink:
		if h.Linkname == "" || strings.IndexByte(h.Linkname, 0) >= 0 || len(h.Linkname) >= unix.PathMax {
			return errors.New("its target is not one of a link")
		}
		if err := unix.Symlinkat(h.Linkname, dir.fd, base); err != nil {
			return err
		}
		st.Mode |= unix.S_IFLNK
		return owned(dir.fd, base, &st)
	case tar.TypeFifo:
		if err := unix.Mknodat(dir.fd, base, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		st.Mode |= unix.S_IFIFO
		return owned(dir.fd, base, &st)
	case tar.TypeLink:
		return u.link(dir.fd, base, h.Linkname)
	}
	return fmt.Errorf("entries of type %q are not taken", h.Typeflag)
}

// records checks the records of an entry, and returns its extended attributes.
func records(h *tar.Header) ([]attribute, error) {
	var all []attribute
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, attributePrefix)
		switch {
		case ok:
			if name = attributeUnescape.Replace(name); !settable(name) || strings.IndexByte(name, 0) >= 0 || len(name) > 255 {
				return nil, fmt.Errorf("extended attribute %s: it is not one that is taken", shown(name))
			}
			all = append(all, attribute{name, []byte(value)})
		case key == "path", key == "linkpath", key == "size", key == "uid", key == "gid", key == "mtime":
		case strings.HasPrefix(key, "GNU.sparse.") && h.Typeflag == tar.TypeReg:
		default:
			return nil, fmt.Errorf("record %s: it is not one that is taken", shown(key))
		}
	}
	slices.SortFunc(all, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// local returns the parts of a name in the stream. A name is "./" and names of entries.
func local(name string) ([]string, error) {
	rest, ok := strings.CutPrefix(name, "./")
	if !ok || rest == "" || strings.IndexByte(rest, 0) >= 0 {
		return nil, errors.New("its name does not begin with ./, or is not one")
	}
	parts := strings.Split(rest, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return nil, errors.New("its name is not that of an entry below the top")
		}
		if len(part) > unix.NAME_MAX {
			return nil, fmt.Errorf("a name has more than %d bytes", unix.NAME_MAX)
		}
	}
	return parts, nil
}

// enter completes the directories that the stream has left, and returns the entry's name in the last of u.dirs.
func (u *unpacking) enter(h *tar.Header) (string, error) {
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		var ok bool
		if name, ok = strings.CutSuffix(name, "/"); !ok {
			return "", errors.New("the name of a directory does not end in a slash")
		}
	}
	parts, err := local(name)
	if err != nil {
		return "", err
	}
	above, base := parts[:len(parts)-1], parts[len(parts)-1]
	if len(above) > len(u.dirs)-1 {
		return "", errors.New("the directory that it is in has not come right before it")
	}
	if len(above) > u.limits.Depth || h.Typeflag == tar.TypeDir && len(parts) > u.limits.Depth {
		return "", fmt.Errorf("it is deeper than %d directories", u.limits.Depth)
	}
	for i, part := range above {
		if u.dirs[i+1].name != part {
			return "", errors.New("the directory that it is in has not come right before it")
		}
	}
	if err := u.leave(len(above) + 1); err != nil {
		return "", err
	}
	dir := &u.dirs[len(u.dirs)-1]
	if base <= dir.last {
		return "", errors.New("it comes twice, or not in the order of names")
	}
	dir.last = base
	return base, nil
}

// leave completes all directories but the first so many.
func (u *unpacking) leave(but int) error {
	for len(u.dirs) > but {
		d := u.dirs[len(u.dirs)-1]
		u.dirs = u.dirs[:len(u.dirs)-1]
		err := made{d.fd, d.uid, d.gid, d.attributes}.finish(d.fd, d.h)
		if err == nil {
			at := stamp(d.h)
			err = setTimes(d.fd, ".", []unix.Timespec{at, at})
		}
		unix.Close(d.fd)
		if err != nil {
			return fmt.Errorf("directory %s: %w", shown(path.Clean(d.h.Name)), err)
		}
	}
	return nil
}

// made says how an entry becomes what it was.
type made struct {
	dir        int
	uid, gid   int
	attributes []attribute
}

// finish gives an open file or directory its owner, mode and attributes.
func (m made) finish(fd int, h *tar.Header) error {
	if err := unix.Fchown(fd, m.uid, m.gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, uint32(h.Mode)); err != nil {
		return err
	}
	return setAttributes(fd, m.attributes)
}

// stamp is the time of an entry.
func stamp(h *tar.Header) unix.Timespec {
	if h.ModTime.IsZero() {
		return unix.NsecToTimespec(0)
	}
	return unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
}

// blockSize is how much of a file with holes is looked at to tell a hole from data, in bytes.
const blockSize = 4096

func (u *unpacking) file(h *tar.Header, content io.Reader, base string, m made) error {
	if h.Size < 0 || h.Size > u.limits.Bytes-u.report.Bytes {
		return fmt.Errorf("all files together are larger than %d bytes", u.limits.Bytes)
	}
	u.report.Bytes += h.Size
	fd, err := unix.Openat(m.dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, holes := h.PAXRecords["GNU.sparse.major"]
	err = fillFile(fd, content, h.Size, holes)
	if err == nil {
		err = m.finish(fd, h)
	}
	if err == nil {
		at := stamp(h)
		err = setTimes(m.dir, base, []unix.Timespec{at, at})
	}
	return errors.Join(err, unix.Close(fd))
}

// fillFile writes the content of a file. Of one with holes, blocks of zeros become holes.
func fillFile(fd int, content io.Reader, size int64, holes bool) error {
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // New makes no other
	defer buffers.Put(buf)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(content, (*buf)[:min(int64(len(*buf)), size-at)])
		if err != nil {
			return fmt.Errorf("its content ends early: %w", err)
		}
		if err := writeData(fd, (*buf)[:n], at, holes); err != nil {
			return err
		}
		at += int64(n)
	}
	if !holes {
		return nil
	}
	return unix.Ftruncate(fd, size)
}

// noData is a buffer of zeros.
var noData [256 << 10]byte

func writeData(fd int, b []byte, at int64, holes bool) error {
	if !holes {
		return writeAll(fd, b, at)
	}
	if bytes.Equal(b, noData[:len(b)]) {
		return nil
	}
	for len(b) > 0 {
		some := b[:min(len(b), blockSize)]
		if !bytes.Equal(some, noData[:len(some)]) {
			if err := writeAll(fd, some, at); err != nil {
				return err
			}
		}
		b, at = b[len(some):], at+int64(len(some))
	}
	return nil
}

// link makes a further name of an entry that has come before.
func (u *unpacking) link(dir int, base, to string) error {
	parts, err := local(to)
	if err != nil {
		return fmt.Errorf("a link to %s: %w", shown(to), err)
	}
	at := u.dirs[0].fd
	for _, part := range parts[:len(parts)-1] {
		fd, err := unix.Openat(at, part, openDir, 0)
		if at != u.dirs[0].fd {
			unix.Close(at)
		}
		if err != nil {
			return fmt.Errorf("a link to %s: %w", shown(to), err)
		}
		at = fd
	}
	if at != u.dirs[0].fd {
		defer unix.Close(at)
	}
	if at == dir && parts[len(parts)-1] == base {
		return errors.New("a link to itself")
	}
	// The target's directory may be complete: it keeps its times, as only one in which something is new changes.
	if err := unix.Linkat(at, parts[len(parts)-1], dir, base, 0); err != nil {
		return fmt.Errorf("a link to %s: %w", shown(to), err)
	}
	return nil
}
