package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// server is a running `serve rpc` and a client of it. It is safe for concurrent
// use.
type server struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer // to be read when it has ended
	done   chan struct{}

	mu      sync.Mutex
	last    int                    // guarded by mu; id of a request
	waiting map[int]chan<- message // guarded by mu; until they are answered
	double  []string               // guarded by mu; answers that no call waited for
	ended   error                  // guarded by mu; set before done is closed
}

type message struct {
	ID     *int
	Method string
	Result json.RawMessage
	Error  *rpcError
}

type rpcError struct {
	Code    int
	Message string
	Data    struct{ Kind, Cause string }
}

func (e *rpcError) Error() string {
	return fmt.Sprintf("%s{%s}: %s", e.Data.Kind, e.Data.Cause, e.Message)
}

// kind returns the outcome and, if there is one, the cause.
func (e *rpcError) kind() string {
	if e.Data.Cause == "" {
		return e.Data.Kind
	}
	return e.Data.Kind + "{" + e.Data.Cause + "}"
}

var errServerEnded = errors.New("the server has ended")

// serve starts a server with contract agent, whose details say how a command ended. close or
// kill ends the server; the end of ctx does not.
func (l *lab) serve(ctx context.Context, env ...string) (*server, error) {
	s := &server{waiting: map[int]chan<- message{}, done: make(chan struct{})}
	s.cmd = l.command(context.WithoutCancel(ctx), "serve", "rpc", "--contract", "agent")
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stderr = &s.stderr
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go s.read(stdout)
	if err := s.call(ctx, "initialize", map[string]any{"protocol": "1"}, nil); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// read passes each answer to the call that waits for it.
func (s *server) read(stdout io.Reader) {
	defer close(s.done)
	in := bufio.NewReaderSize(stdout, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			s.mu.Lock()
			s.ended = errServerEnded
			s.mu.Unlock()
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			s.odd("no message: " + cut(string(line)))
			continue
		}
		if m.ID == nil {
			continue // a notification
		}
		s.mu.Lock()
		answer, known := s.waiting[*m.ID]
		delete(s.waiting, *m.ID)
		s.mu.Unlock()
		if !known {
			s.odd(fmt.Sprintf("an answer to %d, which was not asked, or a second one", *m.ID))
			continue
		}
		answer <- m
	}
}

func (s *server) odd(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.double = append(s.double, text)
}

// odds returns the messages that should not have come.
func (s *server) odds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.double
}

// send sends a request. It returns its id and the channel on which the answer comes.
func (s *server) send(method string, params any) (int, <-chan message, error) {
	answer := make(chan message, 1)
	s.mu.Lock()
	defer s.mu.Unlock() // lines must not mix; the server always reads
	s.last++
	id := s.last
	s.waiting[id] = answer
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err == nil {
		_, err = s.stdin.Write(append(line, '\n'))
	}
	return id, answer, err
}

func (s *server) cancel(id int) error {
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": map[string]any{"id": id}})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.stdin.Write(append(line, '\n'))
	return err
}

// wait waits for an answer.
func (s *server) wait(ctx context.Context, answer <-chan message, into any) error {
	var m message
	select {
	case m = <-answer:
	case <-s.done:
		select {
		case m = <-answer:
		default:
			return errServerEnded
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.Error != nil {
		return m.Error
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(m.Result, into)
}

func (s *server) call(ctx context.Context, method string, params, into any) error {
	_, answer, err := s.send(method, params)
	if err != nil {
		return err
	}
	return s.wait(ctx, answer, into)
}

// toolResult is the result of a command under contract agent.
type toolResult struct {
	Text    string
	IsError bool
	Thrown  string
	Details struct {
		ExitCode *int
		Reason   string
		Run      struct{ Killed string }
	}
}

// startSession starts a session that the server owns.
func (s *server) startSession(ctx context.Context) (*session, error) {
	var made struct{ ID, Container string }
	err := s.call(ctx, "session/start", map[string]any{}, &made)
	return &session{id: made.ID, container: made.Container}, err
}

// bash runs a command of the user, which has no timeout.
func (s *server) bash(ctx context.Context, session, command string) (toolResult, error) {
	var r toolResult
	err := s.call(ctx, "bash", map[string]any{"session": session, "command": command}, &r)
	return r, err
}

// close ends the server's input and waits for the server to end. It kills a server that takes
// too long.
func (s *server) close() error {
	_ = s.stdin.Close()
	const patience = 30 * time.Second
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	<-s.done
	err := s.cmd.Wait()
	if !late.Stop() {
		return fmt.Errorf("the server did not end within %s of its input", patience)
	}
	if err != nil {
		err = fmt.Errorf("the server: %w: %s", err, cut(strings.TrimSpace(s.stderr.String())))
	}
	return err
}

// kill ends the server with SIGKILL, like a crash.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
	_ = s.cmd.Wait()
	_ = s.stdin.Close()
}
