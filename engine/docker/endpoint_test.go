package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

func environ(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// addContext writes a context as the docker command does.
func addContext(t *testing.T, dir, name, endpoint string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	write(t, filepath.Join(dir, "contexts", "meta", id, "meta.json"),
		fmt.Sprintf(`{"Name":%q,"Metadata":{},"Endpoints":{"docker":%s}}`, name, endpoint))
	return filepath.Join(dir, "contexts", "tls", id, "docker")
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the sockets are those of unix")
	}
	home := t.TempDir()
	dir := filepath.Join(home, ".docker")
	write(t, filepath.Join(dir, "config.json"), `{"currentContext":"current"}`)
	addContext(t, dir, "current", `{"Host":"unix:///current.sock","SkipTLSVerify":false}`)
	addContext(t, dir, "other", `{"Host":"tcp://other:1","SkipTLSVerify":false}`)
	addContext(t, dir, "remote", `{"Host":"ssh://me@there","SkipTLSVerify":false}`)
	broken := t.TempDir()
	write(t, filepath.Join(broken, "config.json"), `{`)
	plain := t.TempDir()
	sockets := strings.ReplaceAll("unix:///var/run/docker.sock unix://~/.docker/run/docker.sock unix://~/.docker/desktop/docker.sock "+
		"unix:///run/podman/podman.sock unix://~/.colima/default/docker.sock unix://~/.orbstack/run/docker.sock unix://~/.rd/docker.sock", "~", plain)
	withRuntime := strings.Replace(strings.Replace(sockets, "docker.sock ", "docker.sock unix:///run/user/7/docker.sock ", 1),
		"unix:///run/podman", "unix:///run/user/7/podman/podman.sock unix:///run/podman", 1)
	for _, tt := range []struct {
		name, address, home string
		env                 map[string]string
		want, err           string
	}{
		{name: "address wins", address: "unix:///a", home: home, env: map[string]string{"DOCKER_HOST": "unix:///h", "DOCKER_CONTEXT": "other"}, want: "unix:///a"},
		{name: "a path", address: "/a/b.sock", home: home, want: "unix:///a/b.sock"},
		{name: "host wins over context", home: home, env: map[string]string{"DOCKER_HOST": "unix:///h", "DOCKER_CONTEXT": "other"}, want: "unix:///h"},
		{name: "context of the environment", home: home, env: map[string]string{"DOCKER_CONTEXT": "other"}, want: "tcp://other:1"},
		{name: "default context of the environment", home: home, env: map[string]string{"DOCKER_CONTEXT": "default"}, want: strings.ReplaceAll(sockets, plain, home)},
		{name: "current context", home: home, want: "unix:///current.sock"},
		{name: "DOCKER_CONFIG", home: plain, env: map[string]string{"DOCKER_CONFIG": dir}, want: "unix:///current.sock"},
		{name: "sockets", home: plain, want: sockets},
		{name: "rootless socket", home: plain, env: map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, want: withRuntime},
		{name: "no home", want: "unix:///var/run/docker.sock unix:///run/podman/podman.sock"},
		{name: "tcp without port", address: "tcp://there", want: "tcp://there:2375"},
		{name: "tcp with IPv6", address: "tcp://[::1]/base", want: "tcp://[::1]:2375/base"},
		{name: "unknown context", home: home, env: map[string]string{"DOCKER_CONTEXT": "none"}, err: `context "none" (DOCKER_CONTEXT)`},
		{name: "broken configuration", env: map[string]string{"DOCKER_CONFIG": broken}, err: "read Docker's configuration"},
		{name: "ssh", address: "ssh://me@there:22/run/docker.sock", want: "ssh://me@there:22/run/docker.sock"},
		{name: "ssh context", home: home, env: map[string]string{"DOCKER_CONTEXT": "remote"}, want: "ssh://me@there"},
		{name: "ssh with a password", address: "ssh://me:hunter2@there", err: "ssh://me:xxxxx@there (the caller): ssh host connection is not valid"},
		{name: "named pipe", address: "npipe:////./pipe/x", err: "named pipes are for Windows"},
		{name: "unknown scheme", address: "fd://3", err: "fd:// is not supported"},
		{name: "no scheme", address: "docker", err: "is not an engine's address"},
		{name: "no port", address: "tcp://there:99999", err: "a port from 1 to 65535"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := endpoints(Options{Address: tt.address, Home: tt.home, Getenv: environ(tt.env)})
			var hosts []string
			for _, e := range got {
				hosts = append(hosts, e.host)
			}
			if s := strings.Join(hosts, " "); s != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("endpoints(%q, %v) = %q, %v; want %q, %q", tt.address, tt.env, s, err, tt.want, tt.err)
			}
		})
	}
}

