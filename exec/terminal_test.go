package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// ptyRunner plays the runner of a terminal and its attendant. It sends what the
// test has it send, when the test asks for it.
type ptyRunner struct {
	terminal, attendant net.Conn // its ends
	killed              chan time.Duration
}

func (r *ptyRunner) send(kind wire.Type, payload []byte) {
	_, _ = r.attendant.Write(wire.AppendFrame(nil, kind, payload))
}

// openPTY returns a Terminal whose command has been started, or why it was not,
// and its runner. first is what the runner says to the request.
func openPTY(ctx context.Context, t *testing.T, first func(*ptyRunner)) (*Terminal, *ptyRunner, error) {
	t.Helper()
	terminal, r1 := net.Pipe()
	attendant, r2 := net.Pipe()
	r := &ptyRunner{terminal: r1, attendant: r2, killed: make(chan time.Duration, 1)}
	go func() {
		hello := wire.Hello{Version: wire.Version, PID: 42, Bash: true}
		_, _ = r1.Write(wire.AppendFrame(nil, wire.TypeHello, hello.Append(nil)))
		in := wire.NewReader(r1)
		if kind, payload, err := in.Next(); err != nil || kind != wire.TypeRequest {
			return
		} else if req, err := wire.ParseRequest(payload); err != nil || string(req.Script) != "script" {
			return
		}
		first(r)
	}()
	go func() {
		_, _ = io.WriteString(r2, wire.Attending)
		pid := 0
		if _, err := fmt.Fscanf(r2, "%d\n", &pid); err != nil || pid != 42 {
			r2.Close()
			return
		}
		for in := wire.NewReader(r2); ; {
			kind, payload, err := in.Next()
			if err != nil {
				return
			}
			if kind == wire.TypePing {
				r.send(wire.TypePong, []byte{byte(wire.TerminalWaits)})
			}
			if kill, err := wire.ParseKill(payload); kind == wire.TypeKill && err == nil {
				r.killed <- kill.Grace
			}
		}
	}()
	if err := AwaitAttendant(ctx, attendant); err != nil {
		return nil, r, err
	}
	term, err := GreetTerminal(ctx, terminal)
	if err != nil {
		return nil, r, err
	}
	return term, r, term.Start(ctx, attendant, Command{Shell: "bash", Script: "script", Dir: "/"})
}

func says(kind wire.Type, payload []byte) func(*ptyRunner) {
	return func(r *ptyRunner) { r.send(kind, payload) }
}

func TestTerminalEnds(t *testing.T) {
	t.Parallel()
	exit := func(e wire.Exit) []byte {
		e.Seq = terminalSeq
		return e.Append(nil)
	}
	for _, row := range []struct {
		name    string
		cause   error            // of the context's end, after a second; nil if it does not end
		runner  func(*ptyRunner) // what it says when it has started the command, or is to kill it
		want    Status
		elapsed time.Duration
	}{
		{"exits", nil, says(wire.TypeExit, exit(wire.Exit{Code: 3, CPU: time.Second})), Status{Reason: Exited, Code: 3, CPU: time.Second}, 0},
		{"signalled", nil, says(wire.TypeExit, exit(wire.Exit{Signal: 9})), Status{Reason: Signalled, Signal: 9}, 0},
		{"out of memory", nil, says(wire.TypeExit, exit(wire.Exit{Signal: 9, OOM: true})), Status{Reason: OOMKilled, Signal: 9}, 0},
		{"timed out", ErrTimeout, says(wire.TypeExit, exit(wire.Exit{Signal: 15, Rung: wire.RungTerm})), Status{Reason: TimedOut, Signal: 15, Rung: wire.RungTerm}, time.Second},
		{"cancelled", context.Canceled, says(wire.TypeExit, exit(wire.Exit{Signal: 9, Rung: wire.RungKill})), Status{Reason: Cancelled, Signal: 9, Rung: wire.RungKill}, time.Second},
		{"too much output", ErrOutputLimit, says(wire.TypeExit, exit(wire.Exit{Signal: 9, Rung: wire.RungKill})), Status{Reason: OutputLimit, Signal: 9, Rung: wire.RungKill}, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				term, r, err := openPTY(t.Context(), t, says(wire.TypePong, []byte{'s'}))
				if err != nil {
					t.Fatal(err)
				}
				defer term.Close()
				defer r.terminal.Close()
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				if row.cause != nil {
					time.AfterFunc(time.Second, func() { end(row.cause) })
					go func() {
						if grace := <-r.killed; grace == 5*time.Second {
							row.runner(r)
						}
					}()
				} else {
					go row.runner(r)
				}
				got, err := term.Wait(ctx, 5*time.Second)
				row.want.Elapsed = row.elapsed
				if !cmp.Equal(got, row.want) || err != nil {
					t.Errorf("Wait() = %+v, %v; want %+v, nil", got, err, row.want)
				}
			})
		})
	}
}

