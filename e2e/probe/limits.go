//go:build linux

package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// limits are what bounds a command's use of the machine, and ways to lift that.
func limits() []attempt {
	var out []attempt
	for _, l := range []struct {
		name     string
		resource int
	}{
		{"core", unix.RLIMIT_CORE},
		{"nofile", unix.RLIMIT_NOFILE},
		{"memlock", unix.RLIMIT_MEMLOCK},
		{"stack", unix.RLIMIT_STACK},
	} {
		out = append(out,
			attempt{"R12", "rlimit-" + l.name, func() string { return rlimit(l.resource) }},
			attempt{"R12", "raise-rlimit-" + l.name, func() string { return raiseLimit(l.resource) }})
	}
	return append(out,
		attempt{"R1", "pids-limit", func() string { return firstOf("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max") }},
		attempt{"R3", "memory-limit", func() string {
			return firstOf("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max")
		}},
		attempt{"R3", "oom_score_adj", func() string { return firstOf("/proc/self/oom_score_adj") }},
		attempt{"R3", "lower-oom_score_adj", lowerScore},
		attempt{"R11", "raise-priority", func() string {
			return onThread(func() string { return outcome(unix.Setpriority(unix.PRIO_PROCESS, 0, -5)) })
		}},
		attempt{"R11", "realtime", func() string {
			return onThread(func() string { return outcome(realtime()) })
		}})
}

// rlimit returns a hard limit. The soft one below it is the program's own choice:
// Go raises that of open files.
func rlimit(resource int) string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return outcome(err)
	}
	if limit.Max == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(limit.Max, 10)
}

// raiseLimit asks for one more than the hard limit, and puts it back.
func raiseLimit(resource int) string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return outcome(err)
	}
	if limit.Max == unix.RLIM_INFINITY {
		return "unlimited"
	}
	more := unix.Rlimit{Cur: limit.Cur, Max: limit.Max + 1}
	err := unix.Prlimit(0, resource, &more, nil)
	if err == nil {
		_ = unix.Prlimit(0, resource, &limit, nil)
	}
	return outcome(err)
}

// firstOf returns what the first of these files says that exists.
func firstOf(paths ...string) string {
	last := "absent"
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err == nil {
			return strings.TrimSpace(string(content))
		}
		last = outcome(err)
	}
	return last
}

// lowerScore asks to be killed last when memory is short, and takes it back.
func lowerScore() string {
	const path = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(path)
	if err != nil {
		return outcome(err)
	}
	err = os.WriteFile(path, []byte("-1000"), 0)
	if err == nil {
		_ = os.WriteFile(path, before, 0)
	}
	return outcome(err)
}

func realtime() error {
	return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
}