func TestConnectUnreachable(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.sock")
	_, err := Connect(t.Context(), Options{Source: "--named", Getenv: environ(map[string]string{"DOCKER_HOST": "unix://" + missing})})
	if !errors.Is(err, engine.ErrUnreachable) {
		t.Fatalf("Connect() = %v; want ErrUnreachable", err)
	}
	for _, part := range []string{"unix://" + missing, "DOCKER_HOST", "--named"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Connect() = %q; want %q in it", err, part)
		}
	}
}

// socketAt is an engine at a path, or a socket behind which nothing listens.
func socketAt(t *testing.T, path string, answers bool) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if !answers {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		_ = l.Close()
		return
	}
	version := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.47") })
	server := &http.Server{Handler: version, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// Where nothing names an engine and the default socket is not there, the first socket that answers
// is used, and Info says whose it is. An engine of the default socket that is down is never replaced.
func TestConnectSearches(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the sockets are those of unix")
	}
	home, err := os.MkdirTemp("", "engines") //nolint:usetesting // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	o := Options{Source: "--engine", Home: home, Getenv: environ(map[string]string{"XDG_RUNTIME_DIR": filepath.Join(home, "run")})}
	ends := defaults(o)[1:] // the default may be there on this machine, and so may Podman's
	ends = slices.DeleteFunc(ends, func(e endpoint) bool { return !strings.HasPrefix(e.path(), home) })

	_, err = search(t.Context(), ends, o)
	if !errors.Is(err, engine.ErrUnreachable) || !strings.Contains(err.Error(), "not there: "+home+"/run/docker.sock, ") || !strings.Contains(err.Error(), "Install Docker or Podman") {
		t.Errorf("without a socket: %v; want the places looked at, and what to do", err)
	}
	socketAt(t, filepath.Join(home, ".docker", "run", "docker.sock"), false)
	socketAt(t, filepath.Join(home, ".colima", "default", "docker.sock"), true)
	socketAt(t, filepath.Join(home, ".rd", "docker.sock"), true)
	c, err := search(t.Context(), ends, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if source, address, found := c.Found(); !found || source != c.source || address != c.address {
		t.Errorf("Found() = %q, %q, %t; want what answers", source, address, found)
	}
	if c.source != "Colima's" || c.address != "unix://"+home+"/.colima/default/docker.sock" {
		t.Errorf("the engine is %s, %s; want Colima's", c.address, c.source)
	}

	_, err = search(t.Context(), slices.Concat([]endpoint{{host: "unix://" + home + "/.docker/run/docker.sock", source: "the default", usual: true}}, ends[2:]), o)
	if !errors.Is(err, engine.ErrUnreachable) || !strings.Contains(err.Error(), "there too, but only the first is used unless one is named: unix://"+home+"/.colima/default/docker.sock (Colima's), ") {
		t.Errorf("with a default socket behind which nothing listens: %v; want it refused, and the others named", err)
	}
}

// An error of a socket that this user may not use says what to do.
func TestUnreachableSaysWhatToDo(t *testing.T) {
	t.Parallel()
	denied := fmt.Errorf("unix:///var/run/docker.sock (the default): %w", &os.PathError{Op: "connect", Path: "/var/run/docker.sock", Err: os.ErrPermission})
	for _, row := range []struct {
		err  unreachableError
		want []string
	}{
		{unreachableError{tried: []error{errors.New("x: refused")}, names: "DOCKER_HOST"}, []string{"none answers; tried:\n  x: refused\nStart the engine", "DOCKER_HOST"}},
		{unreachableError{tried: []error{denied}, names: "DOCKER_HOST"}, []string{"sudo usermod -aG docker $USER", "root on this machine", "rootless Docker", "DOCKER_HOST"}},
		{unreachableError{absent: []string{"/a", "/b"}, names: "--engine"}, []string{"none answers\n  not there: /a, /b\nInstall Docker or Podman", "--engine"}},
		{unreachableError{tried: []error{errors.New("x")}, others: []string{"unix:///y (Podman's)"}, names: "--engine"}, []string{"there too", "unix:///y (Podman's)\nStart the engine"}},
	} {
		for _, want := range row.want {
			if got := row.err.Error(); !strings.Contains(got, want) {
				t.Errorf("the error is %q; want %q in it", got, want)
			}
		}
	}
}

func TestConnectVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		speaks, asked, want string
		err                 error
	}{
		{speaks: "1.41", want: "1.41"},
		{speaks: "1.99", want: "1.51"},
		{speaks: "1.47", asked: "1.44", want: "1.44"},
		{speaks: "1.47", asked: "v1.44", want: "1.44"},
		{speaks: "1.40", err: engine.ErrTooOld},
		{speaks: "", err: engine.ErrTooOld},
		{speaks: "1.47", asked: "1.40", err: engine.ErrInvalid},
		{speaks: "1.47", asked: "1.48", err: engine.ErrInvalid},
		{speaks: "1.47", asked: "latest", err: engine.ErrInvalid},
	} {
		t.Run(tt.speaks+" asked "+tt.asked, func(t *testing.T) {
			t.Parallel()
			c, err := Connect(t.Context(), Options{
				Address: fakeEngine(t, speaks(tt.speaks)), Getenv: environ(map[string]string{"DOCKER_API_VERSION": tt.asked}),
			})
			if !errors.Is(err, tt.err) {
				t.Fatalf("Connect() = %v; want %v", err, tt.err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), tt.speaks) {
					t.Errorf("Connect() = %q; want the version %s named", err, tt.speaks)
				}
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			if got := c.api.ClientVersion(); got != tt.want {
				t.Errorf("API version = %s; want %s", got, tt.want)
			}
		})
	}
}

