package exec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// detached answers the hand-over of a request.
func (f *fakeRunner) detached(d wire.Detached) { f.send(wire.TypeDetached, d.Append(nil)) }

// sent returns the types of the frames that the fake got, but for pings.
func (f *fakeRunner) sent() []wire.Type {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.frames), func(k wire.Type) bool { return k == wire.TypePing })
}

func TestHandOver(t *testing.T) {
	request := make(chan struct{}) // stands for a channel of the row's own
	for _, row := range []struct {
		name       string
		job        Job
		after      time.Duration // until the hand-over
		frames     []wire.Type
		background bool
	}{
		{"at once", Job{}, 0, []wire.Type{wire.TypeRequest}, true},
		{"after a while", Job{After: 3 * time.Second}, 3 * time.Second, []wire.Type{wire.TypeRequest, wire.TypeDetach}, false},
		{"on request", Job{After: -1, Detach: request}, time.Second, []wire.Type{wire.TypeRequest, wire.TypeDetach}, false},
		{"on request, before its time", Job{After: time.Hour, Detach: request}, time.Second, []wire.Type{wire.TypeRequest, wire.TypeDetach}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := false
			row.job.Tag, row.job.Key, row.job.Asked = "tag", []byte("key"), func() { asked = true }
			if row.job.Detach != nil {
				request := make(chan struct{})
				row.job.Detach = request
				time.AfterFunc(time.Second, func() { close(request) })
			}
			f := &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				if req.Job == nil || req.Job.Background != row.background || req.Job.Tag != "tag" || string(req.Job.Key) != "key" {
					t.Errorf("%s: the runner was asked for %+v", row.name, req.Job)
				}
				n := uint64(0)
				if !row.background {
					f.send(wire.TypeStdout, []byte("so far"))
					n = 6
				}
				time.Sleep(row.after)
				if !row.background {
					time.Sleep(time.Second) // for the runner to do it
					row.after += time.Second
				}
				f.detached(wire.Detached{Seq: req.Seq, ID: "bg_1", PID: 7, Stdout: n})
			}}
			r := open(t, f)
			var out bytes.Buffer
			got, err := r.Run(t.Context(), Command{Stdout: &out, Timeout: time.Hour, Job: &row.job})
			if err != nil || got.Reason != HandedOver || got.Handed == nil || *got.Handed != (Started{ID: "bg_1", PID: 7}) || got.Elapsed != row.after {
				t.Errorf("%s: Run() = %+v, %v; want it handed over as bg_1 within %s", row.name, got, err, row.after)
			}
			if want := got.Stdout; int64(out.Len()) != want {
				t.Errorf("%s: %q of output; want %d bytes", row.name, &out, want)
			}
			if sent := f.sent(); !slices.Equal(sent, row.frames) {
				t.Errorf("%s: the runner got %q; want %q", row.name, sent, row.frames)
			}
			if asked == row.background {
				t.Errorf("%s: Asked was called: %t", row.name, asked)
			}
			r.Close()
		})
	}
}

// A command that cannot be handed over goes on, and says why.
func TestHandOverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
			time.Sleep(2 * time.Second)
			f.detached(wire.Detached{Seq: req.Seq, Failure: wire.FailJobLimit})
			time.Sleep(2 * time.Second)
			f.send(wire.TypeStdout, []byte("all"))
			f.exit(wire.Exit{Seq: req.Seq, Code: 5, Stdout: 3})
		}}
		r := open(t, f)
		defer r.Close()
		var refused error
		var out bytes.Buffer
		got, err := r.Run(t.Context(), Command{Stdout: &out, Job: &Job{Key: []byte{1}, After: time.Second, Refused: func(err error) { refused = err }}})
		if err != nil || got.Reason != Exited || got.Code != 5 || got.Elapsed != 4*time.Second || out.String() != "all" {
			t.Errorf("Run() = %+v, %v, output %q; want exit code 5 after 4s", got, err, &out)
		}
		var e *Error
		if !errors.As(refused, &e) || e.Cause != CauseJobLimit {
			t.Errorf("Refused was called with %v; want %s", refused, CauseJobLimit)
		}
	})
}

// Whichever is first decides: an end before the hand-over is the end.
func TestHandOverTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
			time.Sleep(time.Second)
			f.exit(wire.Exit{Seq: req.Seq, Code: 1})
		}}
		r := open(t, f)
		defer r.Close()
		got, err := r.Run(t.Context(), Command{Stdout: io.Discard, Job: &Job{Key: []byte{1}, After: time.Second}})
		if err != nil || got.Reason != Exited || got.Code != 1 || got.Handed != nil {
			t.Errorf("Run() = %+v, %v; want exit code 1", got, err)
		}
	})
}

