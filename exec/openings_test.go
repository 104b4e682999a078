package exec

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// slowEngine opens runners that take a while, and counts those under way.
type slowEngine struct {
	takes time.Duration // 0: for ever

	mu               sync.Mutex
	now, most, total int // guarded by mu
}

func (s *slowEngine) open(t *testing.T) func(context.Context) (io.ReadWriteCloser, error) {
	t.Helper()
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		s.mu.Lock()
		s.now++
		s.total++
		s.most = max(s.most, s.now)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.now--
		}()
		var over <-chan time.Time
		if s.takes > 0 {
			over = time.After(s.takes)
		}
		select {
		case <-over:
			return newFake(t, &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				time.Sleep(10 * time.Millisecond)
				echo(f, req)
			}}), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// A burst over many sessions opens few runners at a time.
func TestGateBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowEngine{takes: 500 * time.Millisecond}
		gate := &Openings{slots: make(chan struct{}, 4)}
		var all sync.WaitGroup
		for range 10 {
			p := NewPool(Options{Lease: time.Minute, Openings: gate, Open: s.open(t)})
			defer p.Close()
			for range 20 {
				all.Go(func() {
					if st, err := p.Run(t.Context(), Command{Stdout: io.Discard}); err != nil || st.Reason != Exited {
						t.Errorf("Run() = %+v, %v; want exited", st, err)
					}
				})
			}
		}
		all.Wait()
		if s.most != 4 {
			t.Errorf("%d runners were opened at a time; want 4", s.most)
		}
	})
}

// Those that wait for a slot take the runner of one that has ended.
func TestGateTakesWhatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowEngine{takes: 500 * time.Millisecond}
		p := NewPool(Options{Lease: time.Minute, Openings: &Openings{slots: make(chan struct{}, 1)}, Open: s.open(t)})
		defer p.Close()
		var all sync.WaitGroup
		start := time.Now()
		for range 20 {
			all.Go(func() {
				if _, err := p.Run(t.Context(), Command{Stdout: io.Discard}); err != nil {
					t.Errorf("Run() = %v", err)
				}
			})
		}
		all.Wait()
		// One opens, and the next one opens another while all others use the first.
		if took := time.Since(start); s.total != 2 || took != time.Second+10*time.Millisecond {
			t.Errorf("%d runners were opened, in %s; want 2, in 1.01s", s.total, took)
		}
	})
}

// A session whose runners hang keeps no other from its own for long.
func TestGateHangingSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &Openings{slots: make(chan struct{}, 4)}
		bad := NewPool(Options{Lease: time.Minute, Openings: gate, Open: (&slowEngine{}).open(t)})
		good := NewPool(Options{Lease: time.Minute, Openings: gate, Open: (&slowEngine{takes: time.Second}).open(t)})
		defer bad.Close()
		defer good.Close()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				start := time.Now()
				_, err := bad.Run(t.Context(), Command{Stdout: io.Discard})
				var e *Error
				if !errors.As(err, &e) || e.Outcome != NotStarted || e.Cause != CauseEngine || !errors.Is(err, errSlowOpen) || time.Since(start) != openTime {
					t.Errorf("Run() of what hangs = %v after %s; want not-started{engine}, too slow, after %s", err, time.Since(start), openTime)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if _, err := good.Run(t.Context(), Command{Stdout: io.Discard}); err != nil || time.Since(start) > slotTime+2*time.Second {
			t.Errorf("Run() at the same time: %v after %s; want it to run after %s", err, time.Since(start), slotTime)
		}
		all.Wait()
	})
}

// A caller that gets no slot gets an error, and one that goes away does not wait.
func TestGateCrowded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &Openings{slots: make(chan struct{}, 1)}
		gate.slots <- struct{}{} // for ever
		p := NewPool(Options{Lease: time.Minute, Ahead: 1, Openings: gate, Open: (&slowEngine{takes: time.Second}).open(t)})
		defer p.Close()
		p.Fill() // waits too, and ends with the pool
		start := time.Now()
		_, err := p.Run(t.Context(), Command{Stdout: io.Discard})
		var e *Error
		if !errors.As(err, &e) || e.Outcome != NotStarted || e.Cause != CauseEngine || !errors.Is(err, errCrowded) || time.Since(start) != openingWait {
			t.Errorf("Run() = %v after %s; want not-started{engine}, crowded, after %s", err, time.Since(start), openingWait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Run(ctx, Command{Stdout: io.Discard}); !errors.As(err, &e) || e.Outcome != NotStarted || e.Cause != CauseCancelled {
			t.Errorf("Run() of a caller who goes = %v; want not-started{cancelled}", err)
		}
	})
}
