package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// expected returns what a session of the profile must report.
func expected(p Profile, n Network) expectation {
	l := labelSpec{
		Profile: p, User: User{1000, 50}, Network: n, Limits: Limits{Memory: 1 << 30, Pids: 512},
		Workspace: Workspace{Kind: WorkspaceVolume, Target: "/workspace"}, Shape: currentShape,
	}
	if p == Dev {
		l.User = User{}
	}
	return (&Session{info: Info{Profile: p, labels: l}}).expect(engine.Info{})
}

func TestPostureAsItMustBe(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{Strict, Dev} {
		for _, n := range []Network{NetworkNone, NetworkBridge} {
			want := expected(p, n)
			if wrong := want.compare(parsed(t, reportFor(want))); len(wrong) > 0 {
				t.Errorf("%s, %s: compare(a perfect report) = %q", p, n, wrong)
			}
		}
	}
	want := expected(Strict, NetworkNone)
	if want.exact["Uid"] != "1000 1000 1000 1000" || want.exact["Gid"] != "50 50 50 50" || want.exact["CapBnd"] != "00000000000000e0" {
		t.Errorf("expect() = %v", want.exact)
	}
}

// Each line of a perfect report, left out or with another value, is a mismatch
// that names it.
func TestPostureSeesEachMismatch(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{Strict, Dev} {
		want := expected(p, NetworkNone)
		lines := slices.Collect(strings.Lines(reportFor(want)))
		for i, line := range lines {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			name := key
			if key == "mount" {
				name = strings.Fields(value)[0]
			}
			without := slices.Concat(lines[:i:i], lines[i+1:])
			if wrong := want.compare(parsed(t, strings.Join(without, ""))); len(wrong) != 1 || !strings.Contains(wrong[0], name) {
				t.Errorf("%s: without %q: compare() = %q; want one mismatch that names %s", p, line, wrong, name)
			}
			if key == "mount" {
				continue
			}
			for _, other := range []string{"", "allowed", "0", "0000003fffffffff"} {
				if other == value || slices.Contains(want.oneOf[wire.FactKey(key)], other) {
					continue
				}
				changed := slices.Concat(lines[:i:i], []string{key + "=" + other + "\n"}, lines[i+1:])
				if wrong := want.compare(parsed(t, strings.Join(changed, ""))); len(wrong) != 1 || !strings.Contains(wrong[0], key) {
					t.Errorf("%s: with %s=%s: compare() = %q; want one mismatch that names it", p, key, other, wrong)
				}
			}
		}
	}
}

// After a restart the pids limit may be raised, because another process asks the session something.
// It is not a reason to remove the session.
func TestPostureRaisedLimit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		restarted bool
		limit     string
		right     bool
	}{
		{true, "512", true},
		{true, "576", true},
		{true, "768", true},
		{true, "769", false},
		{true, "511", false},
		{true, "max", false},
		{false, "576", false},
	} {
		s := &Session{info: Info{Profile: Strict, labels: labelSpec{Profile: Strict, User: User{1000, 50}, Limits: Limits{Memory: 1 << 30, Pids: 512}, Workspace: Workspace{Target: "/workspace"}}}, restarted: newRestarted()}
		s.restarted.pending.Store(row.restarted)
		want := s.expect(engine.Info{})
		report := strings.Replace(reportFor(want), "limit.pids=512", "limit.pids="+row.limit, 1)
		if wrong := want.compare(parsed(t, report)); (len(wrong) == 0) != row.right {
			t.Errorf("restarted %t, pids limit %s: compare() = %q; want it right: %t", row.restarted, row.limit, wrong, row.right)
		}
	}
}

// A report that says a thing twice cannot hide the bad one behind the good one.
func TestPostureRepeatedLines(t *testing.T) {
	t.Parallel()
	want := expected(Strict, NetworkNone)
	good := reportFor(want)
	for _, line := range []string{"NoNewPrivs=0\n", "try.mount=allowed\n", "mount=/ overlay rw\n", "mount=/.sandboxbash ext4 rw\n"} {
		for _, report := range []string{good + line, line + good} {
			if wrong := want.compare(parsed(t, report)); len(wrong) != 1 {
				t.Errorf("with %q besides: compare() = %q; want one mismatch", line, wrong)
			}
		}
	}
}

func TestPostureMounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mount string
		want  string // part of the mismatch; "" is none
	}{
		{"/proc proc rw,nosuid", ""},
		{"/proc/sys proc ro", ""},
		{"/sys/fs/cgroup/memory cgroup ro", ""},
		{"/dev/shm tmpfs rw", ""},
		{"/etc/resolv.conf ext4 rw", ""},
		{"/etc/hosts ext4 rw", ""},
		{"/var/lib/mysql tmpfs rw", ""},
		{"/var/run/docker.sock ext4 rw", "/var/run/docker.sock"},
		{"/host ext4 ro", "/host"},
		{"/procx ext4 rw", "/procx"},
		{"/etc/shadow ext4 rw", "/etc/shadow"},
		{`/with\040space ext4 rw`, "/with space"},
		{"nonsense", "not understood"},
		{"/a b c d", "not understood"},
	} {
		want := expected(Strict, NetworkNone)
		wrong := want.compare(parsed(t, reportFor(want)+"mount="+tt.mount+"\n"))
		if tt.want == "" && len(wrong) > 0 || tt.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], tt.want)) {
			t.Errorf("mount %q: compare() = %q; want %q", tt.mount, wrong, tt.want)
		}
	}
}

func TestPostureUnenforced(t *testing.T) {
	t.Parallel()
	l := labelSpec{Profile: Dev, Workspace: Workspace{Target: "/workspace"}}
	want := (&Session{info: Info{Profile: Dev, labels: l}}).expect(engine.Info{Unenforced: []string{"memory", "swap"}})
	if _, ok := want.exact["limit.memory"]; ok {
		t.Error("expect(memory unenforced) still wants limit.memory")
	}
	if _, ok := want.exact["limit.pids"]; !ok {
		t.Error("expect(memory unenforced) wants no limit.pids")
	}
}

// An empty resolv.conf is right only where the engine says that it makes one.
func TestPostureEmptyResolver(t *testing.T) {
	t.Parallel()
	const nameserver, options = "resolver.nameserver=127.0.0.1\n", "resolver.options=timeout:1 attempts:2\n"
	for _, empty := range []bool{false, true} {
		want := (&Session{info: Info{labels: labelSpec{Profile: Strict, Network: NetworkNone, Shape: currentShape, Workspace: Workspace{Target: DefaultTarget}}}}).expect(engine.Info{EmptyResolver: empty})
		report := reportFor(want)
		if !strings.Contains(report, nameserver) || !strings.Contains(report, options) {
			t.Fatalf("the report has no resolver:\n%s", report)
		}
		for _, line := range []string{nameserver, options} {
			key, _, _ := strings.Cut(line, "=")
			wrong := want.compare(parsed(t, strings.Replace(report, line, key+"=\n", 1)))
			if (len(wrong) == 0) != empty {
				t.Errorf("EmptyResolver %t: compare(empty %s) = %q", empty, key, wrong)
			}
		}
	}
}

// A mismatch refuses the session in strict and leaves nothing; in dev it is a
// note.
func TestStartPostureMismatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		d.report = func(good string) string { return strings.Replace(good, "NoNewPrivs=1", "NoNewPrivs=0", 1) }
		e := New(d, &fakeImages{}, Options{})
		defer e.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		_, err := e.Start(t.Context(), Spec{})
		var posture *PostureError
		if !errors.As(err, &posture) || len(posture.Mismatches) != 1 {
			t.Errorf("Start(strict) = %v; want a PostureError with one mismatch", err)
		}
		if left := d.left(); len(left) > 0 {
			t.Errorf("Start(strict) left %q", left)
		}
		s, err := e.Start(t.Context(), Spec{Profile: Dev})
		if err != nil {
			t.Fatalf("Start(dev) = %v", err)
		}
		if notes := s.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "NoNewPrivs") {
			t.Errorf("Notes() = %q; want the mismatch", notes)
		}
		if err := s.Stop(t.Context()); err != nil || len(d.left()) > 0 {
			t.Errorf("Stop() = %v, left %q", err, d.left())
		}
	})
}
