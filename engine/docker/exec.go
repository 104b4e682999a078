package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/versions"

	"github.com/sandboxbash/sandboxbash/engine"
)

// detachKeys end the input of an exec with a terminal, so they must never occur
// in it. Left empty, the engine would take Ctrl-P Ctrl-Q, and hold back every
// Ctrl-P until the next byte. It does hold back a Ctrl-^ (0x1e) at the end of
// what was written: no first key is free of that.
const detachKeys = "ctrl-^,ctrl-_,ctrl-],ctrl-^,ctrl-_,ctrl-],ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^,ctrl-_,ctrl-],ctrl-^,ctrl-],ctrl-_"

// OpenExec starts a process in a running container and attaches to it. ctx
// bounds only the opening: the stream lives until its Close, which does not end
// the process. ErrNotRunning: the container is stopped or paused.
func (c *Client) OpenExec(ctx context.Context, id ContainerID, want engine.Exec) (engine.Stream, error) {
	op := "open an exec in container " + string(id)
	ctx, cancel := bounded(ctx)
	defer cancel()
	opts := container.ExecOptions{
		User: want.User, Tty: want.TTY, Cmd: want.Args, WorkingDir: "/", DetachKeys: detachKeys,
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
	}
	if want.TTY && want.Rows > 0 && want.Cols > 0 {
		opts.ConsoleSize = &[2]uint{want.Rows, want.Cols}
	}
	made, err := c.api.ContainerExecCreate(ctx, string(id), opts)
	if err != nil {
		return nil, c.explain(ctx, id, fail(ctx, op, err))
	}
	s, err := c.attach(ctx, execID(made.ID), opts)
	if err != nil {
		return nil, c.explain(ctx, id, fail(ctx, op, err))
	}
	if opts.ConsoleSize != nil && versions.LessThan(c.api.ClientVersion(), "1.42") {
		c.resizeSoon(ctx, s.id, want)
	}
	return s, nil
}

// attach starts the exec over a connection of its own. The Docker client has
// such a call too, but that heeds neither ctx nor the status of a refusal.
func (c *Client) attach(ctx context.Context, id execID, opts container.ExecOptions) (*stream, error) {
	start := container.ExecStartOptions{Tty: opts.Tty, ConsoleSize: opts.ConsoleSize}
	if versions.LessThan(c.api.ClientVersion(), "1.42") {
		start.ConsoleSize = nil
	}
	body, err := json.Marshal(start)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodPost, "/exec/"+string(id)+"/start", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	conn, err := c.dialRaw(ctx)
	if err != nil {
		return nil, err
	}
	buf := bufio.NewReaderSize(conn, streamBuffer)
	if err := upgrade(ctx, conn, buf, req); err != nil {
		_ = conn.Close()
		return nil, err
	}
	framing := frames
	if opts.Tty {
		framing = plain
	}
	return &stream{demux: newDemux(buf, framing), client: c, conn: conn, id: id}, nil
}

// upgrade sends the request and reads the response's head; the stream follows it.
func upgrade(ctx context.Context, conn net.Conn, buf *bufio.Reader, req *http.Request) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	resp, err := exchange(conn, buf, req)
	if !stop() {
		return context.Cause(ctx) // and conn's deadline is spoilt
	}
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return statusError(resp)
	}
	return nil
}

func exchange(conn net.Conn, buf *bufio.Reader, req *http.Request) (*http.Response, error) {
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(buf, req)
}

// resizeSoon sets the size of a terminal on engines that do not accept it
// before the start. They refuse until the process runs, which is moments later.
// A terminal that keeps the engine's size is not a reason to give the exec up.
func (c *Client) resizeSoon(ctx context.Context, id execID, want engine.Exec) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for wait := 2 * time.Millisecond; ; wait *= 2 {
		err := c.resize(ctx, id, want.Rows, want.Cols)
		if err == nil || errors.Is(err, engine.ErrNotFound) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// resize sets the size of an exec's terminal.
func (c *Client) resize(ctx context.Context, id execID, rows, cols uint) error {
	op := "resize the terminal of exec " + string(id)
	ctx, cancel := bounded(ctx)
	defer cancel()
	return fail(ctx, op, c.api.ContainerExecResize(ctx, string(id), container.ResizeOptions{Height: rows, Width: cols}))
}

// execState is what the engine knows of an exec. Running is false and ExitCode
// nil both before the start and when the engine does not know: nil is unknown,
// never zero.
type execState struct {
	Running  bool
	ExitCode *int
	PID      int // on the engine's machine
}

// inspectExec says what the engine knows of an exec. It reads the engine's JSON
// itself: the Docker client turns an unknown exit code into 0.
func (c *Client) inspectExec(ctx context.Context, id execID) (execState, error) {
	op := "inspect exec " + string(id)
	text, err := ask(ctx, op, func(ctx context.Context) ([]byte, error) {
		return c.getRaw(ctx, "/exec/"+string(id)+"/json")
	})
	if err != nil {
		return execState{}, err
	}
	var found struct {
		Running  *bool
		ExitCode *int
		Pid      int
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return execState{}, fail(ctx, op, err)
	}
	if found.Running == nil {
		return execState{}, fail(ctx, op, errors.New("the engine's answer does not say whether it runs"))
	}
	out := execState{Running: *found.Running, ExitCode: found.ExitCode, PID: found.Pid}
	if out.Running {
		out.ExitCode = nil // Podman says 0 of a process that runs
	}
	return out, nil
}

// execID is the engine's name for an exec.
type execID string

// stream is an attached exec.
type stream struct {
	*demux
	client *Client
	conn   net.Conn
	id     execID
}

func (s *stream) Resize(ctx context.Context, rows, cols uint) error {
	return s.client.resize(ctx, s.id, rows, cols)
}

// exitPoll is the time between two questions whether the engine has noted an end. As a
// rule it has within a few milliseconds.
const exitPoll = 10 * time.Millisecond

func (s *stream) ExitCode(ctx context.Context) (int, error) {
	for {
		state, err := s.client.inspectExec(ctx, s.id)
		if err != nil {
			return 0, err
		}
		if !state.Running && state.ExitCode != nil {
			return *state.ExitCode, nil
		}
		select {
		case <-time.After(exitPoll):
		case <-ctx.Done():
			return 0, fail(ctx, "exit code of exec "+string(s.id), errors.New("the engine did not report the exit code"))
		}
	}
}

// Write feeds the standard input.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.conn.Write(p)
	if err != nil {
		err = &engine.Error{Op: "write to exec " + string(s.id), Err: err}
	}
	return n, err
}

// Read gives standard output; io.EOF at its end, bare as io.Reader wants it.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.demux.Read(p)
	return n, s.place(err)
}

// WriteTo copies standard output to w until it ends. It is what io.Copy uses.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	n, err := s.demux.WriteTo(w)
	return n, s.place(err)
}

func (s *stream) place(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("read from exec %s: %w", s.id, err)
}

// CloseWrite ends the standard input.
func (s *stream) CloseWrite() error {
	half, ok := s.conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("end the input of exec %s: a %T cannot be closed for writing alone", s.id, s.conn)
	}
	return half.CloseWrite()
}

// Close ends the connection and unblocks Read and Write. It may be called again.
func (s *stream) Close() error {
	if err := s.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
