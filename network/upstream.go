package network

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/proxy"
)

// Upstream is a proxy of this machine's network, through which a Dialer connects. It holds
// credentials, which none of its texts show. A nil *Upstream stands for none.
type Upstream struct {
	find   func(*url.URL) (*url.URL, error)
	all    *url.URL // the only proxy; nil if find decides
	text   string   // without credentials
	secret []string // passwords, and users without one that may be tokens
}

// UpstreamError says what is wrong with a proxy of this machine. Its text holds neither the
// proxy's address nor credentials: sessions see it.
type UpstreamError struct{ Err error }

func (e *UpstreamError) Error() string {
	err := e.Err
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("it does not answer in time")
	} else if failure, ok := errors.AsType[*net.OpError](err); ok {
		for cause := failure.Err; cause != nil; cause = errors.Unwrap(cause) {
			err = cause
		}
	} else if _, ok := errors.AsType[*net.DNSError](err); ok {
		err = errors.New("its name cannot be looked up")
	}
	return "the proxy of this machine: " + err.Error()
}

func (e *UpstreamError) Unwrap() error { return e.Err }

// errScheme is returned for a proxy that cannot be used.
var errScheme = errors.New("a proxy is http://HOST:PORT or socks5://HOST:PORT, with USER:PASSWORD@ before the host if it wants them")

// ParseUpstream returns the proxy at an address such as http://user:password@proxy.example:3128 or
// socks5://proxy.example:1080. Its error does not repeat the text, which may hold a password.
func ParseUpstream(text string) (*Upstream, error) {
	u, err := parseProxy(text)
	if err != nil {
		return nil, err
	}
	return &Upstream{all: u, text: shownProxy(u), secret: passwordOf(u)}, nil
}

func parseProxy(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "https" {
		return nil, errTLSProxy
	}
	if err != nil || u.Hostname() == "" || defaultPort(u) == "" {
		return nil, errScheme
	}
	return u, nil
}

// errTLSProxy is returned for a proxy that wants to be spoken to inside TLS. Without saying so, a user would take
// https://, the scheme of what is asked for in many settings, for a mistake of ours.
var errTLSProxy = errors.New("a proxy with https:// is spoken to over TLS, which is not supported (docs/adr/0041): " +
	"most proxies take the same as http://HOST:PORT; if this one does not, run one on this machine that passes it on, or use none (network.proxy: none)")

