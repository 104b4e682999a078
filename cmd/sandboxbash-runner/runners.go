//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
)

// runners is what PID 1 knows of the session's runners. A runner that ends by itself says so
// first, and what its command has left lives on below PID 1. A runner that is killed does not:
// PID 1 then kills what the runner has left, which is what is below PID 1 except
//
//	older           what started before the runner did
//	in a session    what is in a process session that some runner has left in an orderly way:
//	                a process can leave its session, and enter none
//	known           what such a runner has left, by its pid and start time
//	descendants     what descends from these
//
// A bystander is not recognised if it started after the killed runner, has since made a session
// of its own, and has lost its parent.
//
// The kernel closes the connection of a process before it gives its orphans away. So the
// runner must be a zombie before the orphans are looked for.
type runners struct {
	freezer *freezer
	contact func()
	killed  chan struct{} // a token when there is something to sweep
	arrived chan struct{} // a token when a runner has started

	mu       sync.Mutex
	sessions map[int]bool           // guarded by mu; those that runners have left in an orderly way
	left     map[int]uint64         // guarded by mu; the processes in them: start by pid
	since    uint64                 // guarded by mu; the start of the oldest runner whose orphans may live; 0: none
	frozen   []map[int]proc.Process // guarded by mu; for each runner killed in a freeze: what was stopped before that
}

func newRunners(f *freezer, contact func()) *runners {
	return &runners{
		freezer: f, contact: contact, killed: make(chan struct{}, 1), arrived: make(chan struct{}, 1),
		sessions: map[int]bool{}, left: map[int]uint64{},
	}
}

// listen creates the socket, and serves it as long as PID 1 lives.
func (r *runners) listen() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: initSocket}); err != nil {
		return fmt.Errorf("bind %s: %w", initSocket, err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return fmt.Errorf("listen at %s: %w", initSocket, err)
	}
	socket := os.NewFile(uintptr(fd), initSocket)
	conn, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	go func() {
		defer socket.Close()
		for {
			if err := conn.Read(r.accept); err != nil {
				return
			}
		}
	}()
	return nil
}

// accept takes one connection. It returns false if there is none yet.
func (r *runners) accept(socket uintptr) bool {
	fd, _, err := unix.Accept4(int(socket), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		time.Sleep(dialPause) // without a descriptor, say
		return true
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || !r.isRunner(int(peer.Pid)) {
		unix.Close(fd)
		return true
	}
	process, there := proc.Find(int(peer.Pid))
	if !there { // it has been killed already, and had no time to start anything
		unix.Close(fd)
		return true
	}
	token(r.arrived)
	one := &runnerLine{of: r, conn: os.NewFile(uintptr(fd), "runner"), process: process}
	go one.serve() // until the runner has ended
	return true
}

// isRunner reports whether a process is a runner. In profile dev a command has the right to
// connect too, but not the mark. Where PID 1 has no mark, nothing distinguishes them.
func (r *runners) isRunner(pid int) bool {
	return r.freezer.uid == 0 && !proc.Marked(os.Getpid()) || !r.freezer.isCommand(pid)
}

// runnerLine is PID 1's end of an initLine.
type runnerLine struct {
	of      *runners
	conn    *os.File
	process proc.Process

	farewell bool
	frozen   map[int]proc.Process // what was stopped before it stopped all; nil if it has not
}

// serve reads messages until the connection ends.
func (l *runnerLine) serve() {
	defer l.conn.Close()
	conn, err := l.conn.SyscallConn()
	if err != nil {
		return
	}
	for over := false; !over; {
		err := conn.Read(func(fd uintptr) (ready bool) {
			over, ready = l.receive(int(fd))
			return ready
		})
		if err != nil {
			break
		}
	}
	if l.farewell {
		return
	}
	l.awaitEnd()
	l.of.orphaned(l)
}

// awaitEnd waits until the runner has passed its children to PID 1.
func (l *runnerLine) awaitEnd() {
	for pause := time.Millisecond; ; pause = min(2*pause, maxSweepPause) {
		now, there := proc.Find(l.process.PID)
		if !there || now.StartTicks != l.process.StartTicks || now.Dead() {
			return
		}
		time.Sleep(pause)
	}
}

// receive reads one message. ready is false if there is no message yet, and over is true at
// the end of the connection.
func (l *runnerLine) receive(fd int) (over, ready bool) {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(2*4))
	n, rights, _, _, err := unix.Recvmsg(fd, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return false, false
	}
	if err != nil || n == 0 {
		return true, true
	}
	l.of.contact()
	drainAll(oob[:rights])
	switch b[0] {
	case lineFarewell:
		l.farewell = true
		l.of.noteLeft(l.process.PID)
		_, _ = unix.Write(fd, b[:])
	case lineFreeze:
		l.frozen = stopped(proc.Processes())
		_, _ = unix.Write(fd, b[:])
	case lineThaw:
		l.frozen = nil
	}
	return false, true
}

