package e2e

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCollector takes what is sent to a collector of OpenTelemetry.
func cmdCollector(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "collector NAME FILE")
	file, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			if z, err := gzip.NewReader(r.Body); err == nil {
				body = z
			}
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(file, r.URL.Path+"\n")
		_, _ = io.Copy(file, body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	ts.Defer(func() {
		server.Close()
		_ = file.Close()
	})
	ts.Setenv(args[0], server.URL)
}
