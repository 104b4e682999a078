package mux

import (
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// osPipes returns both ends of two pipes of the kernel, as a runner has them.
func osPipes(b *testing.B) (host, runner io.ReadWriteCloser) {
	b.Helper()
	in, toRunner, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	fromRunner, out, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	return duplex{fromRunner, toRunner}, duplex{in, out}
}

type duplex struct{ in, out *os.File }

func (d duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d duplex) Write(p []byte) (int, error) { return d.out.Write(p) }
func (d duplex) Close() error {
	_ = d.in.Close()
	return d.out.Close()
}

func piped(b *testing.B) (h, r *Session) {
	b.Helper()
	hostEnd, runnerEnd := osPipes(b)
	h, r = New(Host, hostEnd, Options{}), New(Runner, runnerEnd, Options{})
	b.Cleanup(func() {
		_ = h.Close()
		_ = r.Close()
	})
	return h, r
}

const benchSize = 32 << 20 // bytes of one download

// BenchmarkRawPipe is what BenchmarkThroughput compares with: the same bytes through a
// pipe, in pieces of the size of a frame.
func BenchmarkRawPipe(b *testing.B) {
	host, runner := osPipes(b)
	defer host.Close()
	defer runner.Close()
	b.SetBytes(benchSize)
	for b.Loop() {
		go func() {
			_, _ = io.CopyBuffer(struct{ io.Writer }{host}, io.LimitReader(zeros{}, benchSize), make([]byte, wire.NetData))
		}()
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(runner, benchSize), make([]byte, wire.NetData)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkThroughput is one download by one stream.
func BenchmarkThroughput(b *testing.B) {
	h, r := piped(b)
	b.SetBytes(benchSize)
	for b.Loop() {
		host, runner := streams(b, h, r)
		go func() {
			_, _ = host.ReadFrom(io.LimitReader(zeros{}, benchSize))
			_ = host.Close()
		}()
		if n, err := runner.WriteTo(io.Discard); n != benchSize || err != nil {
			b.Fatal(n, err)
		}
		_ = runner.Close()
	}
}

// BenchmarkConnections opens a stream, sends a byte there and back, and closes it.
func BenchmarkConnections(b *testing.B) {
	h, r := piped(b)
	go func() {
		for {
			st, err := h.Accept(b.Context())
			if err != nil {
				return
			}
			go func() {
				_, _ = io.CopyN(st, st, 1)
				_ = st.Close()
			}()
		}
	}()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			st, err := r.Open(b.Context(), Target{Kind: wire.NetNamed})
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = st.Write([]byte{1})
			if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
				b.Error(err)
			}
			_ = st.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conns/s")
}

// BenchmarkStalled is the memory of 1,000 streams whose readers stand still, all of whose
// credit is used, on both sides together.
func BenchmarkStalled(b *testing.B) {
	const count = 1000
	for b.Loop() {
		h, r := piped(b)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range count {
			host, runner := streams(b, h, r)
			go func() { _, _ = host.ReadFrom(zeros{}) }()
			wait(b, "the window's end", func() bool { return buffered(runner) == firstWindow })
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/count, "B/stream")
	}
}
