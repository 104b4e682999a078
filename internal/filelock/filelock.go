// Package filelock locks open files against other processes, and against other open
// files of this process. A lock ends with Unlock, with the file, or with the process.
package filelock

import (
	"os"
	"time"
)

// lockPause is the pause between two attempts of LockFor.
const lockPause = time.Millisecond

// LockFor waits for the exclusive lock on f for a time at most, and reports whether it has taken it.
func LockFor(f *os.File, patience time.Duration) (bool, error) {
	for until := time.Now().Add(patience); ; time.Sleep(lockPause) {
		if ok, err := TryLock(f); ok || err != nil || time.Now().After(until) {
			return ok, err
		}
	}
}
