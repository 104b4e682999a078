package sandbox_test

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// clients are programs as people use them. They are told nothing of a proxy: each finds its server by
// name, in a session whose only interface is lo. $HTTP and $HTTPS are servers of this machine, CA is the
// certificate of the second.
var clients = []struct {
	name, script, want string
}{
	{"curl over http", `curl -sS $HTTP/hello`, "hello from web.test"},
	{"curl over https", `curl -sS --cacert $CA $HTTPS/hello`, "hello from web.test"},
	{"curl over https without HTTP/2", `curl -sS --http1.1 --cacert $CA $HTTPS/hello`, "hello from web.test"},
	{"wget", `wget -q -O - --ca-certificate=$CA $HTTPS/hello`, "hello from web.test"},
	{"git clone over https", `GIT_SSL_CAINFO=$CA git clone -q $HTTPS/git/repo.git r && cat r/file`, "a file in git"},
	{"git clone over http", `git clone -q $HTTP/git/repo.git r2 && cat r2/file`, "a file in git"},
	{"go mod download", `mkdir g && cd g && go mod init -C . x.test/x 2>/dev/null
		export GOPROXY=$HTTPS/go GONOSUMDB=* GONOSUMCHECK=1 GOFLAGS=-mod=mod GOCACHE=/tmp/gc GOMODCACHE=/tmp/gm SSL_CERT_FILE=$CA GOTOOLCHAIN=local
		go mod download -json tiny.test/tiny@v1.0.0`, `"Version": "v1.0.0"`},
	{"openssl s_client", `printf 'GET /hello HTTP/1.0\r\nHost: web.test\r\n\r\n' | openssl s_client -quiet -CAfile $CA -verify_return_error -connect ${HTTPS#https://} -servername example.com 2>/dev/null`, "hello from web.test"},
	{"bash", `at=${HTTP#http://}; exec 3<>/dev/tcp/${at%:*}/${at#*:}; printf 'GET /hello HTTP/1.0\r\nHost: web.test\r\n\r\n' >&3; cat <&3`, "hello from web.test"},
	{"perl HTTP::Tiny", `perl -MHTTP::Tiny -e 'print HTTP::Tiny->new->get("$ENV{HTTP}/hello")->{content}'`, "hello from web.test"},
	{"python", `python3 -c 'import os, urllib.request; print(urllib.request.urlopen(os.environ["HTTP"] + "/hello").read().decode())'`, "hello from web.test"},
	{"getent", `getent hosts web.test`, "127."},
}

func TestNetworkClients(t *testing.T) { //nolint:tparallel // they share a session, whose commands run one after the other
	t.Parallel()
	out, err := osexec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot := strings.TrimSpace(string(out))
	web := webServer(t)
	plain, secure := httptest.NewServer(web), httptest.NewUnstartedServer(web)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	var allow []string
	port := func(addr net.Addr) uint16 {
		at := netip.MustParseAddrPort(addr.String())
		allow = append(allow, at.String(), fmt.Sprintf("example.com:%d", at.Port()), fmt.Sprintf("web.test:%d", at.Port()))
		return at.Port()
	}
	// httptest's certificate is for example.com.
	env := []string{
		fmt.Sprintf("HTTP=http://web.test:%d", port(plain.Listener.Addr())),
		fmt.Sprintf("HTTPS=https://example.com:%d", port(secure.Listener.Addr())),
		"CA=/tmp/ca.pem",
		"PATH=" + filepath.Join(goroot, "bin") + ":/usr/local/bin:/usr/bin:/bin",
	}
	client := dockertest.Connect(t)
	e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"web.test", "example.com"}})
	s := startIn(t, client, e, sandbox.Spec{
		Allow: rules(t, allow...), User: &sandbox.User{UID: 1000, GID: 1000},
		Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: goroot, Target: goroot, ReadOnly: true}, // for its programs
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	run(t, s, sandbox.Command{Script: "cat >/tmp/ca.pem", Stdin: bytes.NewReader(ca)})
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			res, err := s.Run(t.Context(), sandbox.Command{Script: c.script, Env: env, Dir: "/tmp", Timeout: 2 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if got := res.Output.Stdout.Text(); !strings.Contains(got, c.want) {
				t.Errorf("%q: exit code %d, output %q, errors %q; want %q", c.script, res.Code, got, res.Output.Stderr.Text(), c.want)
			}
		})
	}
}

// webServer says hello, and is a git server and a proxy of Go modules.
func webServer(t *testing.T) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from web.test") })
	gitServer(t, mux)
	goProxy(t, mux)
	return mux
}

func gitServer(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	git := func(args ...string) string {
		cmd := osexec.CommandContext(t.Context(), "git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", work)
	if err := os.WriteFile(filepath.Join(work, "file"), []byte("a file in git\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("-C", work, "add", ".")
	git("-C", work, "-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-qm", "one")
	git("clone", "-q", "--bare", work, filepath.Join(dir, "repo.git"))
	mux.Handle("/git/", &cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})
}

func goProxy(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const mod = "module tiny.test/tiny\n"
	var archive bytes.Buffer
	packed := zip.NewWriter(&archive)
	for name, text := range map[string]string{"go.mod": mod, "tiny.go": "package tiny\n"} {
		w, err := packed.Create("tiny.test/tiny@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte("v1.0.0\n"), "v1.0.0.info": []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`), "v1.0.0.mod": []byte(mod), "v1.0.0.zip": archive.Bytes(),
	} {
		mux.HandleFunc("/go/tiny.test/tiny/@v/"+name, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	}
}
