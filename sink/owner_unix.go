//go:build unix

package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links a path may have, as in the kernel's
// path_resolution(7).
const maxLinks = 40

// checkPath refuses a store's directory that another user could have made, or could
// exchange. The directory must belong to this user, must not be a symbolic link, and
// other users must not be able to write to it. The directories above it must belong to
// this user or to root; others may write to those only if the sticky bit keeps them from
// renaming files of other users. Directories that do not exist yet are not checked.
func checkPath(dir string) error {
	dir = filepath.Clean(dir)
	if info, err := os.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return foreign(dir, "is a symbolic link")
	}
	rest := strings.Split(strings.Trim(dir, "/"), "/")
	at, links := "/", 0
	if err := checkParent(at); err != nil {
		return err
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		path := filepath.Join(at, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if path != dir {
				if err := checkParent(path); err != nil {
					return err
				}
			}
			at = path
			continue
		}
		if links++; links > maxLinks {
			return foreign(path, "is one symbolic link too many")
		}
		if uid := owner(info); uid != 0 && uid != os.Geteuid() {
			return foreign(path, fmt.Sprintf("is a symbolic link of user %d", uid))
		}
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return checkOwn(dir)
}

// checkParent checks a directory above the store's.
func checkParent(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if uid := owner(info); uid != 0 && uid != os.Geteuid() {
		return foreign(path, fmt.Sprintf("belongs to user %d", uid))
	}
	if info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return foreign(path, fmt.Sprintf("can be written by others (mode %04o)", info.Mode().Perm()))
	}
	return nil
}

// checkOwn checks the store's directory itself.
func checkOwn(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return ownDir(path, info)
}

// ownDir refuses a directory of another user, or one that others can write to.
func ownDir(path string, info fs.FileInfo) error {
	switch uid := owner(info); {
	case !info.IsDir():
		return foreign(path, "is not a directory")
	case uid != os.Geteuid():
		return foreign(path, fmt.Sprintf("belongs to user %d", uid))
	case info.Mode()&0o002 != 0, info.Mode()&0o020 != 0 && group(info) != os.Getegid():
		return foreign(path, fmt.Sprintf("can be written by others (mode %04o)", info.Mode().Perm()))
	}
	return nil
}

func foreign(path, what string) error {
	return &ForeignDirError{Path: path, What: what}
}

func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

func group(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Gid)
	}
	return -1
}
