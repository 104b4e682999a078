//go:build !linux && !windows

package stdio

import (
	"os"
	"syscall"
)

// brokenPipes are what a write to a pipe without a reader fails with.
var brokenPipes = []error{syscall.EPIPE}

// reopenPipe opens nothing: only Linux opens a pipe a second time.
func reopenPipe(*os.File) *os.File { return nil }
