//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits for the exclusive lock on f.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// TryLock takes the exclusive lock on f if it is free, and reports whether it was.
func TryLock(f *os.File) (bool, error) { return try(f, unix.LOCK_EX) }

// Unlock gives the lock on f back.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// Locked reports whether another open file holds the lock on f's file.
func Locked(f *os.File) bool {
	free, err := try(f, unix.LOCK_SH)
	if free {
		_ = Unlock(f) // it ends with f at the latest
	}
	return !free && err == nil
}

func try(f *os.File, how int) (bool, error) {
	err := flock(f, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
