//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/jobs"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// initSocket is the socket on which runners report to PID 1: see initLine.
const initSocket = stateDir + "/init"

// slots is how many commands a session runs at once, for all processes of the host together.
// Each slot is a file, which a runner locks while its command runs.
const slots = 8

func slotPath(i int) string { return filepath.Join(stateDir, "slot"+strconv.Itoa(i)) }

// runInit is PID 1. It reaps the survivors of commands, and ends the container when the lease
// is over. The exit code says why PID 1 ended. It is never 0, which an engine reports if it
// has missed the end.
//
//	event                    what PID 1 does
//	the end of a child       reaps all children that have ended
//	a message on the socket  starts the lease again, and drains the pipes in the message
//	a runner was killed      kills what it has left: see runners
//	SIGUSR1 of the host      holds all commands until a runner has started: see hold
//	SIGUSR2 of the host      makes room: kills all below it for at most sweepTime, and reaps it
//	SIGTERM                  exits with ExitStopped; the kernel kills all other processes
//	the end of the lease     exits with ExitLeaseOver; the same; unless the session is kept: see LeaseLeft
//
// The socket and each pipe have a goroutine of their own, so that a sweep delays no contact. A
// signal that arrives during a sweep is kept. The kernel merges SIGCHLDs, so each of them
// stands for any number of children.
//
// The order of the start matters. The slots and the other files are made before the socket is
// bound: a runner that can connect to the socket finds them all. SIGCHLD is caught before
// the socket exists, and so before any runner can leave a child.
func runInit(args []string) (code int, err error) {
	var a wire.InitArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return 0, err
	}
	if err := harden(); err != nil {
		return 0, err
	}
	if err := openTmp(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM)
	over := time.NewTimer(a.Lease)
	if err := furnishState(); err != nil {
		return 0, err
	}
	freezer, err := openFreezer()
	if err != nil {
		return 0, err
	}
	freezer.uid = a.User
	known := newRunners(freezer, func() { over.Reset(a.Lease) })
	if err := known.listen(); err != nil {
		return 0, err
	}
	leftovers := sweeper{freezer: freezer, gone: reapFor}
	for {
		select {
		case <-over.C:
			left := jobs.Dir(wire.JobsDir).LeaseLeft(a.Lease)
			if left == 0 {
				return wire.ExitLeaseOver, nil
			}
			over.Reset(left)
		case <-known.killed:
			known.sweep()
		case sig := <-signals:
			switch sig {
			case unix.SIGTERM:
				return wire.ExitStopped, nil
			case unix.SIGUSR1:
				known.hold()
			case unix.SIGUSR2:
				leftovers.run(time.Now().Add(sweepTime))
			}
			reapAll()
		}
	}
}

// reapAll waits for every child that has ended, and reports whether none is left.
// It never blocks.
func reapAll() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && pid > 0:
		default:
			return errors.Is(err, unix.ECHILD)
		}
	}
}

// reapFor reaps the children that end within that time, and reports whether none is left.
func reapFor(wait time.Duration) bool {
	for deadline := time.Now().Add(wait); ; time.Sleep(minSweepPause / 2) {
		if reapAll() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// openTmp gives /tmp the mode that programs expect. Engines give the tmpfs the mode of the
// image's directory, even if another mode is requested.
func openTmp() error {
	if err := unix.Chmod("/tmp", 0o1777); err != nil {
		return fmt.Errorf("chmod /tmp: %w", err)
	}
	return nil
}

// furnishState creates the state directory, with the slots and the files that runners lock.
func furnishState() error {
	if err := os.Mkdir(stateDir, 0o700); err != nil {
		return err
	}
	paths := []string{freezeLock, oomClaims}
	for i := range slots {
		paths = append(paths, slotPath(i))
	}
	for _, path := range paths {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// draining counts the pipes that PID 1 drains.
var draining atomic.Int32

// maxDraining bounds the memory for draining. Beyond it pipes are closed.
const maxDraining = 256

// drain reads a pipe to its end and drops what it reads, so that a background
// process whose command has ended neither blocks nor dies when it prints.
func drain(fd int) {
	f, err := pollable(fd, "leftover")
	if err != nil {
		unix.Close(fd)
		return
	}
	if draining.Add(1) > maxDraining {
		draining.Add(-1)
		f.Close()
		return
	}
	go func() { // ends with the last writer
		defer draining.Add(-1)
		defer f.Close()
		// A plain Reader: os.File's own WriteTo would allocate more.
		_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{f}, make([]byte, 1024))
	}()
}

// pollable makes an os.File whose reads and writes wait in the runtime's poller
// and block no thread.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
