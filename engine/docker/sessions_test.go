package docker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

const (
	testID   = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0000"
	otherID  = "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0001"
	helperID = engine.ImageID("sha256:b")
)

var errTest = errors.New("not today")

// session is a shape of the smallest kind.
func session(change func(*engine.Shape)) engine.Shape {
	s := engine.Shape{
		ID: testID, Image: engine.Image{ID: "sha256:a", Arch: "amd64"}, Account: engine.Account{UID: 1000, GID: 1000},
		Workspace: engine.Workspace{Target: "/workspace"}, Records: "/run/jobs", Programs: true, Names: true,
		Made: map[string]string{"owner": "me"}, Draft: map[string]string{"draft": "yes"},
		Labels: func(over engine.Overlays) map[string]string {
			l := map[string]string{"own": "label"}
			if over.Programs {
				l["programs"] = "true"
			}
			if over.Accounts {
				l["accounts"] = "true"
			}
			return l
		},
		Confinement: engine.Confinement{Network: "none", Spec: specs.Spec{
			Process: &specs.Process{Args: []string{engine.RunnerPath, "init"}},
			Mounts: []specs.Mount{
				{Type: "tmpfs", Destination: "/tmp", Options: []string{"size=1m", "nr_inodes=200k"}},
				{Type: "tmpfs", Destination: "/run", Options: []string{"size=16m"}},
				{Type: "tmpfs", Destination: "/home/agent", Options: []string{"size=1m", "uid=1000", "gid=1000"}},
			},
		}},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func provisioned(t *testing.T, e *Engine, change func(*engine.Shape)) engine.Handle {
	t.Helper()
	h, _, err := e.Provision(t.Context(), session(change))
	if err != nil {
		t.Fatalf("Provision() = %v", err)
	}
	return h
}

func fakeSessions() (*Engine, *fakeDocker, *fakeCopies) {
	d, s := newFakeDocker(), &fakeCopies{}
	return &Engine{containers: d, volumes: d, copies: s}, d, s
}

// onCall fails one kind of call.
func onCall(call string, err error) func(string) error {
	return func(got string) error {
		if got == call {
			return err
		}
		return nil
	}
}

// The container of a session mounts volumes with nocopy alone, what is shared read-only.
func TestProvisionShape(t *testing.T) {
	t.Parallel()
	e, d, store := fakeSessions()
	store.programs, store.accounts = "sandboxbash-programs-0a", "sandboxbash-accounts-0a"
	h := provisioned(t, e, nil)
	c := d.containers[ContainerID(h.Ref)]
	for key, want := range map[string]string{labelSession: testID, labelRole: roleSession, "own": "label", "programs": "true", "accounts": "true"} {
		if c.Labels[key] != want {
			t.Errorf("label %s is %q; want %q", key, c.Labels[key], want)
		}
	}
	if c.Labels[labelDigest] == "" || c.Name != namePrefix+testID {
		t.Errorf("digest %q, name %q", c.Labels[labelDigest], c.Name)
	}
	at := map[string]string{}
	for _, m := range c.Mounts {
		at[m.Target] = m.Source + map[bool]string{true: " ro"}[m.ReadOnly]
	}
	want := map[string]string{
		"/.sandboxbash": "sandboxbash-runner-0a ro", "/tmp": "", "/run": "", "/home/agent": "", "/run/jobs": namePrefix + testID + "-jobs",
		"/usr": "sandboxbash-programs-0a ro", "/etc": "sandboxbash-accounts-0a ro", "/workspace": namePrefix + testID,
	}
	if !maps.Equal(at, want) {
		t.Errorf("mounts %q; want %q", at, want)
	}
	for _, m := range shapeOf(session(nil), shared{runner: "r", programs: "p", accounts: "a"}, nil).Spec.Mounts {
		if m.Type == "volume" && !slices.Contains(m.Options, "nocopy") {
			t.Errorf("volume at %s: an image could fill it", m.Destination)
		}
	}
	jobs, workspace := d.volumes[namePrefix+testID+"-jobs"], d.volumes[namePrefix+testID]
	if !jobs.Root || len(jobs.Options) > 0 || jobs.Labels["draft"] != "" || jobs.Labels["owner"] != "me" {
		t.Errorf("the volume of records: %+v; want it uid 0's, on disk, and with the labels of what is made", jobs)
	}
	if workspace.Root || len(workspace.Options) > 0 || workspace.Labels["draft"] != "yes" || workspace.Labels["owner"] != "me" {
		t.Errorf("the workspace: %+v; want it on disk, with the draft", workspace)
	}
}

func TestProvisionWorkspaces(t *testing.T) {
	t.Parallel()
	for _, readOnly := range []bool{false, true} {
		e, d, _ := fakeSessions()
		h := provisioned(t, e, func(s *engine.Shape) {
			s.Workspace = engine.Workspace{Target: "/w", Bind: "/here", ReadOnly: readOnly}
		})
		c := d.containers[ContainerID(h.Ref)]
		want := Mount{Type: "bind", Source: "/here", Target: "/w", ReadOnly: readOnly}
		if _, own := d.volumes[namePrefix+testID]; own || !slices.Contains(c.Mounts, want) {
			t.Errorf("a bind: mounts %+v, with a volume: %t; want %+v alone", c.Mounts, own, want)
		}
	}
	e, d, _ := fakeSessions()
	provisioned(t, e, func(s *engine.Shape) { s.Workspace.Size = 1 << 20 })
	if o := d.volumes[namePrefix+testID].Options; o["type"] != "tmpfs" || !strings.Contains(o["o"], "size=1048576,uid=1000,gid=1000") {
		t.Errorf("a workspace in memory has the options %q", o)
	}
}

// Where the engine's tmpfs can have neither owner nor number of files, volumes in memory
// take its place, with the same options, and end with the session.
func TestProvisionPlainTmpfs(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	d.podman = true
	h := provisioned(t, e, nil)
	at := map[string]string{}
	for _, m := range d.containers[ContainerID(h.Ref)].Mounts {
		at[m.Target] = m.Type + " " + m.Source
	}
	name := namePrefix + testID
	for target, want := range map[string]string{"/tmp": "volume " + name + tmpSuffix, "/home/agent": "volume " + name + homeSuffix, "/run": "tmpfs "} {
		if at[target] != want {
			t.Errorf("%s is %q; want %q", target, at[target], want)
		}
	}
	if o := d.volumes[name+homeSuffix].Options; o["type"] != "tmpfs" || o["o"] != "size=1m,uid=1000,gid=1000" {
		t.Errorf("the home's volume has the options %q", o)
	}
	if err := e.Remove(t.Context(), h); err != nil || len(d.left()) > 0 {
		t.Errorf("Remove() = %v, left %q", err, d.left())
	}
}

// Whatever goes wrong while a session is made, nothing is left of it.
func TestProvisionLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		prepare func(*fakeDocker, *fakeCopies)
		refills int
		text    string
	}{
		{"no volume", func(d *fakeDocker, _ *fakeCopies) { d.fail = onCall("volume", errTest) }, 0, ""},
		{"no container", func(d *fakeDocker, _ *fakeCopies) { d.fail = onCall("create", errTest) }, 0, ""},
		{"no start", func(d *fakeDocker, _ *fakeCopies) { d.fail = onCall("start", errTest) }, 1, ""},
		{"no runner", func(d *fakeDocker, s *fakeCopies) { d.fail, s.refill = onCall("start", errTest), errors.New("empty") }, 1, "empty"},
		{"not the second volume in memory", func(d *fakeDocker, _ *fakeCopies) {
			d.podman = true
			made := 0
			d.fail = func(call string) error {
				if call == "volume" {
					made++
				}
				if made > 3 && call == "volume" {
					return errTest
				}
				return nil
			}
		}, 0, ""},
	} {
		e, d, store := fakeSessions()
		tt.prepare(d, store)
		_, _, err := e.Provision(t.Context(), session(nil))
		if !errors.Is(err, errTest) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: Provision() = %v; want %v with %q", tt.name, err, errTest, tt.text)
		}
		if left := d.left(); len(left) > 0 || store.refilled != tt.refills {
			t.Errorf("%s: left %q after %d refills; want nothing after %d", tt.name, left, store.refilled, tt.refills)
		}
	}
}

// A first start that fails is tried again once the shared volumes are filled.
func TestProvisionRefills(t *testing.T) {
	t.Parallel()
	e, d, store := fakeSessions()
	store.accounts = "sandboxbash-accounts-0a"
	starts := 0
	d.fail = func(call string) error {
		if call == "start" {
			if starts++; starts == 1 {
				return errTest
			}
		}
		return nil
	}
	if h := provisioned(t, e, nil); store.refilled != 2 || starts != 2 || d.containers[ContainerID(h.Ref)].Status != engine.StatusRunning {
		t.Errorf("Provision(): %d starts and %d refills, left %q; want 2 and 2", starts, store.refilled, d.left())
	}
}

// A warning says what is not enforced: a refusal where the shape has to be exact.
func TestProvisionExact(t *testing.T) {
	t.Parallel()
	for _, exact := range []bool{false, true} {
		e, d, _ := fakeSessions()
		d.warnings = []string{"no swap limit"}
		_, _, err := e.Provision(t.Context(), session(func(s *engine.Shape) { s.Exact = exact }))
		if (err != nil) != exact || exact && (!strings.Contains(err.Error(), "no swap limit") || len(d.left()) > 0) {
			t.Errorf("exact %t: Provision() = %v, left %q", exact, err, d.left())
		}
	}
}

// A session is of use without a name for its user.
func TestProvisionNameless(t *testing.T) {
	t.Parallel()
	e, _, store := fakeSessions()
	store.nameless = errTest
	if _, notes, err := e.Provision(t.Context(), session(nil)); err != nil || len(notes) != 1 || !strings.Contains(notes[0], errTest.Error()) {
		t.Errorf("Provision() = %q, %v; want a note", notes, err)
	}
}

func TestOurs(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	good := d.containers[ContainerID(provisioned(t, e, nil).Ref)]
	mount := func(c *ContainerState) *Mount {
		c.Mounts = slices.Clone(c.Mounts)
		return &c.Mounts[slices.IndexFunc(c.Mounts, func(m Mount) bool { return m.Target == engine.RunnerDir })]
	}
	for _, tt := range []struct {
		name   string
		change func(*ContainerState)
		want   bool
	}{
		{"ours", func(*ContainerState) {}, true},
		{"in any status", func(c *ContainerState) { c.Status = engine.StatusExited }, true},
		// An image can carry every label of ours; these are what it gets then.
		{"labels alone", func(c *ContainerState) {
			*c = ContainerState{Name: "quirky_hopper", Labels: c.Labels, Entrypoint: []string{"/bin/sh"}}
		}, false},
		{"labels and name", func(c *ContainerState) { c.Entrypoint, c.Mounts = []string{"/bin/sh"}, nil }, false},
		{"labels, name and entry point", func(c *ContainerState) { c.Mounts = nil }, false},
		{"another's name", func(c *ContainerState) { c.Name += "x" }, false},
		{"another's id", func(c *ContainerState) { c.Labels[labelSession] = otherID }, false},
		{"no id", func(c *ContainerState) { delete(c.Labels, labelSession) }, false},
		{"an id of another form", func(c *ContainerState) { c.Labels[labelSession], c.Name = "x", namePrefix+"x" }, false},
		{"another program", func(c *ContainerState) { c.Entrypoint = []string{"/bin/runner", "init"} }, false},
		{"another verb", func(c *ContainerState) { c.Entrypoint = []string{engine.RunnerPath, "serve"} }, false},
		{"no program", func(c *ContainerState) { c.Entrypoint = nil }, false},
		{"writable runner", func(c *ContainerState) { mount(c).ReadOnly = false }, false},
		{"runner from the host", func(c *ContainerState) { mount(c).Type = "bind" }, false},
		{"runner from another volume", func(c *ContainerState) { mount(c).Source = "mine" }, false},
		{"runner elsewhere", func(c *ContainerState) { mount(c).Target = "/x" }, false},
	} {
		state := good
		state.Labels = maps.Clone(good.Labels)
		tt.change(&state)
		if id, ok := ours(state); ok != tt.want || ok && id != testID || !ok && id != "" {
			t.Errorf("%s: ours(…) = %q, %t; want ok %t", tt.name, id, ok, tt.want)
		}
	}
}

