package telemetry

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// served starts telemetry for Prometheus, and returns it with the address of its metrics.
func served(t *testing.T, o Options) (*Telemetry, string) {
	t.Helper()
	l, err := Listen(t.Context(), "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Listener = l
	tel, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Close(t.Context()) })
	return tel, "http://" + l.Addr().String() + Path
}

// What fails has its own labels, and what is told concurrently is all counted.
func TestCounts(t *testing.T) {
	tel, url := served(t, Options{})
	now := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				tel.SessionStarted(Session{ID: "s", Start: now.Add(-time.Second), End: now, Failed: true})
				tel.Connection("connection", true, 2, 3)
				tel.Connection("connection", false, 0, 0)
				tel.Denied("ask")
				tel.Transfer(Command{Start: now, End: now, Mode: "pull", Outcome: "not-started", Cause: "conflict"})
				tel.Command(Command{Start: now, End: now, Outcome: "exited", Survivors: 3, Stderr: 7})
			}
		})
	}
	all.Wait()
	_, got := get(t, url, "")
	for _, want := range []string{
		`sandboxbash_session_start_duration_seconds_count{outcome="failed"} 400`,
		`sandboxbash_session_start_duration_seconds_sum{outcome="failed"} 400`,
		`sandboxbash_network_connections_total{kind="connection",verdict="allowed"} 400`,
		`sandboxbash_network_connections_total{kind="connection",verdict="denied"} 400`,
		`sandboxbash_network_traffic_bytes_total{direction="sent"} 800`,
		`sandboxbash_network_traffic_bytes_total{direction="received"} 1200`,
		`sandboxbash_commands_total{cause="",mode="",outcome="denied",where=""} 400`,
		`sandboxbash_policy_decisions_total{verdict="ask"} 400`,
		`sandboxbash_transfer_duration_seconds_count{cause="conflict",mode="pull",outcome="not-started"} 400`,
		`sandboxbash_survivors_total 1200`,
		`sandboxbash_command_output_bytes_total{stream="stderr"} 2800`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
	for _, none := range []string{"sandboxbash_kills_total{", "sandboxbash_sessions ", "target_info", "otel_scope"} {
		if strings.Contains(got, none) {
			t.Errorf("there is %s, which nothing has told of", none)
		}
	}
}

// Metrics are read, and nothing else is done at their address.
func TestReadOnly(t *testing.T) {
	_, url := served(t, Options{})
	for method, want := range map[string]int{
		http.MethodGet: http.StatusOK, http.MethodHead: http.StatusOK, http.MethodPost: http.StatusMethodNotAllowed,
		http.MethodDelete: http.StatusMethodNotAllowed, http.MethodOptions: http.StatusMethodNotAllowed,
	} {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s = %d; want %d", method, res.StatusCode, want)
		}
	}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:9464": true, "127.0.0.1": true, "127.9.9.9:1": true, "[::1]:80": true, "::1": true,
		"": false, "localhost.evil.example": false, "127.0.0.1.evil.example:80": false, "192.0.2.1:80": false, "[::]:80": false, "0.0.0.0": false,
	} {
		if got := local(host); got != want {
			t.Errorf("local(%q) = %t; want %t", host, got, want)
		}
	}
}

// A Start that fails leaves no address open, and says what is wrong with which variable.
func TestStartFails(t *testing.T) {
	t.Parallel()
	for variable, value := range map[string]string{"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_METRICS_EXPORTER": "prometheus"} {
		l, err := Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tel, err := Start(t.Context(), Options{Listener: l, Getenv: env(variable, value)})
		if tel != nil || err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), value) {
			t.Errorf("Start(%s=%s) = %v, %v; want an error that names both", variable, value, tel, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept() after Start(%s=%s) has failed: %v; want a closed listener", variable, value, err)
		}
	}
}
