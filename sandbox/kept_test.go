package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestSurplus(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const unknown = -1
	for _, tt := range []struct {
		name  string
		sizes []int64 // of the list, the oldest first
		old   int     // of them are past their time
		limit Keep
		want  []Dropped
		gone  string // ids, which are letters
	}{
		{"nothing", nil, 0, Keep{Count: 1, Disk: 1}, nil, ""},
		{"no limits", []int64{1 << 40, 1 << 40}, 0, Keep{}, nil, ""},
		{"within them", []int64{1, 2, 3}, 0, Keep{Count: 3, Disk: 6}, nil, ""},
		{"too many", []int64{1, 2, 3}, 0, Keep{Count: 2, Disk: 6}, []Dropped{DroppedCount}, "a"},
		{"too large", []int64{1, 2, 3}, 0, Keep{Count: 3, Disk: 5}, []Dropped{DroppedDisk}, "a"},
		{"both", []int64{1, 2, 3}, 0, Keep{Count: 2, Disk: 3}, []Dropped{DroppedCount, DroppedDisk}, "ab"},
		{"past their time", []int64{1, 1, 1}, 2, Keep{Count: 3, Disk: 6}, []Dropped{DroppedAge, DroppedAge}, "ab"},
		{"past their time, no limits", []int64{1, 1, 1}, 1, Keep{}, []Dropped{DroppedAge}, "a"},
		{"the newest alone too large", []int64{1, 2, 9}, 0, Keep{Count: 3, Disk: 5}, []Dropped{DroppedDisk}, "c"},
		{"of unknown size: the newest", []int64{1, 2, unknown}, 0, Keep{Count: 3, Disk: 5}, []Dropped{DroppedDisk, DroppedDisk}, "ab"},
		{"of unknown size: the oldest", []int64{unknown, 2}, 0, Keep{Count: 3, Disk: 5}, []Dropped{DroppedDisk}, "a"},
		{"just as large", []int64{5}, 0, Keep{Count: 3, Disk: 5}, nil, ""},
		{"sums that overflow", []int64{1<<63 - 1, 1<<63 - 1}, 0, Keep{Disk: 1 << 40}, []Dropped{DroppedDisk, DroppedDisk}, "ab"},
	} {
		var list []Info
		for i, size := range tt.sizes {
			one := Info{ID: string(rune('a' + i)), Kept: &Kept{Until: now.Add(time.Hour), Bytes: &tt.sizes[i]}}
			if size == unknown {
				one.Kept.Bytes = nil
			}
			if i < tt.old {
				one.Kept.Until = now.Add(-time.Second)
			}
			list = append(list, one)
		}
		var why []Dropped
		gone := ""
		for _, one := range surplus(list, tt.limit, now) {
			why, gone = append(why, one.why), gone+one.ID
		}
		if !slices.Equal(why, tt.want) || gone != tt.gone {
			t.Errorf("%s: surplus() = %q %v; want %q %v", tt.name, gone, why, tt.gone, tt.want)
		}
	}
}

// over puts a session that ended when its lease was over into the fake.
func over(t *testing.T, d *fakeEngine, spec Spec, change func(*engine.Session)) string {
	t.Helper()
	spec.Lease = time.Minute
	by := stateOf(shape(t, spec))
	return put(t, d, func(c *engine.Session) {
		maps.Copy(c.Labels, map[string]string{
			labelKeep: by.Labels[labelKeep], labelShape: by.Labels[labelShape], labelLease: by.Labels[labelLease],
		})
		c.Started, c.ExitCode = time.Now().Add(-time.Hour), wire.ExitLeaseOver
		if change != nil {
			change(c)
		}
	})
}

