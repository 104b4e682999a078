package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Lock waits for the exclusive lock on f.
func Lock(f *os.File) error { return lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// TryLock takes the exclusive lock on f if it is free, and reports whether it was.
func TryLock(f *os.File) (bool, error) { return try(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// Unlock gives the lock on f back.
func Unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockRange())
}

// Locked reports whether another open file holds the lock on f's file.
func Locked(f *os.File) bool {
	free, err := try(f, 0)
	if free {
		_ = Unlock(f) // it ends with f at the latest
	}
	return !free && err == nil
}

func try(f *os.File, how uint32) (bool, error) {
	err := lock(f, how|windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

func lock(f *os.File, how uint32) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, lockRange())
}

// lockRange is a byte far behind any content: Windows enforces locks against reading.
func lockRange() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }
