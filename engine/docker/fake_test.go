package docker

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// fakeEngine answers on a unix socket, with API version 1.41 unless the handler
// of /_ping says otherwise. It returns its address.
func fakeEngine(t *testing.T, routes map[string]http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	if routes["/_ping"] == nil {
		mux.HandleFunc("/_ping", speaks("1.41")["/_ping"])
	}
	for route, handler := range routes {
		mux.HandleFunc(route, handler)
	}
	socket := filepath.Join(t.TempDir(), "s")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}} //nolint:gosec // a test's
	server.Start()
	t.Cleanup(server.Close)
	return "unix://" + socket
}

// fakeClient is connected to a fakeEngine.
func fakeClient(t *testing.T, routes map[string]http.HandlerFunc) *Client {
	t.Helper()
	c, err := Connect(t.Context(), Options{Address: fakeEngine(t, routes)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// answer is a handler that says one thing.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// speaks is the handler of /_ping of an engine with that API version.
func speaks(version string) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"/_ping": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", version) }}
}
