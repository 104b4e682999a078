package sandbox

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/windows"
)

// startTime distinguishes the process that has a pid now from all that had it before and will
// have it later, by when it was started: the kernel notes that at the start, and a change of
// the clock does not alter it. It is in milliseconds since 1970. It is "" if there is no such
// process, and ok is false if that is not known.
func startTime(pid int) (text string, ok bool) {
	if pid <= 0 {
		return "", false
	}
	if pid%4 != 0 { // no process has such an id, but OpenProcess takes it for the multiple of 4 below it
		return "", true
	}
	if there, err := exists(uint32(pid)); err != nil || !there {
		return "", err == nil
	}
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return "", false
	}
	defer windows.CloseHandle(h) //nolint:errcheck // nothing can be done about it
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return "", false
	}
	return strconv.FormatInt(created.Nanoseconds()/int64(time.Millisecond), 10), true
}

// exists reports whether a process runs. One that has ended can be opened as long as another
// process has a handle of it.
func exists(pid uint32) (bool, error) {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, pid)
	switch {
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return true, nil
	case errors.Is(err, windows.ERROR_INVALID_PARAMETER):
		return false, nil
	case err != nil:
		return false, err
	}
	defer windows.CloseHandle(h) //nolint:errcheck // nothing can be done about it
	event, err := windows.WaitForSingleObject(h, 0)
	return event == uint32(windows.WAIT_TIMEOUT), err
}