// A kill that has left something is not believed to be one.
func TestTerminalUnproved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		term, r, err := openPTY(t.Context(), t, says(wire.TypePong, []byte{'s'}))
		if err != nil {
			t.Fatal(err)
		}
		defer term.Close()
		defer r.terminal.Close()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrTimeout)
		defer cancel()
		go func() {
			<-r.killed
			r.send(wire.TypeExit, wire.Exit{Seq: terminalSeq, Signal: 9, Rung: wire.RungKill, Left: 2}.Append(nil))
		}()
		_, err = term.Wait(ctx, time.Second)
		if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != Unknown || e.Cause != CauseUnconfirmed {
			t.Errorf("Wait() = %v; want outcome-unknown{kill-unconfirmed}", err)
		}
	})
}

// A runner that does not confirm a kill is given up in time, and one that goes away is noticed.
func TestTerminalUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		term, r, err := openPTY(t.Context(), t, says(wire.TypePong, []byte{'s'}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrTimeout)
		defer cancel()
		began := time.Now()
		_, err = term.Wait(ctx, time.Second)
		if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != Unknown || e.Cause != CauseUnconfirmed {
			t.Errorf("Wait() = %v; want outcome-unknown{kill-unconfirmed}", err)
		}
		if took := time.Since(began); took != 2*time.Second+sweepTime {
			t.Errorf("it took %v", took)
		}
		<-r.killed
		term.Close()
		r.terminal.Close()
		_, err = term.Wait(t.Context(), time.Second)
		if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != Unknown || e.Cause != CauseRunnerLost {
			t.Errorf("Wait() after the attendant's end = %v; want outcome-unknown{runner-lost}", err)
		}
		if _, err := term.WaitsForInput(t.Context()); err == nil {
			t.Error("WaitsForInput() after the end = nil")
		}
	})
}

func TestTerminalNotStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := wire.Failed{Seq: terminalSeq, Failure: wire.FailDirMissing, Detail: "/x"}
		_, r, err := openPTY(t.Context(), t, says(wire.TypeFailed, failed.Append(nil)))
		if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != NotStarted || e.Cause != CauseDirMissing {
			t.Errorf("Start() = %v; want not-started{directory-missing}", err)
		}
		r.terminal.Close()
		_, r, err = openPTY(t.Context(), t, func(r *ptyRunner) { r.attendant.Close() })
		if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != NotStarted {
			t.Errorf("Start() without an answer = %v; want not-started", err)
		}
		r.terminal.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, r, err = openPTY(ctx, t, func(*ptyRunner) {}) // says nothing
		if e, ok := errors.AsType[*Error](err); !ok || e.Cause != CauseCancelled {
			t.Errorf("Start() of a runner that says nothing = %v; want not-started{cancelled}", err)
		}
		r.terminal.Close()
	})
	for _, greeting := range []string{"", "bash: no such file\r\n", "H\xff\xff\xff\xff", "X\x00\x00\x00\x00"} {
		host, runner := net.Pipe()
		go func() {
			_, _ = io.WriteString(runner, greeting)
			runner.Close()
		}()
		_, err := GreetTerminal(t.Context(), host)
		if e, ok := errors.AsType[*Error](err); !ok || e.Outcome != NotStarted {
			t.Errorf("GreetTerminal(%q) = %v; want not-started", greeting, err)
		}
		if words := "no such file"; strings.Contains(greeting, words) && !strings.Contains(err.Error(), words) {
			t.Errorf("GreetTerminal(%q) = %v; want what was said", greeting, err)
		}
	}
}

func TestWaitsForInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		term, r, err := openPTY(t.Context(), t, says(wire.TypePong, []byte{'s'}))
		if err != nil {
			t.Fatal(err)
		}
		defer r.terminal.Close()
		defer term.Close()
		if got, err := term.WaitsForInput(t.Context()); got != wire.TerminalWaits || err != nil {
			t.Errorf("WaitsForInput() = %q, %v; want %q", got, err, wire.TerminalWaits)
		}
	})
}

func TestAwaitAttendant(t *testing.T) {
	t.Parallel()
	busy := &Error{Outcome: NotStarted, Cause: CauseBusy, Err: errors.New("busy")}
	for _, row := range []struct {
		name, said string
		err        error // of the end of what it says
		cause      Cause // "" if it is there
	}{
		{"there", wire.Attending, nil, ""},
		{"something else", "exec failed\n", nil, CauseProtocol},
		{"nothing", "", nil, CauseEngine},
		{"refused", "", busy, CauseBusy},
	} {
		in, out := io.Pipe()
		go func() {
			_, _ = io.WriteString(out, row.said)
			out.CloseWithError(row.err)
		}()
		err := AwaitAttendant(t.Context(), attendantOf{in, io.Discard})
		e, _ := errors.AsType[*Error](err)
		if row.cause == "" && err != nil || row.cause != "" && (e == nil || e.Cause != row.cause) {
			t.Errorf("%s: AwaitAttendant() = %v; want cause %q", row.name, err, row.cause)
		}
	}
}

type attendantOf struct {
	*io.PipeReader
	io.Writer
}
