package sandbox_test

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

const (
	hostedValue = "canary-hunter2/0815+x"
	hostedToken = "TOKEN"
)

// hostedCredentials is what a server was sent.
type hostedCredentials struct {
	mu   sync.Mutex
	seen []string // guarded by mu; host, path and Authorization
}

func (c *hostedCredentials) add(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	user, password, _ := r.BasicAuth()
	c.seen = append(c.seen, fmt.Sprintf("%s %s %q %q %s:%s", strings.Split(r.Host, ":")[0], r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"), user, password))
}

// take returns what was seen since the last call.
func (c *hostedCredentials) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Join(c.seen, "\n")
	c.seen = nil
	return all
}

// secretServer shows what it is sent, in several ways.
func secretServer(t *testing.T, seen *hostedCredentials) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.add(r)
		token := r.Header.Get("Authorization")
		w.Header().Set("X-Echo", token)
		switch r.URL.Path {
		case "/redirect":
			_, port, _ := strings.Cut(r.Host, ":")
			w.Header().Set("Location", "https://other.example.com:"+port+"/there?token="+token[len("Bearer "):])
			w.WriteHeader(http.StatusFound)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, token)
			_ = z.Close()
		case "/broken":
			_, _ = io.WriteString(w, "whole "+token+" part "+token[:len("Bearer canary-hunter2")])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprintln(w, r.Header, token)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// TestSecretNeverEnters looks for the value inside the session. What it prints is reversed, because the
// value would be masked in an output.
func TestSecretNeverEnters(t *testing.T) {
	t.Parallel()
	seen := &hostedCredentials{}
	server := secretServer(t, seen)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	known, _, err := sink.NewSecrets([]sink.Secret{{Name: hostedToken, Value: hostedValue}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store, err := sink.NewStore(dir, sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher := &connectionWatcher{}
	client := dockertest.Connect(t)
	e := newEngine(client, resolver(t, client), sandbox.Options{
		Resolver: names{"example.com", "other.example.com"}, Roots: roots, Secrets: known, Artifacts: store, Observer: watcher,
	})
	host, other := fmt.Sprintf("example.com:%d", at.Port()), fmt.Sprintf("other.example.com:%d", at.Port())
	s := startIn(t, client, e, sandbox.Spec{
		Allow:   rules(t, host, other, at.String()),
		Secrets: []sandbox.Secret{{Name: hostedToken, Value: hostedValue, Hosts: rules(t, host)}},
	})
	env := []string{"HOST=" + host, "PORT=" + fmt.Sprint(at.Port())}
	const bearer = `-H "Authorization: Bearer $TOKEN"`
	for _, tt := range []struct {
		name, script string
		code         int
		saw, prints  string // the server, and the command before it is reversed
	}{
		{"the environment", `env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' || true`, 0, "", "TOKEN=sandboxbash_secret_TOKEN_"},
		{"HTTP/2", `curl -sSi --http2 ` + bearer + ` https://$HOST/a`, 0, `example.com /a "Bearer ` + hostedValue, "[REDACTED:TOKEN]"},
		{"HTTP/1.1", `curl -sSi --http1.1 ` + bearer + ` -H 'X-Api-Key: mine' https://$HOST/a`, 0, `example.com /a "Bearer ` + hostedValue + `" ""`, "[REDACTED:TOKEN]"},
		{"another spelling", `curl -sSi ` + bearer + ` https://EXAMPLE.com.:$PORT/a`, 0, ` /a "Bearer ` + hostedValue, "[REDACTED:TOKEN]"},
		{"Basic", `curl -sSi -u "me:$TOKEN" https://$HOST/a`, 0, " me:" + hostedValue, "REDACTED"},
		{"redirected", `curl -k -sSi --location-trusted ` + bearer + ` https://$HOST/redirect`, 0, `other.example.com /there "Bearer sandboxbash_secret_`, "[REDACTED:TOKEN]"},
		{"another host", `curl -k -sSi ` + bearer + ` https://other.example.com:$PORT/a`, 0, `other.example.com /a "Bearer sandboxbash_secret_`, "sandboxbash_secret_TOKEN_"},
		{"compressed", `curl -sSi --compressed ` + bearer + ` https://$HOST/gzip`, 0, `example.com /gzip "Bearer ` + hostedValue, " 502"},
		{"broken off", `curl -sS --http1.1 ` + bearer + ` https://$HOST/broken`, 56, `example.com /broken "Bearer ` + hostedValue, "curl: (56)"},
	} {
		script := "set -o pipefail; { " + strings.ReplaceAll(tt.script, "curl ", "curl --max-time 20 ") + "; } 2>&1 | tee answer | rev"
		res, err := s.Run(t.Context(), sandbox.Command{Script: script, Env: env, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		out := reversed(res.Output.Stdout.Text())
		if res.Code != tt.code || !strings.Contains(out, tt.prints) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", tt.name, res.Code, out, tt.code, tt.prints)
		}
		if got := seen.take(); !strings.Contains(got, tt.saw) {
			t.Errorf("%s: the server saw %s; want %s", tt.name, got, tt.saw)
		}
		if strings.Contains(out, "hunter2") {
			t.Errorf("%s: the session has the value, or a part of it: %q", tt.name, out)
		}
		if tt.name == "HTTP/2" && (res.Network == nil || !slices.Equal(res.Network.Secrets, []string{hostedToken})) {
			t.Errorf("the result says of the network: %+v; want the name of the secret", res.Network)
		}
	}
	if res := run(t, s, sandbox.Command{Script: `for f in $(find /tmp /workspace /run /home -type f 2>/dev/null); do rev "$f"; done`}); strings.Contains(res, reversed("hunter2")) {
		t.Error("a file of the session has the value")
	}
	if records := watcher.text(); strings.Contains(records, "hunter2") || !strings.Contains(records, "Secrets:[TOKEN]") {
		t.Errorf("the records are %s; want the name of the secret, and no value", records)
	}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), hostedValue) {
			t.Errorf("the artifact %s has the value", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// reversed returns each line of a text from its end to its start, as rev(1) does.
func reversed(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		letters := []rune(line)
		slices.Reverse(letters)
		lines[i] = string(letters)
	}
	return strings.Join(lines, "\n")
}

// connectionWatcher keeps the records of connections.
type connectionWatcher struct {
	mu  sync.Mutex
	all strings.Builder // guarded by mu
}

func (w *connectionWatcher) Intend(context.Context, sandbox.Observation) error { return nil }

func (w *connectionWatcher) Note(o sandbox.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Connection != nil {
		fmt.Fprintf(&w.all, "%+v\n", *o.Connection)
	}
}

func (w *connectionWatcher) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}