// What has the name and the labels of a session and is not one is not found, and stays.
func TestFindForged(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	h := provisioned(t, e, nil)
	_ = d.change(ContainerID(h.Ref), func(c *ContainerState) { c.Entrypoint = []string{"/evil"} })
	if s, err := e.Find(t.Context(), testID); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("Find() = %+v, %v; want it not found", s, err)
	}
	list, err := e.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Status != engine.StatusLeft || list[0].Ref != "" {
		t.Errorf("List() = %+v, %v; want the volumes alone", list, err)
	}
}

// Volumes without a container are what is left of a session; only those of ours count.
func TestListLeft(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		volume string
		role   string
		want   engine.Status // "": not ours
	}{
		{"a workspace", namePrefix + testID, roleWorkspace, engine.StatusLeft},
		{"records", namePrefix + testID + recordsSuffix, roleWorkspace, engine.StatusLeft},
		{"a home in memory", namePrefix + testID + homeSuffix, roleWorkspace, engine.StatusLeft},
		{"a mark", namePrefix + testID + keptSuffix, roleKept, engine.StatusStray},
		{"like one of ours", namePrefix + testID + "-x", roleWorkspace, ""},
		{"another's name", "precious", roleWorkspace, ""},
		{"another's role", namePrefix + testID, "runner", ""},
		{"a mark's role", namePrefix + testID, roleKept, ""},
	} {
		e, d, _ := fakeSessions()
		d.volumes[tt.volume] = Volume{Name: tt.volume, Labels: map[string]string{labelSession: testID, labelRole: tt.role, "x": "y"}}
		list, err := e.List(t.Context())
		found, findErr := e.Find(t.Context(), testID)
		if tt.want == "" {
			if err != nil || len(list) > 0 || !errors.Is(findErr, engine.ErrNotFound) {
				t.Errorf("%s: List() = %+v, %v, Find() = %v; want nothing", tt.name, list, err, findErr)
			}
			continue
		}
		if errors.Join(err, findErr) != nil || len(list) != 1 || list[0].Status != tt.want || list[0].Labels["x"] != "y" || found.Handle != (engine.Handle{ID: testID}) {
			t.Errorf("%s: List() = %+v, Find() = %+v, %v; want status %s", tt.name, list, found, errors.Join(err, findErr), tt.want)
		}
		if err := e.Remove(t.Context(), found.Handle); err != nil && !errors.Is(err, engine.ErrNotFound) || len(d.left()) > 0 {
			t.Errorf("%s: Remove() = %v, left %q", tt.name, err, d.left())
		}
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	refused := &engine.Error{Op: "kill", Kind: engine.ErrNotRunning, Err: errTest}
	for _, tt := range []struct {
		name  string
		fail  func(string) error
		want  error
		calls []string
	}{
		{"it works", nil, nil, []string{"signal KILL", "wait", "start"}},
		{"it had ended already", onCall("signal", refused), nil, []string{"signal KILL", "wait", "start"}},
		{"no kill", onCall("signal", errTest), errTest, []string{"signal KILL"}},
		{"no end", onCall("wait", errTest), errTest, []string{"signal KILL", "wait"}},
		{"no start", onCall("start", errTest), engine.ErrNotRunning, []string{"signal KILL", "wait", "start"}},
	} {
		e, d, _ := fakeSessions()
		h := provisioned(t, e, nil)
		d.took()
		d.fail = tt.fail
		err := e.Reset(t.Context(), h)
		if calls := d.took(); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || !slices.Equal(calls, tt.calls) {
			t.Errorf("%s: Reset() = %v, by %q; want %v by %q", tt.name, err, calls, tt.want, tt.calls)
		}
		if err != nil && errors.Is(err, engine.ErrNotRunning) != (tt.name == "no start") {
			t.Errorf("%s: Reset() = %v; want ErrNotRunning where it did not start alone", tt.name, err)
		}
	}
}

