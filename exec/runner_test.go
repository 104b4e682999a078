package exec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{on: func(f *fakeRunner, req wire.Request) {
			f.send(wire.TypeStdout, []byte("out1 "))
			f.send(wire.TypeStderr, []byte("err"))
			f.send(wire.TypeStdout, []byte("out2"))
			time.Sleep(3 * time.Second)
			f.exit(wire.Exit{Seq: req.Seq, Code: 7, Stdout: 9, Stderr: 3, CPU: time.Second, MaxRSS: 4096})
		}}
		r := open(t, f)
		defer r.Close()
		var out, errOut bytes.Buffer
		got, err := r.Run(t.Context(), Command{Shell: "bash", Script: "x", Dir: "/", Stdout: &out, Stderr: &errOut})
		want := Status{Reason: Exited, Code: 7, Elapsed: 3 * time.Second, Stdout: 9, Stderr: 3, CPU: time.Second, MaxRSS: 4096}
		if !cmp.Equal(got, want) || err != nil {
			t.Errorf("Run() = %+v, %v; want %+v, nil", got, err, want)
		}
		if out.String() != "out1 out2" || errOut.String() != "err" {
			t.Errorf("output = %q, %q; want %q, %q", &out, &errOut, "out1 out2", "err")
		}
	})
}

// How a command ended is the runner's word; why it was killed is the context's.
func TestRunReason(t *testing.T) {
	for _, row := range []struct {
		name  string
		cause error
		exit  wire.Exit
		want  Reason
	}{
		{"timeout", ErrTimeout, wire.Exit{Signal: 15, Rung: wire.RungTerm}, TimedOut},
		{"output limit", ErrOutputLimit, wire.Exit{Signal: 9, Rung: wire.RungKill}, OutputLimit},
		{"cancel", context.Canceled, wire.Exit{Signal: 9, Rung: wire.RungKill}, Cancelled},
		{"trapped the signal and exited", ErrTimeout, wire.Exit{Code: 0, Rung: wire.RungTerm}, TimedOut},
		{"ended before the kill", ErrTimeout, wire.Exit{Code: 3}, Exited},
		{"signalled before the kill", ErrTimeout, wire.Exit{Signal: 15}, Signalled},
		{"oom before the kill", ErrTimeout, wire.Exit{Signal: 9, OOM: true}, OOMKilled},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeRunner{onKill: func(f *fakeRunner, kill wire.Kill) {
				row.exit.Seq = kill.Seq
				f.exit(row.exit)
			}}
			r := open(t, f)
			defer r.Close()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { cancel(row.cause) })
			got, err := r.Run(ctx, Command{Stdout: io.Discard})
			if got.Reason != row.want || got.Elapsed != 5*time.Second || err != nil {
				t.Errorf("%s: Run() = %s after %s, %v; want %s after 5s, nil", row.name, got.Reason, got.Elapsed, err, row.want)
			}
		})
	}
}

// A kill that has left something is not believed to be one.
func TestRunUnproved(t *testing.T) {
	for _, exit := range []wire.Exit{{Signal: 9, Rung: wire.RungStuck}, {Signal: 9, Rung: wire.RungKill, Left: 1}, {Rung: wire.RungTerm, Left: 3}} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, &fakeRunner{onKill: func(f *fakeRunner, kill wire.Kill) {
				exit.Seq = kill.Seq
				f.exit(exit)
			}})
			defer r.Close()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrTimeout)
			defer cancel()
			got, err := r.Run(ctx, Command{Stdout: io.Discard})
			if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != Unknown || e.Cause != CauseUnconfirmed {
				t.Errorf("Run() after %+v = %+v, %v; want outcome-unknown{kill-unconfirmed}", exit, got, err)
			}
		})
	}
}

func TestRunWithoutStatus(t *testing.T) {
	for _, row := range []struct {
		name    string
		on      func(*fakeRunner, wire.Request)
		outcome Outcome
		cause   Cause
		after   time.Duration
	}{
		{"runner lost", func(f *fakeRunner, _ wire.Request) { f.conn.Close() }, Unknown, CauseRunnerLost, 0},
		{"kill not confirmed", nil, Unknown, CauseUnconfirmed, 5*time.Second + DefaultGrace + sweepTime},
		{"nonsense", func(f *fakeRunner, _ wire.Request) { f.send('?', nil) }, Unknown, CauseRunnerLost, 0},
		{"lost bytes", func(f *fakeRunner, req wire.Request) {
			f.exit(wire.Exit{Seq: req.Seq, Stdout: 1})
		}, Unknown, CauseProtocol, 0},
		{"no directory", func(f *fakeRunner, req wire.Request) {
			f.send(wire.TypeFailed, wire.Failed{Seq: req.Seq, Failure: wire.FailDirMissing, Detail: "/x"}.Append(nil))
		}, NotStarted, CauseDirMissing, 0},
		{"no shell", func(f *fakeRunner, req wire.Request) {
			f.send(wire.TypeFailed, wire.Failed{Seq: req.Seq, Failure: wire.FailNoShell, Detail: "bash"}.Append(nil))
		}, NotStarted, CauseNoShell, 0},
		{"no resources", func(f *fakeRunner, req wire.Request) {
			f.send(wire.TypeFailed, wire.Failed{Seq: req.Seq, Failure: wire.FailResources}.Append(nil))
		}, NotStarted, CauseResources, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, &fakeRunner{on: row.on})
			defer r.Close()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, ErrTimeout)
			defer cancel()
			start := time.Now()
			_, err := r.Run(ctx, Command{Stdout: io.Discard})
			var e *Error
			if !errors.As(err, &e) || e.Outcome != row.outcome || e.Cause != row.cause {
				t.Errorf("%s: Run() error = %v; want %s{%s}", row.name, err, row.outcome, row.cause)
			}
			if got := time.Since(start); got != row.after {
				t.Errorf("%s: Run() took %s; want %s", row.name, got, row.after)
			}
		})
	}
}

