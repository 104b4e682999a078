// Package docker runs sessions on a Docker engine, or on one that speaks its API, such as Podman.
// Engine is the engine.Engine: it makes a session of a container and volumes, and fills the
// volumes that sessions share. Client is the connection below it. This is the only package that
// knows the Docker client: it takes and returns only its own types and those of package engine,
// and its errors are of package engine's kinds.
//
// Every call that does not stream ends within 30 seconds, also when the caller
// sets no deadline. Calls that only read are tried once more when the
// connection broke under them; no other call is ever repeated.
package docker

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs/pkg/errhttp"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/sockets"

	"github.com/sandboxbash/sandboxbash/engine"
)

// minAPI is the oldest API version that has everything a session needs: CgroupnsMode
// came with it (Docker 20.10).
const minAPI = "1.41"

// maxError bounds what is read of an engine's answer that is an error.
const maxError = 64 << 10

// maxInspect bounds what is read of an exec's state, or of the engine itself; a
// longer answer is an error.
const maxInspect = 1 << 20

// Client is a connection to one engine. Its methods may be called concurrently. Make it with
// Connect; the zero Client must not be used.
type Client struct {
	api       *client.Client
	transport *http.Transport
	http      *http.Client // over transport, for what api has no call for
	url       *url.URL     // of the engine, as the Docker client splits it
	address   string
	source    string // what named the address, or whose socket it is
	found     bool   // nothing named it, and it is not the default
	configDir string

	about   memo[engine.Info]
	version memo[types.Version]
}

// Connect finds the engine that the options and the environment name, and
// agrees on an API version with it. Where nothing is named, the default socket
// is used. Where that is not there either, the sockets of other engines are
// tried in turn; Info.Source says which it was. The caller closes the Client.
//
// No engine: ErrUnreachable, with every address tried and why it was not used.
// One that is too old: ErrTooOld. An address that cannot be used: ErrInvalid.
func Connect(ctx context.Context, opts Options) (*Client, error) {
	ends, err := endpoints(opts)
	if err != nil {
		return nil, &engine.Error{Op: findEngine, Kind: engine.ErrAddress, Err: err}
	}
	return search(ctx, ends, opts)
}

const findEngine = "find a container engine"

// search connects to the first endpoint at which an engine answers. If there is a socket at the
// first one, no other is tried: a session must not run elsewhere because the usual engine is down.
func search(ctx context.Context, ends []endpoint, opts Options) (*Client, error) {
	failed := &unreachableError{names: opts.names()}
	for i, end := range ends {
		if end.usual && end.missing() {
			failed.absent = append(failed.absent, end.path())
			continue
		}
		c, err := dial(ctx, end, opts)
		if err == nil {
			c.found = end.usual && i > 0
			return c, nil
		}
		if errors.Is(err, engine.ErrTooOld) || errors.Is(err, engine.ErrInvalid) || errors.Is(err, engine.ErrAddress) || ctx.Err() != nil {
			return nil, fail(ctx, findEngine, err)
		}
		failed.tried = append(failed.tried, fmt.Errorf("%s (%s): %w", end.host, end.source, err))
		if i == 0 {
			for _, other := range ends[1:] {
				if !other.missing() {
					failed.others = append(failed.others, other.host+" ("+other.source+")")
				}
			}
			break
		}
	}
	return nil, &engine.Error{Op: findEngine, Kind: engine.ErrUnreachable, Err: failed}
}

// Found returns whose socket was found, as in "Podman's", and its address, where nothing has named an engine and
// the default socket is not there; else found is false.
func (c *Client) Found() (source, address string, found bool) { return c.source, c.address, c.found }

// pingTimeout bounds the first contact with one address.
const pingTimeout = 10 * time.Second

