package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Datagrams pass in both directions, in order, with their numbers, and as they were when they
// were sent.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	for name, side := range map[string][2]*Session{"runner to host": {r, h}, "host to runner": {h, r}} {
		from, to := side[0], side[1]
		buf := make([]byte, wire.MaxDatagram+1)
		sizes := append([]int{0, 1, 512}, slices.Repeat([]int{wire.MaxDatagram}, 40)...) // more than the reader's buffer
		for n, size := range sizes {
			for i := range buf {
				buf[i] = byte(n)
			}
			if err := from.SendDatagram(uint32(n)<<24+7, buf[:size]); err != nil {
				t.Fatal(err)
			}
		}
		if err := from.SendDatagram(1, buf); err == nil {
			t.Errorf("%s: a datagram of %d bytes is sent; want an error", name, len(buf))
		}
		for n, size := range sizes {
			id, data, err := to.ReceiveDatagram(t.Context())
			if err != nil || id != uint32(n)<<24+7 || !bytes.Equal(data, bytes.Repeat([]byte{byte(n)}, size)) {
				t.Errorf("%s: datagram %d is %d, %d bytes of %.3x, %v; want %d bytes as they were sent", name, n, id, len(data), data, err, size)
			}
		}
	}
}

// Each of several receivers gets datagrams of its own, and none is lost between them.
func TestDatagramsToSeveral(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	const count = 300
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[uint32]int{}
	for range 4 {
		all.Go(func() {
			for {
				id, _, err := h.ReceiveDatagram(t.Context())
				if err != nil {
					if !errors.Is(err, ErrLost) {
						t.Errorf("ReceiveDatagram() at the end: %v; want ErrLost", err)
					}
					return
				}
				mu.Lock()
				got[id]++
				seen := len(got)
				mu.Unlock()
				if seen == count {
					go func() { _ = h.Close() }()
				}
			}
		})
	}
	for id := range uint32(count) {
		if err := r.SendDatagram(id, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	for id := range uint32(count) {
		if got[id] != 1 {
			t.Errorf("datagram %d was received %d times", id, got[id])
		}
	}
}

// Two that wait are both woken by two datagrams that come at once.
func TestDatagramsAtOnce(t *testing.T) {
	t.Parallel()
	h := against(t, Host)
	for range 500 {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if _, _, err := h.ReceiveDatagram(ctx); err != nil {
					t.Errorf("ReceiveDatagram() of one that has arrived: %v", err)
				}
			})
		}
		one := append(wire.AppendNetHeader(nil, wire.NetDatagramType, 1, 1), 'x')
		h.put(append(one, one...))
		all.Wait()
		if t.Failed() {
			return
		}
	}
}

// Datagrams that no caller receives are dropped beyond a bound, and the session goes on.
func TestDatagramFlood(t *testing.T) {
	t.Parallel()
	h := against(t, Host)
	for id := range uint32(2 * maxDatagram) {
		h.put(append(wire.AppendNetHeader(nil, wire.NetDatagramType, id, 1), 'x'))
	}
	h.put(wire.AppendFrame(nil, wire.NetPingType, nil))
	h.next(wire.NetPongType) // all of them have arrived
	for want := range uint32(maxDatagram) {
		if id, _, err := h.ReceiveDatagram(t.Context()); err != nil || id != want {
			t.Fatalf("ReceiveDatagram() = %d, %v; want the oldest ones, %d", id, err, want)
		}
	}
	h.put(append(wire.AppendNetHeader(nil, wire.NetDatagramType, 1<<30, 4), "last"...))
	if id, data, err := h.ReceiveDatagram(t.Context()); err != nil || id != 1<<30 || string(data) != "last" {
		t.Errorf("ReceiveDatagram() behind a flood = %d, %q, %v; want the next one", id, data, err)
	}
	h.put(wire.AppendNetHeader(nil, wire.NetDatagramType, 1, wire.MaxDatagram+1))
	h.put(make([]byte, wire.MaxDatagram+1))
	if err := h.over(); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("after a datagram that is too long: %v; want ErrFrame", err)
	}
}

// A peer that takes nothing makes datagrams fail, and does not end the session.
func TestDatagramsToAStalledPeer(t *testing.T) {
	t.Parallel()
	h := against(t, Host)
	data := make([]byte, wire.MaxDatagram)
	for n := 0; ; n++ {
		err := h.SendDatagram(uint32(n), data)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || n*len(data) > maxControl {
			t.Fatalf("datagram %d: %v; want ErrFull before %d bytes wait", n, err, maxControl)
		}
	}
	if err := h.Err(); err != nil {
		t.Errorf("the session is over: %v", err)
	}
	h.next(wire.NetDatagramType)
}

