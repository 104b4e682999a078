//go:build linux

package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Dir is the path of the directory of jobs. For the job bg_1 it holds
//
//	bg_1.log   its output, readable by all users
//	bg_1.job   wire.JobStart, sealed; locked by its runner as long as that lives
//	bg_1.end   wire.JobEnd, sealed; exists once the job has ended
//	bg_1.lost  when its runner was first found to be gone without having written an end
//	bg_1.known its owner knows of the end, and since when
//	bg_1.art   the id of the artifact that holds the output on the host
//
// Every file appears whole, by a rename. Nothing is synced to the disk, because the files
// must survive the end of processes but not of the machine, which also ends the session. A
// job exists if its .job file does. Ids are given and freed only under the lock of the
// directory.
type Dir string

// Suffixes of the files that a runner writes.
const (
	LogSuffix   = ".log"
	JobSuffix   = ".job"
	EndSuffix   = ".end"
	lostSuffix  = ".lost"
	knownSuffix = ".known"
	artSuffix   = ".art"

	// ownPrefix begins the files that one runner uses until they are a job's.
	// They are locked meanwhile.
	ownPrefix = ".runner-"
)

// lockTime bounds the wait for the directory's lock, which is held for
// milliseconds.
const lockTime = 2 * time.Second

// Path is the path of a file in the directory.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Lock takes the directory's lock. It never blocks a thread for long.
func (d Dir) Lock() (unlock func(), err error) {
	// Read-only, because closing a file that was open for writing would count as news.
	f, err := os.OpenFile(d.Path(".lock"), os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockTime); ; time.Sleep(time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", d, err)
		}
	}
}

// Create creates and locks a file of this runner. Its name is unique while the container
// runs; a file from an earlier run is replaced.
func (d Dir) Create(kind string) (*os.File, error) {
	name := d.Path(ownPrefix + strconv.Itoa(os.Getpid()) + kind)
	_ = os.Remove(name)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return f, nil
}

// put writes a file so that it appears whole under its name.
func (d Dir) put(name string, content []byte) error {
	f, err := d.Create(".put")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), d.Path(name))
}

// read returns the content of a small file, or nil if there is no regular file of that name.
func (d Dir) read(name string) []byte {
	f, err := d.open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, wire.MaxRecord)
	n, _ := f.Read(b)
	return b[:n]
}

// open opens a file to read. It checks what it opens, because in profile dev a command can
// put anything there.
func (d Dir) open(name string) (*os.File, error) {
	f, err := os.OpenFile(d.Path(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// held reports whether a process holds the lock on a file.
func (d Dir) held(name string) bool {
	f, err := d.open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// alive reports whether a job's runner keeps it.
func (d Dir) alive(id string) bool { return d.held(id + JobSuffix) }

func (d Dir) exists(name string) bool {
	_, err := os.Lstat(d.Path(name))
	return err == nil
}

// ids lists the jobs by their numbers.
func (d Dir) ids() ([]string, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, JobSuffix); ok && wire.ValidJobID(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return ids, nil
}

// Running counts the jobs that have not ended.
func (d Dir) Running() (int, error) {
	ids, err := d.ids()
	n := 0
	for _, id := range ids {
		if d.alive(id) {
			n++
		}
	}
	return n, err
}

func (d Dir) names() ([]string, error) {
	dir, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// Free returns the smallest id that no file uses. The lock must be held.
func (d Dir) Free() (string, error) {
	names, err := d.names()
	if err != nil {
		return "", err
	}
	used := map[string]bool{}
	for _, name := range names {
		used[strings.TrimSuffix(name, filepath.Ext(name))] = true
	}
	return wire.NextJobID(func(id string) bool { return used[id] }), nil
}

// Remove removes a job. The lock must be held. It removes the .job file first; if it is
// interrupted, Tidy removes the other files later.
func (d Dir) Remove(id string) error {
	var errs []error
	for _, suffix := range []string{JobSuffix, LogSuffix, EndSuffix, lostSuffix, knownSuffix, artSuffix} {
		if err := os.Remove(d.Path(id + suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxEnded is how many jobs that have ended are kept, whatever their age.
const maxEnded = 100

// Tidy removes the jobs that have ended and whose time is over, and files that crashes have
// left. The lock must be held.
func (d Dir) Tidy(keep wire.JobKeep) error {
	names, err := d.names()
	if err != nil {
		return err
	}
	var errs []error
	type old struct {
		id  string
		age time.Duration
	}
	var ended []old
	for _, name := range names {
		id, isJob := strings.CutSuffix(name, JobSuffix)
		base := strings.TrimSuffix(name, filepath.Ext(name))
		switch {
		case strings.HasPrefix(name, ownPrefix):
			if !d.held(name) && d.settled(name) {
				errs = append(errs, os.Remove(d.Path(name)))
			}
		case !wire.ValidJobID(base):
		case !isJob:
			if !d.exists(base + JobSuffix) {
				errs = append(errs, os.Remove(d.Path(name)))
			}
		case d.alive(id):
		default:
			age, due := d.due(id, keep)
			if due {
				errs = append(errs, d.Remove(id))
				continue
			}
			ended = append(ended, old{id, age})
		}
	}
	slices.SortFunc(ended, func(a, b old) int { return cmp.Compare(b.age, a.age) })
	for len(ended) > maxEnded {
		errs = append(errs, d.Remove(ended[0].id))
		ended = ended[1:]
	}
	return errors.Join(errs...)
}

// settleTime is how long a file may be there before it is locked.
const settleTime = time.Minute

func (d Dir) settled(name string) bool {
	info, err := os.Lstat(d.Path(name))
	return err == nil && time.Since(info.ModTime()).Abs() > settleTime
}

// due returns how long ago a job ended, and whether it may be removed. If the job is lost,
// due records the time.
func (d Dir) due(id string, keep wire.JobKeep) (age time.Duration, due bool) {
	now := Clock()
	since := func(then time.Duration) time.Duration {
		if then < 0 || then > now {
			return 0 // written by a command, or before the machine was restarted
		}
		return now - then
	}
	if end, err := wire.ReadJobEnd(d.read(id + EndSuffix)); err == nil {
		age = since(end.Clock)
	} else if then, ok := d.stamp(id + lostSuffix); ok {
		age = since(then)
	} else {
		_ = d.put(id+lostSuffix, stampNow())
	}
	if known, ok := d.stamp(id + knownSuffix); ok {
		return age, min(age, since(known)) >= keep.Known
	}
	return age, age >= keep.Unknown
}

// Clock returns the time since the machine's boot, which does not depend on the wall clock.
func Clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func stampNow() []byte { return strconv.AppendInt(nil, int64(Clock()), 10) }

func (d Dir) stamp(name string) (time.Duration, bool) {
	n, err := strconv.ParseInt(string(d.read(name)), 10, 64)
	return time.Duration(n), err == nil
}