// drainAll drains the pipes that came with a message.
func drainAll(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
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
}

// noteLeft notes what a runner leaves, while it is still below the runner. It forgets what has
// ended since.
func (r *runners) noteLeft(runner int) {
	all := proc.Processes()
	r.mu.Lock()
	defer r.mu.Unlock()
	sessions, starts := map[int]bool{}, map[int]uint64{}
	for _, p := range all {
		sessions[p.Session], starts[p.PID] = true, p.StartTicks
	}
	maps.DeleteFunc(r.sessions, func(id int, _ bool) bool { return !sessions[id] })
	maps.DeleteFunc(r.left, func(pid int, start uint64) bool { return starts[pid] != start })
	for _, p := range proc.Below(all, runner) {
		r.sessions[p.Session], r.left[p.PID] = true, p.StartTicks
	}
}

// orphaned has PID 1 sweep what a killed runner has left.
func (r *runners) orphaned(l *runnerLine) {
	r.noteKilled(l.process.StartTicks, l.frozen)
	r.again()
}

func (r *runners) noteKilled(start uint64, frozen map[int]proc.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since == 0 || start < r.since {
		r.since = max(1, start)
	}
	if frozen != nil {
		r.frozen = append(r.frozen, frozen)
	}
}

// again has the main loop call sweep.
func (r *runners) again() { token(r.killed) }

// token gives a channel a token, if it has none.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// holdTime bounds how long commands are held for a runner that is to start. An engine needs a
// small part of that, unless its machine is very busy.
const holdTime = 2 * time.Second

// hold stops all commands until a runner has started, or holdTime is over, so that they do not
// take the room that the host has made for the runner. A runner has all of its threads when it
// connects. hold does nothing if the session is being frozen.
func (r *runners) hold() {
	if r.freezer.uid == 0 && !proc.Marked(os.Getpid()) {
		return
	}
	select {
	case <-r.arrived: // before this
	default:
	}
	r.freezer.alone(func() {
		all := proc.Processes()
		before := stopped(all)
		r.freezer.stopParents(all, spareAll)
		r.freezer.stopAll()
		defer goOn(before, spareAll)
		for deadline := time.After(holdTime); ; {
			select {
			case <-r.arrived:
				return
			case <-deadline:
				return
			case <-time.After(maxSweepPause / 10):
				reapAll() // a zombie takes room, too
			}
		}
	})
}

// sweep continues the bystanders that killed runners have stopped, and kills what these have
// left. If it cannot prove within sweepTime that none of that lives, it is called again a
// little later, so that PID 1 can do its other work.
func (r *runners) sweep() {
	if !r.thaw() {
		time.AfterFunc(maxSweepPause, r.again)
		return
	}
	r.mu.Lock()
	since := r.since
	r.since = 0
	r.mu.Unlock()
	if since == 0 || reapAll() {
		return
	}
	orphans := sweeper{freezer: r.freezer, gone: reapFor, of: func(all []proc.Process) []proc.Process { return r.orphans(all, since) }}
	if orphans.run(time.Now().Add(sweepTime)) {
		return
	}
	r.noteKilled(since, nil)
	time.AfterFunc(maxSweepPause, r.again)
}

// thaw continues the bystanders that killed runners have stopped. It returns false if another
// runner is freezing the session, which takes them for stopped by their user.
func (r *runners) thaw() bool {
	r.mu.Lock()
	all := r.frozen
	r.frozen = nil
	r.mu.Unlock()
	if len(all) == 0 {
		return true
	}
	done := r.freezer.alone(func() {
		for _, before := range all {
			goOn(before, spareAll)
		}
	})
	if !done {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.frozen = append(all, r.frozen...)
	}
	return done
}

// orphans chooses what killed runners have left, the oldest of which started then.
func (r *runners) orphans(all []proc.Process, since uint64) []proc.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []proc.Process
	var spared []int
	below := proc.Below(all, os.Getpid())
	for _, p := range below {
		if start, known := r.left[p.PID]; p.StartTicks < since || r.sessions[p.Session] || known && start == p.StartTicks {
			spared = append(spared, p.PID)
		}
	}
	keep := map[int]bool{}
	for _, pid := range spared {
		keep[pid] = true
	}
	for _, p := range proc.Below(all, spared...) {
		keep[p.PID] = true
	}
	for _, p := range below {
		if !keep[p.PID] {
			found = append(found, p)
		}
	}
	return found
}
