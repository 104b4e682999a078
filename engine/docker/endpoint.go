package docker

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/connhelper"
	dockercontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/go-connections/tlsconfig"
)

// Options say where to look for an engine.
type Options struct {
	Address string              // of the engine; it wins over everything else
	Source  string              // what has named Address, for error messages; "": the caller
	Getenv  func(string) string // nil: there is no environment
	Home    string              // the user's home directory; "" if there is none
}

func (o Options) getenv(name string) string {
	if o.Getenv == nil {
		return ""
	}
	return o.Getenv(name)
}

// names says what an engine can be named with.
func (o Options) names() string {
	if o.Source == "" {
		return "DOCKER_HOST"
	}
	return o.Source + " or DOCKER_HOST"
}

// endpoint is an address at which an engine may answer.
type endpoint struct {
	host   string // as in "unix:///var/run/docker.sock"
	source string // what named it, or whose socket it is, for error messages
	tls    *tls.Config
	ssh    *connhelper.ConnectionHelper // how a connection is made where host is ssh://
	usual  bool                         // it is not named, but looked for
}

// path is that of an endpoint's socket, "" if it has none.
func (e endpoint) path() string {
	if path, ok := strings.CutPrefix(e.host, "unix://"); ok {
		return path
	}
	return ""
}

// missing reports whether nothing lies at the path of the endpoint's socket.
func (e endpoint) missing() bool {
	if e.path() == "" {
		return false
	}
	_, err := os.Stat(e.path())
	return errors.Is(err, fs.ErrNotExist)
}

// unreachableError lists every address that was tried, and those at which no socket is.
type unreachableError struct {
	tried  []error
	absent []string // paths
	others []string // addresses with a socket that were not tried
	names  string   // what an engine can be named with
}

func (e *unreachableError) Error() string {
	var b strings.Builder
	b.WriteString("none answers")
	if len(e.tried) > 0 {
		b.WriteString("; tried:")
	}
	for _, err := range e.tried {
		fmt.Fprintf(&b, "\n  %v", err)
	}
	if len(e.absent) > 0 {
		b.WriteString("\n  not there: " + strings.Join(e.absent, ", "))
	}
	switch {
	case len(e.others) > 0:
		b.WriteString("\n  there too, but only the first is used unless one is named: " + strings.Join(e.others, ", "))
	case len(e.tried) == 0:
		b.WriteString("\nInstall Docker or Podman and start it, or name an engine with " + e.names)
		return b.String()
	}
	if slices.ContainsFunc(e.tried, func(err error) bool { return errors.Is(err, fs.ErrPermission) }) {
		b.WriteString("\nYou may not use that socket. Join the group that owns it (for Docker: `sudo usermod -aG docker $USER`, then log in " +
			"again; its members are root on this machine), or start an engine of your own: rootless Docker, or Podman's socket. " +
			"Name another one with " + e.names)
		return b.String()
	}
	b.WriteString("\n" + e.advice())
	return b.String()
}

// advice says what to do, by what failed.
func (e *unreachableError) advice() string {
	for _, err := range e.tried {
		if isCertificate(err) {
			return "Check the certificates: ca.pem must be of the authority that the engine's certificate is signed by, and cert.pem and " +
				"key.pem must be those of a client that the engine accepts (DOCKER_CERT_PATH, or the context's)"
		}
		if host, ok := errors.AsType[*sshError](err); ok {
			return "Try `" + host.command + "`: it must answer without asking for anything. ssh's own configuration and agent are used, " +
				"and `docker` must be installed there"
		}
	}
	return "Start the engine, check that you may use its socket, or name another one with " + e.names
}

// isCertificate reports whether one side has refused the other's certificate.
func isCertificate(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}

func (e *unreachableError) Unwrap() []error { return e.tried }

func configDir(o Options) string {
	if dir := o.getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	if o.Home == "" {
		return ""
	}
	return filepath.Join(o.Home, ".docker")
}

