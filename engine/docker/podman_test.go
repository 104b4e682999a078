package docker

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// The create request for Podman as a whole, but for the number of processes,
// which is this machine's.
func TestTranslatePodmanGolden(t *testing.T) {
	t.Parallel()
	shape := fullShape()
	shape.Spec.Mounts = append(shape.Spec.Mounts, specs.Mount{Type: "volume", Source: "jobs", Destination: "/run/jobs"})
	cfg, host, err := translate("create", shape, imageDefaults{env: []string{"PATH", "LD_PRELOAD"}, volumes: []string{"/data"}, podman: true})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(host.Binds)
	for _, limit := range host.Ulimits {
		if limit.Name == "nproc" {
			if limit.Soft != pidMax() || limit.Hard != pidMax() || pidMax() == 0 {
				t.Errorf("nproc is %d:%d; want pid_max, %d", limit.Soft, limit.Hard, pidMax())
			}
			limit.Soft, limit.Hard = 0, 0
		}
	}
	compareGolden(t, "create-podman.json", map[string]any{"Config": cfg, "HostConfig": host})
}

// compareGolden compares a value, as JSON, with a file in testdata.
func compareGolden(t *testing.T, name string, got any) {
	t.Helper()
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)+"\n"); diff != "" {
		t.Errorf("it differs from %s (UPDATE_GOLDEN=1 rewrites it):\n%s", golden, diff)
	}
}

// What a user mounts at Podman's own place stays.
func TestPodmanTmp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mount specs.Mount
		want  string // options of the tmpfs there
	}{
		"nothing":  {specs.Mount{Type: "tmpfs", Destination: "/x"}, "ro,nosuid,nodev,noexec,size=4k,notmpcopyup"},
		"a tmpfs":  {specs.Mount{Type: "tmpfs", Destination: podmanTmp, Options: []string{"rw", "size=1m"}}, "rw,size=1m,notmpcopyup"},
		"a volume": {specs.Mount{Type: "volume", Source: "v", Destination: podmanTmp}, ""},
		"a bind":   {specs.Mount{Type: "bind", Source: "/v", Destination: podmanTmp}, ""},
	} {
		shape := fullShape()
		shape.Spec.Mounts = []specs.Mount{tt.mount}
		_, host, err := translate("create", shape, imageDefaults{podman: true})
		if err != nil || host.Tmpfs[podmanTmp] != tt.want {
			t.Errorf("%s: %s is %q, %v; want %q", name, podmanTmp, host.Tmpfs[podmanTmp], err, tt.want)
		}
	}
}

// Podman splits mounts at colons: what follows one would be options.
func TestPodmanColons(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mount   specs.Mount
		volume  string // of the image
		refused bool
	}{
		"none":                            {specs.Mount{Type: "volume", Source: "v", Destination: "/a", Options: []string{"ro", "nocopy"}}, "/b", false},
		"target":                          {specs.Mount{Type: "volume", Source: "v", Destination: "/a:b"}, "", true},
		"target and options":              {specs.Mount{Type: "volume", Source: "v", Destination: "/a:b", Options: []string{"ro"}}, "", true},
		"a target with options":           {specs.Mount{Type: "volume", Source: "v", Destination: "/a:exec,dev"}, "", true},
		"source":                          {specs.Mount{Type: "volume", Source: "v:w", Destination: "/a", Options: []string{"ro"}}, "", true},
		"tmpfs":                           {specs.Mount{Type: "tmpfs", Destination: "/a:b"}, "", true},
		"VOLUME":                          {specs.Mount{Type: "tmpfs", Destination: "/a"}, "/b:exec", true},
		"a bind, which has its own words": {specs.Mount{Type: "bind", Source: "/a:b", Destination: "/a:b"}, "", false},
	} {
		shape := fullShape()
		shape.Spec.Mounts = []specs.Mount{tt.mount}
		_, _, err := translate("create", shape, imageDefaults{podman: true, volumes: strings.Fields(tt.volume)})
		if errors.Is(err, engine.ErrInvalid) != tt.refused {
			t.Errorf("%s: translate() = %v; want it refused: %t", name, err, tt.refused)
		}
	}
}

