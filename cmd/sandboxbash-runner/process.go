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

// stateDir holds the files that PID 1 and the runners share. It is a directory of uid 0 on
// the container's own /run.
const stateDir = "/run/sandboxbash"

// spareThreads is how many threads the Go runtime is made to start at the beginning. If the
// runtime cannot start a thread because of the pids limit, it aborts. So all threads that it
// will ever need must exist before the first command runs. A serving runner blocks up to
// three threads; the others are for the runtime.
const spareThreads = 16

// harden prepares PID 1 or a serving runner to run in a container with hostile code.
func harden() error {
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(20)
	if err := hide(); err != nil {
		return err
	}
	// The image's /etc/group must not give any groups.
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	startThreads(spareThreads)
	return nil
}

// limitOpenFiles sets the intended soft limit of open files for processes that this one
// starts. Under runc before 1.1.13 an exec sometimes has the hard limit, because runc's own
// Go runtime raises the soft limit while runc sets it.
func limitOpenFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("getrlimit RLIMIT_NOFILE: %w", err)
	}
	limit.Cur = min(wire.OpenFiles, limit.Max)
	// This must not be done with prlimit: the Go runtime would not notice, and would give
	// children the limit that it found at its own start.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("setrlimit RLIMIT_NOFILE: %w", err)
	}
	return nil
}

// adoptOrphans makes this process the parent of orphans below it. Without that, a command
// that forks twice could outlive its timeout unnoticed.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("the kernel that this runtime shows to containers cannot give a process the orphans among its descendants "+
			"(prctl PR_SET_CHILD_SUBREAPER: %w), so that commands could escape their timeout: use another runtime, or a newer version of this", err)
	}
	return nil
}

// startThreads makes the Go runtime start n threads, which it keeps when they are
// idle. It runs as many goroutines at the same time, each locked to its thread. When such a
// goroutine waits, the runtime parks its thread and at once starts another for the next
// goroutine. With blocking system calls instead it would start threads only after a delay.
func startThreads(n int) {
	release := make(chan struct{})
	var arrived, gone sync.WaitGroup
	arrived.Add(n)
	for range n {
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

// oomScore makes children the kernel's first choice when memory runs out. Without
// CAP_DAC_OVERRIDE, uid 0 cannot write the child's own file. So the runner sets its own score
// during the fork, and the child inherits it.
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

// as calls fn on a thread that accesses files as uid and gid. A runner has neither
// CAP_DAC_OVERRIDE nor CAP_SYS_PTRACE, so this is the only way to access what only that user
// may access.
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
