package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Whatever goes wrong while a session is made, nothing is left of it.
func TestStartLeavesNothingAfterAnError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		spec    Spec
		prepare func(*fakeEngine, *fakeImages)
		text    string
	}{
		{"no image", Spec{Image: "x"}, func(_ *fakeEngine, i *fakeImages) { i.missing = errTest }, ""},
		{"no session", Spec{}, func(d *fakeEngine, _ *fakeImages) { d.Fail = onCall("provision", errTest) }, ""},
		{"no exec", Spec{}, func(d *fakeEngine, _ *fakeImages) { d.Fail = onCall("open", errTest) }, "posture"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, i := newFakeEngine(t), &fakeImages{}
				tt.prepare(d, i)
				e := New(d, i, Options{})
				_, err := e.Start(t.Context(), tt.spec)
				if !errors.Is(err, errTest) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("Start() = %v; want %v with %q", err, errTest, tt.text)
				}
				d.Fail = nil
				if left := d.left(); len(left) > 0 {
					t.Errorf("Start() left %q", left)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v", err)
				}
			})
		})
	}
}

func TestStartCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"f", ".env"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e := New(d, &fakeImages{}, Options{})
		w := Workspace{Kind: WorkspaceCopy, Dir: dir}
		s, err := e.Start(t.Context(), Spec{Workspace: w})
		if err != nil || !slices.Equal(s.LeftOut(), []string{".env"}) {
			t.Fatalf("Start(copy) = %v, left out %q; want .env", err, s.LeftOut())
		}
		if err := s.Stop(t.Context()); err != nil || len(d.left()) > 0 {
			t.Errorf("Stop() = %v, left %q", err, d.left())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Start(t.Context(), Spec{Workspace: w}); err == nil {
			t.Error("Start(copy of nothing) = nil; want an error")
		}
		if left := d.left(); len(left) > 0 {
			t.Errorf("Start(copy of nothing) left %q", left)
		}
	})
}

// An image that was removed between its resolving and its use is resolved again, once.
func TestStartImageRemoved(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]bool{1: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			d, i := newFakeEngine(t), &fakeImages{}
			e := New(d, i, Options{})
			left := fails
			d.Fail = func(call string) error {
				if call == "provision" && left > 0 {
					left--
					return &engine.Error{Op: "provision", Kind: engine.ErrNotFound, Err: errors.New("no such image")}
				}
				return nil
			}
			s, err := e.Start(t.Context(), Spec{})
			if (err == nil) != want || i.resolved != 2 {
				t.Errorf("after %d failures: Start() = %v, with %d looks at the image", fails, err, i.resolved)
			}
			if err == nil {
				err = s.Stop(t.Context())
			} else {
				err = nil
			}
			if err := errors.Join(err, e.Close(t.Context())); err != nil || len(d.left()) > 0 {
				t.Errorf("after %d failures: left %q, %v", fails, d.left(), err)
			}
		})
	}
}

// A warning of the engine is a refusal in strict: it says what is not enforced.
func TestStartWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		d.Warnings = []string{"no swap limit"}
		e := New(d, &fakeImages{}, Options{})
		if _, err := e.Start(t.Context(), Spec{}); err == nil || !strings.Contains(err.Error(), "no swap limit") || len(d.left()) > 0 {
			t.Errorf("Start(strict) = %v, left %q; want the engine's warning", err, d.left())
		}
		s, err := e.Start(t.Context(), Spec{Profile: Dev})
		if err != nil {
			t.Fatalf("Start(dev) = %v", err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop() = %v", err)
		}
	})
}

func TestStartNotes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e := New(d, &fakeImages{note: "host stands in"}, Options{})
		s, err := e.Start(t.Context(), Spec{Network: NetworkBridge})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		notes := strings.Join(s.Notes(), "\n")
		for _, want := range []string{"host stands in", "metadata", "local network"} {
			if !strings.Contains(notes, want) {
				t.Errorf("Notes() = %q; want something of %q", notes, want)
			}
		}
	})
}

