package docker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Row L13: what is between us and an engine may say 200 to anything.
func TestStrange(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, method, path, kind string
		status                   int
		strange                  bool
	}{
		{"json", "GET", "/v1.41/info", "application/json", 200, false},
		{"text", "HEAD", "/_ping", "text/plain; charset=utf-8", 200, false},
		{"no type", "POST", "/v1.41/images/load", "", 200, false},
		{"a page", "GET", "/v1.41/info", "text/html; charset=utf-8", 200, true},
		{"an error as a page", "GET", "/v1.41/info", "text/html", 502, false},
		{"removed", "DELETE", "/v1.41/containers/x", "", 204, false},
		{"not said to be removed", "DELETE", "/v1.41/containers/x", "application/json", 200, true},
		{"volume", "DELETE", "/v1.41/volumes/x", "application/json", 200, true},
		{"image", "DELETE", "/v1.41/images/x", "application/json", 200, false},
		{"missing", "DELETE", "/v1.41/volumes/x", "application/json", 404, false},
		{"started before", "POST", "/v1.41/containers/x/start", "", 304, false},
		{"not said to be started", "POST", "/v1.41/containers/x/start", "", 200, true},
		{"not said to be signalled", "POST", "/v1.41/containers/x/kill", "", 200, true},
		{"exec", "POST", "/v1.41/exec/x/start", "application/vnd.docker.raw-stream", 200, false},
		{"create", "POST", "/v1.41/containers/create", "application/json", 201, false},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		if tt.kind != "" {
			w.Header().Set("Content-Type", tt.kind)
		}
		w.WriteHeader(tt.status)
		resp := w.Result()
		err := strange(httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, http.NoBody), resp)
		resp.Body.Close()
		if (err != nil) != tt.strange || err != nil && !strings.Contains(err.Error(), "not a container engine") {
			t.Errorf("%s: strange(%s %s: %d %s) = %v; want one: %t", tt.name, tt.method, tt.path, tt.status, tt.kind, err, tt.strange)
		}
	}
}

// unending answers with JSON that does not end.
func unending(open, item string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, open)
		for line := strings.Repeat(item, 1000); ; {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}
}

// An engine that is hostile or broken answers without end: the call fails, with a
// bound on what it has taken.
func TestLongAnswers(t *testing.T) { //nolint:paralleltest // it looks at the memory of the process
	list, object := unending("[", `{"Id":"`+strings.Repeat("x", 100)+`"},`), unending(`{"ID":"`, "xxxxxxxxxx")
	c := fakeClient(t, map[string]http.HandlerFunc{
		"/v1.41/info": object, "/v1.41/version": object, "/v1.41/containers/json": list, "/v1.41/containers/x/json": object,
		"/v1.41/containers/create": object, "/v1.41/volumes": object, "/v1.41/volumes/create": object,
	})
	for name, call := range map[string]func(context.Context) error{
		"info":    func(ctx context.Context) error { _, err := c.Info(ctx); return err },
		"inspect": func(ctx context.Context) error { _, err := c.Container(ctx, "x"); return err },
		"list":    func(ctx context.Context) error { _, err := c.Containers(ctx, nil); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := call(t.Context())
		runtime.ReadMemStats(&after)
		if e, ok := errors.AsType[*engine.Error](err); !ok || !errors.Is(e, engine.ErrAnswer) {
			t.Errorf("%s: %v; want %v", name, err, engine.ErrAnswer)
		}
		if grown := int64(after.Sys) - int64(before.Sys); grown > 1<<30 {
			t.Errorf("%s: %d MiB were taken", name, grown>>20)
		}
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, path string
		status       int
		want         bool
	}{
		{"GET", "/v1.41/info", 200, false},
		{"GET", "/v1.41/containers/get/json", 200, false},
		{"POST", "/v1.41/containers/create", 201, false},
		{"POST", "/v1.41/images/create", 200, true},
		{"POST", "/v1.41/images/create", 404, false},
		{"POST", "/v1.41/images/load", 200, true},
		{"POST", "/v1.41/build", 200, true},
		{"POST", "/v1.41/exec/x/start", 101, true},
		{"GET", "/v1.41/images/get", 200, true},
		{"GET", "/v1.41/events", 200, true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, http.NoBody)
		if got := streams(r, &http.Response{StatusCode: tt.status}); got != tt.want {
			t.Errorf("streams(%s %s, %d) = %t; want %t", tt.method, tt.path, tt.status, got, tt.want)
		}
	}
}
