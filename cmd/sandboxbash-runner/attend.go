//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// terminalSocket is the socket that the attendant of a terminal connects to. The attendant
// is a process of ours that another runner starts, and carries frames between host and
// terminal. An engine does not tell the process on a terminal that the host has gone. The
// runner that serves the host notices it, and ends the attendant.
type terminalSocket struct {
	socket    *os.File
	path      string
	attendant *os.File // once admitted
}

func listenForAttendant() (*terminalSocket, error) {
	path := terminalPath(os.Getpid())
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
	return &terminalSocket{socket: os.NewFile(uintptr(fd), path), path: path}, nil
}

// admitTime is how long to wait for the attendant.
const admitTime = 10 * time.Second

// admit waits for the attendant and returns the writer to the host.
func (s *terminalSocket) admit() (*frameWriter, error) {
	conn, err := s.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := s.socket.SetReadDeadline(time.Now().Add(admitTime)); err != nil {
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
	s.attendant = os.NewFile(uintptr(fd), "attendant")
	return newFrameWriter(s.attendant), nil
}

func (s *terminalSocket) close() {
	_ = unix.Unlink(s.path)
	s.socket.Close()
}

// attend sends its greeting. Then it carries bytes between the host and the runner of a
// terminal, whose pid is the first line of standard input, until one of them has gone. It
// runs as uid 0.
func attend(stdin io.Reader, stdout io.Writer) error {
	// In profile dev commands have this uid, and may trace.
	if err := hide(); err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, wire.Attending); err != nil {
		return err
	}
	pid, err := wire.ReadTerminal(stdin)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: terminalPath(pid)}); err != nil {
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
	return <-over // the other goroutine ends with this process
}
