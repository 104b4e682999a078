//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// initLine is a runner's connection to PID 1. It is safe for concurrent use. Each message is
// one byte, and PID 1 takes each for a contact with the host:
//
//	lineContact   with the pipes, if any, of a command that has ended and left children
//	lineFarewell  the runner ends, and what is below it may live on; PID 1 answers
//	lineFreeze    the runner is about to stop all commands; PID 1 answers
//	lineThaw      the runner has continued them
//
// A connection that ends without a farewell is that of a runner that was killed.
type initLine struct {
	fd   int
	last atomic.Int64 // time of the last contact, in nanoseconds after begun

	asking sync.Mutex // one question at a time
}

const (
	lineContact  = 'c'
	lineFarewell = 'f'
	lineFreeze   = 'z'
	lineThaw     = 't'
)

// begun is when this process started.
var begun = time.Now()

// contactPause is the least time between two contacts. Each of them wakes PID 1, which makes
// the command slower. Leases are a second or longer.
const contactPause = 250 * time.Millisecond

func dialInit() (*initLine, error) {
	// The first runner may be here before PID 1 is ready.
	for deadline := time.Now().Add(dialTime); ; time.Sleep(dialPause) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, fmt.Errorf("socket: %w", err)
		}
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: initSocket}); err == nil {
			return &initLine{fd: fd}, nil
		}
		unix.Close(fd)
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("connect to PID 1: %w", err)
		}
	}
}

// How long a runner waits for PID 1, which on a busy machine may be late.
const (
	dialTime     = 10 * time.Second
	dialPause    = 2 * time.Millisecond
	leaveTime    = 200 * time.Millisecond
	farewellTime = 2 * time.Second
	freezeTime   = 200 * time.Millisecond
)

// contact reports to PID 1 that the host is there. If the queue is full, the messages in it
// suffice.
func (l *initLine) contact() {
	if now, last := int64(time.Since(begun)), l.last.Load(); last == 0 || now-last >= int64(contactPause) {
		l.last.Store(now)
		_, _ = unix.Write(l.fd, []byte{lineContact})
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
		err := unix.Sendmsg(l.fd, []byte{lineContact}, unix.UnixRights(fds...), nil, 0)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
			return
		}
	}
}

// farewell says that this process ends by itself, so that PID 1 does not kill what it leaves.
// It must be called before every orderly end of a runner.
func (l *initLine) farewell() { l.ask(lineFarewell, farewellTime) }

// beginFreeze has PID 1 continue what is stopped if this process is killed before endFreeze.
func (l *initLine) beginFreeze() { l.ask(lineFreeze, freezeTime) }

func (l *initLine) endFreeze() { _, _ = unix.Write(l.fd, []byte{lineThaw}) }

// ask sends a message and waits up to that long for PID 1 to have taken note of it.
func (l *initLine) ask(message byte, wait time.Duration) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if _, err := unix.Write(l.fd, []byte{message}); err != nil {
		return
	}
	for deadline := time.Now().Add(wait); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return
		}
		poll := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(left.Milliseconds())+1); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		// An answer that came too late for its question must not be taken for this one's.
		var answer [1]byte
		if n, err := unix.Read(l.fd, answer[:]); n <= 0 && !errors.Is(err, unix.EAGAIN) || answer[0] == message {
			return
		}
	}
}
