//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
)

// freezeLock is locked by the process that has stopped all commands of the session:
// what one has stopped another must not take for stopped by its own user.
var freezeLock = filepath.Join(stateDir, "freeze")

const (
	// freezeRounds is how often everything is stopped and looked at before what is
	// not of this process may go on.
	freezeRounds = 10
	// restTries is how often one looks for a list of processes without gaps.
	restTries = 10
	restPause = time.Millisecond
	// parentTime is how long the parents among the bystanders may take to stop.
	parentTime = 20 * time.Millisecond
)

// freezer stops all commands of a session for a few milliseconds, and kills those
// below this process while nothing can fork: the rung for what forks faster than
// /proc can be read. What is not below this process goes on as it was.
type freezer struct {
	uid  uint32 // of the session's commands
	lock *os.File
}

// openFreezer opens the lock, which PID 1 has made.
func openFreezer() (*freezer, error) {
	lock, err := os.OpenFile(freezeLock, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return &freezer{lock: lock}, nil
}

// freeze does nothing where another process freezes at the moment, or where runners
// cannot be distinguished from commands: the next rung is the container.
func (f *freezer) freeze() {
	if f.uid == 0 && !proc.Marked(os.Getpid()) {
		return
	}
	if unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	defer func() { _ = unix.Flock(int(f.lock.Fd()), unix.LOCK_UN) }()
	before := map[int]proc.Process{}
	all := proc.Processes()
	for _, p := range all {
		if p.Stopped() {
			before[p.PID] = p
		}
	}
	f.stopParents(all)
	killed := map[int]bool{}
	for range freezeRounds {
		f.stopAll()
		fresh := 0
		for _, p := range proc.Below(atRest(), os.Getpid()) {
			if !p.Dead() && !killed[p.PID] {
				killed[p.PID] = true
				fresh++
				_ = unix.Kill(p.PID, unix.SIGKILL)
			}
		}
		// One that ends may have the kernel continue others of its group.
		if fresh == 0 {
			break
		}
	}
	goOn(atRest(), before)
}

// stopAll stops every process that the session's user may signal. The kernel walks
// all processes under a lock that a fork takes too, and a process with a signal
// pending does not fork: nothing gets away. PID 1 and this process are left out by
// the kernel; in profile dev the runners have the commands' uid, and go on at once.
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

// strangers are uids of which a session uses at most one.
var strangers = [2]uint32{65533, 65532}

// asSignaller runs fn on a thread that may signal what uid may signal and nothing
// else, and that no process of uid may signal or trace. It works at the pids limit:
// nothing is forked.
func asSignaller(uid uint32, fn func()) error {
	stranger := strangers[0]
	if stranger == uid {
		stranger = strangers[1]
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Raw, and so of this thread alone. A signal's sender counts with its effective
	// and its real uid, its receiver with its real and its saved one.
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

// atRest lists the processes once none is missing between one of them and its
// ancestors: then none has ended, and left its children to another, meanwhile.
func atRest() []proc.Process {
	var all []proc.Process
	for range restTries {
		all = proc.Processes()
		there := map[int]bool{0: true} // the parent of what comes from outside
		for _, p := range all {
			there[p.PID] = true
		}
		if !slices.ContainsFunc(all, func(p proc.Process) bool { return !there[p.Parent] }) {
			break
		}
		time.Sleep(restPause)
	}
	return all
}

// stopParents stops the bystanders that have children, ancestors first, and waits
// for that: a shell must not see its children stop, or it takes their terminal away.
func (f *freezer) stopParents(all []proc.Process) {
	deadline := time.Now().Add(parentTime)
	own := map[int]bool{os.Getpid(): true, 1: true}
	for _, p := range proc.Below(all, os.Getpid()) {
		own[p.PID] = true
	}
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

// goOn continues what is not below this process, but what was stopped before:
// children first, so that no shell sees them stopped.
func goOn(all []proc.Process, before map[int]proc.Process) {
	own := map[int]bool{os.Getpid(): true, 1: true}
	for _, p := range proc.Below(all, os.Getpid()) {
		own[p.PID] = true
	}
	sorted := proc.ByDepth(all)
	slices.Reverse(sorted)
	for _, p := range sorted {
		if was, ok := before[p.PID]; own[p.PID] || ok && was.StartTicks == p.StartTicks {
			continue
		}
		_ = unix.Kill(p.PID, unix.SIGCONT)
	}
}

// isCommand reports whether a process is one that freezing stops.
func (f *freezer) isCommand(pid int) bool {
	if f.uid == 0 {
		return !proc.Marked(pid)
	}
	uids := strings.Fields(proc.Status(pid, "Uid"))
	return len(uids) == 4 && uids[0] != "0"
}
