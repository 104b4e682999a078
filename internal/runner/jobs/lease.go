//go:build linux

package jobs

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Notes about the session's lease. They lie here because they must outlive a reset, as jobs do.
const (
	keepNote  = ".keep"   // until when the session does not end, in RFC 3339
	pauseNote = ".paused" // the session is to be paused, or is
)

// NoteLease is the verb lease.
func (d Dir) NoteLease(args []string) error {
	var a wire.LeaseArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return err
	}
	switch {
	case a.Do == wire.LeaseKeep && a.For > 0:
		return d.put(keepNote, []byte(time.Now().Add(a.For).UTC().Format(time.RFC3339Nano)))
	case a.Do == wire.LeaseKeep:
		return d.forget(keepNote)
	case a.Do == wire.LeasePause:
		return d.put(pauseNote, nil)
	case a.Do == wire.LeaseResume:
		return d.forget(pauseNote)
	default:
		return fmt.Errorf("nothing that can be done to a lease: %q", a.Do)
	}
}

func (d Dir) forget(name string) error {
	if err := os.Remove(d.Path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// LeaseLeft returns how long the session lives on although its lease is over, 0 if it does not. PID 1
// has not run while the session was paused, and finds its lease over when it runs again: then the lease
// starts again, once.
func (d Dir) LeaseLeft(lease time.Duration) time.Duration {
	if os.Remove(d.Path(pauseNote)) == nil {
		return lease
	}
	until, err := time.Parse(time.RFC3339Nano, string(d.read(keepNote)))
	if err != nil {
		return 0
	}
	return max(0, time.Until(until))
}
