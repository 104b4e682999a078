package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// marked lists the processes in containers that carry a mark. It leaves out those that the
// lab has started on this machine.
func marked(mark string) []processes.Process {
	var found []processes.Process
	for _, p := range processes.All() {
		if p.Has(mark) && !bytes.Contains(p.Environ, []byte(hostMark+"=")) && p.PID != os.Getpid() {
			found = append(found, p)
		}
	}
	return found
}

// commandsIn lists the processes of commands in the cgroups of a session's container. PID 1,
// the runners and the engine's helpers are uid 0. Commands never are, except in profile dev,
// where they lack a capability that the others have. It needs no mark, which a command could
// remove.
func commandsIn(s *session) []processes.Process {
	var found []processes.Process
	for _, p := range processes.All() {
		if p.InContainer(s.container) && (p.UID != 0 || s.dev && !mayAudit(p.PID)) {
			found = append(found, p)
		}
	}
	return found
}

const capAuditWrite = 29 // CAP_AUDIT_WRITE, capability.h

// mayAudit reports whether a process has CAP_AUDIT_WRITE, or has ended.
func mayAudit(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text), "\nCapPrm:\t")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(line, 16, 64)
	return err == nil && set>>capAuditWrite&1 != 0
}

// memory returns the resident memory of a process in bytes, 0 if it has ended.
func memory(pid int) int64 { return int64(max(0, processes.Status(pid, "VmRSS"))) << 10 }

// descriptors returns how many descriptors a process has open.
func descriptors(pid int) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	return len(entries)
}

// kinds counts descriptors by kind.
type kinds map[string]int

// descriptorKinds counts the open descriptors of a process by name, without the numbers in
// the names.
func descriptorKinds(pid int) kinds {
	k := kinds{}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return k
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed since
		}
		if kind, _, special := strings.Cut(to, ":["); special {
			to = kind
		} else if strings.HasPrefix(to, "/") {
			to = "file"
		}
		k[to]++
	}
	return k
}

func (k kinds) sum() (n int) {
	for _, c := range k {
		n += c
	}
	return n
}

// since describes the differences from before, "" if there are none.
func (k kinds) since(before kinds) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(k)) {
		if d := k[kind] - before[kind]; d != 0 {
			parts = append(parts, fmt.Sprintf("%s %+d", kind, d))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(before)) {
		if k[kind] == 0 {
			parts = append(parts, fmt.Sprintf("%s %+d", kind, -before[kind]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// loadAverage returns the load over one, five and fifteen minutes, or "unknown".
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	words := strings.Fields(string(text))
	if err != nil || len(words) < 3 {
		return "unknown"
	}
	return strings.Join(words[:3], " ")
}
