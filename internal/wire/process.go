package wire

import (
	"fmt"
	"strconv"
)

// Process is one process of a session, as VerbPS lists it.
type Process struct {
	PID, Parent, Group int
	State              byte   // as in ps: R, S, D, Z, T
	CPUTicks           uint64 // user and system time; 100 a second
	StartTicks         uint64 // after boot
	Pages              uint64 // resident; 4 KiB each
	Command            string // the start of the command line: hostile text
}

const (
	// MaxCommandLine bounds a Command as it is quoted, in bytes.
	MaxCommandLine = 1024
	// maxProcessList bounds all of them together, in bytes. A host accepts 4 MiB.
	maxProcessList = 3 << 20
)

// AppendProcesses appends the answer of VerbPS to dst, one process per line. Command
// lines are cut so that all of them share maxProcessList.
func AppendProcesses(dst []byte, list []Process) []byte {
	most := min(MaxCommandLine, maxProcessList/max(1, len(list)))
	for _, p := range list {
		dst = fmt.Appendf(dst, "%d %d %d %c %d %d %d %s\n",
			p.PID, p.Parent, p.Group, p.State, p.CPUTicks, p.StartTicks, p.Pages, quoted(p.Command, most))
	}
	return dst
}

// ParseProcesses reads an answer of VerbPS.
func ParseProcesses(b []byte) ([]Process, error) {
	var list []Process
	for line := range textLines(b) {
		var p Process
		var state string
		if _, err := fmt.Sscanf(line, "%d %d %d %s %d %d %d %q",
			&p.PID, &p.Parent, &p.Group, &state, &p.CPUTicks, &p.StartTicks, &p.Pages, &p.Command); err != nil {
			return nil, fmt.Errorf("%w: process %q: %w", ErrFrame, line, err)
		}
		if len(state) != 1 {
			return nil, fmt.Errorf("%w: process %q: state %q", ErrFrame, line, state)
		}
		p.State = state[0]
		list = append(list, p)
	}
	return list, nil
}

// quoted quotes as much of a text as fits into so many bytes.
func quoted(text string, most int) string {
	q := strconv.Quote(text)
	if len(q) <= most {
		return q
	}
	const cut = "…"
	for len(text) > 0 && len(q) > most {
		text = text[:len(text)-max(1, (len(q)-most)/len(`\U00000000`))]
		q = strconv.Quote(text + cut)
	}
	return q
}
