//go:build unix

package sink

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock waits for the exclusive lock on f. It ends with unlock, with f, or with
// the process.
func lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// locked tells whether another open file holds the lock on f's file.
func locked(f *os.File) bool {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	_ = unlock(f) // it ends with f at the latest
	return false
}
