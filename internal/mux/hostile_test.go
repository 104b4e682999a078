package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// hostile is a session whose peer is written by a test.
type hostile struct {
	*Session
	t    testing.TB
	conn net.Conn // the peer's end
}

// against starts a session and greets it.
func against(tb testing.TB, side Side) *hostile {
	tb.Helper()
	ours, theirs := net.Pipe()
	h := &hostile{Session: New(side, ours, Options{}), t: tb, conn: theirs}
	tb.Cleanup(func() {
		theirs.Close()
		_ = h.Close()
	})
	greet := wire.NetHello{Version: wire.NetVersion}.AppendFrame(nil)
	if side == Runner {
		greet = wire.NetOpen{Version: wire.NetVersion, Lease: time.Minute}.AppendFrame(nil)
		h.next(wire.NetHelloType)
	}
	h.put(greet)
	if side == Host {
		h.next(wire.NetOpenType)
	}
	return h
}

// next reads one frame, which must be of that type.
func (h *hostile) next(want wire.Type) {
	h.t.Helper()
	_ = h.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(h.conn, head); err != nil {
		h.t.Fatalf("the next frame: %v; the session: %v", err, h.Err())
	}
	kind, size := wire.ParseHeader(head)
	payload := make([]byte, size)
	_, err := io.ReadFull(h.conn, payload)
	if err == nil && kind == wire.NetPingType && want != kind { // it may come at any time
		h.next(want)
		return
	}
	if err != nil || kind != want {
		h.t.Fatalf("a frame of type %q %q, %v; want %q", kind, payload, err, want)
	}
}

func (h *hostile) put(frames ...[]byte) {
	h.t.Helper()
	_ = h.conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for _, f := range frames {
		if _, err := h.conn.Write(f); err != nil {
			if h.Err() == nil {
				h.t.Fatalf("Write: %v", err)
			}
			return
		}
	}
}

// over waits for the session's end.
func (h *hostile) over() error {
	h.t.Helper()
	select {
	case <-h.Done():
		return h.Err()
	case <-time.After(time.Minute):
		h.t.Fatal("the session goes on")
		return nil
	}
}

func newFrame(id uint32, kind wire.NetKind) []byte {
	return wire.NetNew{ID: id, Kind: kind}.AppendFrame(nil)
}

func dataFrame(id uint32, n int) []byte {
	return append(wire.AppendNetHeader(nil, wire.NetDataType, id, n), make([]byte, n)...)
}

func endFrame() []byte { return wire.AppendNetHeader(nil, wire.NetEndType, 1, 0) }

