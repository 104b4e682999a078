package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// maxHelperOutput is the longest answer that a verb of the runner may give.
const maxHelperOutput = 4 << 20 // bytes

// helperTime bounds the run of a verb that transfers no files.
const helperTime = 10 * time.Second

// helper runs a verb of the runner as the session's user. args are a wire.Verb's
// Command.
func (s *Session) helper(ctx context.Context, args []string) ([]byte, error) {
	var out bytes.Buffer
	err := s.withSpare(ctx, func() error {
		out.Reset()
		return s.helperTo(ctx, helperStreams{out: &limited{w: &out, left: maxHelperOutput}, timeout: helperTime}, args)
	})
	return out.Bytes(), err
}

type helperStreams struct {
	in      io.Reader
	out     io.Writer
	timeout time.Duration
	// passive has the verb fail in a session that has no room for it, instead of killing what
	// commands have left there.
	passive bool
	// run runs the verb. If it is nil, the verb waits in the queue with the session's commands.
	run runFunc
}

// runFunc runs a command.
type runFunc func(context.Context, exec.Command) (exec.Status, error)

// helperTo runs a verb of the runner with streams of its own.
func (s *Session) helperTo(ctx context.Context, streams helperStreams, args []string) error {
	return s.helperAs(ctx, s.info.labels.User, streams, args)
}

// helperAs runs a verb of the runner as another user. uid 0 is for what commands may not
// do.
func (s *Session) helperAs(ctx context.Context, user User, streams helperStreams, args []string) error {
	var stderr tail
	l := s.info.labels
	if streams.out == nil {
		streams.out = io.Discard
	}
	command := exec.Command{
		Path: engine.RunnerPath, Args: args, Env: l.environment(), Dir: "/",
		UID: user.UID, GID: user.GID, Stdin: streams.in, Stdout: streams.out, Stderr: &stderr, Timeout: streams.timeout,
	}
	run := streams.run
	if run == nil {
		run = s.pool.Run
	}
	st, err := run(ctx, command)
	if err != nil && !streams.passive && s.makeRoom(ctx, err) {
		// The command has not started, and so nothing has read its stdin: see exec.Command.
		st, err = run(ctx, command)
	}
	e, _ := errors.AsType[*exec.Error](err)
	switch {
	case e != nil && e.Cause == exec.CauseEngine:
		return s.diagnose(ctx, e)
	case err != nil:
		return err
	case st.Reason != exec.Exited:
		return fmt.Errorf("runner %s: %s", args[0], st.Reason)
	case st.Code == runtimeAbort:
		// The Go runtime could not start a thread. What it prints then is not for people.
		return &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseResources, Err: fullError{errors.New(stderr.String())}}
	case st.Code == wire.ExitUsage:
		return errOlder
	case st.Code == wire.ExitNoInput:
		return missingError{strings.TrimSpace(stderr.String())}
	case st.Code != 0:
		return errors.New(strings.TrimSpace(stderr.String()))
	case st.Write != nil:
		return st.Write
	}
	return nil
}

// errOlder is the error of a verb that the session's runner does not know.
var errOlder = errors.New("the session was started by an earlier version, which cannot do this; it can be pulled from")

// missingError reports, with the runner's text, that a path does not exist.
type missingError struct{ text string }

func (e missingError) Error() string { return e.text }

// runtimeAbort is the exit code of a Go program that was ended by the Go runtime.
const runtimeAbort = 2

// limited is a writer that fails once more than left bytes are written.
type limited struct {
	w    io.Writer
	left int64 // bytes
}

// errTooMuch is the error of a limited writer.
var errTooMuch = errors.New("more than the limit")

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errTooMuch
	}
	return l.w.Write(p)
}

// tail keeps the last bytes of an error message.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4 << 10 // bytes
	t.b = append(t.b, p...)
	if len(t.b) > keep {
		t.b = t.b[len(t.b)-keep:]
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.b) }
