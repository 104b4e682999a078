//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/network"
)

const (
	// carrierMemory is the size of the heap in bytes from which on the runtime collects
	// garbage more often.
	carrierMemory = 64 << 20
	// carrierThreads is how many threads the runtime starts at the beginning. Its calls
	// do not block.
	carrierThreads = 6
	// inputSize is the size of the pipe that brings data in. The engine writes pieces of
	// 32 KiB, of which the usual pipe holds two.
	inputSize = 256 << 10
)

// carry carries connections between the host at the other end of stdio and the session. It
// runs as uid 0 and needs no capability. Collecting garbage as rarely as usual, by one
// thread at a time, halves the processor time for each byte.
func carry(stdin, stdout *os.File) error {
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(carrierMemory)
	if err := hide(); err != nil {
		return err
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	startThreads(carrierThreads)
	init, err := dialInit()
	if err != nil {
		return err
	}
	init.contact()
	in, err := pollable(int(stdin.Fd()), "stdin")
	if err != nil {
		return err
	}
	out, err := pollable(int(stdout.Fd()), "stdout")
	if err != nil {
		return err
	}
	_, _ = unix.FcntlInt(stdin.Fd(), unix.F_SETPIPE_SZ, inputSize)
	_, _ = unix.FcntlInt(stdout.Fd(), unix.F_SETPIPE_SZ, pipeSize) // as in attach
	err = network.Carry(pipes{in, out}, init.contact)
	runtime.KeepAlive(stdin) // else its finalizer closes the descriptor
	runtime.KeepAlive(stdout)
	return err
}

// pipes are the streams to the host.
type pipes struct{ in, out *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }
