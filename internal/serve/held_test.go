package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// hostFunc is a host that starts sessions, and lists none.
type hostFunc func(ctx context.Context, r SessionRequest) (*Session, error)

func (f hostFunc) Start(ctx context.Context, r SessionRequest) (*Session, error) { return f(ctx, r) }

func (hostFunc) List(context.Context) ([]sandbox.Info, error) { return nil, nil }

// heldSessions are the sessions of a client that lives as long as the test.
func heldSessions(t *testing.T, host Host) (h *held, end func()) {
	t.Helper()
	life, cancel := context.WithCancelCause(t.Context())
	h = newHeld(life, Options{Host: host}, func(ctx context.Context, _ *Session) { <-ctx.Done() })
	end = sync.OnceFunc(func() {
		cancel(errGone)
		for _, err := range h.close(context.WithoutCancel(life)) {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return h, end
}

func kindOfError(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Data.Kind
	}
	return ""
}

// A session is attached by its id, or by the start of an id that only one of them has.
func TestHeldPrefix(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	h, _ := heldSessions(t, host)
	for _, id := range []string{"0199-1", "0199-10", "0199-2", "0200"} {
		if s, err := h.start(t.Context(), SessionRequest{Attach: id}); err != nil || s.ID != id {
			t.Fatalf("start(%s) = %+v, %v", id, s, err)
		}
	}
	for range 20 { // the order of a map is not always the same
		for _, row := range []struct{ name, want string }{{"0199-1", "0199-1"}, {"0199-10", "0199-10"}, {"02", "0200"}} {
			if s, err := h.start(t.Context(), SessionRequest{Attach: row.name}); err != nil || s.ID != row.want {
				t.Fatalf("start(%s) = %+v, %v; want the session %s", row.name, s, err, row.want)
			}
		}
		if s, err := h.start(t.Context(), SessionRequest{Attach: "0199"}); kindOfError(err) != KindUnknownSession {
			t.Fatalf("start(0199), with which three begin, = %+v, %v; want %s", s, err, KindUnknownSession)
		}
	}
	if n := len(host.all()); n != 4 {
		t.Errorf("%d sessions were opened; want 4", n)
	}
	if s, err := h.start(t.Context(), SessionRequest{}); err != nil || s.ID != "session-5" {
		t.Errorf("start() without an id = %+v, %v; want another session", s, err)
	}
}

// A session that is opened twice at the same time is held once, and the other handle is given up.
func TestHeldTwice(t *testing.T) {
	t.Parallel()
	host := &fakeHost{gate: make(chan struct{})}
	h, end := heldSessions(t, host)
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			if s, err := h.start(t.Context(), SessionRequest{Attach: "0199"}); err != nil || s.ID != "0199" {
				t.Errorf("start() = %+v, %v", s, err)
			}
		})
	}
	eventually(t, "both are being opened", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.begun == 2
	})
	close(host.gate)
	wait.Wait()
	released := 0
	for _, s := range host.all() {
		if s.state().released {
			released++
		}
	}
	if released != 1 || h.begun != 1 {
		t.Errorf("%d handles are given up, with %d sessions; want 1 and 1", released, h.begun)
	}
	end()
	for i, s := range host.all() {
		if state := s.state(); !state.released || state.stopped {
			t.Errorf("handle %d at the end: %+v; want it released, not stopped", i, state)
		}
	}
}

// A session that is there only when its client has gone ends at once, and its changes are kept.
func TestHeldTooLate(t *testing.T) {
	t.Parallel()
	for _, attach := range []string{"", "0199"} {
		host := &fakeHost{}
		begun, going := make(chan struct{}), make(chan struct{})
		h, end := heldSessions(t, hostFunc(func(_ context.Context, r SessionRequest) (*Session, error) {
			close(begun)
			<-going // a start that does not end with its context
			s, err := host.Start(t.Context(), r)
			host.all()[0].changed = true
			return s, err
		}))
		var kept []sandbox.Info
		h.kept = func(i sandbox.Info) { kept = append(kept, i) }
		failed := make(chan error, 1)
		go func() {
			_, err := h.start(t.Context(), SessionRequest{Attach: attach})
			failed <- err
		}()
		<-begun
		end()
		close(going)
		if err := <-failed; attach == "" && !errors.Is(err, errGone) {
			t.Errorf("start() = %v; want %v", err, errGone)
		}
		state := host.all()[0].state()
		if want := attach == ""; state.stopped != want || state.released == want || len(kept) == 1 != want {
			t.Errorf("attach %q: %+v, kept %v", attach, state, kept)
		}
		if _, err := h.start(t.Context(), SessionRequest{}); !errors.Is(err, errGone) {
			t.Errorf("start() after the end = %v; want %v", err, errGone)
		}
		if _, err := h.get(t.Context(), "", SessionRequest{}); !errors.Is(err, errGone) {
			t.Errorf("get() after the end = %v; want %v", err, errGone)
		}
		if len(h.all) != 0 {
			t.Errorf("%d sessions are held after the end", len(h.all))
		}
	}
}

