package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/sink"
)

func TestParseMount(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		want Mount
		err  string
	}{
		{"/data:/d", Mount{Dir: "/data", Target: "/d"}, ""},
		{"/data:/d:ro", Mount{Dir: "/data", Target: "/d", ReadOnly: true}, ""},
		{"data:/d/../e/", Mount{Dir: filepath.Join(here, "data"), Target: "/e"}, ""},
		{"/with:colon:/d", Mount{Dir: "/with:colon", Target: "/d"}, ""},
		{"/data", Mount{}, "it must be a source, a colon, and an absolute path"},
		{"/data:d", Mount{}, "it must be a source, a colon, and an absolute path"},
		{":/d", Mount{}, "it must be a source, a colon, and an absolute path"},
		{"", Mount{}, "it must be a source, a colon, and an absolute path"},
	} {
		got, err := ParseMount(tt.text)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("ParseMount(%q) = %v; want %q", tt.text, err, tt.err)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Mount{})); diff != "" || err != nil {
			t.Errorf("ParseMount(%q) = %v (-want +got):\n%s", tt.text, err, diff)
		}
	}
}

func TestParseCache(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want Mount
		err  string
	}{
		{"npm:/home/agent/.npm", Mount{Cache: "npm", Target: "/home/agent/.npm"}, ""},
		{"npm:/c:ro", Mount{Cache: "npm", Target: "/c", ReadOnly: true}, ""},
		{"./npm:/c", Mount{}, "is a path: a directory of this machine is a mount"},
		{"npm", Mount{}, "as in npm:/home/agent/.npm"},
	} {
		got, err := ParseCache(tt.text)
		if (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("ParseCache(%q) = %v; want %q", tt.text, err, tt.err)
		}
		if err == nil && got.String() != tt.text {
			t.Errorf("ParseCache(%q) = %s", tt.text, got)
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Mount{})); err == nil && diff != "" {
			t.Errorf("ParseCache(%q) (-want +got):\n%s", tt.text, diff)
		}
	}
}

