package exec

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Row L14: a connection that drops everything is found out within 30 s, and the
// command's end is unknown. One that only has nothing to say, whose container is
// paused, or whose output is not taken, is waited for.
func TestPoolSilence(t *testing.T) {
	const long = 10 * time.Minute
	tests := []struct {
		name   string
		mute   bool
		paused time.Duration // so long
		block  bool          // the command's writer
		want   time.Duration // until it is lost; 0: it ends after long
	}{
		{"nothing to say", false, 0, false, 0},
		{"silent", true, 0, false, 30 * time.Second},
		{"paused", true, long, false, 0},
		{"paused, then silent", true, 5 * time.Minute, false, 5*time.Minute + 30*time.Second},
		{"the output is not taken", true, 0, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
					f.mute.Store(tt.mute)
					f.send(wire.TypeStdout, []byte("x"))
					time.Sleep(long)
					select {
					case f.out <- wire.AppendFrame(nil, wire.TypeExit, wire.Exit{Seq: req.Seq, Stdout: 1}.Append(nil)):
					default:
					}
				}}
				p := NewPool(Options{
					Lease:  time.Hour,
					Open:   func(context.Context) (io.ReadWriteCloser, error) { return newFake(t, f), nil },
					Paused: func(context.Context) bool { return time.Since(began) < tt.paused },
				})
				out := io.Discard
				if tt.block {
					out = writerFunc(func(b []byte) (int, error) {
						time.Sleep(long + time.Second)
						return len(b), nil
					})
				}
				st, err := p.Run(t.Context(), Command{Script: "x", Stdout: out})
				took := time.Since(began)
				if tt.want == 0 {
					if err != nil || st.Reason != Exited || took < long {
						t.Errorf("Run() = %+v, %v after %s; want its end after %s", st, err, took, long)
					}
				} else {
					var e *Error
					if !errors.As(err, &e) || e.Outcome != Unknown || e.Cause != CauseRunnerLost || !errors.Is(err, errSilent) {
						t.Errorf("Run() = %v; want an unknown outcome, because of silence", err)
					}
					if took > tt.want || took < tt.want-silenceTime {
						t.Errorf("Run() took %s; want at most %s", took, tt.want)
					}
				}
				p.Close()
				time.Sleep(long) // the fake's end
			})
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Row L4: a runner does not go on without a host for as long as its session does.
func TestPoolHostLease(t *testing.T) {
	for _, tt := range []struct{ lease, want time.Duration }{{15 * time.Second, 15 * time.Second}, {2 * time.Hour, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeRunner{on: echo}
			p := NewPool(Options{
				Lease: tt.lease,
				Open:  func(context.Context) (io.ReadWriteCloser, error) { return newFake(t, f), nil },
			})
			defer p.Close()
			if _, err := p.Run(t.Context(), Command{Script: "x", Stdout: io.Discard}); err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(f.lease.Load()); got != tt.want {
				t.Errorf("a runner of a session with a lease of %s was given one of %s; want %s", tt.lease, got, tt.want)
			}
		})
	}
}