func TestVolumeForPodman(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   Volume
		want map[string]string
	}{
		{"plain", Volume{}, nil},
		{"uid 0's", Volume{Root: true}, map[string]string{"o": "uid=0,gid=0"}},
		{
			"in memory",
			Volume{Options: map[string]string{"type": "tmpfs", "device": "tmpfs", "o": "uid=1000,size=8m,nr_inodes=5"}},
			map[string]string{"type": "tmpfs", "device": "tmpfs", "o": "uid=1000,nr_blocks=2048,nr_inodes=5"},
		},
		{
			"a part of a page",
			Volume{Options: map[string]string{"type": "tmpfs", "o": "size=4097"}},
			map[string]string{"type": "tmpfs", "o": "nr_blocks=2"},
		},
		{
			"a disk's", Volume{Options: map[string]string{"type": "ext4", "o": "size=1m"}}, map[string]string{"type": "ext4", "o": "size=1m"},
		},
	} {
		if diff := cmp.Diff(tt.want, volumeForPodman(tt.in)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestRuncVersionOfPodman(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"runc version 1.1.5+ds1\ncommit: 1.1.5\nspec: 1.0.2-dev": "1.1.5+ds1", "runc version ": "-", "crun version 1.8": "",
	} {
		v := types.Version{Components: []types.ComponentVersion{{Name: "Podman Engine"}, {Name: "OCI Runtime (runc)", Version: version}}}
		if got := runcVersion(v, system.Info{}); got != want {
			t.Errorf("runcVersion(%q) = %q; want %q", version, got, want)
		}
	}
}

// fakePodman is a Podman that answers what creating a container asks for.
type fakePodman struct {
	runtime string // of its containers
	filled  bool   // whether preparing a container fills its volumes
	create  int    // status

	mu      sync.Mutex
	calls   []string          // guarded by mu; those that change something
	seccomp string            // guarded by mu; what the profile's file held, at creation
	file    string            // guarded by mu; its path
	volumes map[string]string // guarded by mu; options of volumes made
}

func (p *fakePodman) routes() map[string]http.HandlerFunc {
	note := func(r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls = append(p.calls, r.Method+" "+r.URL.Path)
	}
	return map[string]http.HandlerFunc{
		"GET /v1.41/version":            answer(200, `{"Components":[{"Name":"Podman Engine","Version":"4.3.1"}]}`),
		"GET /v1.41/info":               answer(200, `{"CgroupVersion":"1"}`),
		"GET /v1.41/images/{id}/json":   answer(200, `{"Id":"sha256:1","Config":{}}`),
		"GET /v1.41/containers/n/json":  answer(200, `{"Id":"other","Name":"/n"}`),
		"POST /v1.41/containers/create": func(w http.ResponseWriter, r *http.Request) { p.made(r); note(r); p.answerCreate(w) },
		"DELETE /v1.41/containers/c":    func(w http.ResponseWriter, r *http.Request) { note(r); w.WriteHeader(204) },
		"POST /v1.41/volumes/create": func(w http.ResponseWriter, r *http.Request) {
			var body struct{ DriverOpts map[string]string }
			_ = json.NewDecoder(r.Body).Decode(&body)
			p.mu.Lock()
			p.volumes = body.DriverOpts
			p.mu.Unlock()
			answer(201, `{"Name":"v"}`)(w, r)
		},
		"GET /v4.0.0/libpod/containers/c/json": answer(200, `{"OCIRuntime":"`+p.runtime+`"}`),
		"GET /v4.0.0/libpod/volumes/jobs/json": func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			filled := p.filled && slices.Contains(p.calls, "POST /v4.0.0/libpod/containers/c/init")
			p.mu.Unlock()
			text, _ := json.Marshal(map[string]bool{"NeedsChown": !filled})
			answer(200, string(text))(w, r)
		},
		"POST /v4.0.0/libpod/containers/c/init": func(w http.ResponseWriter, r *http.Request) {
			note(r)
			answer(500, `{"message":"there is no program to start"}`)(w, r)
		},
	}
}

