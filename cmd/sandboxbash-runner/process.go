//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// stateDir is where PID 1 and the runners meet: a directory of uid 0 on the
// container's own /run.
const stateDir = "/run/sandboxbash"

// spareThreads is how many threads the Go runtime is made to start at once.
// At the pids limit it cannot start another and aborts, so every thread that it
// will ever want must be there before the first command runs. A serving runner
// blocks three at a time; the rest is for the runtime's own.
const spareThreads = 16

// harden prepares PID 1 and the serving runners for life in a container with hostile
// code.
func harden() error {
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(20)
	if err := hide(); err != nil {
		return err
	}
	// The image's /etc/group decides nothing.
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	startThreads()
	return nil
}

// limitOpenFiles gives what this process starts the soft limit of open files that it is
// meant to have. Under runc before 1.1.13 an exec has the hard one now and then: the
// runtime of runc's own process raises it, and races with runc's setting it.
func limitOpenFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("getrlimit RLIMIT_NOFILE: %w", err)
	}
	limit.Cur = min(wire.OpenFiles, limit.Max)
	// Not by prlimit: the runtime of this process would give its children what it
	// has found at its own start.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("setrlimit RLIMIT_NOFILE: %w", err)
	}
	return nil
}

// adoptOrphans keeps whatever this process starts below it, however often it
// forks or starts sessions. Without that, a command that
// double forks could outlive its timeout unseen.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("the kernel that this runtime shows to containers cannot give a process the orphans among its descendants "+
			"(prctl PR_SET_CHILD_SUBREAPER: %w), so that commands could escape their timeout: use another runtime, or a newer version of this", err)
	}
	return nil
}

// startThreads makes the runtime start spareThreads threads: as many goroutines,
// each locked to a thread of its own, are there at once. A locked goroutine that
// waits parks its thread and hands its processor to another, which the runtime
// starts at once; blocked system calls would be noticed by and by. Idle threads
// are kept.
func startThreads() {
	release := make(chan struct{})
	var arrived, gone sync.WaitGroup
	arrived.Add(spareThreads)
	for range spareThreads {
		gone.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // or the thread would end with the goroutine
			arrived.Done()
			<-release
		})
	}
	arrived.Wait()
	close(release)
	gone.Wait()
}

// oomScore makes children the kernel's first choice when memory runs out. The
// child's own file cannot be written by uid 0 without CAP_DAC_OVERRIDE, so the
// runner takes the score itself for the time of the fork.
type oomScore struct {
	f    *os.File
	mine []byte
}

// worstScore is OOM_SCORE_ADJ_MAX of the kernel.
const worstScore = "1000"

func openOOMScore() (*oomScore, error) {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	mine := make([]byte, 8)
	n, err := f.ReadAt(mine, 0)
	if n == 0 {
		return nil, fmt.Errorf("read oom_score_adj: %w", err)
	}
	return &oomScore{f: f, mine: mine[:n]}, nil
}

func (s *oomScore) raise() error {
	_, err := s.f.WriteAt([]byte(worstScore), 0)
	return err
}

func (s *oomScore) restore() error {
	_, err := s.f.WriteAt(s.mine, 0)
	return err
}

// as runs fn on a thread whose file system accesses are those of uid and gid.
// Without CAP_DAC_OVERRIDE and CAP_SYS_PTRACE, which a runner must not have,
// this is the only way to look where that user may look.
func as(uid, gid uint32, fn func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsgid(int(gid)); err != nil {
		return fmt.Errorf("setfsgid: %w", err)
	}
	if err := unix.Setfsuid(int(uid)); err != nil {
		return fmt.Errorf("setfsuid: %w", err)
	}
	err := fn()
	// Back to 0 always works for a thread whose real uid is 0.
	unix.Setfsuid(0)
	unix.Setfsgid(0)
	// A change of the uid gives a process the machine's default of being dumpable.
	return errors.Join(err, hide())
}
