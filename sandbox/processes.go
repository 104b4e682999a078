package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Process is a process of a session.
type Process struct {
	PID      int           `json:"pid"` // in the container
	Parent   int           `json:"ppid"`
	Group    int           `json:"pgid"`
	State    string        `json:"state"` // as in ps: R, S, D, Z, T
	CPU      time.Duration `json:"-"`
	CPUMs    int64         `json:"cpuMs"`
	Resident int64         `json:"rssBytes"`
	Command  string        `json:"command"` // hostile text
}

// Units of proc_pid_stat(5) on every architecture that we run on.
const clockTick = 10 * time.Millisecond

// Processes lists what commands have started in the session and is still there.
// It leaves out PID 1 and the runners.
func (s *Session) Processes(ctx context.Context) ([]Process, error) {
	report, err := s.helper(ctx, "ps")
	if err != nil {
		return nil, fmt.Errorf("session %s: ps: %w", s.ID(), err)
	}
	var all []Process
	for line := range strings.Lines(string(report)) {
		var p Process
		var ticks, start, pages int64
		if _, err := fmt.Sscanf(line, "%d %d %d %s %d %d %d %q",
			&p.PID, &p.Parent, &p.Group, &p.State, &ticks, &start, &pages, &p.Command); err != nil {
			return nil, fmt.Errorf("session %s: ps: line %q: %w", s.ID(), line, err)
		}
		p.CPU = time.Duration(ticks) * clockTick
		p.CPUMs, p.Resident = p.CPU.Milliseconds(), pages*pageSize
		all = append(all, p)
	}
	return all, nil
}
