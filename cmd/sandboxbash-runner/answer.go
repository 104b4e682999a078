//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/sandboxbash/sandboxbash/internal/runner/jobs"
	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// An answer is what the runner says to a Request for one of its own verbs that needs no
// process: the runner computes it itself. It works in a session that is at its pids
// limit, and costs the session nothing to start. The host cannot tell it from the output
// of a process, so hosts and runners of other versions agree.
type answer func(ctx context.Context, in io.Reader, out io.Writer) error

// answerTo returns the answer to a request, or nil if the request is for a process.
func answerTo(req *wire.Request) answer {
	if req.Path != wire.RunnerPath || len(req.Args) != 1 {
		return nil
	}
	switch verb := wire.Verb(req.Args[0]); {
	case verb == wire.VerbJobs && req.UID == 0: // the directory is uid 0's
		return answerJobs
	case verb == wire.VerbPS:
		return func(_ context.Context, _ io.Reader, out io.Writer) error { return proc.WriteList(out, req.UID) }
	case verb == wire.VerbPorts:
		return func(_ context.Context, _ io.Reader, out io.Writer) error { return proc.WritePorts(out, req.UID) }
	default:
		return nil
	}
}

// maxQuery bounds an encoded wire.JobQuery in bytes.
const maxQuery = 16 << 10

// answerJobs answers one question about the jobs of the session.
func answerJobs(ctx context.Context, in io.Reader, out io.Writer) error {
	b, err := io.ReadAll(io.LimitReader(in, maxQuery))
	if err != nil {
		return err
	}
	q, err := wire.ParseJobQuery(b)
	if err != nil {
		return err
	}
	return jobs.Dir(wire.JobsDir).Answer(ctx, q, out)
}

// answer sends the answer to the request as its output, and then its Exit. The end of the
// context is a kill.
func (c *command) answer(ctx context.Context, answer answer) {
	defer c.quit()
	in, w, err := os.Pipe()
	if err != nil {
		c.fail(failedErrno(err))
		return
	}
	c.stdin.w = w
	if c.req.Stdin {
		// A kill ends the wait for input.
		unhook := context.AfterFunc(ctx, c.stdin.close)
		defer unhook()
		go c.stdin.pump() // until the pipe is closed, or the input has ended
	} else {
		c.stdin.close()
	}
	out := answerWriter{out: c.server.out}
	err = answer(ctx, in, &out)
	c.stdin.end()
	in.Close()

	exit := wire.Exit{Seq: c.req.Seq, Stdout: out.sent}
	switch {
	case ctx.Err() != nil:
		exit.Rung = wire.RungTerm
	case err != nil:
		text := fmt.Sprintf("runner %s: %v\n", c.req.Args[0], err)
		c.server.out.send(wire.TypeStderr, []byte(text))
		exit.Code, exit.Stderr = 1, uint64(len(text))
	}
	close(c.ended)
	close(c.alone)
	c.conclude(wire.TypeExit, exit.Append(nil))
}

// answerWriter sends what is written to it as standard output.
type answerWriter struct {
	out  *frameWriter
	sent uint64 // bytes
}

// Write never fails: the end of the host is seen by the reader of its frames.
func (w *answerWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part := rest[:min(len(rest), wire.MaxPayload)]
		rest = rest[len(part):]
		w.out.send(wire.TypeStdout, part)
	}
	w.sent += uint64(len(p))
	return len(p), nil
}
