//go:build unix

package auditcmd

import (
	"errors"
	"syscall"
)

// alive tells whether a process of this machine has this number.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
