package exec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A runner is used again, one command at a time.
func TestPoolReuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		p := pool(t, 0, func() *fakeRunner { opened++; return &fakeRunner{on: echo} })
		defer p.Close()
		for i := range 20 {
			var out bytes.Buffer
			script := strconv.Itoa(i)
			if _, err := p.Run(t.Context(), Command{Script: script, Stdout: &out}); err != nil || out.String() != script {
				t.Fatalf("Run(%s) wrote %q, %v", script, &out, err)
			}
		}
		if opened != 1 {
			t.Errorf("%d runners were opened for 20 commands in turn; want 1", opened)
		}
	})
}

// Eight commands run at once; the ninth waits, and its timeout begins with its
// start.
func TestPoolQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// No two end at the same instant: each end frees a place for one.
		life := func(script string) time.Duration {
			i, _ := strconv.Atoi(script)
			return 10*time.Second + time.Duration(i)*time.Millisecond
		}
		var mu sync.Mutex
		var order []string
		p := pool(t, 0, func() *fakeRunner {
			return &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				mu.Lock()
				order = append(order, string(req.Script))
				mu.Unlock()
				time.Sleep(life(string(req.Script)))
				f.exit(wire.Exit{Seq: req.Seq})
			}}
		})
		defer p.Close()
		var all sync.WaitGroup
		for i := range maxRunners + 2 {
			all.Go(func() {
				st, err := p.Run(t.Context(), Command{Script: strconv.Itoa(i), Stdout: io.Discard, Timeout: 11 * time.Second})
				if want := life(strconv.Itoa(i)); st.Reason != Exited || st.Elapsed != want || err != nil {
					t.Errorf("command %d: %+v, %v; want exited after %s", i, st, err, want)
				}
			})
			synctest.Wait() // so that they queue in this order
		}
		mu.Lock()
		if len(order) != maxRunners {
			t.Errorf("%d commands run at once; want %d", len(order), maxRunners)
		}
		mu.Unlock()
		all.Wait()
		mu.Lock()
		defer mu.Unlock()
		if got := order[maxRunners:]; got[0] != "8" || got[1] != "9" {
			t.Errorf("the waiting commands ran in the order %v; want 8 before 9", got)
		}
	})
}

func TestPoolExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 0, func() *fakeRunner {
			return &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				time.Sleep(time.Second)
				f.exit(wire.Exit{Seq: req.Seq})
			}}
		})
		defer p.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.Run(t.Context(), Command{Stdout: io.Discard})
		}()
		synctest.Wait()
		_, err := p.Run(t.Context(), Command{Stdout: io.Discard, Exclusive: true})
		var e *Error
		if !errors.As(err, &e) || e.Outcome != NotStarted || e.Cause != CauseBusy {
			t.Errorf("Run(exclusive) during another: error %v; want not-started{busy}", err)
		}
		<-done
		if _, err := p.Run(t.Context(), Command{Stdout: io.Discard, Exclusive: true}); err != nil {
			t.Errorf("Run(exclusive) alone: %v", err)
		}
	})
}

// A session that other processes keep busy is waited for, unless exclusive.
func TestPoolBusyElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		p := pool(t, 0, func() *fakeRunner {
			return &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				if tries++; tries < 5 {
					f.send(wire.TypeFailed, wire.Failed{Seq: req.Seq, Failure: wire.FailBusy}.Append(nil))
					return
				}
				f.exit(wire.Exit{Seq: req.Seq})
			}}
		})
		defer p.Close()
		start := time.Now()
		if _, err := p.Run(t.Context(), Command{Stdout: io.Discard, Timeout: time.Millisecond}); err != nil {
			t.Errorf("Run() = %v; want it to wait", err)
		}
		if got := time.Since(start); tries != 5 || got != 15*busyPause { // 1, 2, 4 and 8
			t.Errorf("%d tries in %s; want 5 in %s", tries, got, 15*busyPause)
		}
		tries = 0
		var e *Error
		if _, err := p.Run(t.Context(), Command{Stdout: io.Discard, Exclusive: true}); !errors.As(err, &e) || e.Cause != CauseBusy || tries != 1 {
			t.Errorf("Run(exclusive) = %v after %d tries; want busy after 1", err, tries)
		}
	})
}