// Cancelling before the start is a no-op: nothing is sent.
func TestRunCancelledBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{on: echo}
		r := open(t, f)
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Run(ctx, Command{Stdout: io.Discard})
		var e *Error
		if !errors.As(err, &e) || e.Outcome != NotStarted || e.Cause != CauseCancelled {
			t.Errorf("Run() error = %v; want not-started{cancelled}", err)
		}
		synctest.Wait()
		if len(f.frames) != 0 {
			t.Errorf("frames sent = %q; want none", f.frames)
		}
	})
}

// blockingWriter takes nothing until it is released.
type blockingWriter struct{ release chan struct{} }

func (w blockingWriter) Write(p []byte) (int, error) {
	<-w.release
	return len(p), nil
}

// A writer that never takes its bytes cannot hold up the end: it is given up on
// after the kill, and what it did not take is counted.
func TestRunBlockedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{onKill: func(f *fakeRunner, kill wire.Kill) {
			f.exit(wire.Exit{Seq: kill.Seq, Signal: 9, Rung: wire.RungKill, Stdout: 20})
		}}
		f.on = func(f *fakeRunner, req wire.Request) {
			f.send(wire.TypeStdout, []byte("0123456789"))
			f.send(wire.TypeStdout, []byte("0123456789"))
		}
		r := open(t, f)
		defer r.Close()
		w := blockingWriter{make(chan struct{})}
		defer close(w.release)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrTimeout)
		defer cancel()
		got, err := r.Run(ctx, Command{Stdout: w})
		if got.Reason != TimedOut || got.Dropped != 20 || got.Elapsed != time.Second+DefaultGrace || err != nil {
			t.Errorf("Run() = %+v, %v; want timed out after 1.25s with 20 bytes dropped", got, err)
		}
	})
}

// Output that is late, because the engine or the way to it has stood still, is not
// taken for output that is not taken.
func TestRunLateOutput(t *testing.T) {
	for name, late := range map[string]time.Duration{"at once": 0, "behind the grace": 2 * DefaultGrace, "late": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeRunner{on: func(*fakeRunner, wire.Request) {}, onKill: func(f *fakeRunner, kill wire.Kill) {
					time.Sleep(late)
					f.send(wire.TypeStdout, []byte("all of it"))
					f.exit(wire.Exit{Seq: kill.Seq, Code: 3, Stdout: 9})
				}}
				r := open(t, f)
				defer r.Close()
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrTimeout)
				defer cancel()
				var out bytes.Buffer
				got, err := r.Run(ctx, Command{Stdout: &out})
				if err != nil || got.Reason != Exited || got.Code != 3 || got.Dropped != 0 || out.String() != "all of it" {
					t.Errorf("Run() = %+v, %v, output %q; want it exited with 3 and nothing dropped", got, err, out.String())
				}
			})
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestRunBrokenWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &fakeRunner{on: echo})
		defer r.Close()
		got, err := r.Run(t.Context(), Command{Script: "text", Stdout: brokenWriter{}})
		if got.Reason != Exited || !errors.Is(got.Write, io.ErrClosedPipe) || err != nil {
			t.Errorf("Run() = %+v, %v; want an exit with the writer's error", got, err)
		}
	})
}

// Standard input is never more than a window ahead of the command, so that a
// kill behind it is seen.
func TestRunStdinWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRunner{
			on: func(f *fakeRunner, req wire.Request) { f.ask(req, wire.StdinWindow) },
			onKill: func(f *fakeRunner, kill wire.Kill) {
				f.exit(wire.Exit{Seq: kill.Seq, Signal: 15, Rung: wire.RungTerm})
			},
		}
		r := open(t, f)
		defer r.Close()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, ErrTimeout)
		defer cancel()
		got, err := r.Run(ctx, Command{Stdout: io.Discard, Stdin: strings.NewReader(strings.Repeat("x", 50<<20))})
		if got.Reason != TimedOut || err != nil {
			t.Errorf("Run() = %+v, %v; want timed out", got, err)
		}
		if n := f.stdinLen(); n == 0 || n > wire.StdinWindow {
			t.Errorf("%d bytes of standard input were sent; want at most %d", n, wire.StdinWindow)
		}
	})
}

