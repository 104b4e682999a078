package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// isError reports whether err says this much of the command.
func isError(err error, outcome exec.Outcome, cause exec.Cause) bool {
	var e *exec.Error
	return errors.As(err, &e) && e.Outcome == outcome && e.Cause == cause
}

// deaf makes a session whose runners start commands and then hear nothing.
func deaf(t *testing.T, spec Spec) (*fakeEngine, *Session) {
	t.Helper()
	d := newFakeEngine(t)
	_, s := start(t, d, spec)
	d.on = func(f *fakeRunner, req wire.Request) {
		if string(req.Script) == "echo" {
			f.answer([]byte("hi\n"))
		}
	}
	return d, s
}

var errTest = errors.New("not today")

// errNotRunning is how Reset says that a session has ended and did not start again.
var errNotRunning = &engine.Error{Op: "reset", Kind: engine.ErrNotRunning, Err: errTest}

func TestKillUnconfirmed(t *testing.T) {
	t.Parallel()
	// From T: the grace, the sweep and its slack; see exec.
	const unconfirmed = 2*time.Second + 500*time.Millisecond
	for _, tt := range []struct {
		name    string
		prepare func(*fakeEngine)
		killed  string     // of a result
		cause   exec.Cause // of an unknown outcome
		elapsed time.Duration
		calls   []string
		works   bool // the session does afterwards
	}{
		{"reset", func(*fakeEngine) {}, "reset", "", unconfirmed, []string{"reset", "limit", "open"}, true},
		{"it does not start", func(d *fakeEngine) { d.Fail = onCall("reset", errNotRunning) }, "removed", "", unconfirmed, []string{"reset", "end", "remove"}, false},
		{"the engine fails", func(d *fakeEngine) { d.Fail = onCall("reset", errTest) }, "", exec.CauseUnconfirmed, unconfirmed, []string{"reset"}, false},
		{"the engine hangs", func(d *fakeEngine) { d.Hang["reset"] = true }, "", exec.CauseUnconfirmed, unconfirmed + resetTime, []string{"reset"}, false},
		{"there is no reset", func(d *fakeEngine) { d.Facts.ResetKeeps = engine.KeepsNone }, "removed", "", unconfirmed, []string{"end", "remove"}, false},
		{"it does not start, and the removal hangs", func(d *fakeEngine) {
			d.Fail, d.Hang["end"] = onCall("reset", errNotRunning), true
		}, "", exec.CauseUnconfirmed, unconfirmed + removeTime, []string{"reset", "end"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, s := deaf(t, Spec{})
				defer s.Release()
				tt.prepare(d)
				begin := time.Now()
				res, err := s.Run(t.Context(), Command{Script: "x", Timeout: time.Second})
				elapsed := time.Since(begin) - time.Second
				if tt.killed != "" && (err != nil || res.Reason != exec.TimedOut || res.Killed != tt.killed || res.Elapsed != time.Since(begin)) {
					t.Errorf("Run() = %+v, %v; want timed-out, killed %q, after %v", res, err, tt.killed, time.Since(begin))
				}
				if tt.cause != "" && !isError(err, exec.Unknown, tt.cause) {
					t.Errorf("Run() = %+v, %v; want outcome-unknown{%s}", res, err, tt.cause)
				}
				if elapsed != tt.elapsed || elapsed > 5*time.Second {
					t.Errorf("Run() took %v after the timeout; want %v", elapsed, tt.elapsed)
				}
				if calls := d.Took(); !slices.Equal(calls, tt.calls) {
					t.Errorf("engine calls %q; want %q", calls, tt.calls)
				}
				if tt.works {
					res, err := s.Run(t.Context(), Command{Script: "echo"})
					if err != nil || res.Output.Stdout.Text() != "hi\n" {
						t.Errorf("the next Run() = %+v, %v; want hi", res, err)
					}
				}
			})
		})
	}
}

// onCall fails one kind of call.
func onCall(call string, err error) func(string) error {
	return func(got string) error {
		if got == call {
			return err
		}
		return nil
	}
}

func TestKillUnconfirmedAfterCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s := deaf(t, Spec{})
		defer s.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		res, err := s.Run(ctx, Command{Script: "x", Timeout: time.Hour})
		if err != nil || res.Reason != exec.Cancelled || res.Killed != "reset" {
			t.Errorf("Run() = %+v, %v; want cancelled, killed reset", res, err)
		}
	})
}

// What has become of a container decides what is said of the command.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		profile Profile
		happens func(*fakeEngine, *Session)
		outcome exec.Outcome
		cause   exec.Cause
		calls   []string // that change something
		works   bool
	}{
		{"killed", Strict, func(d *fakeEngine, s *Session) { d.Exit(s.ID(), 137) }, exec.Lost, CauseKilled, nil, false},
		{"out of memory", Strict, func(d *fakeEngine, s *Session) {
			d.Change(s.ID(), func(c *engine.Session) { c.OOMKilled = true })
			d.Exit(s.ID(), 137)
		}, exec.Lost, CauseOOM, nil, false},
		{"lease over", Strict, func(d *fakeEngine, s *Session) { d.Exit(s.ID(), wire.ExitLeaseOver) }, exec.Lost, CauseLeaseOver, nil, false},
		{"stopped", Strict, func(d *fakeEngine, s *Session) { d.Exit(s.ID(), wire.ExitStopped) }, exec.Lost, CauseStopped, nil, false},
		{"removed", Strict, func(d *fakeEngine, s *Session) { d.Lose(s.ID(), true) }, exec.Lost, CauseRemoved, nil, false},
		{"removed, but for its workspace", Strict, func(d *fakeEngine, s *Session) { d.Lose(s.ID(), false) }, exec.Lost, CauseRemoved, nil, false},
		{"paused", Strict, func(d *fakeEngine, s *Session) {
			d.Change(s.ID(), func(c *engine.Session) { c.Status = engine.StatusPaused })
			d.HangUp(s.ID())
		}, exec.Unknown, CausePaused, nil, false},
		{"unreachable", Strict, func(d *fakeEngine, s *Session) {
			d.Fail = onCall("find", engine.ErrUnreachable)
			d.HangUp(s.ID())
		}, exec.Unknown, CauseUnreachable, nil, false},
		{"engine hangs", Strict, func(d *fakeEngine, s *Session) {
			d.Hang["find"] = true
			d.HangUp(s.ID())
		}, exec.Unknown, CauseUnreachable, nil, false},
		{"runner gone", Strict, func(d *fakeEngine, s *Session) { d.HangUp(s.ID()) }, exec.Unknown, exec.CauseRunnerLost, []string{"sweep", "usage"}, true},
		{"runner gone in dev", Dev, func(d *fakeEngine, s *Session) { d.HangUp(s.ID()) }, exec.Unknown, exec.CauseRunnerLost, []string{"reset", "limit", "open"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, s := deaf(t, Spec{Profile: tt.profile})
				defer s.Release()
				time.AfterFunc(time.Second, func() { tt.happens(d, s) })
				begin := time.Now()
				res, err := s.Run(t.Context(), Command{Script: "x", Timeout: time.Hour})
				if !isError(err, tt.outcome, tt.cause) {
					t.Errorf("Run() = %+v, %v; want %s{%s}", res, err, tt.outcome, tt.cause)
				}
				if elapsed := time.Since(begin); elapsed > 6*time.Second {
					t.Errorf("Run() took %v", elapsed)
				}
				if calls := d.Took(); !slices.Equal(calls, tt.calls) {
					t.Errorf("engine calls %q; want %q", calls, tt.calls)
				}
				if tt.works {
					if res, err := s.Run(t.Context(), Command{Script: "echo"}); err != nil || res.Output.Stdout.Text() != "hi\n" {
						t.Errorf("the next Run() = %+v, %v; want hi", res, err)
					}
				}
			})
		})
	}
}

