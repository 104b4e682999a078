//go:build linux

package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
)

const (
	// sweepTime bounds what PID 1 spends on killing what was left to it.
	sweepTime = 2 * time.Second
	// The pause between two scans of /proc: at first long enough for the killed to
	// die, in the end for something that is stuck in the kernel.
	minSweepPause = 2 * time.Millisecond
	maxSweepPause = 250 * time.Millisecond
	// missedScans is how many scans may miss something before everything is stopped.
	missedScans = 2
)

// sweeper kills everything below this process. Only the kernel can prove that
// nothing is left: this process has no child any more, and orphans become its children.
// A scan of /proc finds what to kill and proves nothing: a process that forks and ends
// may be in none.
type sweeper struct {
	freezer *freezer
	// gone waits at most that long for the kernel to say that this process has no
	// child any more, and reports whether it has.
	gone func(wait time.Duration) bool
}

// run kills until nothing is left or the deadline is over. The zero deadline is none.
func (s *sweeper) run(deadline time.Time) {
	killed := map[int]bool{}
	missed := 0
	for pause := minSweepPause; ; {
		found := proc.Below(proc.Processes(), os.Getpid())
		if s.kill(found, killed) > 0 || len(found) == 0 {
			missed++
		}
		if s.gone(pause) || !deadline.IsZero() && time.Now().After(deadline) {
			return
		}
		pause = min(2*pause, maxSweepPause)
		if missed >= missedScans {
			missed, pause = 0, minSweepPause
			s.freezer.freeze()
		}
	}
}

// kill sends SIGKILL to what was found, and returns how many of them it had not
// been sent to before. The dead among those count: they may have left a child.
func (s *sweeper) kill(found []proc.Process, killed map[int]bool) (fresh int) {
	for _, p := range found {
		if !killed[p.PID] {
			killed[p.PID] = true
			fresh++
		}
		if !p.Dead() {
			_ = unix.Kill(p.PID, unix.SIGKILL) // ESRCH: it is gone, as wanted
		}
	}
	return fresh
}
