package docker

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

// TestContainersVanish: a container that vanishes while they are listed is left out, the others come
// oldest first, and an error is the list's.
func TestContainersVanish(t *testing.T) {
	t.Parallel()
	created := map[string]string{"c1": "2026-01-03T00:00:00Z", "c2": "2026-01-01T00:00:00Z", "c3": "2026-01-01T00:00:00Z", "c4": "nonsense"}
	routes := map[string]http.HandlerFunc{
		"/v1.41/containers/json": func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.Query().Get("filters"); got != `{"label":{"a=b":true}}` || r.URL.Query().Get("all") != "1" {
				t.Errorf("the engine is asked for %s", r.URL.RawQuery)
			}
			answer(http.StatusOK, `[{"Id":"c1"},{"Id":"gone"},{"Id":"c2"},{"Id":"c3"},{"Id":"c4"}]`)(w, r)
		},
		"/v1.41/containers/gone/json": answer(http.StatusNotFound, `{"message":"No such container: gone"}`),
	}
	for id, at := range created {
		routes["/v1.41/containers/"+id+"/json"] = answer(http.StatusOK, fmt.Sprintf(`{"Id":%q,"Name":"/n-%s","Created":%q}`, id, id, at))
	}
	all, err := fakeClient(t, routes).Containers(t.Context(), map[string]string{"a": "b"})
	var ids []string
	for _, c := range all {
		ids = append(ids, string(c.ID))
		if c.Name != "n-"+string(c.ID) {
			t.Errorf("%s has the name %s", c.ID, c.Name)
		}
	}
	if want := []string{"c4", "c2", "c3", "c1"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("Containers = %q, %v; want %q", ids, err, want)
	}
	routes["/v1.41/containers/c2/json"] = answer(http.StatusInternalServerError, `{"message":"the disk is gone"}`)
	if all, err := fakeClient(t, routes).Containers(t.Context(), map[string]string{"a": "b"}); err == nil || !strings.Contains(err.Error(), "the disk is gone") || all != nil {
		t.Errorf("with a container that cannot be asked about: %v, %v; want the error alone", all, err)
	}
}

// TestContainerState: what is said of a container, by what the engine answers.
func TestContainerState(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		want       ContainerState
	}{
		{"little", `{"Id":"x"}`, ContainerState{ID: "x", Entrypoint: []string{""}}},
		{
			"mounts, in the order of their places",
			`{"Id":"x","Path":"/init","Args":["a"],"HostConfig":{"Tmpfs":{"/tmp":"rw,size=1","/run":"size=1,ro"}},
			  "Mounts":[{"Type":"volume","Name":"v","Source":"/var/lib/v","Destination":"/work","RW":true},{"Type":"bind","Source":"/h","Destination":"/a"}]}`,
			ContainerState{ID: "x", Entrypoint: []string{"/init", "a"}, Mounts: []Mount{
				{Type: "bind", Source: "/h", Target: "/a", ReadOnly: true},
				{Type: "tmpfs", Target: "/run", ReadOnly: true},
				{Type: "tmpfs", Target: "/tmp"},
				{Type: "volume", Source: "v", Target: "/work"},
			}},
		},
		{
			"running again: the end is that of the run before",
			`{"Id":"x","State":{"Status":"running","Pid":7,"FinishedAt":"2026-01-01T00:00:00Z","OOMKilled":true}}`,
			ContainerState{ID: "x", Entrypoint: []string{""}, Status: engine.StatusRunning, PID: 7, OOMKilled: true},
		},
	} {
		c := fakeClient(t, map[string]http.HandlerFunc{"/v1.41/containers/x/json": answer(http.StatusOK, tt.body)})
		got, err := c.Container(t.Context(), "x")
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}

