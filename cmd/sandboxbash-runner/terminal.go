//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// runTerminal runs one command on the terminal that is this process's standard
// input and output, and returns its exit code. The request comes through the
// terminal too, while it is raw; everything after that is the command's own.
func runTerminal() (int, error) {
	if err := harden(); err != nil {
		return 0, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("prctl PR_SET_CHILD_SUBREAPER: %w", err)
	}
	s, err := newServer()
	if err != nil {
		return 0, err
	}
	req, err := readTerminalRequest(s)
	if err != nil {
		return 0, err
	}
	if err := lendTerminal(req.GID); err != nil {
		return 0, err
	}
	release, ok := s.takeSlots(req.Exclusive)
	if !ok {
		return 0, errors.New("the session is busy")
	}
	defer release()
	return runOnTerminal(newCommand(s, req))
}

// readTerminalRequest turns the terminal raw, says hello, reads the request and
// restores the terminal.
func readTerminalRequest(s *server) (wire.Request, error) {
	var req wire.Request
	cooked, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return req, fmt.Errorf("standard input is no terminal: %w", err)
	}
	raw := *cooked
	raw.Iflag, raw.Oflag, raw.Lflag = 0, 0, 0
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(0, unix.TCSETS, &raw); err != nil {
		return req, fmt.Errorf("raw terminal: %w", err)
	}
	out := newFrameWriter(os.Stdout)
	hello := wire.Hello{Version: wire.Version, PID: os.Getpid(), Bash: s.has("bash"), Shell: s.has("sh")}
	out.send(wire.TypeHello, hello.Append(nil))
	in := wire.NewReader(os.Stdin)
	var parts []byte
	for {
		kind, payload, err := in.Next()
		if err != nil {
			return req, err
		}
		if kind != wire.TypePart && kind != wire.TypeRequest || len(parts)+len(payload) > wire.MaxRequest {
			return req, fmt.Errorf("%w: type %q", wire.ErrFrame, kind)
		}
		if parts = append(parts, payload...); kind == wire.TypeRequest {
			break
		}
	}
	if req, err = wire.ParseRequest(parts); err != nil {
		return req, err
	}
	// The host sends no input before this, so nothing is lost in the reader.
	out.send(wire.TypePong, nil)
	if err := unix.IoctlSetTermios(0, unix.TCSETS, cooked); err != nil {
		return req, fmt.Errorf("restore terminal: %w", err)
	}
	return req, nil
}

// lendTerminal lets the session's group open the terminal by its path, as
// `: >$(tty)` does, and gives it up as this process's own.
func lendTerminal(gid uint32) error {
	// Whoever owns a file may give it to a group that he is in.
	err := as(0, gid, func() error {
		if err := unix.Fchown(0, -1, int(gid)); err != nil {
			return err
		}
		return unix.Fchmod(0, 0o660)
	})
	if err != nil {
		return fmt.Errorf("terminal's group: %w", err)
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP) // caught, not ignored: ignoring is inherited
	if err := unix.IoctlSetInt(0, unix.TIOCNOTTY, 0); err != nil && !errors.Is(err, unix.ENOTTY) {
		return fmt.Errorf("give up terminal: %w", err)
	}
	return nil
}

// runOnTerminal starts the command and waits for its end. SIGUSR1, from uid 0
// only, ends it with all its descendants.
func runOnTerminal(c *command) (int, error) {
	kills := make(chan os.Signal, 1)
	signal.Notify(kills, unix.SIGUSR1)
	c.onTerminal = true
	if failed, ok := c.start(); !ok {
		return 0, fmt.Errorf("not started: %s (errno %d)", failed.Detail, failed.Errno)
	}
	go c.reap()
	for {
		select {
		case <-kills:
			c.kill(terminalGrace)
			continue
		case <-c.ended:
		}
		c.waitForKill()
		if c.status.Signaled() {
			return 128 + int(c.status.Signal()), nil
		}
		return c.status.ExitStatus(), nil
	}
}

// terminalGrace is from SIGTERM to SIGKILL for a command on a terminal.
const terminalGrace = 250 * time.Millisecond

// end asks the runner of a terminal to end its command. It runs as uid 0.
func end(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: end PID")
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil || pid <= 1 {
		return fmt.Errorf("bad pid %q", args[0])
	}
	return unix.Kill(pid, unix.SIGUSR1)
}
