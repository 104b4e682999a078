package sandbox

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

const testID = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0000"

// shape makes a whole container of a session.
func shape(t *testing.T, spec Spec) engine.Container {
	t.Helper()
	spec, err := spec.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	l := labelSpec{Profile: spec.Profile, User: *spec.User, Workspace: spec.Workspace, Limits: spec.Limits, Network: spec.Network}
	return containerShape(testID, spec, provision{image: engine.Image{ID: "sha256:1"}, runner: "sandboxbash-runner-0a"}, l, time.Now())
}

// stateOf is what an engine would tell of it.
func stateOf(c engine.Container) engine.ContainerState {
	state := engine.ContainerState{Name: c.Name, Labels: c.Labels, Entrypoint: c.Spec.Process.Args, Status: "running"}
	for _, m := range c.Spec.Mounts {
		state.Mounts = append(state.Mounts, engine.Mount{Type: m.Type, Source: m.Source, Target: m.Destination, ReadOnly: slices.Contains(m.Options, "ro")})
	}
	return state
}

func TestOurs(t *testing.T) {
	t.Parallel()
	good := stateOf(shape(t, Spec{}))
	mount := func(c *engine.ContainerState) *engine.Mount {
		c.Mounts = slices.Clone(c.Mounts)
		return &c.Mounts[slices.IndexFunc(c.Mounts, func(m engine.Mount) bool { return m.Target == runnerDir })]
	}
	for _, tt := range []struct {
		name   string
		change func(*engine.ContainerState)
		want   bool
	}{
		{"ours", func(*engine.ContainerState) {}, true},
		{"whatever its status", func(c *engine.ContainerState) { c.Status = "exited" }, true},
		// An image can carry every label of ours; these are what it gets then.
		{"labels alone", func(c *engine.ContainerState) {
			*c = engine.ContainerState{Name: "quirky_hopper", Labels: c.Labels, Entrypoint: []string{"/bin/sh"}}
		}, false},
		{"labels and name", func(c *engine.ContainerState) { c.Entrypoint, c.Mounts = []string{"/bin/sh"}, nil }, false},
		{"labels, name and entrypoint", func(c *engine.ContainerState) { c.Mounts = nil }, false},
		{"another's name", func(c *engine.ContainerState) { c.Name += "x" }, false},
		{"another's id", func(c *engine.ContainerState) { c.Labels[LabelSession] = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0001" }, false},
		{"no id", func(c *engine.ContainerState) { delete(c.Labels, LabelSession) }, false},
		{"an id that is none", func(c *engine.ContainerState) { c.Labels[LabelSession], c.Name = "x", namePrefix+"x" }, false},
		{"another program", func(c *engine.ContainerState) { c.Entrypoint = []string{"/bin/runner", "init"} }, false},
		{"another verb", func(c *engine.ContainerState) { c.Entrypoint = []string{runnerPath, "serve"} }, false},
		{"no program", func(c *engine.ContainerState) { c.Entrypoint = nil }, false},
		{"writable runner", func(c *engine.ContainerState) { mount(c).ReadOnly = false }, false},
		{"runner from the host", func(c *engine.ContainerState) { mount(c).Type = "bind" }, false},
		{"runner from another volume", func(c *engine.ContainerState) { mount(c).Source = "mine" }, false},
		{"runner elsewhere", func(c *engine.ContainerState) { mount(c).Target = "/x" }, false},
	} {
		state := good
		state.Labels = maps.Clone(good.Labels)
		tt.change(&state)
		id, ok := ours(state)
		if ok != tt.want || ok && id != testID || !ok && id != "" {
			t.Errorf("%s: ours(…) = %q, %t; want ok %t", tt.name, id, ok, tt.want)
		}
	}
}

func TestValidID(t *testing.T) {
	t.Parallel()
	id, err := newID()
	if err != nil || !validID(id) || uuid.MustParse(id).Version() != 7 {
		t.Errorf("newID() = %q, %v; want a valid id of version 7", id, err)
	}
	for _, text := range []string{
		"", "x", "../../etc", strings.ToUpper(testID), "{" + testID + "}", "urn:uuid:" + testID, strings.ReplaceAll(testID, "-", ""),
		testID + "\n", " " + testID, testID[:35], testID + "0", strings.Repeat("a", 300), "-" + testID[1:],
	} {
		if validID(text) {
			t.Errorf("validID(%q) = true; want false", text)
		}
	}
}

func TestValidPrefix(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		testID: true, testID[:4]: true, "0199-": true, "019": false, "": false, "019g": false, "../a": false, "0199\n": false,
		"0199AAAA": false, strings.Repeat("a", 37): false, "----": true,
	} {
		if got := validPrefix(text); got != want {
			t.Errorf("validPrefix(%q) = %t; want %t", text, got, want)
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
		{"another process with my number", owner{host: me.host, pid: me.pid, birth: me.birth + "0"}, true},
		{"one of before the boot", owner{host: me.host, pid: me.pid, birth: "0" + me.birth}, true},
		{"nobody", owner{host: me.host, pid: 1 << 22, birth: me.birth}, true}, // PID_MAX_LIMIT: never given
		{"somebody elsewhere", owner{host: "elsewhere", pid: 1 << 22}, false},
	} {
		if got := tt.who.gone(); got != tt.want {
			t.Errorf("%s: gone() = %t; want %t", tt.name, got, tt.want)
		}
	}
}

// A container has every label of ours, so that no image's shines through, and
// nothing of the image but its files.
func TestContainerShape(t *testing.T) {
	t.Parallel()
	for _, profile := range []Profile{Strict, Dev} {
		c := shape(t, Spec{Profile: profile, Lease: time.Minute, Limits: Limits{CPUs: 1.5}})
		for _, key := range []string{LabelSession, labelOwner, labelLease, labelCreated, labelShape, labelDigest, labelRole} {
			if c.Labels[key] == "" {
				t.Errorf("%s: label %s is not set", profile, key)
			}
		}
		if c.Network != "none" || c.Name != namePrefix+testID {
			t.Errorf("%s: network %q, name %q", profile, c.Network, c.Name)
		}
		p := c.Spec.Process
		if want := []string{runnerPath, "init", "--lease", "1m0s"}; !slices.Equal(p.Args, want) {
			t.Errorf("%s: Args = %q; want %q", profile, p.Args, want)
		}
		if !p.NoNewPrivileges || p.User.UID != 0 || p.Cwd != "/" || len(p.Env) != 1 || c.Spec.Root.Readonly != (profile == Strict) {
			t.Errorf("%s: process %+v, root %+v", profile, p, c.Spec.Root)
		}
		want := []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
		if profile == Dev {
			want = append(want, "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID")
		}
		if got := p.Capabilities.Bounding; !slices.Equal(got, want) {
			t.Errorf("%s: capabilities %q; want %q", profile, got, want)
		}
		r := c.Spec.Linux.Resources
		if *r.CPU.Quota != 150_000 || *r.CPU.Period != 100_000 || *r.Memory.Swap != *r.Memory.Limit || *r.Pids.Limit <= 0 {
			t.Errorf("%s: cpu %d/%d, memory %d, swap %d, pids %d", profile, *r.CPU.Quota, *r.CPU.Period, *r.Memory.Limit, *r.Memory.Swap, *r.Pids.Limit)
		}
		for _, m := range c.Spec.Mounts {
			checkMount(t, m)
		}
	}
}

// checkMount checks what every mount of a session without a bind must be.
func checkMount(t *testing.T, m specs.Mount) {
	t.Helper()
	switch m.Type {
	case "volume":
		if !slices.Contains(m.Options, "nocopy") {
			t.Errorf("volume at %s: an image could fill it", m.Destination)
		}
		if m.Destination == runnerDir && !slices.Contains(m.Options, "ro") {
			t.Errorf("the runner's volume is writable")
		}
	case "tmpfs":
		if !slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "size=") }) ||
			!slices.Contains(m.Options, "nosuid") || !slices.Contains(m.Options, "nodev") {
			t.Errorf("tmpfs at %s has %q; want a size, nosuid and nodev", m.Destination, m.Options)
		}
	default:
		t.Errorf("a %s is mounted at %s", m.Type, m.Destination)
	}
}

func TestBindMount(t *testing.T) {
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
		all := shape(t, Spec{Workspace: w}).Spec.Mounts
		last := all[len(all)-1]
		if last.Type != "bind" || last.Source != dir || last.Destination != dir || slices.Contains(last.Options, "ro") != readOnly {
			t.Errorf("%s: mounted as %+v", text, last)
		}
		for _, m := range all[:len(all)-1] {
			checkMount(t, m)
		}
	}
}

// The digest is of values: it is the same for the same shape, wherever in memory,
// and another for another.
func TestDigestOf(t *testing.T) {
	t.Parallel()
	shape := func(memory int64) string {
		spec, err := Spec{Limits: Limits{Memory: memory, CPUs: 1}}.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		return digestOf(ociSpec(spec, provision{runner: "runner"}, "id"))
	}
	if a, b := shape(1<<30), shape(1<<30); a != b {
		t.Errorf("digestOf() of equal shapes = %s, %s; want the same", a, b)
	}
	if a, b := shape(1<<30), shape(2<<30); a == b {
		t.Errorf("digestOf() of unequal shapes = %s for both", a)
	}
}