// TestImagesVanish: an image that vanishes while they are listed is left out, and the newest is first.
func TestImagesVanish(t *testing.T) {
	t.Parallel()
	c := fakeClient(t, map[string]http.HandlerFunc{
		"/v1.41/images/json":      answer(http.StatusOK, `[{"Id":"old"},{"Id":"gone"},{"Id":"new"}]`),
		"/v1.41/images/old/json":  answer(http.StatusOK, `{"Id":"old","Created":"2026-01-01T00:00:00Z","Os":"linux","Architecture":"amd64"}`),
		"/v1.41/images/new/json":  answer(http.StatusOK, `{"Id":"new","Created":"2026-02-01T00:00:00Z","Os":"linux","Architecture":"amd64"}`),
		"/v1.41/images/gone/json": answer(http.StatusNotFound, `{"message":"No such image"}`),
	})
	all, err := c.Images(t.Context())
	var ids []string
	for _, i := range all {
		ids = append(ids, string(i.ID))
	}
	if err != nil || !slices.Equal(ids, []string{"new", "old"}) {
		t.Errorf("Images = %q, %v; want new and old", ids, err)
	}
}

// TestVolumes: volumes come by name, and what the engine leaves empty in its list is not a volume.
func TestVolumes(t *testing.T) {
	t.Parallel()
	c := fakeClient(t, map[string]http.HandlerFunc{
		"/v1.41/volumes":   answer(http.StatusOK, `{"Volumes":[{"Name":"b","CreatedAt":"2026-01-01T00:00:00Z","Labels":{"x":"y"}},null,{"Name":"a"}]}`),
		"/v1.41/volumes/b": answer(http.StatusConflict, `{"message":"volume is in use"}`),
	})
	all, err := c.Volumes(t.Context(), nil)
	if err != nil || len(all) != 2 || all[0].Name != "a" || !all[0].Created.IsZero() || all[1].Labels["x"] != "y" || all[1].Created.Year() != 2026 {
		t.Errorf("Volumes = %+v, %v", all, err)
	}
	if err := c.RemoveVolume(t.Context(), "b"); !errors.Is(err, engine.ErrConflict) || !strings.Contains(err.Error(), "remove volume b") {
		t.Errorf("RemoveVolume = %v; want a conflict that names it", err)
	}
}

