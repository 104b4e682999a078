package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sink"
)

// closed closes an engine at the end of a test.
func closed(t *testing.T, e *Engine) {
	t.Helper()
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A fork has the session's image and settings, a key of its own, and no secret.
func TestForkSpec(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	rule, err := network.ParseRule("api.example:443")
	if err != nil {
		t.Fatal(err)
	}
	known, _, err := sink.NewSecrets([]sink.Secret{{Name: "TOKEN", Value: "hush-hush-hush"}})
	if err != nil {
		t.Fatal(err)
	}
	e := New(d, &fakeImages{}, Options{Secrets: known})
	closed(t, e)
	s, err := e.Start(t.Context(), Spec{
		Image: "some:tag", Name: "web", Env: []string{"CI=1"}, Limits: Limits{Memory: 64 << 20, Disk: 8 << 20}, Lease: time.Hour, Keep: time.Minute, Runtime: "runsc",
		Detached: true, Allow: []network.Rule{rule}, Secrets: []Secret{{Name: "TOKEN", Value: "hush-hush-hush", Hosts: []network.Rule{rule}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := s.Fork(t.Context(), ForkOptions{Name: "try"})
	if err != nil || len(forks) != 1 {
		t.Fatalf("Fork() = %v, %v; want one", forks, err)
	}
	was, is := s.Info(), forks[0].Info()
	if is.Name != "try" || is.Image != "some:tag" || is.ImageID != was.ImageID || is.Limits != was.Limits || is.Lease != time.Hour || is.keep != was.keep ||
		!slices.Equal(is.labels.Env, was.labels.Env) || is.labels.Runtime != "runsc" || is.User != was.User {
		t.Errorf("Fork() = %+v; want what the session has: %+v", is, was)
	}
	if is.ID == was.ID || string(is.key) == string(was.key) {
		t.Error("Fork() has the session's id or key; want its own: placeholders of secrets are made from the key")
	}
	if !slices.Equal(is.Rules.Allow, was.Rules.Allow) || len(is.Rules.Secrets) != 0 {
		t.Errorf("Fork() has the rules %+v; want the session's without its secrets: %+v", is.Rules, was.Rules)
	}
	if forks[0].Copied.Entries != 3 || forks[0].Copied.Bytes != 10 {
		t.Errorf("Fork() copied %+v; want what the runner says", forks[0].Copied)
	}
	again, err := s.Fork(t.Context(), ForkOptions{Secrets: []Secret{{Name: "TOKEN", Value: "hush-hush-hush", Hosts: []network.Rule{rule}}}})
	if err != nil || len(again[0].Info().Rules.Secrets) != 1 || again[0].placeholders[0] == s.placeholders[0] {
		t.Errorf("Fork() with a secret = %v; want it, with a placeholder of its own", err)
	}
}

// What cannot be forked is refused with the reason, and nothing is made.
func TestForkRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		spec Spec
		o    ForkOptions
		make func(d *fakeEngine, s *Session)
		want string
	}{
		{"too many", Spec{}, ForkOptions{Count: MaxForks + 1}, nil, "count 65: it can be 1 to 64"},
		{"fewer than none", Spec{}, ForkOptions{Count: -1}, nil, "count -1"},
		{"a name", Spec{}, ForkOptions{Name: "-x"}, nil, "does not start with -"},
		{"a name that gets too long", Spec{}, ForkOptions{Name: strings.Repeat("x", 63), Count: 2}, nil, "it can have up to 63"},
		{"the session's name", Spec{Name: "web"}, ForkOptions{Name: "web"}, nil, `name "web": session `},
		{"gone", Spec{}, ForkOptions{}, func(d *fakeEngine, s *Session) { d.Lose(s.ID(), true) }, "unknown session"},
		{"ended", Spec{}, ForkOptions{}, func(d *fakeEngine, s *Session) { d.Exit(s.ID(), wire.ExitLeaseOver) }, "lease is over"},
	} {
		d := newFakeEngine(t)
		e, s := start(t, d, row.spec)
		closed(t, e)
		if row.make != nil {
			row.make(d, s)
		}
		made := d.Made()
		forks, err := s.Fork(t.Context(), row.o)
		if len(forks) > 0 || err == nil || !strings.Contains(err.Error(), row.want) || d.Made() != made {
			t.Errorf("%s: Fork() = %v, %v, and made %d; want %q and nothing", row.name, forks, err, d.Made()-made, row.want)
		}
	}
	d := newFakeEngine(t)
	e, s := start(t, d, Spec{Workspace: Workspace{Kind: WorkspaceBind, Dir: t.TempDir(), Target: "/w"}, User: &User{1000, 1000}})
	closed(t, e)
	if _, err := s.Fork(t.Context(), ForkOptions{}); err == nil || !strings.Contains(err.Error(), "works in ") {
		t.Errorf("Fork() of a bound directory = %v; want it refused", err)
	}
}

// If some of several cannot be made, the others are returned with the error, and nothing is left of those.
func TestForkPartly(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e, s := start(t, d, Spec{})
	closed(t, e)
	var mu sync.Mutex
	calls := 0
	d.Fail = func(call string) error {
		mu.Lock()
		defer mu.Unlock()
		if call != "attach" {
			return nil
		}
		if calls++; calls == 2 {
			return errors.New("the disk is full")
		}
		return nil
	}
	forks, err := s.Fork(t.Context(), ForkOptions{Count: 4, Name: "f"})
	if len(forks) != 3 || err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Fatalf("Fork() = %d, %v; want three and the error", len(forks), err)
	}
	if left := d.left(); len(left) != 4 {
		t.Errorf("there is %q; want the session and three forks", left)
	}
}

// With Pause the session stands still while it is read, once for all forks, and runs again whatever happens. One that was
// paused before stays so.
func TestForkPause(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		paused bool
		fails  bool
	}{{"running", false, false}, {"it fails", false, true}, {"paused before", true, false}} {
		d := newFakeEngine(t)
		e, s := start(t, d, Spec{Lease: time.Hour})
		closed(t, e)
		if row.paused {
			if err := s.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var states []engine.Status
		d.clone = func([]string) wire.Tree {
			state, err := d.Find(t.Context(), s.ID())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			states = append(states, state.Status)
			return wire.Tree{}
		}
		if row.fails {
			d.Fail = func(call string) error {
				if call == "provision" {
					return errors.New("no")
				}
				return nil
			}
		}
		_, err := e.Fork(t.Context(), s.ID(), ForkOptions{Count: 3, Pause: true})
		if (err != nil) != row.fails {
			t.Errorf("%s: Fork() = %v", row.name, err)
		}
		if slices.ContainsFunc(states, func(s engine.Status) bool { return s != engine.StatusPaused }) || !row.fails && len(states) != 3 {
			t.Errorf("%s: it was read when it was %q; want it paused", row.name, states)
		}
		want := engine.StatusRunning
		if row.paused {
			want = engine.StatusPaused
		}
		if state, err := d.Find(t.Context(), s.ID()); err != nil || state.Status != want {
			t.Errorf("%s: it is %s afterwards, %v; want %s", row.name, state.Status, err, want)
		}
	}
}

// The kept workspace of a session that has ended is forked too, also before a reap has kept it.
func TestForkKept(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e, s := start(t, d, Spec{Lease: time.Hour, Keep: time.Hour})
	closed(t, e)
	id := s.ID()
	s.Release()
	d.Change(id, func(c *engine.Session) {
		c.Status, c.ExitCode, c.Started, c.Finished = engine.StatusExited, wire.ExitLeaseOver, time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
	})
	for _, when := range []string{"ended", "kept"} {
		forks, err := e.Fork(t.Context(), id, ForkOptions{})
		if err != nil || len(forks) != 1 || forks[0].Info().Kept != nil {
			t.Fatalf("%s: Fork() = %v, %v; want one", when, forks, err)
		}
		if _, err := e.Open(t.Context(), id); err == nil {
			t.Errorf("%s: Open() = nil; want the session over", when)
		}
	}
}

// What is left of a workspace that was being filled, and whose maker has gone, is removed and not kept.
func TestForkInterrupted(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e, s := start(t, d, Spec{Keep: time.Hour})
	closed(t, e)
	var filled string
	d.clone = func(args []string) wire.Tree {
		filled = strings.Join(args, " ")
		return wire.Tree{}
	}
	if _, err := s.Fork(t.Context(), ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "/from /to /run/jobs/undo/lock"; filled != want {
		t.Errorf("clone was asked for %q; want %q", filled, want)
	}
	// As engine/docker lists it: it has the labels of what was made, and no others.
	d.Put(engine.Session{Handle: engine.Handle{ID: "01a210ea-6e2a-7b89-ba29-39807846dde6"}, Labels: map[string]string{
		labelOwner: owner{host: self().host, pid: 1 << 22, started: "1"}.String(), labelCreated: time.Now().Add(-time.Hour).Format(time.RFC3339Nano),
	}})
	if _, err := e.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := d.left(); len(left) != 2 {
		t.Errorf("there is %q; want the session and its fork", left)
	}
}

// Notes say what was not of one moment, and what is missing.
func TestTakenNotes(t *testing.T) {
	t.Parallel()
	if got := (Taken{}).Notes("copied"); got != nil {
		t.Errorf("Notes() = %q; want none", got)
	}
	got := Taken{Changed: []string{"a", "b\n", "c", "d"}, ChangedCount: 9, LeftOut: []string{"s (a socket)"}, LeftOutCount: 1}.Notes("copied")
	want := []string{
		`a, "b\n", c and 6 more changed while the workspace was copied, or may have: it is not of one moment; with --pause it is`,
		"left out: s (a socket)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Notes() = %q; want %q", got, want)
	}
}