// A start that takes longer than the caller's kill may is awaited: otherwise the caller would remove the
// session, although all of it is dead.
func TestResetSlowStart(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	h := provisioned(t, e, nil)
	ctx, cancel := context.WithCancel(t.Context())
	d.fail = func(call string) error {
		if strings.HasPrefix(call, "wait") {
			cancel() // the kill's time is over
		}
		return nil
	}
	d.took()
	if err := e.Reset(ctx, h); err != nil || !slices.Contains(d.took(), "start") {
		t.Errorf("Reset() = %v; want the container started again", err)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	h := provisioned(t, e, nil)
	want := engine.Usage{PidsLimit: 160}
	if err := e.Limit(t.Context(), h, want); err != nil || d.limited != want {
		t.Errorf("Limit() = %v, the container is limited to %+v; want %+v", err, d.limited, want)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	h := provisioned(t, e, nil)
	labels := map[string]string{"why": "test"}
	if err := errors.Join(e.Keep(t.Context(), testID, labels), e.End(t.Context(), h)); err != nil {
		t.Fatal(err)
	}
	name := "volume " + namePrefix + testID
	if left := d.left(); !slices.Equal(left, []string{name, name + recordsSuffix, name + keptSuffix}) {
		t.Errorf("left %q; want the workspace, its records and the mark", left)
	}
	s, err := e.Find(t.Context(), testID)
	if err != nil || s.Status != engine.StatusKept || s.Labels["why"] != "test" || s.Ref != "" {
		t.Errorf("Find() = %+v, %v; want it kept", s, err)
	}
	// While it is read it stays whole.
	helper, err := e.Attach(t.Context(), engine.Helper{ID: otherID, Over: []engine.Attachment{{Session: testID, Target: "/w", Records: "/j"}}, Confinement: session(nil).Confinement})
	if err != nil {
		t.Fatal(err)
	}
	c := d.containers[ContainerID(helper.Ref)]
	for _, want := range []Mount{
		{Type: "volume", Source: namePrefix + testID, Target: "/w", ReadOnly: true}, {Type: "volume", Source: namePrefix + testID + recordsSuffix, Target: "/j", ReadOnly: true},
	} {
		if !slices.Contains(c.Mounts, want) || c.Image != helperID {
			t.Errorf("a helper of image %s mounts %+v; want %+v among them", c.Image, c.Mounts, want)
		}
	}
	if err := e.Remove(t.Context(), s.Handle); !errors.Is(err, engine.ErrConflict) || len(d.volumes) != 3 {
		t.Errorf("Remove() = %v, left %q; want a conflict, and all of it", err, d.left())
	}
	if err := errors.Join(e.Remove(t.Context(), helper), e.Remove(t.Context(), s.Handle)); err != nil || len(d.left()) > 0 {
		t.Errorf("Remove() = %v, left %q; want nothing", err, d.left())
	}
	if err := e.Keep(t.Context(), testID, labels); !errors.Is(err, engine.ErrNotFound) || len(d.left()) > 0 {
		t.Errorf("Keep() of nothing = %v, left %q; want it not found", err, d.left())
	}
}

// An engine makes what a container names: where a workspace has been removed meanwhile,
// neither the helper stays nor the empty volume in its place.
func TestAttachGone(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	h := provisioned(t, e, nil)
	if err := e.End(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	d.fail = func(call string) error {
		if call == "create" {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.volumes[namePrefix+testID] = Volume{Name: namePrefix + testID}
		}
		return nil
	}
	_, err := e.Attach(t.Context(), engine.Helper{ID: otherID, Over: []engine.Attachment{{Session: testID, Target: "/w"}}, Confinement: session(nil).Confinement})
	if gone, ok := errors.AsType[*engine.GoneError](err); !ok || gone.Session != testID {
		t.Errorf("Attach() = %v; want a GoneError", err)
	}
	if left := d.left(); !slices.Equal(left, []string{"volume " + namePrefix + testID + recordsSuffix}) {
		t.Errorf("left %q; want the records alone", left)
	}
}

// The digest is of values: it is the same for the same shape, wherever in memory, and
// another for another.
func TestSpecDigest(t *testing.T) {
	t.Parallel()
	digest := func(memory int64) string {
		return specDigest(specs.Spec{Linux: &specs.Linux{Resources: &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory}}}})
	}
	if a, b := digest(1<<30), digest(1<<30); a != b {
		t.Errorf("specDigest() of equal specs = %s, %s; want the same", a, b)
	}
	if a, b := digest(1<<30), digest(2<<30); a == b {
		t.Errorf("specDigest() of unequal specs = %s for both", a)
	}
}
