package exec

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// benchRunner is a runner that answers each request with the given frames and an
// Exit. Nothing is measured but the host's side, and a pipe.
func benchRunner(b *testing.B, frames, size int) *Runner {
	b.Helper()
	host, far := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		answerAll(far, frames, size)
	}()
	r, err := NewRunner(b.Context(), host, time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Close()
		<-served
	})
	return r
}

// answerAll returns when the host has gone.
func answerAll(conn net.Conn, frames, size int) {
	defer conn.Close()
	hello := wire.Hello{Version: wire.Version, PID: 1, Bash: true, Shell: true}
	if _, err := conn.Write(wire.AppendFrame(nil, wire.TypeHello, hello.Append(nil))); err != nil {
		return
	}
	in := wire.NewReader(conn)
	output := wire.AppendFrame(nil, wire.TypeStdout, make([]byte, size))
	for {
		kind, payload, err := in.Next()
		if err != nil {
			return
		}
		var answer []byte
		switch kind {
		case wire.TypeOpen:
			continue
		case wire.TypeRequest:
			req, err := wire.ParseRequest(payload)
			if err != nil {
				return
			}
			for range frames {
				if _, err := conn.Write(output); err != nil {
					return
				}
			}
			answer = wire.AppendFrame(nil, wire.TypeExit, wire.Exit{Seq: req.Seq, Stdout: uint64(frames * size)}.Append(nil))
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// BenchmarkPoolRun is what a command costs on the host's side: queue, request,
// hand-over between goroutines, status.
func BenchmarkPoolRun(b *testing.B) {
	r := benchRunner(b, 1, len("hi\n"))
	p := NewPool(Options{Lease: time.Minute})
	p.idle, p.open[r] = []*Runner{r}, struct{}{}
	b.Cleanup(p.Close)
	b.ReportAllocs()
	for b.Loop() {
		st, err := p.Run(b.Context(), Command{Shell: "bash", Script: "echo hi", Dir: "/", Stdout: io.Discard, Timeout: time.Minute})
		if err != nil || st.Stdout != int64(len("hi\n")) {
			b.Fatalf("Run() = %+v, %v; want 3 bytes", st, err)
		}
	}
}

// BenchmarkRunnerOutput is how fast output passes from the stream to a writer.
func BenchmarkRunnerOutput(b *testing.B) {
	const frames = 256
	r := benchRunner(b, frames, wire.MaxPayload)
	b.SetBytes(frames * wire.MaxPayload)
	b.ReportAllocs()
	for b.Loop() {
		st, err := r.Run(b.Context(), Command{Shell: "bash", Script: "cat", Dir: "/", Stdout: io.Discard})
		if err != nil || st.Stdout != frames*wire.MaxPayload {
			b.Fatalf("Run() = %+v, %v; want %d bytes", st, err, frames*wire.MaxPayload)
		}
	}
}