// endpoints lists the addresses to try, best first. An address that was named is the only
// one: a session must not run on an engine that was not asked for.
func endpoints(o Options) ([]endpoint, error) {
	if o.Address != "" {
		return one(named(o, o.Address, cmp.Or(o.Source, "the caller")))
	}
	if host := o.getenv("DOCKER_HOST"); host != "" {
		return one(named(o, host, "DOCKER_HOST"))
	}
	name, source := o.getenv("DOCKER_CONTEXT"), "DOCKER_CONTEXT"
	dir := configDir(o)
	if name == "" && dir != "" {
		file, err := config.Load(dir)
		if err != nil {
			return nil, fmt.Errorf("read Docker's configuration: %w: repair it, or name the engine with %s", err, o.names())
		}
		name, source = file.CurrentContext, "the current context of "+file.Filename
	}
	if name != "" && name != "default" {
		return one(fromContext(dir, name, source))
	}
	return defaults(o), nil
}

func one(e endpoint, err error) ([]endpoint, error) {
	if err != nil {
		return nil, err
	}
	return []endpoint{e}, nil
}

// defaults are where engines listen when nothing names one, in the order in which they are looked
// for (docs/configuration.md lists them).
func defaults(o Options) []endpoint {
	if runtime.GOOS == "windows" {
		return []endpoint{{host: "npipe:////./pipe/docker_engine", source: "the default", usual: true}}
	}
	var out []endpoint
	add := func(source, dir string, path ...string) {
		if dir != "" {
			out = append(out, endpoint{host: "unix://" + filepath.Join(append([]string{dir}, path...)...), source: source, usual: true})
		}
	}
	run := o.getenv("XDG_RUNTIME_DIR")
	add("the default", "/var/run/docker.sock")
	add("rootless Docker's", run, "docker.sock")
	add("Docker Desktop's", o.Home, ".docker", "run", "docker.sock")
	add("Docker Desktop's", o.Home, ".docker", "desktop", "docker.sock")
	add("Podman's", run, "podman", "podman.sock")
	add("Podman's", "/run/podman/podman.sock")
	add("Colima's", o.Home, ".colima", "default", "docker.sock")
	add("OrbStack's", o.Home, ".orbstack", "run", "docker.sock")
	add("Rancher Desktop's", o.Home, ".rd", "docker.sock")
	return out
}

// named is an address given as such, with the TLS settings of the environment,
// read as the docker command reads them.
func named(o Options, host, source string) (endpoint, error) {
	if filepath.IsAbs(host) && runtime.GOOS != "windows" {
		host = "unix://" + host
	}
	e := endpoint{host: host, source: source}
	verify := o.getenv("DOCKER_TLS_VERIFY") != ""
	if strings.HasPrefix(host, "tcp://") && (verify || o.getenv("DOCKER_TLS") != "") {
		dir := o.getenv("DOCKER_CERT_PATH")
		if dir == "" {
			dir = configDir(o)
		}
		ca, cert, key := present(dir, "ca.pem"), present(dir, "cert.pem"), present(dir, "key.pem")
		if err := complete(dir, ca, cert, key, verify && o.getenv("DOCKER_CERT_PATH") != ""); err != nil {
			return endpoint{}, err
		}
		data, err := dockercontext.TLSDataFromFiles(ca, cert, key)
		if err != nil {
			return endpoint{}, fmt.Errorf("read the TLS certificates of %s: %w", source, err)
		}
		if e.tls, err = tlsConfig(data, dockercontext.EndpointMetaBase{SkipTLSVerify: !verify}); err != nil {
			return endpoint{}, fmt.Errorf("TLS certificates in %s: %w", dir, err)
		}
	}
	return usable(e)
}

// complete refuses a directory of certificates in which a part is missing: without it the engine would refuse the
// connection, or be checked against other authorities than those that were meant.
func complete(dir, ca, cert, key string, needCA bool) error {
	switch {
	case needCA && ca == "":
		return fmt.Errorf("DOCKER_TLS_VERIFY is set, and DOCKER_CERT_PATH (%s) has no ca.pem: put the certificate of the authority "+
			"that the engine's is signed by there, or correct DOCKER_CERT_PATH", dir)
	case cert != "" && key == "":
		return fmt.Errorf("%s has cert.pem without key.pem: a client's certificate needs both", dir)
	case key != "" && cert == "":
		return fmt.Errorf("%s has key.pem without cert.pem: a client's certificate needs both", dir)
	}
	return nil
}

