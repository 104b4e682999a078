//go:build linux

package proc

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// WriteList writes the answer of wire.VerbPS: the container's processes, except PID 1 and the
// runners. uid is that of the session's commands. What a process calls itself does not decide
// whether it is listed.
func WriteList(out io.Writer, uid uint32) error {
	var list []wire.Process
	for _, p := range Processes() {
		if p.PID == 1 || p.PID == os.Getpid() || Ours(p.PID, uid) {
			continue
		}
		list = append(list, wire.Process{
			PID: p.PID, Parent: p.Parent, Group: p.Group, State: p.State,
			CPUTicks: p.CPUTicks, StartTicks: p.StartTicks, Pages: p.Pages, Command: commandLine(p),
		})
	}
	_, err := out.Write(wire.AppendProcesses(nil, list))
	return err
}

// Ours reports whether a process is a runner, or an engine's helper that is about to become
// one. uid is that of the session's commands: in profile strict they are never of uid 0, and
// in dev, where they are, they lack the Mark. A process that has ended is not ours.
func Ours(pid int, uid uint32) bool {
	if uid == 0 {
		return Marked(pid)
	}
	uids := strings.Fields(Status(pid, "Uid"))
	return len(uids) == 4 && uids[2] == "0" // the saved one: a runner's others change for moments
}

// commandLine is the beginning of a process's arguments, or its name if it has none.
func commandLine(p Process) string {
	var b [wire.MaxCommandLine]byte
	n := 0
	if f, err := os.Open("/proc/" + strconv.Itoa(p.PID) + "/cmdline"); err == nil {
		n, _ = io.ReadFull(f, b[:])
		f.Close()
	}
	text := strings.TrimRight(string(b[:n]), "\x00")
	if text == "" {
		text = p.Name // that of a zombie, or of one that has overwritten its arguments
	}
	return strings.ReplaceAll(text, "\x00", " ")
}
