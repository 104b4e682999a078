//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// labStream is a runner of VerbNet as a host sees it.
type labStream struct {
	io.Reader
	io.WriteCloser
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

func (s *labStream) Close() error {
	err := s.WriteCloser.Close()
	_ = s.cmd.Process.Kill()
	return err
}

// carry starts a runner of VerbNet.
func (l *lab) carry() (*mux.Session, *labStream) {
	l.t.Helper()
	s := &labStream{cmd: l.command(string(wire.VerbNet))}
	s.cmd.Stderr = &s.stderr
	in, err := s.cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	s.Reader, s.WriteCloser = out, in
	sess := mux.New(mux.Host, s, mux.Options{})
	l.t.Cleanup(func() {
		_ = sess.Close()
		_ = s.cmd.Wait()
	})
	if err := sess.Ready(l.t.Context()); err != nil {
		_ = s.cmd.Wait()
		l.t.Fatalf("%v; the runner said %q", err, s.stderr.String())
	}
	return sess, s
}

// shell runs a script in the lab, as one of its programs.
func (l *lab) shell(script string) (string, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", l.pid(), "-p", "-m", "-n", "--", "bash", "-c", script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// listen is Session.Listen.
func listenAt(t *testing.T, sess *mux.Session, addr string) {
	t.Helper()
	if err := sess.Listen(t.Context(), netip.MustParseAddrPort(addr)); err != nil {
		t.Fatalf("Listen(%s): %v", addr, err)
	}
}

// echo answers each stream with what it says, in upper case, behind its end.
func echo(t *testing.T, sess *mux.Session) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			st, err := sess.Accept(t.Context())
			if err != nil {
				return
			}
			all.Go(func() {
				defer st.Close()
				got, err := io.ReadAll(st)
				if err != nil {
					return
				}
				fmt.Fprintf(st, "%d %s: %s", st.Kind(), st.LocalAddr(), bytes.ToUpper(got))
			})
		}
	})
	t.Cleanup(func() {
		_ = sess.Close()
		all.Wait()
	})
}

func TestNet(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	sess, _ := l.carry()
	echo(t, sess)
	for _, addr := range []string{"127.64.0.1:443", "127.0.0.1:3128", "127.0.0.1:53"} {
		listenAt(t, sess, addr)
	}
	for _, row := range []struct{ addr, want string }{
		{"127.64.0.1/443", "2 127.64.0.1:443: HELLO\n"},
		{"127.0.0.1/3128", "1 127.0.0.1:3128: HELLO\n"},
		{"127.0.0.1/53", "3 127.0.0.1:53: HELLO\n"},
	} {
		// python's shutdown is the half-close that the shell has not.
		host, port, _ := strings.Cut(row.addr, "/")
		got, err := l.shell(`python3 -c '
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"hello\n")
s.shutdown(socket.SHUT_WR)
while b := s.recv(100): sys.stdout.write(b.decode())
' ` + host + " " + port)
		if got != row.want || err != nil {
			t.Errorf("from %s: %q, %v; want %q", row.addr, got, err, row.want)
		}
	}
	if err := sess.Unlisten(t.Context(), netip.MustParseAddrPort("127.64.0.1:443")); err != nil {
		t.Error(err)
	}
	if got, err := l.shell("echo >/dev/tcp/127.64.0.1/443"); err == nil || !strings.Contains(got, "refused") {
		t.Errorf("a connection to a closed listener: %q, %v; want refused", got, err)
	}
	for _, row := range []struct {
		addr string
		want mux.Errno
	}{{"127.0.0.1:3128", 0}, {"10.0.0.1:80", 22}, {"127.0.0.1:0", 22}} {
		err := sess.Listen(t.Context(), netip.MustParseAddrPort(row.addr))
		if errno, _ := errors.AsType[mux.Errno](err); errno != row.want {
			t.Errorf("Listen(%s): %v; want errno %d", row.addr, err, row.want)
		}
	}
	second, _ := l.carry()
	if err := second.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:53")); !errors.Is(err, mux.AddrInUse) {
		t.Errorf("a second host listens at 127.0.0.1:53: %v; want AddrInUse", err)
	}
}