func TestBrokenRules(t *testing.T) {
	t.Parallel()
	open := newFrame(1, wire.NetProxy)
	for _, row := range []struct {
		name   string
		side   Side
		frames [][]byte
		want   string
	}{
		{"a host's number", Host, [][]byte{newFrame(2, wire.NetProxy)}, "a new stream of number 2"},
		{"a runner's number", Runner, [][]byte{newFrame(1, wire.NetDial)}, "a new stream of number 1"},
		{"number 0", Runner, [][]byte{newFrame(0, wire.NetDial)}, "a new stream of number 0"},
		{"the same number", Host, [][]byte{open, open}, "a new stream of number 1, after 1"},
		{"a lower number", Host, [][]byte{newFrame(5, wire.NetDNS), newFrame(3, wire.NetDNS)}, "number 3, after 5"},
		{"a dial by the runner", Host, [][]byte{newFrame(1, wire.NetDial)}, "kind 4 from the runner"},
		{"a listener by the runner", Host, [][]byte{newFrame(1, wire.NetListen)}, "kind 5 from the runner"},
		{"a connection by the host", Runner, [][]byte{newFrame(2, wire.NetNamed)}, "kind 2 from the host"},
		{"no kind", Host, [][]byte{newFrame(1, 9)}, "kind 9"},
		{"a short new", Host, [][]byte{wire.AppendFrame(nil, wire.NetNewType, []byte{0, 0, 0, 1, 1, 127})}, "address beyond the end"},
		{"data beyond credit", Host, [][]byte{open, dataFrame(1, firstWindow), dataFrame(1, 1)}, "which has credit for 0"},
		{"too much data at once", Host, [][]byte{open, dataFrame(1, firstWindow+1)}, "which has credit for 16384"},
		{"data of no stream", Host, [][]byte{open, dataFrame(3, 1)}, "stream 3 was not opened"},
		{"data of a stream of ours", Host, [][]byte{dataFrame(2, 1)}, "stream 2 was not opened"},
		{"data of stream 0", Host, [][]byte{dataFrame(0, 1)}, "stream 0 was not opened"},
		{"data after the end", Host, [][]byte{open, endFrame(), dataFrame(1, 1)}, "after its end"},
		{"two ends", Host, [][]byte{open, endFrame(), endFrame()}, "ends twice"},
		{"an end of no stream", Host, [][]byte{endFrame()}, "stream 1 was not opened"},
		{"credit of no stream", Host, [][]byte{wire.NetCredit{ID: 1, Bytes: 1}.AppendFrame(nil)}, "stream 1 was not opened"},
		{"a reset of no stream", Host, [][]byte{wire.NetReset{ID: 1}.AppendFrame(nil)}, "stream 1 was not opened"},
		{"too much credit", Host, [][]byte{open, wire.NetCredit{ID: 1, Bytes: 1 << 30}.AppendFrame(nil)}, "credit of 1073741824 bytes"},
		{"an answer without a question", Host, [][]byte{wire.NetAnswer{ID: 2}.AppendFrame(nil)}, "was not asked"},
		{"an answer by the host", Runner, [][]byte{wire.NetAnswer{ID: 2}.AppendFrame(nil)}, "type 'A'"},
		{"an unknown type", Host, [][]byte{wire.AppendFrame(nil, 'z', nil)}, "type 'z'"},
		{"two greetings", Host, [][]byte{wire.NetHello{Version: 1}.AppendFrame(nil)}, "type 'H'"},
		{"no number", Host, [][]byte{wire.AppendFrame(nil, wire.NetDataType, []byte{1, 2, 3})}, "no number of a stream"},
		{"a long datagram", Host, [][]byte{append(wire.AppendNetHeader(nil, wire.NetDatagramType, 1, 5000), make([]byte, 5000)...)}, "datagram of 5000 bytes"},
		{"a long frame", Host, [][]byte{wire.AppendHeader(nil, wire.NetDataType, wire.NetFrame)}, "payload of"},
		{"words", Host, [][]byte{[]byte("bash: no such file\n")}, "payload of"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := against(t, row.side)
			h.put(row.frames...)
			if err := h.over(); !errors.Is(err, wire.ErrFrame) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Err() = %v; want ErrFrame and %q", err, row.want)
			}
			if _, err := h.Open(t.Context(), Target{}); !errors.Is(err, ErrLost) {
				t.Errorf("Open() = %v; want ErrLost", err)
			}
		})
	}
}

func TestGreeting(t *testing.T) {
	t.Parallel()
	bad := wire.NetHello{Version: wire.NetVersion}.AppendFrame(nil)
	bad[7] ^= 1
	for _, row := range []struct {
		name  string
		side  Side
		frame []byte
		want  string
	}{
		{"no magic", Host, bad, "not a runner's greeting"},
		{"a later version", Host, wire.NetHello{Version: 99}.AppendFrame(nil), "speaks version 99"},
		{"a stream first", Host, newFrame(1, wire.NetProxy), "is the first"},
		{"words", Host, []byte("runner: not found, sorry\n"), "payload of"},
		{"no lease", Runner, wire.NetOpen{Version: wire.NetVersion}.AppendFrame(nil), "lease 0s"},
		{"another version", Runner, wire.NetOpen{Version: 2, Lease: 1}.AppendFrame(nil), "open version 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := net.Pipe()
			h := &hostile{Session: New(row.side, ours, Options{}), t: t, conn: theirs}
			defer h.Close()
			if row.side == Runner {
				h.next(wire.NetHelloType)
			}
			h.put(row.frame)
			if err := h.over(); !strings.Contains(err.Error(), row.want) {
				t.Errorf("Err() = %v; want %q", err, row.want)
			}
		})
	}
}

