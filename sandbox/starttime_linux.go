package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// startTime distinguishes the process that has a pid now from all that had it before and will
// have it later: the boot, and when after that it was started. Nothing of it
// comes from the clock that people set. It is "" of a process that has ended, and
// not ok where it is not known.
func startTime(pid int) (text string, ok bool) {
	// Asked first, because /proc may hide other users' processes.
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return "", true
	}
	return birthIn("/proc", pid)
}

func birthIn(proc string, pid int) (text string, ok bool) {
	boot, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", false
	}
	stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", false
	}
	// The name stands in parentheses and may hold anything. After it are the state
	// and, 19 fields later, the start in ticks since the boot: proc(5).
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const state, start = 0, 19
	if len(f) <= start {
		return "", false
	}
	if f[state] == "Z" || f[state] == "X" { // it has ended, and its parent has not waited for it
		return "", true
	}
	id := strings.ReplaceAll(strings.TrimSpace(string(boot)), "-", "")
	return id[:min(len(id), 16)] + "." + f[start], true
}
