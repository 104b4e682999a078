package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
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

// Processes lists the processes in the session that commands have started. It leaves out
// PID 1 and the runners.
func (s *Session) Processes(ctx context.Context) ([]Process, error) {
	report, err := s.helper(ctx, wire.VerbPS.Command())
	if err != nil {
		return nil, fmt.Errorf("session %s: ps: %w", s.ID(), err)
	}
	list, err := wire.ParseProcesses(report)
	if err != nil {
		return nil, fmt.Errorf("session %s: ps: %w", s.ID(), err)
	}
	var all []Process
	for _, p := range list {
		cpu := time.Duration(p.CPUTicks) * clockTick
		all = append(all, Process{
			PID: p.PID, Parent: p.Parent, Group: p.Group, State: string(rune(p.State)),
			CPU: cpu, CPUMs: cpu.Milliseconds(), Resident: int64(p.Pages) * pageSize, Command: p.Command,
		})
	}
	return all, nil
}