// What a session must not see, and where it cannot see it, is refused with a reason.
func TestMountsRefused(t *testing.T) {
	t.Parallel()
	dir := resolvedTempDir(t)
	file := filepath.Join(dir, "file")
	socket := filepath.Join(dir, "engine")
	for _, err := range []error{os.WriteFile(file, nil, 0o600), os.MkdirAll(filepath.Join(socket, "podman"), 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(socket, "podman", "podman.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	toRoot := filepath.Join(dir, "root")
	if err := os.Symlink("/", toRoot); err != nil {
		t.Skip("no links:", err)
	}
	for _, tt := range []struct {
		name   string
		mounts []Mount
		want   string
	}{
		{"the root", []Mount{{Dir: "/", Target: "/d"}}, "belongs to the machine as a whole"},
		{"a link to the root", []Mount{{Dir: toRoot, Target: "/d"}}, "belongs to the machine as a whole"},
		{"the kernel's", []Mount{{Dir: "/proc/self", Target: "/d"}}, "belongs to the machine as a whole"},
		{"devices", []Mount{{Dir: "/dev", Target: "/d"}}, "belongs to the machine as a whole"},
		{"configuration of the machine", []Mount{{Dir: "/etc", Target: "/d"}}, "belongs to the machine as a whole"},
		{"an engine's socket", []Mount{{Dir: socket, Target: "/d"}}, "holds a container engine's socket (podman/podman.sock)"},
		{"a file", []Mount{{Dir: file, Target: "/d"}}, "is not a directory: name the directory that it is in"},
		{"nothing", []Mount{{Dir: filepath.Join(dir, "none"), Target: "/d"}}, "no such file"},
		{"both", []Mount{{Dir: dir, Cache: "c", Target: "/d"}}, "not both"},
		{"a bad name", []Mount{{Cache: "No", Target: "/d"}}, "a cache's name has up to 63 of"},
		{"no source", []Mount{{Target: "/d"}}, "its directory must be an absolute path"},
		{"a relative place", []Mount{{Dir: dir, Target: "d"}}, "must be an absolute path"},
		{"a place with dots", []Mount{{Dir: dir, Target: "/d/../e"}}, "must be an absolute path"},
		{"the session's root", []Mount{{Dir: dir, Target: "/"}}, "/ of the session is not for mounts"},
		{"the session's processes", []Mount{{Dir: dir, Target: "/proc/1"}}, "is not for mounts"},
		{"the runner", []Mount{{Cache: "c", Target: "/.sandboxbash/runner"}}, "is not for mounts"},
		{"jobs", []Mount{{Cache: "c", Target: "/run/jobs"}}, "is not for mounts"},
		{"programs", []Mount{{Dir: dir, Target: "/usr"}}, "is not for mounts"},
		{"over the home", []Mount{{Dir: dir, Target: "/home"}}, "the session's home /home/agent lies in /home"},
		{"a home that is read-only", []Mount{{Cache: "c", Target: "/home/agent", ReadOnly: true}}, "the home must be writable"},
		{"the workspace", []Mount{{Dir: dir, Target: "/workspace"}}, "the workspace lies at /workspace"},
		{"in the workspace", []Mount{{Cache: "c", Target: "/workspace/node_modules"}}, "lies in the workspace /workspace, whose files are copied"},
		{"the same place", []Mount{{Dir: dir, Target: "/d"}, {Cache: "c", Target: "/d"}}, "is mounted at /d: two mounts cannot lie in one another"},
		{"in another", []Mount{{Dir: dir, Target: "/d"}, {Cache: "c", Target: "/d/e"}}, "two mounts cannot lie in one another"},
		{"above another", []Mount{{Cache: "c", Target: "/d/e"}, {Dir: dir, Target: "/d"}}, "two mounts cannot lie in one another"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := (Spec{Mounts: tt.mounts}).Normalize(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Normalize() = %v; want %q", err, tt.want)
			}
		})
	}
}

// resolvedTempDir is a directory whose path has no links.
func resolvedTempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Links are followed once, the note says so, and the caller's list is left as it is.
func TestMountsNormalize(t *testing.T) {
	t.Parallel()
	dir := resolvedTempDir(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip("no links:", err)
	}
	given := []Mount{{Dir: link, Target: "/d", ReadOnly: true}}
	spec, err := (Spec{Mounts: given}).Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if spec.Mounts[0].Dir != dir || given[0].Dir != link {
		t.Errorf("Normalize() mounts %s; want %s, and the list as it was: %s", spec.Mounts[0].Dir, dir, given[0].Dir)
	}
	again, err := spec.Normalize()
	if notes := again.mountNotes(); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "leads to "+dir+", which is mounted") {
		t.Errorf("mountNotes() = %q, %v; want where the link leads to", notes, err)
	}
}

// A session has its mounts, knows them, and shows them in every process.
func TestMounts(t *testing.T) {
	t.Parallel()
	dir := resolvedTempDir(t)
	mounts := []Mount{{Dir: dir, Target: "/data", ReadOnly: true}, {Cache: "pip", Target: "/home/agent/.cache/pip"}}
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e, s := start(t, d, Spec{Mounts: mounts})
		shape := d.Shape(s.ID())
		want := []engine.Mount{{Dir: dir, Target: "/data", ReadOnly: true}, {Cache: "pip", Target: "/home/agent/.cache/pip"}}
		if diff := cmp.Diff(want, shape.Mounts); diff != "" {
			t.Errorf("the shape's mounts (-want +got):\n%s", diff)
		}
		if !slices.ContainsFunc(shape.Spec.Mounts, func(m specs.Mount) bool {
			return m.Destination == "/home/agent/.cache" && slices.Contains(m.Options, "mode=1777")
		}) {
			t.Errorf("the way to the cache is not the user's: %+v", shape.Spec.Mounts)
		}
		list, err := e.List(t.Context())
		if err != nil || len(list) != 1 || len(list[0].Mounts) != 2 || list[0].Mounts[0].String() != dir+":/data:ro" {
			t.Errorf("List() = %+v, %v; want the mounts", list, err)
		}
		caches, err := e.Caches(t.Context())
		if err != nil || len(caches) != 1 || caches[0].Name != "pip" {
			t.Errorf("Caches() = %+v, %v; want pip", caches, err)
		}
		if err := e.RemoveCache(t.Context(), "pip"); !errors.Is(err, engine.ErrConflict) {
			t.Errorf("RemoveCache() of a cache in use = %v; want a conflict", err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := e.RemoveCache(t.Context(), "pip"); err != nil {
			t.Errorf("RemoveCache() = %v", err)
		}
		for _, name := range []string{"pip", "No/Name"} {
			if err := e.RemoveCache(t.Context(), name); !errors.Is(err, ErrUnknownCache) || Judge(err).Cause != CauseUnknownCache {
				t.Errorf("RemoveCache(%s) = %v; want that it is unknown", name, err)
			}
		}
	})
}

// A mount that is another directory to the engine is refused, and the hint is about mounts.
func TestForeignMount(t *testing.T) {
	t.Parallel()
	for name, report := range map[string]func(dir, text string) (string, error){
		"another directory": func(_, text string) (string, error) {
			return strings.ReplaceAll(text, "place=/data ", "place=/elsewhere ") + "place=/data 254:77 /w\n", nil
		},
		"replaced by a link": func(dir, text string) (string, error) {
			return text, errors.Join(os.Remove(dir), os.Symlink(filepath.Dir(dir), dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(resolvedTempDir(t), "named")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			d := newFakeEngine(t)
			d.report = func(text string) string {
				text, err := report(dir, text)
				if err != nil {
					t.Error(err)
				}
				return text
			}
			d.pull = func(string) []byte { return archiveOf(t, "other", "of the engine's machine") }
			_, err := New(d, &fakeImages{}, Options{}).Start(t.Context(), Spec{Mounts: []Mount{{Dir: dir, Target: "/data"}}})
			foreign, ok := errors.AsType[*ForeignBindError](err)
			if !ok || !foreign.Mount || foreign.Dir != dir {
				t.Fatalf("Start() = %v; want a ForeignBindError about the mount", err)
			}
			if hint, about := HintOf(err); hint != HintMount || about != dir {
				t.Errorf("HintOf() = %q, %q; want %q", hint, about, HintMount)
			}
			if left := d.left(); len(left) > 0 {
				t.Errorf("Start() left %q", left)
			}
		})
	}
}

// A home that is a mount is not in memory, and no other file system lies in its way.
func TestMountHome(t *testing.T) {
	t.Parallel()
	spec, err := (Spec{Mounts: []Mount{{Cache: "home", Target: strictHome}}}).Normalize()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts(spec) {
		if m.Destination == strictHome {
			t.Errorf("mounts() has %+v; want none at the home", m)
		}
	}
	l := labelsOf(spec, engine.Image{}, engine.Overlays{})
	if ro, ok := (&Session{info: Info{labels: l}}).expect(engine.Info{}).mounts[strictHome]; !ok || ro {
		t.Errorf("expect() wants the home read-only: %v, %v", ro, ok)
	}
}

// Over a mount among the programs or the accounts no copy of those is laid.
func TestMountsAmongPrograms(t *testing.T) {
	t.Parallel()
	spec := Spec{Profile: Strict, Workspace: Workspace{Target: DefaultTarget}, Mounts: []Mount{{Cache: "a", Target: "/usr/local/lib/x"}, {Cache: "b", Target: "/etc/ssl/x"}}}
	if spec.readsPrograms() || spec.names() {
		t.Error("readsPrograms() or names(); want neither")
	}
	if notes := spec.nameNotes(); len(notes) != 1 || !strings.Contains(notes[0], "a cache lies at /etc/ssl/x") {
		t.Errorf("nameNotes() = %q", notes)
	}
}

// What a mount may not hold is refused before anything is made.
func TestStartMountsRefused(t *testing.T) {
	t.Parallel()
	dir := resolvedTempDir(t)
	secret := filepath.Join(dir, "s3cret-value-0123456789")
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	known, _, err := sink.NewSecrets([]sink.Secret{{Name: "KNOWN", Value: "s3cret-value-0123456789"}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		d.Facts.Address = "unix://" + socket
		e := New(d, &fakeImages{}, Options{Secrets: known})
		for _, tt := range []struct {
			mount Mount
			want  string
		}{
			{Mount{Dir: dir, Target: "/d"}, "holds the engine's socket"},
			{Mount{Dir: secret, Target: "/d"}, "holds a secret, and the engine would show it"},
		} {
			if _, err := e.Start(t.Context(), Spec{Mounts: []Mount{tt.mount}}); err == nil || !strings.Contains(err.Error(), tt.want) || Judge(err).Fault != FaultInput {
				t.Errorf("Start() = %v; want %q, and bad input", err, tt.want)
			}
		}
		if took := d.Took(); len(took) > 0 {
			t.Errorf("the engine was asked for %q", took)
		}
		d.PutCache(engine.Cache{Name: "npm", UID: 7})
		_, err := e.Start(t.Context(), Spec{Mounts: []Mount{{Cache: "npm", Target: "/d"}}})
		if _, ok := errors.AsType[*engine.CacheError](err); !ok || Judge(err).Fault != FaultInput {
			t.Errorf("Start() with the cache of another uid = %v; want a CacheError, and bad input", err)
		}
	})
}

// An engine without caches is not asked for any.
func TestNoCaches(t *testing.T) {
	t.Parallel()
	e := New(plainEngine{newFakeEngine(t)}, &fakeImages{}, Options{})
	if _, err := e.Start(t.Context(), Spec{Mounts: []Mount{{Cache: "c", Target: "/d"}}}); !errors.Is(err, ErrNoCaches) || Judge(err).Fault != FaultInput {
		t.Errorf("Start() = %v; want ErrNoCaches", err)
	}
	if _, err := e.Caches(t.Context()); !errors.Is(err, ErrNoCaches) {
		t.Errorf("Caches() = %v; want ErrNoCaches", err)
	}
	if err := e.RemoveCache(t.Context(), "c"); !errors.Is(err, ErrNoCaches) {
		t.Errorf("RemoveCache() = %v; want ErrNoCaches", err)
	}
	if _, err := e.Stored(t.Context()); !errors.Is(err, ErrNoStock) {
		t.Errorf("Stored() = %v; want ErrNoStock", err)
	}
}

func TestStored(t *testing.T) {
	t.Parallel()
	d := newFakeEngine(t)
	d.Sizes = []engine.Stored{{Kind: engine.StoredShared, Name: "x"}, {Kind: engine.StoredCache, Name: "b"}, {Kind: engine.StoredCache, Name: "a"}, {Kind: engine.StoredSession, Name: "s"}}
	all, err := New(d, &fakeImages{}, Options{}).Stored(t.Context())
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	if want := []string{"s", "a", "b", "x"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("Stored() = %q, %v; want %q", names, err, want)
	}
}

// A home in the workspace is not in memory, and not among the changes.
func TestHomeInside(t *testing.T) {
	t.Parallel()
	spec, err := (Spec{HomeInside: true}).Normalize()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts(spec) {
		if strings.HasPrefix(m.Destination, "/home") {
			t.Errorf("mounts() has %+v; want none at a home", m)
		}
	}
	l := labelsOf(spec, engine.Image{}, engine.Overlays{})
	if got := spec.account().Home; got != "/workspace/.home" || l.home() != got || !slices.Contains(l.environment(), "HOME="+got) {
		t.Errorf("the home is %s and %s; want /workspace/.home", got, l.home())
	}
	if _, wanted := (&Session{info: Info{labels: l}}).expect(engine.Info{}).mounts[l.home()]; wanted {
		t.Error("expect() wants a mount at the home; want none")
	}
	state := transfer.State{{Name: ".home"}, {Name: ".home/x"}, {Name: ".homes"}, {Name: "a"}, {Name: "a/.home"}}
	names := func(state transfer.State) (names []string) {
		for _, e := range state {
			names = append(names, e.Name)
		}
		return names
	}
	if got, want := names(l.withoutHome("/workspace", state)), []string{".homes", "a", "a/.home"}; !slices.Equal(got, want) || len(state) != 5 {
		t.Errorf("withoutHome() = %q; want %q, and the state as it was", got, want)
	}
	for _, src := range []string{"/workspace/a", "/elsewhere"} {
		if got := l.withoutHome(src, state); len(got) != len(state) {
			t.Errorf("withoutHome(%s) = %q; want all", src, names(got))
		}
	}
	for _, bad := range []Spec{{HomeInside: true, Limits: Limits{Home: 1 << 20}}, {HomeInside: true, Workspace: Workspace{Kind: WorkspaceBind, Dir: t.TempDir(), Target: "/w"}, Profile: Dev}} {
		if _, err := bad.Normalize(); err == nil || !strings.Contains(err.Error(), "home") {
			t.Errorf("Normalize(%+v) = %v; want an error about the home", bad, err)
		}
	}
}