// present is the file's path if it is there.
func present(dir, name string) string {
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return file
}

// fromContext reads a context as `docker context` keeps it.
func fromContext(dir, name, source string) (endpoint, error) {
	base := filepath.Join(dir, "contexts")
	st := store.New(base, store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter("docker", func() any { return &dockercontext.EndpointMetaBase{} }),
	))
	where := fmt.Sprintf("context %q (%s)", name, source)
	meta, err := st.GetMetadata(name)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s in %s: %w: `docker context ls` shows what there is", where, base, err)
	}
	end, ok := meta.Endpoints["docker"].(dockercontext.EndpointMetaBase)
	if !ok || end.Host == "" {
		return endpoint{}, fmt.Errorf("%s in %s names no Docker endpoint: choose another one", where, base)
	}
	data, err := dockercontext.LoadTLSData(st, name, "docker")
	if err != nil {
		return endpoint{}, fmt.Errorf("TLS certificates of %s: %w", where, err)
	}
	e := endpoint{host: end.Host, source: where}
	if data != nil || end.SkipTLSVerify {
		if e.tls, err = tlsConfig(data, end); err != nil {
			return endpoint{}, fmt.Errorf("TLS certificates of %s: %w", where, err)
		}
	}
	return usable(e)
}

func tlsConfig(data *dockercontext.TLSData, meta dockercontext.EndpointMetaBase) (*tls.Config, error) {
	cfg := tlsconfig.ClientDefault()
	cfg.InsecureSkipVerify = meta.SkipTLSVerify
	if data == nil {
		return cfg, nil
	}
	if data.CA != nil {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(data.CA) {
			return nil, errors.New("ca.pem holds no certificate")
		}
	}
	if data.Cert != nil || data.Key != nil {
		pair, err := tls.X509KeyPair(data.Cert, data.Key)
		if err != nil {
			return nil, fmt.Errorf("cert.pem and key.pem: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// usable refuses addresses that we cannot dial, and completes those of TCP.
func usable(e endpoint) (endpoint, error) {
	scheme, rest, ok := strings.Cut(e.host, "://")
	switch {
	case !ok || rest == "":
		return endpoint{}, fmt.Errorf("%q (%s) is not an engine's address: write unix:///path/to.sock, tcp://host:port or ssh://user@host", e.host, e.source)
	case scheme == "ssh":
		var err error
		if e.ssh, err = connhelper.GetConnectionHelper(e.host); err != nil {
			return endpoint{}, fmt.Errorf("%s (%s): %w: write ssh://user@host, ssh://user@host:port or ssh://user@host/path/to.sock", redacted(e.host), e.source, err)
		}
	case scheme == "npipe" && runtime.GOOS != "windows":
		return endpoint{}, fmt.Errorf("%s (%s): named pipes are for Windows: write unix:///path/to.sock or tcp://host:port", e.host, e.source)
	case scheme != "unix" && scheme != "tcp" && scheme != "npipe":
		return endpoint{}, fmt.Errorf("%s (%s): %s:// is not supported: write unix:///path/to.sock, tcp://host:port or ssh://user@host", e.host, e.source, scheme)
	case scheme == "tcp":
		e.host = "tcp://" + withPort(rest, e.tls)
		if u, err := url.Parse(e.host); err != nil || !goodPort(u.Port()) {
			return endpoint{}, fmt.Errorf("%q (%s) is not an engine's address: write tcp://host:port, with a port from 1 to 65535", e.host, e.source)
		}
	}
	return e, nil
}

// redacted is an address without the password that may be in it.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	return u.Redacted()
}

func goodPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// withPort adds the port that Docker's documentation gives to an engine.
func withPort(rest string, secure *tls.Config) string {
	host, dir, _ := strings.Cut(rest, "/")
	if _, _, err := net.SplitHostPort(host); err != nil {
		port := "2375"
		if secure != nil {
			port = "2376"
		}
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	if dir != "" {
		return host + "/" + dir
	}
	return host
}
