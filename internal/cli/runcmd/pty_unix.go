//go:build unix

package runcmd

import (
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// readable waits until there is something to read, and reports false if the
// command was over before: what is typed then is not ours to take.
func readable(f *os.File, over <-chan struct{}) bool {
	r, w, err := os.Pipe()
	if err != nil {
		return true // without a descriptor to spare one cannot wait for both
	}
	defer r.Close()
	defer w.Close()
	read, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		select {
		case <-over:
			_, _ = w.Write([]byte{0})
		case <-read:
		}
	}()
	defer func() {
		close(read)
		<-told
	}()
	for {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}, {Fd: int32(r.Fd()), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && fds[1].Revents != 0:
			return false
		default:
			return true // also of an error: the read will tell
		}
	}
}

// watchSize calls changed when the terminal's size may have changed, until over.
func watchSize(over <-chan struct{}, changed func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGWINCH)
	defer signal.Stop(signals)
	changed() // it may have, before the signal was caught
	for {
		select {
		case <-over:
			return
		case <-signals:
			changed()
		}
	}
}
