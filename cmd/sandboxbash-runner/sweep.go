//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sweepTime bounds the killing of descendants. A process that survives
	// SIGKILL for so long is stuck in the kernel.
	sweepTime = 2 * time.Second
	// sweepPause is between two scans of /proc while something lives: long
	// enough for the killed to die, short against sweepTime.
	sweepPause = 2 * time.Millisecond
)

// sweep sends SIGKILL to every descendant of root until two scans in a row find
// none alive, and reports whether that was reached before the deadline. One
// empty scan is not enough: a process may fork behind a scan that is under way.
// reap is called after each scan.
func sweep(root int, deadline time.Time, reap func()) bool {
	for empty := 0; empty < 2; {
		alive := descendants(root)
		for _, pid := range alive {
			_ = unix.Kill(pid, unix.SIGKILL) // ESRCH: it is gone, as wanted
		}
		reap()
		if len(alive) == 0 {
			empty++
			continue
		}
		empty = 0
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(sweepPause)
	}
	return true
}

// process is what /proc/PID/stat tells of one.
type process struct {
	pid, parent, group int
	state              byte
	cpuTicks           uint64 // user and system time
	startTicks         uint64 // after boot
	pages              uint64 // resident
	name               string
}

// processes lists what runs in the container, in /proc's order.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		if p, ok := parseStat(pid, stat); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads proc_pid_stat(5). The name may hold any byte, brackets and
// spaces included, so the fields are counted from the last bracket.
func parseStat(pid int, stat []byte) (process, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	f := bytes.Fields(stat[end+1:])
	if len(f) < 22 {
		return process{}, false
	}
	number := func(i int) uint64 { // i counts from the state, field 3
		n, _ := strconv.ParseUint(string(f[i]), 10, 64)
		return n
	}
	return process{
		pid: pid, parent: int(number(1)), group: int(number(2)), state: f[0][0],
		cpuTicks: number(11) + number(12), startTicks: number(19), pages: number(21),
		name: string(stat[open+1 : end]),
	}, true
}

// dead reports whether the process only waits to be reaped.
func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// descendants lists the living processes below root.
func descendants(root int) []int {
	all := processes()
	below := map[int]bool{root: true}
	// /proc is sorted by pid, and a child mostly has a larger one than its
	// parent, but numbers wrap: repeat until nothing is added.
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if below[p.parent] && !below[p.pid] {
				below[p.pid], grown = true, true
			}
		}
	}
	var alive []int
	for _, p := range all {
		if p.pid != root && below[p.pid] && !p.dead() {
			alive = append(alive, p.pid)
		}
	}
	return alive
}