func TestReapKeeps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name   string
		spec   Spec
		change func(*engine.Session)
		survey string
		want   bool // kept
		cause  exec.Cause
	}{
		{"a lease that is over", Spec{Keep: day}, nil, "abcd 3 4096", true, CauseLeaseOver},
		{"with nothing in it", Spec{Keep: day}, nil, "abcd 0 0", false, ""},
		{"unknown", Spec{Keep: day}, nil, "- 0 0", true, CauseLeaseOver},
		{"not to be kept", Spec{}, nil, "abcd 3 4096", false, ""},
		{"a bind", Spec{Keep: day, Workspace: Workspace{Kind: WorkspaceBind, Dir: "/", Target: "/w"}, User: &User{UID: 7, GID: 7}}, nil, "abcd 3 4096", false, ""},
		{"in memory", Spec{Keep: day, Limits: Limits{Disk: 1 << 20}}, nil, "abcd 3 4096", false, ""},
		{"killed", Spec{Keep: day}, func(c *engine.Session) { c.ExitCode = 137 }, "abcd 3 4096", true, CauseKilled},
		{"never started", Spec{Keep: day}, func(c *engine.Session) { c.Started = time.Time{} }, "abcd 3 4096", false, ""},
	} {
		d := newFakeEngine(t)
		d.survey = func(string, string) string { return tt.survey }
		e := New(d, &fakeImages{}, Options{})
		id := over(t, d, tt.spec, tt.change)
		if list, err := e.List(t.Context()); err != nil || len(list) != 1 || tt.want != (list[0].Status == StatusKept) && tt.survey != "abcd 0 0" { // that is not known yet
			t.Errorf("%s: before: List() = %+v, %v", tt.name, list, err)
		}
		if got, err := e.Reap(t.Context()); err != nil || !slices.Equal(got, []string{id}) {
			t.Errorf("%s: Reap() = %q, %v; want %s", tt.name, got, err, id)
		}
		want := []string{id + " kept"}
		if !tt.want {
			want = nil
		}
		if got := d.left(); !slices.Equal(got, want) {
			t.Errorf("%s: left %q; want %q", tt.name, got, want)
		}
		if !tt.want {
			continue
		}
		// A kept one is found, by a prefix too, and cannot be used; and it stays.
		info, err := e.Show(t.Context(), id[:30])
		if err != nil || info.Status != StatusKept || info.Kept.Cause != tt.cause || info.Container != "" || info.ID != id {
			t.Errorf("%s: Show() = %+v, %v; want it kept, by %s", tt.name, info, err, tt.cause)
		}
		_, err = e.Open(t.Context(), id)
		if lost, ok := errors.AsType[*exec.Error](err); !ok || lost.Outcome != exec.Lost || lost.Cause != tt.cause {
			t.Errorf("%s: Open() = %v; want it lost, and what can be done", tt.name, err)
		}
		if hint, about := HintOf(err); hint != HintKept || about != id {
			t.Errorf("%s: HintOf(%v) = %q, %q; want what is kept", tt.name, err, hint, about)
		}
		if again, err := e.Reap(t.Context()); err != nil || len(again) > 0 || !slices.Equal(d.left(), want) {
			t.Errorf("%s: Reap() again = %q, %v, left %q", tt.name, again, err, d.left())
		}
		if _, err := e.Stop(t.Context(), id); err != nil || len(d.left()) > 0 {
			t.Errorf("%s: Stop() = %v, left %q; want nothing", tt.name, err, d.left())
		}
		if _, err := e.Stop(t.Context(), id); !errors.Is(err, ErrUnknownSession) {
			t.Errorf("%s: Stop() again = %v; want it unknown", tt.name, err)
		}
	}
}

