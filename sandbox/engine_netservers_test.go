package sandbox_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
)

// webServer says hello, is a git server, and has one package for each of several package managers.
func webServer(t *testing.T) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, hello) })
	gitServer(t, mux)
	goProxy(t, mux)
	pipIndex(t, mux)
	npmRegistry(t, mux)
	cargoRegistry(t, mux)
	if clientsLane { // it needs dpkg-deb
		aptRepository(t, mux)
	}
	return mux
}

// content serves bytes at a path.
func content(mux *http.ServeMux, path string, b []byte) {
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, path, time.Time{}, bytes.NewReader(b))
	})
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
	bare := filepath.Join(dir, "repo.git")
	git("clone", "-q", "--bare", work, bare)
	git("-C", bare, "config", "http.receivepack", "true")
	mux.Handle("/git/", &cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})
}

// zipped and tarred return archives of files, in the order of their names.
func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, files[name])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarred(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	w := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, files[name])
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func goProxy(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const mod = "module tiny.test/tiny\n"
	archive := zipped(t, map[string]string{"tiny.test/tiny@v1.0.0/go.mod": mod, "tiny.test/tiny@v1.0.0/tiny.go": "package tiny\n"})
	for name, b := range map[string][]byte{
		"list": []byte("v1.0.0\n"), "v1.0.0.info": []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`), "v1.0.0.mod": []byte(mod), "v1.0.0.zip": archive,
	} {
		content(mux, "/go/tiny.test/tiny/@v/"+name, b)
	}
}

// pipIndex is the simple index of PEP 503, with a wheel.
func pipIndex(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const info = "tiny-1.0.0.dist-info/"
	wheel := zipped(t, map[string]string{
		"tiny.py":         "text = 'a package of Python'\n",
		info + "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":   "tiny.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n",
	})
	const name = "tiny-1.0.0-py3-none-any.whl"
	mux.HandleFunc("/simple/tiny/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><a href="../../wheels/%s#sha256=%x">%[1]s</a>`, name, sha256.Sum256(wheel))
	})
	content(mux, "/wheels/"+name, wheel)
}

func npmRegistry(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	archive := tarred(t, map[string]string{
		"package/package.json": `{"name":"tiny","version":"1.0.0","main":"index.js"}`, "package/index.js": "exports.text = 'a package of npm';\n",
	})
	mux.HandleFunc("/npm/tiny", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "tiny", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{
				"name": "tiny", "version": "1.0.0",
				"dist": map[string]string{"tarball": "https://" + r.Host + "/npm/tiny/-/tiny-1.0.0.tgz", "shasum": fmt.Sprintf("%x", sha1.Sum(archive))},
			}},
		})
	})
	content(mux, "/npm/tiny/-/tiny-1.0.0.tgz", archive)
}

// cargoRegistry is a sparse index, with a crate.
func cargoRegistry(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	crate := tarred(t, map[string]string{"tiny-1.0.0/Cargo.toml": "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\n", "tiny-1.0.0/src/lib.rs": ""})
	mux.HandleFunc("/cargo/config.json", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"dl":"https://%s/crates/{crate}-{version}.crate"}`, r.Host)
	})
	content(mux, "/cargo/ti/ny/tiny", fmt.Appendf(nil, `{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(crate)))
	content(mux, "/crates/tiny-1.0.0.crate", crate)
}

// aptRepository is a flat repository of Debian, with a package. Its clients name its directory, not "./": where
// requests are read, a path with a segment "." is refused.
func aptRepository(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const control = "Package: tiny\nVersion: 1.0.0\nArchitecture: all\nMaintainer: n <n@example.com>\nDescription: a package\n"
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "DEBIAN"), 0o755), os.WriteFile(filepath.Join(dir, "DEBIAN", "control"), []byte(control), 0o644)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tiny_1.0.0_all.deb")
	if out, err := osexec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", dir, file).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	deb, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content(mux, "/apt/tiny_1.0.0_all.deb", deb)
	content(mux, "/apt/Packages", fmt.Appendf(nil, "%sFilename: apt/tiny_1.0.0_all.deb\nSize: %d\nSHA256: %x\n\n", control, len(deb), sha256.Sum256(deb)))
}

