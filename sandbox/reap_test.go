package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	gone := owner{host: me.host, pid: 1 << 22, birth: "1"} // PID_MAX_LIMIT: never given
	elsewhere := owner{host: "elsewhere", pid: 7, birth: "1"}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tt := range []struct {
		name     string
		by       string
		status   string
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
		{"paused within the lease, owner gone", gone.String(), "paused", time.Hour, lease / 2, 0, false},
		{"paused past the lease, owner gone", gone.String(), "paused", time.Hour, 2 * lease, 0, true},
	} {
		state := stateOf(shape(t, Spec{Lease: lease}))
		state.Labels[labelOwner] = tt.by
		state.Labels[labelCreated] = ago(tt.created).Format(time.RFC3339Nano)
		state.Status, state.Finished = tt.status, ago(tt.finished)
		if tt.started != 0 {
			state.Started = ago(tt.started)
		}
		if got := dead(state, now); got != tt.want {
			t.Errorf("%s: dead(…) = %t; want %t", tt.name, got, tt.want)
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

// put puts a session container of a process that has gone into the fake.
func put(t *testing.T, d *fakeDocker, change func(*engine.ContainerState)) (id string) {
	t.Helper()
	id, err := newID()
	if err != nil {
		t.Fatal(err)
	}
	state := stateOf(shape(t, Spec{}))
	state.Labels = maps.Clone(state.Labels)
	state.Labels[LabelSession], state.Name = id, namePrefix+id
	state.Labels[labelOwner] = owner{host: self().host, pid: 1 << 22, birth: "1"}.String()
	state.ID, state.Status, state.Finished = engine.ContainerID(id), "exited", time.Now()
	if change != nil {
		change(&state)
	}
	d.containers[state.ID] = state
	d.volumes[state.Name] = engine.Volume{Name: state.Name}
	return id
}

func TestReap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDocker(t)
		e, s := start(t, d, Spec{})
		defer e.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		left := put(t, d, nil)
		put(t, d, func(c *engine.ContainerState) { c.Status = "running" })
		put(t, d, func(c *engine.ContainerState) { c.Name = "another" })                       // labels only
		put(t, d, func(c *engine.ContainerState) { c.Entrypoint = []string{"/bin/sh", "-c"} }) // labels and name
		// What this process holds is not for its own reaper, whatever it looks like.
		d.die(s.container, 137, func(c *engine.ContainerState) { c.Finished = time.Now().Add(-time.Hour) })
		before := len(d.left())

		got, err := e.Reap(t.Context())
		if err != nil || !slices.Equal(got, []string{left}) {
			t.Errorf("Reap() = %q, %v; want only %s", got, err, left)
		}
		if after := d.left(); len(after) != before-2 || slices.ContainsFunc(after, func(what string) bool { return strings.Contains(what, left) }) {
			t.Errorf("left after Reap(): %q", after)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop() = %v", err)
		}
	})
}

func TestReapGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t)
	put(t, d, nil)
	put(t, d, nil)
	failed := errors.New("no")
	failures := 0
	d.fail = func(call string) error {
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

func TestReapVolumes(t *testing.T) {
	t.Parallel()
	me := self()
	gone := owner{host: me.host, pid: 1 << 22, birth: "1"}.String()
	old := time.Now().Add(-time.Minute).Format(time.RFC3339Nano)
	for _, tt := range []struct {
		name   string
		labels map[string]string
		rename string
		want   bool // removed
	}{
		{"left behind", map[string]string{labelOwner: gone, labelCreated: old}, "", true},
		{"its maker lives", map[string]string{labelOwner: me.String(), labelCreated: old}, "", false},
		{"made just now", map[string]string{labelOwner: gone, labelCreated: time.Now().Format(time.RFC3339Nano)}, "", false},
		{"made nobody knows when", map[string]string{labelOwner: gone, labelCreated: "once"}, "", false},
		{"made by nobody knows whom", map[string]string{labelOwner: "?", labelCreated: old}, "", false},
		{"left behind, of jobs", map[string]string{labelOwner: gone, labelCreated: old}, namePrefix + testID + jobsSuffix, true},
		{"like one of ours", map[string]string{labelOwner: gone, labelCreated: old}, namePrefix + testID + "-x", false},
		{"another's name", map[string]string{labelOwner: gone, labelCreated: old}, "precious", false},
		{"another's role", map[string]string{labelOwner: gone, labelCreated: old, labelRole: "runner"}, "", false},
	} {
		d := newFakeDocker(t)
		v := engine.Volume{Name: namePrefix + testID, Labels: map[string]string{LabelSession: testID, labelRole: "workspace"}}
		maps.Copy(v.Labels, tt.labels)
		if tt.rename != "" {
			v.Name = tt.rename
		}
		d.volumes[v.Name] = v
		if _, err := New(d, &fakeImages{}, Options{}).Reap(t.Context()); err != nil {
			t.Errorf("%s: Reap() = %v", tt.name, err)
		}
		if got := len(d.volumes) == 0; got != tt.want {
			t.Errorf("%s: removed %t; want %t", tt.name, got, tt.want)
		}
	}
	t.Run("it has a container", func(t *testing.T) {
		t.Parallel()
		d := newFakeDocker(t)
		id := put(t, d, func(c *engine.ContainerState) { c.Status = "running" })
		for _, name := range sessionVolumes(id) {
			d.volumes[name] = engine.Volume{Name: name, Labels: map[string]string{
				LabelSession: id, labelRole: "workspace", labelOwner: gone, labelCreated: old,
			}}
		}
		if _, err := New(d, &fakeImages{}, Options{}).Reap(t.Context()); err != nil || len(d.volumes) != len(sessionVolumes(id)) {
			t.Errorf("Reap() = %v, left %q; want the volumes of a living session kept", err, d.left())
		}
	})
}

// A start does not wait for an engine that answers for no container: not for each
// of many volumes, and not for ever.
func TestStartBesideReap(t *testing.T) {
	t.Parallel()
	gone := owner{host: self().host, pid: 1 << 22, birth: "1"}.String()
	abandoned := func(d *fakeDocker) {
		for range 5 {
			id, err := newID()
			if err != nil {
				t.Fatal(err)
			}
			d.volumes[namePrefix+id] = engine.Volume{Name: namePrefix + id, Labels: map[string]string{
				LabelSession: id, labelRole: "workspace", labelOwner: gone, labelCreated: time.Now().Add(-time.Minute).Format(time.RFC3339Nano),
			}}
		}
	}
	t.Run("one error", func(t *testing.T) {
		t.Parallel()
		d := newFakeDocker(t)
		abandoned(d)
		asked, silent := 0, errors.New("no answer")
		d.fail = func(call string) error {
			if call != "inspect" {
				return nil
			}
			asked++
			return silent
		}
		if _, err := New(d, &fakeImages{}, Options{}).Reap(t.Context()); !errors.Is(err, silent) || asked != 1 || len(d.volumes) != 5 {
			t.Errorf("Reap() = %v, asked %d times, left %q; want one question, and all volumes kept", err, asked, d.left())
		}
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newFakeDocker(t)
			abandoned(d)
			d.hang = map[string]bool{"inspect": true}
			began := time.Now()
			s, err := New(d, &fakeImages{}, Options{}).Start(t.Context(), Spec{Image: "x"})
			if took := time.Since(began); err != nil || took != besideTime {
				t.Errorf("Start() = %v after %v; want it to go on after %v", err, took, besideTime)
			}
			if err == nil {
				s.Release()
			}
		})
	})
}

func TestFind(t *testing.T) {
	t.Parallel()
	d := newFakeDocker(t)
	full := put(t, d, func(c *engine.ContainerState) { c.Status = "running" })
	forged := put(t, d, func(c *engine.ContainerState) { c.Status, c.Entrypoint = "running", []string{"/evil"} })
	d.containers["two"] = func() engine.ContainerState {
		c := d.containers[engine.ContainerID(full)]
		other := full[:35] + string("0123456789abcdef"[(int(full[35])+1)%16])
		if other == full {
			other = full[:35] + "0"
		}
		c.ID, c.Name, c.Labels = "two", namePrefix+other, maps.Clone(c.Labels)
		c.Labels[LabelSession] = other
		return c
	}()
	e := New(d, &fakeImages{}, Options{})
	for _, tt := range []struct {
		id   string
		want error // nil: found
		text string
	}{
		{full, nil, ""},
		{forged, ErrUnknownSession, "unknown session"},
		{full[:35], nil, "give more of the id"},
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
