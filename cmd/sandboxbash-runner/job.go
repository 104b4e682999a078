//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/jobs"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// job lets a command go on without its host. The command's output is written to a file
// before it is framed. When the command is handed over, the runner stops framing, releases
// the command's slot, keeps the timeout and the lease itself, and records the end in a file
// instead of sending it.
//
//	phase       until                                      then
//	attached    the hand-over is done                      handedOver; Detached was the last frame
//	attached    the command has ended, or did not start    over; a hand-over is too late
//	handedOver  the command has ended                      the process exits
type job struct {
	c     *command
	ask   wire.Job
	dir   jobs.Dir
	lease time.Duration
	spool *spool

	asked   atomic.Bool   // a hand-over has been asked for
	begun   chan struct{} // closed when the command has started, or is known not to
	decided chan struct{} // closed when a hand-over that was asked for is done, refused or too late
	decide  sync.Once

	// Set before begun is closed.
	started time.Time
	release func() // releases the slot; may be called more than once

	mu    sync.Mutex // held while a frame is written: nothing is framed behind a Detached
	phase phase      // guarded by mu
	id    string     // guarded by mu until the phase is handedOver
	locks []*os.File // guarded by mu; the .job and those before it, locked as long as this process lives
	end   *os.File   // guarded by mu; becomes the .end file; its space is allocated

	ending atomic.Uint64 // a wire.Ending: why it was killed first
}

type phase int

const (
	attached   phase = iota // the host waits for the command
	handedOver              // the runner keeps it
	over                    // it has ended, or was not started
)

func newJob(c *command, ask wire.Job, dir jobs.Dir, lease time.Duration) *job {
	j := &job{
		c: c, ask: ask, dir: dir, lease: lease,
		begun: make(chan struct{}), decided: make(chan struct{}),
	}
	j.asked.Store(ask.Background)
	return j
}

// prepare creates the file for the output and, for a background job, its record. If that
// fails, the command is not started.
func (j *job) prepare() (wire.Failed, bool) {
	f, err := j.dir.Create(jobs.LogSuffix)
	if err != nil {
		return failedJob(err), false
	}
	j.spool = &spool{f: f, limit: j.ask.Cap}
	if j.ask.Background {
		j.mu.Lock()
		defer j.mu.Unlock()
		if failed, ok := j.claim(); !ok {
			_ = os.Remove(f.Name())
			f.Close()
			return failed, false
		}
	}
	return wire.Failed{}, true
}

func failedJob(err error) wire.Failed {
	return wire.Failed{Failure: wire.FailJobs, Errno: errno(err), Detail: err.Error()}
}

// claim makes the command a job: it takes an id, writes the record, and gives the output
// its name. mu must be held.
func (j *job) claim() (wire.Failed, bool) {
	unlock, err := j.dir.Lock()
	if err != nil {
		return failedJob(err), false
	}
	defer unlock()
	_ = j.dir.Tidy(j.ask.Keep) // what it cannot remove it removes the next time
	running, err := j.dir.Running()
	if err != nil {
		return failedJob(err), false
	}
	if j.ask.Most > 0 && uint64(running) >= j.ask.Most {
		return wire.Failed{Failure: wire.FailJobLimit}, false
	}
	if j.id, err = j.dir.Free(); err != nil {
		return failedJob(err), false
	}
	// Allocate the room for the end now, so that it can be written on a full disk.
	if j.end, err = j.dir.Create(jobs.EndSuffix); err != nil {
		return failedJob(err), false
	}
	if _, err = j.end.Write(make([]byte, wire.MaxRecord)); err == nil {
		err = j.record()
	}
	if err == nil {
		err = errors.Join(j.spool.f.Chmod(0o644), os.Rename(j.spool.f.Name(), j.dir.Path(j.id+jobs.LogSuffix)))
	}
	if err != nil {
		_ = os.Remove(j.end.Name())
		_ = j.dir.Remove(j.id)
		return failedJob(err), false
	}
	return wire.Failed{}, true
}

// record writes the job's record with what is known now. A reader sees the old record or the
// new one, and both are locked.
func (j *job) record() error {
	f, err := j.dir.Create(jobs.JobSuffix)
	if err != nil {
		return err
	}
	start := wire.JobStart{
		ID: j.id, Tag: j.ask.Tag, Owner: j.ask.Owner, Label: j.ask.Label, PID: j.c.leader(), Runner: os.Getpid(),
		Started: j.started, Timeout: j.ask.Timeout,
	}
	if j.started.IsZero() {
		start.Started = time.Now()
	}
	if _, err = f.Write(start.Seal(j.ask.Key)); err == nil {
		err = os.Rename(f.Name(), j.dir.Path(j.id+jobs.JobSuffix))
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	// The file before stays locked: another process may be reading it just now.
	j.locks = append(j.locks, f)
	return nil
}

// abandon undoes prepare for a command that was not started, or that ended before it was
// handed over.
func (j *job) abandon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.phase = over
	_ = os.Remove(j.spool.f.Name())
	j.spool.f.Close()
	if j.id != "" {
		_ = os.Remove(j.end.Name())
		_ = j.dir.Remove(j.id)
		j.id = ""
	}
}

// never is called if the command will not be started.
func (j *job) never() {
	j.mu.Lock()
	j.phase = over
	j.mu.Unlock()
	close(j.begun)
	j.decide.Do(func() { close(j.decided) })
}

// begin is called when the command has started. A background job is handed over
// at once.
func (j *job) begin(release func()) {
	var once sync.Once
	j.started, j.release = time.Now(), func() { once.Do(release) }
	close(j.begun)
	if j.ask.Background {
		j.handOver()
	}
}

// detachTime is how long a hand-over waits for a host that takes no output.
const detachTime = time.Second

