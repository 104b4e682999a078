package tool

import "fmt"

// signalNames are Linux's, in the order of their numbers from 1: sessions run
// there, whatever this machine is.
var signalNames = [...]string{
	"HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
}

// unixSignal writes how a signal ended a process, as Rust's ExitStatus does.
func unixSignal(n int) string {
	if n >= 1 && n <= len(signalNames) {
		return fmt.Sprintf("signal: %d (SIG%s)", n, signalNames[n-1])
	}
	return fmt.Sprintf("signal: %d", n)
}
