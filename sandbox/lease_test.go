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

// leaseVerbs notes what the verb lease was asked for.
func leaseVerbs(d *fakeEngine) *[]string {
	var asked []string
	d.lease = func(words string) { asked = append(asked, words) }
	return &asked
}

func TestKeep(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	asked := leaseVerbs(d)
	_, s := start(t, d, Spec{Lease: time.Hour})
	defer s.Release()
	for _, long := range []time.Duration{Forever, 3 * time.Hour, 0, 1 << 62} {
		if err := s.Keep(t.Context(), long); err != nil {
			t.Errorf("Keep(%v) = %v", long, err)
		}
	}
	if want := []string{"lease keep 876000h0m0s", "lease keep 3h0m0s", "lease keep 0s", "lease keep 876000h0m0s"}; !slices.Equal(*asked, want) {
		t.Errorf("the runner was asked for %q; want %q", *asked, want)
	}
	if err := s.Keep(t.Context(), -1); !isInput(err) {
		t.Errorf("Keep(-1) = %v; want an input error", err)
	}
}

func TestForever(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	for lease, want := range map[time.Duration]string{Forever: "none", 1<<63 - 1: "none", 2 * time.Hour: "2h0m0s", 0: "15s"} {
		_, s := start(t, d, Spec{Lease: lease})
		t.Cleanup(s.Release)
		if got := s.Info().LeaseText; got != want {
			t.Errorf("a lease of %v is shown as %q; want %q", lease, got, want)
		}
	}
}

// A session that is paused says so to every command, and runs again after a resume.
func TestPause(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	asked := leaseVerbs(d)
	e, s := start(t, d, Spec{Lease: time.Hour})
	defer s.Release()
	d.on = func(f *fakeRunner, _ wire.Request) { f.answer(nil) }
	status := func() engine.Status {
		t.Helper()
		info, err := e.Show(t.Context(), s.ID())
		if err != nil {
			t.Fatal(err)
		}
		return info.Status
	}
	for range 2 { // the second one has nothing to do
		if err := s.Pause(t.Context()); err != nil || status() != engine.StatusPaused {
			t.Fatalf("Pause() = %v, and the session is %s", err, status())
		}
	}
	_, err := s.Run(t.Context(), Command{Script: "true"})
	if bad, ok := errors.AsType[*exec.Error](err); !ok || bad.Cause != CausePaused || !strings.Contains(err.Error(), "paused: resume it") {
		t.Errorf("Run() in a paused session = %v; want cause %s", err, CausePaused)
	}
	if _, err := s.Processes(t.Context()); err == nil || !strings.Contains(err.Error(), "paused") {
		t.Errorf("Processes() in a paused session = %v; want that it says so", err)
	}
	for range 2 {
		if err := s.Resume(t.Context()); err != nil || status() != engine.StatusRunning {
			t.Fatalf("Resume() = %v, and the session is %s", err, status())
		}
	}
	if _, err := s.Run(t.Context(), Command{Script: "true"}); err != nil {
		t.Errorf("Run() after Resume() = %v", err)
	}
	if want := []string{"lease pause 0s", "lease resume 0s", "lease resume 0s"}; !slices.Equal(*asked, want) {
		t.Errorf("the runner was asked for %q; want %q", *asked, want)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(t.Context()); err == nil {
		t.Error("Pause() of a session that was stopped = nil; want an error")
	}
	if err := s.Resume(t.Context()); err == nil {
		t.Error("Resume() of a session that was stopped = nil; want an error")
	}
}

// A session that cannot be paused goes on.
func TestPauseFails(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e, s := start(t, d, Spec{})
	defer s.Release()
	d.Fail = func(call string) error {
		if call == "pause" {
			return errTest
		}
		return nil
	}
	if err := s.Pause(t.Context()); !errors.Is(err, errTest) {
		t.Errorf("Pause() = %v; want %v", err, errTest)
	}
	if info, err := e.Show(t.Context(), s.ID()); err != nil || info.Status != engine.StatusRunning {
		t.Errorf("the session is %s, %v; want it to run", info.Status, err)
	}
	d.Fail = nil
	plain := New(plainEngine{d}, &fakeImages{}, Options{})
	one, err := plain.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Release()
	for what, err := range map[string]error{"Pause": one.Pause(t.Context()), "Resume": one.Resume(t.Context())} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s() on an engine that cannot = %v; want %v", what, err, errors.ErrUnsupported)
		}
	}
	if _, err := plain.Wait(t.Context(), s.ID()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Wait() on an engine that cannot = %v; want %v", err, errors.ErrUnsupported)
	}
}

// plainEngine has no optional interface.
type plainEngine struct{ engine.Engine }

// Wait returns the cause of a session's end; a reset is not an end.
func TestWaitForEnd(t *testing.T) {
	t.Parallel()
	exits := func(code int) func(*fakeEngine, *Session) {
		return func(d *fakeEngine, s *Session) { d.Exit(s.ID(), code) }
	}
	for name, tt := range map[string]struct {
		end   func(d *fakeEngine, s *Session)
		cause exec.Cause
	}{
		"idle":    {exits(wire.ExitLeaseOver), CauseLeaseOver},
		"stopped": {exits(wire.ExitStopped), CauseStopped},
		"killed":  {exits(137), CauseKilled},
		"oom": {func(d *fakeEngine, s *Session) {
			d.Change(s.ID(), func(c *engine.Session) { c.OOMKilled = true })
			d.Exit(s.ID(), 137)
		}, CauseOOM},
		"removed":       {func(d *fakeEngine, s *Session) { d.Lose(s.ID(), true) }, CauseRemoved},
		"all but files": {func(d *fakeEngine, s *Session) { d.Lose(s.ID(), false) }, CauseRemoved},
		"reset, then idle": {func(d *fakeEngine, s *Session) {
			d.Exit(s.ID(), 137)
			time.Sleep(time.Second)
			d.Change(s.ID(), func(c *engine.Session) { c.Status = engine.StatusRunning })
			time.Sleep(time.Minute)
			d.Exit(s.ID(), wire.ExitLeaseOver)
		}, CauseLeaseOver},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFakeEngine(t)
				e, s := start(t, d, Spec{})
				defer s.Release()
				go func() {
					time.Sleep(time.Minute)
					tt.end(d, s)
				}()
				begin := time.Now()
				got, err := e.Wait(t.Context(), s.ID())
				if err != nil || got.Cause != tt.cause || got.Session != s.ID() || got.Name != s.Info().Name || got.Text == "" || time.Since(begin) < time.Minute {
					t.Errorf("Wait() = %+v, %v after %v; want cause %s", got, err, time.Since(begin), tt.cause)
				}
			})
		})
	}
}

func TestWaitIsCancelled(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e, s := start(t, d, Spec{})
	defer s.Release()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if got, err := e.Wait(ctx, s.ID()); err == nil {
		t.Errorf("Wait() with a context that has ended = %+v; want an error", got)
	}
	if _, err := e.Wait(t.Context(), "nosuch"); !errors.Is(err, ErrUnknownSession) {
		t.Errorf("Wait() for none = %v; want %v", err, ErrUnknownSession)
	}
}
