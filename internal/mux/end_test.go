package mux

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// How each state of a stream ends when the peer ends its direction (E), resets the stream
// (R), or goes (EOF).
func TestEnds(t *testing.T) {
	t.Parallel()
	const whole = "EOF"
	for _, row := range []struct {
		name    string
		state   func(st *Stream) // of the runner's end; "ab" has come by then
		e, r, f string           // what Read returns behind "ab" after E, R and EOF; "ab" is lost if it begins with "!"
		over    bool             // the session has forgotten the stream after E
	}{
		{"open", func(*Stream) {}, whole, "reset by the peer", "!lost", false},
		{"half-closed", func(st *Stream) { _ = st.CloseWrite() }, whole, "reset by the peer", "!lost", true},
		{"closed", func(st *Stream) { _ = st.Close() }, "!closed", "!closed", "!closed", true},
		{"reset", func(st *Stream) { st.Reset(wire.NetCut) }, "!reset by this side", "!reset by this side", "!reset by this side", true},
	} {
		for end, want := range map[string]string{"E": row.e, "R": row.r, "EOF": row.f} {
			t.Run(row.name+" "+end, func(t *testing.T) {
				t.Parallel()
				h, r := pair(t, Options{}, Options{})
				host, runner := streams(t, h, r)
				if _, err := host.Write([]byte("ab")); err != nil {
					t.Fatal(err)
				}
				wait(t, "ab", func() bool { return buffered(runner) == 2 })
				row.state(runner)
				switch end {
				case "E":
					_ = host.CloseWrite()
				case "R":
					host.Reset(wire.NetBroken)
				case "EOF":
					_ = h.Close()
					<-r.Done()
				}
				if strings.HasPrefix(want, "!") {
					if end == "R" || end == "EOF" { // whichever comes first counts
						wait(t, "the end", func() bool { _, err := runner.Write([]byte("x")); return err != nil })
					}
				}
				got := readAll(runner)
				data, lost := "ab", strings.HasPrefix(want, "!")
				if lost {
					data = ""
				}
				if string(got.data) != data || !strings.Contains(got.err, strings.TrimPrefix(want, "!")) {
					t.Errorf("Read: %q, %s; want %q, %s", got.data, got.err, data, want)
				}
				if end == "E" && row.over || end != "E" {
					wait(t, "the stream's end", func() bool { return r.Streams() == 0 || !row.over && end == "E" })
				}
				if end == "E" && !row.over {
					if _, err := runner.Write([]byte("more")); err != nil {
						t.Errorf("Write after the peer's end: %v", err)
					}
					b := make([]byte, 4)
					if _, err := io.ReadFull(host, b); err != nil || string(b) != "more" {
						t.Errorf("the peer reads %q, %v after its end; want more", b, err)
					}
				}
			})
		}
	}
}

type readResult struct {
	data []byte
	err  string
}

func readAll(st *Stream) readResult {
	_ = st.SetReadDeadline(time.Now().Add(10 * time.Second))
	var b bytes.Buffer
	buf := make([]byte, 100)
	for {
		n, err := st.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return readResult{b.Bytes(), err.Error()}
		}
	}
}

func buffered(st *Stream) int {
	st.sess.mu.Lock()
	defer st.sess.mu.Unlock()
	return st.buffered
}

