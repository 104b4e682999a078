//go:build linux

package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// forker forks commands on a thread without the proc.Mark. Children have the capabilities of
// the thread that forks them, and an exec under no-new-privileges adds none.
type forker struct{ asked chan func() }

// newForker starts the thread, which lives as long as this process.
func newForker() (*forker, error) {
	f := &forker{asked: make(chan func())}
	dropped := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread never gets the capability back
		err := dropMark()
		dropped <- err
		if err != nil {
			return
		}
		for fork := range f.asked {
			fork()
		}
	}()
	return f, <-dropped
}

// do calls fork on the thread.
func (f *forker) do(fork func() (int, error)) (pid int, err error) {
	done := make(chan struct{})
	f.asked <- func() {
		defer close(done)
		pid, err = fork()
	}
	<-done
	return pid, err
}

// dropMark removes the mark from the calling thread and the processes that it starts.
func dropMark() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	set := &sets[proc.Mark/32]
	const bit = 1 << (proc.Mark % 32)
	set.Effective &^= bit
	set.Permitted &^= bit
	set.Inheritable &^= bit
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// trusted reports whether the command is a program of ours, which keeps the mark. Only such
// programs are requested by path: the commands of users are scripts.
func (c *command) trusted() bool {
	return c.req.Path == wire.RunnerPath && c.req.UID == 0 && len(c.req.Args) > 0 && wire.Verb(c.req.Args[0]).Trusted()
}

// hide makes this process not dumpable. Other processes can then read its memory, its
// environment and its descriptors only with CAP_SYS_PTRACE, which none in a session has.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}