// A first session that has gone before its start was over is not the first of later requests.
func TestHeldGoneAtStart(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	h, _ := heldSessions(t, host)
	first := &starting{done: make(chan struct{})}
	h.first = first
	s, err := h.start(t.Context(), SessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h.drop(s.ID).end() // as its watch does
	h.begunFirst(first, s, nil)
	if got, err := h.get(t.Context(), "", SessionRequest{}); err != nil || got.ID != "session-2" {
		t.Errorf("get() = %+v, %v; want another session", got, err)
	}
	if _, id := h.list(); id != "session-2" {
		t.Errorf("the first session is %q", id)
	}
}

// A caller that waits for the first session may give up; the start goes on for the next one.
func TestHeldGivesUp(t *testing.T) {
	t.Parallel()
	host := &fakeHost{gate: make(chan struct{})}
	h, _ := heldSessions(t, host)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCancelled)
	if _, err := h.get(ctx, "", SessionRequest{}); !errors.Is(err, errCancelled) {
		t.Fatalf("get() = %v; want %v", err, errCancelled)
	}
	close(host.gate)
	if s, err := h.get(t.Context(), "", SessionRequest{}); err != nil || s.ID != "session-1" || len(host.all()) != 1 {
		t.Errorf("get() = %+v, %v, with %d sessions; want the one that was being started", s, err, len(host.all()))
	}
}

// Starts that fail leave room: as many as there may be sessions, and more.
func TestHeldFailedStarts(t *testing.T) {
	t.Parallel()
	down := errors.New("the engine is down")
	h, _ := heldSessions(t, hostFunc(func(context.Context, SessionRequest) (*Session, error) { return nil, down }))
	for i := range 2 * maxSessions {
		_, err := h.start(t.Context(), SessionRequest{})
		if i%2 == 0 {
			_, err = h.get(t.Context(), "", SessionRequest{})
		}
		if !errors.Is(err, down) {
			t.Fatalf("start %d: %v; want %v", i, err, down)
		}
	}
	if h.begun != 0 || h.first != nil {
		t.Errorf("%d sessions count, the first is %+v", h.begun, h.first)
	}
}

// brokenLifetime is a session whose end fails.
type brokenLifetime struct {
	Lifetime
	err error
}

func (b brokenLifetime) Leave(context.Context) (*sandbox.Info, error) { return nil, b.err }

func (b brokenLifetime) Release(context.Context) error { return b.err }

// Sessions that cannot be ended are noted, each of them, and the end goes on.
func TestSessionsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	fake := &fakeHost{}
	host := hostFunc(func(ctx context.Context, r SessionRequest) (*Session, error) {
		s, err := fake.Start(ctx, r)
		s.Lifetime = brokenLifetime{s.Lifetime, errors.New("no answer about " + s.ID)}
		return s, err
	})
	var mu sync.Mutex
	notes := map[string]bool{}
	c := connect(t, func(o *Options) {
		o.Host = host
		o.Note = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			notes[text] = true
		}
	})
	c.hello("")
	c.ask("session/start", `{}`)
	c.ask("session/start", `{}`)
	c.ask("session/attach", `{"session":"0199"}`)
	if err := c.end(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	for _, id := range []string{"session-1", "session-2", "0199"} {
		if want := fmt.Sprintf("a session was not ended: no answer about %s", id); !notes[want] {
			t.Errorf("there is no note %q; there are %v", want, notes)
		}
	}
}

// A session whose news end while it is still there is kept.
func TestHeldWatch(t *testing.T) {
	t.Parallel()
	host := &fakeHost{}
	told := make(chan struct{})
	life, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	h := newHeld(life, Options{Host: host}, func(context.Context, *Session) { close(told) })
	if _, err := h.start(t.Context(), SessionRequest{}); err != nil {
		t.Fatal(err)
	}
	<-told
	one := h.all["session-1"]
	if one.gone(t.Context()) {
		t.Error("a session that runs is gone")
	}
	if s, err := h.get(t.Context(), "session-1", SessionRequest{}); err != nil || s != one.Session {
		t.Errorf("get() = %+v, %v", s, err)
	}
	for _, row := range []struct {
		info sandbox.Info
		gone bool
	}{
		{sandbox.Info{Status: "running"}, false},
		{sandbox.Info{Status: "paused"}, false},
		{sandbox.Info{Status: "restarting"}, false},
		{sandbox.Info{Status: "exited"}, true},
		{sandbox.Info{Status: "dead"}, true},
		{sandbox.Info{Status: "removing"}, true},
	} {
		if got := (&holding{Session: &Session{Lifetime: statusLifetime{Lifetime: one.Lifetime, info: row.info}}}).gone(t.Context()); got != row.gone {
			t.Errorf("a session that is %s is gone: %v; want %v", row.info.Status, got, row.gone)
		}
	}
	if (&holding{Session: &Session{Lifetime: statusLifetime{Lifetime: one.Lifetime, err: errors.New("no answer")}}}).gone(t.Context()) {
		t.Error("a session of an engine that does not answer is gone")
	}
	if err := h.stop(t.Context(), "session-1", true); err != nil || !host.session(t, 0).state().released {
		t.Errorf("stop() with release = %v: %+v", err, host.session(t, 0).state())
	}
	cancel(errGone)
	if errs := h.close(t.Context()); errs != nil {
		t.Error(errs)
	}
	if host.session(t, 0).state().stopped {
		t.Error("a session that was released is stopped")
	}
}

// statusLifetime is a session in a state.
type statusLifetime struct {
	Lifetime
	info sandbox.Info
	err  error
}

func (s statusLifetime) Info(context.Context) (sandbox.Info, error) { return s.info, s.err }