// All sessions that have ended are looked at by one reader, which does not stay.
func TestKeepReader(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e := New(d, &fakeImages{}, Options{})
	for range 3 {
		over(t, d, Spec{Keep: time.Hour}, nil)
	}
	seen := 0
	d.survey = func(id, _ string) string {
		seen++
		if len(d.Over(id)) != 3 {
			t.Errorf("a reader sees %+v; want the three workspaces", d.Over(id))
		}
		list, err := e.List(t.Context())
		if err != nil || slices.ContainsFunc(list, func(i Info) bool { return i.ID == id }) {
			t.Errorf("List() = %+v, %v; want no reader in it", list, err)
		}
		return "abcd 1 1"
	}
	if got, err := e.Reap(t.Context()); err != nil || len(got) != 3 || seen != 6 || d.Made() != 1 || len(d.left()) != 3 {
		t.Errorf("Reap() = %q, %v, with %d looks by %d readers, left %q; want 6 by 1", got, err, seen, d.Made(), d.left())
	}
}

// What cannot be looked at because the engine fails is there for the next reap.
func TestKeepFails(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"attach", "open", "keep"} {
		d := newFakeEngine(t)
		e := New(d, &fakeImages{}, Options{})
		id := over(t, d, Spec{Keep: time.Hour}, nil)
		d.Fail = func(one string) error {
			if one == call {
				return errTest
			}
			return nil
		}
		if got, err := e.Reap(t.Context()); err == nil || len(got) > 0 {
			t.Errorf("%s fails: Reap() = %q, %v; want an error", call, got, err)
		}
		if left := d.left(); !slices.Equal(left, []string{id + " exited"}) {
			t.Errorf("%s fails: left %q; want all of the session", call, left)
		}
		d.Fail = nil
		if got, err := e.Reap(t.Context()); err != nil || len(got) != 1 || !slices.Equal(d.left(), []string{id + " kept"}) {
			t.Errorf("%s has failed: Reap() = %q, %v, left %q; want it kept", call, got, err, d.left())
		}
	}
}

// A workspace of which nothing runs any more is kept too, unless it is empty.
func TestKeepLeft(t *testing.T) {
	t.Parallel()
	for survey, want := range map[string]int{"abcd 1 1": 1, "abcd 0 0": 0} {
		d := newFakeEngine(t)
		d.survey = func(string, string) string { return survey }
		id := over(t, d, Spec{Keep: time.Hour}, func(s *engine.Session) {
			s.Ref, s.Started = "", time.Time{}
			s.Labels[labelCreated] = time.Now().Add(-time.Hour).Format(time.RFC3339Nano)
		})
		e := New(d, &fakeImages{}, Options{})
		if _, err := e.Reap(t.Context()); err != nil || len(d.left()) != want {
			t.Errorf("%s: Reap() = %v, left %q; want %d things", survey, err, d.left(), want)
		}
		if info, err := e.Show(t.Context(), id); want > 0 && (err != nil || info.Kept.Cause != CauseRemoved) {
			t.Errorf("Show() = %+v, %v; want it kept", info, err)
		}
	}
}

