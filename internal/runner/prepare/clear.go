//go:build linux

package prepare

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Clear empties the directory that its arguments name.
func Clear(args []string) error {
	var a wire.ClearArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return err
	}
	return emptyDir(a.Dir)
}

// emptyDir removes everything in a directory, however deep the tree is. Engines cannot remove
// very deep trees, because they recurse with a descriptor for each level. emptyDir moves a
// directory that is not empty to the top, so that no path has more than two parts. It follows
// no link.
func emptyDir(dir string) error {
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer unix.Close(top)
	moved := 0
	for {
		names, err := namesIn(top, ".")
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := clearEntry(top, name, &moved); err != nil {
				return fmt.Errorf("%s/%s: %w", dir, name, err)
			}
		}
	}
}

// clearEntry removes one entry of the top. It first moves the non-empty directories in that
// entry to the top.
func clearEntry(top int, name string, moved *int) error {
	done, err := unlink(top, name)
	if done || err != nil {
		return err
	}
	_ = unix.Fchmodat(top, name, 0o700, 0) // its mode may forbid access to its owner
	for {
		names, err := namesIn(top, name)
		if err != nil || len(names) == 0 {
			break
		}
		dir, err := unix.Openat(top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = emptyInto(dir, top, names, moved)
		unix.Close(dir)
		if err != nil {
			return err
		}
	}
	return unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
}

// emptyInto removes the named entries of a directory, or moves them to the top.
func emptyInto(dir, top int, names []string, moved *int) error {
	for _, name := range names {
		done, err := unlink(dir, name)
		if err != nil {
			return err
		}
		for !done {
			*moved++
			err := unix.Renameat2(dir, name, top, ".clear-"+strconv.Itoa(*moved), unix.RENAME_NOREPLACE)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
	}
	return nil
}

// unlink removes a file, or an empty directory. It reports false for a directory
// that is not empty.
func unlink(dir int, name string) (bool, error) {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return false, nil
	default:
		return false, err
	}
}

// someNames is how many names are read before they are worked on.
const someNames = 4096

// namesIn reads some names of a directory below dir.
func namesIn(dir int, name string) ([]string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(someNames)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