// changingHealth has the service "changing" serve as soon as "change" is asked for, which is unknown.
type changingHealth struct{ *health.Server }

// Watch has it not serve before.
func (h changingHealth) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	h.SetServingStatus("changing", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	return h.Server.Watch(r, stream)
}

func (h changingHealth) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if r.GetService() == "change" {
		h.SetServingStatus("changing", grpc_health_v1.HealthCheckResponse_SERVING)
	}
	return h.Server.Check(ctx, r)
}

func grpcServer(t *testing.T, certificate tls.Certificate) net.Addr {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := health.NewServer()
	service.SetServingStatus("changing", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	grpc_health_v1.RegisterHealthServer(server, changingHealth{service})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr()
}

// grpcClient builds the client, for any image.
func grpcClient(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "grpc")
	cmd := osexec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./testdata/clients/grpc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// realServers starts sshd and PostgreSQL, with a repository and a greeting for users of the key $KEY.
const realServers = `set -e
ssh-keygen -q -t ed25519 -N '' -f /etc/hostkey
echo "$KEY" >/etc/authorized && chmod 644 /etc/authorized
/usr/sbin/sshd -f /dev/null -h /etc/hostkey -o UsePAM=no -o AuthorizedKeysFile=/etc/authorized -o PidFile=none -E /tmp/sshd.log
cat >/tmp/user.sh <<'END'
set -e
export HOME=/home/agent
cd $HOME
echo hello over ssh >greeting
git init -q -b main work && cd work && echo a file in git >file && git add . && git -c user.name=n -c user.email=n@example.com commit -qm one && cd ..
git clone -q --bare work repo.git
initdb -D /tmp/data -A trust -U agent --locale=C >/dev/null
echo 'host all all all trust' >>/tmp/data/pg_hba.conf
exec postgres -D /tmp/data -k /tmp -h '*' -F
END
exec setpriv --reuid 1000 --regid 1000 --clear-groups bash /tmp/user.sh`

// addReal starts servers out of the clients' image, in a container of their own with the engine's network.
func (at *netServers) addReal(t *testing.T, image string) {
	t.Helper()
	keys := dockertest.MustCommand(t, "run", "--rm", "--network", "none", image, "bash", "-c", `ssh-keygen -q -t ed25519 -N "" -f /tmp/key && cat /tmp/key /tmp/key.pub`)
	end := strings.LastIndex(keys, "\n") + 1
	public := keys[end:]
	at.files["key"] = []byte(keys[:end])
	id := dockertest.MustCommand(t, "run", "--detach", "--env", "KEY="+public,
		"--publish", "127.0.0.1::22", "--publish", "127.0.0.1::5432", image, "bash", "-c", realServers)
	dockertest.Cleanup(t, "rm", "--force", "--volumes", id)
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := dockertest.Command(context.WithoutCancel(t.Context()), "logs", id)
			t.Logf("the servers said:\n%s", logs)
		}
	})
	for variable, port := range map[string]string{"SSHPORT": "22", "PGPORT": "5432"} {
		addr, err := net.ResolveTCPAddr("tcp", dockertest.MustCommand(t, "port", id, port))
		if err != nil {
			t.Fatal(err)
		}
		at.env = append(at.env, variable+"="+at.port(addr))
	}
	awaitAnswer(t, id, "psql", "-h", "127.0.0.1", "-U", "agent", "-d", "postgres", "-c", "select 1")
	awaitAnswer(t, id, "bash", "-c", "read -r <>/dev/tcp/127.0.0.1/22")
}

// awaitAnswer waits until a client in the servers' own container gets an answer.
func awaitAnswer(t *testing.T, id string, client ...string) {
	t.Helper()
	const most = 2 * time.Minute // a database is made first
	for deadline := time.Now().Add(most); ; time.Sleep(200 * time.Millisecond) {
		out, err := dockertest.Command(t.Context(), append([]string{"exec", id}, client...)...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v gets no answer within %v: %s", client, most, out)
		}
	}
}