// A session found dead before a command can start is lost, not a failed engine.
func TestRunInDeadSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := deaf(t, Spec{})
		defer s.Release()
		d.Exit(s.ID(), wire.ExitLeaseOver)
		synctest.Wait()
		if _, err := s.Run(t.Context(), Command{Script: "echo"}); !isError(err, exec.Lost, CauseLeaseOver) {
			t.Errorf("Run() = %v; want session-lost{lease-over}", err)
		}
		e := New(d, &fakeImages{}, Options{})
		if _, err := e.Open(t.Context(), s.ID()); !isError(err, exec.Lost, CauseLeaseOver) {
			t.Errorf("Open() = %v; want session-lost{lease-over}", err)
		}
	})
}

// Leftovers are killed, once, and only when it is by the engine's count that
// nothing more can be started.
func TestMakeRoom(t *testing.T) {
	t.Parallel()
	full := engine.Usage{Pids: 500, PidsLimit: 512}
	for _, tt := range []struct {
		name   string
		first  wire.Failure // of the first try; 0: the exec itself fails
		usage  []engine.Usage
		room   bool
		cause  exec.Cause // of the error in the end; "" is none
		swept  bool
		tries  int
		always bool // every try fails
	}{
		{name: "at the pids limit", first: wire.FailResources, room: true, swept: true, tries: 2},
		{name: "at the limit for ever", first: wire.FailResources, cause: exec.CauseResources, room: true, swept: true, tries: 2, always: true},
		{name: "no runner, full", usage: []engine.Usage{full, full, {}}, room: true, swept: true},
		{name: "no runner, out of memory", usage: []engine.Usage{{Memory: 100 << 20, MemoryLimit: 110 << 20}, {Memory: 100 << 20, MemoryLimit: 110 << 20}, {}}, room: true, swept: true},
		{name: "no runner, not full", usage: []engine.Usage{{Pids: 400, PidsLimit: 512}}, cause: exec.CauseEngine},
		{name: "no limits", usage: []engine.Usage{{Pids: 1e6, Memory: 1e12}}, cause: exec.CauseEngine},
		{name: "still full", usage: []engine.Usage{full}, cause: exec.CauseResources, swept: true},
		{name: "no such directory", first: wire.FailDirMissing, cause: exec.CauseDirMissing, tries: 1, always: true},
		{name: "too big", first: wire.FailTooBig, cause: exec.CauseTooBig, tries: 1, always: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFakeEngine(t)
				_, s := start(t, d, Spec{})
				defer s.Release()
				tries := 0
				d.on = func(f *fakeRunner, _ wire.Request) {
					if tries++; tt.first != 0 && (tries == 1 || tt.always) {
						f.failed(tt.first)
						return
					}
					f.answer([]byte("ran"))
				}
				swept := false
				if len(tt.usage) > 0 {
					d.HangUp(s.ID()) // the idle runner: a new one is needed
					synctest.Wait()
					next := 0
					d.Load = func() (engine.Usage, error) {
						use := tt.usage[min(next, len(tt.usage)-1)]
						next++
						return use, nil
					}
					d.Fail = func(call string) error {
						swept = swept || call == "sweep"
						if call == "open" && (!swept || tt.cause != "") {
							return errTest
						}
						return nil
					}
				}
				res, err := s.Run(t.Context(), Command{Script: "x"})
				if tt.cause == "" && (err != nil || res.Output.Stdout.Text() != "ran") {
					t.Errorf("Run() = %+v, %v; want it to run", res, err)
				}
				if tt.cause != "" && !isError(err, exec.NotStarted, tt.cause) {
					t.Errorf("Run() = %v; want not-started{%s}", err, tt.cause)
				}
				if res.Room != tt.room {
					t.Errorf("Room = %t; want %t", res.Room, tt.room)
				}
				calls := strings.Join(d.Took(), ",")
				if got := strings.Contains(calls, "sweep"); got != tt.swept {
					t.Errorf("engine calls %s; want swept %t", calls, tt.swept)
				}
				if tt.first != 0 && tries != tt.tries {
					t.Errorf("%d tries; want %d", tries, tt.tries)
				}
			})
		})
	}
}

func TestLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state engine.Session
		want  exec.Cause
	}{
		{engine.Session{Status: "exited", ExitCode: wire.ExitLeaseOver}, CauseLeaseOver},
		{engine.Session{Status: "exited", ExitCode: wire.ExitStopped}, CauseStopped},
		{engine.Session{Status: "exited", ExitCode: 0}, CauseKilled}, // its engine has missed the end
		{engine.Session{Status: "exited", ExitCode: 137}, CauseKilled},
		{engine.Session{Status: "exited", ExitCode: 137, OOMKilled: true}, CauseOOM},
		{engine.Session{Status: "exited", ExitCode: 2}, CauseKilled},
		{engine.Session{Status: "created"}, CauseKilled},
		{engine.Session{Status: "dead"}, CauseKilled},
		{engine.Session{Status: "removing", ExitCode: 137, OOMKilled: true}, CauseRemoved},
	} {
		if got := lost(tt.state); got.Outcome != exec.Lost || got.Cause != tt.want || got.Err == nil {
			t.Errorf("lost(%+v) = %v; want session-lost{%s}", tt.state, got, tt.want)
		}
	}
}

// An engine that cannot start a runner for a while, as while its containerd is
// started again, is asked once more: no command has gone to one yet. What has
// become of the container is looked at each time.
func TestRunnerOpensLate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		fails   int // how many tries
		then    func(d *fakeEngine, s *Session)
		outcome exec.Outcome // "": it runs
		cause   exec.Cause
		tries   int
	}{
		{"once", 1, nil, "", "", 2},
		{"for two seconds", 5, nil, "", "", 6},
		{"for ever", 1000, nil, exec.NotStarted, exec.CauseEngine, 6},
		{"its container ends", 1000, func(d *fakeEngine, s *Session) { d.Exit(s.ID(), 137) }, exec.Lost, CauseKilled, 1},
		{"its container is paused", 1000, func(d *fakeEngine, s *Session) {
			d.Change(s.ID(), func(c *engine.Session) { c.Status = engine.StatusPaused })
		}, exec.NotStarted, CausePaused, 1},
		{"its engine goes", 1000, func(d *fakeEngine, _ *Session) { d.Hang["find"] = true }, exec.NotStarted, CauseUnreachable, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, s := deaf(t, Spec{})
				defer s.Release()
				d.HangUp(s.ID()) // the idle runner: a new one is needed
				synctest.Wait()
				tries := 0
				d.Fail = func(call string) error {
					if call != "open" {
						return nil
					}
					if tries++; tries == 1 && tt.then != nil {
						tt.then(d, s)
					}
					if tries <= tt.fails {
						return errTest
					}
					return nil
				}
				begin := time.Now()
				res, err := s.Run(t.Context(), Command{Script: "echo", Timeout: time.Minute})
				if tt.outcome == "" && (err != nil || res.Output.Stdout.Text() != "hi\n") || tt.outcome != "" && !isError(err, tt.outcome, tt.cause) {
					t.Errorf("Run() = %+v, %v; want %s{%s}", res, err, tt.outcome, tt.cause)
				}
				if tries != tt.tries {
					t.Errorf("%d tries; want %d", tries, tt.tries)
				}
				if took := time.Since(begin); took > 8*time.Second {
					t.Errorf("Run() took %v; want at most 8s", took)
				}
			})
		})
	}
}

// The engine does not answer before the command: the call ends 5 s after the
// command's timeout all the same.
func TestEngineHangsBeforeTheStart(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d, s := deaf(t, Spec{})
			defer s.Release()
			d.HangUp(s.ID())
			synctest.Wait()
			d.Hang["open"], d.Hang["find"] = true, true
			begin := time.Now()
			_, err := s.Run(t.Context(), Command{Script: "echo", Timeout: timeout})
			if !isError(err, exec.NotStarted, CauseUnreachable) {
				t.Errorf("Run() = %v; want not-started{unreachable}", err)
			}
			// A long timeout is not waited for.
			if took, most := time.Since(begin), min(timeout+5*time.Second, 20*time.Second); took > most {
				t.Errorf("Run() with timeout %v took %v; want at most %v", timeout, took, most)
			}
		})
	}
}