// handOver makes the command a job that needs no host, unless the command has ended or
// cannot be kept.
func (j *job) handOver() {
	defer j.decide.Do(func() { close(j.decided) })
	<-j.begun
	out := j.c.server.out
	out.limit(detachTime) // a pump that a slow host blocks holds mu
	j.mu.Lock()
	defer j.mu.Unlock()
	out.limit(0)
	if j.phase == over {
		return
	}
	answer := wire.Detached{Seq: j.c.req.Seq, PID: j.c.leader()}
	if j.id == "" {
		if failed, ok := j.claim(); !ok {
			j.id = ""
			answer.Failure, answer.Errno, answer.Detail = failed.Failure, failed.Errno, failed.Detail
			out.send(wire.TypeDetached, answer.Append(nil))
			return
		}
	} else {
		_ = j.record() // now with its pid; without room for that the first one stays
	}
	j.phase = handedOver
	j.release()
	j.c.stdin.end()
	j.keep()
	answer.ID = j.id
	if p := j.c.out[0]; p != nil {
		answer.Stdout = p.sent.Load()
	}
	if p := j.c.out[1]; p != nil {
		answer.Stderr = p.sent.Load()
	}
	out.limit(detachTime)
	out.send(wire.TypeDetached, answer.Append(nil))
}

// keep does from now on what the host did. It keeps the lease and the timeout, and kills the
// job when a runner of this session asks for it.
func (j *job) keep() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	var timeout <-chan time.Time
	if j.ask.Timeout > 0 {
		timeout = time.After(j.ask.Timeout - time.Since(j.started))
	}
	contact := time.NewTicker(max(time.Millisecond, j.lease/3))
	go func() { // lives as long as the job, and so this process
		for {
			select {
			case <-contact.C:
				j.c.server.init.contact()
			case <-signals:
				j.kill(wire.EndedByDemand)
			case <-timeout:
				j.kill(wire.EndedTimeout)
			}
		}
	}()
	j.c.server.init.contact()
}

// timedOut is called when the host kills the command because its time is over. The command may
// become a job at the same moment.
func (j *job) timedOut() {
	j.ending.CompareAndSwap(uint64(wire.EndedItself), uint64(wire.EndedTimeout))
}

func (j *job) kill(why wire.Ending) {
	j.ending.CompareAndSwap(uint64(wire.EndedItself), uint64(why))
	j.c.kill(j.ask.Grace)
}

// outlives reports whether the command goes on without its host. It waits for a
// hand-over that is under way.
func (j *job) outlives() bool {
	if !j.asked.Load() {
		return false
	}
	<-j.decided
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.phase == handedOver
}

// finished records the end of a command that was handed over, and reports whether it was
// handed over; if so, no Exit is sent. It is called when no more output comes.
func (j *job) finished(exit wire.Exit) bool {
	j.mu.Lock()
	handed := j.phase == handedOver
	if !handed {
		j.phase = over // from here on a hand-over comes too late
	}
	j.mu.Unlock()
	if !handed {
		j.abandon()
		return false
	}
	end := wire.JobEnd{
		ID: j.id, Tag: j.ask.Tag, Code: exit.Code, Signal: exit.Signal, Rung: exit.Rung, OOM: exit.OOM, Left: exit.Left,
		CPU: exit.CPU, MaxRSS: exit.MaxRSS, Processes: exit.Processes, Elapsed: time.Since(j.started), Ended: time.Now(), Clock: jobs.Clock(),
		Written: j.spool.written, Kept: j.spool.kept, Full: j.spool.full,
		NoRoom: exit.NoRoom,
	}
	if exit.Rung != wire.RungNone {
		end.Ending = wire.Ending(j.ending.Load())
		if end.Ending == wire.EndedItself {
			end.Ending = wire.EndedByDemand // of the host, while it was there
		}
	}
	j.write(end)
	j.c.server.init.contact() // the lease starts again at the job's end
	// This comes after the record of the end. So a reader that sees no end sees only output.
	j.spool.sign(end)
	return true
}

// write writes the record of the end. If that fails, the job counts as lost.
func (j *job) write(end wire.JobEnd) {
	sealed := end.Seal(j.ask.Key)
	if _, err := j.end.WriteAt(sealed, 0); err != nil {
		return
	}
	if j.end.Truncate(int64(len(sealed))) == nil {
		_ = os.Rename(j.end.Name(), j.dir.Path(j.id+jobs.EndSuffix))
	}
}

// spool is the file of a job's output.
type spool struct {
	f     *os.File
	limit uint64

	mu      sync.Mutex
	written uint64 // guarded by mu until the pumps have ended
	kept    uint64 // guarded by mu until the pumps have ended
	full    bool   // guarded by mu until the pumps have ended; the disk took no more
}

// write keeps output up to the limit and counts the rest. After the first byte that was
// dropped, nothing is kept. It never fails, because a full file must not end the command.
func (s *spool) write(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.kept < s.written
	s.written += uint64(len(p))
	if dropped {
		return
	}
	p = p[:min(uint64(len(p)), s.limit-s.kept)]
	n, err := s.f.Write(p)
	s.kept += uint64(max(n, 0))
	s.full = err != nil
}

// sign appends a note about what is missing, and how the command ended.
func (s *spool) sign(end wire.JobEnd) {
	text := ""
	if end.Kept < end.Written {
		why := fmt.Sprintf("the limit is %d bytes", s.limit)
		if end.Full {
			why = "the disk is full"
		}
		text = fmt.Sprintf("\n\n[%d bytes of output were not kept: %s]", end.Written-end.Kept, why)
	}
	_, _ = s.f.WriteString(text + end.Completion())
	s.f.Close()
}
