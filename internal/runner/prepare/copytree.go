//go:build linux

package prepare

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copier copies a tree that is not trusted. It follows no link, opens nothing but
// directories and plain files, and stops at its bounds.
type copier struct {
	mounts  map[string]bool // mount points: they are created and left empty
	skip    map[string]bool
	bytes   int64 // that may still be copied
	entries int   // that may still be created
}

// dir copies the contents of a directory. path is used only to look up mount points.
func (c *copier) dir(src, dst int, path string, depth int) error {
	if depth > maxEtcDepth {
		return errLarge
	}
	fd, err := unix.Openat(src, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	for {
		names, err := f.Readdirnames(someNames)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if c.skip[path+"/"+name] {
				continue
			}
			if c.entries--; c.entries < 0 {
				return errLarge
			}
			if err := c.entry(src, dst, name, path+"/"+name, depth); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
	}
}

// entry copies one entry with its owner and the permission bits of its mode. It leaves out
// devices, pipes and sockets.
func (c *copier) entry(src, dst int, name, path string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(src, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(dst, name, 0o700); err != nil {
			return err
		}
		return c.subdir(src, dst, name, path, depth)
	case unix.S_IFREG:
		if c.mounts[path] {
			return writeAt(dst, name, nil)
		}
		if st.Size > c.bytes {
			return errLarge
		}
		return c.file(src, dst, name)
	case unix.S_IFLNK:
		return c.link(src, dst, name, &st)
	}
	return nil
}

func (c *copier) subdir(src, dst int, name, path string, depth int) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	from, err := unix.Openat(src, name, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := unix.Openat(dst, name, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if !c.mounts[path] {
		if err := c.dir(from, to, path, depth+1); err != nil {
			return err
		}
	}
	return sameAccess(from, to)
}

func (c *copier) file(src, dst int, name string) error {
	from, err := unix.Openat(src, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(from), name)
	defer in.Close()
	to, err := unix.Openat(dst, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(to), name)
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(in, c.bytes+1))
	if c.bytes -= n; err == nil && c.bytes < 0 {
		err = errLarge
	}
	if err != nil {
		return err
	}
	return sameAccess(from, to)
}

// link copies a symbolic link as it is.
func (c *copier) link(src, dst int, name string, st *unix.Stat_t) error {
	var text [unix.PathMax]byte
	n, err := unix.Readlinkat(src, name, text[:])
	if err != nil {
		return err
	}
	if c.bytes -= int64(n); c.bytes < 0 {
		return errLarge
	}
	if err := unix.Symlinkat(string(text[:n]), dst, name); err != nil {
		return err
	}
	return unix.Fchownat(dst, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
}

// sameAccess gives a copy the permissions, the owner and the times of its original. Programs
// compare the times of their settings and caches.
func sameAccess(from, to int) error {
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	if err := unix.Fchmod(to, st.Mode&0o777); err != nil {
		return err
	}
	times := []unix.Timeval{unix.NsecToTimeval(st.Atim.Nano()), unix.NsecToTimeval(st.Mtim.Nano())}
	if err := unix.Futimes(to, times); err != nil {
		return err
	}
	return unix.Fchown(to, int(st.Uid), int(st.Gid))
}
