package sandbox

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// startTime distinguishes the process that has a pid now from all that had it before and will
// have it later, by when it was started: the kernel notes that at the start, and a change of
// the clock does not alter it. It is in milliseconds since 1970. It is "" if there is no such
// process, and ok is false if that is not known.
func startTime(pid int) (text string, ok bool) {
	if pid <= 0 {
		return "", false
	}
	if err := unix.Kill(pid, 0); errors.Is(err, unix.ESRCH) {
		return "", true
	}
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", false
	}
	at := p.Proc.P_starttime
	return strconv.FormatInt(at.Sec*1000+int64(at.Usec)/1000, 10), true
}
