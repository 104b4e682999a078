//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	allowed = "allowed"
	none    = "none"
)

// outcome names the end of an attempt.
func outcome(err error) string {
	if err == nil {
		return allowed
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if errno == 0 {
			return allowed
		}
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
		return fmt.Sprintf("errno%d", int(errno))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "timeout"
	}
	return fmt.Sprintf("%T", err)
}

// call makes a system call whose result is not a file.
func call(number uintptr, args ...uintptr) func() string {
	return func() string {
		_, errno := raw(number, args...)
		return outcome(errno)
	}
}

// open makes a system call whose result is a file, which is closed at once.
func open(number uintptr, args ...uintptr) func() string {
	return func() string {
		fd, errno := raw(number, args...)
		if errno == 0 {
			_ = unix.Close(int(fd))
		}
		return outcome(errno)
	}
}

func raw(number uintptr, args ...uintptr) (uintptr, syscall.Errno) {
	var a [6]uintptr
	copy(a[:], args)
	result, _, errno := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	return result, errno
}

// opening opens a file the given way, and does nothing with it.
func opening(flags int, path string) func() string {
	return func() string {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return outcome(err)
	}
}

// list joins names to one outcome.
func list(names []string) string {
	if len(names) == 0 {
		return none
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 20 // names; an outcome is for people to read
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf("and_%d_more", len(names)-most))
	}
	return strings.NewReplacer(" ", "_", "\t", "_", "\n", "_").Replace(strings.Join(names, ","))
}
