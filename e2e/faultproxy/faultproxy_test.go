package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// engine is one that counts its calls, answers "hello, world", and sends back
// over a stream what it gets.
func engine(t *testing.T) (host string, done *atomic.Int64) {
	t.Helper()
	done = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done.Add(1)
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "hello, world")
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
		_, _ = io.Copy(conn, buf)
	}))
	t.Cleanup(server.Close)
	return "tcp://" + server.Listener.Addr().String(), done
}

func start(t *testing.T) (*Proxy, *http.Client, *atomic.Int64) {
	t.Helper()
	host, done := engine(t)
	p, err := Start(host)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", strings.TrimPrefix(p.Host(), "unix://"))
	}}
	t.Cleanup(p.Close)
	t.Cleanup(transport.CloseIdleConnections)
	return p, &http.Client{Transport: transport, Timeout: time.Minute}, done
}

// givesUp is how long a client waits for an answer that must not come.
const givesUp = 3 * time.Second

func get(t *testing.T, client *http.Client, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return client.Do(req)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		fault  Fault
		status int    // 0: none arrives
		body   string // its beginning
		whole  bool   // the body ends in good order
		done   int64  // the engine's calls
	}{
		{"none", Fault{}, 200, "hello, world", true, 1},
		{"status", Status(503), 503, `{"message":`, true, 0},
		{"status after", Status(500).AfterDone(), 500, `{"message":`, true, 1},
		{"garbage", Garbage(), 200, `{"Id": [`, true, 0},
		{"wrong type", WrongType(), 200, "<html>", true, 0},
		{"old HTTP", OldHTTP(), 500, "an old", true, 0},
		{"reset", Reset(), 0, "", false, 0},
		{"reset after", Reset().AfterDone(), 0, "", false, 1},
		{"hang", Hang(), 0, "", false, 0},
		{"cut", Cut(5), 200, "hello", false, 1},
		{"slow", Slow(), 0, "", false, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, client, done := start(t)
			p.Set(Rule{Method: "GET", Path: regexp.MustCompile(`\A/thing\?a=b\z`), Fault: tt.fault})
			if tt.status == 0 {
				client.Timeout = givesUp
			}
			resp, err := get(t, client, "http://engine/v1.41/thing?a=b")
			if (err == nil) != (tt.status != 0) {
				t.Fatalf("Get() = %v; want an answer: %t", err, tt.status != 0)
			}
			if got := done.Load(); got != tt.done {
				t.Errorf("the engine got %d calls; want %d", got, tt.done)
			}
			if got := p.Calls(); len(got) != 1 || got[0] != (Call{Method: "GET", Path: "/thing?a=b", Fault: tt.fault.String()}) {
				t.Errorf("Calls() = %+v; want one, with %q", got, tt.fault)
			}
			if err != nil {
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !strings.HasPrefix(string(body), tt.body) || (err == nil) != tt.whole {
				t.Errorf("answer %d %q, %v; want %d %q…, whole: %t", resp.StatusCode, body, err, tt.status, tt.body, tt.whole)
			}
		})
	}
}

func TestNth(t *testing.T) {
	t.Parallel()
	p, client, _ := start(t)
	p.Set(Rule{Nth: 2, Fault: Status(500)})
	for i, want := range []int{200, 500, 200} {
		resp, err := get(t, client, "http://engine/")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("call %d: status %d; want %d", i+1, resp.StatusCode, want)
		}
	}
	if got := p.Faults(); got != 1 {
		t.Errorf("Faults() = %d; want 1", got)
	}
}

func TestPart(t *testing.T) {
	t.Parallel()
	p, client, done := start(t)
	p.Part()
	client.Timeout = givesUp
	if _, err := get(t, client, "http://engine/"); !os.IsTimeout(err) || done.Load() != 0 {
		t.Errorf("Get() = %v, with %d calls of the engine; want a timeout and none", err, done.Load())
	}
	p.Heal()
	client.Timeout = time.Minute
	resp, err := get(t, client, "http://engine/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestStreams(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		fault Fault
		want  string // that comes back
		err   error  // nil: an end in good order
		late  bool   // what is written afterwards still reaches the engine
		least time.Duration
	}{
		{"none", Fault{}, "0123456789", os.ErrDeadlineExceeded, true, 0},
		{"cut", CutStream(4), "0123", nil, false, 0},
		{"end", EndStream(4), "0123", nil, true, 0},
		{"stall", Stall(4), "0123", os.ErrDeadlineExceeded, true, 0},
		{"drip", Drip(8), "0123456789", os.ErrDeadlineExceeded, true, 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, _, _ := start(t)
			p.Set(Rule{Fault: tt.fault})
			conn, err := new(net.Dialer).DialContext(t.Context(), "unix", strings.TrimPrefix(p.Host(), "unix://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			began := time.Now()
			_, _ = io.WriteString(conn, "POST /exec/1/start HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n0123456789")
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("the answer is %v, %v; want 101", resp, err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			got := make([]byte, len(tt.want))
			if _, err := io.ReadFull(in, got); err != nil || string(got) != tt.want {
				t.Fatalf("read %q, %v; want %q", got, err, tt.want)
			}
			if took := time.Since(began); took < tt.least {
				t.Errorf("all of it came within %v; want %v at least", took, tt.least)
			}
			if tt.err != nil { // nothing more comes
				_ = conn.SetReadDeadline(time.Now().Add(700 * time.Millisecond))
			}
			if more, err := io.ReadAll(in); len(more) > 0 || !errors.Is(err, tt.err) {
				t.Errorf("then %q, %v; want nothing, %v", more, err, tt.err)
			}
			if _, err := io.WriteString(conn, "more"); (err == nil) != tt.late {
				t.Errorf("a write after it: %v; want it taken: %t", err, tt.late)
			}
		})
	}
}