// What waits when its context ends returns the cause, and what waits when the session ends
// returns why.
func TestWaitersEnd(t *testing.T) {
	t.Parallel()
	cause := errors.New("enough")
	for _, row := range []struct {
		name string
		call func(ctx context.Context, s *Session) error
	}{
		{"Accept", func(ctx context.Context, s *Session) error { _, err := s.Accept(ctx); return err }},
		{"ReceiveDatagram", func(ctx context.Context, s *Session) error { _, _, err := s.ReceiveDatagram(ctx); return err }},
		{"Listen", func(ctx context.Context, s *Session) error {
			return s.Listen(ctx, netip.MustParseAddrPort("127.0.0.1:80"))
		}},
		{"Ready", func(ctx context.Context, s *Session) error { return s.Ready(ctx) }},
		{"Open", func(ctx context.Context, s *Session) error {
			_, err := s.Open(ctx, Target{Kind: wire.NetDial})
			return err
		}},
	} {
		start := func() (*Session, net.Conn) {
			near, far := net.Pipe()
			s := New(Host, near, Options{})
			if row.name != "Ready" && row.name != "Open" {
				go func() { _, _ = io.Copy(io.Discard, far) }()
				_, _ = far.Write(wire.NetHello{Version: wire.NetVersion}.AppendFrame(nil))
			}
			t.Cleanup(func() {
				_ = s.Close()
				_ = far.Close()
			})
			return s, far
		}
		s, _ := start()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
		if err := row.call(ctx, s); !errors.Is(err, cause) {
			t.Errorf("%s, cancelled: %v; want the cause", row.name, err)
		}
		if err := s.Err(); err != nil {
			t.Errorf("%s, cancelled, has ended the session: %v", row.name, err)
		}
		s, far := start()
		time.AfterFunc(10*time.Millisecond, func() { _ = far.Close() })
		if err := row.call(t.Context(), s); !errors.Is(err, ErrLost) {
			t.Errorf("%s, without a peer: %v; want ErrLost", row.name, err)
		}
		if err := row.call(t.Context(), s); !errors.Is(err, ErrLost) {
			t.Errorf("%s, late: %v; want ErrLost", row.name, err)
		}
	}
}

// The host hears whose a connection is, as long as it is open, and a runner that was never
// asked tells nothing of other streams.
func TestOwners(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	host, runner := streams(t, h, r)
	if owner, ok := host.Owner(); ok {
		t.Errorf("Owner() before it was told = %+v", owner)
	}
	want := Owner{PID: 70, Session: 60, Runner: 50}
	r.Tell(runner, want)
	for n := 0; ; n++ {
		if got, ok := host.Owner(); ok {
			if got != want {
				t.Errorf("Owner() = %+v; want %+v", got, want)
			}
			break
		}
		if n > 60_000 { // a minute
			t.Fatal("the owner does not arrive")
		}
		time.Sleep(time.Millisecond)
	}
	if got, want := host.RemoteAddr().String(), "127.0.0.1:40000"; got != want {
		t.Errorf("RemoteAddr() = %s; want %s", got, want)
	}
	host.Reset(wire.NetCut)
	waitNone(t, h, r)
	r.Tell(runner, want) // too late: the peer has forgotten the number
	other, _ := streams(t, h, r)
	if owner, ok := other.Owner(); ok {
		t.Errorf("Owner() of another stream = %+v", owner)
	}
}

// A deadline ends what is under way, and works again when it is moved or removed.
func TestDeadlinesMove(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	host, runner := streams(t, h, r)
	past, soon := time.Now().Add(-time.Hour), 20*time.Millisecond
	flood := bytes.Repeat([]byte("x"), 64<<10) // more than the first credit
	for _, row := range []struct {
		name string
		set  func(at time.Time) error
		use  func() error
	}{
		{"read", host.SetReadDeadline, func() error { _, err := host.Read(make([]byte, 1)); return err }},
		{"write", host.SetWriteDeadline, func() error { _, err := host.Write(flood); return err }},
		{"both, read", host.SetDeadline, func() error { _, err := host.Read(make([]byte, 1)); return err }},
		{"both, write", host.SetDeadline, func() error { _, err := host.Write(flood); return err }},
	} {
		for _, at := range []time.Time{past, time.Now().Add(soon)} {
			if err := row.set(at); err != nil {
				t.Fatal(err)
			}
			if err := row.use(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s until %v: %v; want the deadline", row.name, at, err)
			}
		}
		if err := row.set(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := runner.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if n, err := host.Read(make([]byte, 9)); n != 1 || err != nil {
		t.Errorf("Read() without a deadline = %d, %v; want the byte", n, err)
	}
	_ = host.Close()
	for name, set := range map[string]func(time.Time) error{"SetDeadline": host.SetDeadline, "SetReadDeadline": host.SetReadDeadline, "SetWriteDeadline": host.SetWriteDeadline} {
		if err := set(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s of a closed stream = %v; want net.ErrClosed", name, err)
		}
	}
}

// Errors of a stream are told apart by their words.
func TestErrorWords(t *testing.T) {
	t.Parallel()
	said := map[string]string{}
	for reason := range wire.NetTimeout + 2 {
		for _, peer := range []bool{false, true} {
			text := (&ResetError{Reason: reason, Peer: peer}).Error()
			key := fmt.Sprint(reason, peer)
			if other, ok := said[text]; ok {
				t.Errorf("%s and %s are both %q", key, other, text)
			}
			said[text] = key
		}
	}
	if got := AddrInUse.Error(); got != "address already in use (errno 98)" || Errno(13).Error() != "errno 13" {
		t.Errorf("errors are %q and %q", got, Errno(13).Error())
	}
}

// A runner without listeners refuses them, and a session whose numbers are used up ends rather
// than use one twice.
func TestSessionEdges(t *testing.T) {
	t.Parallel()
	h, _ := pair(t, Options{}, Options{})
	if err := h.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:80")); !errors.Is(err, Errno(13)) {
		t.Errorf("Listen() of a runner that does not = %v; want EACCES", err)
	}
	h.mu.Lock()
	h.next = 1<<32 - 2
	h.mu.Unlock()
	if _, err := h.Open(t.Context(), Target{Kind: wire.NetDial}); !errors.Is(err, ErrLost) {
		t.Errorf("Open() without numbers = %v; want ErrLost", err)
	}
	if err := h.Err(); err == nil {
		t.Error("the session goes on")
	}
}
