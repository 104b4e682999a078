package mux

import (
	"io"
	"sync"
	"testing"
	"time"
)

// What is written while a turn is about to begin waits for it, and goes with it: data, ends and
// control frames.
func TestGather(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	host1, runner1 := streams(t, h, r)
	host2, runner2 := streams(t, h, r)
	lockIdle(r)
	r.out.soon = true
	r.mu.Unlock()
	for st, word := range map[*Stream]string{runner1: "one", runner2: "two"} {
		if _, err := io.WriteString(st, word); err != nil {
			t.Fatal(err)
		}
		if err := st.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	if n := len(r.out.data); n != 4 || len(r.wake) != 0 {
		t.Errorf("%d frames wait, and the writer was woken %d times; want 4, 0", n, len(r.wake))
	}
	r.out.soon = false
	r.flush()
	if n := len(r.out.data); n != 0 {
		t.Errorf("%d frames are left", n)
	}
	r.mu.Unlock()
	for st, word := range map[*Stream]string{host1: "one", host2: "two"} {
		if got, err := io.ReadAll(st); string(got) != word || err != nil {
			t.Errorf("the host has read %q, %v; want %q", got, err, word)
		}
	}
}

// lockIdle locks a session whose writer has nothing to do.
func lockIdle(s *Session) {
	for {
		s.mu.Lock()
		if !s.out.busy && !s.out.soon && len(s.out.control)+len(s.out.data) == 0 && len(s.wake) == 0 {
			return
		}
		s.mu.Unlock()
	}
}

// A host sends the end of a direction as it sends data, without another goroutine. With a deadline it
// leaves that to the writer, which may wait.
func TestCloseWriteSends(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{Lease: time.Hour}, Options{}) // without a ping
	for _, deadline := range []time.Time{{}, time.Now().Add(time.Hour)} {
		host, runner := streams(t, h, r)
		if err := host.SetWriteDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		lockIdle(h)
		h.mu.Unlock()
		for range 2 {
			if err := host.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		h.mu.Lock()
		if sent := host.endSent; !sent && deadline.IsZero() {
			t.Error("CloseWrite() has left the end to another goroutine")
		}
		h.mu.Unlock()
		if got, err := io.ReadAll(runner); len(got) != 0 || err != nil {
			t.Errorf("the runner has read %q, %v; want the end", got, err)
		}
	}
}

// What is queued during a turn needs no waking either: another turn follows.
func TestQueuedDuringTurn(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	host, runner := streams(t, h, r)
	const rounds = 200
	var senders sync.WaitGroup
	defer senders.Wait()
	senders.Go(func() {
		for range rounds {
			_ = h.SendDatagram(1, []byte("question")) // control frames, from another goroutine
		}
	})
	senders.Go(func() {
		for range rounds {
			if _, err := io.WriteString(runner, "x"); err != nil {
				return
			}
		}
		_ = runner.CloseWrite()
	})
	if got, err := io.ReadAll(host); len(got) != rounds || err != nil {
		t.Errorf("the host has read %d bytes, %v; want %d", len(got), err, rounds)
	}
	for range rounds {
		if _, data, err := r.ReceiveDatagram(t.Context()); string(data) != "question" || err != nil {
			t.Fatalf("the runner has received %q, %v", data, err)
		}
	}
}
