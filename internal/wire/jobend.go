package wire

import "fmt"

// signalNames are Linux's, in the order of their numbers from 1: sessions run
// there, whatever this machine is.
var signalNames = [...]string{
	"HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
}

// SignalName returns the name of a session's signal, such as SIGTERM, or "".
func SignalName(n int) string {
	if n >= 1 && n <= len(signalNames) {
		return "SIG" + signalNames[n-1]
	}
	return ""
}

// Completion is what the file of a job's output ends with: how the job ended, in
// the words of Rust's ExitStatus.
func (m JobEnd) Completion() string {
	text := "completed"
	switch {
	case m.Ending == EndedTimeout:
		text = "error: timed out"
	case m.Signal != 0:
		text = fmt.Sprintf("failed: signal: %d", m.Signal)
		if name := SignalName(m.Signal); name != "" {
			text += " (" + name + ")"
		}
	case m.Code != 0:
		text = fmt.Sprintf("failed: exit status: %d", m.Code)
	}
	return "\n\n[background process " + text + "]\n"
}
