package docker

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/docker/cli/cli/config"
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
	source string // what named it, for error messages
	tls    *tls.Config
}

// unreachableError lists every address that was tried.
type unreachableError struct {
	tried []error
	names string // what an engine can be named with
}

func (e *unreachableError) Error() string {
	var b strings.Builder
	b.WriteString("none answers; tried:")
	for _, err := range e.tried {
		fmt.Fprintf(&b, "\n  %v", err)
	}
	b.WriteString("\nStart the engine, check that you may use its socket, or name another one with " + e.names)
	return b.String()
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

func defaults(o Options) []endpoint {
	if runtime.GOOS == "windows" {
		return []endpoint{{host: "npipe:////./pipe/docker_engine", source: "the default"}}
	}
	out := []endpoint{{host: "unix:///var/run/docker.sock", source: "the default"}}
	if o.Home != "" {
		out = append(out, endpoint{host: "unix://" + filepath.Join(o.Home, ".docker", "run", "docker.sock"), source: "Docker Desktop's"})
	}
	if dir := o.getenv("XDG_RUNTIME_DIR"); dir != "" {
		out = append(out, endpoint{host: "unix://" + filepath.Join(dir, "docker.sock"), source: "rootless Docker's"})
	}
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
		data, err := dockercontext.TLSDataFromFiles(present(dir, "ca.pem"), present(dir, "cert.pem"), present(dir, "key.pem"))
		if err != nil {
			return endpoint{}, fmt.Errorf("read the TLS certificates of %s: %w", source, err)
		}
		if e.tls, err = tlsConfig(data, dockercontext.EndpointMetaBase{SkipTLSVerify: !verify}); err != nil {
			return endpoint{}, fmt.Errorf("TLS certificates in %s: %w", dir, err)
		}
	}
	return usable(e)
}

// present is the file's path if it is there: each of the three is optional.
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
		return endpoint{}, fmt.Errorf("%q (%s) is not an engine's address: write unix:///path/to.sock or tcp://host:port", e.host, e.source)
	case scheme == "ssh":
		return endpoint{}, fmt.Errorf("%s (%s): ssh:// is not supported: forward the socket, as in "+
			"`ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock %s`, and name the engine as unix:///tmp/engine.sock", e.host, e.source, rest)
	case scheme == "npipe" && runtime.GOOS != "windows":
		return endpoint{}, fmt.Errorf("%s (%s): named pipes are for Windows: write unix:///path/to.sock or tcp://host:port", e.host, e.source)
	case scheme != "unix" && scheme != "tcp" && scheme != "npipe":
		return endpoint{}, fmt.Errorf("%s (%s): %s:// is not supported: write unix:///path/to.sock or tcp://host:port", e.host, e.source, scheme)
	case scheme == "tcp":
		e.host = "tcp://" + withPort(rest, e.tls)
		if u, err := url.Parse(e.host); err != nil || !goodPort(u.Port()) {
			return endpoint{}, fmt.Errorf("%q (%s) is not an engine's address: write tcp://host:port, with a port from 1 to 65535", e.host, e.source)
		}
	}
	return e, nil
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
