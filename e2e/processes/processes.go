// Package processes reads the processes of this machine, those of containers
// included, from /proc. Tests use it to judge from outside what a program has left.
package processes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is a process as proc(5) shows it. Parts that this user may not read, or that
// were gone when they were read, are empty.
type Process struct {
	PID, Parent int
	UID         int
	State       string   // a letter; "Z" is a zombie
	Argv        []string // nil for a zombie
	Environ     []byte   // entries end with NUL
	Cgroup      string   // the text of its file
}

// All returns all processes except the kernel's own, and none on systems without
// /proc.
func All() []Process {
	var all []Process
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
		p := Process{PID: pid, Parent: number(status, "PPid"), UID: number(status, "Uid"), State: field(status, "State")}
		if p.Parent == 2 || pid == 2 { // kthreadd and its children
			continue
		}
		if argv, _ := os.ReadFile(dir + "/cmdline"); len(argv) > 0 {
			p.Argv = strings.Split(strings.TrimRight(string(argv), "\x00"), "\x00")
		}
		p.Environ, _ = os.ReadFile(dir + "/environ")
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		p.Cgroup = string(cgroup)
		all = append(all, p)
	}
	return all
}

// Command returns the arguments, separated by spaces.
func (p Process) Command() string { return strings.Join(p.Argv, " ") }

// maxShown is how much of a command String shows, in bytes.
const maxShown = 400

func (p Process) String() string {
	command := p.Command()
	if len(command) > maxShown {
		command = command[:maxShown] + "…"
	}
	return fmt.Sprintf("%d (uid %d, %s): %s", p.PID, p.UID, p.State, command)
}

// Has reports whether a text is in the environment or in the arguments.
func (p Process) Has(text string) bool {
	return bytes.Contains(p.Environ, []byte(text)) || strings.Contains(p.Command(), text)
}

// InContainer reports whether the process is in a cgroup of one of these containers.
func (p Process) InContainer(ids ...string) bool {
	return slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(p.Cgroup, id) })
}

// Status returns a number from a field of proc_pid_status(5), such as VmRSS, or -1 if
// the process is gone or the field is missing.
func Status(pid int, name string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return -1
	}
	return number(status, name)
}

// field returns the first word of a field.
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
