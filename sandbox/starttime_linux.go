package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// startTime returns a text that distinguishes the process with a pid from all that had the
// pid before or will have it later: the boot, and the start time counted from it. It does
// not depend on the wall clock. The text is "" if the process has ended. ok is false if
// the start time cannot be read.
func startTime(pid int) (text string, ok bool) {
	// Signal 0 comes first, because /proc may hide the processes of other users.
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
