package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestDead(t *testing.T) {
	t.Parallel()
	const lease = time.Minute
	now := time.Now()
	me := self()
	gone := owner{host: me.host, pid: 1 << 22, started: "1"} // PID_MAX_LIMIT: never given
	elsewhere := owner{host: "elsewhere", pid: 7, started: "1"}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name     string
		by       string
		status   engine.Status
		created  time.Duration // ago
		started  time.Duration // ago; 0: never
		finished time.Duration // ago
		want     bool
	}{
		{"running", me.String(), "running", time.Hour, time.Hour, 0, false},
		{"running, owner gone", gone.String(), "running", time.Hour, time.Hour, 0, false}, // it ends itself
		{"restarting", gone.String(), "restarting", time.Hour, time.Hour, 0, false},
		{"removing", gone.String(), "removing", time.Hour, time.Hour, 0, false},
		{"exited just now", me.String(), "exited", time.Hour, time.Hour, time.Second, false}, // a reset is between two steps
		{"exited for long", me.String(), "exited", time.Hour, time.Hour, time.Minute, true},
		{"exited just now, owner gone", gone.String(), "exited", time.Hour, time.Hour, time.Second, true},
		{"exited for long, owner elsewhere", elsewhere.String(), "exited", time.Hour, time.Hour, time.Minute, true},
		{"exited just now, owner elsewhere", elsewhere.String(), "exited", time.Hour, time.Hour, time.Second, false},
		{"exited, by a clock ahead of ours", me.String(), "exited", time.Hour, time.Hour, -time.Hour, true},
		{"dead", gone.String(), "dead", time.Hour, time.Hour, time.Second, true},
		{"created just now", me.String(), "created", time.Second, 0, 0, false},
		{"created long ago by a living process", me.String(), "created", time.Hour, 0, 0, false},
		{"created just now, owner gone", gone.String(), "created", time.Second, 0, 0, false},
		{"created long ago, owner gone", gone.String(), "created", time.Hour, 0, 0, true},
		{"created, owner gone within the lease", gone.String(), "created", lease / 2, 0, 0, true},
		{"created long ago, owner elsewhere", elsewhere.String(), "created", time.Hour, 0, 0, false},
		{"created long ago, owner unknown", "?", "created", time.Hour, 0, 0, false},
		{"paused by a living process", me.String(), "paused", time.Hour, time.Hour, 0, false},
		{"paused within the lease, owner gone", gone.String(), "paused", time.Hour, DefaultLease / 2, 0, false},
		{"paused past the lease, owner gone", gone.String(), "paused", time.Hour, 2 * DefaultLease, 0, true},
	} {
		state := stateOf(shape(t, Spec{Lease: lease}))
		state.Labels[labelOwner] = tt.by
		state.Labels[labelCreated] = ago(tt.created).Format(time.RFC3339Nano)
		if tt.status == engine.StatusPaused {
			state.Labels[labelLease] = DefaultLease.String()
		}
		state.Status, state.Finished = tt.status, ago(tt.finished)
		if tt.started != 0 {
			state.Started = ago(tt.started)
		}
		if got := dead(state, now); got != tt.want {
			t.Errorf("%s: dead(…) = %t; want %t", tt.name, got, tt.want)
		}
		if state.Labels[labelKeep] = "24h0m0s"; tt.status == "paused" && dead(state, now) {
			t.Errorf("%s: dead(…) of one whose workspace is kept = true; want it to wait until it is resumed", tt.name)
		}
		state.Labels[labelKeep] = ""
		if state.Labels[labelLease] = "16s"; tt.status == "paused" && dead(state, now) {
			t.Errorf("%s: dead(…) of one that outlives its process = true; want it to wait until it is resumed", tt.name)
		}
	}
}

func TestDeadJudgesOnlyWhatItUnderstands(t *testing.T) {
	t.Parallel()
	for _, key := range []string{labelLease, labelCreated, labelShape} {
		for _, value := range []string{"", "nonsense", "-5s"} {
			state := stateOf(shape(t, Spec{}))
			state.Status, state.Labels[labelOwner] = "exited", owner{host: self().host, pid: 1 << 22}.String()
			state.Labels[key] = value
			if dead(state, time.Now()) {
				t.Errorf("dead(%s=%q) = true; want false: it is of another version", key, value)
			}
		}
	}
}

// put puts a session of a process that has gone into the fake.
func put(t *testing.T, d *fakeEngine, change func(*engine.Session)) (id string) {
	t.Helper()
	id, err := newID()
	if err != nil {
		t.Fatal(err)
	}
	state := stateOf(shape(t, Spec{}))
	state.Labels[labelOwner] = owner{host: self().host, pid: 1 << 22, started: "1"}.String()
	state.Handle, state.Status, state.Finished = engine.Handle{ID: id, Ref: id}, engine.StatusExited, time.Now()
	if change != nil {
		change(&state)
	}
	d.Put(state)
	return id
}

func TestReap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e, s := start(t, d, Spec{})
		defer e.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		left := put(t, d, nil)
		put(t, d, func(c *engine.Session) { c.Status = engine.StatusRunning })
		// What this process holds is not for its own reaper, whatever it looks like.
		d.Exit(s.ID(), 137)
		d.Change(s.ID(), func(c *engine.Session) { c.Finished = time.Now().Add(-time.Hour) })
		before := len(d.left())

		if got, err := e.Leftovers(t.Context()); err != nil || !slices.Equal(got, []string{left}) || len(d.left()) != before {
			t.Errorf("Leftovers() = %q, %v, and %d things are left; want %s alone, and %d", got, err, len(d.left()), left, before)
		}
		got, err := e.Reap(t.Context())
		if err != nil || !slices.Equal(got, []string{left}) {
			t.Errorf("Reap() = %q, %v; want only %s", got, err, left)
		}
		if after := d.left(); len(after) != before-1 || slices.ContainsFunc(after, func(what string) bool { return strings.Contains(what, left) }) {
			t.Errorf("left after Reap(): %q", after)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop() = %v", err)
		}
	})
}

func TestReapGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	put(t, d, nil)
	put(t, d, nil)
	failed := errors.New("no")
	failures := 0
	d.Fail = func(call string) error {
		if call == "remove" && failures == 0 {
			failures++
			return failed
		}
		return nil
	}
	got, err := New(d, &fakeImages{}, Options{}).Reap(t.Context())
	if len(got) != 1 || !errors.Is(err, failed) {
		t.Errorf("Reap() = %q, %v; want the other one and the error", got, err)
	}
}

// What is left without anything that runs is removed when its maker is gone.
func TestReapLeft(t *testing.T) {
	t.Parallel()
	me := self()
	gone := owner{host: me.host, pid: 1 << 22, started: "1"}.String()
	old := time.Now().Add(-time.Minute).Format(time.RFC3339Nano)
	for _, tt := range []struct {
		name   string
		labels map[string]string
		want   bool // removed
	}{
		{"left behind", map[string]string{labelOwner: gone, labelCreated: old}, true},
		{"its maker lives", map[string]string{labelOwner: me.String(), labelCreated: old}, false},
		{"made just now", map[string]string{labelOwner: gone, labelCreated: time.Now().Format(time.RFC3339Nano)}, false},
		{"made at an unknown time", map[string]string{labelOwner: gone, labelCreated: "once"}, false},
		{"made by an unknown process", map[string]string{labelOwner: "?", labelCreated: old}, false},
	} {
		d := newFakeEngine(t)
		d.Put(engine.Session{Handle: engine.Handle{ID: testID}, Labels: tt.labels})
		e := New(d, &fakeImages{}, Options{})
		if list, err := e.List(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("%s: List() = %+v, %v; want nothing", tt.name, list, err)
		}
		if reaped, err := e.Reap(t.Context()); err != nil || len(reaped) > 0 {
			t.Errorf("%s: Reap() = %q, %v; want no session in it", tt.name, reaped, err)
		}
		if got := len(d.left()) == 0; got != tt.want {
			t.Errorf("%s: removed %t; want %t", tt.name, got, tt.want)
		}
	}
}

// A start does not wait for ever for an engine that does not list its sessions.
func TestStartDuringReap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		d.Hang["list"] = true
		began := time.Now()
		s, err := New(d, &fakeImages{}, Options{}).Start(t.Context(), Spec{Image: "x"})
		if took := time.Since(began); err != nil || took != startReapTime {
			t.Errorf("Start() = %v after %v; want it to go on after %v", err, took, startReapTime)
		}
		if err == nil {
			s.Release()
		}
	})
}

func TestFind(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	full := put(t, d, func(c *engine.Session) { c.Status = engine.StatusRunning })
	other := full[:35] + string("0123456789abcdef"[(int(full[35])+1)%16])
	if other == full {
		other = full[:35] + "0"
	}
	put(t, d, func(c *engine.Session) { c.Status, c.ID = engine.StatusRunning, other })
	reader := put(t, d, func(c *engine.Session) { c.Status, c.Labels[labelReader] = engine.StatusRunning, "true" })
	left := put(t, d, func(c *engine.Session) { c.Ref = "" })
	e := New(d, &fakeImages{}, Options{})
	for _, tt := range []struct {
		id   string
		want error // nil: found
		text string
	}{
		{full, nil, ""},
		{reader, ErrUnknownSession, "unknown session"},
		{left, ErrUnknownSession, "unknown session"},
		{full[:35], ErrUnknownSession, "2 match: "},
		{"0199", ErrUnknownSession, ""},
		{"", ErrUnknownSession, ""},
		{"../" + full, ErrUnknownSession, ""},
		{full + "\n", ErrUnknownSession, ""},
		{"-", ErrUnknownSession, ""},
		{strings.Repeat("a", 300), ErrUnknownSession, ""},
		{"sandboxbash-" + full, ErrUnknownSession, ""},
	} {
		info, err := e.Show(t.Context(), tt.id)
		switch {
		case tt.want == nil && tt.text == "":
			if err != nil || info.ID != full {
				t.Errorf("Show(%q) = %q, %v; want %q", tt.id, info.ID, err, full)
			}
		case tt.want != nil && !errors.Is(err, tt.want), err == nil || !strings.Contains(err.Error(), tt.text):
			t.Errorf("Show(%q) = %v; want %v with %q", tt.id, err, tt.want, tt.text)
		}
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("List() = %v, %v; want the two that are ours", fmt.Sprint(list), err)
	}
}

// pruning keeps something between sessions.
type pruning struct {
	*fakeEngine
	gone []string
	err  error
}

func (p *pruning) Prune(context.Context) ([]string, error) { return p.gone, p.err }

// Reap prunes images and what the engine keeps, and reports both, also after an error.
func TestReapPrunes(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	d := &pruning{fakeEngine: newFakeEngine(t), gone: []string{"volume"}, err: full}
	var pruned []string
	e := New(d, &fakeImages{pruned: []string{"image"}}, Options{Pruned: func(names []string) { pruned = names }})
	if _, err := e.Reap(t.Context()); !errors.Is(err, full) || !slices.Equal(pruned, []string{"image", "volume"}) {
		t.Errorf("Reap() = %v, pruned %q; want %v, image and volume", err, pruned, full)
	}
}
