package stdio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a writer that takes nothing until it is let go.
type stuck struct {
	release chan struct{}
	took    []byte
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.release
	s.took = append(s.took, p...)
	return len(p), nil
}

// A writer without a reader holds a run up to its end and no longer; what it did
// not take waits for it, in order, until the user has had enough.
func TestGateKeepsWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		released   time.Duration
		late       time.Duration // of the first write
		takes      time.Duration // when the reader does
		cancelled  time.Duration // when the user has had enough; 0: never
		wantFlush  time.Duration // from the start
		wantLost   int64
		wantWrites time.Duration
	}{
		{"slow", 3 * time.Second, 0, time.Hour, 0, time.Hour, 0, 3 * time.Second},
		{"written after the end", time.Second, 5 * time.Second, time.Minute, 0, time.Minute, 0, 0},
		{"never read", 3 * time.Second, 0, time.Hour, time.Minute, time.Minute + patience, 12, 3 * time.Second},
		{"taken at the last moment", 3 * time.Second, 0, time.Minute + patience/2, time.Minute, time.Minute + patience/2, 0, 3 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancelled > 0 {
					defer time.AfterFunc(test.cancelled, cancel).Stop()
				}
				start := time.Now()
				w := &stuck{release: make(chan struct{})}
				letGo := time.AfterFunc(test.takes, func() { close(w.release) })
				g := NewWriter(t.Context(), w, nil)
				defer g.Close()
				defer time.AfterFunc(test.released, g.Release).Stop()
				time.Sleep(test.late) // of the bubble: costs nothing
				began := time.Now()
				p := []byte("output")
				for range 2 {
					if n, err := g.Write(p); n != 6 || err != nil {
						t.Errorf("Write() = %d, %v; want 6, nil", n, err)
					}
					copy(p, "after!") // it is the caller's again
				}
				if took := time.Since(began); took != test.wantWrites {
					t.Errorf("writes took %v; want %v", took, test.wantWrites)
				}
				lost, err := g.Flush(ctx)
				if took := time.Since(start); lost != test.wantLost || (err != nil) != (lost > 0) || took != test.wantFlush {
					t.Errorf("Flush() = %d, %v after %v; want %d after %v", lost, err, took, test.wantLost, test.wantFlush)
				}
				if letGo.Stop() {
					close(w.release)
				} else if got := string(w.took); got != "outputafter!" {
					t.Errorf("the reader got %q", got)
				}
			})
		})
	}
}

// What is kept has a bound, and what is beyond it is counted.
func TestGateKeepsSoMuch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r, w := io.Pipe()
		g := NewWriter(t.Context(), w, nil)
		defer g.Close()
		g.Release()
		chunk := make([]byte, 1<<20)
		for range maxUntaken>>20 + 3 {
			_, _ = g.Write(chunk)
		}
		go func() { _, _ = io.Copy(&out, r) }()
		if lost, err := g.Flush(t.Context()); lost != 3<<20 || err != nil {
			t.Errorf("Flush() = %d, %v; want %d, nil", lost, err, 3<<20)
		}
		_ = w.Close()
		synctest.Wait()
		if out.Len() != maxUntaken {
			t.Errorf("the reader got %d bytes; want %d", out.Len(), maxUntaken)
		}
	})
}

// A pipe: everything arrives, a reader that has gone is reported once, and one
// that has stopped does not hold us up.
func TestGateOnAPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	broken := 0
	g := NewWriter(t.Context(), w, func() { broken++ })
	defer g.Close()
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
		if _, err := g.Write(text); !IsBrokenPipe(err) {
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
	g := NewWriter(ctx, w, nil)
	defer g.Close()
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	text := bytes.Repeat([]byte("0123456789abcdef"), 4<<16) // more than any pipe holds
	if n, err := g.Write(text); n != len(text) || err != nil || time.Since(start) > 10*time.Second {
		t.Errorf("Write() = %d, %v after %v; want %d, nil soon", n, err, time.Since(start), len(text))
	}
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, len(text))
		_, _ = io.ReadFull(r, b)
		got <- b
	}()
	if lost, err := g.Flush(t.Context()); lost != 0 || err != nil {
		t.Errorf("Flush() = %d, %v; want 0, nil", lost, err)
	}
	if !bytes.Equal(<-got, text) {
		t.Error("what arrived is not what was written")
	}
	_, _ = g.Write(text)
	lost, err := g.Flush(ctx)
	if lost < 1<<20 || lost > int64(len(text)) || !errors.Is(err, errStalled) {
		t.Errorf("Flush() without a reader = %d, %v; want nearly %d, %v", lost, err, len(text), errStalled)
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
	g := NewWriter(ctx, f, nil)
	cancel() // a file takes what comes, also after the end
	if n, err := g.Write([]byte("all of it")); n != 9 || err != nil {
		t.Errorf("Write() = %d, %v; want 9, nil", n, err)
	}
	g.Close()
	if _, err := f.WriteString("!"); err != nil {
		t.Errorf("the caller's file was closed: %v", err)
	}
}
