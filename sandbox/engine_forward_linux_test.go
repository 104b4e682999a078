package sandbox_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// upper is a server in a session that answers all of a connection behind its end, in upper case.
const upper = `python3 -c '
import socket, threading
s = socket.create_server(("127.0.0.1", 7000), backlog=300)
def serve(c):
    with c:
        got = b""
        while b := c.recv(65536): got += b
        c.sendall(got.upper())
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
' >/dev/null 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.1/7000) 2>/dev/null; do sleep 0.05; done`

// notes are what a Forward has said.
type notes struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, text)
}

func (n *notes) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.all, "\n")
}

func forward(t *testing.T, s *sandbox.Session, port int) (*sandbox.Forward, *notes) {
	t.Helper()
	said := &notes{}
	f, err := s.Forward(t.Context(), sandbox.ForwardOptions{Listen: "127.0.0.1:0", Port: port, Note: said.add})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, said
}

// ask sends a text to a server and returns its answer, which comes behind the text's end.
func ask(t *testing.T, f *sandbox.Forward, text string) (string, error) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", f.Addr().String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	got, err := io.ReadAll(conn)
	return string(got), err
}

func TestForward(t *testing.T) {
	t.Parallel()
	for _, profile := range []sandbox.Profile{sandbox.Strict, sandbox.Dev} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			client := dockertest.Connect(t)
			s := startWith(t, client, resolver(t, client), sandbox.Spec{Profile: profile})
			f, said := forward(t, s, 7000)
			if got, err := ask(t, f, "hello"); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("nothing listens: %q, %v; want a reset", got, err)
			}
			waitFor(t, "note", func() bool {
				return strings.Contains(said.text(), "nothing listens at 127.0.0.1:7000 in the session")
			})
			res, err := s.Run(t.Context(), sandbox.Command{Script: upper, Timeout: time.Minute})
			if err != nil || res.Code != 0 {
				t.Fatalf("the server: code %d, %v", res.Code, err)
			}
			if len(res.Ports) != 1 || res.Ports[0].String() != "127.0.0.1:7000" || res.Ports[0].PID == 0 || !strings.HasPrefix(res.Ports[0].Command, "python3 -c") {
				t.Errorf("the result has the ports %+v; want that of python3", res.Ports)
			}
			if got, err := ask(t, f, "hello"); got != "HELLO" || err != nil {
				t.Errorf("ask() = %q, %v; want HELLO", got, err)
			}
			const parallel = 200
			var all sync.WaitGroup
			for i := range parallel {
				all.Go(func() {
					want := strings.Repeat(fmt.Sprintf("CONNECTION %d.", i), 2000)
					if got, err := ask(t, f, strings.ToLower(want)); got != want || err != nil {
						t.Errorf("connection %d: %d bytes, %v; want %d", i, len(got), err, len(want))
					}
				})
			}
			all.Wait()
			list, err := s.Ports(t.Context())
			if err != nil || len(list) != 1 || list[0].Port != 7000 {
				t.Errorf("Ports() = %+v, %v; want 7000 alone", list, err)
			}
			res, err = s.Run(t.Context(), sandbox.Command{Script: "true"})
			if err != nil || len(res.Ports) != 0 {
				t.Errorf("the next result has the ports %+v, %v; want none", res.Ports, err)
			}
		})
	}
}