func dial(ctx context.Context, end endpoint, opts Options) (*Client, error) {
	op := "connect to " + end.host
	host := end.host
	if end.ssh != nil {
		host = end.ssh.Host // of a request; nothing is resolved
	}
	u, err := client.ParseHostURL(host)
	if err != nil {
		return nil, &engine.Error{Op: op, Kind: engine.ErrAddress, Err: fmt.Errorf("%w (%s)", err, end.source)}
	}
	// A session opens connections in bursts, one an exec: keep more than the usual two.
	tr := &http.Transport{TLSClientConfig: end.tls, MaxIdleConns: 32, MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second}
	if err := sockets.ConfigureTransport(tr, u.Scheme, u.Host); err != nil {
		return nil, &engine.Error{Op: op, Kind: engine.ErrAddress, Err: fmt.Errorf("%w (%s)", err, end.source)}
	}
	inner := &http.Client{Transport: tr, CheckRedirect: client.CheckRedirect}
	api, err := client.NewClientWithOpts(
		client.WithHTTPClient(inner),
		client.WithHost(host),
		client.WithAPIVersionNegotiation(),
	)
	if err != nil {
		return nil, &engine.Error{Op: op, Kind: engine.ErrAddress, Err: fmt.Errorf("%w (%s)", err, end.source)}
	}
	var over *sshDialer
	if end.ssh != nil { // after the options, which set a dialer and a proxy
		over = &sshDialer{helper: end.ssh}
		tr.DialContext, tr.Proxy = over.dial, nil
	}
	inner.Transport = answers{inner.Transport} // the options take no other than an http.Transport
	c := &Client{
		api: api, transport: tr, http: &http.Client{Transport: answers{tr}, CheckRedirect: client.CheckRedirect},
		url: u, address: end.host, source: end.source, configDir: configDir(opts),
	}
	if err := c.negotiate(ctx, op, opts.getenv("DOCKER_API_VERSION")); err != nil {
		_ = c.Close()
		if over != nil {
			return nil, over.explain(end.host, err)
		}
		return nil, behindProxy(tr, u, err)
	}
	return c, nil
}

// behindProxy adds to err the proxy that the request went through. On TCP Docker's client
// uses the proxy of the environment, and its errors name only the engine.
func behindProxy(tr *http.Transport, engineURL *url.URL, err error) error {
	if tr.Proxy == nil {
		return err
	}
	to := &url.URL{Scheme: "http", Host: engineURL.Host}
	if tr.TLSClientConfig != nil {
		to.Scheme = "https"
	}
	proxy, wrong := tr.Proxy(&http.Request{URL: to})
	switch {
	case wrong != nil:
		return fmt.Errorf("%w (%s_PROXY of the environment: %w)", err, strings.ToUpper(to.Scheme), wrong)
	case proxy == nil:
		return err
	}
	return fmt.Errorf("through the proxy %s that the environment names (NO_PROXY=%s goes around it): %w", proxy.Redacted(), to.Hostname(), err)
}

// negotiate settles the API version. A version that the user asks for must be
// one that both sides speak.
func (c *Client) negotiate(ctx context.Context, op, asked string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, fmt.Errorf("no answer within %v: %w", pingTimeout, context.DeadlineExceeded))
	defer cancel()
	ping, err := c.api.Ping(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err // of no kind: whatever answers there, it is not an engine for us
	}
	found := ping.APIVersion
	if found == "" || versions.LessThan(found, minAPI) {
		return &engine.Error{Op: op, Kind: engine.ErrTooOld, Err: fmt.Errorf(
			"it speaks API version %s, and %s is needed: upgrade it to Docker 20.10 or later", orNone(found), minAPI)}
	}
	asked = strings.TrimPrefix(asked, "v")
	if asked == "" {
		c.api.NegotiateAPIVersionPing(ping)
		return nil
	}
	if !isVersion(asked) || versions.LessThan(asked, minAPI) || versions.GreaterThan(asked, found) {
		return invalid(op, "DOCKER_API_VERSION is %q, and must be between %s and the engine's %s: correct it or unset it", asked, minAPI, found)
	}
	return client.WithVersion(asked)(c.api)
}

func orNone(v string) string {
	if v == "" {
		return "(none)"
	}
	return v
}

func isVersion(v string) bool {
	major, minor, ok := strings.Cut(v, ".")
	digits := func(s string) bool {
		return s != "" && strings.Trim(s, "0123456789") == ""
	}
	return ok && digits(major) && digits(minor)
}

// Close gives back idle connections. Streams that are open stay open.
func (c *Client) Close() error { return c.api.Close() }

// Info describes the engine. It asks the engine once: starting a session needs the
// description at several places, and the engine takes long to gather it.
func (c *Client) Info(ctx context.Context) (engine.Info, error) { return c.about.get(ctx, c.describe) }

const askAbout = "ask the engine about itself"

func (c *Client) describe(ctx context.Context) (engine.Info, error) {
	info, err := ask(ctx, askAbout, c.info)
	if err != nil {
		return engine.Info{}, err
	}
	version, err := c.versions(ctx)
	if err != nil {
		return engine.Info{}, err
	}
	out := engine.Info{
		Name:           product(version),
		Version:        info.ServerVersion,
		APIVersion:     c.api.ClientVersion(),
		Address:        c.address,
		Source:         c.source,
		OS:             info.OSType,
		Arch:           version.Arch,
		CPUs:           info.NCPU,
		MemoryBytes:    info.MemTotal,
		CgroupVersion:  info.CgroupVersion,
		CgroupDriver:   info.CgroupDriver,
		StorageDriver:  info.Driver,
		RuncVersion:    runcVersion(version, info),
		KernelVersion:  info.KernelVersion,
		DefaultRuntime: info.DefaultRuntime,
		SecurityOpts:   info.SecurityOptions,
		Unenforced:     unenforced(info),
		Warnings:       info.Warnings,
		EmptyResolver:  product(version) == "podman",
	}
	for name := range info.Runtimes {
		out.Runtimes = append(out.Runtimes, name)
	}
	slices.Sort(out.Runtimes)
	has := func(name string) bool {
		return slices.ContainsFunc(info.SecurityOptions, func(opt string) bool {
			return opt == name || slices.Contains(strings.Split(opt, ","), "name="+name)
		})
	}
	out.Rootless = has("rootless")
	out.Remapped = !out.Rootless && has("userns")
	return out, nil
}