// TestInfo: what an engine says of itself, and which limits it does not keep.
func TestInfo(t *testing.T) {
	t.Parallel()
	const all = `"MemoryLimit":true,"SwapLimit":true,"PidsLimit":true,"CpuCfsQuota":true,"CpuCfsPeriod":true`
	for _, tt := range []struct {
		name, info, version string
		unenforced          string
		rootless, podman    bool
		runc                string
	}{
		{"all limits", `{` + all + `}`, `{}`, "", false, false, ""},
		{"none", `{}`, `{}`, "memory swap pids cpus", false, false, ""},
		{"a quota without a period", `{"MemoryLimit":true,"SwapLimit":true,"PidsLimit":true,"CpuCfsQuota":true}`, `{}`, "cpus", false, false, ""},
		{"rootless", `{` + all + `,"SecurityOptions":["name=seccomp,profile=default","name=rootless"]}`, `{}`, "", true, false, ""},
		{"rootless, as Podman says it", `{` + all + `,"SecurityOptions":["rootless"]}`, `{"Components":[{"Name":"Podman Engine"}]}`, "", true, true, ""},
		{"a profile of that name", `{` + all + `,"SecurityOptions":["name=apparmor,profile=name=rootless-x"]}`, `{}`, "", false, false, ""},
		{"runc as a component", `{` + all + `,"RuncCommit":{"ID":"abc"}}`, `{"Components":[{"Name":"runc","Version":"1.2.3"}]}`, "", false, false, "1.2.3"},
		{"runc by its commit", `{` + all + `,"RuncCommit":{"ID":"abc"}}`, `{"Components":[{"Name":"runc","Version":""}]}`, "", false, false, "abc"},
		{"runc of Podman", `{` + all + `}`, `{"Components":[{"Name":"OCI Runtime (runc)","Version":"runc version 1.1.12\ncommit: x"}]}`, "", false, false, "1.1.12"},
		{"runc of Podman, without a number", `{` + all + `}`, `{"Components":[{"Name":"OCI Runtime (runc)","Version":"runc version "}]}`, "", false, false, "-"},
	} {
		c := fakeClient(t, map[string]http.HandlerFunc{"/v1.41/info": answer(http.StatusOK, tt.info), "/v1.41/version": answer(http.StatusOK, tt.version)})
		got, err := c.Info(t.Context())
		if err != nil || strings.Join(got.Unenforced, " ") != tt.unenforced || got.Rootless != tt.rootless || got.EmptyResolver != tt.podman || got.RuncVersion != tt.runc {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
	for name, routes := range map[string]map[string]http.HandlerFunc{
		"info fails":        {"/v1.41/info": answer(http.StatusInternalServerError, `{"message":"no"}`), "/v1.41/version": answer(http.StatusOK, `{}`)},
		"info is not JSON":  {"/v1.41/info": answer(http.StatusOK, `<html>`), "/v1.41/version": answer(http.StatusOK, `{}`)},
		"info has no end":   {"/v1.41/info": answer(http.StatusOK, `{"Name":"`+strings.Repeat("x", maxInspect)+`"}`), "/v1.41/version": answer(http.StatusOK, `{}`)},
		"version fails":     {"/v1.41/info": answer(http.StatusOK, `{}`), "/v1.41/version": answer(http.StatusForbidden, `{"message":"no"}`)},
		"version is broken": {"/v1.41/info": answer(http.StatusOK, `{}`), "/v1.41/version": answer(http.StatusOK, `]`)},
	} {
		if got, err := fakeClient(t, routes).Info(t.Context()); err == nil || got.Name != "" {
			t.Errorf("%s: %+v, %v; want an error alone", name, got, err)
		}
	}
}

// TestCredentials: a pull has what the user's configuration holds for the image's registry and for no
// other, and where that cannot be read the error of a failed pull says so.
func TestCredentials(t *testing.T) {
	t.Parallel()
	login := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	file := fmt.Sprintf(`{"auths":{"https://index.docker.io/v1/":{"auth":%q},"reg.example:5000":{"auth":%q}}}`, login("hub:one"), login("me:two"))
	for _, tt := range []struct {
		name, config, ref string
		user, password    string
		status            int
		err               string
	}{
		{"Docker Hub", file, "alpine", "hub", "one", 200, ""},
		{"Docker Hub, in full", file, "docker.io/library/alpine:3", "hub", "one", 200, ""},
		{"another registry", file, "reg.example:5000/x", "me", "two", 200, ""},
		{"its other port", file, "reg.example/x", "", "", 200, ""},
		{"a registry that has none", file, "other.example/x", "", "", 200, ""},
		{"no file", "", "alpine", "", "", 200, ""},
		{"a broken file, where none is needed", `{"auths":`, "alpine", "", "", 200, ""},
		{"a broken file", `{"auths":`, "alpine", "", "", 404, "without credentials: read Docker's configuration"},
		{"a helper that is not there", `{"credsStore":"no-such-helper"}`, "alpine", "", "", 404, "without credentials: credentials for https://index.docker.io/v1/"},
		{"refused in spite of them", file, "alpine", "hub", "one", 404, "pull access denied"},
	} {
		dir := t.TempDir()
		if tt.config != "" {
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(tt.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := fakeClient(t, map[string]http.HandlerFunc{"/v1.41/images/create": func(w http.ResponseWriter, r *http.Request) {
			var got struct{ Username, Password string }
			if header := r.Header.Get("X-Registry-Auth"); header != "" {
				raw, err := base64.URLEncoding.DecodeString(header)
				if err != nil || json.Unmarshal(raw, &got) != nil {
					t.Errorf("%s: the header is %q, %v", tt.name, header, err)
				}
			}
			if got.Username != tt.user || got.Password != tt.password {
				t.Errorf("%s: the registry gets %+v; want %s:%s", tt.name, got, tt.user, tt.password)
			}
			answer(tt.status, `{"message":"pull access denied"}`)(w, r)
		}})
		c.configDir = dir
		err := c.PullImage(t.Context(), tt.ref, nil)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.err)
		}
		if err != nil && (strings.Contains(err.Error(), login("hub:one")) || strings.Contains(err.Error(), ": one")) {
			t.Errorf("%s: %v shows the password", tt.name, err)
		}
	}
}
