//go:build unix

package transfer

import (
	"errors"
	"os"
	"syscall"
)

// openFlags keep opening from waiting for a FIFO's writer.
const openFlags = syscall.O_NONBLOCK

// isNotDir reports whether a file was in a directory's place.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// otherDevice reports whether a rename failed because a directory is on another
// file system than its parent.
func otherDevice(err error) bool { return errors.Is(err, syscall.EXDEV) }

// tryLock takes a lock on an open file that ends with this process. It reports false
// if another process has it.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// closeLocked gives the lock on f back and closes f. Close alone leaves the lock for as long as a program
// that is about to be started has f: each one has it from its fork to its exec.
func closeLocked(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// haveLocks reports whether tryLock works.
const haveLocks = true
