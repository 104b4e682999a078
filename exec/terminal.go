package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Terminal is a command that runs on a terminal of its own: an exec whose process is
// `runner pty`. Read returns what the terminal shows, and Write types into it. Both may be
// called concurrently with each other and with all other methods.
//
// A terminal has a single stream, for the command's own bytes. Whatever else host and
// runner say to each other goes through an attendant: the standard streams of
// `runner attend`, which another runner runs as a command. The command on the terminal
// ends when its attendant does. The order of the turns is in wire's terminal.go:
//
//	AwaitAttendant  waits for the attendant's greeting
//	GreetTerminal   waits for Hello, on the terminal
//	Start           names the terminal to the attendant, sends the request on the
//	                terminal, and waits for the answer by the attendant
//	Wait            waits for Exit, by the attendant; kills when its ctx ends
type Terminal struct {
	stream  io.ReadWriteCloser
	pid     int
	version uint64 // of the protocol, as its runner speaks it
	start   time.Time

	attendant io.ReadWriteCloser
	writing   sync.Mutex // one frame at a time
	asking    sync.Mutex // one question at a time
	answers   chan wire.TerminalState
	ended     chan struct{} // closed when the attendant's stream has ended
	exit      *wire.Exit    // nil if none came; set before ended is closed
}

// GreetTerminal waits until the runner at the other end of stream is ready for its command,
// and returns the Terminal. It closes stream if that fails.
func GreetTerminal(ctx context.Context, stream io.ReadWriteCloser) (*Terminal, error) {
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	hello, err := greet(stream)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stream.Close()
		return nil, runnerError(stream, err)
	}
	return &Terminal{stream: stream, pid: hello.PID, version: hello.Version, answers: make(chan wire.TerminalState, 1), ended: make(chan struct{})}, nil
}

func greet(stream io.Reader) (wire.Hello, error) {
	var seen bytes.Buffer
	kind, payload, err := readFrame(io.TeeReader(stream, &seen))
	if errors.Is(err, wire.ErrFrame) { // not a runner, but the engine's words instead
		more := make([]byte, maxShown)
		n, _ := stream.Read(more)
		return wire.Hello{}, fmt.Errorf("no greeting, but %q", append(seen.Bytes(), more[:n]...))
	}
	if err != nil {
		return wire.Hello{}, fmt.Errorf("no greeting: %w", err)
	}
	if kind != wire.TypeHello {
		return wire.Hello{}, fmt.Errorf("%w: greeting of type %q", wire.ErrFrame, kind)
	}
	hello, err := wire.ParseHello(payload)
	if err == nil {
		err = hello.Known()
	}
	return hello, err
}

// maxGreeting bounds a frame from a terminal's runner or its attendant.
const maxGreeting = 4 << 10 // bytes

// readFrame reads one small frame and not a byte more, because what follows may be output of
// the command.
func readFrame(src io.Reader) (wire.Type, []byte, error) {
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(src, head); err != nil {
		return 0, nil, err
	}
	kind, size := wire.ParseHeader(head)
	if size > maxGreeting {
		return 0, nil, fmt.Errorf("%w: %d bytes", wire.ErrFrame, size)
	}
	payload := make([]byte, size)
	_, err := io.ReadFull(src, payload)
	return kind, payload, err
}

// AwaitAttendant waits for the greeting of an attendant, whose standard streams are
// attendant. It closes attendant if that fails.
func AwaitAttendant(ctx context.Context, attendant io.ReadWriteCloser) error {
	stop := context.AfterFunc(ctx, func() { attendant.Close() })
	said := make([]byte, len(wire.Attending))
	_, err := io.ReadFull(attendant, said)
	if err == nil && string(said) != wire.Attending {
		err = fmt.Errorf("%w: the attendant said %q", wire.ErrFrame, said)
	}
	if !stop() {
		err = &Error{Outcome: NotStarted, Cause: CauseCancelled, Err: context.Cause(ctx)}
	}
	if err == nil {
		return nil
	}
	attendant.Close()
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return runnerError(attendant, err)
}

// Start starts the command and returns when it has started. The error is an *Error.
// AwaitAttendant must have been called before. Start does not use the streams, the Timeout
// and the Grace of c. The Terminal owns attendant and closes it, whatever Start returns.
func (t *Terminal) Start(ctx context.Context, attendant io.ReadWriteCloser, c Command) error {
	t.attendant = attendant
	stop := context.AfterFunc(ctx, t.Close)
	err := t.shake(c)
	if !stop() {
		err = &Error{Outcome: NotStarted, Cause: CauseCancelled, Err: context.Cause(ctx)}
	}
	if err != nil {
		t.Close()
		if e, ok := errors.AsType[*Error](err); ok {
			return e
		}
		return runnerError(t.stream, err)
	}
	t.start = time.Now()
	go t.listen() // closes ended
	return nil
}

