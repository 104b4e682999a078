//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// readPause is how long a look for input takes at most: until then the end of the
// command is not noticed by it, and nothing else waits for that.
const readPause = 50 // milliseconds

// readable waits until there is something to read, and reports false if the
// command was over before: what is typed then is not ours to take.
func readable(f *os.File, over <-chan struct{}) bool {
	for {
		select {
		case <-over:
			return false
		default:
		}
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, readPause)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true // also of an error: the read will tell
		}
	}
}

// watchSize calls changed when the terminal's size may have changed, until over.
func watchSize(over <-chan struct{}, changed func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGWINCH)
	defer signal.Stop(signals)
	changed() // it may have, before anybody listened
	for {
		select {
		case <-over:
			return
		case <-signals:
			changed()
		}
	}
}