// A large file arrives whole, next to the connections of the session's rules.
func TestForwardWithRules(t *testing.T) {
	t.Parallel()
	s, url := networked(t, sandbox.Spec{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
	want := strings.Fields(script(t, s, `head -c 50000000 /dev/urandom >big; sha256sum big
		python3 -m http.server --bind 127.0.0.1 7000 >/dev/null 2>&1 &
		until (exec 3<>/dev/tcp/127.0.0.1/7000) 2>/dev/null; do sleep 0.05; done`))[0]
	f, _ := forward(t, s, 7000)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.Addr().String()+"/big", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, res.Body)
	if got := hex.EncodeToString(sum.Sum(nil)); got != want || err != nil {
		t.Errorf("%d bytes with the sum %s, %v; want %s", n, got, err, want)
	}
	if got := script(t, s, "curl -sS "+url); got != "here" {
		t.Errorf("curl prints %q; want here", got)
	}
	if got := strings.Count(cli(t, "top", s.Info().Container, "-o", "pid,args"), "runner net"); got != 1 {
		t.Errorf("%d runners of the verb net; want 1, for the rules and the forward", got)
	}
}

// When the runner is lost, connections are reset, and the next ones work.
func TestForwardLost(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	s := startWith(t, client, resolver(t, client), sandbox.Spec{})
	script(t, s, upper)
	f, said := forward(t, s, 7000)
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := ask(t, f, "a"); got != "A" || err != nil {
		t.Fatalf("ask() = %q, %v", got, err)
	}
	if err := syscall.Kill(netPID(t, s), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read() = %d, %v; want a reset", n, err)
	}
	waitFor(t, "note", func() bool { return strings.Contains(said.text(), "the way into the session was lost") })
	if got, err := ask(t, f, "b"); got != "B" || err != nil {
		t.Errorf("afterwards: %q, %v; want B", got, err)
	}
}

// Requests of a client that knows the token reach the server, and nothing else does.
func TestForwardHTTP(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	s := startWith(t, client, resolver(t, client), sandbox.Spec{})
	said := &notes{}
	f, err := s.Forward(t.Context(), sandbox.ForwardOptions{Listen: ":0", Port: 7000, HTTP: true, Note: said.add})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{}}
	defer browser.CloseIdleConnections()
	get := func(client *http.Client, url string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		return res.StatusCode, string(body)
	}
	base, _, _ := strings.Cut(f.URL(), "?")
	if code, body := get(browser, base); code != http.StatusUnauthorized {
		t.Errorf("without the token: %d %q; want 401", code, body)
	}
	if said.text() != "" {
		t.Errorf("notes %q; want none: nothing was asked of the session", said.text())
	}
	const nothing = "nothing listens at 127.0.0.1:7000 in the session"
	if code, body := get(browser, f.URL()); code != http.StatusBadGateway || !strings.Contains(body, nothing) {
		t.Errorf("nothing listens: %d %q; want 502 and why", code, body)
	}
	if !strings.Contains(said.text(), nothing) {
		t.Errorf("notes %q; want that nothing listens", said.text())
	}
	want := strings.Fields(script(t, s, `head -c 20000000 /dev/urandom >big; echo hello >page; sha256sum big
		python3 -c '
import http.server as h
h.ThreadingHTTPServer.request_queue_size = 512 # a short queue has the kernel wait for seconds
h.ThreadingHTTPServer(("127.0.0.1", 7000), h.SimpleHTTPRequestHandler).serve_forever()' >log 2>&1 &
		until (exec 3<>/dev/tcp/127.0.0.1/7000) 2>/dev/null; do sleep 0.05; done`))[0]
	if code, body := get(browser, base+"page"); code != http.StatusOK || body != "hello\n" {
		t.Errorf("the page: %d %q", code, body)
	}
	_, big := get(browser, base+"big")
	if sum := sha256.Sum256([]byte(big)); hex.EncodeToString(sum[:]) != want {
		t.Errorf("%d bytes of the file with another sum", len(big))
	}
	var all sync.WaitGroup
	for range 300 { // more than the session takes connections
		all.Go(func() {
			if code, body := get(browser, base+"page"); code != http.StatusOK || body != "hello\n" {
				t.Errorf("one of many: %d %q", code, body)
			}
		})
	}
	all.Wait()
	_, token, _ := strings.Cut(f.URL(), "=")
	if log := script(t, s, "cat log"); strings.Contains(log, token) || strings.Contains(log, "sandboxbash") || strings.Contains(said.text(), token) {
		t.Errorf("the token is in the server's log %q, or in notes %q", log, said.text())
	}
	cli(t, "kill", s.Info().Container)
	select {
	case <-f.Done():
		if f.Err() == nil || errors.Is(f.Err(), net.ErrClosed) {
			t.Errorf("Err() = %v; want why", f.Err())
		}
	case <-time.After(time.Minute):
		t.Error("the Forward goes on without its session")
	}
}

// A Forward ends with its session, and says so; nothing listens afterwards.
func TestForwardEnds(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	s := startWith(t, client, resolver(t, client), sandbox.Spec{})
	for _, row := range []struct {
		listen string
		port   int
	}{{"127.0.0.1:0", 0}, {"127.0.0.1:0", 70000}, {"127.0.0.1", 80}} {
		if f, err := s.Forward(t.Context(), sandbox.ForwardOptions{Listen: row.listen, Port: row.port}); err == nil {
			t.Errorf("Forward(%+v) = %v; want an error", row, f.Addr())
		} else if _, ok := errors.AsType[*sandbox.InputError](err); !ok {
			t.Errorf("Forward(%+v) = %v; want an InputError", row, err)
		}
	}
	closed, _ := forward(t, s, 80)
	if f, err := s.Forward(t.Context(), sandbox.ForwardOptions{Listen: closed.Addr().String(), Port: 80}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Forward() of a port in use = %v, %v; want EADDRINUSE", f, err)
	}
	if err := closed.Close(); err != nil || !errors.Is(closed.Err(), net.ErrClosed) {
		t.Errorf("Close() = %v, Err() = %v; want ErrClosed", err, closed.Err())
	}
	if _, err := ask(t, closed, "a"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v; want refused", err)
	}
	f, _ := forward(t, s, 80)
	cli(t, "kill", s.Info().Container)
	select {
	case <-f.Done():
		if f.Err() == nil || errors.Is(f.Err(), net.ErrClosed) {
			t.Errorf("Err() = %v; want why", f.Err())
		}
	case <-time.After(time.Minute):
		t.Error("the Forward goes on without its session")
	}
}
