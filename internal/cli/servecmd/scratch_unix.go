//go:build unix

package servecmd

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockDir takes a directory for as long as the file that it returns is open. It is an
// error if another process has it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(&os.PathError{Op: "lock", Path: dir, Err: err}, f.Close())
	}
	return f, nil
}
