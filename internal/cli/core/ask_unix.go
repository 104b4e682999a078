//go:build unix

package core

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

func openTerminal() (*os.File, error) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/tty"), nil // it blocks: a keyboard polls it
}

var errBackground = errors.New("this program does not have the terminal: it runs in the background")

// keyboard is a terminal that gives each key at once, without showing it. Ctrl-C stays the process's signal.
type keyboard struct {
	fd     int
	state  *term.State   // as it was
	stop   *os.File      // can be read when the context has ended
	woken  *os.File      // its other end
	wake   func() bool   // stops that
	ended  chan struct{} // closed when that has happened
	pushed []byte        // read, and not given so far
}

// openKeyboard discards what was typed before. Its close is the caller's.
func openKeyboard(ctx context.Context, tty *os.File) (*keyboard, error) {
	k := &keyboard{fd: int(tty.Fd()), ended: make(chan struct{})}
	if group, err := unix.IoctlGetInt(k.fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return nil, errBackground // it would be stopped
	}
	var err error
	if k.state, err = term.GetState(k.fd); err != nil {
		return nil, err
	}
	if k.stop, k.woken, err = os.Pipe(); err != nil {
		return nil, err
	}
	if err := singleKeys(k.fd); err != nil {
		return nil, errors.Join(err, k.stop.Close(), k.woken.Close())
	}
	stop := context.AfterFunc(ctx, func() {
		defer close(k.ended)
		_, _ = k.woken.Write([]byte{0})
	})
	k.wake = stop
	return k, nil
}

// close leaves the terminal as it was.
func (k *keyboard) close() {
	if !k.wake() {
		<-k.ended
	}
	_ = term.Restore(k.fd, k.state)
	_ = k.stop.Close()
	_ = k.woken.Close()
}

// next waits for a key. show is called first, and once a second. After the context's end the error is
// errNoAnswer. A key that sends several bytes, as an arrow does, is escape and nothing else.
func (k *keyboard) next(ctx context.Context, show func()) (byte, error) {
	for {
		if len(k.pushed) > 0 && ctx.Err() == nil {
			key := k.pushed[0]
			k.pushed = k.pushed[1:]
			return key, nil
		}
		show()
		fds := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}, {Fd: int32(k.stop.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(time.Second/time.Millisecond))
		switch {
		case ctx.Err() != nil:
			return 0, errNoAnswer
		case n == 0 || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		}
		buf := make([]byte, 256) // of what was typed, or pasted, at once
		if n, err = unix.Read(k.fd, buf); err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, errNoAnswer // the terminal is gone
		}
		k.pushed = buf[:n]
		if buf[0] == keyEscape {
			k.pushed = buf[:1]
		}
	}
}

func setKeys(fd int, get, set uint) error {
	modes, err := unix.IoctlGetTermios(fd, get)
	if err != nil {
		return err
	}
	modes.Lflag &^= unix.ICANON | unix.ECHO
	modes.Cc[unix.VMIN], modes.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, set, modes)
}
