package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRemote uses the environment's engine as one on another machine is used: through ssh, with an sshd of its
// own on the loopback interface, and over TCP with TLS.
func TestRemote(t *testing.T) {
	needEngine(t)
	t.Run("ssh", func(t *testing.T) { remoteDay(t, startSSH(t)) })
	t.Run("ssh does not answer", func(t *testing.T) {
		s := startSSH(t)
		gone := s
		gone.host = strings.TrimSuffix(s.host, s.path) + "/no/engine.sock"
		refuses := []struct {
			name string
			at   remote
			says []string
		}{
			{"no engine", gone, []string{"connect: no such file or directory", "--host=unix:///no/engine.sock version"}},
			{"no sshd", s.withPort(1), []string{"Connection refused", "Try `ssh -p 1 root@127.0.0.1 docker"}},
		}
		for _, tt := range refuses {
			_, err := tt.at.try(t, "run", "true")
			for _, part := range tt.says {
				if status(err) != 125 || !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("%s: run = %v; want status 125 and %q", tt.name, err, part)
				}
			}
		}
	})
	t.Run("tls", func(t *testing.T) { remoteDay(t, startTLS(t)) })
	t.Run("tls with a certificate that is not accepted", func(t *testing.T) {
		s := startTLS(t)
		other := newAuthority(t)
		dir := other.directory(t)
		s.env = append(s.env, "DOCKER_CERT_PATH="+dir)
		_, err := s.try(t, "run", "true")
		if status(err) != 125 || !strings.Contains(fmt.Sprint(err), "Check the certificates: ca.pem") {
			t.Errorf("run = %v; want status 125 and what to do about certificates", err)
		}
		if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
			t.Fatal(err)
		}
		_, err = s.try(t, "run", "true")
		if status(err) != 2 || !strings.Contains(fmt.Sprint(err), "has no ca.pem") {
			t.Errorf("run = %v; want status 2 and the file that is missing", err)
		}
	})
}

// remoteDay is what a session is used for, at an engine that is reached by address only.
func remoteDay(t *testing.T, s remote) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := s.run(t, "session", "start", "--workspace", "copy:"+dir)
	t.Cleanup(func() {
		if _, err := s.try(t, "session", "stop", id); err != nil {
			t.Error(err)
		}
	})
	if got := s.run(t, "session", "exec", id, "cat file; echo two >> file"); got != "one" {
		t.Errorf("session exec = %q; want the copied file", got)
	}
	if _, err := s.try(t, "session", "exec", "--timeout", "1s", id, "sleep 1001 & setsid sleep 1001 & sleep 1001"); status(err) != 124 {
		t.Errorf("session exec --timeout 1s = %v; want status 124", err)
	}
	if got := s.run(t, "session", "exec", id, "pgrep -c sleep || true"); got != "0" {
		t.Errorf("%s processes are left of a command that was killed; want none", got)
	}
	if got := s.run(t, "session", "exec", id, "head -c 3000000 /dev/zero | wc -c; head -c 3000000 /dev/zero | tr '\\0' x"); len(got) != len("3000000\n")+3000000 {
		t.Errorf("%d bytes of output arrived; want %d", len(got), len("3000000\n")+3000000)
	}
	if got := s.run(t, "session", "diff", "--name-only", id); got != "file" {
		t.Errorf("session diff = %q; want the file that was changed", got)
	}
	s.run(t, "session", "apply", id)
	if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("the file is %q, %v after session apply; want both lines", text, err)
	}
}

// A remote is a seat whose engine takes further variables.
type remote struct {
	seat
	env  []string
	path string // of the engine's socket over there
}

func (s remote) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), programTime)
	defer cancel()
	cmd := s.command(ctx, args...)
	cmd.Env = append(cmd.Env, s.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return strings.TrimSpace(string(out)), fmt.Errorf("sandboxbash %q: %w\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

func (s remote) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.try(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s remote) withPort(port int) remote {
	s.host = fmt.Sprintf("ssh://root@127.0.0.1:%d%s", port, s.path)
	return s
}

// startSSH starts an sshd on the loopback interface with keys of its own, and puts an ssh that uses them in front
// of the PATH.
func startSSH(t *testing.T) remote {
	t.Helper()
	needProgram(t, "sshd")
	needProgram(t, "ssh")
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"host", "user"} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", in(name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	for name, text := range map[string]string{
		"config": "Host *\n IdentityFile " + in("user") + "\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n",
		"ssh":    "#!/bin/sh\nexec /usr/bin/ssh -F '" + in("config") + "' \"$@\"\n",
	} {
		if err := os.WriteFile(in(name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd's own, of every start
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), sshd, "-D", "-e", "-f", "/dev/null", "-h", in("host"), "-p", fmt.Sprint(port),
		"-o", "ListenAddress=127.0.0.1", "-o", "UsePAM=no", "-o", "StrictModes=no", "-o", "AuthorizedKeysFile="+in("user.pub"), "-o", "PidFile=none")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd said:\n%s", lastOf(log.String(), 2000))
		}
	})
	path := enginePath(t)
	s := remote{seat: hereSeat(t), env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, path: path}.withPort(port)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("sshd does not answer: %v", err)
		}
	}
}

// enginePath is the path of the environment's engine's socket.
func enginePath(t *testing.T) string {
	t.Helper()
	path, ok := strings.CutPrefix(hereSeat(t).host, "unix://")
	if !ok {
		t.Skipf("not run: the engine at %s has no socket here to be forwarded to", hereSeat(t).host)
	}
	return path
}

// startTLS serves the environment's engine over TCP to clients with a certificate.
func startTLS(t *testing.T) remote {
	t.Helper()
	path := enginePath(t)
	ca := newAuthority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, "engine")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.pool, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { forwardTo(path, conn.(*tls.Conn)) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Wait()
	})
	here := hereSeat(t)
	here.host = "tcp://" + l.Addr().String()
	return remote{seat: here, env: []string{"DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + ca.directory(t)}}
}

// forwardTo carries bytes both ways until both directions have ended.
func forwardTo(path string, conn *tls.Conn) {
	defer conn.Close()                //nolint:errcheck // it is a test's, and both directions have ended
	up, err := net.Dial("unix", path) //nolint:noctx // a local socket
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(up, conn)
		_ = up.(*net.UnixConn).CloseWrite()
	})
	both.Go(func() {
		_, _ = io.Copy(conn, up)
		_ = conn.CloseWrite()
	})
	both.Wait()
}

// An authority signs certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{key: key, pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// issue makes a certificate for a server on the loopback interface, or a client.
func (a authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// directory has ca.pem, and the cert.pem and key.pem of a client, as DOCKER_CERT_PATH wants them.
func (a authority) directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	pair := a.issue(t, "client")
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.pem":   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
		"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
