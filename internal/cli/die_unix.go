//go:build unix

package cli

import (
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// dieOf has this process die of a signal, so that its parent sees what it would see of a shell. It
// returns where that is not to be: the signal is not known here, or does not end a process.
func dieOf(name string) {
	sig := unix.SignalNum(name)
	if sig == 0 {
		return
	}
	none := unix.Rlimit{}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &none) // the core would be this program's, and not the command's
	signal.Reset(sig)
	if unix.Kill(unix.Getpid(), sig) == nil {
		<-time.After(aMoment) // the signal ends this process meanwhile
	}
}