// defaultPort returns the port of a proxy whose address has none; "" if it cannot be used.
func defaultPort(u *url.URL) string {
	return map[string]string{"http": "80", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
}

func shownProxy(u *url.URL) string { return u.Scheme + "://" + u.Host }

// minToken is the length of the shortest user without a password that is taken for a token. Shorter ones are
// names, and too short to be masked.
const minToken = 8 // bytes

// passwordOf returns what has to be masked of a proxy's address: its password, or a token that stands alone in
// the place of the user.
func passwordOf(u *url.URL) []string {
	user := u.User.Username()
	switch password, _ := u.User.Password(); {
	case password != "":
		return []string{password}
	case len(user) >= minToken:
		return []string{user}
	}
	return nil
}

// EnvironmentUpstream returns the proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name, in
// either case, as other programs read them: HTTP_PROXY is for port 80, HTTPS_PROXY for all others.
// It is nil if they name none.
func EnvironmentUpstream(getenv func(string) string) (*Upstream, error) {
	first := func(names ...string) (value string) {
		for _, name := range names {
			if value = getenv(name); value != "" {
				return value
			}
		}
		return ""
	}
	all := first("ALL_PROXY", "all_proxy")
	config := httpproxy.Config{
		HTTPProxy:  first("http_proxy", "HTTP_PROXY"),
		HTTPSProxy: first("https_proxy", "HTTPS_PROXY"),
		NoProxy:    first("no_proxy", "NO_PROXY"),
	}
	if getenv("REQUEST_METHOD") != "" {
		config.HTTPProxy = getenv("http_proxy") // as CGI: the other is a header of the request
	}
	if config.HTTPProxy == "" {
		config.HTTPProxy = all
	}
	if config.HTTPSProxy == "" {
		config.HTTPSProxy = all
	}
	up := &Upstream{}
	var shown []string
	for _, one := range []struct {
		name string
		text *string
	}{{"HTTPS_PROXY", &config.HTTPSProxy}, {"HTTP_PROXY", &config.HTTPProxy}} {
		if *one.text == "" {
			continue
		}
		u, err := parseProxy(*one.text)
		if err != nil {
			return nil, fmt.Errorf("%s or ALL_PROXY: %w", one.name, err)
		}
		*one.text = u.String()
		shown, up.secret = append(shown, shownProxy(u)), append(up.secret, passwordOf(u)...)
	}
	if len(shown) == 0 {
		return nil, nil //nolint:nilnil // nil stands for none
	}
	up.find, up.text = config.ProxyFunc(), strings.Join(slices.Compact(shown), ", ")
	return up, nil
}

// String returns where the proxy is, without credentials.
func (u *Upstream) String() string {
	if u == nil {
		return "none"
	}
	return u.text
}

// Passwords returns what must be masked wherever it is shown.
func (u *Upstream) Passwords() []string {
	if u == nil {
		return nil
	}
	return u.secret
}

// For returns the proxy for a host, in the spelling of Canonical, and a port; nil if connections to it
// take the direct way. This machine's loopback never has a proxy.
func (u *Upstream) For(host string, port int) *url.URL {
	switch {
	case u == nil:
		return nil
	case u.all != nil:
		if addr := net.ParseIP(host); addr.IsLoopback() {
			return nil
		}
		return u.all
	}
	scheme := "https"
	if port == 80 {
		scheme = "http"
	}
	p, err := u.find(&url.URL{Scheme: scheme, Host: hostPort(host, port)})
	if err != nil {
		return nil // they were parsed before
	}
	return p
}

// dialThrough connects to a host through a proxy.
func dialThrough(ctx context.Context, p *url.URL, host string, port int) (net.Conn, error) {
	at := p.Host
	if p.Port() == "" {
		at = net.JoinHostPort(p.Hostname(), defaultPort(p))
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, upstreamError(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	to := hostPort(host, port)
	if p.Scheme == "http" {
		err = httpConnect(ctx, conn, p, to)
	} else {
		err = socksConnect(ctx, conn, p, to)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(upstreamError(ctx, err), conn.Close())
	}
	return conn, nil
}

// upstreamError returns the error of a proxy, or that of the context if the caller has cancelled it. A
// deadline may end the connection before it ends the context.
func upstreamError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() || ctx.Err() != nil {
		err = context.DeadlineExceeded
	}
	return &UpstreamError{err}
}

// maxConnectAnswer bounds what a proxy may answer to CONNECT, in bytes.
const maxConnectAnswer = 64 << 10

// httpConnect asks a proxy for a connection, and leaves what follows its answer unread.
func httpConnect(ctx context.Context, conn net.Conn, p *url.URL, to string) error {
	r := (&http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to}, Host: to, Header: http.Header{"User-Agent": {"sandboxbash"}}}).WithContext(ctx)
	if p.User != nil {
		password, _ := p.User.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.User.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return err
	}
	// Byte by byte: a server that speaks first may send right behind the answer.
	answer, err := http.ReadResponse(bufio.NewReader(io.LimitReader(single{conn}, maxConnectAnswer)), r)
	if err != nil {
		if _, ok := errors.AsType[net.Error](err); ok {
			return err
		}
		return errors.New("it does not answer as an HTTP proxy does")
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}

// single reads one byte at a time.
type single struct{ io.Reader }

func (s single) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(1, len(p))]) }

// socksConnect asks a SOCKS5 proxy for a connection.
func socksConnect(ctx context.Context, conn net.Conn, p *url.URL, to string) error {
	var auth *proxy.Auth
	if p.User != nil {
		password, _ := p.User.Password()
		auth = &proxy.Auth{User: p.User.Username(), Password: password}
	}
	d, err := proxy.SOCKS5("tcp", p.Host, auth, nil)
	if err != nil {
		return err
	}
	over, ok := d.(interface {
		DialWithConn(ctx context.Context, conn net.Conn, network, address string) (net.Addr, error)
	})
	if !ok {
		return errors.New("SOCKS5 is not to be had")
	}
	_, err = over.DialWithConn(ctx, conn, "tcp", to)
	return err
}
