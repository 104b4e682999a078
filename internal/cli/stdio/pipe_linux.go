package stdio

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// brokenPipes are what a write to a pipe without a reader fails with.
var brokenPipes = []error{syscall.EPIPE}

// reopenPipe opens the pipe that f writes to once more, with an open file
// description of our own: other processes share f's, and must not find theirs
// non-blocking. It returns nil if f is not a pipe or cannot be opened again.
func reopenPipe(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return nil
	}
	own, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	return own
}
