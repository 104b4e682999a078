package exec

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// fakeRunner is the other end of a Runner's stream: it speaks the protocol and
// does what a test wants of it.
type fakeRunner struct {
	t    *testing.T
	conn net.Conn
	in   *wire.Reader

	mu       sync.Mutex
	requests []wire.Request // guarded by mu
	stdin    []byte         // guarded by mu; what the last request got
	kills    []wire.Kill    // guarded by mu
	frames   []wire.Type    // guarded by mu
	rest     []byte

	lease atomic.Int64 // that it was given, in nanoseconds
	mute  atomic.Bool  // no sign of life is answered

	// out queues frames: two writers of a pipe would wait for a mutex, which
	// stops a bubble's clock.
	out chan []byte

	// on is called with each Request, on the reading goroutine.
	on func(f *fakeRunner, req wire.Request)
	// onStdin is called with each frame of standard input, on the reading goroutine.
	onStdin func()
	// onKill is called with each Kill.
	onKill func(f *fakeRunner, kill wire.Kill)
}

// newFake starts a fake and returns the host's end of its stream.
func newFake(t *testing.T, f *fakeRunner) io.ReadWriteCloser {
	t.Helper()
	host, runner := net.Pipe()
	f.t, f.conn, f.in, f.out = t, runner, wire.NewReader(runner), make(chan []byte, 100)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case b := <-f.out:
				if b == nil {
					runner.Close()
					return
				}
				_, _ = runner.Write(b)
			case <-done:
				return
			}
		}
	}()
	go func() {
		defer close(done)
		f.serve()
	}()
	return host
}

func (f *fakeRunner) serve() {
	defer f.conn.Close()
	f.send(wire.TypeHello, wire.Hello{Version: wire.Version, PID: 2, Bash: true, Shell: true}.Append(nil))
	kind, payload, err := f.in.Next()
	if err != nil || kind != wire.TypeOpen {
		return
	}
	open, err := wire.ParseOpen(payload)
	if err != nil || open.Lease <= 0 {
		f.t.Errorf("open %+v, %v", open, err)
		return
	}
	f.lease.Store(int64(open.Lease))
	for {
		kind, payload, err := f.in.Next()
		if err != nil {
			return
		}
		f.take(kind, payload)
	}
}

func (f *fakeRunner) take(kind wire.Type, payload []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frames = append(f.frames, kind)
	switch kind {
	case wire.TypePing:
		if !f.mute.Load() {
			f.send(wire.TypePong, nil)
		}
	case wire.TypePart:
		f.rest = append(f.rest, payload...)
	case wire.TypeRequest:
		req, err := wire.ParseRequest(append(f.rest, payload...))
		f.rest, f.stdin = nil, nil
		if err != nil {
			f.t.Errorf("request: %v", err)
			return
		}
		f.requests = append(f.requests, req)
		if f.on != nil {
			go f.on(f, req)
		}
	case wire.TypeStdin:
		if f.onStdin != nil {
			f.onStdin()
		}
		f.stdin = append(f.stdin, payload...)
	case wire.TypeKill:
		kill, err := wire.ParseKill(payload)
		if err != nil {
			f.t.Errorf("kill: %v", err)
		}
		f.kills = append(f.kills, kill)
		if f.onKill != nil {
			go f.onKill(f, kill)
		}
	}
}

func (f *fakeRunner) send(kind wire.Type, payload []byte) {
	f.out <- wire.AppendFrame(nil, kind, payload)
}

// hangUp ends the stream behind what has been sent.
func (f *fakeRunner) hangUp() { f.out <- nil }

// ask asks for standard input, as at the start of a command.
func (f *fakeRunner) ask(req wire.Request, n int) {
	f.send(wire.TypeTaken, wire.Taken{Seq: req.Seq, Bytes: uint64(n)}.Append(nil))
}

func (f *fakeRunner) exit(e wire.Exit) { f.send(wire.TypeExit, e.Append(nil)) }

func (f *fakeRunner) stdinLen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.stdin)
}

// open makes a Runner on a fake.
func open(t *testing.T, f *fakeRunner) *Runner {
	t.Helper()
	r, err := NewRunner(t.Context(), newFake(t, f), 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// echo answers a request with its script as output and exit code 0.
func echo(f *fakeRunner, req wire.Request) {
	f.send(wire.TypeStdout, req.Script)
	f.exit(wire.Exit{Seq: req.Seq, Stdout: uint64(len(req.Script))})
}

// pool makes a Pool whose runners are fakes made by make.
func pool(t *testing.T, ahead int, fake func() *fakeRunner) *Pool {
	t.Helper()
	return NewPool(Options{
		Lease: 15 * time.Second, Ahead: ahead,
		Open: func(context.Context) (io.ReadWriteCloser, error) { return newFake(t, fake()), nil },
	})
}
