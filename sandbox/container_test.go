package sandbox

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxbash/sandboxbash/engine"
)

const testID = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0000"

// shape makes a session to provision.
func shape(t *testing.T, spec Spec) engine.Shape {
	t.Helper()
	spec, err := spec.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	spec.Limits = spec.Limits.sized(spec.Profile)
	p := prerequisites{image: engine.Image{ID: "sha256:1"}}
	s := shapeOf(testID, spec, p)
	s.Labels = func(over engine.Overlays) map[string]string {
		return sessionLabels(spec, labelsOf(spec, p.image, over), time.Now())
	}
	return s
}

// stateOf is what an engine would say of it.
func stateOf(s engine.Shape) engine.Session {
	return engine.Session{Handle: engine.Handle{ID: s.ID, Ref: "c"}, Labels: s.Labels(engine.Overlays{Accounts: true}), Status: engine.StatusRunning}
}

func TestValidID(t *testing.T) {
	t.Parallel()
	id, err := newID()
	if err != nil || !engine.ValidID(id) || uuid.MustParse(id).Version() != 7 {
		t.Errorf("newID() = %q, %v; want a valid id of version 7", id, err)
	}
	for _, text := range []string{
		"", "x", "../../etc", strings.ToUpper(testID), "{" + testID + "}", "urn:uuid:" + testID, strings.ReplaceAll(testID, "-", ""),
		testID + "\n", " " + testID, testID[:35], testID + "0", strings.Repeat("a", 300), "-" + testID[1:],
	} {
		if engine.ValidID(text) {
			t.Errorf("ValidID(%q) = true; want false", text)
		}
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	me := self()
	if got, ok := parseOwner(me.String()); !ok || got != me {
		t.Errorf("parseOwner(%q) = %+v, %t; want %+v", me, got, ok, me)
	}
	for _, text := range []string{"", "h", "h/1", "h/x/1", "h/1/x", "h/1/2/3", "h/1/-2", "h/99999999999999999999/1"} {
		if got, ok := parseOwner(text); ok {
			t.Errorf("parseOwner(%q) = %+v, true; want false", text, got)
		}
	}
	for _, tt := range []struct {
		name string
		who  owner
		want bool
	}{
		{"me", me, false},
		{"another process with my number", owner{host: me.host, pid: me.pid, started: me.started + "0"}, true},
		{"one of before the boot", owner{host: me.host, pid: me.pid, started: "0" + me.started}, true},
		{"a process that is not there", owner{host: me.host, pid: 1 << 22, started: me.started}, true}, // PID_MAX_LIMIT: never given
		{"one on another machine", owner{host: "elsewhere", pid: 1 << 22}, false},
	} {
		if got := tt.who.gone(); got != tt.want {
			t.Errorf("%s: gone() = %t; want %t", tt.name, got, tt.want)
		}
	}
}

// A session has every label of ours, so that no image's shines through, and nothing of
// the image but its files.
func TestShape(t *testing.T) {
	t.Parallel()
	for _, profile := range []Profile{Strict, Dev} {
		c := shape(t, Spec{Profile: profile, Lease: time.Minute, Limits: Limits{CPUs: 1.5}})
		labels := c.Labels(engine.Overlays{})
		for _, key := range []string{labelOwner, labelLease, labelCreated, labelShape, labelKey} {
			if labels[key] == "" {
				t.Errorf("%s: label %s is not set", profile, key)
			}
		}
		for _, key := range []string{labelReader, labelKeep, labelSince, labelCause, labelBytes, labelEntries} {
			if value, ok := labels[key]; !ok || value != "" {
				t.Errorf("%s: label %s is %q, %t; want it set to nothing", profile, key, value, ok)
			}
		}
		if c.Network != "none" || c.ID != testID || c.Exact != (profile == Strict) || c.Programs != (profile == Strict) || c.Names != (profile == Strict) {
			t.Errorf("%s: %+v", profile, c)
		}
		p := c.Spec.Process
		if want := []string{engine.RunnerPath, "init", "--lease", "1m0s", "--user", map[Profile]string{Strict: "1000", Dev: "0"}[profile]}; !slices.Equal(p.Args, want) {
			t.Errorf("%s: Args = %q; want %q", profile, p.Args, want)
		}
		if !p.NoNewPrivileges || p.User.UID != 0 || p.Cwd != "/" || len(p.Env) != 1 || c.Spec.Root.Readonly != (profile == Strict) {
			t.Errorf("%s: process %+v, root %+v", profile, p, c.Spec.Root)
		}
		want := []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
		if profile == Dev {
			want = append(want, "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID")
		}
		if got := p.Capabilities.Bounding; !slices.Equal(got, want) {
			t.Errorf("%s: capabilities %q; want %q", profile, got, want)
		}
		r := c.Spec.Linux.Resources
		if *r.CPU.Quota != 150_000 || *r.CPU.Period != 100_000 || *r.Memory.Swap != *r.Memory.Limit || *r.Pids.Limit <= 0 {
			t.Errorf("%s: cpu %d/%d, memory %d, swap %d, pids %d", profile, *r.CPU.Quota, *r.CPU.Period, *r.Memory.Limit, *r.Memory.Swap, *r.Pids.Limit)
		}
		for _, m := range c.Spec.Mounts {
			if m.Type != "tmpfs" || !slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "size=") }) ||
				!slices.Contains(m.Options, "nosuid") || !slices.Contains(m.Options, "nodev") {
				t.Errorf("%s: %+v; want a tmpfs with a size, nosuid and nodev", profile, m)
			}
		}
	}
}

func TestBindShape(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 1234, 1234); err != nil {
			t.Fatal(err)
		}
	}
	for text, readOnly := range map[string]bool{"bind:" + dir: false, "bind:" + dir + ":ro": true} {
		w, err := ParseWorkspace(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := shape(t, Spec{Workspace: w}).Workspace, (engine.Workspace{Target: dir, Bind: dir, ReadOnly: readOnly}); got != want {
			t.Errorf("%s: %+v; want %+v", text, got, want)
		}
	}
}