func (t *Terminal) shake(c Command) error {
	if _, err := t.attendant.Write(wire.AppendTerminal(nil, t.pid)); err != nil {
		return err
	}
	req := wire.Request{
		Seq: terminalSeq, Path: c.Path, Shell: c.Shell, Script: []byte(c.Script), Args: c.Args,
		Env: c.Env, Dir: c.Dir, UID: c.UID, GID: c.GID, Exclusive: c.Exclusive, Watch: c.Watch,
	}
	r := Runner{stream: t.stream} // for its sending only
	if err := r.sendRequest(req.AppendFor(t.version, nil)); err != nil {
		return err
	}
	kind, payload, err := readFrame(t.attendant)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	switch kind { //nolint:exhaustive // nothing else is an answer
	case wire.TypePong:
		return nil
	case wire.TypeFailed:
		failed, err := wire.ParseFailed(payload)
		if err != nil {
			return err
		}
		return failure(failed)
	}
	return fmt.Errorf("%w: answer of type %q", wire.ErrFrame, kind)
}

// terminalSeq is the number of a terminal's only command.
const terminalSeq = 1

// listen takes the attendant's frames until its stream ends.
func (t *Terminal) listen() {
	defer close(t.ended)
	for {
		kind, payload, err := readFrame(t.attendant)
		if err != nil {
			return
		}
		switch kind { //nolint:exhaustive // other frames mean nothing here
		case wire.TypePong:
			pong, err := wire.ParsePong(payload)
			if err != nil || pong.State == 0 {
				continue
			}
			select {
			case t.answers <- pong.State:
			default: // the question was given up
			}
		case wire.TypeExit:
			if exit, err := wire.ParseExit(payload); err == nil && exit.Seq == terminalSeq {
				t.exit = &exit
			}
			return
		}
	}
}

func (t *Terminal) tell(kind wire.Type, payload []byte) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	_, err := t.attendant.Write(wire.AppendFrame(nil, kind, payload))
	return err
}

// WaitsForInput asks whether the command waits for input from its terminal at this moment.
// An error means that the command or ctx has ended.
func (t *Terminal) WaitsForInput(ctx context.Context) (wire.TerminalState, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	select {
	case <-t.answers: // of a question that was given up
	default:
	}
	if err := t.tell(wire.TypePing, nil); err != nil {
		return 0, err
	}
	select {
	case answer := <-t.answers:
		return answer, nil
	case <-t.ended:
		return 0, io.EOF
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Wait waits for the command to end. When ctx ends the command is killed, the cause of ctx
// determines the Reason, and Wait returns within grace plus 2.5 s. An error is an *Error. The
// exit code in the Status is the one that the runner reports; the caller should compare it
// with the engine's.
func (t *Terminal) Wait(ctx context.Context, grace time.Duration) (Status, error) {
	select {
	case <-t.ended:
		return t.status(ctx)
	case <-ctx.Done():
	}
	if grace <= 0 {
		grace = DefaultGrace
	}
	kill := wire.Kill{Seq: terminalSeq, Grace: grace}
	// A stuck engine may not take it: the goroutine ends with the attendant.
	go func() { _ = t.tell(wire.TypeKill, kill.AppendFor(t.version, nil)) }()
	top := time.NewTimer(grace + sweepTime)
	defer top.Stop()
	select {
	case <-t.ended:
		return t.status(ctx)
	case <-top.C:
		return Status{}, &Error{Outcome: Unknown, Cause: CauseUnconfirmed, Err: fmt.Errorf(
			"%w, and the runner did not confirm the kill within %s", context.Cause(ctx), grace+sweepTime)}
	}
}

func (t *Terminal) status(ctx context.Context) (Status, error) {
	if t.exit == nil {
		return Status{}, &Error{Outcome: Unknown, Cause: CauseRunnerLost, Err: errors.New("the terminal's runner or its attendant has ended")}
	}
	if err := unproved(*t.exit); err != nil {
		return Status{}, err
	}
	st := status(ctx, *t.exit)
	st.Elapsed = time.Since(t.start)
	return st, nil
}

func (t *Terminal) Read(p []byte) (int, error)  { return t.stream.Read(p) }
func (t *Terminal) Write(p []byte) (int, error) { return t.stream.Write(p) }

// Close closes the terminal and its attendant, which ends the command. It may be called more
// than once.
func (t *Terminal) Close() {
	t.stream.Close()
	if t.attendant != nil {
		t.attendant.Close()
	}
}
