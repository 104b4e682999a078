package exec

import (
	"context"
	"fmt"
	"io"

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// Terminal is a command that runs on a terminal of its own: an exec whose
// process is `runner pty`. Read gives what the terminal shows, Write types into
// it. Read and Write may be called concurrently with each other and with
// everything else; Read returns io.EOF when the terminal is gone. How the
// command ended is for the engine to say, not for anything that Read returns.
type Terminal struct {
	stream io.ReadWriteCloser
	pid    int
}

// OpenTerminal sends c over a terminal's stream and returns when the command is
// about to start. It closes stream if that fails. Of c it takes no streams, no
// Timeout and no Grace.
func OpenTerminal(ctx context.Context, stream io.ReadWriteCloser, c Command) (*Terminal, error) {
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	t, err := shakeTerminal(stream, c)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stream.Close()
		return nil, runnerError(stream, err)
	}
	return t, nil
}

func shakeTerminal(stream io.ReadWriteCloser, c Command) (*Terminal, error) {
	frame, err := readFrame(stream)
	if err != nil {
		return nil, fmt.Errorf("no greeting: %w", err)
	}
	if frame.kind != wire.TypeHello {
		return nil, fmt.Errorf("%w: greeting of type %q", wire.ErrFrame, frame.kind)
	}
	hello, err := wire.ParseHello(frame.payload)
	if err != nil {
		return nil, err
	}
	if hello.Version != wire.Version {
		return nil, fmt.Errorf("%w: it speaks version %d, this host %d", wire.ErrFrame, hello.Version, wire.Version)
	}
	req := wire.Request{
		Seq: 1, Path: c.Path, Shell: c.Shell, Script: []byte(c.Script), Args: c.Args,
		Env: c.Env, Dir: c.Dir, UID: c.UID, GID: c.GID, Exclusive: c.Exclusive,
	}
	r := Runner{stream: stream} // for its sending only
	if err := r.sendRequest(req.Append(nil)); err != nil {
		return nil, err
	}
	frame, err = readFrame(stream)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if frame.kind != wire.TypePong {
		return nil, fmt.Errorf("%w: answer of type %q", wire.ErrFrame, frame.kind)
	}
	return &Terminal{stream: stream, pid: hello.PID}, nil
}

type frame struct {
	kind    wire.Type
	payload []byte
}

// maxGreeting bounds what a terminal's runner says before the command's own
// output.
const maxGreeting = 4 << 10 // bytes

// readFrame reads one small frame and not a byte more: what follows may be the
// command's.
func readFrame(src io.Reader) (frame, error) {
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(src, head); err != nil {
		return frame{}, err
	}
	kind, size := wire.ParseHeader(head)
	if size > maxGreeting {
		return frame{}, fmt.Errorf("%w: %d bytes", wire.ErrFrame, size)
	}
	payload := make([]byte, size)
	_, err := io.ReadFull(src, payload)
	return frame{kind: kind, payload: payload}, err
}

// PID is the terminal's runner in the container: to end its command.
func (t *Terminal) PID() int { return t.pid }

func (t *Terminal) Read(p []byte) (int, error)  { return t.stream.Read(p) }
func (t *Terminal) Write(p []byte) (int, error) { return t.stream.Write(p) }

// Close lets go of the terminal. It does not end the command.
func (t *Terminal) Close() error { return t.stream.Close() }
