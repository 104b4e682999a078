//go:build linux

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
)

const (
	// sweepTime bounds how long PID 1 kills the survivors that were passed to it.
	sweepTime = 2 * time.Second
	// The pause between two scans of /proc starts with the time in which a killed process
	// usually dies, and doubles for processes that are stuck in the kernel.
	minSweepPause = 2 * time.Millisecond
	maxSweepPause = 250 * time.Millisecond
	// missedScans is how many scans may miss something before the session is frozen.
	missedScans = 2
)

// sweeper kills everything below this process, or those of it that targets choose. Only the
// kernel can prove that nothing is left: orphans become children of this process, so nothing
// is left when it has no child. Where some children are bystanders, the proof is a list from
// a frozen session. A scan of /proc finds what to kill, but proves nothing, because a process
// that forks and ends in a loop may be in no scan.
//
// Each round of run goes
//
//	scan       list the targets
//	kill       send SIGKILL to each of them that is not dead
//	gone       wait for the kernel's proof, for a pause that doubles; end if it comes
//	freeze     if two scans have missed something: see freezer
//
// A scan has missed something if it finds a process that was not killed before, or if it
// finds nothing although a child is left.
type sweeper struct {
	freezer *freezer
	// gone waits up to that long until this process has no child, and reports whether it has
	// none.
	gone func(wait time.Duration) bool
	// of chooses what is killed. If it is nil, that is everything below this process.
	of targets
}

// run kills until nothing is left or the deadline has passed, and reports whether nothing is
// left. A zero deadline means that there is none.
func (s *sweeper) run(deadline time.Time) bool {
	of := s.of
	if of == nil {
		of = belowThis
	}
	killed := map[int]bool{}
	missed := 0
	for pause := minSweepPause; ; {
		found := of(proc.Processes())
		if s.kill(found, killed) > 0 || len(found) == 0 {
			missed++
		}
		if s.gone(pause) {
			return true
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			return false
		}
		pause = min(2*pause, maxSweepPause)
		if missed >= missedScans {
			missed, pause = 0, minSweepPause
			// What is below a runner is all its command's, and wait4 will say the same.
			if s.freezer.freeze(of) && s.of != nil {
				return true
			}
		}
	}
}

// kill sends SIGKILL to the processes found, and returns how many of them no earlier call
// was given. Dead processes count too, because they may have left a child.
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