// A cancel while the hand-over is under way goes to the runner. What it says
// then is what happened.
func TestHandOverCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{onKill: func(f *fakeRunner, kill wire.Kill) { f.detached(wire.Detached{Seq: kill.Seq, ID: "bg_1"}) }}
		r := open(t, f)
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		got, err := r.Run(ctx, Command{Stdout: io.Discard, Job: &Job{Key: []byte{1}, After: time.Second}})
		if err != nil || got.Reason != HandedOver {
			t.Errorf("Run() = %+v, %v; want it handed over", got, err)
		}
	})
}

// A writer that takes nothing does not hold up the hand-over for ever.
func TestHandOverWithSlowWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
			f.send(wire.TypeStdout, []byte("one"))
			f.send(wire.TypeStdout, []byte("two"))
			time.Sleep(time.Second)
			f.detached(wire.Detached{Seq: req.Seq, ID: "bg_1", Stdout: 6})
		}}
		r := open(t, f)
		defer r.Close()
		release := make(chan struct{})
		got, err := r.Run(t.Context(), Command{Stdout: blocked(release), Job: &Job{Key: []byte{1}, After: time.Second}})
		close(release)
		if err != nil || got.Reason != HandedOver || got.Elapsed != time.Second+patience || got.Dropped != 6 {
			t.Errorf("Run() = %+v, %v; want it handed over after %s, and 6 bytes dropped", got, err, time.Second+patience)
		}
	})
}

type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// The answer to nothing, and a second refusal, are nonsense.
func TestDetachedOutOfPlace(t *testing.T) {
	for name, answers := range map[string][]wire.Detached{
		"another command": {{Seq: 9, ID: "bg_1"}},
		"refused twice":   {{Seq: 1}, {Seq: 1}, {Seq: 1}},
		"not offered":     {{Seq: 1, ID: "bg_1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, &fakeRunner{on: func(f *fakeRunner, _ wire.Request) {
				var all []byte
				for _, d := range answers {
					all = wire.AppendFrame(all, wire.TypeDetached, d.Append(nil))
				}
				f.out <- all
			}})
			defer r.Close()
			job := &Job{Key: []byte{1}, After: -1}
			if name == "not offered" {
				job = nil
			}
			_, err := r.Run(t.Context(), Command{Stdout: io.Discard, Job: job})
			var e *Error
			if !errors.As(err, &e) || e.Outcome != Unknown || e.Cause != CauseRunnerLost {
				t.Errorf("%s: Run() error = %v; want %s{%s}", name, err, Unknown, CauseRunnerLost)
			}
		})
	}
}

// A runner that keeps a job is not used again, and not killed: it is let go.
func TestPoolLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		p := pool(t, 0, func() *fakeRunner {
			opened++
			return &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				if req.Job != nil {
					f.detached(wire.Detached{Seq: req.Seq, ID: "bg_1"})
					return
				}
				f.exit(wire.Exit{Seq: req.Seq})
			}}
		})
		defer p.Close()
		if got, err := p.Run(t.Context(), Command{Stdout: io.Discard, Job: &Job{Key: []byte{1}}}); err != nil || got.Reason != HandedOver {
			t.Fatalf("Run() = %+v, %v; want it handed over", got, err)
		}
		if _, err := p.Run(t.Context(), Command{Stdout: io.Discard}); err != nil || opened != 2 {
			t.Errorf("Run() after it = %v, with %d runners opened; want nil, 2", err, opened)
		}
		if len(p.open) != 1 {
			t.Errorf("the pool holds %d runners; want 1", len(p.open))
		}
	})
}

// What goes aside waits for no other command.
func TestPoolAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool(t, 0, func() *fakeRunner {
			return &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
				if req.Shell == "bash" {
					time.Sleep(time.Minute)
				}
				f.exit(wire.Exit{Seq: req.Seq})
			}}
		})
		defer p.Close()
		var busy sync.WaitGroup
		defer busy.Wait()
		for range maxRunners {
			busy.Go(func() { _, _ = p.Run(t.Context(), Command{Shell: "bash", Stdout: io.Discard}) })
		}
		synctest.Wait()
		start := time.Now()
		if _, err := p.Aside(t.Context(), Command{Path: "/p", Stdout: io.Discard}); err != nil || time.Since(start) != 0 {
			t.Errorf("Aside() = %v after %s; want nil at once", err, time.Since(start))
		}
	})
}
