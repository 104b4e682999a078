package sandbox

import (
	"log/slog"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
)

// Receipt says what a command has used, and which of its processes are left. The figures
// are the kernel's, read by the runner. A command cannot influence them by what it prints.
// A figure is nil if it is not known, because the container was reset.
type Receipt struct {
	// WallMs is from the start to the end, in milliseconds by the host's clock.
	WallMs float64 `json:"wallMs"`
	// CPUMs is user and system time, in milliseconds, of the command and of those of its
	// descendants that have ended and were waited for. It does not include survivors.
	CPUMs *float64 `json:"cpuMs"`
	// PeakRSSBytes is the largest resident set of one of those processes. It is never below
	// about 4 MiB, the resident set of the runner that forks them.
	PeakRSSBytes *int64 `json:"peakRssBytes"`
	// Processes is how many processes and threads were started in the session while the
	// command ran. The kernel counts them for the whole session. So the figure includes
	// those of other commands, jobs and terminals that ran at the same time, and of the
	// runners that were started for these. It is nil if the kernel does not provide it, or if
	// its counter may have wrapped around.
	Processes *int64 `json:"processes"`
	// StdoutBytes and StderrBytes are how much the command wrote, before secrets were
	// masked. If the streams are merged, StdoutBytes counts both.
	StdoutBytes int64 `json:"stdoutBytes"`
	StderrBytes int64 `json:"stderrBytes"`
	// Killed says how far the kill had to go; see Result.Killed.
	Killed string `json:"killed"`
	// Survivors is how many of the command's processes are still alive in the session.
	// Proved means that the kernel has confirmed that there are none: either the runner,
	// which gets all orphans of the command, has no child, or PID 1 of the container has
	// ended. Without Proved it is a count at one moment.
	Survivors int  `json:"survivors"`
	Proved    bool `json:"proved"`
}

// LogValue implements slog.LogValuer. It returns the known fields under their JSON names.
func (r *Receipt) LogValue() slog.Value {
	if r == nil {
		return slog.Value{}
	}
	attrs := []slog.Attr{slog.Float64("wallMs", r.WallMs)}
	if r.CPUMs != nil {
		attrs = append(attrs, slog.Float64("cpuMs", *r.CPUMs))
	}
	if r.PeakRSSBytes != nil {
		attrs = append(attrs, slog.Int64("peakRssBytes", *r.PeakRSSBytes))
	}
	if r.Processes != nil {
		attrs = append(attrs, slog.Int64("processes", *r.Processes))
	}
	return slog.GroupValue(append(attrs,
		slog.Int64("stdoutBytes", r.StdoutBytes), slog.Int64("stderrBytes", r.StderrBytes), slog.String("killed", r.Killed),
		slog.Int("survivors", r.Survivors), slog.Bool("proved", r.Proved))...)
}

// Receipt returns the receipt of a command that has ended, or nil if it became a job.
func (r Result) Receipt() *Receipt {
	if r.Reason == "" || r.Reason == exec.HandedOver {
		return nil
	}
	return receipt(r.Status, r.Killed)
}

// Receipt returns the receipt of a job that has ended. It returns nil if the job is running
// or its end is not known.
func (i JobInfo) Receipt() *Receipt {
	if i.Status == nil {
		return nil
	}
	return receipt(*i.Status, rungs[i.Status.Rung])
}

func receipt(st exec.Status, killed string) *Receipt {
	r := &Receipt{
		WallMs: milliseconds(st.Elapsed), StdoutBytes: st.Stdout, StderrBytes: st.Stderr,
		Killed: killed, Survivors: st.Left, Proved: st.Left == 0,
	}
	if killed == killedReset || killed == killedRemoved {
		return r
	}
	cpu := milliseconds(st.CPU)
	r.CPUMs, r.PeakRSSBytes = &cpu, &st.MaxRSS
	if st.Processes > 0 {
		r.Processes = &st.Processes
	}
	return r
}

// milliseconds returns d in milliseconds, exact to a microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
