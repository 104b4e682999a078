//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
)

// freezeLock is locked by the process that has stopped all commands of the session. A second
// process would think that the processes stopped by the first were stopped by their user.
var freezeLock = filepath.Join(stateDir, "freeze")

const (
	// freezeRounds is the most rounds of stopping and killing before the bystanders are
	// continued.
	freezeRounds = 10
	// restTries is how often atRest tries to read a list of processes without gaps.
	restTries = 10
	restPause = time.Millisecond
	// parentTime is how long to wait for the bystanders that have children to stop. They need
	// far less, unless what is to be killed takes all processors.
	parentTime = 60 * time.Millisecond
)

// freezer stops all commands of a session for a few milliseconds and kills its targets while
// nothing can fork. It is the rung for commands that fork faster than /proc can be read. The
// targets are mostly what is below this process. All others are bystanders, which continue
// afterwards.
//
// freeze does the following, with docs/adr/0023 as the reason for each step:
//
//	lock           only one process of a session freezes at a time
//	begin          tell PID 1, which continues the bystanders if this process is killed
//	before         note which processes are stopped already, to leave them stopped
//	stopParents    stop bystanders that have children, ancestors first
//	stopAll        stop every process that the session's user may signal
//	atRest, kill   read /proc until it has no gaps, and kill the targets in it;
//	               repeat stopAll and this until a round finds no new process
//	goOn           continue the bystanders, children first
type freezer struct {
	uid  uint32 // of the session's commands
	lock *os.File
	line *initLine // nil in PID 1
}

// targets chooses the processes that are to be killed from a list of all.
type targets func(all []proc.Process) []proc.Process

// belowThis chooses what descends from this process.
func belowThis(all []proc.Process) []proc.Process { return proc.Below(all, os.Getpid()) }

// spareAll chooses none.
func spareAll([]proc.Process) []proc.Process { return nil }

// openFreezer opens the lock, which PID 1 has made.
func openFreezer() (*freezer, error) {
	lock, err := os.OpenFile(freezeLock, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return &freezer{lock: lock}, nil
}

// freeze kills the targets, and reports whether it has proved that none of them lives: it
// found none in a list without gaps, while nothing could fork. It does nothing if another
// process is freezing the session, or if runners cannot be distinguished from commands. The
// next rung is then the reset of the container.
func (f *freezer) freeze(of targets) (none bool) {
	if f.uid == 0 && !proc.Marked(os.Getpid()) {
		return false
	}
	f.alone(func() { none = f.freezeAlone(of) })
	return none
}

// alone calls fn while no other process freezes the session. It returns false if one does.
func (f *freezer) alone(fn func()) bool {
	if unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	defer func() { _ = unix.Flock(int(f.lock.Fd()), unix.LOCK_UN) }()
	fn()
	return true
}

// freezeAlone is freeze, with the lock.
func (f *freezer) freezeAlone(of targets) (none bool) {
	if f.line != nil {
		f.line.beginFreeze()
		defer f.line.endFreeze()
	}
	all := proc.Processes()
	before := stopped(all)
	f.stopParents(all, of)
	killed := map[int]bool{}
	for range freezeRounds {
		f.stopAll()
		all, whole := atRest()
		alive, fresh := 0, 0
		for _, p := range of(all) {
			if p.Dead() {
				continue
			}
			alive++
			if !killed[p.PID] {
				killed[p.PID] = true
				fresh++
				_ = unix.Kill(p.PID, unix.SIGKILL)
			}
		}
		// When a process ends, the kernel may continue others of its process group.
		if fresh == 0 {
			none = whole && alive == 0
			break
		}
	}
	goOn(before, of)
	return none
}

// stopped returns the processes that a signal or a tracer has stopped, by pid.
func stopped(all []proc.Process) map[int]proc.Process {
	found := map[int]proc.Process{}
	for _, p := range all {
		if p.Stopped() {
			found[p.PID] = p
		}
	}
	return found
}

// stopAll stops every process that the session's user may signal. No process escapes: the
// kernel walks all processes under a lock that a fork takes too, and a process with a signal
// pending does not finish a fork. The kernel leaves out PID 1 and this process. In profile
// dev the runners have the commands' uid, so they are stopped too, and continued at once.
func (f *freezer) stopAll() {
	if f.uid != 0 {
		_ = asSignaller(f.uid, stopEverything)
		return
	}
	stopEverything()
	for _, p := range proc.Processes() {
		if proc.Marked(p.PID) {
			_ = unix.Kill(p.PID, unix.SIGCONT)
		}
	}
}

func stopEverything() { _ = unix.Kill(-1, unix.SIGSTOP) }

// strangers are two uids. A session uses at most one of them, so the other belongs to no
// process.
var strangers = [2]uint32{65533, 65532}

// asSignaller calls fn on a thread that may signal exactly what uid may signal, and that no
// process of uid may signal or trace. It forks nothing, so it works at the pids limit.
func asSignaller(uid uint32, fn func()) error {
	stranger := strangers[0]
	if stranger == uid {
		stranger = strangers[1]
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A raw system call changes this thread only. A process may signal another if its real
	// or effective uid equals the other's real or saved uid.
	set := func(ruid, euid, suid uint32) error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(ruid), uintptr(euid), uintptr(suid)); errno != 0 {
			return errno
		}
		return nil
	}
	if err := set(stranger, uid, 0); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	fn()
	if err := set(0, 0, 0); err != nil {
		// The kernel grants this to every thread whose saved uid is 0. A thread that kept
		// the uid of commands would run the next fork with their rights.
		panic(fmt.Sprintf("setresuid back to 0: %v", err))
	}
	return hide()
}

