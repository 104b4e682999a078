package docker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
		if (err != nil) != tt.strange || err != nil && !strings.Contains(err.Error(), "no container engine") {
			t.Errorf("%s: strange(%s %s: %d %s) = %v; want one: %t", tt.name, tt.method, tt.path, tt.status, tt.kind, err, tt.strange)
		}
	}
}
