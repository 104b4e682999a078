//go:build linux

package main

import (
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	tioCSTI  = 0x5412
	tioLINUX = 0x541c
	tioCONS  = 0x541d
)

// terminals are ways to type into another user's terminal, tried on one of our
// own, and on a file that is none where they would work.
func terminals() []attempt {
	const above = 1 << 32 // the kernel does not look there
	return []attempt{
		{"E25", "open-pty", pty(func(int) string { return allowed })},
		{"E25", "TIOCSTI", pty(func(terminal int) string { return request(terminal, tioCSTI) })},
		{"E25", "TIOCSTI-high-bit", onNull(above | tioCSTI)},
		{"E25", "TIOCSTI-sign-extended", onNull(0xffffffff<<32 | tioCSTI)},
		{"E25", "TIOCLINUX", onNull(tioLINUX)},
		{"E25", "TIOCLINUX-high-bit", onNull(above | tioLINUX)},
		{"E25", "TIOCCONS", onNull(tioCONS)},
		{"E25", "TIOCCONS-high-bit", onNull(above | tioCONS)},
		{"E25", "other-terminals", otherTerminals},
	}
}

// pty opens a new terminal for try.
func pty(try func(terminal int) string) func() string {
	return func() string {
		control, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return outcome(err)
		}
		defer unix.Close(control)
		if err := unix.IoctlSetPointerInt(control, unix.TIOCSPTLCK, 0); err != nil {
			return outcome(err)
		}
		number, err := unix.IoctlGetInt(control, unix.TIOCGPTN)
		if err != nil {
			return outcome(err)
		}
		terminal, err := unix.Open("/dev/pts/"+strconv.Itoa(number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return outcome(err)
		}
		defer unix.Close(terminal)
		return try(terminal)
	}
}

// request makes an ioctl with one byte to read.
func request(fd int, number uintptr) string {
	b := [8]byte{'x'}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), number, uintptr(unsafe.Pointer(&b[0])))
	return outcome(errno)
}

// onNull makes an ioctl of terminals on /dev/null, which answers ENOTTY.
func onNull(number uintptr) func() string {
	return func() string {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return outcome(err)
		}
		defer unix.Close(fd)
		return request(fd, number)
	}
}

// otherTerminals lists the terminals that can be opened and are not this process's own.
func otherTerminals() string {
	entries, err := os.ReadDir("/dev/pts")
	if err != nil {
		return outcome(err)
	}
	own, _ := os.Readlink("/proc/self/fd/0")
	var found []string
	for _, entry := range entries {
		path := "/dev/pts/" + entry.Name()
		if entry.Name() == "ptmx" || path == own {
			continue
		}
		if opening(unix.O_RDWR, path)() == allowed {
			found = append(found, path)
		}
	}
	return list(found)
}
