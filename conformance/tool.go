package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// kept is how much of a stream is kept as text. Hash and size are those of the whole stream.
	kept = 4 << 20
	// drain is how long the streams of a tool are read after its own end if a process that it has left
	// holds them. Such a process is not a fault of the tool, and its later output is not part of the answer.
	drain = time.Second
	// housekeeping bounds calls other than commands: starting and stopping a session, listing things.
	housekeeping = 2 * time.Minute
)

// call is one invocation of a tool.
type call struct {
	argv    []string
	environ map[string]string // besides the kit's own
	stdin   io.Reader         // nil: the null device
	bound   time.Duration     // it is killed then, with its process group, and late
	abort   time.Duration     // SIGINT to its group after that, as Ctrl-C gives it; 0: never
	kill    time.Duration     // SIGKILL after that; 0: never
	unread  time.Duration     // its standard output is not read before
	typed   []Keys            // not nil: on a terminal
}

// answer is the result of a call.
type answer struct {
	code    int // 128 + n where signal n ended the tool, as a shell has it
	reason  string
	stdout  []byte // the first kept bytes
	stderr  []byte
	size    int64  // of stdout
	sum     string // sha256 of stdout, in hexadecimal
	elapsed time.Duration
	late    bool  // it had not ended by call.bound
	secret  bool  // what it printed is not to be shown
	problem error // why there is no answer: the program cannot be started, the terminal shows no such text
}

// stream keeps the start of what is written, and hashes all of it. It is safe for concurrent use.
type stream struct {
	unread <-chan struct{} // writes wait for it; nil: they do not

	mu   sync.Mutex
	head []byte    // guarded by mu
	hash hash.Hash // guarded by mu
	size int64     // guarded by mu
}

func newStream() *stream { return &stream{hash: sha256.New()} }

func (s *stream) Write(p []byte) (int, error) {
	if s.unread != nil {
		<-s.unread
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hash.Write(p)
	s.size += int64(len(p))
	s.head = append(s.head, p[:min(len(p), kept-len(s.head))]...)
	return len(p), nil
}

func (s *stream) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.head)
}

// do makes a call and waits for its end. It takes at most the bound, plus a little time to kill the tool.
func do(ctx context.Context, c call) answer {
	if len(c.argv) == 0 {
		return answer{problem: errors.New("the template is empty")}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.bound, errLate)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = environ(c.environ)
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	cmd.WaitDelay = drain
	if c.typed != nil {
		return onTerminal(ctx, cmd, c)
	}
	ownGroup(cmd)
	cmd.Stdin = c.stdin
	stdout, stderr := newStream(), newStream()
	read := func() {}
	if c.unread > 0 {
		open := make(chan struct{})
		stdout.unread, read = open, sync.OnceFunc(func() { close(open) })
		defer time.AfterFunc(c.unread, read).Stop()
	}
	out, err := copyTo(stdout)
	if err != nil {
		return answer{problem: err}
	}
	errOut, err := copyTo(stderr)
	if err != nil {
		out.finish()
		return answer{problem: err}
	}
	cmd.Stdout, cmd.Stderr = out.to, errOut.to
	begin := time.Now()
	a := answer{}
	if err = cmd.Start(); err != nil {
		a.problem = err
	} else {
		stop := c.interrupt(cmd.Process)
		err = cmd.Wait()
		stop()
		a = ended(ctx, cmd, err, time.Since(begin))
		if errors.Is(err, exec.ErrWaitDelay) { // a process holds its standard input
			a.elapsed -= drain
		}
	}
	read()
	out.finish()
	errOut.finish()
	a.take(stdout, stderr)
	return a
}

// copier copies what a tool writes to a pipe.
type copier struct {
	from, to *os.File
	stream   *stream
	done     chan struct{}
}

func copyTo(s *stream) (*copier, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &copier{from: r, to: w, stream: s, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		_, _ = io.Copy(s, r) // up to its end, or to the deadline of finish
	}()
	return c, nil
}

// finish is called when the tool has ended. The tool's own output is in the pipe by then, and is read
// however long that takes. If a process still holds the pipe, its output is read for a little longer.
func (c *copier) finish() {
	c.to.Close()
	_ = c.from.SetReadDeadline(time.Now().Add(drain)) // without deadlines, wait for the end of the pipe
	<-c.done
	_ = c.from.SetReadDeadline(time.Time{})
	readRest(c.from, c.stream)
	c.from.Close()
}

var errLate = errors.New("the bound of the kit is over")

// interrupt sends the call's signals at their times. The function that it returns cancels them.
func (c call) interrupt(p *os.Process) (stop func()) {
	var timers []*time.Timer
	if c.abort > 0 {
		timers = append(timers, time.AfterFunc(c.abort, func() { _ = interruptGroup(p) }))
	}
	if c.kill > 0 {
		timers = append(timers, time.AfterFunc(c.kill, func() { _ = p.Kill() }))
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// ended returns an answer that says how a tool ended.
func ended(ctx context.Context, cmd *exec.Cmd, err error, elapsed time.Duration) answer {
	a := answer{elapsed: elapsed, late: errors.Is(context.Cause(ctx), errLate)}
	if cmd.ProcessState == nil {
		a.problem = err
		return a
	}
	a.code = exitCode(cmd.ProcessState)
	return a
}

func (a *answer) take(stdout, stderr *stream) {
	a.stdout, a.stderr = stdout.bytes(), stderr.bytes()
	stdout.mu.Lock()
	defer stdout.mu.Unlock()
	a.size, a.sum = stdout.size, hex.EncodeToString(stdout.hash.Sum(nil))
}

// environ returns the environment of this process and more.
func environ(more map[string]string) []string {
	env := os.Environ()
	for _, k := range slices.Sorted(maps.Keys(more)) {
		env = append(env, k+"="+more[k])
	}
	return env
}

// seen describes an answer in one line.
func (a answer) seen() string {
	var parts []string
	switch {
	case a.problem != nil:
		return a.problem.Error()
	case a.late:
		parts = append(parts, "no end")
	default:
		parts = append(parts, fmt.Sprintf("exit %d", a.code))
	}
	if a.reason != "" {
		parts = append(parts, "reason "+a.reason)
	}
	parts = append(parts, "after "+a.elapsed.Round(10*time.Millisecond).String())
	if a.secret {
		return strings.Join(append(parts, "output that is not shown here"), ", ")
	}
	if a.size > int64(len(a.stdout)) {
		parts = append(parts, fmt.Sprintf("stdout of %d bytes", a.size))
	} else if len(a.stdout) > 0 {
		parts = append(parts, "stdout "+brief(a.stdout))
	}
	if len(bytes.TrimSpace(a.stderr)) > 0 {
		parts = append(parts, "stderr "+brief(a.stderr))
	}
	return strings.Join(parts, ", ")
}

// brief quotes the start and the end of a text.
func brief(b []byte) string {
	const each = 70
	if len(b) <= 2*each {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%q…%q (%d bytes)", b[:each], b[len(b)-each:], len(b))
}