func TestNetDatagrams(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	sess, _ := l.carry()
	listenAt(t, sess, "127.0.0.1:53")
	var answers sync.WaitGroup
	answers.Go(func() {
		for {
			id, data, err := sess.ReceiveDatagram(t.Context())
			if err != nil {
				return
			}
			if err := sess.SendDatagram(id, bytes.ToUpper(data)); err != nil {
				t.Error(err)
			}
			_ = sess.SendDatagram(id, []byte("a second answer"))
			_ = sess.SendDatagram(id+1024, []byte("an answer to no question"))
		}
	})
	got, err := l.shell(`python3 -c '
import socket
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(50)]
for i, s in enumerate(socks):
    s.settimeout(10)
    s.sendto(b"q%d" % i, ("127.0.0.1", 53))
for i, s in enumerate(socks):
    got, at = s.recvfrom(100)
    assert (got, at) == (b"Q%d" % i, ("127.0.0.1", 53)), (i, got, at)
    s.setblocking(False)
    try: print(i, s.recv(100))
    except BlockingIOError: pass
'`)
	if got != "" || err != nil {
		t.Errorf("50 questions: %q, %v; want each answered once", got, err)
	}
	_ = sess.Close()
	answers.Wait()
}

func TestNetDial(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	sess, _ := l.carry()
	var server sync.WaitGroup
	server.Go(func() {
		got, err := l.shell(`python3 -c '
import socket
l = socket.create_server(("127.0.0.1", 8080))
c, _ = l.accept()
got = b""
while b := c.recv(100): got += b
c.sendall(got[::-1])
'`)
		if got != "" || err != nil {
			t.Errorf("the server: %q, %v", got, err)
		}
	})
	target := mux.Target{Kind: wire.NetDial, Local: netip.MustParseAddrPort("127.0.0.1:8080")}
	var got []byte
	eventually(t, "an answer", func() bool {
		st, err := sess.Open(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		_, _ = st.Write([]byte("hello"))
		_ = st.CloseWrite()
		got, err = io.ReadAll(st)
		if e, ok := errors.AsType[*mux.ResetError](err); ok && e.Reason == wire.NetRefused {
			return false // the server does not listen yet
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	if string(got) != "olleh" {
		t.Errorf("the server answers %q; want olleh", got)
	}
	server.Wait()
}

// TestNetKilled kills the runner while many connections are open. Each must see a reset:
// an end would look like the whole.
func TestNetKilled(t *testing.T) {
	t.Parallel()
	const connections = 1000
	l := newLab(t, time.Minute)
	sess, stream := l.carry()
	listenAt(t, sess, "127.64.0.1:80")
	var hosts sync.WaitGroup
	hosts.Go(func() {
		for {
			st, err := sess.Accept(t.Context())
			if err != nil {
				return
			}
			hosts.Go(func() {
				b := make([]byte, 1)
				_, _ = io.ReadFull(st, b)
				_, _ = st.Write(b)
				_, _ = io.ReadFull(st, b)
			})
		}
	})
	client := exec.CommandContext(t.Context(), "nsenter", "-t", l.pid(), "-p", "-m", "-n", "--", "python3", "-c", `
import resource, select, socket, sys
n = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (n + 50, n + 50))
socks = [socket.create_connection(("127.64.0.1", 80)) for _ in range(n)]
for i, s in enumerate(socks): s.sendall(bytes([i % 251]))
for i, s in enumerate(socks): assert s.recv(1) == bytes([i % 251]), i
print("open", flush=True)
ends = {}
for s in socks:
    try: end = "eof" if s.recv(1) == b"" else "data"
    except ConnectionResetError: end = "reset"
    ends[end] = ends.get(end, 0) + 1
print(ends)
`, fmt.Sprint(connections))
	client.Stderr = t.Output()
	out, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("open\n"))
	if _, err := io.ReadFull(out, line); err != nil {
		t.Fatalf("%v; the runner said %q", err, stream.stderr.String())
	}
	if _, err := l.shell("kill -9 $(pgrep -f '[t]est net$')"); err != nil {
		t.Errorf("kill: %v", err)
	}
	rest, _ := io.ReadAll(out)
	if err := client.Wait(); err != nil {
		t.Error(err)
	}
	if want := fmt.Sprintf("{'reset': %d}\n", connections); string(rest) != want {
		t.Errorf("the connections end with %q; want %q", rest, want)
	}
	<-sess.Done()
	if !errors.Is(sess.Err(), io.EOF) {
		t.Errorf("the session is over: %v; want EOF", sess.Err())
	}
	hosts.Wait()
}
