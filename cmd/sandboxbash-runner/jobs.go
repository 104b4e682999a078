//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// maxQuery bounds an encoded wire.JobQuery in bytes.
const maxQuery = 16 << 10

// jobs answers one question about the jobs of the session. It runs as uid 0: the
// directory is uid 0's.
func jobs(in io.Reader, out io.Writer) error {
	// In profile dev commands have this uid, and may trace.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(in, maxQuery))
	if err != nil {
		return err
	}
	q, err := wire.ParseJobQuery(b)
	if err != nil {
		return err
	}
	return jobDir(wire.JobsDir).answer(q, out)
}

// errNoJob is told to who names a job that there is not.
var errNoJob = errors.New("no such job")

func (d jobDir) answer(q wire.JobQuery, out io.Writer) error {
	switch q.Verb { //nolint:exhaustive // the others are about one job
	case wire.JobList:
		return d.list(q.Keep, out)
	case wire.JobWatch:
		return d.watch(q.Watch, out)
	}
	if !wire.ValidJobID(q.ID) || !d.exists(q.ID+jobSuffix) {
		return errNoJob
	}
	switch q.Verb {
	case wire.JobRead, wire.JobFollow, wire.JobTail:
		return d.output(q, out)
	case wire.JobWait:
		return d.wait(q.ID)
	case wire.JobKill:
		// Whoever holds the lock is the runner, or in profile dev a command that
		// gains nothing by it.
		if q.Runner > 1 && d.alive(q.ID) {
			return unix.Kill(q.Runner, unix.SIGUSR1)
		}
		return nil
	case wire.JobRemove:
		unlock, err := d.lock()
		if err != nil {
			return err
		}
		defer unlock()
		if d.alive(q.ID) {
			return errors.New("it is running")
		}
		return d.remove(q.ID)
	case wire.JobNote:
		return d.note(q)
	default:
		return fmt.Errorf("no such question: %d", q.Verb)
	}
}

// list tells of all jobs, and forgets those that are due.
func (d jobDir) list(keep wire.JobKeep, out io.Writer) error {
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.tidy(keep); err != nil {
		return err
	}
	ids, err := d.ids()
	if err != nil {
		return err
	}
	var all []wire.JobState
	for _, id := range ids {
		// Alive is asked first: the end comes before the lock goes.
		s := wire.JobState{ID: id, Alive: d.alive(id), Start: d.read(id + jobSuffix), End: d.read(id + endSuffix)}
		s.Known, s.Artifact = d.exists(id+knownSuffix), string(d.read(id+artSuffix))
		if info, err := os.Lstat(d.path(id + logSuffix)); err == nil {
			s.Size = uint64(info.Size())
		}
		all = append(all, s)
	}
	_, err = out.Write(wire.AppendJobStates(nil, all))
	return err
}

// note writes down what the host tells of a job.
func (d jobDir) note(q wire.JobQuery) error {
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if q.Known && !d.exists(q.ID+knownSuffix) {
		err = d.put(q.ID+knownSuffix, stampNow())
	}
	if err == nil && q.Artifact != "" {
		err = d.put(q.ID+artSuffix, []byte(q.Artifact))
	}
	return err
}

// output copies a job's output, never what has been appended to it at its end.
func (d jobDir) output(q wire.JobQuery, out io.Writer) error {
	f, err := d.open(q.ID + logSuffix)
	if err != nil {
		return err
	}
	defer f.Close()
	news := newNews(f.Name(), unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	defer news.close()
	at := q.From
	if q.Verb == wire.JobTail {
		size, _ := d.extent(q.ID, f)
		at = size - min(size, q.From)
	}
	for {
		size, ended := d.extent(q.ID, f)
		if at < size {
			n, err := io.Copy(out, io.NewSectionReader(f, int64(at), int64(size-at)))
			if err != nil {
				return err
			}
			at += uint64(n)
			if n > 0 && q.Verb == wire.JobFollow && !ended {
				continue // there may be more by now
			}
		}
		if ended || q.Verb != wire.JobFollow {
			return nil
		}
		news.wait()
	}
}

// extent says how far a job's output goes by now, and whether that is all. The
// order matters: what is appended at the end comes after the end's record.
func (d jobDir) extent(id string, f *os.File) (size uint64, ended bool) {
	alive := d.alive(id)
	if info, err := f.Stat(); err == nil {
		size = uint64(info.Size())
	}
	if end, err := wire.ReadJobEnd(d.read(id + endSuffix)); err == nil {
		return min(size, end.Kept), true
	}
	return size, !alive
}

// wait returns when the job's runner is gone.
func (d jobDir) wait(id string) error {
	f, err := d.open(id + jobSuffix)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// watch writes a byte when it is this watch's turn, and then one whenever jobs
// may have come, ended or gone.
func (d jobDir) watch(name string, out io.Writer) error {
	turn, err := os.OpenFile(d.path(".watch-"+name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer turn.Close()
	for {
		err := unix.Flock(int(turn.Fd()), unix.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	news := newNews(string(d), unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_CLOSE_WRITE)
	defer news.close()
	last := ""
	for {
		ids, err := d.ids()
		if err != nil {
			return err
		}
		var b strings.Builder
		for _, id := range ids {
			fmt.Fprintf(&b, "%s %t\n", id, d.alive(id))
		}
		now := b.String()
		if now != last || last == "" {
			if _, err := out.Write([]byte{'\n'}); err != nil {
				return err
			}
		}
		last = now
		news.wait()
	}
}

// news tells when something may have changed.
type news struct{ f *os.File }

// Without word from the kernel one looks now and then: often, where it has no
// watch left to give; rarely, where only an end without a trace could be missed.
const (
	seldom = 2 * time.Second
	often  = 100 * time.Millisecond
)

// newNews watches a file or directory from now on.
func newNews(path string, events uint32) *news {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return &news{}
	}
	if _, err := unix.InotifyAddWatch(fd, path, events); err != nil {
		unix.Close(fd)
		return &news{}
	}
	return &news{f: os.NewFile(uintptr(fd), "inotify")}
}

// wait returns when something may have changed since the last wait.
func (n *news) wait() {
	if n.f == nil {
		time.Sleep(often)
		return
	}
	_ = n.f.SetReadDeadline(time.Now().Add(seldom))
	var b [64 << 10]byte // many at once
	if _, err := n.f.Read(b[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		time.Sleep(often)
	}
}

func (n *news) close() {
	if n.f != nil {
		n.f.Close()
	}
}
