package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a writer that takes nothing until it is let go.
type stuck struct {
	release chan struct{}
	took    atomic.Int64
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.release
	s.took.Add(int64(len(p)))
	return len(p), nil
}

// A writer that nobody empties holds a run up to its deadline, or to its end,
// and a little longer.
func TestGateGivesUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		cancelAfter time.Duration // 0: never
		lateStart   time.Duration // of the first write
		want        time.Duration // that the write takes
	}{
		{"deadline", 0, 0, 10*time.Second + patience},
		{"cancelled", 3 * time.Second, 0, 3*time.Second + patience},
		{"near the deadline", 0, 9 * time.Second, time.Second + patience},
		{"queued past the deadline", 0, time.Minute, 10*time.Second + patience},
		{"written after the end", time.Second, 5 * time.Second, patience},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancelAfter > 0 {
					defer time.AfterFunc(test.cancelAfter, cancel).Stop()
				}
				w := &stuck{release: make(chan struct{})}
				g, closeGate := newGate(ctx, w, 10*time.Second, nil)
				defer closeGate()
				time.Sleep(test.lateStart) // of the bubble: costs nothing
				start := time.Now()
				n, err := g.Write([]byte("output"))
				if took := time.Since(start); n != 0 || !errors.Is(err, errStalled) || took != test.want {
					t.Errorf("Write() = %d, %v after %v; want 0, %v after %v", n, err, took, errStalled, test.want)
				}
				close(w.release)
			})
		})
	}
}

// What is written late must not be what the caller has put there since.
func TestGateKeepsNothingOfTheCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r, w := io.Pipe()
		g, closeGate := newGate(t.Context(), w, time.Second, nil)
		defer closeGate()
		p := []byte("before")
		if _, err := g.Write(p); !errors.Is(err, errStalled) {
			t.Fatalf("Write() = %v; want %v", err, errStalled)
		}
		copy(p, "after!")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.CopyN(&out, r, int64(len(p)))
		}()
		<-done
		if out.String() != "before" {
			t.Errorf("written late: %q; want %q", out.String(), "before")
		}
	})
}

// A pipe: everything arrives, a reader that has gone is told of once, and one
// that has stopped does not hold us up.
func TestGateOnAPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	broken := 0
	g, closeGate := newGate(t.Context(), w, time.Minute, func() { broken++ })
	defer closeGate()
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, len(text))
		_, _ = io.ReadFull(r, b)
		got <- b
	}()
	if n, err := g.Write(text); n != len(text) || err != nil {
		t.Fatalf("Write() = %d, %v; want %d, nil", n, err, len(text))
	}
	if !bytes.Equal(<-got, text) {
		t.Error("what arrived is not what was written")
	}
	_ = r.Close()
	for range 2 {
		if _, err := g.Write(text); !isBrokenPipe(err) {
			t.Errorf("Write() without a reader = %v; want a broken pipe", err)
		}
	}
	if broken != 1 {
		t.Errorf("told of the broken pipe %d times; want once", broken)
	}
}

func TestGateOnAStoppedPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	g, closeGate := newGate(ctx, w, time.Hour, nil)
	defer closeGate()
	g.wait = 10 * time.Millisecond
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	_, err = g.Write(make([]byte, 4<<20)) // more than any pipe holds
	if !errors.Is(err, errStalled) || time.Since(start) > 10*time.Second {
		t.Errorf("Write() = %v after %v; want %v soon", err, time.Since(start), errStalled)
	}
}

func TestGateOnAFile(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	g, closeGate := newGate(ctx, f, time.Nanosecond, nil)
	cancel() // a file takes what comes, also after the end
	if n, err := g.Write([]byte("all of it")); n != 9 || err != nil {
		t.Errorf("Write() = %d, %v; want 9, nil", n, err)
	}
	closeGate()
	if _, err := f.WriteString("!"); err != nil {
		t.Errorf("the caller's file was closed: %v", err)
	}
}