// A command that is tried again has all of its standard input: what could not be
// started has read none of it.
func TestPoolBusyLeavesStdin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, tries := strings.Repeat("0123456789abcdef", 1<<13), 0 // 128 KiB
		f := &fakeRunner{}
		f.on = func(f *fakeRunner, req wire.Request) {
			if tries++; tries < 4 {
				time.Sleep(time.Second)
				f.send(wire.TypeFailed, wire.Failed{Seq: req.Seq, Failure: wire.FailBusy}.Append(nil))
				return
			}
			f.ask(req, wire.StdinWindow)
			synctest.Wait()
			f.exit(wire.Exit{Seq: req.Seq})
		}
		p := pool(t, 0, func() *fakeRunner { return f })
		defer p.Close()
		if st, err := p.Run(t.Context(), Command{Stdout: io.Discard, Stdin: strings.NewReader(text)}); err != nil || st.Reason != Exited {
			t.Fatalf("Run() = %+v, %v", st, err)
		}
		if got := string(f.stdin); got != text || tries != 4 {
			t.Errorf("%d bytes of standard input arrived after %d tries; want %d after 4", len(got), tries, len(text))
		}
	})
}

// A runner that retires, or is lost, is never used again; with Ahead there is
// another before it is needed.
func TestPoolReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		p := pool(t, 1, func() *fakeRunner {
			opened++
			return &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				f.exit(wire.Exit{Seq: req.Seq, Left: 1})
				f.hangUp()
			}}
		})
		defer p.Close()
		for want := 2; want < 5; want++ {
			st, err := p.Run(t.Context(), Command{Stdout: io.Discard})
			if st.Left != 1 || err != nil {
				t.Fatalf("Run() = %+v, %v", st, err)
			}
			synctest.Wait()
			if opened != want {
				t.Errorf("%d runners opened; want %d", opened, want)
			}
		}
	})
}

// A runner that has gone away while it was idle is passed over.
func TestPoolIdleRunnerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fakes []*fakeRunner
		p := pool(t, 0, func() *fakeRunner {
			f := &fakeRunner{on: echo}
			fakes = append(fakes, f)
			return f
		})
		defer p.Close()
		for range 2 {
			if _, err := p.Run(t.Context(), Command{Script: "x", Stdout: io.Discard}); err != nil {
				t.Fatal(err)
			}
			fakes[len(fakes)-1].conn.Close()
			synctest.Wait()
		}
		if len(fakes) != 2 {
			t.Errorf("%d runners opened; want 2", len(fakes))
		}
	})
}

// Runners hear from the host within every lease, and those idle for long go.
func TestPoolHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{on: echo}
		p := pool(t, 0, func() *fakeRunner { return f })
		defer p.Close()
		if _, err := p.Run(t.Context(), Command{Script: "x", Stdout: io.Discard}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(16 * time.Second)
		pings := 0
		f.mu.Lock()
		for _, kind := range f.frames {
			if kind == wire.TypePing {
				pings++
			}
		}
		f.mu.Unlock()
		if pings != 2 {
			t.Errorf("%d pings in 16s of a lease of 15s; want 2", pings)
		}
	})
}