// atRest lists the processes. It reads /proc until the list has the parent of each process,
// and reports whether it has. A missing parent means that a process ended during the scan, and
// its children have passed to another.
func atRest() (all []proc.Process, whole bool) {
	for range restTries {
		all = proc.Processes()
		there := map[int]bool{0: true} // the parent of processes that come from outside
		for _, p := range all {
			there[p.PID] = true
		}
		if !slices.ContainsFunc(all, func(p proc.Process) bool { return !there[p.Parent] }) {
			return all, true
		}
		time.Sleep(restPause)
	}
	return all, false
}

// stopParents stops the bystanders that have children, ancestors first, and waits until they
// have stopped. If a shell saw its foreground children stop, it would take the terminal away
// from them.
func (f *freezer) stopParents(all []proc.Process, of targets) {
	deadline := time.Now().Add(parentTime)
	own := withTargets(all, of)
	parent := map[int]bool{}
	for _, p := range all {
		parent[p.Parent] = true
	}
	for _, p := range proc.ByDepth(all) {
		if own[p.PID] || !parent[p.PID] || p.Dead() || p.Stopped() || !f.isCommand(p.PID) {
			continue
		}
		_ = unix.Kill(p.PID, unix.SIGSTOP)
		for time.Now().Before(deadline) && proc.Runs(p.PID) {
			time.Sleep(restPause / 5)
		}
	}
}

// withTargets returns this process, PID 1 and the targets, none of which is a bystander.
func withTargets(all []proc.Process, of targets) map[int]bool {
	own := map[int]bool{os.Getpid(): true, 1: true}
	for _, p := range of(all) {
		own[p.PID] = true
	}
	return own
}

// goOn continues the bystanders, except those that were stopped before. It continues children
// first, so that no shell sees them stopped.
func goOn(before map[int]proc.Process, of targets) {
	all, _ := atRest()
	own := withTargets(all, of)
	sorted := proc.ByDepth(all)
	slices.Reverse(sorted)
	for _, p := range sorted {
		if was, ok := before[p.PID]; own[p.PID] || ok && was.StartTicks == p.StartTicks {
			continue
		}
		_ = unix.Kill(p.PID, unix.SIGCONT)
	}
}

// isCommand reports whether a process belongs to a command, so that freeze stops it.
func (f *freezer) isCommand(pid int) bool {
	return !proc.Ours(pid, f.uid)
}
