//go:build linux

package tree

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// lockTime is how long to wait for what changes a workspace as a whole, such as an undo.
const lockTime = 30 * time.Second

// lock locks a file for reading, until the process ends. One that is not there needs no lock.
func lock(name string) error {
	if name == "-" {
		return nil
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for until := time.Now().Add(lockTime); ; {
		err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("%s: %w", name, err)
		}
		if time.Now().After(until) {
			return fmt.Errorf("a checkpoint or an undo of this session has been under way for %v: try again", lockTime)
		}
		time.Sleep(lockTime / 1000)
	}
}

// Clone copies a workspace into another.
func Clone(args []string, out io.Writer) error {
	var a wire.CloneArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return err
	}
	if err := lock(a.Lock); err != nil {
		return err
	}
	report, err := Copy(a.From, a.To, DefaultLimits)
	if err != nil {
		return err
	}
	_, err = out.Write(report.Append(nil))
	return err
}
