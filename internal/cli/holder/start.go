package holder

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// A Starter is the starter's end of a holder that is being started.
type Starter struct {
	command string // for errors
	in, out *os.File
}

// holderEnv are the variables in a holder's environment. It reads all others from its standard
// input, because other processes of this user can read its environment. The last two are read
// by package crypto/x509, and name what hosts are verified with.
var holderEnv = []string{"PATH", "HOME", "TMPDIR", "XDG_STATE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// Start starts this program with args as a holder, which outlives this process, and writes
// handover to the holder's standard input, as a line of JSON. Nothing of the handover is in the
// holder's arguments or in its environment. The caller must call Close. The holder of a terminal
// ends then, unless Release was called before.
func Start(ctx context.Context, getenv func(string) string, handover any, args ...string) (*Starter, error) {
	line, err := json.Marshal(handover)
	if err != nil {
		return nil, err
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer theirOut.Close()
	s := &Starter{command: strings.Join(args, " "), in: in, out: out}
	cmd := detached(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Env = theirIn, theirOut, []string{}
	for _, name := range holderEnv {
		if v := getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	if err := cmd.Start(); err != nil {
		s.Close()
		return nil, err
	}
	_ = cmd.Process.Release() // never fails; the process that adopts it waits for it
	_ = theirIn.Close()       // so that a write fails once the holder has ended
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	if _, err := in.Write(append(line, '\n')); err != nil {
		defer s.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, s.errEnded()
	}
	return s, nil
}

// lastWord is how long a holder has to end once its starter has given up.
const lastWord = 10 * time.Second

// Answer waits for the holder's answer, and reads it into v. When ctx ends, Answer closes the
// holder's standard input, so that the holder gives up, and waits for lastWord at most.
func (s *Starter) Answer(ctx context.Context, v any) error {
	stop := context.AfterFunc(ctx, func() { _, _ = s.in.Close(), s.out.SetReadDeadline(time.Now().Add(lastWord)) })
	defer stop()
	err := ReadLine(bufio.NewReader(s.out), v)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return s.errEnded()
	}
	return nil
}

func (s *Starter) errEnded() error {
	return &exec.Error{Outcome: exec.NotStarted, Cause: CauseHolder, Err: fmt.Errorf("the process `sandboxbash %s` has ended without an answer", s.command)}
}

// Release tells the holder that its starter has read the answer, and leaves it to itself.
func (s *Starter) Release() error {
	_, err := s.in.Write([]byte{'\n'})
	return err
}

// Close ends the conversation with the holder. It may be called after Answer has failed.
func (s *Starter) Close() {
	_ = s.in.Close() // it may be closed already
	_ = s.out.Close()
}

// networkStart bounds the start of a holder: it finds the engine and starts a runner.
const networkStart = time.Minute

// StartNetwork starts the holder of a session's network, unless another call has done so
// meanwhile, and returns the holder's notes.
func StartNetwork(ctx context.Context, env Environment, session string, h NetworkHandover) ([]string, error) {
	dir, err := NetworkDir(env)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "start.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := filelock.Lock(lock); err != nil { // for as long as another start takes
		return nil, err
	}
	c, err := DialNetwork(ctx, dir, session)
	switch {
	case err == nil:
		return nil, c.Close()
	case !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrKilled):
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, NetworkSocket(session)+SocketSuffix)) // of one that was killed
	ctx, cancel := context.WithTimeoutCause(ctx, networkStart, errSilent(session))
	defer cancel()
	started, err := Start(ctx, env.Getenv, h, "session", "hold", session)
	if err != nil {
		return nil, err
	}
	defer started.Close()
	var answer Answer
	if err := started.Answer(ctx, &answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return answer.Notes, answer.Error
	}
	return answer.Notes, nil
}
