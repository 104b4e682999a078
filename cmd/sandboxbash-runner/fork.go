//go:build linux

package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// forker forks commands on a thread that has given up the proc.Mark. The children of a
// thread have its capabilities, and an exec under no-new-privileges adds none.
type forker struct{ asked chan func() }

// newForker starts the thread, which lives as long as this process.
func newForker() (*forker, error) {
	f := &forker{asked: make(chan func())}
	dropped := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the capability is gone for good
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

// do runs fork on the thread.
func (f *forker) do(fork func() (int, error)) (pid int, err error) {
	done := make(chan struct{})
	f.asked <- func() {
		defer close(done)
		pid, err = fork()
	}
	<-done
	return pid, err
}

// dropMark takes the mark from the calling thread and from what it starts.
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

// trusted reports whether the command is a program of ours that keeps the mark. The
// host requests programs by path for itself alone: its users' commands are scripts.
func (c *command) trusted() bool {
	return c.req.Path == wire.RunnerPath && c.req.UID == 0 && len(c.req.Args) > 0 && wire.Verb(c.req.Args[0]).Trusted()
}

// hide makes this process one that no other reads the memory, the environment or
// the descriptors of without CAP_SYS_PTRACE, which no process of a session has.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}