// What a later version may send is skipped.
func TestLaterVersion(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	h := &hostile{Session: New(Host, ours, Options{}), t: t, conn: theirs}
	defer h.Close()
	more := func(frame []byte) []byte {
		frame = append(frame, "more fields"...)
		binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-wire.HeaderSize))
		return frame
	}
	h.put(more(wire.NetHello{Version: wire.NetVersion, PID: 7}.AppendFrame(nil)))
	h.next(wire.NetOpenType)
	h.put(wire.AppendFrame(nil, 0xff, []byte("an optional frame")), more(newFrame(1, wire.NetProxy)),
		more(wire.NetOwner{ID: 1, PID: 5, Session: 4}.AppendFrame(nil)), more(wire.NetReset{ID: 1, Reason: 200}.AppendFrame(nil)))
	st, err := h.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reason 200") {
		t.Errorf("Read: %v; want a reset for reason 200", err)
	}
	if o, ok := st.Owner(); !ok || o != (Owner{PID: 5, Session: 4}) {
		t.Errorf("Owner() = %+v, %t; want 5 of 4", o, ok)
	}
}

// bounded fails if f leaves more on the heap than that, while it runs or at its end.
func bounded(t *testing.T, most uint64, f func()) {
	t.Helper()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // the pools are emptied in two steps
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	f()
	if after := heap(); after > before+most {
		t.Errorf("the heap has grown by %d KiB; want at most %d", (after-before)>>10, most>>10)
	} else {
		t.Logf("the heap has grown by %d KiB", int64(after-before)>>10)
	}
}

// The tests that measure memory do not run in parallel with others.

func TestPingFlood(t *testing.T) {
	h := against(t, Host)
	pings := bytes.Repeat(wire.AppendHeader(nil, wire.NetPingType, 0), 4000)
	bounded(t, 256<<10, func() {
		for range 500 { // 2,000,000 pings, and not a pong is read
			h.put(pings)
		}
	})
	h.next(wire.NetPongType)
	if err := h.Err(); err != nil {
		t.Error(err)
	}
}

// A flood of streams that are refused costs control frames, which a peer that reads
// nothing may not pile up.
func TestOpenFlood(t *testing.T) {
	h := against(t, Host)
	bounded(t, 4<<20, func() {
		for id := uint32(1); h.Err() == nil && id < 1<<22; {
			var batch []byte
			for range 1000 {
				batch = append(batch, newFrame(id, wire.NetProxy)...)
				id += 2
			}
			h.put(batch)
		}
		if err := h.over(); !strings.Contains(err.Error(), "control frames unread") {
			t.Errorf("Err() = %v; want control frames unread", err)
		}
	})
}

// A peer that reads the refusals has as many streams as it may have.
func TestStreamCap(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	var all []*Stream
	for range MaxRunnerStreams {
		st, err := r.Open(t.Context(), Target{Kind: wire.NetNamed})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, st)
	}
	if _, err := r.Open(t.Context(), Target{Kind: wire.NetNamed}); !errors.Is(err, ErrFull) {
		t.Errorf("stream %d: %v; want ErrFull", MaxRunnerStreams+1, err)
	}
	for range MaxRunnerStreams {
		if _, err := h.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all[5].Reset(wire.NetCut)
	st, err := r.Open(t.Context(), Target{Kind: wire.NetNamed})
	if err != nil {
		t.Fatalf("a stream after a reset: %v", err)
	}
	last, err := h.Accept(t.Context())
	if err != nil || last.ID() != st.ID() {
		t.Fatalf("the last one: %v", err)
	}
	// And the other side's own cap.
	for range MaxHostStreams {
		if _, err := h.Open(t.Context(), Target{Kind: wire.NetDial}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Open(t.Context(), Target{Kind: wire.NetDial}); !errors.Is(err, ErrFull) {
		t.Errorf("the host's stream %d: %v; want ErrFull", MaxHostStreams+1, err)
	}
}

// Streams that come and go while none is accepted do not pile up.
func TestResetFlood(t *testing.T) {
	h := against(t, Host)
	go func() { _, _ = io.Copy(io.Discard, h.conn) }()
	bounded(t, 2<<20, func() {
		for id := uint32(1); id < 200_000; id += 2 {
			h.put(append(append(newFrame(id, wire.NetProxy), dataFrame(id, 1000)...), wire.NetReset{ID: id, Reason: wire.NetClosed}.AppendFrame(nil)...))
		}
	})
	if err := h.Err(); err != nil {
		t.Error(err)
	}
}

// All that a peer may send to readers that stand still: first windows, and no more.
func TestStalledReaders(t *testing.T) {
	for _, row := range []struct{ size, streams int }{{1, 64}, {500, MaxRunnerStreams}, {firstWindow, MaxRunnerStreams}} {
		size := row.size
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := against(t, Host)
			sent := uint64(row.streams) * firstWindow
			bounded(t, sent*3/2+4<<20, func() {
				for id := uint32(1); id < uint32(2*row.streams); id += 2 {
					batch := newFrame(id, wire.NetProxy)
					for n := 0; n+size <= firstWindow; n += size {
						batch = append(batch, dataFrame(id, size)...)
					}
					h.put(batch)
				}
				h.put(wire.AppendHeader(nil, wire.NetPingType, 0))
				h.next(wire.NetPongType)
			})
			if n := h.Streams(); n != row.streams {
				t.Errorf("%d streams; want %d", n, row.streams)
			}
		})
	}
}

