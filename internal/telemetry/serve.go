package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Path is where metrics are served.
const Path = "/metrics"

// Listen opens an address for metrics. It must be a loopback address, because clients
// are not authenticated.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("metrics address: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("metrics address %s: it must be a loopback address, as in 127.0.0.1:9464: other machines could read the metrics without a token", address)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

// Limits of the server.
const (
	headerTime  = 5 * time.Second
	writeTime   = 10 * time.Second
	idleTime    = time.Minute
	headerBytes = 16 << 10
	readers     = 4 // at once
)

// serve serves the metrics until stop is called.
func serve(l net.Listener, registry *prometheus.Registry) (stop func() error) {
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: readers, Timeout: writeTime})
	server := &http.Server{
		ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: writeTime + headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !local(r.Host): // a web page may have sent its reader's browser here
				http.Error(w, "this address has another name", http.StatusForbidden)
			case r.URL.Path != Path:
				http.NotFound(w, r)
			case r.Method != http.MethodGet && r.Method != http.MethodHead:
				http.Error(w, "read only", http.StatusMethodNotAllowed)
			default:
				metrics.ServeHTTP(w, r)
			}
		}),
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return func() error {
		err := server.Close()
		if ended := <-done; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		return err
	}
}

// local reports whether a Host header names this machine.
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
