package sandbox

import (
	"log/slog"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
)

// Receipt is what a command has used, and what is left of it. Its figures are the
// kernel's, as the runner has read them; nothing that the command prints has a part in
// them. Nil is what is not known, because the container had to be started again.
type Receipt struct {
	// WallMs is from the start to the end, in milliseconds by the host's clock.
	WallMs float64 `json:"wallMs"`
	// CPUMs is user and system time, in milliseconds, of the command and of what it
	// has started, as far as that has ended and has been waited for. What lives on
	// is not in it.
	CPUMs *float64 `json:"cpuMs"`
	// PeakRSSBytes is the largest resident set that one of those processes had. The
	// runner that forks them counts with about 4 MiB: no figure is below that.
	PeakRSSBytes *int64 `json:"peakRssBytes"`
	// Processes is how many processes and threads began in the session meanwhile:
	// exactly the command's if nothing else ran there, else also those of other
	// commands, jobs and terminals that ran at the same time, and of the programs of
	// ours that were started for them: the kernel counts them together. Nil if it does
	// not tell, or if its ids may have begun again unseen.
	Processes *int64 `json:"processes"`
	// StdoutBytes and StderrBytes are what the command wrote, before anything was
	// masked; both are in the first where the streams are merged.
	StdoutBytes int64 `json:"stdoutBytes"`
	StderrBytes int64 `json:"stderrBytes"`
	// Killed says how far the kill had to go, as in a Result.
	Killed string `json:"killed"`
	// Survivors is how many of its processes live on in the session. Proved says that
	// it is 0 by the kernel's word: the runner, to which all of them fall, has no
	// child any more, or the container's PID 1 has ended. Otherwise it is a count of
	// a moment.
	Survivors int  `json:"survivors"`
	Proved    bool `json:"proved"`
}

// LogValue implements slog.LogValuer: the fields by their names in JSON, without
// those that are not known.
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

// Receipt is that of a command that ran and has ended; nil if it goes on as a job.
func (r Result) Receipt() *Receipt {
	if r.Reason == "" || r.Reason == exec.HandedOver {
		return nil
	}
	return receipt(r.Status, r.Killed)
}

// Receipt is that of a job that has ended; nil if it runs, or if its end is
// not known.
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

// milliseconds are exact to a microsecond.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
