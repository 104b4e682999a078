package sandbox_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// accepted is a net.Listener of a mux.Session's streams.
type accepted struct {
	t    *testing.T
	sess *mux.Session
}

func (a accepted) Accept() (net.Conn, error) {
	st, err := a.sess.Accept(a.t.Context())
	if err != nil {
		return nil, err
	}
	return st, nil
}
func (a accepted) Close() error   { return a.sess.Close() }
func (a accepted) Addr() net.Addr { return &net.TCPAddr{} }

// carry opens the runner's verb net in a session, and serves HTTP to the session's programs.
func carry(t *testing.T, s *sandbox.Session, client *docker.Client, handler http.Handler) *mux.Session {
	t.Helper()
	backend := docker.NewEngine(client, images.Runner)
	stream, err := backend.Open(t.Context(), engine.Handle{ID: s.ID(), Ref: s.Info().Container},
		engine.Exec{Args: append([]string{wire.RunnerPath}, wire.VerbNet.Command()...), User: "0:0"})
	if err != nil {
		t.Fatal(err)
	}
	sess := mux.New(mux.Host, stream, mux.Options{})
	if err := sess.Ready(t.Context()); err != nil {
		t.Fatalf("%v; the runner said %q", err, stream.Stderr())
	}
	server := http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(accepted{t, sess}) // ends with the session
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return sess
}

// netPID is the host's pid of a session's runner of the verb net.
func netPID(t *testing.T, s *sandbox.Session) int {
	t.Helper()
	for line := range strings.SplitSeq(cli(t, "top", s.Info().Container, "-o", "pid,args"), "\n") {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil && strings.HasSuffix(line, "runner net") {
			return pid
		}
	}
	t.Fatal("no runner of the verb net")
	return 0
}

func TestNetInStrictSession(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	s := startWith(t, client, resolver(t, client), sandbox.Spec{})
	carrier := carry(t, s, client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s %d\n", r.Method, r.Host, n)
	}))
	for _, addr := range []string{"127.64.0.1:80", "127.0.0.1:53"} { // no capability for ports below 1024
		if err := carrier.Listen(t.Context(), netip.MustParseAddrPort(addr)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := script(t, s, "curl -sS --resolve a.test:80:127.64.0.1 http://a.test/ && head -c 3000000 /dev/zero | curl -sS -T - http://127.64.0.1/"), "GET a.test 0\nPUT 127.64.0.1 3000000\n"; got != want {
		t.Errorf("curl printed %q; want %q", got, want)
	}
	// The session's programs cannot touch it.
	if got := script(t, s, `for p in /proc/[0-9]*; do
			if tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^/[.]sandboxbash/runner net $'; then
				kill -9 ${p#/proc/} 2>&1 | grep -c 'not permitted'
				ls $p/fd >/dev/null 2>&1 || echo closed
			fi
		done`); got != "1\nclosed\n" {
		t.Errorf("kill, and a look at its descriptors: %q; want both refused", got)
	}
	const connections = 1000
	if got := script(t, s, fmt.Sprintf(`python3 -c '
import resource, socket
n = %d
resource.setrlimit(resource.RLIMIT_NOFILE, (n + 50, n + 50))
socks = [socket.create_connection(("127.64.0.1", 80)) for _ in range(n)]
for i, s in enumerate(socks): s.sendall(b"GET / HTTP/1.0\r\nHost: h%%d\r\n\r\n" %% i)
good = 0
for i, s in enumerate(socks):
    got = b""
    while b := s.recv(1000): got += b
    good += got.endswith(b"\r\n\r\nGET h%%d 0\n" %% i)
print(good)
'`, connections)); got != fmt.Sprintln(connections) {
		t.Errorf("whole answers: %q; want %d", got, connections)
	}
	waitFor(t, "the end of all streams", func() bool { return carrier.Streams() == 0 })
}

// TestNetRunnerKilled kills the runner in the middle of a body that only its end delimits:
// the client must not take the part for the whole.
func TestNetRunnerKilled(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	s := startWith(t, client, resolver(t, client), sandbox.Spec{})
	var once sync.Once
	half := make(chan struct{})
	carrier := carry(t, s, client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, out, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = out.WriteString("HTTP/1.0 200 OK\r\n\r\nhalf of it\n")
		_ = out.Flush()
		once.Do(func() { close(half) })
		_, _ = conn.Read(make([]byte, 1)) // until it is reset
	}))
	if err := carrier.Listen(t.Context(), netip.MustParseAddrPort("127.64.0.1:80")); err != nil {
		t.Fatal(err)
	}
	done := begin(t.Context(), t, s, sandbox.Command{Script: "curl -sSN http://127.64.0.1/", Timeout: time.Minute}, "half")
	<-half
	if err := unix.Kill(netPID(t, s), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	const recvError = 56 // CURLE_RECV_ERROR
	if e := <-done; e.err != nil || e.res.Code != recvError {
		t.Errorf("curl: code %d, %v; want %d", e.res.Code, e.err, recvError)
	}
	<-carrier.Done()
	if err := carrier.Err(); !errors.Is(err, io.EOF) {
		t.Errorf("the host's end: %v; want EOF", err)
	}
	if res, err := s.Run(t.Context(), sandbox.Command{Script: "curl -sS http://127.64.0.1/", Timeout: time.Minute}); err != nil || res.Code != 7 { // CURLE_COULDNT_CONNECT
		t.Errorf("curl afterwards: code %d, %v; want 7", res.Code, err)
	}
}
