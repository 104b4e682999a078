//go:build linux

package main

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

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// The directory of jobs. Of the job bg_1 it holds
//
//	bg_1.log   its output, for everybody to read
//	bg_1.job   wire.JobStart, sealed; locked by its runner as long as that lives
//	bg_1.end   wire.JobEnd, sealed; there when it has ended
//	bg_1.lost  when it was first seen that its runner is gone and has left no end
//	bg_1.known that its owner knows the end, and since when
//	bg_1.art   the id of the artifact that holds the output on the host
//
// Every file appears whole, by a rename. Nothing is synced to the disk: what it
// has to survive is the end of processes, not of the machine, which would end the
// session as well. A job is there when its .job is; names are given and
// freed under the lock of the directory only.
type jobDir string

const (
	logSuffix   = ".log"
	jobSuffix   = ".job"
	endSuffix   = ".end"
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

func (d jobDir) path(name string) string { return filepath.Join(string(d), name) }

// lock takes the directory's lock. It never blocks a thread for long.
func (d jobDir) lock() (unlock func(), err error) {
	f, err := os.OpenFile(d.path(".lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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

// create makes a file of this runner's own, locked. The name is unique in the
// container's life, and files of an earlier one are replaced.
func (d jobDir) create(kind string) (*os.File, error) {
	name := d.path(ownPrefix + strconv.Itoa(os.Getpid()) + kind)
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

// put makes a file with content appear under its name.
func (d jobDir) put(name string, content []byte) error {
	f, err := d.create(".put")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), d.path(name))
}

// read returns a small file's content, nil if it is not there or no such file.
func (d jobDir) read(name string) []byte {
	f, err := d.open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, wire.MaxRecord)
	n, _ := f.Read(b)
	return b[:n]
}

// open opens a file to read. In profile dev a command can put anything there.
func (d jobDir) open(name string) (*os.File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// held reports whether a process holds the lock on a file.
func (d jobDir) held(name string) bool {
	f, err := d.open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// alive reports whether a job's runner keeps it.
func (d jobDir) alive(id string) bool { return d.held(id + jobSuffix) }

func (d jobDir) exists(name string) bool {
	_, err := os.Lstat(d.path(name))
	return err == nil
}

// ids lists the jobs by their numbers.
func (d jobDir) ids() ([]string, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, jobSuffix); ok && wire.ValidJobID(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return ids, nil
}

func (d jobDir) names() ([]string, error) {
	dir, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// free returns the smallest id that no file uses. It needs the lock.
func (d jobDir) free() (string, error) {
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

// remove forgets a job. It needs the lock. First of all the job is gone; what a
// cut-off leaves is tidied away later.
func (d jobDir) remove(id string) error {
	var errs []error
	for _, suffix := range []string{jobSuffix, logSuffix, endSuffix, lostSuffix, knownSuffix, artSuffix} {
		if err := os.Remove(d.path(id + suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxEnded is how many jobs that have ended are kept, whatever their age.
const maxEnded = 100

// tidy forgets the jobs that have ended and are due, and what crashes have left.
// It needs the lock.
func (d jobDir) tidy(keep wire.JobKeep) error {
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
		id, isJob := strings.CutSuffix(name, jobSuffix)
		base := strings.TrimSuffix(name, filepath.Ext(name))
		switch {
		case strings.HasPrefix(name, ownPrefix):
			if !d.held(name) && d.settled(name) {
				errs = append(errs, os.Remove(d.path(name)))
			}
		case !wire.ValidJobID(base):
		case !isJob:
			if !d.exists(base + jobSuffix) {
				errs = append(errs, os.Remove(d.path(name)))
			}
		case d.alive(id):
		default:
			age, due := d.due(id, keep)
			if due {
				errs = append(errs, d.remove(id))
				continue
			}
			ended = append(ended, old{id, age})
		}
	}
	slices.SortFunc(ended, func(a, b old) int { return cmp.Compare(b.age, a.age) })
	for len(ended) > maxEnded {
		errs = append(errs, d.remove(ended[0].id))
		ended = ended[1:]
	}
	return errors.Join(errs...)
}

// settleTime is how long a file may be there before it is locked.
const settleTime = time.Minute

func (d jobDir) settled(name string) bool {
	info, err := os.Lstat(d.path(name))
	return err == nil && time.Since(info.ModTime()).Abs() > settleTime
}

// due says how long ago a job has ended, and whether it may be forgotten. Of one
// that is lost it notes the time.
func (d jobDir) due(id string, keep wire.JobKeep) (age time.Duration, due bool) {
	now := clock()
	since := func(then time.Duration) time.Duration {
		if then < 0 || then > now {
			return 0 // of a command's making, or of before the machine's restart
		}
		return now - then
	}
	if end, err := wire.ReadJobEnd(d.read(id + endSuffix)); err == nil {
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

// clock is the time since the machine's boot, which nobody sets.
func clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func stampNow() []byte { return strconv.AppendInt(nil, int64(clock()), 10) }

func (d jobDir) stamp(name string) (time.Duration, bool) {
	n, err := strconv.ParseInt(string(d.read(name)), 10, 64)
	return time.Duration(n), err == nil
}
