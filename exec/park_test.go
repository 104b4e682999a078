package exec

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// lot is a Parking in memory.
type lot struct{ parked []Parked }

func (l *lot) Leave(p Parked) { l.parked = append(l.parked, p) }

func (l *lot) Take(context.Context) (Parked, bool) {
	n := len(l.parked)
	if n == 0 {
		return Parked{}, false
	}
	p := l.parked[n-1]
	l.parked = l.parked[:n-1]
	return p, true
}

// parkingPool is a pool of fakes that takes runners from a lot, and leaves them there.
func parkingPool(t *testing.T, l *lot, fake func() *fakeRunner) *Pool {
	t.Helper()
	return NewPool(Options{
		Lease: 15 * time.Second, Parking: l,
		Open: func(context.Context) (io.ReadWriteCloser, error) { return newFake(t, fake()), nil },
	})
}

func say(t *testing.T, p *Pool, script string) {
	t.Helper()
	var out bytes.Buffer
	if _, err := p.Run(t.Context(), Command{Script: script, Stdout: &out}); err != nil || out.String() != script {
		t.Fatalf("Run(%s) wrote %q, %v", script, &out, err)
	}
}

// A runner goes from one pool to the next, and numbers its commands on.
func TestParkedRunnerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, l, f := 0, &lot{}, &fakeRunner{on: echo}
		for range 3 {
			p := parkingPool(t, l, func() *fakeRunner { opened++; return f })
			say(t, p, "one")
			say(t, p, "two")
			p.Close()
			if len(l.parked) != 1 {
				t.Fatalf("%d runners were left at Close; want 1", len(l.parked))
			}
		}
		if opened != 1 {
			t.Errorf("%d runners were opened; want 1 for three pools in turn", opened)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, req := range f.requests {
			if want := uint64(i + 1); req.Seq != want {
				t.Errorf("request %d has the number %d; want %d: a late Kill of an earlier command would meet it", i, req.Seq, want)
			}
		}
		_ = l.parked[0].Stream.Close()
	})
}

// What a parked runner needs not to be trusted: a command is only sent to one that answers.
func TestParkedRunnerMustAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asleep := &lot{}, &fakeRunner{on: echo}
		p := parkingPool(t, l, func() *fakeRunner { return asleep })
		say(t, p, "one")
		p.Close()
		asleep.mute.Store(true) // as in a session that is paused
		p = parkingPool(t, l, func() *fakeRunner { return &fakeRunner{on: echo} })
		start := time.Now()
		say(t, p, "two")
		if got := time.Since(start); got > awakeTime {
			t.Errorf("the command started after %v; want a runner that does not answer to be given up after %v", got, awakeTime)
		}
		asleep.mu.Lock()
		got := len(asleep.requests)
		asleep.mu.Unlock()
		if got != 1 {
			t.Errorf("the runner that did not answer got %d commands; want only the one from before", got)
		}
		p.opts.Parking = nil
		p.Close()
	})
}

// Runners that cannot be left are closed.
func TestNotParked(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(r *Runner, f *fakeRunner)
	}{
		{"the answer to a Ping is on its way", func(r *Runner, f *fakeRunner) {
			f.mute.Store(true)
			_ = r.send(wire.TypePing, nil)
		}},
		{"a part of a frame has come", func(_ *Runner, f *fakeRunner) { f.out <- []byte{byte(wire.TypePong), 0} }},
		{"its stream has ended", func(_ *Runner, f *fakeRunner) { f.hangUp() }},
		{"its stream has no deadlines", func(r *Runner, _ *fakeRunner) {
			r.stream = struct{ io.ReadWriteCloser }{r.stream}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeRunner{}
				r := open(t, f)
				tt.spoil(r, f)
				synctest.Wait()
				if _, ok := r.park(); ok {
					t.Error("it was parked")
				}
				if _, err := r.stream.(io.Writer).Write([]byte{0}); err == nil {
					t.Error("its stream is open")
				}
			})
		})
	}
}

// After park no frame is sent, so that none reaches the next process's command.
func TestParkedRunnerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{}
		r := open(t, f)
		left, ok := r.park()
		if !ok {
			t.Fatal("it was not parked")
		}
		if err := r.send(wire.TypeKill, wire.Kill{Seq: 1}.Append(nil)); err == nil {
			t.Error("a Kill was sent after park")
		}
		if _, ok := left.Stream.(net.Conn); !ok {
			t.Errorf("the stream is a %T; want the one that the runner had", left.Stream)
		}
		_ = left.Stream.Close()
	})
}
