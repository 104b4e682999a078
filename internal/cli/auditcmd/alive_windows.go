package auditcmd

import (
	"errors"

	"golang.org/x/sys/windows"
)

// stillActive is STILL_ACTIVE of winbase.h: the exit code of what has not ended.
const stillActive = 259

// alive tells whether a process of this machine has this number. Windows keeps the
// object of a process that has ended for as long as a handle to it is open.
func alive(pid int) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	defer windows.CloseHandle(h) //nolint:errcheck // of what was only asked
	var code uint32
	return windows.GetExitCodeProcess(h, &code) != nil || code == stillActive
}
