package clitest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Memory is the program over an engine in memory. In its sessions Answer plays the runner.
type Memory struct {
	*enginetest.Engine

	// Answer says what a command, or a verb of the runner, writes and how it ends, once it has all
	// of its input. It may be called concurrently; nil: nothing, and with exit code 0.
	Answer Answer
	// Environ are the environment variables of each call.
	Environ []string

	t *testing.T
}

// Answer plays a command or a verb of the runner.
type Answer func(req wire.Request, input []byte) (stdout, stderr []byte, end wire.Exit)

// On is an Answer for one verb of the runner, with a text. Everything else writes nothing.
func On(verb wire.Verb, text []byte) Answer {
	return func(req wire.Request, _ []byte) (stdout, stderr []byte, end wire.Exit) {
		if req.Path != "" && req.Args[0] == string(verb) {
			return text, nil, wire.Exit{}
		}
		return nil, nil, wire.Exit{}
	}
}

// Key returns what the records of jobs of a session are sealed with.
func (m *Memory) Key(id string) []byte {
	m.t.Helper()
	s, err := m.Find(m.t.Context(), id)
	if err != nil {
		m.t.Fatal(err)
	}
	key, err := hex.DecodeString(s.Labels["sandboxbash.jobkey"])
	if err != nil || len(key) == 0 {
		m.t.Fatalf("session %s has no key: %v", id, err)
	}
	return key
}

// NewMemory returns a program whose engine has no sessions.
func NewMemory(t *testing.T) *Memory {
	t.Helper()
	m := &Memory{Engine: enginetest.New(), t: t, Environ: []string{"HOME=" + t.TempDir()}}
	m.Serve = m.serve
	return m
}

// Call runs a command line with an empty input.
func (m *Memory) Call(args ...string) (status int, stdout, stderr string) { return m.Feed("", args...) }

// Feed is Call with an input.
func (m *Memory) Feed(input string, args ...string) (status int, stdout, stderr string) {
	m.t.Helper()
	var out, errs bytes.Buffer
	parts := core.New("", m.Environ, strings.NewReader(input), &out, &errs)
	parts.Connection.Backend = func(context.Context) (engine.Engine, sandbox.Images, error) { return m.Engine, oneImage{}, nil }
	status = cli.RunWith(m.t.Context(), parts, args)
	return status, out.String(), errs.String()
}

// ID returns the id of a session for Session: the same for the same number.
func ID(n int) string { return fmt.Sprintf("0199e240-0000-7000-8000-%08x0000", n) }

var errTemplate = errors.New("this session is a template")

// Session puts a session there, as another process would have left it, and returns its id, which
// is that of ID. Of spec, what is not set has its default.
func (m *Memory) Session(n int, spec sandbox.Spec) string {
	m.t.Helper()
	ctx, end := context.WithCancelCause(m.t.Context())
	defer end(nil)
	other := enginetest.New() // where it is started, and no further than to its first process
	var made engine.Session
	opened := sync.OnceFunc(func() { // a session with network rules opens two at once
		made = other.Sessions()[0]
		end(errTemplate)
	})
	other.Fail = func(call string) error {
		if call != "open" {
			return nil
		}
		opened()
		return errTemplate
	}
	if _, err := sandbox.New(other, oneImage{}, sandbox.Options{}).Start(ctx, spec); made.ID == "" {
		m.t.Fatalf("Start() = %v; want that it goes as far as to the first process", err)
	}
	made.Handle = engine.Handle{ID: ID(n), Ref: fmt.Sprintf("container%d", n)}
	m.Put(made)
	return made.ID
}

// oneImage has the same image for all references.
type oneImage struct{}

func (oneImage) Resolve(_ context.Context, ref string, _ func(engine.Progress)) (engine.Image, error) {
	return engine.Image{ID: "sha256:" + engine.ImageID(strings.Repeat("a", 64)), Refs: []string{ref}, OS: "linux", Arch: "amd64"}, nil
}

func (i oneImage) ResolveDefault(ctx context.Context, progress func(engine.Progress)) (engine.Image, string, error) {
	img, err := i.Resolve(ctx, "default", progress)
	return img, "", err
}

func (oneImage) Prune(context.Context) ([]string, error) { return nil, nil }

// serve plays a runner, which serves one request after the other.
func (m *Memory) serve(_ engine.Handle, _ engine.Exec, conn net.Conn) {
	defer conn.Close()
	r := runner{conn: conn, answer: m.Answer}
	r.send(wire.TypeHello, wire.Hello{Version: wire.Version, PID: 2, Bash: true, Shell: true}.Append(nil))
	in := wire.NewReader(conn)
	var request []byte
	for r.err == nil {
		kind, payload, err := in.Next()
		if err != nil {
			return
		}
		switch kind { //nolint:exhaustive // what it is not asked for in tests is passed over
		case wire.TypePart:
			request = append(request, payload...)
		case wire.TypeRequest:
			req, err := wire.ParseRequest(append(request, payload...))
			if err != nil {
				m.t.Errorf("request: %v", err)
				return
			}
			request = nil
			r.begin(req)
		case wire.TypeStdin:
			r.input = append(r.input, payload...)
			r.send(wire.TypeTaken, wire.Taken{Seq: r.current.Seq, Bytes: uint64(len(payload))}.Append(nil))
		case wire.TypeStdinEnd:
			if r.reads {
				r.end()
			}
		}
	}
}

// runner is the runner's end of a connection.
type runner struct {
	conn    net.Conn
	answer  Answer
	current wire.Request
	input   []byte
	reads   bool // the request under way is answered at the end of its input
	err     error
}

func (r *runner) send(kind wire.Type, payload []byte) {
	if r.err == nil {
		_, r.err = r.conn.Write(wire.AppendFrame(nil, kind, payload))
	}
}

func (r *runner) begin(req wire.Request) {
	r.current, r.input = req, nil
	verb := wire.Verb("")
	if req.Path != "" {
		verb = wire.Verb(req.Args[0])
	}
	r.reads = req.Stdin || verb == wire.VerbJobs || verb == wire.VerbPush
	if r.reads {
		r.send(wire.TypeTaken, wire.Taken{Seq: req.Seq, Bytes: wire.StdinWindow}.Append(nil))
		return
	}
	r.end()
}

// end ends the request under way.
func (r *runner) end() {
	r.reads = false
	var stdout, stderr []byte
	var end wire.Exit
	if r.answer != nil {
		stdout, stderr, end = r.answer(r.current, r.input)
	}
	if len(stdout) > 0 {
		r.send(wire.TypeStdout, stdout)
	}
	if len(stderr) > 0 {
		r.send(wire.TypeStderr, stderr)
	}
	end.Seq, end.Stdout, end.Stderr = r.current.Seq, uint64(len(stdout)), uint64(len(stderr))
	r.send(wire.TypeExit, end.Append(nil))
}