// tlsEngine answers over TLS on TCP; it returns its address and certificate.
func tlsEngine(t *testing.T) (address, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if strings.HasSuffix(r.URL.Path, "/exec/x/json") {
			fmt.Fprint(w, `{"Running":false,"ExitCode":3}`)
		}
	}))
	t.Cleanup(server.Close)
	ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return "tcp://" + strings.TrimPrefix(server.URL, "https://"), ca
}

func TestConnectTLS(t *testing.T) {
	t.Parallel()
	address, ca := tlsEngine(t)
	certs := t.TempDir()
	write(t, filepath.Join(certs, "ca.pem"), ca)
	half := t.TempDir()
	write(t, filepath.Join(half, "ca.pem"), ca)
	write(t, filepath.Join(half, "cert.pem"), ca)
	bad := t.TempDir()
	write(t, filepath.Join(bad, "ca.pem"), "nothing")
	withContext := t.TempDir()
	write(t, filepath.Join(addContext(t, withContext, "tls", fmt.Sprintf(`{"Host":%q,"SkipTLSVerify":false}`, address)), "ca.pem"), ca)
	addContext(t, withContext, "skip", fmt.Sprintf(`{"Host":%q,"SkipTLSVerify":true}`, address))
	for _, tt := range []struct {
		name string
		env  map[string]string
		err  error
	}{
		{"verified", map[string]string{"DOCKER_HOST": address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": certs}, nil},
		{"not verified", map[string]string{"DOCKER_HOST": address, "DOCKER_TLS": "1", "DOCKER_CERT_PATH": t.TempDir()}, nil},
		{"authorities of the system", map[string]string{"DOCKER_HOST": address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CONFIG": t.TempDir()}, engine.ErrUnreachable},
		{"no authority", map[string]string{"DOCKER_HOST": address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": t.TempDir()}, engine.ErrAddress},
		{"certificate without key", map[string]string{"DOCKER_HOST": address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": half}, engine.ErrAddress},
		{"bad authority", map[string]string{"DOCKER_HOST": address, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": bad}, engine.ErrAddress},
		{"no TLS", map[string]string{"DOCKER_HOST": address}, engine.ErrUnreachable},
		{"context", map[string]string{"DOCKER_CONFIG": withContext, "DOCKER_CONTEXT": "tls"}, nil},
		{"context that skips", map[string]string{"DOCKER_CONFIG": withContext, "DOCKER_CONTEXT": "skip"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Connect(t.Context(), Options{Getenv: environ(tt.env)})
			if !errors.Is(err, tt.err) {
				t.Fatalf("Connect(%v) = %v; want %v", tt.env, err, tt.err)
			}
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			if st, err := c.inspectExec(t.Context(), "x"); err != nil || st.ExitCode == nil || *st.ExitCode != 3 {
				t.Errorf("Exec() over TLS = %+v, %v; want exit code 3", st, err)
			}
		})
	}
}
