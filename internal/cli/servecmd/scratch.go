package servecmd

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// scratchPrefix begins the name of a server's directory for files of its own.
const scratchPrefix = "sandboxbash-serve-"

// scratchAge is how long such a directory may be without its lock when it is made.
const scratchAge = time.Minute

// newScratch makes a directory that is this process's until close is called, and
// removes those whose process was killed: a lock tells, which ends with its process.
func newScratch() (dir string, remove func() error, err error) {
	tmp := os.TempDir()
	all, _ := filepath.Glob(filepath.Join(tmp, scratchPrefix+"*")) // the pattern is good
	for _, old := range all {
		info, err := os.Lstat(old)
		if err != nil || time.Since(info.ModTime()) < scratchAge || holder.OwnOnly(old) != nil {
			continue
		}
		if lock, err := lockDir(old); err == nil {
			_ = os.RemoveAll(old) // the next one tries again
			_ = lock.Close()
		}
	}
	if dir, err = os.MkdirTemp(tmp, scratchPrefix); err != nil {
		return "", nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
}

var errInUse = errors.New("another process uses it")

// lockDir takes a directory for as long as the file that it returns is open. It is an
// error if another process has it. On Windows, where directories cannot be locked, it takes
// nothing, and none is removed: OwnOnly refuses them all there.
func lockDir(dir string) (*os.File, error) {
	if runtime.GOOS == "windows" {
		return os.Open(os.DevNull)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if free, err := filelock.TryLock(f); !free {
		return nil, errors.Join(&os.PathError{Op: "lock", Path: dir, Err: cmp.Or(err, errInUse)}, f.Close())
	}
	return f, nil
}
