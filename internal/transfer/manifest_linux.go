package transfer

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// This file is the end of a comparison that is inside the session. See session_linux.go.

// Manifest writes the entries of a directory, with the hash of each file, in the order of a
// walk. Anything but regular files, directories and symbolic links is left out, and so is
// what vanishes meanwhile. ParseManifest reads it. The error is a MissingError if there is
// nothing at the path.
func Manifest(out io.Writer, top string, l Limits) error {
	dir, err := os.OpenFile(top, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return orMissing(err)
	}
	defer dir.Close()
	m := &manifest{out: bufio.NewWriterSize(out, len(zeros)), limits: l}
	for r := range m.buf {
		m.buf[r] = make([]byte, len(zeros))
	}
	if _, err := m.out.WriteString(stateVersion); err != nil {
		return err
	}
	if err := m.below(dir, "", 0); err != nil {
		return err
	}
	if _, err := m.out.WriteString(manifestEnd); err != nil {
		return err
	}
	return m.out.Flush()
}

// manifest is one Manifest.
type manifest struct {
	out     *bufio.Writer
	limits  Limits
	entries int
	bytes   atomic.Int64
	buf     [readers][]byte // for contents
	line    []byte          // for one entry
}

// below writes what is in a directory. It opens each directory from the one above, so that
// no name is longer than one element.
func (m *manifest) below(dir *os.File, prefix string, depth int) error {
	if depth > m.limits.Depth {
		return fmt.Errorf("%s: it is deeper than %d directories", shown(prefix), m.limits.Depth)
	}
	list, err := dir.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("%s: %w", shown(path.Clean(prefix)), err)
	}
	return m.list(position{fd: int(dir.Fd()), depth: depth}, prefix, list)
}

// list writes what a directory held when it was read. What has vanished since is left out.
func (m *manifest) list(at position, prefix string, list []fs.DirEntry) error {
	sums, err := m.sums(at.fd, prefix, list)
	if err != nil {
		return err
	}
	for i, d := range list {
		name := path.Join(prefix, d.Name())
		if d.Type().IsRegular() {
			err = m.file(name, sums[i])
		} else {
			err = m.entry(at, d, name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// position is a directory that is read.
type position struct{ fd, depth int }

func (m *manifest) entry(at position, d fs.DirEntry, name string) error {
	switch {
	case d.IsDir():
		return m.directory(at, d.Name(), name)
	case d.Type()&fs.ModeSymlink != 0:
		target, err := readlinkat(at.fd, d.Name())
		if err != nil {
			return nil //nolint:nilerr // it vanished or changed its kind meanwhile
		}
		return m.put(Entry{Name: name, Kind: Link, Mode: 0o777, Target: target})
	}
	return nil
}

// directory writes a directory and what is in it. A command may have put something else into its
// place, such as a FIFO: os.Root would wait for its writer.
func (m *manifest) directory(at position, base, name string) error {
	fd, err := syscall.Openat(at.fd, base, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", shown(name), err)
	}
	dir := os.NewFile(uintptr(fd), base)
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if err := m.put(Entry{Name: name, Kind: Dir, Mode: info.Mode().Perm()}); err != nil {
		return err
	}
	return m.below(dir, name, at.depth+1)
}

// readlinkat reads a link of a directory.
func readlinkat(dir int, base string) (string, error) {
	name, err := syscall.BytePtrFromString(base)
	if err != nil {
		return "", err
	}
	var target [maxPath + 1]byte
	n, _, errno := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&target)), uintptr(len(target)), 0, 0)
	if errno != 0 {
		return "", errno
	}
	return string(target[:n]), nil
}

// openTop opens the directory that a verb is about. It follows links, and waits for no writer of
// a FIFO. The error is a MissingError if there is no directory.
func openTop(name string) (*os.Root, error) {
	root, err := os.OpenRoot(name + "/.") // which a FIFO does not have
	return root, orMissing(err)
}

// orMissing makes an error that says that there is no directory a MissingError.
func orMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return MissingError{err}
	}
	return err
}

// readers is how many files are read at once.
const readers = 2

// sums hashes the regular files of a directory, and returns what it has found of each.
func (m *manifest) sums(dir int, prefix string, list []fs.DirEntry) ([]summed, error) {
	out := make([]summed, len(list))
	var next atomic.Int64
	var running sync.WaitGroup
	for r := range min(readers, len(list)) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(list)) && m.bytes.Load() <= m.limits.Bytes; i = next.Add(1) - 1 {
				if list[i].Type().IsRegular() {
					out[i] = m.sum(dir, list[i].Name(), m.buf[r])
				}
			}
		})
	}
	running.Wait()
	if m.bytes.Load() > m.limits.Bytes {
		return nil, fmt.Errorf("%s: all files together are larger than %d bytes", shown(path.Clean(prefix)), m.limits.Bytes)
	}
	return out, nil
}

// summed is what is known of a file.
type summed struct {
	sum  *Sum // nil if it is not a regular file any more
	size int64
	mode fs.FileMode
	err  error
}

// sum reads a file. It may have become something else since its directory was read. A tree has
// many: they are read without what an os.File does besides.
func (m *manifest) sum(dir int, base string, buf []byte) (out summed) {
	fd, err := syscall.Openat(dir, base, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ELOOP) {
		return out
	}
	if err != nil {
		return summed{err: err}
	}
	defer func() { _ = syscall.Close(fd) }() // of what is only read
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil || info.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return summed{err: err}
	}
	if m.bytes.Add(info.Size) > m.limits.Bytes {
		return out // sums says so
	}
	h := sha256.New()
	for out.size < info.Size {
		n, err := syscall.Read(fd, buf[:min(int64(len(buf)), info.Size-out.size)])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return summed{err: err}
		}
		if n == 0 {
			break // it has shrunk meanwhile
		}
		h.Write(buf[:n])
		out.size += int64(n)
	}
	out.sum, out.mode = new(Sum(h.Sum(nil))), fs.FileMode(info.Mode).Perm()
	return out
}

// file writes one file.
func (m *manifest) file(name string, f summed) error {
	switch {
	case f.err != nil:
		return fmt.Errorf("%s: %w", shown(name), f.err)
	case f.sum == nil:
		return nil
	}
	return m.put(Entry{Name: name, Kind: File, Mode: f.mode, Size: f.size, Sum: f.sum})
}

func (m *manifest) put(e Entry) error {
	if m.entries++; m.entries > m.limits.Entries {
		return fmt.Errorf("it has more than %d files", m.limits.Entries)
	}
	m.line = e.append(m.line[:0])
	_, err := m.out.Write(m.line)
	return err
}

// Pick packs the files of a directory whose names it reads, each ended by a NUL, in that
// order. A name with no regular file at it is left out; no link is followed.
func Pick(out io.Writer, top string, names io.Reader) error {
	root, err := openTop(top)
	if err != nil {
		return err
	}
	defer root.Close()
	// All names are read first: the sender need not read while it writes.
	list, err := io.ReadAll(io.LimitReader(names, DefaultLimits.Names+int64(DefaultLimits.Entries)+1))
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if !filepath.IsLocal(name) || name == "." || throughLink(root, name) {
			continue
		}
		info, err := root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := packEntry(archive, root, name); err != nil {
			return err
		}
	}
	return archive.Close()
}

// throughLink reports whether a directory on the way to a name is a link: what lies behind
// is not what the manifest has named.
func throughLink(root *os.Root, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
			return true
		}
	}
	return false
}