// A cgroup path that shows is no more than a note: nothing can be done with it.
func TestStartNotesCgroup(t *testing.T) {
	t.Parallel()
	for _, shown := range []string{"root", "shown"} {
		synctest.Test(t, func(t *testing.T) {
			d := newFakeEngine(t)
			d.report = func(good string) string { return good + "cgroup=" + shown + "\n" }
			s, err := New(d, &fakeImages{}, Options{}).Start(t.Context(), Spec{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
			if got := strings.Contains(strings.Join(s.Notes(), "\n"), "cgroup namespace"); got != (shown == "shown") {
				t.Errorf("cgroup=%s: Notes() = %q", shown, s.Notes())
			}
		})
	}
}

func TestExplainBind(t *testing.T) {
	t.Parallel()
	refused := &engine.Error{Op: "create", Kind: engine.ErrInvalid, Err: errors.New("no such path")}
	bind := Spec{Workspace: Workspace{Kind: WorkspaceBind, Dir: "/a"}}
	if err := explainBind(refused, bind); !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), "copy:/a") {
		t.Errorf("explainBind(refused) = %v; want it to name copy:/a", err)
	}
	for _, err := range []error{explainBind(refused, Spec{}), explainBind(errTest, bind)} {
		if strings.Contains(err.Error(), "copy:") {
			t.Errorf("explainBind() = %v; want the error as it was", err)
		}
	}
}

// Stop removes everything, also of a session that is in use, and twice.
func TestStopTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e, s := start(t, d, Spec{})
		if _, err := e.Stop(t.Context(), s.ID()); err != nil || len(d.left()) > 0 {
			t.Errorf("Engine.Stop() = %v, left %q", err, d.left())
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop() again = %v; want nil", err)
		}
		if _, err := e.Stop(t.Context(), s.ID()); !errors.Is(err, ErrUnknownSession) {
			t.Errorf("Engine.Stop() again = %v; want unknown session", err)
		}
	})
}

// Stop removes what is left of a session whose container something else has removed, and
// its workspace is not kept.
func TestStopLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e, s := start(t, d, Spec{Keep: time.Hour})
		d.Lose(s.ID(), false)
		s.Release()
		other := New(d, &fakeImages{}, Options{})
		if info, err := other.Stop(t.Context(), s.ID()); err != nil || info.ID != s.ID() || len(d.left()) > 0 {
			t.Errorf("Engine.Stop() = %+v, %v, left %q; want all removed", info, err, d.left())
		}
		if _, err := e.Stop(t.Context(), s.ID()); !errors.Is(err, ErrUnknownSession) {
			t.Errorf("Engine.Stop() again = %v; want unknown session", err)
		}
	})
}

func take(t *testing.T, e *Engine, spec Spec) *Session {
	t.Helper()
	s, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start() = %v", err)
	}
	return s
}

// handles are those of the sessions that there are.
func handles(d *fakeEngine) map[engine.Handle]bool {
	all := map[engine.Handle]bool{}
	for _, s := range d.Sessions() {
		all[s.Handle] = true
	}
	return all
}

func TestWarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e := New(d, &fakeImages{}, Options{Warm: 2})
		if err := e.Warm(t.Context(), Spec{}); err != nil {
			t.Fatal(err)
		}
		if got := d.Made(); got != 2 {
			t.Errorf("Warm() made %d sessions; want 2", got)
		}
		prepared := handles(d)
		first := take(t, e, Spec{})
		if !prepared[first.handle] {
			t.Error("Start() of the warm shape made a session; want a prepared one")
		}
		// Another shape is never served from the pool, and ends what was prepared.
		for _, spec := range []Spec{
			{Profile: Dev}, {Network: NetworkBridge}, {Limits: Limits{Pids: 100}}, {User: &User{7, 7}}, {Lease: time.Hour}, {Image: "other"},
		} {
			synctest.Wait()
			ready := handles(d)
			s := take(t, e, spec)
			if ready[s.handle] {
				t.Errorf("Start(%+v) took a session of another shape", spec)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := first.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := e.Close(t.Context()); err != nil || len(d.left()) > 0 {
			t.Errorf("Close() = %v, left %q", err, d.left())
		}
		if s := take(t, e, Spec{}); s.Stop(t.Context()) != nil || len(d.left()) > 0 {
			t.Errorf("a session after Close() left %q", d.left())
		}
	})
}

