package background

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// slow takes a minute for each write, and fails from the third on.
type slow struct{ got []string }

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(time.Minute)
	if len(s.got) == 2 {
		return 1, io.ErrClosedPipe
	}
	s.got = append(s.got, string(p))
	return len(p), nil
}

// A write that was waited for in vain goes on, and its results are had later; in a bubble, a
// goroutine that outlives Close fails the test.
func TestWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &slow{}
		w := New(to)
		defer w.Close()
		start := time.Now()
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		w.Start([]byte("one"))
		if n, err := w.Wait(stop); n != 0 || !errors.Is(err, ErrBlocked) || time.Since(start) != time.Second {
			t.Errorf("Wait(stop) = %d, %v after %v; want 0, %v after 1s", n, err, time.Since(start), ErrBlocked)
		}
		if n, err := w.Wait(nil); n != 3 || err != nil || time.Since(start) != time.Minute {
			t.Errorf("Wait(nil) = %d, %v after %v; want 3, nil after 1m", n, err, time.Since(start))
		}
		w.Start([]byte("two"))
		if n, err := w.Wait(nil); n != 3 || err != nil {
			t.Errorf("Wait(nil) = %d, %v; want 3, nil", n, err)
		}
		w.Start([]byte("three"))
		if n, err := w.Wait(nil); n != 1 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Wait(nil) = %d, %v; want 1, %v", n, err, io.ErrClosedPipe)
		}
		if len(to.got) != 2 || to.got[0] != "one" || to.got[1] != "two" {
			t.Errorf("written: %q", to.got)
		}
	})
}

// Close while a write blocks leaves no goroutine once the write has ended.
func TestCloseDuringWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		w := New(&slow{})
		w.Start([]byte("one"))
		w.Close()
		New(&slow{}).Close() // one that never wrote
		time.Sleep(time.Minute)
	})
}