func wait(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// A cut drops what was received; a broken connection's data may still be read.
func TestCutDropsData(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	for _, row := range []struct {
		reason wire.NetReason
		want   string
	}{{wire.NetCut, ""}, {wire.NetBroken, "ab"}} {
		host, runner := streams(t, h, r)
		_, _ = host.Write([]byte("ab"))
		wait(t, "ab", func() bool { return buffered(runner) == 2 })
		host.Reset(row.reason)
		wait(t, "the reset", func() bool { _, err := runner.Write(nil); return err != nil })
		if got := readAll(runner); string(got.data) != row.want || !strings.Contains(got.err, "by the peer") {
			t.Errorf("Read after reason %d: %q, %s; want %q and a reset", row.reason, got.data, got.err, row.want)
		}
	}
}

// Close is clean where close(2) is, and a reset elsewhere.
func TestClose(t *testing.T) { //nolint:tparallel // each takes a moment
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	t.Run("after an answer", func(t *testing.T) {
		host, runner := streams(t, h, r)
		_, _ = host.Write([]byte("answer"))
		_ = host.Close()
		if got := readAll(runner); string(got.data) != "answer" || got.err != "EOF" {
			t.Errorf("Read: %q, %s; want the answer, EOF", got.data, got.err)
		}
		_ = runner.Close()
	})
	t.Run("with data unread", func(t *testing.T) {
		host, runner := streams(t, h, r)
		_, _ = runner.Write([]byte("a long request"))
		wait(t, "the request", func() bool { return buffered(host) > 0 })
		_, _ = host.Write([]byte("no"))
		_ = host.Close()
		if got := readAll(runner); string(got.data) != "no" || !strings.Contains(got.err, "data on its way") {
			t.Errorf("Read: %q, %s; want no, and a reset", got.data, got.err)
		}
	})
	t.Run("before data", func(t *testing.T) {
		host, runner := streams(t, h, r)
		_, _ = host.Write([]byte("no"))
		_ = host.Close()
		if got := readAll(runner); got.err != "EOF" {
			t.Errorf("Read: %s; want EOF", got.err)
		}
		wait(t, "a reset", func() bool { _, err := runner.Write([]byte("more")); return err != nil })
	})
	t.Run("during Write", func(t *testing.T) {
		host, runner := streams(t, h, r)
		done := make(chan error, 1)
		go func() {
			_, err := host.Write(make([]byte, 1<<20))
			done <- err
		}()
		wait(t, "the window's end", func() bool { return buffered(runner) == firstWindow })
		_ = host.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write: %v; want net.ErrClosed", err)
		}
		if got := readAll(runner); !strings.Contains(got.err, "by the peer") {
			t.Errorf("Read behind %d bytes: %s; want a reset", len(got.data), got.err)
		}
	})
	t.Run("CloseWrite during Write", func(t *testing.T) {
		host, runner := streams(t, h, r)
		done := make(chan error, 1)
		go func() {
			_, err := host.Write(make([]byte, 1<<20))
			done <- err
		}()
		wait(t, "the window's end", func() bool { return buffered(runner) == firstWindow })
		if err := host.CloseWrite(); err == nil {
			t.Error("CloseWrite() = nil during a Write")
		}
		if err := <-done; err == nil {
			t.Error("Write = nil")
		}
		if got := readAll(runner); got.err == "EOF" {
			t.Error("the peer took the part for the whole")
		}
	})
	waitNone(t, h, r)
}

func TestCloseWaitsForPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		h, r := New(Host, a, Options{}), New(Runner, b, Options{})
		defer h.Close()
		defer r.Close()
		host, runner := streams(t, h, r)
		_ = host.Close()
		start := time.Now()
		if got := readAll(runner); got.err != "EOF" {
			t.Errorf("Read: %s; want EOF", got.err)
		}
		_ = runner.SetReadDeadline(time.Time{})
		for {
			if _, err := runner.Write(nil); err != nil {
				if e, ok := errors.AsType[*ResetError](err); !ok || e.Reason != wire.NetTimeout || time.Since(start) < closeTime {
					t.Errorf("after %s: %v; want a reset after %s", time.Since(start), err, closeTime)
				}
				break
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := h.Streams() + r.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		h, r := New(Host, a, Options{}), New(Runner, b, Options{})
		defer h.Close()
		defer r.Close()
		host, runner := streams(t, h, r)
		start := time.Now()
		_ = host.SetReadDeadline(start.Add(3 * time.Second))
		if _, err := host.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("Read: %v after %s; want the deadline after 3s", err, time.Since(start))
		}
		var netErr net.Error
		if _, err := host.Read(make([]byte, 1)); !errors.As(err, &netErr) || !netErr.Timeout() {
			t.Errorf("Read again: %v; want a timeout", err)
		}
		// A later deadline makes the stream usable again, and moves one that is awaited.
		_ = host.SetReadDeadline(time.Time{})
		var reader sync.WaitGroup
		reader.Go(func() {
			if _, err := host.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read: %v; want the deadline", err)
			}
		})
		synctest.Wait()
		_ = host.SetReadDeadline(time.Unix(1, 0))
		reader.Wait()
		_ = host.SetReadDeadline(time.Now().Add(time.Second))
		_ = host.SetReadDeadline(time.Now().Add(time.Hour))
		_, _ = runner.Write([]byte("x"))
		time.Sleep(2 * time.Second)
		if n, err := host.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("Read: %d, %v; want 1 byte", n, err)
		}
		// Writes stop where the credit ends.
		start = time.Now()
		_ = runner.SetDeadline(start.Add(time.Second))
		if n, err := runner.Write(make([]byte, 1<<20)); n != firstWindow-1 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Write: %d, %v after %s; want %d and the deadline after 1s", n, err, time.Since(start), firstWindow-1)
		}
		_ = runner.SetDeadline(time.Time{})
		if _, err := io.ReadFull(host, make([]byte, firstWindow-1)); err != nil {
			t.Error(err)
		}
		if _, err := runner.Write(make([]byte, firstWindow)); err != nil {
			t.Errorf("Write after the deadline was removed: %v", err)
		}
	})
}

// silent is a connection whose writes go nowhere and whose reads wait.
type silent struct{ net.Conn }

func (silent) Write(p []byte) (int, error) { return len(p), nil }

// A session lives on pings alone; a silent peer ends it.
func TestLease(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var frames atomic.Int32
			a, b := net.Pipe()
			h, r := New(Host, a, Options{Lease: time.Minute}), New(Runner, b, Options{Frame: func() { frames.Add(1) }})
			if open {
				streams(t, h, r)
			} else if err := errors.Join(h.Ready(t.Context()), r.Ready(t.Context())); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			frames.Store(0)
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			if err := errors.Join(h.Err(), r.Err()); err != nil {
				t.Errorf("after a day: %v", err)
			}
			want, lease := int(24*time.Hour/(wire.IdleLease/3)), wire.IdleLease
			if open {
				want, lease = 24*60*3, time.Minute
			}
			if got := int(frames.Load()); got < want-2 || got > want+2 {
				t.Errorf("%d frames in a day, with a stream: %t; want %d", got, open, want)
			}
			// The host stands still, as in a partition: its end of the pipe is not read.
			h.mu.Lock()
			start := time.Now()
			h.life.timer.Stop()
			h.mu.Unlock()
			<-r.Done()
			if d := time.Since(start); !errors.Is(r.Err(), ErrLease) || d < lease*2/3 || d > lease+2*lastWait {
				t.Errorf("the runner's end: %v after %s; want ErrLease after %s", r.Err(), d, lease)
			}
			_, _ = h.Close(), r.Close()
		})
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			h := New(Host, silent{a}, Options{Lease: time.Minute})
			go func() {
				_, _ = b.Write(wire.NetHello{Version: wire.NetVersion}.AppendFrame(nil))
			}()
			if err := h.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			lease := wire.IdleLease
			if open {
				lease = time.Minute
				if _, err := h.Open(t.Context(), Target{Kind: wire.NetDial}); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			<-h.Done()
			if d := time.Since(start); !errors.Is(h.Err(), ErrLease) || d < lease || d > lease*3/2 {
				t.Errorf("the host's end: %v after %s; want ErrLease after %s", h.Err(), d, lease)
			}
			_ = h.Close()
		})
	}
}

