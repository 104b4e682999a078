package wire

import (
	"fmt"
	"io"
	"strconv"
)

// A terminal has a single stream, which is the command's own, and an engine does not
// tell the process at its other end that the host has gone. What else host and runner
// say to each other goes through an attendant: a process of VerbAttend that another
// runner starts, and that copies frames between its standard streams and the socket of
// the terminal's runner. In order:
//
//	host → serve     Request for VerbAttend
//	attendant → host Attending
//	host → engine    exec of VerbPTY, with a terminal
//	terminal → host  Hello, on the terminal, which is raw
//	host → attendant the terminal's pid, from its Hello
//	host → terminal  TypePart…, TypeRequest, on the terminal, which is then cooked again
//	terminal → host  TypePong with TerminalStarted, or TypeFailed; by the attendant
//
// From then on the terminal is the command's alone. By the attendant the host sends
// TypePing, which is answered by a TypePong with the terminal's state, and TypeKill; the
// runner sends TypeExit at the command's end. When the attendant goes, whichever side
// has ended it, the command is killed.

// Attending is what an attendant says first, on its standard output.
const Attending = "attending\n"

// AppendTerminal appends what an attendant reads first, from its standard input: the
// pid of the terminal's runner.
func AppendTerminal(dst []byte, pid int) []byte {
	return append(strconv.AppendInt(dst, int64(pid), 10), '\n')
}

// maxPID is PID_MAX_LIMIT of the kernel.
const maxPID = 4 << 20

// ReadTerminal reads the pid of a terminal's runner, and nothing of what follows it.
func ReadTerminal(r io.Reader) (pid int, err error) {
	for one := make([]byte, 1); ; pid = pid*10 + int(one[0]-'0') {
		if _, err := io.ReadFull(r, one); err != nil {
			return 0, fmt.Errorf("no pid: %w", err)
		}
		switch {
		case one[0] == '\n' && pid > 1:
			return pid, nil
		case one[0] < '0' || one[0] > '9' || pid > maxPID:
			return 0, fmt.Errorf("%w: pid %d and %q", ErrFrame, pid, one)
		}
	}
}

// TerminalState is what a terminal's runner knows of its command.
type TerminalState byte

// States.
const (
	TerminalStarted TerminalState = 's' // the command has been started
	TerminalWaits   TerminalState = 'w' // it waits for input
	TerminalBusy    TerminalState = 'b' // it does not
	TerminalUnknown TerminalState = '?' // the container's kernel does not say
)

// Pong answers a Ping. A terminal's runner answers its Request with one too.
type Pong struct {
	State TerminalState // 0 from a runner that has no terminal
}

func (m *Pong) fields(c *codec) {
	if !c.reading && m.State != 0 || c.reading && len(c.b) > 0 {
		c.byte((*byte)(&m.State))
	}
}

// Append appends the message's encoding to dst.
func (m Pong) Append(dst []byte) []byte { return encode(dst, &m) }

// ParsePong decodes a Pong.
func ParsePong(b []byte) (m Pong, err error) {
	err = decode(b, &m)
	return m, err
}
