package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
