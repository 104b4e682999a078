package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestWants(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		env  []string
		want bool
		bad  string // part of the error
	}{
		{"nothing", nil, false, ""},
		{"an endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x"}, true, ""},
		{"one of its own", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x"}, true, ""},
		{"another signal's", []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://x"}, false, ""},
		{"disabled", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_SDK_DISABLED", "TRUE"}, false, ""},
		{"none", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_TRACES_EXPORTER", "none"}, false, ""},
		{"otlp without an endpoint", []string{"OTEL_TRACES_EXPORTER", "otlp"}, true, ""},
		{"another exporter", []string{"OTEL_TRACES_EXPORTER", "zipkin"}, false, "otlp or none"},
		{"another protocol", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, false, "http/protobuf"},
		{"this protocol", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"}, true, ""},
	}
	for _, tt := range tests {
		got, err := Options{Getenv: env(tt.env...)}.wants("TRACES")
		if got != tt.want || (err != nil) != (tt.bad != "") || err != nil && !strings.Contains(err.Error(), tt.bad) {
			t.Errorf("%s: wants(TRACES) = %v, %v; want %v, %q", tt.name, got, err, tt.want, tt.bad)
		}
	}
}

func TestNothingWanted(t *testing.T) {
	t.Parallel()
	if got, err := Start(t.Context(), Options{}); got != nil || err != nil {
		t.Errorf("Start() = %v, %v; want nothing", got, err)
	}
}

func TestListenIsLocal(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.org:0", "localhost"} {
		if l, err := Listen(t.Context(), address); err == nil {
			_ = l.Close()
			t.Errorf("Listen(%s) works; want it refused", address)
		}
	}
}

// some tells of a bit of everything.
func some(t *Telemetry) {
	code := 3
	now := time.Now()
	t.Command(Command{
		Session: "session-1", ID: "command-1", Start: now.Add(-time.Second), End: now, Mode: "command", Where: "container", Outcome: "exited",
		Code: &code, Verdict: "allow", CPU: time.Second / 2, Stdout: 10, Stderr: 5, Masked: 2, Artifact: 100,
	})
	t.Command(Command{
		Session: "session-1", ID: "command-2", Start: now, End: now, Mode: "command", Where: "container", Outcome: "timed-out", Killed: "kill",
	})
	t.Command(Command{Session: "session-1", Start: now, End: now, Mode: "command", Where: "container", Outcome: "not-started", Cause: "engine"})
	t.Transfer(Command{Session: "session-1", ID: "transfer-1", Start: now, End: now, Mode: "push", Outcome: "copied"})
	t.Connection("request", true, 3, 5)
	t.Connection("name", false, 0, 0)
	t.Denied("deny")
	t.SessionStarted(Session{ID: "session-1", Start: now, End: now})
	t.SessionEnded("stopped")
	t.JobEnded("exited")
}

func TestPrometheus(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tel, err := Start(t.Context(), Options{
		Version: "1.2.3", Revision: "abc", Go: "go1.99", Listener: l, Levels: func() Levels { return Levels{Sessions: 4, Warm: 2, IdleRunners: 3, BusyRunners: 1, Unrecorded: 7} },
	})
	if err != nil {
		t.Fatal(err)
	}
	some(tel)
	address := "http://" + l.Addr().String()
	status, got := get(t, address+Path, "")
	if status != http.StatusOK {
		t.Fatalf("GET %s = %d, %s", Path, status, got)
	}
	for _, want := range []string{
		`sandboxbash_commands_total{cause="",mode="command",outcome="exited",where="container"} 1`,
		`sandboxbash_commands_total{cause="engine",mode="command",outcome="not-started",where="container"} 1`,
		`sandboxbash_command_duration_seconds_bucket{mode="command",outcome="exited",le="0.5"} 0`,
		`sandboxbash_command_duration_seconds_bucket{mode="command",outcome="exited",le="2.5"} 1`,
		`sandboxbash_command_cpu_time_seconds_total 0.5`,
		`sandboxbash_command_output_bytes_total{stream="stdout"} 10`,
		`sandboxbash_kills_total{rung="kill"} 1`,
		`sandboxbash_policy_decisions_total{verdict="deny"} 1`,
		`sandboxbash_secrets_masked_total 2`,
		`sandboxbash_artifact_written_bytes_total 100`,
		`sandboxbash_session_start_duration_seconds_count{outcome="started"} 1`,
		`sandboxbash_sessions_ended_total{how="stopped"} 1`,
		`sandboxbash_jobs_ended_total{outcome="exited"} 1`,
		`sandboxbash_build_info{goversion="go1.99",revision="abc",version="1.2.3"} 1`,
		`sandboxbash_sessions 4`,
		`sandboxbash_runners{state="idle"} 3`,
		`sandboxbash_audit_missed_total 7`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "session-1") || strings.Contains(got, "command-1") {
		t.Error("metrics have ids of sessions or commands")
	}
	for _, tt := range []struct {
		path, host string
		want       int
	}{{"/", "", http.StatusNotFound}, {Path, "evil.example", http.StatusForbidden}, {Path, "localhost:1", http.StatusOK}} {
		if status, _ := get(t, address+tt.path, tt.host); status != tt.want {
			t.Errorf("GET %s of host %q = %d; want %d", tt.path, tt.host, status, tt.want)
		}
	}
	if err := tel.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var dialer net.Dialer
	if conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("the address is still open after Close")
	}
}

func get(t *testing.T, url, host string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// collector takes what exporters send.
type collector struct {
	mu   sync.Mutex
	sent map[string][]byte // guarded by mu; by path
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(r.Body); err == nil {
			body = z
		}
	}
	b, _ := io.ReadAll(body) // a broken one has less than is wanted
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[r.URL.Path] = append(c.sent[r.URL.Path], b...)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func TestCollector(t *testing.T) {
	c := &collector{sent: map[string][]byte{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_SERVICE_NAME", "ours")
	var failed []error
	tel, err := Start(t.Context(), Options{Getenv: env("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL), Warn: func(err error) { failed = append(failed, err) }})
	if err != nil {
		t.Fatal(err)
	}
	tel.patience = time.Minute // a busy machine may need more than a user waits
	some(tel)
	if err := tel.Close(t.Context()); err != nil || len(failed) > 0 {
		t.Errorf("Close() = %v, %v; want all sent", err, failed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for path, wants := range map[string][]string{
		"/v1/traces":  {"sandboxbash command", "sandboxbash session start", "session.id", "session-1", "command-1", "process.exit.code", "service.name", "ours"},
		"/v1/metrics": {"sandboxbash.command.duration", "sandboxbash.kills", "timed-out"},
	} {
		for _, want := range wants {
			if !bytes.Contains(c.sent[path], []byte(want)) {
				t.Errorf("what was sent to %s has no %q: %q", path, want, c.sent[path])
			}
		}
	}
	if bytes.Contains(c.sent["/v1/metrics"], []byte("session-1")) {
		t.Error("metrics have ids of sessions")
	}
}

// Spans belong to the one that the environment names, and are sent if that is sampled.
func TestParent(t *testing.T) {
	c := &collector{sent: map[string][]byte{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	const traceID, spanID = "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c", "\xb7\xad\x6b\x71\x69\x20\x33\x31"
	name := fmt.Sprintf("00-%x-%x-", traceID, spanID)
	for _, test := range []struct {
		parent      string
		sent, child bool
	}{
		{name + "01", true, true},
		{name + "00", false, false},
		{"", true, false},
		{"nonsense", true, false},
	} {
		c.mu.Lock()
		clear(c.sent)
		c.mu.Unlock()
		tel, err := Start(t.Context(), Options{Getenv: env("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL, "TRACEPARENT", test.parent)})
		if err != nil {
			t.Fatal(err)
		}
		tel.patience = time.Minute
		some(tel)
		if err := tel.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v", err)
		}
		c.mu.Lock()
		got := c.sent["/v1/traces"]
		c.mu.Unlock()
		if sent := bytes.Contains(got, []byte("sandboxbash command")); sent != test.sent {
			t.Errorf("with TRACEPARENT=%q spans are sent: %t; want %t", test.parent, sent, test.sent)
		}
		if child := bytes.Contains(got, []byte(traceID)) && bytes.Contains(got, []byte(spanID)); child != test.child {
			t.Errorf("with TRACEPARENT=%q spans belong to it: %t; want %t", test.parent, child, test.child)
		}
	}
}

// Spans are sent where the collector of metrics does not answer.
func TestSilentMetrics(t *testing.T) {
	silent, err := Listen(t.Context(), "127.0.0.1:0") // no connection is accepted
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nothing has connected
	c := &collector{sent: map[string][]byte{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://"+silent.Addr().String())
	tel, err := Start(t.Context(), Options{Getenv: env("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL), Warn: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	some(tel)
	if err := tel.Close(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close() = %v; want the metrics given up after %v", err, closeTime)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !bytes.Contains(c.sent["/v1/traces"], []byte("sandboxbash command")) {
		t.Errorf("the collector of spans has %q; want the command's", c.sent)
	}
}

// A collector that does not answer holds nothing up.
func TestSilentCollector(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0") // no connection is accepted
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing has connected
	url := "http://" + l.Addr().String()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	tel, err := Start(t.Context(), Options{Getenv: env("OTEL_EXPORTER_OTLP_ENDPOINT", url), Warn: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	some(tel)
	if err := tel.Close(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close() = %v; want it given up after %v", err, closeTime)
	}
	// The exporter's goroutine goes on until its request has ended, and reports errors to the handler of the whole
	// process: it must not live on into another test.
	server := &http.Server{Handler: &collector{sent: map[string][]byte{}}, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	defer func() { _ = server.Close() }()
	stacks := make([]byte, 4<<20)
	for end := time.Now().Add(time.Minute); bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("batchSpanProcessor")); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the exporter's goroutine does not end:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}
