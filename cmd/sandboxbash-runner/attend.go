//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A door is where the attendant of a terminal comes in: a process of ours that
// the host has a runner start, and that carries frames between the two. A
// terminal has no other side channel, and the engine tells nobody behind it that
// the host has gone: of that the runner that serves the host takes note, and
// ends the attendant.
type door struct {
	socket    *os.File
	path      string
	attendant *os.File // once admitted
}

func openDoor() (*door, error) {
	path := doorPath(os.Getpid())
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	_ = unix.Unlink(path) // of a process that had this pid
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind %s: %w", path, err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return &door{socket: os.NewFile(uintptr(fd), path), path: path}, nil
}

// admitTime is how long an attendant that has been promised may take.
const admitTime = 10 * time.Second

// admit waits for the attendant and returns the way to the host.
func (d *door) admit() (*frameWriter, error) {
	conn, err := d.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := d.socket.SetReadDeadline(time.Now().Add(admitTime)); err != nil {
		return nil, err
	}
	fd, acceptErr := -1, error(nil)
	err = conn.Read(func(socket uintptr) bool {
		fd, _, acceptErr = unix.Accept4(int(socket), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return !errors.Is(acceptErr, unix.EAGAIN)
	})
	if err = errors.Join(err, acceptErr); err != nil {
		return nil, fmt.Errorf("no attendant: %w", err)
	}
	d.attendant = os.NewFile(uintptr(fd), "attendant")
	return newFrameWriter(d.attendant), nil
}

func (d *door) close() {
	_ = unix.Unlink(d.path)
	d.socket.Close()
}

// attend says that it is there, and then carries bytes between the host and the
// runner of a terminal, whose pid is the first line of standard input, until one
// of them has gone. It runs as uid 0.
func attend(stdin io.Reader, stdout io.Writer) error {
	if _, err := io.WriteString(stdout, attending); err != nil {
		return err
	}
	pid, err := readPID(stdin)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: doorPath(pid)}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("connect to terminal %d: %w", pid, err)
	}
	terminal, err := pollable(fd, "terminal")
	if err != nil {
		return err
	}
	defer terminal.Close()
	over := make(chan error, 2)
	go func() {
		_, err := io.Copy(stdout, struct{ io.Reader }{terminal})
		over <- err
	}()
	go func() {
		_, err := io.Copy(struct{ io.Writer }{terminal}, stdin)
		over <- err
	}()
	return <-over // the other one ends with this process
}

// attending is what an attendant says first.
const attending = "attending\n"

// maxPID is PID_MAX_LIMIT of the kernel.
const maxPID = 4 << 20

// readPID reads a line and nothing of what follows it.
func readPID(r io.Reader) (int, error) {
	pid := 0
	for one := make([]byte, 1); ; pid = pid*10 + int(one[0]-'0') {
		if _, err := io.ReadFull(r, one); err != nil {
			return 0, fmt.Errorf("no pid: %w", err)
		}
		switch {
		case one[0] == '\n' && pid > 1:
			return pid, nil
		case one[0] < '0' || one[0] > '9' || pid > maxPID:
			return 0, fmt.Errorf("bad pid: %d and %q", pid, one)
		}
	}
}
