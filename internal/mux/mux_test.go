package mux

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// pair returns both ends of a session on a pipe without any buffer.
func pair(tb testing.TB, host, runner Options) (h, r *Session) {
	tb.Helper()
	a, b := net.Pipe()
	h, r = New(Host, a, host), New(Runner, b, runner)
	tb.Cleanup(func() {
		_ = h.Close()
		_ = r.Close()
	})
	for _, s := range []*Session{h, r} {
		if err := s.Ready(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	return h, r
}

// TestMain fails if goroutines of sessions are left when all tests have ended.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := goroutines(); code == 0 && left != nil {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

func goroutines() (left []byte) {
	for range 6000 { // a minute
		left = nil
		buf := make([]byte, 1<<20)
		for stack := range bytes.SplitSeq(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
			if bytes.Contains(stack, []byte("/mux.(*S")) {
				left = append(left, stack...)
			}
		}
		if left == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return left
}

// streams returns both ends of a stream that the runner has opened.
func streams(tb testing.TB, h, r *Session) (host, runner *Stream) {
	tb.Helper()
	runner, err := r.Open(tb.Context(), Target{
		Kind: wire.NetNamed, Local: netip.MustParseAddrPort("127.64.0.1:443"), Remote: netip.MustParseAddrPort("127.0.0.1:40000"),
	})
	if err != nil {
		tb.Fatal(err)
	}
	host, err = h.Accept(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return host, runner
}

func TestOpen(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{UID: 1000}, Options{Features: []string{"one"}})
	host, runner := streams(t, h, r)
	if got, want := host.Target(), runner.Target(); got != want || host.ID() != runner.ID() || host.ID()%2 != 1 {
		t.Errorf("the host has stream %d %+v, the runner %d %+v; want the same, odd", host.ID(), got, runner.ID(), want)
	}
	if h.Hello().Features[0] != "one" || r.UID() != 1000 {
		t.Errorf("features %q, uid %d; want one, 1000", h.Hello().Features, r.UID())
	}
	go func() {
		_, _ = io.Copy(runner, runner)
		_ = runner.CloseWrite()
	}()
	want := bytes.Repeat([]byte("0123456789"), 1<<20)
	go func() {
		_, _ = host.Write(want)
		_ = host.CloseWrite()
	}()
	got, err := io.ReadAll(host)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v; want the same %d", len(got), err, len(want))
	}
	waitNone(t, h, r)
	dial, err := h.Open(t.Context(), Target{Kind: wire.NetDial, Local: netip.MustParseAddrPort("127.0.0.1:8080")})
	if err != nil {
		t.Fatal(err)
	}
	dialled, err := r.Accept(t.Context())
	if err != nil || dialled.Kind() != wire.NetDial || dialled.LocalAddr().String() != "127.0.0.1:8080" || dialled.ID()%2 != 0 {
		t.Errorf("accepted %+v, %v; want a dial of 127.0.0.1:8080", dialled, err)
	}
	dialled.Reset(wire.NetRefused)
	_, err = dial.Read(make([]byte, 1))
	if e, ok := errors.AsType[*ResetError](err); !ok || *e != (ResetError{wire.NetRefused, true}) {
		t.Errorf("Read of a refused stream: %v; want reset by the peer, refused", err)
	}
}

// waitNone waits until no stream is open.
func waitNone(tb testing.TB, sessions ...*Session) {
	tb.Helper()
	for _, s := range sessions {
		for n := 0; s.Streams() > 0; n++ {
			if n > 12_000 { // a minute
				tb.Fatalf("%d streams stay open", s.Streams())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestStress sends random data over many streams, some of which are reset, over a pipe
// without a buffer. What ends with an EOF must be whole.
func TestStress(t *testing.T) {
	t.Parallel()
	rounds, parallel := 4, 60
	h, r := pair(t, Options{}, Options{})
	var whole, cut atomic.Int32
	var peers sync.WaitGroup
	for _, s := range []*Session{h, r} {
		peers.Go(func() { // echoes until its session ends
			for {
				st, err := s.Accept(t.Context())
				if err != nil {
					return
				}
				peers.Go(func() {
					defer st.Close()
					if _, err := io.Copy(st, struct{ io.Reader }{st}); err == nil {
						_ = st.CloseWrite()
					}
				})
			}
		})
	}
	var clients sync.WaitGroup
	for i := range parallel {
		s, kind := h, wire.NetDial
		if i%2 == 0 {
			s, kind = r, wire.NetProxy
		}
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range rounds {
				st, err := s.Open(t.Context(), Target{Kind: kind})
				if err != nil {
					t.Error(err)
					return
				}
				size, killAt := rnd.IntN(300<<10), -1
				if rnd.IntN(4) == 0 {
					killAt = rnd.IntN(size + 1)
				}
				if exchange(t, st, rnd.Uint64(), size, killAt) {
					whole.Add(1)
				} else {
					cut.Add(1)
				}
			}
		})
	}
	clients.Wait()
	waitNone(t, h, r)
	if err := errors.Join(h.Err(), r.Err()); err != nil {
		t.Error(err)
	}
	_ = h.Close()
	peers.Wait()
	t.Logf("%d streams whole, %d reset", whole.Load(), cut.Load())
	if whole.Load() == 0 || cut.Load() == 0 {
		t.Error("want some of both")
	}
}

// exchange writes random bytes and compares what comes back. It reports false if it has
// reset the stream.
func exchange(t *testing.T, st *Stream, seed uint64, size, killAt int) bool {
	t.Helper()
	defer st.Close()
	sent := sha256.New()
	var writer sync.WaitGroup
	writer.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, 2))
		buf := make([]byte, 64<<10)
		for n := 0; n < size; {
			part := buf[:min(1+rnd.IntN(len(buf)), size-n)]
			for i := range part {
				part[i] = byte(rnd.Uint32())
			}
			if killAt >= 0 && n+len(part) > killAt {
				st.Reset(wire.NetCut)
				return
			}
			sent.Write(part)
			if _, err := st.Write(part); err != nil {
				t.Errorf("Write: %v", err)
				return
			}
			n += len(part)
		}
		if killAt >= 0 {
			st.Reset(wire.NetCut)
			return
		}
		if err := st.CloseWrite(); err != nil {
			t.Errorf("CloseWrite: %v", err)
		}
	})
	got := sha256.New()
	n, err := io.Copy(got, struct{ io.Reader }{st})
	writer.Wait()
	if killAt >= 0 {
		if e, ok := errors.AsType[*ResetError](err); !ok || e.Peer {
			t.Errorf("Read of a stream that was reset here: %v", err)
		}
		return false
	}
	if err != nil || n != int64(size) || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
		t.Errorf("%d of %d bytes came back, %v, same: %t", n, size, err, bytes.Equal(got.Sum(nil), sent.Sum(nil)))
	}
	return true
}
