//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

const (
	// pipeSize is the size of pipes that carry much. It is the kernel's default limit for
	// unprivileged users (pipe-max-size of pipe(7)).
	pipeSize = 1 << 20
	// drainTime is how long the pipes are read after the command's own end if children
	// still hold them. It is enough for output that was on its way.
	drainTime = 100 * time.Millisecond
)

// command is one command, from its request to its Exit or Failed.
type command struct {
	server *server
	req    wire.Request
	stdin  *stdinPipe
	out    [2]*outPipe // standard output, standard error; the second nil when merged
	job    *job        // nil for a command that ends with its host

	ooms       *oomWatch
	refusals   int64       // see server.refusals, at the start
	count      *proc.Count // from just before the start
	onTerminal bool        // its streams are this process's terminal

	// quit ends an answer, which has no process to kill; nil for a command.
	quit context.CancelFunc

	ended chan struct{} // closed when the leader has been reaped
	alone chan struct{} // closed when no child is left
	done  chan struct{} // closed when the runner is free for another command

	// Set by reap: the first two before ended is closed, the rest before alone.
	status  unix.WaitStatus
	usage   unix.Rusage
	orphans unix.Rusage

	mu     sync.Mutex
	pid    int           // guarded by mu until started; the leader's, 0 before
	early  *wire.Kill    // guarded by mu; a kill that came before pid was set
	killed chan struct{} // guarded by mu; made by the first kill, closed when that is done
	rung   wire.Rung     // written before killed is closed
}

func newCommand(s *server, req wire.Request) *command {
	return &command{
		server: s, req: req, stdin: newStdinPipe(s.out, req.Seq),
		ended: make(chan struct{}), alone: make(chan struct{}), done: make(chan struct{}),
	}
}

// run runs the command and sends its Exit or Failed. If children are left, the runner then
// exits and they pass to PID 1. The steps, in order:
//
//	slot, job's files, fork         a failure here is a Failed; nothing has run
//	reap, pumps                     goroutines, until the leader ends and its pipes are drained
//	ended, then waitForKill         a kill that has begun must be done
//	leave                           pipes of children that live on go to PID 1
//	release, rest, done, Exit       the slot is free before the host can send again
func (c *command) run() {
	release := func() {}
	if c.req.Path == "" { // a program of our own takes no slot
		var ok bool
		if release, ok = c.server.takeSlots(c.req.Exclusive); !ok {
			c.fail(wire.Failed{Failure: wire.FailBusy})
			return
		}
	}
	if c.job != nil {
		if failed, ok := c.job.prepare(); !ok {
			release()
			c.fail(failed)
			return
		}
	}
	if failed, ok := c.start(); !ok {
		if c.job != nil {
			c.job.abandon()
		}
		release()
		c.fail(failed)
		if c.server.spoiled {
			os.Exit(1)
		}
		return
	}
	if c.job != nil {
		c.job.begin(release)
		release = c.job.release
	}
	c.killIfAsked()
	go c.reap()
	var pumps sync.WaitGroup
	for i, p := range c.out {
		if p != nil {
			pumps.Go(func() { p.pump(c.server.out, &c.server.room[i], c.ended) })
		}
	}
	if c.req.Stdin {
		pumps.Go(c.stdin.pump)
	}
	<-c.ended
	c.stdin.end()
	c.stdin.close()
	c.waitForKill()
	for _, p := range c.out {
		p.finish()
	}
	pumps.Wait()
	c.report(release)
}

func (c *command) fail(failed wire.Failed) {
	failed.Seq = c.req.Seq
	if c.job != nil {
		c.job.never()
	}
	close(c.ended)
	close(c.alone)
	c.conclude(wire.TypeFailed, failed.Append(nil))
}

// conclude frees the runner for the next command before it sends the frame that ends this one,
// because a host that gets the frame may send the next Request at once.
func (c *command) conclude(kind wire.Type, payload []byte) {
	c.server.rest()
	close(c.done)
	c.server.out.send(kind, payload)
}

// report sends the Exit, and ends the runner if children are left.
func (c *command) report(release func()) {
	exit := c.exit()
	exit.Stdout = c.out[0].sent.Load()
	if c.out[1] != nil {
		exit.Stderr = c.out[1].sent.Load()
	}
	var left []*os.File
	for _, p := range c.out {
		if p == nil {
			continue
		}
		if exit.Left > 0 && !p.ended {
			left = append(left, p.r)
		} else {
			p.r.Close()
		}
	}
	// This comes before the Exit, because a host that gets it may close the stream, which
	// ends this process.
	c.server.init.leave(left)
	if c.job != nil && c.job.finished(exit) {
		c.server.init.farewell()
		os.Exit(0)
	}
	if exit.Left > 0 {
		c.server.init.farewell()
	}
	release()
	c.conclude(wire.TypeExit, exit.Append(nil))
	if exit.Left > 0 {
		os.Exit(0)
	}
}