// An engine that keeps no workspaces keeps none, and a session that would be kept ends.
func TestKeepsNone(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	e := New(struct{ engine.Engine }{d}, &fakeImages{}, Options{})
	id := over(t, d, Spec{Keep: time.Hour}, nil)
	if got, err := e.Reap(t.Context()); err != nil || !slices.Equal(got, []string{id}) || len(d.left()) > 0 {
		t.Errorf("Reap() = %q, %v, left %q; want it removed", got, err, d.left())
	}
	s, err := e.Start(t.Context(), Spec{Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := s.Leave(t.Context()); kept != nil || err != nil || len(d.left()) > 0 {
		t.Errorf("Leave() = %+v, %v, left %q; want it removed", kept, err, d.left())
	}
}

func TestEnforce(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	keeper := New(d, &fakeImages{}, Options{})
	var ids []string
	for range 4 {
		ids = append(ids, over(t, d, Spec{Keep: time.Hour}, nil))
		if _, err := keeper.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// One is being read, and stays for now.
	busy, err := d.Attach(t.Context(), engine.Helper{ID: testID, Over: []engine.Attachment{{Session: ids[1]}}, Labels: map[string]string{labelReader: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	e := New(d, &fakeImages{}, Options{Keep: Keep{Count: 1, Disk: 1 << 30, Told: func(i Info, why Dropped) { told = append(told, i.ID+" "+string(why)) }}})
	if _, err := e.Reap(t.Context()); err != nil || !slices.Equal(told, []string{ids[0] + " count", ids[2] + " count"}) {
		t.Errorf("Reap() = %v, told %q; want the first and the third removed", err, told)
	}
	if err := d.Remove(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	told = nil
	if _, err := e.Reap(t.Context()); err != nil || !slices.Equal(told, []string{ids[1] + " count"}) {
		t.Errorf("Reap() = %v, told %q; want the second removed", err, told)
	}
	// One whose own time is over goes, also where nothing is to be kept.
	told = nil
	if err := e.enforce(t.Context(), time.Now().Add(2*time.Hour)); err != nil || !slices.Equal(told, []string{ids[3] + " age"}) || len(d.left()) > 0 {
		t.Errorf("enforce() = %v, told %q, left %q; want the last removed", err, told, d.left())
	}
}

func TestOpenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "new", Mode: 0o644}), w.Close()); err != nil {
		t.Fatal(err)
	}
	d := newFakeEngine(t)
	d.archive = archive.Bytes()
	e := New(d, &fakeImages{}, Options{})
	id := over(t, d, Spec{Keep: time.Hour, Workspace: Workspace{Kind: WorkspaceCopy, Dir: dir}}, nil)
	for _, when := range []string{"before a reap", "after it"} {
		s, done, err := e.OpenFiles(t.Context(), id)
		if err != nil {
			t.Fatalf("%s: OpenFiles() = %v", when, err)
		}
		changes, err := s.Diff(t.Context(), ".", s.Info().Workspace.Dir)
		if err != nil || !slices.Equal(changes, []Change{{Path: "new", Kind: "added"}}) {
			t.Errorf("%s: Diff() = %v, %v; want what was added", when, changes, err)
		}
		if err := done(t.Context()); err != nil || !slices.Equal(d.left(), []string{id + " kept"}) {
			t.Errorf("%s: done() = %v, left %q; want it kept, and no container", when, err, d.left())
		}
	}
	// Another process removes it meanwhile.
	d.Fail = func(call string) error {
		if call == "attach" {
			d.Lose(id, true)
		}
		return nil
	}
	if _, _, err := e.OpenFiles(t.Context(), id); !errors.Is(err, ErrUnknownSession) {
		t.Errorf("OpenFiles() = %v; want it unknown", err)
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		keep          time.Duration
		before, after string
		want          bool
	}{
		{"not changed", time.Hour, "aa 1 1", "aa 1 1", false},
		{"changed", time.Hour, "aa 1 1", "bb 1 1", true},
		{"unknown before", time.Hour, "- 1 1", "- 1 1", true},
		{"unknown now", time.Hour, "aa 1 1", "- 1 1", true},
		{"emptied", time.Hour, "aa 1 1", "bb 0 0", false},
		{"not to be kept", 0, "aa 1 1", "bb 1 1", false},
	} {
		d := newFakeEngine(t)
		survey := tt.before
		d.survey = func(string, string) string { return survey }
		_, s := start(t, d, Spec{Keep: tt.keep})
		s.Baseline(t.Context())
		survey = tt.after
		kept, err := s.Leave(t.Context())
		if err != nil || (kept != nil) != tt.want {
			t.Errorf("%s: Leave() = %+v, %v; want it kept: %t", tt.name, kept, err, tt.want)
		}
		if kept != nil && (kept.ID != s.ID() || kept.Kept.Cause != CauseLeft) {
			t.Errorf("%s: Leave() = %+v", tt.name, kept)
		}
		if left := d.left(); len(left) != map[bool]int{false: 0, true: 1}[tt.want] {
			t.Errorf("%s: left %q", tt.name, left)
		}
	}
}
