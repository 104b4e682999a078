//go:build !linux

package sandbox

import (
	"strconv"

	"github.com/shirou/gopsutil/v4/process"
)

// startTime distinguishes the process that has a pid now from all that had it before and will
// have it later, by when it was started: these systems note that at the start,
// and a change of the clock does not alter it. It is "" of a process that is not
// there, and not ok where it is not known.
func startTime(pid int) (text string, ok bool) {
	there, err := process.PidExists(int32(pid))
	if err != nil || !there {
		return "", err == nil
	}
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return "", false
	}
	at, err := p.CreateTime()
	return strconv.FormatInt(at, 10), err == nil
}
