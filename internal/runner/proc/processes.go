//go:build linux

package proc

import (
	"bytes"
	"iter"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process is what /proc/PID says about a process.
type Process struct {
	PID, Parent, Group, Session int
	State                       byte // 'Z' only if none of its threads lives
	Threads                     int
	CPUTicks                    uint64 // user and system time
	StartTicks                  uint64 // after boot
	Pages                       uint64 // resident
	Name                        string
}

// Processes lists what runs in the container, in /proc's order.
func Processes() []Process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := Find(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

// Find describes one process. It returns false if there is none with this pid.
func Find(pid int) (Process, bool) {
	name := strconv.Itoa(pid)
	stat, err := os.ReadFile("/proc/" + name + "/stat")
	if err != nil {
		return Process{}, false // it has ended
	}
	p, ok := parseStat(pid, stat)
	if ok && p.Dead() && p.Threads > 1 {
		p.State = threadState(name, p.State)
	}
	return p, ok
}

// threadState returns the state of the first living thread of a process, or dead if there is
// none. If the main thread ends before the others, it is a zombie until they have ended.
func threadState(pid string, dead byte) byte {
	dir := "/proc/" + pid + "/task/"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return dead
	}
	for _, t := range threads {
		stat, err := os.ReadFile(dir + t.Name() + "/stat")
		if err != nil {
			continue
		}
		if p, ok := parseStat(0, stat); ok && !p.Dead() {
			return p.State
		}
	}
	return dead
}

// parseStat reads proc_pid_stat(5), of a process or of a thread. The name may hold any
// byte, brackets and spaces included, so the fields are counted from the last bracket.
func parseStat(pid int, stat []byte) (Process, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, false
	}
	f := bytes.Fields(stat[end+1:])
	if len(f) < 22 {
		return Process{}, false
	}
	number := func(i int) uint64 { // i counts from the state, field 3
		n, _ := strconv.ParseUint(string(f[i]), 10, 64)
		return n
	}
	return Process{
		PID: pid, Parent: int(number(1)), Group: int(number(2)), Session: int(number(3)), State: f[0][0], Threads: int(number(17)),
		CPUTicks: number(11) + number(12), StartTicks: number(19), Pages: number(21),
		Name: string(stat[open+1 : end]),
	}, true
}

// Dead reports whether the process has ended and waits to be reaped.
func (p Process) Dead() bool { return p.State == 'Z' || p.State == 'X' }

// Stopped reports whether a signal or a tracer has stopped the process.
func (p Process) Stopped() bool { return p.State == 'T' || p.State == 't' }

// Below returns the processes in all that descend from one of the roots, including dead ones,
// and without the roots.
func Below(all []Process, roots ...int) []Process {
	in, root := map[int]bool{}, map[int]bool{}
	for _, pid := range roots {
		in[pid], root[pid] = true, true
	}
	// /proc is sorted by pid, and a child mostly has a larger one than its
	// parent, but numbers wrap: repeat until nothing is added.
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if in[p.Parent] && !in[p.PID] {
				in[p.PID], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p Process) bool { return root[p.PID] || !in[p.PID] })
}

// Descendants lists the living processes below root.
func Descendants(root int) []int {
	var alive []int
	for _, p := range Below(Processes(), root) {
		if !p.Dead() {
			alive = append(alive, p.PID)
		}
	}
	return alive
}

// Runs reports whether a process exists and is not stopped.
func Runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	p, ok := parseStat(pid, stat)
	return ok && !p.Dead() && !p.Stopped()
}

// ByDepth sorts processes so that each comes after its parent.
func ByDepth(all []Process) []Process {
	parents := map[int]int{}
	for _, p := range all {
		parents[p.PID] = p.Parent
	}
	depth := func(pid int) (n int) {
		for ; pid != 0 && n <= len(all); n++ { // a list with gaps may have circles
			pid = parents[pid]
		}
		return n
	}
	depths := map[int]int{}
	for _, p := range all {
		depths[p.PID] = depth(p.PID)
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Process) int { return depths[a.PID] - depths[b.PID] })
	return sorted
}

// Status is the value of a line of proc_pid_status(5), "" if there is none.
func Status(pid int, key string) string {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return ""
	}
	for line := range Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(key+":")); ok {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}

// Mark is a capability that runners, PID 1 and attendants have and the commands of profile
// dev, which have the same uid, do not. A process may not trace another that has a capability
// which it lacks, nor reach its memory and descriptors. The capability itself has no use,
// because writing audit records takes a kind of socket that the seccomp filter refuses.
const Mark = unix.CAP_AUDIT_WRITE

// Marked reports whether a process has the Mark.
func Marked(pid int) bool {
	permitted, err := strconv.ParseUint(Status(pid, "CapPrm"), 16, 64)
	return err == nil && permitted>>Mark&1 != 0
}

// Lines yields the lines of b without their ends.
func Lines(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			line, rest, _ := bytes.Cut(b, []byte{'\n'})
			if !yield(line) {
				return
			}
			b = rest
		}
	}
}