// Of idle runners one healthy from the host within every lease, the others rarely;
// a busy one always does, and then no idle one has to.
func TestPoolRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var fakes []*fakeRunner // guarded by mu
		p := pool(t, 3, func() *fakeRunner {
			f := &fakeRunner{on: echo}
			mu.Lock()
			defer mu.Unlock()
			fakes = append(fakes, f)
			return f
		})
		defer p.Close()
		p.Fill()
		synctest.Wait()
		pings := func() (all []int) {
			mu.Lock()
			defer mu.Unlock()
			for _, f := range fakes {
				f.mu.Lock()
				n := 0
				for _, kind := range f.frames {
					if kind == wire.TypePing {
						n++
					}
				}
				f.mu.Unlock()
				all = append(all, n)
			}
			slices.Sort(all)
			return all
		}
		time.Sleep(time.Minute + time.Second)
		if got, want := pings(), []int{0, 0, 10}; !slices.Equal(got, want) {
			t.Errorf("pings in a minute of a lease of 15s: %d; want %d", got, want)
		}
		time.Sleep(wire.IdleLease / 2)
		if got := pings(); got[0] < 1 || got[1] > 2 {
			t.Errorf("pings in %s more: %d; want one or two of idle runners", wire.IdleLease/2, got)
		}
	})
}

func TestPoolOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(Options{Lease: time.Minute, Ahead: 1, Open: func(context.Context) (io.ReadWriteCloser, error) {
			return nil, errors.New("engine says no")
		}})
		defer p.Close()
		_, err := p.Run(t.Context(), Command{Stdout: io.Discard})
		var e *Error
		if !errors.As(err, &e) || e.Outcome != NotStarted || e.Cause != CauseEngine {
			t.Errorf("Run() error = %v; want not-started{engine}", err)
		}
	})
}

// Again decides whether a runner that could not be opened is tried again, and what the error is otherwise.
func TestPoolAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		opened := 0
		p := NewPool(Options{
			Lease: time.Minute,
			Open: func(context.Context) (io.ReadWriteCloser, error) {
				opened++
				return nil, refused
			},
			Again: func(_ context.Context, err *Error) *Error {
				if opened == 1 {
					return nil
				}
				return &Error{Outcome: err.Outcome, Cause: CauseResources, Err: err.Err}
			},
		})
		defer p.Close()
		_, err := p.Run(t.Context(), Command{Stdout: io.Discard})
		if e, _ := errors.AsType[*Error](err); e == nil || e.Cause != CauseResources || !errors.Is(err, refused) || opened != 2 {
			t.Errorf("Run() = %v after %d openings; want what Again returned, after 2", err, opened)
		}
	})
}

// Close ends what runs, and waits for every goroutine.
func TestPoolClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 1, func() *fakeRunner { return &fakeRunner{} })
		done := make(chan error, 1)
		go func() {
			_, err := p.Run(t.Context(), Command{Stdout: io.Discard})
			done <- err
		}()
		synctest.Wait()
		p.Close()
		var e *Error
		if err := <-done; !errors.As(err, &e) || e.Outcome != Unknown {
			t.Errorf("Run() under Close: error %v; want outcome-unknown", err)
		}
	})
}

// A runner whose opening ends after the pool was closed is closed too, and not used.
func TestPoolCloseWhileOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opening, closed := make(chan struct{}), make(chan struct{})
		p := NewPool(Options{Lease: 15 * time.Second, Open: func(context.Context) (io.ReadWriteCloser, error) {
			close(opening)
			<-closed
			return newFake(t, &fakeRunner{on: echo}), nil
		}})
		ran := make(chan error)
		go func() {
			_, err := p.Run(t.Context(), Command{Script: "x", Stdout: io.Discard})
			ran <- err
		}()
		<-opening
		p.Close()
		close(closed)
		e, ok := errors.AsType[*Error](<-ran)
		if !ok || e.Outcome != NotStarted || e.Cause != CauseCancelled {
			t.Errorf("Run() in a pool that was closed = %v; want %s{%s}", e, NotStarted, CauseCancelled)
		}
		if st := p.Stats(); st != (PoolStats{}) {
			t.Errorf("Stats() of a closed pool = %+v; want none", st)
		}
	})
}
