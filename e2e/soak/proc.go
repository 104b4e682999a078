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
)

// process is one of this machine, containers' included, as proc(5) shows it.
type process struct {
	pid, parent int
	uid         int
	state       string // a letter
	argv        string // separated by spaces
	environ     []byte
	cgroup      string
}

func (p process) String() string {
	return fmt.Sprintf("%d (uid %d, %s): %s", p.pid, p.uid, p.state, cut(p.argv))
}

// has reports whether a mark stands in its environment or arguments.
func (p process) has(mark string) bool {
	return bytes.Contains(p.environ, []byte(mark)) || strings.Contains(p.argv, mark)
}

// processes lists all but the kernel's own. Zombies are in it: they show no argv.
func processes() []process {
	var list []process
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		status, err := os.ReadFile(dir + "/status")
		if err != nil { // gone
			continue
		}
		p := process{pid: pid, state: field(status, "State"), parent: number(status, "PPid"), uid: number(status, "Uid")}
		if p.parent == 2 || pid == 2 { // kthreadd and its children
			continue
		}
		argv, _ := os.ReadFile(dir + "/cmdline")
		p.argv = strings.ReplaceAll(strings.TrimRight(string(argv), "\x00"), "\x00", " ")
		p.environ, _ = os.ReadFile(dir + "/environ")
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		p.cgroup = string(cgroup)
		list = append(list, p)
	}
	return list
}

// field is the first word of a field of proc_pid_status(5).
func field(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && key == name {
			if words := strings.Fields(value); len(words) > 0 {
				return words[0]
			}
		}
	}
	return ""
}

func number(status []byte, name string) int {
	n, err := strconv.Atoi(field(status, name))
	if err != nil {
		return -1
	}
	return n
}

// marked lists the processes that carry a mark and that the lab has not started on
// this machine: those in containers.
func marked(mark string) []process {
	var found []process
	for _, p := range processes() {
		if p.has(mark) && !bytes.Contains(p.environ, []byte(hostMark+"=")) && p.pid != os.Getpid() {
			found = append(found, p)
		}
	}
	return found
}

// commandsIn lists what is in a container's cgroups and is not ours: PID 1, the runners
// and the engine's helpers are uid 0, commands never are. It needs no mark, which a
// command can take off.
func commandsIn(container string) []process {
	var found []process
	for _, p := range processes() {
		if strings.Contains(p.cgroup, container) && p.uid != 0 {
			found = append(found, p)
		}
	}
	return found
}

// memory is the resident memory of a process in bytes; 0 if it is gone.
func memory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return int64(max(0, number(status, "VmRSS"))) << 10
}

// descriptors is how many a process has open.
func descriptors(pid int) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	return len(entries)
}

func parentOf(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return -1
	}
	return number(status, "PPid")
}

// kinds counts descriptors by what they are of.
type kinds map[string]int

// descriptorKinds tells what a process has open, without the numbers in the names.
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

// since says what there is more or less of than before; "" if nothing.
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

// loadAverage is that of a minute, five and fifteen; "unknown" where there is none.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	words := strings.Fields(string(text))
	if err != nil || len(words) < 3 {
		return "unknown"
	}
	return strings.Join(words[:3], " ")
}