// info is /info. The Docker client's own call loses the type of an error.
func (c *Client) info(ctx context.Context) (info system.Info, err error) {
	body, err := c.getRaw(ctx, "/info")
	if err == nil {
		err = json.Unmarshal(body, &info)
	}
	return info, err
}

func product(v types.Version) string {
	for _, part := range v.Components {
		if part.Name == "Podman Engine" {
			return "podman"
		}
	}
	return "docker"
}

// runcVersion prefers the version that the engine lists as a component: the
// commit that /info has may be a hash, or nothing.
func runcVersion(v types.Version, info system.Info) string {
	for _, part := range v.Components {
		if part.Name == "runc" && part.Version != "" {
			return part.Version
		}
		// Podman has what `runc --version` prints, whole.
		if number, ok := strings.CutPrefix(part.Version, "runc version "); ok && part.Name == "OCI Runtime (runc)" {
			return strings.Fields(number + " -")[0]
		}
	}
	return info.RuncCommit.ID
}

func unenforced(info system.Info) []string {
	var out []string
	for _, limit := range []struct {
		name string
		kept bool
	}{
		{"memory", info.MemoryLimit},
		{"swap", info.SwapLimit},
		{"pids", info.PidsLimit},
		{"cpus", info.CPUCfsQuota && info.CPUCfsPeriod},
	} {
		if !limit.kept {
			out = append(out, limit.name)
		}
	}
	return out
}

// versions returns the versions of the engine and its parts, which cost less than Info.
func (c *Client) versions(ctx context.Context) (types.Version, error) {
	return c.version.get(ctx, func(ctx context.Context) (types.Version, error) { return ask(ctx, askAbout, c.api.ServerVersion) })
}

// isPodman reports whether the engine is Podman, which takes a few requests in another
// form.
func (c *Client) isPodman(ctx context.Context) (bool, error) {
	v, err := c.versions(ctx)
	return err == nil && product(v) == "podman", err
}

// request prepares a request of our own to the engine, past the Docker client.
func (c *Client) request(ctx context.Context, method, route string, body io.Reader) (*http.Request, error) {
	u := url.URL{Scheme: "http", Host: c.url.Host, Path: path.Join("/", c.url.Path, "v"+c.api.ClientVersion(), route)}
	if c.transport.TLSClientConfig != nil {
		u.Scheme = "https"
	}
	local := c.url.Scheme == "unix" || c.url.Scheme == "npipe"
	if local {
		u.Host = client.DummyHost
	}
	return http.NewRequestWithContext(ctx, method, u.String(), body)
}

// getRaw fetches a small JSON document that the Docker client would lose a
// part of.
func (c *Client) getRaw(ctx context.Context, route string) ([]byte, error) {
	req, err := c.request(ctx, http.MethodGet, route, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxInspect+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxInspect {
		return nil, errLongAnswer
	}
	return body, nil
}

// statusError is the engine's refusal: its words, typed by its status.
func statusError(resp *http.Response) error {
	var said struct {
		Message string `json:"message"`
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(body))
	}
	err := &apiError{status: resp.StatusCode, message: said.Message}
	err.kind = errhttp.ToNative(resp.StatusCode)
	return err
}

// apiError is a response with a status that means failure.
type apiError struct {
	status  int
	message string
	kind    error // of containerd/errdefs
}

func (e *apiError) Error() string {
	if e.message == "" {
		return fmt.Sprintf("the engine answered %d (%s) and said nothing", e.status, http.StatusText(e.status))
	}
	return e.message
}

func (e *apiError) Unwrap() error { return e.kind }

// dialRaw opens a connection of its own, which the HTTP transport never sees.
func (c *Client) dialRaw(ctx context.Context) (net.Conn, error) {
	conn, err := c.transport.DialContext(ctx, c.url.Scheme, c.url.Host)
	if err != nil || c.transport.TLSClientConfig == nil {
		return conn, err
	}
	cfg := c.transport.TLSClientConfig.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(c.url.Host)
	}
	cfg.NextProtos = nil // hijacking is HTTP/1.1's
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}
