//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"
)

// pidCounter reads the last process id that the kernel has given out in this
// container: the last field of /proc/loadavg, as proc(5) has it. Ids are given out
// in order, to processes and to threads, until they begin again.
type pidCounter struct {
	f   *os.File // nil where there is none
	max uint64   // ids in one round
}

// reservedPids is where the kernel begins again: RESERVED_PIDS of its pid.c.
const reservedPids = 300

func openPidCounter() *pidCounter {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return &pidCounter{}
	}
	text, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n <= 2*reservedPids {
		f.Close()
		return &pidCounter{}
	}
	return &pidCounter{f: f, max: n}
}

// read returns the last id, or 0 if this kernel does not tell.
func (p *pidCounter) read() uint64 {
	if p.f == nil {
		return 0
	}
	var b [128]byte
	n, _ := p.f.ReadAt(b[:], 0)
	return parseLastPid(b[:n])
}

func parseLastPid(b []byte) uint64 {
	b = bytes.TrimSpace(b)
	n, err := strconv.ParseUint(string(b[bytes.LastIndexByte(b, ' ')+1:]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// fastest is how long the giving out of one id takes at least: a fork takes five
// times as long on the machines of today. It tells how often to look, so that no
// round of ids goes by unseen.
const fastest = 5 * time.Microsecond

// every is the time between two looks.
func (p *pidCounter) every() time.Duration {
	return min(time.Duration(p.max-reservedPids)*fastest/2, 10*time.Second)
}

// since is how many ids have been given out from one look to the next.
func (p *pidCounter) since(last, now uint64) uint64 {
	if now >= last {
		return now - last
	}
	return p.max - min(last, p.max) + now - min(now, reservedPids)
}

// births counts the processes and threads that begin in the container from its
// making on: those of one command, and those of whatever else runs meanwhile.
type births struct {
	counter *pidCounter
	timer   *time.Timer

	mu    sync.Mutex
	last  uint64 // guarded by mu; 0: nobody knows
	total uint64 // guarded by mu
}

// count begins to count. The count's end must be asked for.
func (p *pidCounter) count() *births {
	b := &births{counter: p, last: p.read()}
	if b.last > 0 {
		b.timer = time.AfterFunc(p.every(), b.look)
	}
	return b
}

func (b *births) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add()
	if b.timer != nil {
		b.timer.Reset(b.counter.every())
	}
}

// add needs mu.
func (b *births) add() {
	now := b.counter.read()
	if b.last == 0 || now == 0 {
		b.last, b.total = 0, 0
		return
	}
	b.total += b.counter.since(b.last, now)
	b.last = now
}

// end stops counting and returns the count; 0 if this kernel does not tell.
func (b *births) end() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.add()
	return b.total
}
