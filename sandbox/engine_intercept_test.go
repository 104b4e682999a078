package sandbox_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"net/netip"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/network/authority"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// interceptClients are programs whose requests are read. They are told nothing of the session's authority. $AT
// is a server of this machine whose certificate only this process can verify; its rules are those of @git.
var interceptClients = []struct {
	name, script, want string
}{
	{"curl", `curl -sS $AT/hello`, "hello from here"},
	{"curl without HTTP/2", `curl -sS --http1.1 $AT/hello`, "hello from here"},
	{"curl is refused", `curl -sS --http1.1 -i -X DELETE $AT/hello`, "403 blocked by sandbox policy: no rule for web.test"},
	{"curl is refused over HTTP/2", `curl -sS --http2 -i -X DELETE $AT/hello`, "ask the user to allow DELETE web.test"},
	{"wget", `wget -q -O - $AT/hello`, "hello from here"},
	{"git clone", `rm -rf r && git clone -q $AT/git/repo.git r && cat r/file`, "a file in git"},
	{"git push is refused", `cd r && git push -q origin HEAD:refs/heads/x 2>&1; echo code $?`, "remote: blocked by sandbox policy: no rule for web.test"},
	{"git push fails", `cd r && git push -q origin HEAD:refs/heads/x 2>&1; echo code $?`, "code 128"},
	{"python urllib", `python3 -c 'import os, urllib.request; print(urllib.request.urlopen(os.environ["AT"] + "/hello").read().decode())'`, "hello from here"},
	{"openssl s_client", `printf 'GET /hello HTTP/1.0\r\nHost: %s\r\n\r\n' ${AT#https://} | openssl s_client -quiet -verify_return_error -connect ${AT#https://} -servername web.test 2>/dev/null`, "hello from here"},
	{"go mod download", `rm -rf g && mkdir g && cd g && go mod init -C . x.test/x 2>/dev/null
		export GOPROXY=$AT/go GONOSUMDB=* GOFLAGS=-mod=mod GOCACHE=/tmp/gc GOMODCACHE=/tmp/gm GOTOOLCHAIN=local
		go mod download -json tiny.test/tiny@v1.0.0`, `"Version": "v1.0.0"`},
	{"the bundle has the image's authorities", `test $(grep -c BEGIN $SSL_CERT_FILE) -gt 20 && echo many`, "many"},
	{"the caller's variable stays", `CURL_CA_BUNDLE=/nowhere curl -sS $AT/hello 2>&1; echo $CALLER $PIP_CERT`, "/nowhere\n/run/sandboxbash-ca/bundle.pem /mine"},
}

func TestInterceptClients(t *testing.T) { //nolint:tparallel // its subtests share a server, and what it has seen
	t.Parallel()
	out, err := osexec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot := strings.TrimSpace(string(out))
	outside, err := authority.New("outside")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := outside.Certificate("web.test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(webServer(t))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(outside.PEM())
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	client := dockertest.Connect(t)
	e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"web.test"}, Roots: roots})
	for _, profile := range []sandbox.Profile{sandbox.Strict, sandbox.Dev} {
		t.Run(string(profile), func(t *testing.T) { //nolint:paralleltest // two sessions at once would be slower
			s := startIn(t, client, e, sandbox.Spec{
				Profile: profile, Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: goroot, Target: goroot, ReadOnly: true}, // for its programs
				User: map[sandbox.Profile]*sandbox.User{sandbox.Strict: {UID: 1000, GID: 1000}}[profile],
				Allow: rules(t, at.String(), fmt.Sprintf("GET,HEAD web.test:%d !git-receive-pack", at.Port()),
					fmt.Sprintf("POST web.test:%d/*/git-upload-pack !git-receive-pack", at.Port())),
			})
			env := []string{
				fmt.Sprintf("AT=https://web.test:%d", at.Port()), "PIP_CERT=/mine", "CALLER=/run/sandboxbash-ca/bundle.pem",
				"PATH=" + filepath.Join(goroot, "bin") + ":/usr/local/bin:/usr/bin:/bin",
			}
			for _, c := range interceptClients {
				res, err := s.Run(t.Context(), sandbox.Command{Script: c.script, Env: env, Dir: "/tmp", Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				if got := res.Output.Stdout.Text(); !strings.Contains(got, c.want) {
					t.Errorf("%s: exit code %d, output %q, errors %q; want %q", c.name, res.Code, got, res.Output.Stderr.Text(), c.want)
				}
			}
			if profile == sandbox.Strict {
				got := script(t, s, `cd /run/sandboxbash-ca && ls && (echo x >ca.pem; rm -f ca.pem; mv /run/sandboxbash-ca /run/x) 2>/dev/null; stat -c '%a %u' ca.pem bundle.pem java.jks .`)
				if want := "apt.conf\nbundle.pem\nca.pem\njava.jks\nwgetrc\n644 0\n644 0\n644 0\n755 0\n"; got != want {
					t.Errorf("the files are %q; want %q", got, want)
				}
			}
		})
	}
}

// A session whose rules want nothing read has no authority, and no variables.
func TestNoInterception(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	s := startIn(t, client, newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{}}), sandbox.Spec{Allow: rules(t, "web.test")})
	if got := script(t, s, `ls /run/sandboxbash-ca 2>&1 | grep -c 'No such'; env | grep -c CERT || true`); got != "1\n0\n" {
		t.Errorf("%q; want no files and no variables", got)
	}
}
