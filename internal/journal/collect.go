package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// Keep says how long journals are kept. A zero value means that there is no limit.
type Keep struct {
	TotalBytes int64         // of all journals
	Sessions   int           // how many journals
	Retention  time.Duration // since the last record
}

// busyTime is how long a journal is safe from the limits on all of them: its session may still be in use.
const busyTime = time.Hour

// Collect removes journals that are past their retention, and the oldest ones while there are more than Keep allows. It does
// not touch one that a process writes to.
func (d *Dir) Collect(k Keep, now time.Time) error {
	all, err := d.Sessions()
	if err != nil {
		return err
	}
	var total int64
	for _, s := range all {
		total += s.Bytes
	}
	left := len(all)
	var errs []error
	for _, s := range all { // the oldest first
		age := now.Sub(s.Modified)
		old := k.Retention > 0 && age > k.Retention
		over := k.TotalBytes > 0 && total > k.TotalBytes || k.Sessions > 0 && left > k.Sessions
		if !old && (!over || age < busyTime) {
			continue
		}
		if err := d.Remove(s.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		total, left = total-s.Bytes, left-1
	}
	return errors.Join(errs...)
}

// Remove removes the journal of a session. A process that uses the session begins a new one with its next record.
func (d *Dir) Remove(id string) error {
	if !validSession(id) {
		return fmt.Errorf("journal of session %q: %w", id, fs.ErrNotExist)
	}
	base, err := openBase(d.path)
	if err != nil {
		return err
	}
	defer base.Close()
	lock, err := base.OpenFile(filepath.Join(id, lockName), os.O_RDWR, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		defer lock.Close() // which gives the lock back
		if ok, err := filelock.LockFor(lock, time.Second); !ok {
			return errors.Join(err, fmt.Errorf("journal of %s: %w", id, errBusy))
		}
	}
	return base.RemoveAll(id)
}
