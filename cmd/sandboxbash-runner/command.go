//go:build linux

package main

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

const (
	// pipeSize is what pipes with much to carry are grown to: the kernel's
	// default limit for unprivileged users (pipe-max-size of pipe(7)).
	pipeSize = 1 << 20
	// drainTime is how long a command's pipes are read on after its own end,
	// when children still hold them: enough for output that was on its way.
	drainTime = 100 * time.Millisecond
)

// command is one command, from its request to its Exit or Failed.
type command struct {
	server *server
	req    wire.Request
	stdin  *stdinPipe
	out    [2]*outPipe // standard output, standard error; the second nil when merged
	job    *job        // nil for a command that ends with its host

	oomKills   int64   // before the start
	births     *births // from just before the start
	onTerminal bool    // its streams are this process's terminal

	ended chan struct{} // closed when the leader has been reaped
	alone chan struct{} // closed when no child is left
	done  chan struct{} // closed when the host has been told the end

	// Set by reap: the first two before ended is closed, the rest before alone.
	status  unix.WaitStatus
	usage   unix.Rusage
	orphans unix.Rusage

	mu     sync.Mutex
	pid    int            // guarded by mu until started; the leader's, 0 before
	early  *time.Duration // guarded by mu; the grace of a kill that came before pid was there
	killed chan struct{}  // guarded by mu; made by the first kill, closed when it has done its work
	rung   wire.Rung      // written before killed is closed
}

func newCommand(s *server, req wire.Request) *command {
	return &command{
		server: s, req: req, stdin: newStdinPipe(s.out, req.Seq),
		ended: make(chan struct{}), alone: make(chan struct{}), done: make(chan struct{}),
	}
}

// run runs the command and tells the host how it ended. If children are left
// the runner retires: they pass to PID 1.
func (c *command) run() {
	release := func() {}
	if c.req.Path == "" { // a program of our own takes no command's place
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
	close(c.done)
	c.server.out.send(wire.TypeFailed, failed.Append(nil))
}

// report tells the end, and retires the runner if children are left.
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
	// Before anybody is told: a host that hears of the end may close the stream,
	// and with it ends this process.
	c.server.init.leave(left)
	if c.job != nil && c.job.finished(exit) {
		os.Exit(0)
	}
	release()
	close(c.done)
	c.server.out.send(wire.TypeExit, exit.Append(nil))
	if exit.Left > 0 {
		os.Exit(0)
	}
}

// exit is how the command ended and what it used, but for its output.
func (c *command) exit() wire.Exit {
	exit := wire.Exit{
		Seq: c.req.Seq, Rung: c.rung, CPU: cpu(&c.usage), MaxRSS: uint64(c.usage.Maxrss) << 10, Processes: c.births.end(),
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
		exit.OOM = c.server.oom.read() > c.oomKills
	}
	return exit
}

// left counts the children that live on. 0 is the kernel's word: what a command
// starts stays below this process, and a wait has said that it has no child.
func (c *command) left() uint64 {
	select {
	case <-c.alone:
		return 0
	default:
	}
	if n := len(descendants(os.Getpid())); n > 0 {
		return uint64(n)
	}
	// Either reap has not got that far yet, or one has forked behind the scan.
	select {
	case <-c.alone:
		return 0
	case <-time.After(drainTime):
		return uint64(max(1, len(descendants(os.Getpid()))))
	}
}

// killedByShell is the exit code of a shell whose last command was ended by
// SIGKILL: 128+9.
const killedByShell = 137

func cpu(u *unix.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reap waits for the command and for everything below it that loses its parent.
// When the leader has ended it first looks whether that was the last: then alone
// is closed before ended, and the runner is known to be fit for another command.
func (c *command) reap() {
	options := 0
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		// WALL: a child of clone(2) that ends without SIGCHLD is one too.
		pid, err := unix.Wait4(-1, &status, options|unix.WALL, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: nobody is left
			close(c.alone)
			if options != 0 {
				close(c.ended)
			}
			return
		case pid == c.pid:
			c.status, c.usage = status, usage
			options = unix.WNOHANG
		case pid == 0: // somebody lives on
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

// leader is the leader's pid, 0 before the start.
func (c *command) leader() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// kill ends the command: SIGTERM to its group, and after grace SIGKILL to the
// group and to every descendant until none is left. Only the first call counts.
// It returns at once.
func (c *command) kill(grace time.Duration) {
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
		c.early = &grace // the start looks at it
		return
	}
	c.beginKill(grace)
}

// killIfAsked does what a kill has asked for while the command was starting.
func (c *command) killIfAsked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.early != nil && c.killed == nil {
		c.beginKill(*c.early)
	}
}

// beginKill needs mu.
func (c *command) beginKill(grace time.Duration) {
	c.killed = make(chan struct{})
	go func() {
		defer close(c.killed)
		c.rung = c.climb(grace)
	}()
}

func (c *command) climb(grace time.Duration) wire.Rung {
	if grace > 0 {
		_ = unix.Kill(-c.pid, unix.SIGTERM)
		_ = unix.Kill(-c.pid, unix.SIGCONT) // a stopped process cannot take the TERM
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.alone:
			return wire.RungTerm
		case <-timer.C:
		}
	}
	_ = unix.Kill(-c.pid, unix.SIGKILL)
	gone := sweep(os.Getpid(), time.Now().Add(sweepTime), func() {})
	// A leader that survives SIGKILL has no end to report: this waits, and the
	// host's next rung is the container.
	<-c.ended
	if !gone {
		return wire.RungStuck
	}
	return wire.RungKill
}

// waitForKill waits until a kill that has begun has done its work.
func (c *command) waitForKill() {
	c.mu.Lock()
	killed := c.killed
	c.mu.Unlock()
	if killed != nil {
		<-killed
	}
}