// exit returns how the command ended and what it used, without the counts of its output.
func (c *command) exit() wire.Exit {
	exit := wire.Exit{
		Seq: c.req.Seq, Rung: c.rung, CPU: cpu(&c.usage), MaxRSS: uint64(c.usage.Maxrss) << 10, Processes: c.count.End(),
	}
	if exit.Left = c.left(); exit.Left == 0 {
		exit.CPU += cpu(&c.orphans)
		exit.MaxRSS = max(exit.MaxRSS, uint64(c.orphans.Maxrss)<<10)
	}
	if c.status.Signaled() {
		exit.Signal = int(c.status.Signal())
	} else {
		exit.Code = c.status.ExitStatus()
	}
	if c.rung == wire.RungNone && (exit.Signal == int(unix.SIGKILL) || exit.Code == killedByShell) {
		exit.OOM = c.ooms.claim()
	}
	exit.NoRoom = append(c.metLimits(exit), c.noRoom(exit)...)
	return exit
}

// left counts the children that live on. The kernel proves a 0: what a command starts stays
// below this process, and wait4 has said that this process has no child.
func (c *command) left() uint64 {
	select {
	case <-c.alone:
		return 0
	default:
	}
	if n := len(proc.Descendants(os.Getpid())); n > 0 {
		return uint64(n)
	}
	// The scan found none. Either reap has not finished yet, or a process has forked after
	// the scan passed it.
	select {
	case <-c.alone:
		return 0
	case <-time.After(drainTime):
		return uint64(max(1, len(proc.Descendants(os.Getpid()))))
	}
}

// killedByShell is the exit code of a shell whose last command was ended by
// SIGKILL: 128+9.
const killedByShell = 137

func cpu(u *unix.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reap waits for the command and for every orphan below it. When the leader has ended, reap
// first checks whether it was the last child. If so, alone is closed before ended, and the
// runner can take another command.
func (c *command) reap() {
	options := 0
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		// WALL also waits for children of clone(2) that end without SIGCHLD.
		pid, err := unix.Wait4(-1, &status, options|unix.WALL, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: no child is left
			close(c.alone)
			if options != 0 {
				close(c.ended)
			}
			return
		case pid == c.pid:
			c.status, c.usage = status, usage
			options = unix.WNOHANG
		case pid == 0: // a child lives on
			close(c.ended)
			options = 0
		default:
			c.orphans.Utime = addTime(c.orphans.Utime, usage.Utime)
			c.orphans.Stime = addTime(c.orphans.Stime, usage.Stime)
			c.orphans.Maxrss = max(c.orphans.Maxrss, usage.Maxrss)
		}
	}
}

func addTime(a, b unix.Timeval) unix.Timeval { return unix.NsecToTimeval(a.Nano() + b.Nano()) }

// leader returns the leader's pid, 0 before the start.
func (c *command) leader() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// kill starts to kill the command and returns at once. The group gets SIGTERM and, after
// grace, SIGKILL, as does every descendant until none is left. Later calls are no-ops.
func (c *command) kill(grace time.Duration) { c.end(wire.Kill{Grace: grace}) }

// end is like kill, but sends SIGINT first if kill.Interrupt is set.
func (c *command) end(kill wire.Kill) {
	if c.quit != nil {
		c.quit()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed != nil {
		return
	}
	select {
	case <-c.ended:
		return // it was faster; its children live on, as after any end
	default:
	}
	if c.pid == 0 {
		c.early = &kill // the start looks at it
		return
	}
	c.beginKill(kill)
}

// killIfAsked starts the kill that was asked for while the command was starting.
func (c *command) killIfAsked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.early != nil && c.killed == nil {
		c.beginKill(*c.early)
	}
}

// beginKill is called with mu locked.
func (c *command) beginKill(kill wire.Kill) {
	c.killed = make(chan struct{})
	go func() {
		defer close(c.killed)
		c.rung = c.climb(kill)
	}()
}

func (c *command) climb(kill wire.Kill) wire.Rung {
	ask := func(signal unix.Signal) bool {
		_ = unix.Kill(-c.pid, signal)
		_ = unix.Kill(-c.pid, unix.SIGCONT) // a stopped process cannot take the signal
		return c.isAlone(kill.Grace)
	}
	if kill.Interrupt && ask(unix.SIGINT) {
		return wire.RungInt
	}
	if kill.Grace > 0 && ask(unix.SIGTERM) {
		return wire.RungTerm
	}
	_ = unix.Kill(-c.pid, unix.SIGKILL)
	c.server.freezer.uid = c.req.UID
	s := sweeper{freezer: c.server.freezer, gone: c.isAlone}
	// There is no deadline and no Exit until nothing is left. A host that waits resets the
	// container as its next rung. For a job, or without a host, this is the last rung.
	s.run(time.Time{})
	return wire.RungKill
}

// isAlone waits up to that long until no child is left, and reports whether none is left.
func (c *command) isAlone(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.alone:
		return true
	case <-timer.C:
		return false
	}
}

// waitForKill waits until a kill that has begun is done.
func (c *command) waitForKill() {
	c.mu.Lock()
	killed := c.killed
	c.mu.Unlock()
	if killed != nil {
		<-killed
	}
}