func TestRunStdin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		f := &fakeRunner{}
		f.on = func(f *fakeRunner, req wire.Request) {
			f.ask(req, wire.StdinWindow)
			for seen := 0; seen < len(text); {
				synctest.Wait()
				n := f.stdinLen() - seen
				seen += n
				f.ask(req, n)
			}
			f.exit(wire.Exit{Seq: req.Seq})
		}
		r := open(t, f)
		defer r.Close()
		if _, err := r.Run(t.Context(), Command{Stdout: io.Discard, Stdin: strings.NewReader(text)}); err != nil {
			t.Fatal(err)
		}
		if string(f.stdin) != text {
			t.Errorf("%d bytes of standard input arrived; want %d, the same", len(f.stdin), len(text))
		}
	})
}

// A file is read again after a command that has left its input alone, and what one
// command has not read of it is not given to the next.
func TestRunStdinOfAFile(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	f := &fakeRunner{}
	f.on = func(f *fakeRunner, req wire.Request) {
		f.ask(req, wire.StdinWindow)
		if req.Seq == 2 { // the first reads nothing
			for f.stdinLen() < len("second") {
				time.Sleep(time.Millisecond)
			}
		}
		f.exit(wire.Exit{Seq: req.Seq})
	}
	r := open(t, f)
	defer r.Close()
	for i := range 2 {
		if i == 1 {
			if _, err := out.WriteString("second"); err != nil {
				t.Fatal(err)
			}
		}
		if st, err := r.Run(t.Context(), Command{Stdout: io.Discard, Stdin: in}); err != nil || st.Reason != Exited {
			t.Fatalf("Run() = %+v, %v", st, err)
		}
	}
	if got := string(f.stdin); got != "second" {
		t.Errorf("the commands were given %q; want second", got)
	}
}

// endless is a file that always has more.
type endless struct{ reads atomic.Int64 }

func (e *endless) Read(p []byte) (int, error)      { e.reads.Add(1); return len(p), nil }
func (e *endless) SetReadDeadline(time.Time) error { return nil }

// The end of a command is reported, also when the engine does not take what was
// read for it.
func TestRunStdinStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stuck := &endless{}, make(chan struct{})
		f := &fakeRunner{onStdin: func() { <-stuck }}
		f.on = func(f *fakeRunner, req wire.Request) {
			f.ask(req, wire.StdinWindow)
			for in.reads.Load() < 2 { // the second is never taken
				time.Sleep(time.Millisecond)
			}
			f.exit(wire.Exit{Seq: req.Seq})
		}
		r := open(t, f)
		if st, err := r.Run(t.Context(), Command{Stdout: io.Discard, Stdin: in}); err != nil || st.Reason != Exited {
			t.Errorf("Run() = %+v, %v; want its end", st, err)
		}
		r.Close()
		close(stuck)
	})
}

// A request of any size travels in frames of bounded size.
func TestRunLargeScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := strings.Repeat("#", wire.MaxScript)
		f := &fakeRunner{on: func(f *fakeRunner, req wire.Request) { f.exit(wire.Exit{Seq: req.Seq}) }}
		r := open(t, f)
		defer r.Close()
		if _, err := r.Run(t.Context(), Command{Script: script, Stdout: io.Discard}); err != nil {
			t.Fatal(err)
		}
		if got := f.requests[0].Script; string(got) != script {
			t.Errorf("a script of %d bytes arrived; want %d, the same", len(got), len(script))
		}
	})
}

func TestNewRunnerRefuses(t *testing.T) {
	for _, row := range []struct {
		name  string
		greet func(net.Conn)
		cause Cause
	}{
		{"another version", func(c net.Conn) {
			_, _ = c.Write(wire.AppendFrame(nil, wire.TypeHello, wire.Hello{Version: wire.Version + 1}.Append(nil)))
		}, CauseProtocol},
		{"not a runner", func(c net.Conn) { _, _ = io.WriteString(c, "exec failed: no such file") }, CauseEngine},
		{"half of a greeting", func(c net.Conn) {
			_, _ = c.Write(wire.AppendFrame(nil, wire.TypeHello, wire.Hello{Version: wire.Version}.Append(nil))[:9])
			c.Close()
		}, CauseEngine},
		{"end of stream", func(c net.Conn) { c.Close() }, CauseEngine},
		{"silence", func(net.Conn) {}, CauseEngine},
	} {
		synctest.Test(t, func(t *testing.T) {
			host, runner := net.Pipe()
			defer runner.Close()
			go func() { _, _ = io.Copy(io.Discard, runner) }()
			go row.greet(runner)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := NewRunner(ctx, host, time.Second)
			var e *Error
			if !errors.As(err, &e) || e.Outcome != NotStarted || e.Cause != row.cause {
				t.Errorf("%s: NewRunner() error = %v; want not-started{%s}", row.name, err, row.cause)
			}
		})
	}
}