// made notes what the profile's file holds: later it is gone.
func (p *fakePodman) made(r *http.Request) {
	var body struct {
		HostConfig struct{ SecurityOpt []string }
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, opt := range body.HostConfig.SecurityOpt {
		if file, ok := strings.CutPrefix(opt, "seccomp="); ok {
			text, _ := os.ReadFile(file)
			p.file, p.seccomp = file, string(text)
		}
	}
}

func (p *fakePodman) answerCreate(w http.ResponseWriter) {
	if p.create != 0 {
		answer(p.create, `{"message":"the name is in use"}`)(w, nil)
		return
	}
	answer(201, `{"Id":"c"}`)(w, nil)
}

func TestCreateOnPodman(t *testing.T) {
	t.Parallel()
	const initialised, removed = "POST /v4.0.0/libpod/containers/c/init", "DELETE /v1.41/containers/c"
	const created = "POST /v1.41/containers/create"
	for _, tt := range []struct {
		name   string
		podman *fakePodman
		mounts []specs.Mount
		calls  []string
		kind   error
		says   string
	}{
		{name: "no volume to fill", podman: &fakePodman{runtime: "runsc"}, calls: []string{created}},
		{
			name: "not filled from the image", podman: &fakePodman{runtime: "runsc"},
			mounts: []specs.Mount{{Type: "volume", Source: "jobs", Destination: "/run/jobs", Options: []string{"ro", "nocopy"}}}, calls: []string{created},
		},
		{
			name: "filled, with nothing to start", podman: &fakePodman{runtime: "runsc", filled: true},
			mounts: []specs.Mount{{Type: "volume", Source: "jobs", Destination: "/run/jobs"}}, calls: []string{created, initialised},
		},
		{
			name: "not filled", podman: &fakePodman{runtime: "runsc"},
			mounts: []specs.Mount{{Type: "volume", Source: "jobs", Destination: "/run/jobs"}}, calls: []string{created, initialised, removed},
			says: "volume jobs was not filled",
		},
		{
			name: "another runtime", podman: &fakePodman{runtime: "crun"}, calls: []string{created, removed},
			kind: engine.ErrInvalid, says: "crun, and not runsc",
		},
		{name: "a name that is taken", podman: &fakePodman{create: 500}, calls: []string{created}, kind: engine.ErrConflict, says: "in use"},
		{name: "refused", podman: &fakePodman{create: 400}, calls: []string{created}, kind: engine.ErrInvalid, says: "in use"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tt.podman
			shape := fullShape()
			shape.Spec.Mounts = tt.mounts
			id, _, err := fakeClient(t, p.routes()).CreateContainer(t.Context(), shape)
			if tt.says == "" && (err != nil || id != "c") || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("CreateContainer() = %q, %v; want an error that says %q", id, err, tt.says)
			}
			if tt.kind != nil && !errors.Is(err, tt.kind) {
				t.Errorf("CreateContainer() = %v; want kind %v", err, tt.kind)
			}
			if diff := cmp.Diff(tt.calls, p.calls); diff != "" {
				t.Error(diff)
			}
			if !strings.HasPrefix(p.seccomp, `{"defaultAction":"SCMP_ACT_ERRNO"`) {
				t.Errorf("the profile's file held %q", p.seccomp)
			}
			if _, err := os.Stat(p.file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the profile's file %s is still there (%v)", p.file, err)
			}
		})
	}
}

func TestSeccompFileOfAnotherMachine(t *testing.T) {
	t.Parallel()
	_, host, err := translate("create", fullShape(), imageDefaults{podman: true})
	if err != nil {
		t.Fatal(err)
	}
	c := fakeClient(t, nil)
	c.url.Scheme, c.address = "tcp", "tcp://podman.example:2375"
	_, err = c.seccompFile("create", host)
	if !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), "podman.example") {
		t.Errorf("seccompFile(another machine) = %v; want it refused, with its address", err)
	}
}

func TestCreateVolumeOnPodman(t *testing.T) {
	t.Parallel()
	p := &fakePodman{}
	if err := fakeClient(t, p.routes()).CreateVolume(t.Context(), Volume{Name: "v", Root: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"o": "uid=0,gid=0"}, p.volumes); diff != "" {
		t.Error(diff)
	}
}