// No session is given to two callers, however many ask at once.
func TestWarmIsNeverShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e := New(d, &fakeImages{}, Options{Warm: 3})
		if err := e.Warm(t.Context(), Spec{}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		seen := map[engine.Handle]int{}
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				s, err := e.Start(t.Context(), Spec{})
				if err != nil {
					t.Errorf("Start() = %v", err)
					return
				}
				mu.Lock()
				seen[s.handle]++
				mu.Unlock()
			})
		}
		wg.Wait()
		for h, n := range seen {
			if n != 1 {
				t.Errorf("%v was given away %d times", h, n)
			}
		}
		if len(seen) != 12 {
			t.Errorf("%d sessions for 12 callers", len(seen))
		}
		// Close leaves the twelve, which are their callers', and nothing else.
		if err := e.Close(t.Context()); err != nil || len(d.left()) != 12 {
			t.Errorf("Close() = %v, left %d sessions; want the 12 given away", err, len(d.left()))
		}
	})
}

// Close waits for what is being prepared and ends it.
func TestWarmCloseWhileFilling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		d.report = func(good string) string {
			time.Sleep(time.Second)
			return good
		}
		e := New(d, &fakeImages{}, Options{Warm: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := e.Warm(ctx, Spec{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Warm() = %v; want its context's end", err)
		}
		if err := e.Close(t.Context()); err != nil || len(d.left()) > 0 {
			t.Errorf("Close() = %v, left %q", err, d.left())
		}
	})
}

// What the copy is of is not part of the shape; where it came from is the taker's.
func TestWarmCopy(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e := New(d, &fakeImages{}, Options{Warm: 1})
		of := func(dir string) Spec { return Spec{Workspace: Workspace{Kind: WorkspaceCopy, Dir: dir}} }
		if err := e.Warm(t.Context(), of(one)); err != nil {
			t.Fatal(err)
		}
		made := d.Made()
		s := take(t, e, of(two))
		if s.Info().Workspace.Dir != two {
			t.Errorf("Workspace.Dir = %s; want %s", s.Info().Workspace.Dir, two)
		}
		if s.handle.Ref != "c1" || made != 1 {
			t.Errorf("took %v of %d made; want the prepared one", s.handle, made)
		}
		if err := errors.Join(s.Stop(t.Context()), e.Close(t.Context())); err != nil || len(d.left()) > 0 {
			t.Errorf("Stop and Close = %v, left %q", err, d.left())
		}
	})
}

func TestMain(m *testing.M) {
	self() // asks the machine's clock: not in a bubble
	goleak.VerifyTestMain(m)
}

func TestProgramsFromAVolume(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		spec Spec
		want bool
	}{
		{"strict", Spec{}, true},
		{"dev installs programs", Spec{Profile: Dev}, false},
		{"a workspace among them", Spec{Workspace: Workspace{Target: "/usr/src/app"}}, false},
		{"a workspace next to them", Spec{Workspace: Workspace{Target: "/usrlocal"}}, true},
	} {
		spec, err := tt.spec.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.readsPrograms(); got != tt.want {
			t.Errorf("%s: readsPrograms() = %v; want %v", tt.name, got, tt.want)
		}
	}
}

// What the engine shows to everyone holds no secret: a session whose own words do is
// refused before the engine is asked for anything.
func TestStartRefusesSecretsInLabels(t *testing.T) {
	t.Parallel()
	const secret = "c4nary-0123456789"
	secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "S", Value: secret}})
	if err != nil {
		t.Fatal(err)
	}
	e := New(nil, nil, Options{Secrets: secrets})
	dir := filepath.Join(t.TempDir(), secret)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]Spec{
		"image":   {Image: "x/" + secret},
		"copy":    {Workspace: Workspace{Kind: WorkspaceCopy, Dir: dir}},
		"bind":    {Workspace: Workspace{Kind: WorkspaceBind, Dir: t.TempDir(), Target: "/" + secret}},
		"runtime": {Runtime: secret},
	} {
		_, err := e.Start(t.Context(), spec)
		if _, ok := errors.AsType[*InputError](err); !ok || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: Start() = %v; want an InputError without the secret", name, err)
		}
	}
}