// A peer that says nothing at all is given up.
func TestNoGreeting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := net.Pipe()
		h := New(Host, a, Options{})
		defer h.Close()
		if err := h.Ready(t.Context()); !errors.Is(err, ErrLease) || !errors.Is(err, ErrLost) {
			t.Errorf("Ready() = %v; want ErrLost and ErrLease", err)
		}
	})
}

func TestWindowGrows(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	var all sync.WaitGroup
	for range 8 {
		host, runner := streams(t, h, r)
		all.Go(func() {
			if _, err := io.CopyN(host, zeros{}, 20<<20); err != nil {
				t.Error(err)
			}
			_ = host.CloseWrite()
		})
		all.Go(func() {
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{runner}); n != 20<<20 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			r.mu.Lock()
			if runner.window > maxWindow || r.extra > maxExtra {
				t.Errorf("a window of %d, %d bytes in all beyond the first", runner.window, r.extra)
			}
			r.mu.Unlock()
			_ = runner.Close()
		})
	}
	all.Wait()
	waitNone(t, h, r)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.extra != 0 {
		t.Errorf("%d bytes of windows are not given back", r.extra)
	}
}

// late is a connection whose bytes take a while to their reader.
type late struct {
	net.Conn

	queue chan lateBytes
}

type lateBytes struct {
	due  time.Time
	data []byte
}

// lateTime is how long bytes take in one direction.
const lateTime = 20 * time.Millisecond

func newLate(conn net.Conn) late {
	l := late{conn, make(chan lateBytes, 1000)}
	go func() {
		for b := range l.queue {
			time.Sleep(time.Until(b.due))
			if _, err := conn.Write(b.data); err != nil {
				for range l.queue { // until it is closed
				}
			}
		}
	}()
	return l
}

func (l late) Write(p []byte) (int, error) {
	l.queue <- lateBytes{time.Now().Add(lateTime), bytes.Clone(p)}
	return len(p), nil
}

// TestWindowGrowsFar: a reader that keeps up with a peer far away gets a larger window, although it never
// finds much at once.
func TestWindowGrowsFar(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	near, far := newLate(a), newLate(b)
	h, r := New(Host, near, Options{}), New(Runner, far, Options{})
	if err := errors.Join(h.Ready(t.Context()), r.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	host, runner := streams(t, h, r)
	go func() {
		_, _ = io.CopyN(host, zeros{}, 4<<20)
		_ = host.Close()
	}()
	if n, err := io.Copy(io.Discard, runner); n != 4<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if runner.window < 16*firstWindow {
		t.Errorf("the window is %d bytes", runner.window)
	}
	_ = runner.Close()
	_ = h.Close()
	_ = r.Close()
	close(near.queue)
	close(far.queue)
}

// What keeps a session's container alive is what the host does with it: neither pings nor the
// connections of programs.
func TestUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int32
		a, b := net.Pipe()
		h, r := New(Host, a, Options{Lease: time.Minute}), New(Runner, b, Options{Used: func() { used.Add(1) }})
		if err := errors.Join(h.Ready(t.Context()), r.Ready(t.Context())); err != nil {
			t.Fatal(err)
		}
		theirs, err := r.Open(t.Context(), Target{Kind: wire.NetNamed})
		if err != nil {
			t.Fatal(err)
		}
		answered, err := h.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := answered.Write([]byte("an answer")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := used.Load(); got != 0 {
			t.Errorf("pings and a program's connection count as %d uses; want 0", got)
		}
		ours, err := h.Open(t.Context(), Target{Kind: wire.NetDial})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Write([]byte("a question")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if used.Load() == 0 {
			t.Error("a connection that the host opened counts as no use")
		}
		_, _, _ = theirs.Close(), answered.Close(), ours.Close()
		_, _ = h.Close(), r.Close()
	})
}