// A peer that reads nothing stalls writers, and costs no more than what may be pending.
func TestStalledPeer(t *testing.T) {
	h := against(t, Host)
	const writers = 500
	done := make(chan error, writers)
	bounded(t, 12<<20, func() {
		for i := range writers {
			id := uint32(2*i + 1)
			h.put(newFrame(id, wire.NetProxy), wire.NetCredit{ID: id, Bytes: 8 << 20}.AppendFrame(nil))
			st, err := h.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := st.ReadFrom(zeros{})
				done <- err
			}()
		}
		time.Sleep(200 * time.Millisecond) // the writers' time to go wrong
	})
	h.mu.Lock()
	pending := h.out.pending
	h.mu.Unlock()
	if pending > maxPending+wire.NetFrame {
		t.Errorf("%d bytes are pending; want at most %d", pending, maxPending+wire.NetFrame)
	}
	_ = h.Close()
	for range writers {
		if err := <-done; !errors.Is(err, ErrLost) {
			t.Errorf("ReadFrom: %v; want ErrLost", err)
		}
	}
}

// TestLargeFrames: large frames of data are for peers that take them.
func TestLargeFrames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		features []string
		most     int
	}{{nil, wire.NetFrame}, {[]string{wire.NetLarge}, wire.NetLargeFrame}} {
		const size = 4 << 20
		ours, theirs := net.Pipe()
		h := &hostile{Session: New(Host, ours, Options{}), t: t, conn: theirs}
		h.put(wire.NetHello{Version: wire.NetVersion, Features: row.features}.AppendFrame(nil))
		h.next(wire.NetOpenType)
		h.put(newFrame(1, wire.NetProxy), wire.NetCredit{ID: 1, Bytes: size}.AppendFrame(nil))
		st, err := h.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			_, err := st.ReadFrom(io.LimitReader(zeros{}, size))
			sent <- errors.Join(err, st.CloseWrite())
		}()
		in, largest, total := newFrameReader(theirs, wire.NetLargeFrame), 0, 0
		for {
			kind, payload, err := in.next()
			if err != nil {
				t.Fatal(err)
			}
			if kind == wire.NetEndType {
				break
			}
			if kind == wire.NetDataType {
				largest = max(largest, wire.HeaderSize+len(payload))
				total += len(payload) - (wire.NetDataHeader - wire.HeaderSize)
			}
		}
		if largest != row.most || total != size {
			t.Errorf("with features %q: %d bytes in frames of up to %d; want %d in up to %d", row.features, total, largest, size, row.most)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		theirs.Close()
		_ = h.Close()
		if h.large != 0 {
			t.Errorf("%d large frames are being made", h.large)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Control frames go before data that waits.
func TestControlOvertakes(t *testing.T) {
	t.Parallel()
	h := against(t, Host)
	for _, id := range []uint32{1, 3} { // a sender may be the one that writes, and then has nothing that waits
		h.put(newFrame(id, wire.NetProxy), wire.NetCredit{ID: id, Bytes: 8 << 20}.AppendFrame(nil))
		st, err := h.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = st.ReadFrom(zeros{}) }()
	}
	until := func(holds func(o *outgoing) bool) {
		for done := false; !done; time.Sleep(time.Millisecond) {
			h.mu.Lock()
			done = holds(&h.out)
			h.mu.Unlock()
		}
	}
	// All room is taken, and the writer cannot go on: no frame of it is read yet.
	until(func(o *outgoing) bool { return o.pending >= maxPending && o.busy })
	h.put(wire.AppendHeader(nil, wire.NetPingType, 0))
	until(func(o *outgoing) bool { return o.pong })
	in := newFrameReader(h.conn, wire.NetFrame)
	for n := 0; ; n++ {
		kind, _, err := in.next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == wire.NetPongType {
			break
		}
		if n > 2 { // what the writer has in its hands
			t.Fatalf("%d frames of data came before the pong", n)
		}
	}
}

func TestListenAnswers(t *testing.T) {
	t.Parallel()
	h, _ := pair(t, Options{}, Options{Listen: func(addr netip.AddrPort, kind wire.NetKind) Errno {
		if addr.Port() == 80 && kind == wire.NetListen {
			return AddrInUse
		}
		return 0
	}})
	if err := h.Listen(t.Context(), netip.MustParseAddrPort("127.64.0.1:443")); err != nil {
		t.Error(err)
	}
	if err := h.Listen(t.Context(), netip.MustParseAddrPort("127.64.0.1:80")); !errors.Is(err, AddrInUse) {
		t.Errorf("Listen() = %v; want AddrInUse", err)
	}
	if err := h.Unlisten(t.Context(), netip.MustParseAddrPort("127.64.0.1:80")); err != nil {
		t.Error(err)
	}
	if err := h.Listen(t.Context(), netip.MustParseAddrPort("[::1]:80")); err == nil {
		t.Error("Listen([::1]:80) = nil; want an error")
	}
}

// FuzzSession feeds any bytes to either side, behind a greeting.
func FuzzSession(f *testing.F) {
	f.Add(true, slicesOf(newFrame(1, wire.NetProxy), dataFrame(1, 100), endFrame()))
	f.Add(true, slicesOf(newFrame(1, wire.NetDNS), wire.NetCredit{ID: 1, Bytes: 77}.AppendFrame(nil), wire.NetReset{ID: 1, Reason: 2}.AppendFrame(nil)))
	f.Add(false, slicesOf(newFrame(2, wire.NetDial), dataFrame(2, 10), newFrame(4, wire.NetListen), newFrame(6, wire.NetUnlisten)))
	f.Add(true, slicesOf(wire.AppendNetHeader(nil, wire.NetDatagramType, 3, 0), wire.NetOwner{ID: 1}.AppendFrame(nil), wire.NetAnswer{ID: 1}.AppendFrame(nil)))
	f.Add(false, wire.AppendHeader(nil, wire.NetPingType, 0))
	f.Fuzz(func(t *testing.T, host bool, stream []byte) {
		side, greet := Runner, wire.NetOpen{Version: wire.NetVersion, Lease: time.Minute}.AppendFrame(nil)
		if host {
			side, greet = Host, wire.NetHello{Version: wire.NetVersion}.AppendFrame(nil)
		}
		ours, theirs := net.Pipe()
		s := New(side, ours, Options{})
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			for {
				st, err := s.Accept(t.Context())
				if err != nil {
					return
				}
				_, _ = io.CopyN(st, st, 5)
				_ = st.Close()
			}
		}()
		_, _ = theirs.Write(append(greet, stream...))
		_ = theirs.Close()
		<-s.Done()
		_ = s.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.streams) != 0 || s.extra != 0 {
			t.Errorf("%d streams, %d bytes of windows are left", len(s.streams), s.extra)
		}
	})
}

func slicesOf(frames ...[]byte) []byte { return bytes.Join(frames, nil) }
