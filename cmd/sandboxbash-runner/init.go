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

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// initSocket is the socket on which runners report contact with the host to PID 1, and hand
// over the pipes of commands that have ended and left children.
const initSocket = stateDir + "/init"

// slots is how many commands a session runs at once, for all processes of the host together.
// Each slot is a file, which a runner locks while its command runs.
const slots = 8

func slotPath(i int) string { return filepath.Join(stateDir, "slot"+strconv.Itoa(i)) }

// runInit is PID 1. It reaps the survivors of commands and ends the container when the lease
// is over. On SIGUSR2 it kills everything below it. The host sends that to make room when no
// process can be started. The exit code says why PID 1 ended. It is never 0, which an engine
// reports if it has missed the end.
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
	signal.Notify(signals, unix.SIGCHLD, unix.SIGUSR2, unix.SIGTERM)
	over := time.NewTimer(a.Lease)
	socket, err := listen(func() { over.Reset(a.Lease) })
	if err != nil {
		return 0, err
	}
	defer socket.Close()

	freezer, err := openFreezer()
	if err != nil {
		return 0, err
	}
	freezer.uid = a.User
	leftovers := sweeper{freezer: freezer, gone: reapFor}
	for {
		select {
		case <-over.C:
			return wire.ExitLeaseOver, nil
		case sig := <-signals:
			switch sig {
			case unix.SIGTERM:
				return wire.ExitStopped, nil
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

// listen creates the state directory, the slots and the socket, and serves the socket.
func listen(contact func()) (*os.File, error) {
	if err := os.Mkdir(stateDir, 0o700); err != nil {
		return nil, err
	}
	for i := range slots {
		if err := os.WriteFile(slotPath(i), nil, 0o600); err != nil {
			return nil, err
		}
	}
	for _, path := range []string{freezeLock, oomClaims} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return nil, err
		}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: initSocket}); err != nil {
		return nil, fmt.Errorf("bind %s: %w", initSocket, err)
	}
	socket := os.NewFile(uintptr(fd), initSocket)
	conn, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	go func() { // lives as long as PID 1
		for {
			if err := conn.Read(func(fd uintptr) bool { return receive(int(fd), contact) }); err != nil {
				return
			}
		}
	}()
	return socket, nil
}

// receive reads one message. Each message is a contact, and its descriptors are pipes to
// drain. receive returns false if there is no message yet.
func receive(fd int, contact func()) bool {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(2*4))
	_, n, _, _, err := unix.Recvmsg(fd, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return false
	}
	if err != nil {
		return true
	}
	contact()
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return true
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			drain(fd)
		}
	}
	return true
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

// initLine is a runner's connection to PID 1. It is safe for concurrent use.
type initLine struct {
	fd   int
	last atomic.Int64 // time of the last contact, in nanoseconds after begun
}

// begun is when this process started.
var begun = time.Now()

// contactPause is the least time between two contacts. Each of them wakes PID 1, which makes
// the command slower. Leases are a second or longer.
const contactPause = 250 * time.Millisecond

func dialInit() (*initLine, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// The first runner may be here before PID 1 is ready.
	for deadline := time.Now().Add(dialTime); ; time.Sleep(dialPause) {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: initSocket})
		if err == nil {
			return &initLine{fd: fd}, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("connect to PID 1: %w", err)
		}
	}
}

// How long a runner waits for PID 1, which on a busy machine may be late.
const (
	dialTime  = 10 * time.Second
	dialPause = 2 * time.Millisecond
	leaveTime = 200 * time.Millisecond
)

// contact reports to PID 1 that the host is there. If the queue is full, the messages in it
// suffice.
func (l *initLine) contact() {
	if now, last := int64(time.Since(begun)), l.last.Load(); last == 0 || now-last >= int64(contactPause) {
		l.last.Store(now)
		_, _ = unix.Write(l.fd, []byte{0})
	}
}

// leave hands pipes to PID 1, which drains them. It gives up after leaveTime: the queue of
// PID 1 is short, and PID 1 may be slow if much happens at once.
func (l *initLine) leave(pipes []*os.File) {
	var fds []int
	for _, p := range pipes {
		fds = append(fds, int(p.Fd())) // Fd makes it blocking; PID 1 undoes that
	}
	if len(fds) == 0 {
		return
	}
	for deadline := time.Now().Add(leaveTime); ; time.Sleep(dialPause) {
		err := unix.Sendmsg(l.fd, []byte{0}, unix.UnixRights(fds...), nil, 0)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
			return
		}
	}
}
