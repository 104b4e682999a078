//go:build linux

package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// errNoJob is the error of a query that names an unknown job.
var errNoJob = errors.New("no such job")

// Answer answers a query. A JobFollow and a JobWait take until the job has ended, and a
// JobWatch takes until ctx ends. The error is ctx's cause if it ended first.
func (d Dir) Answer(ctx context.Context, q wire.JobQuery, out io.Writer) error {
	switch q.Verb { //nolint:exhaustive // the others are about one job
	case wire.JobList:
		return d.list(q.Keep, out)
	case wire.JobWatch:
		return d.watch(ctx, q.Watch, out)
	}
	if !wire.ValidJobID(q.ID) || !d.exists(q.ID+JobSuffix) {
		return errNoJob
	}
	switch q.Verb {
	case wire.JobRead, wire.JobFollow, wire.JobTail:
		return d.output(ctx, q, out)
	case wire.JobWait:
		return d.wait(ctx, q.ID)
	case wire.JobKill:
		// The holder of the lock is the runner, or in profile dev a command that gains
		// nothing by it.
		if q.Runner > 1 && d.alive(q.ID) {
			return unix.Kill(q.Runner, unix.SIGUSR1)
		}
		return nil
	case wire.JobRemove:
		unlock, err := d.Lock()
		if err != nil {
			return err
		}
		defer unlock()
		if d.alive(q.ID) {
			return errors.New("it is running")
		}
		return d.Remove(q.ID)
	case wire.JobNote:
		return d.note(q)
	default:
		return fmt.Errorf("no such question: %d", q.Verb)
	}
}

// list removes the jobs whose time is over and writes the states of the others.
func (d Dir) list(keep wire.JobKeep, out io.Writer) error {
	unlock, err := d.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.Tidy(keep); err != nil {
		return err
	}
	ids, err := d.ids()
	if err != nil {
		return err
	}
	var all []wire.JobState
	for _, id := range ids {
		// Alive comes first, because a runner writes the end before it releases the lock.
		s := wire.JobState{ID: id, Alive: d.alive(id), Start: d.read(id + JobSuffix), End: d.read(id + EndSuffix)}
		s.Known, s.Artifact = d.exists(id+knownSuffix), string(d.read(id+artSuffix))
		if info, err := os.Lstat(d.Path(id + LogSuffix)); err == nil {
			s.Size = uint64(info.Size())
		}
		all = append(all, s)
	}
	_, err = out.Write(wire.AppendJobStates(nil, all))
	return err
}

// note records what the host reports about a job.
func (d Dir) note(q wire.JobQuery) error {
	unlock, err := d.Lock()
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
func (d Dir) output(ctx context.Context, q wire.JobQuery, out io.Writer) error {
	f, err := d.open(q.ID + LogSuffix)
	if err != nil {
		return err
	}
	defer f.Close()
	var news *news
	if q.Verb == wire.JobFollow {
		// If the runner of a job dies without writing an end, the kernel closes both files.
		news = newNews(nil, unix.IN_MODIFY|unix.IN_CLOSE_WRITE, f.Name(), d.Path(q.ID+JobSuffix))
		defer news.close()
	}
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
		if err := news.wait(ctx); err != nil {
			return err
		}
	}
}

// extent returns how long a job's output is by now, and whether it is complete. The order
// matters: text is appended to the output only after the record of the end was written.
func (d Dir) extent(id string, f *os.File) (size uint64, ended bool) {
	alive := d.alive(id)
	if info, err := f.Stat(); err == nil {
		size = uint64(info.Size())
	}
	if end, err := wire.ReadJobEnd(d.read(id + EndSuffix)); err == nil {
		return min(size, end.Kept), true
	}
	return size, !alive
}

// wait returns when the job's runner is gone.
func (d Dir) wait(ctx context.Context, id string) error {
	f, err := d.open(id + JobSuffix)
	if err != nil {
		return err
	}
	defer f.Close()
	return lockFile(ctx, f, unix.LOCK_SH, unix.IN_CLOSE_WRITE)
}

// lockFile takes a lock on f as soon as it is free. Its holder's closing of the file is
// one of events. No thread blocks meanwhile, so that the end of ctx is seen.
func lockFile(ctx context.Context, f *os.File, how int, events uint32) error {
	news := newNews(nil, events, f.Name())
	defer news.close()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if err := news.wait(ctx); err != nil {
			return err
		}
	}
}

// watch writes a byte when it is this watch's turn, and then one whenever jobs
// have come, ended or gone.
func (d Dir) watch(ctx context.Context, name string, out io.Writer) error {
	// Read-only: closing a file that could be written is news of the directory.
	turn, err := os.OpenFile(d.Path(".watch-"+name), os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer turn.Close()
	if err := lockFile(ctx, turn, unix.LOCK_EX, unix.IN_CLOSE_NOWRITE); err != nil {
		return err
	}
	news := newNews(ofJobs, unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_CLOSE_WRITE, string(d))
	defer news.close()
	last := "before the first summary" // equals no summary
	for {
		now, err := d.summary()
		if err != nil {
			return err
		}
		if now != last {
			if _, err := out.Write([]byte{wire.JobNews}); err != nil {
				return err
			}
		}
		last = now
		if err := news.wait(ctx); err != nil {
			return err
		}
	}
}

// ofJobs reports whether an event of the named file can be news of a job.
func ofJobs(name string) bool {
	return strings.HasSuffix(name, JobSuffix) || strings.HasSuffix(name, EndSuffix)
}

// summary returns a text that changes whenever a job is added, ends or is removed.
func (d Dir) summary() (string, error) {
	ids, err := d.ids()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, id := range ids {
		var st unix.Stat_t // ids are given again
		_ = unix.Lstat(d.Path(id+JobSuffix), &st)
		fmt.Fprintf(&b, "%s %d %d %t %t\n", id, st.Ino, st.Mtim.Nano(), d.alive(id), d.exists(id+EndSuffix))
	}
	return b.String(), nil
}
