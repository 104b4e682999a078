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

	"github.com/sandboxbash/sandboxbash/internal/runner/tty"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// requestTime is how long a terminal's runner waits for its command. It cannot notice that
// its host has gone.
const requestTime = 30 * time.Second

// runTerminal runs one command on the terminal that is this process's standard
// input and output, and returns its exit code. The request comes through the
// terminal too, while it is raw; everything after that is the command's own. All
// else that host and runner say to each other goes through the attendant.
func runTerminal() (int, error) {
	s, err := newServer()
	if err != nil {
		return 0, err
	}
	defer s.init.farewell()
	socket, err := listenForAttendant()
	if err != nil {
		return 0, err
	}
	late := time.AfterFunc(requestTime, func() {
		socket.close()
		os.Exit(1) //nolint:forbidigo // a read of the terminal cannot be called off
	})
	req, err := readTerminalRequest(s)
	if err == nil {
		s.out, err = socket.admit()
	}
	socket.close()
	late.Stop()
	if err != nil {
		return 0, err
	}
	if err := lendTerminal(req.GID); err != nil {
		return 0, err
	}
	c := newCommand(s, *req)
	c.onTerminal = true
	return runOnTerminal(c, socket.attendant)
}

// readTerminalRequest turns the terminal raw, says hello, reads the request and
// restores the terminal.
func readTerminalRequest(s *server) (*wire.Request, error) {
	cooked, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("standard input is not a terminal: %w", err)
	}
	raw := *cooked
	raw.Iflag, raw.Oflag, raw.Lflag = 0, 0, 0
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(0, unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("raw terminal: %w", err)
	}
	s.hello(newFrameWriter(os.Stdout))
	in := wire.NewReader(os.Stdin)
	var req *wire.Request
	for req == nil {
		kind, payload, err := in.Next()
		if err != nil {
			return nil, err
		}
		if kind != wire.TypePart && kind != wire.TypeRequest {
			return nil, fmt.Errorf("%w: type %q", wire.ErrFrame, kind)
		}
		if req, err = s.request.add(kind, payload); err != nil {
			return nil, err
		}
	}
	// The host types nothing before it hears of the start, so nothing is lost in
	// the reader.
	if err := unix.IoctlSetTermios(0, unix.TCSETS, cooked); err != nil {
		return nil, fmt.Errorf("restore terminal: %w", err)
	}
	return req, nil
}

// lendTerminal lets the session's group open the terminal by its path, as
// `: >$(tty)` does, and gives it up as this process's own.
func lendTerminal(gid uint32) error {
	// The owner of a file may give it to a group that it belongs to.
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

// runOnTerminal starts the command, and reports the start, or why it failed, and then the
// end to the attendant.
func runOnTerminal(c *command, attendant *os.File) (int, error) {
	out := c.server.out
	release, ok := c.server.takeSlots(c.req.Exclusive)
	if !ok {
		return 0, refuse(out, wire.Failed{Seq: c.req.Seq, Failure: wire.FailBusy})
	}
	defer release()
	if failed, ok := c.start(); !ok {
		failed.Seq = c.req.Seq
		return 0, refuse(out, failed)
	}
	go c.reap()
	out.send(wire.TypePong, wire.Pong{State: wire.TerminalStarted}.Append(nil))
	go c.heed(attendant) // ends with this process
	<-c.ended
	c.waitForKill()
	exit := c.exit()
	out.send(wire.TypeExit, exit.Append(nil))
	if c.status.Signaled() {
		return 128 + exit.Signal, nil
	}
	return exit.Code, nil
}

// errRefused ends the runner of a command that was not started. The host has the reason.
var errRefused = errors.New("the command was not started")

func refuse(out *frameWriter, failed wire.Failed) error {
	out.send(wire.TypeFailed, failed.Append(nil))
	return errRefused
}

// heed answers the attendant's frames: it kills the command, or checks whether the command
// waits for input. When the attendant has gone, so has the host, and heed kills the command.
func (c *command) heed(attendant *os.File) {
	state := func() wire.TerminalState {
		return tty.WaitsForInput(func(fn func() error) error { return as(c.req.UID, c.req.GID, fn) })
	}
	in := wire.NewReader(attendant)
	for {
		kind, payload, err := in.Next()
		if err != nil {
			c.kill(0)
			return
		}
		switch kind { //nolint:exhaustive // nothing else is sent to a terminal's runner
		case wire.TypePing:
			c.server.out.send(wire.TypePong, wire.Pong{State: state()}.Append(nil))
		case wire.TypeKill:
			kill, err := wire.ParseKill(payload)
			if err != nil || kill.Seq != c.req.Seq {
				c.kill(0)
				return
			}
			c.end(kill)
		}
	}
}

// terminalPath is the socket of a terminal's runner, below a directory of uid 0.
func terminalPath(pid int) string { return stateDir + "/terminal" + strconv.Itoa(pid) }
