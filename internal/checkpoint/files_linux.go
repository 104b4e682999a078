package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// asUser calls do on a thread that accesses files as the session's user.
func asUser(uid, gid uint32, do func() error) error {
	if uid == 0 {
		return do()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := errors.Join(unix.Setfsgid(int(gid)), unix.Setfsuid(int(uid)), hide())
		if err == nil {
			err = do()
		}
		unix.Setfsuid(0)
		unix.Setfsgid(0)
		err = errors.Join(err, hide())
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// hide makes this process not dumpable, which a change of the user for files undoes.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}

// openTop opens the directory that checkpoints are about.
func openTop(dir string) (int, error) {
	fd, err := openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", dir, err)
	}
	return fd, nil
}

// openat opens a file without following a link, and without changing its time of access.
func openat(dirfd int, name string, flags int) (int, error) {
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := retry(func() (int, error) { return unix.Openat(dirfd, name, flags|unix.O_NOATIME, 0) })
	if errors.Is(err, unix.EPERM) {
		fd, err = retry(func() (int, error) { return unix.Openat(dirfd, name, flags, 0) })
	}
	return fd, err
}

func retry[T any](do func() (T, error)) (v T, err error) {
	for {
		if v, err = do(); !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}

// names reads a directory, sorted.
func names(fd int, buf []byte) ([]string, error) {
	var all []string
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil || n <= 0 {
			slices.Sort(all)
			return all, err
		}
		_, _, all = unix.ParseDirent(buf[:n], -1, all)
	}
}

// entryOf describes what fstatat has found. The content of a file, the target of a link and the attributes are missing.
func entryOf(name string, st *unix.Stat_t, uid uint32) entry {
	e := entry{
		name: name, mode: st.Mode & 0o7777, mtime: st.Mtim.Nano(),
		stamp: stamp{ctime: st.Ctim.Nano(), ino: st.Ino},
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.kind, e.size = file, st.Size
	case unix.S_IFDIR:
		e.kind = dir
	case unix.S_IFLNK:
		e.kind = link
	default:
		e.kind, e.left = other, leftKind
	}
	if st.Uid != uid && e.left == leftNone {
		e.left = leftForeign
	}
	return e
}

func readlinkat(dirfd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := retry(func() (int, error) { return unix.Readlinkat(dirfd, name, buf) })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// userPrefix is that of the attributes that a user can set.
const userPrefix = "user."

// packXattrs reads a file's attributes of the user, sorted by name.
func packXattrs(fd int) (string, error) {
	size, err := retry(func() (int, error) { return unix.Flistxattr(fd, nil) })
	if errors.Is(err, unix.ENOTSUP) || err == nil && size == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(fd, list); err != nil {
		return "", err
	}
	var b []byte
	found := strings.Split(strings.TrimRight(string(list[:size]), "\x00"), "\x00")
	slices.Sort(found)
	for _, name := range found {
		if !strings.HasPrefix(name, userPrefix) {
			continue
		}
		value := make([]byte, 64<<10) // XATTR_SIZE_MAX
		n, err := unix.Fgetxattr(fd, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return "", err
		}
		b = appendString(appendString(b, name), string(value[:n]))
	}
	return string(b), nil
}

// setXattrs gives an open file the attributes of the user that packXattrs has read, and no others.
func setXattrs(fd int, want string) error {
	have, err := packXattrs(fd)
	if err != nil || have == want {
		return err
	}
	keep := map[string]bool{}
	for f := (fields{b: []byte(want)}); len(f.b) > 0; {
		name, value := f.string(), f.string()
		if f.err != nil {
			return f.err
		}
		keep[name] = true
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for f := (fields{b: []byte(have)}); len(f.b) > 0; {
		name, _ := f.string(), f.string()
		if f.err == nil && !keep[name] {
			if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func setTime(dirfd int, name string, mtime int64) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
	return unix.UtimesNanoAt(dirfd, name, times, unix.AT_SYMLINK_NOFOLLOW)
}

// parents opens the directories of a tree on the way to a path. It follows no link.
type parents struct {
	top  int
	path string // of fd
	fd   int    // top, or one of its own
}

// at returns the directory that a path is in, and its last name. The descriptor is valid until the next call.
func (p *parents) at(name string) (fd int, base string, err error) {
	parent, base := path.Split(name)
	parent = strings.TrimSuffix(parent, "/")
	if parent == p.path && p.fd >= 0 {
		return p.fd, base, nil
	}
	p.close()
	fd = p.top
	for part := range strings.SplitSeq(parent, "/") {
		if part == "" {
			break
		}
		next, err := retry(func() (int, error) {
			return unix.Openat(fd, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		if fd != p.top {
			unix.Close(fd)
		}
		if err != nil {
			return -1, "", err
		}
		fd = next
	}
	p.fd, p.path = fd, parent
	return fd, base, nil
}

func (p *parents) close() {
	if p.fd >= 0 && p.fd != p.top {
		unix.Close(p.fd)
	}
	p.fd, p.path = -1, ""
}

// mountsBelow lists what is mounted below a directory, relative to it. info is /proc/self/mountinfo.
func mountsBelow(dir string, info []byte) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(string(info)) {
		f := strings.Split(line, " ")
		if len(f) < 5 {
			continue
		}
		if name, ok := strings.CutPrefix(unescape(f[4]), strings.TrimSuffix(dir, "/")+"/"); ok {
			all[name] = true
		}
	}
	return all
}

// unescape undoes the octal escapes of proc_pid_mountinfo(5).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			n := 0
			for _, c := range s[i+1 : i+4] {
				n = n*8 + int(c-'0')
			}
			b.WriteByte(byte(n))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// now is the clock that files get their times from.
func now() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

func key(st *unix.Stat_t) [16]byte {
	var k [16]byte
	binary.NativeEndian.PutUint64(k[:], st.Dev)
	binary.NativeEndian.PutUint64(k[8:], st.Ino)
	return k
}
