//go:build unix

package imagecmd_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// fakeEngine answers the requests of Docker's API that the commands make. It returns the
// environment that names it, and the requests other than pings so far.
func fakeEngine(t *testing.T, answers map[string]string) (environ []string, asked func() []string) {
	t.Helper()
	socket := filepath.Join(clitest.SocketDir(t), "engine")
	l, err := net.Listen("unix", socket) //nolint:noctx // the server closes it
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var requests []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		path := strings.TrimPrefix(r.URL.Path, "/v1.41")
		if path == "/_ping" {
			return
		}
		request := r.Method + " " + path
		mu.Lock()
		requests = append(requests, request)
		mu.Unlock()
		answer, ok := answers[request]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"message":"no such image"}`
		}
		if answer == "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		fmt.Fprint(w, answer)
	}))
	s.Listener.Close() //nolint:errcheck // of the address that is not used
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return []string{"DOCKER_HOST=unix://" + socket, "HOME=" + t.TempDir()}, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return requests
	}
}

// Images as the engine describes them: the second has no name.
const (
	tools = `{"Id":"sha256:0123456789abcdef0123","RepoTags":["tools:2","tools:1"],"Os":"linux","Architecture":"arm64","Size":2500000,"Created":"2020-01-02T03:04:05Z"}`
	bare  = `{"Id":"sha256:ffff56789abcdef0123","RepoTags":null,"Os":"linux","Architecture":"amd64","Size":1,"Created":"1970-01-01T00:00:00Z"}`
)

func TestList(t *testing.T) {
	t.Parallel()
	environ, asked := fakeEngine(t, map[string]string{
		"GET /images/json": `[{"Id":"sha256:0123456789abcdef0123"},{"Id":"sha256:ffff56789abcdef0123"},{"Id":"sha256:gone"}]`,
		"GET /images/sha256:0123456789abcdef0123/json": tools,
		"GET /images/sha256:ffff56789abcdef0123/json":  bare,
	})
	status, out, errs := clitest.Call(t, environ, "image", "ls")
	if status != 0 || errs != "" {
		t.Fatalf("image ls = %d, %q; asked %q", status, errs, asked())
	}
	var rows []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 5 && strings.HasSuffix(fields[3], "d") {
			fields[3] = "days"
		}
		rows = append(rows, strings.Join(fields, " "))
	}
	want := []string{"REFERENCE ID ARCH AGE SIZE", "tools:1 0123456789ab arm64 days 2.5MB", "tools:2 0123456789ab arm64 days 2.5MB", "- ffff56789abc amd64 - 1B"}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("image ls prints %q; want %q", rows, want)
	}
	status, out, errs = clitest.Call(t, environ, "image", "ls", "--json")
	var list []struct {
		ID   string
		Refs []string
		Size int64
	}
	if err := json.Unmarshal([]byte(out), &list); status != 0 || errs != "" || err != nil || len(list) != 2 {
		t.Fatalf("image ls --json = %d, %q, %q", status, out, errs)
	}
	if one, other := list[0], list[1]; strings.Join(one.Refs, " ") != "tools:1 tools:2" || one.Size != 2500000 || other.Refs == nil || len(other.Refs) != 0 {
		t.Errorf("image ls --json prints %s", out)
	}
}

// One that is not there does not keep the others from being removed, and decides the status.
func TestRemove(t *testing.T) {
	t.Parallel()
	environ, asked := fakeEngine(t, map[string]string{
		"GET /images/tools:1/json": tools, "GET /images/sha256:0123456789abcdef0123/json": tools, "DELETE /images/tools:1": `[{"Untagged":"tools:1"}]`,
	})
	status, out, errs := clitest.Call(t, environ, "image", "rm", "missing:1", "tools:1")
	if status != exit.Usage || out != "" || !strings.Contains(errs, "missing:1") || strings.Contains(errs, "tools:1") {
		t.Errorf("image rm = %d, %q, %q; want status %d and the name of the one that is missing", status, out, errs, exit.Usage)
	}
	removed := 0
	for _, request := range asked() {
		if request == "DELETE /images/tools:1" {
			removed++
		}
	}
	if removed != 1 {
		t.Errorf("the engine was asked %q; want the removal of tools:1 once", asked())
	}
}

// What is wrong with the words is said before the engine is looked for.
func TestMisuse(t *testing.T) {
	t.Parallel()
	environ := clitest.NoEngine(t)
	for words, want := range map[string]string{
		"rm":                  "give image names or --all",
		"rm --all x":          "give image names or --all",
		"pull":                "an image reference",
		"load":                "a file",
		"build":               "a directory or the word base",
		"host x":              "no arguments",
		"ls x":                "no arguments",
		"host --add go,emacs": `tool "emacs" cannot be added to the image host: the tools are cmake, gcc, go,`,
		"build --network x":   "network",
	} {
		status, out, errs := clitest.Call(t, environ, append([]string{"image"}, strings.Fields(words)...)...)
		if status != exit.Usage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("image %s = %d, %q, %q; want status %d and %q", words, status, out, errs, exit.Usage, want)
		}
	}
	status, out, errs := clitest.Call(t, environ, "image", "pull", "--json", "a", "b")
	if status != exit.Usage || errs != "" || !strings.Contains(out, `"error":{"outcome":"not-started","cause":"usage"`) {
		t.Errorf("image pull --json = %d, %q, %q; want an object", status, out, errs)
	}
}

// Tools are names of a setting of this call alone, and no other setting is taken for them.
func TestHostTools(t *testing.T) {
	t.Parallel()
	for _, add := range [][]string{{"--add", "go"}, {"--add", "go,gcc", "--add", "node"}, nil} {
		status, out, errs := clitest.Call(t, clitest.NoEngine(t), append([]string{"image", "host"}, add...)...)
		if status != exit.Engine || out != "" || !strings.Contains(errs, "engine") {
			t.Errorf("image host %q = %d, %q, %q; want that only the engine is missing", add, status, out, errs)
		}
	}
}
