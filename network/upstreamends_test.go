package network_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// through dials host.example:443 through a proxy of one scheme, which handle is.
func through(t *testing.T, scheme string, timeout time.Duration, handle func(*proxies, net.Conn)) (net.Conn, error) {
	t.Helper()
	p := startProxy(t, "", handle)
	up, err := network.ParseUpstream(scheme + "://user:hunter2@" + p.addr)
	if err != nil {
		t.Fatal(err)
	}
	d := dialer(policyOf(t, "*:*"), &answers{})
	d.Upstream, d.Timeout = up, timeout
	return d.DialContext(t.Context(), "host.example", 443)
}

// TestUpstreamAnswers: what a proxy answers in place of a connection is an error that says so, and
// that shows neither the proxy's address nor its password.
func TestUpstreamAnswers(t *testing.T) {
	t.Parallel()
	says := func(text string) func(*proxies, net.Conn) {
		return func(_ *proxies, conn net.Conn) {
			_, _ = io.WriteString(conn, text)
			if c, ok := conn.(*net.TCPConn); ok {
				_ = c.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, conn)
		}
	}
	for _, tt := range []struct {
		name, scheme string
		handle       func(*proxies, net.Conn)
		want         string
	}{
		{"a wrong password", "http", says("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"), "it answers 407 Proxy Authentication Required"},
		{"its own words", "http", says("HTTP/1.1 502 user:hunter2 is wrong\r\n\r\n"), "it answers 502 Bad Gateway"},
		{"not to be had", "http", says("HTTP/1.1 503 x\r\nContent-Length: 5\r\n\r\nabcde"), "it answers 503 Service Unavailable"},
		{"a redirect", "http", says("HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\n\r\n"), "it answers 302 Found"},
		{"another protocol", "http", says("SSH-2.0-OpenSSH_9.9\r\n"), "it does not answer as an HTTP proxy does"},
		{"the end", "http", says(""), "it does not answer as an HTTP proxy does"},
		{"half an answer", "http", says("HTTP/1.1 200 OK\r\nX: "), "it does not answer as an HTTP proxy does"},
		{"too long an answer", "http", says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n"), "it does not answer as an HTTP proxy does"},
		{"no way to say who asks", "socks5", says("\x05\xff"), "no acceptable authentication methods"},
		{"another version", "socks5", says("\x04\x00"), "unexpected protocol version"},
		{"a refusal", "socks5", says("\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"), "connection not allowed by ruleset"},
		{"the end of SOCKS", "socks5h", says(""), "EOF"},
	} {
		conn, err := through(t, tt.scheme, 20*time.Second, tt.handle)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s: a connection; want %q", tt.name, tt.want)
			continue
		}
		_, ok := errors.AsType[*network.UpstreamError](err)
		if !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want an error of the proxy with %q", tt.name, err, tt.want)
		}
		for _, private := range []string{"hunter2", "127.0.0.1", base64.StdEncoding.EncodeToString([]byte("user:hunter2"))} {
			if strings.Contains(err.Error(), private) {
				t.Errorf("%s: %v shows %s", tt.name, err, private)
			}
		}
	}
}

// TestUpstreamSilent: a proxy that accepts and says nothing ends with the time for the connection.
func TestUpstreamSilent(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "socks5"} {
		closed := make(chan error, 1)
		conn, err := through(t, scheme, 3*time.Second, func(_ *proxies, conn net.Conn) {
			_, err := io.Copy(io.Discard, conn) // ends once the other side closes
			closed <- err
		})
		if err == nil {
			_ = conn.Close()
		}
		const want = "the proxy of this machine: it does not answer in time"
		bad, ok := errors.AsType[*network.UpstreamError](err)
		if !ok || bad.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v; want %s", scheme, err, want)
		}
		if err := <-closed; err != nil {
			t.Errorf("%s: the proxy's connection stays open: %v", scheme, err)
		}
	}
}

// TestUpstreamCancelled: a caller that cancels while a proxy is asked gets the end of its own context.
func TestUpstreamCancelled(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "socks5"} {
		ctx, cancel := context.WithCancel(t.Context())
		p := startProxy(t, "", func(_ *proxies, conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1)) // it has asked
			cancel()
			_, _ = io.Copy(io.Discard, conn)
		})
		up, err := network.ParseUpstream(scheme + "://" + p.addr)
		if err != nil {
			t.Fatal(err)
		}
		d := dialer(policyOf(t, "*:*"), &answers{})
		d.Upstream = up
		_, err = d.DialContext(ctx, "host.example", 443)
		if _, ok := errors.AsType[*network.UpstreamError](err); ok || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v; want the end of the context, and no fault of the proxy", scheme, err)
		}
	}
}

// TestUpstreamAbsent: a proxy that cannot be reached is said to be the proxy, without its address.
func TestUpstreamAbsent(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // tcpmux: nothing listens there
	for _, tt := range []struct{ proxy, want string }{
		{"http://user:hunter2@" + addr, "the proxy of this machine: connection refused"},
		{"socks5://user:hunter2@" + addr, "the proxy of this machine: connection refused"},
	} {
		up, err := network.ParseUpstream(tt.proxy)
		if err != nil {
			t.Fatal(err)
		}
		d := dialer(policyOf(t, "*:*"), &answers{})
		d.Upstream = up
		_, err = d.DialContext(t.Context(), "host.example", 443)
		bad, ok := errors.AsType[*network.UpstreamError](err)
		if !ok || bad.Error() != tt.want {
			t.Errorf("%v; want %s", err, tt.want)
		}
		if _, ok := errors.AsType[*net.OpError](err); !ok {
			t.Errorf("%v does not wrap what the network said", err)
		}
	}
	lookup := &network.UpstreamError{Err: &net.DNSError{Err: "no such host", Name: "proxy.corp.example"}}
	if got, want := lookup.Error(), "the proxy of this machine: its name cannot be looked up"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestUpstreamAsks: what a proxy over HTTP is asked for, with and without who asks.
func TestUpstreamAsks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ user, want string }{
		{"", ""},
		{"alice@", "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:"))},
		{"alice:p%40ss:w@", "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:p@ss:w"))},
	} {
		asked := make(chan *http.Request, 1)
		p := startProxy(t, "", func(_ *proxies, conn net.Conn) {
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				t.Error(err)
			}
			asked <- r
			_, _ = io.WriteString(conn, "HTTP/1.1 204 Fine\r\nX-Proxy: y\r\n\r\n220 mail.example ESMTP\r\n")
		})
		up, err := network.ParseUpstream("http://" + tt.user + p.addr)
		if err != nil {
			t.Fatal(err)
		}
		d := dialer(policyOf(t, "*:*", "[2606:4700::1111]:25"), &answers{})
		d.Upstream = up
		conn, err := d.DialContext(t.Context(), "[2606:4700:0::1111]", 25)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "220 mail.example ESMTP\r\n" || err != nil {
			t.Errorf("the server says %q, %v; want its greeting, which came in the proxy's packet", got, err)
		}
		_ = conn.Close()
		r := <-asked
		if r.Method != http.MethodConnect || r.RequestURI != "[2606:4700::1111]:25" || r.Host != r.RequestURI || r.Header.Get("Proxy-Authorization") != tt.want {
			t.Errorf("it was asked for %s %s, host %s, by %q; want %q", r.Method, r.RequestURI, r.Host, r.Header.Get("Proxy-Authorization"), tt.want)
		}
	}
}

func TestParseUpstream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, shown string // shown is "" for an error
		passwords   []string
		via         string // the proxy for a public host
	}{
		{"proxy.example:3128", "http://proxy.example:3128", nil, "proxy.example:3128"},
		{"http://proxy.example", "http://proxy.example", nil, "proxy.example"},
		{"http://u:pw@proxy.example:3128/", "http://proxy.example:3128", []string{"pw"}, "proxy.example:3128"},
		{"http://u:@proxy.example:3128", "http://proxy.example:3128", nil, "proxy.example:3128"},
		{"http://token-token@proxy.example:3128", "http://proxy.example:3128", []string{"token-token"}, "proxy.example:3128"},
		{"http://token-token:@proxy.example", "http://proxy.example", []string{"token-token"}, "proxy.example"},
		{"token%2Dtoken@proxy.example", "http://proxy.example", []string{"token-token"}, "proxy.example"},
		{"http://a-long-name:pw@proxy.example", "http://proxy.example", []string{"pw"}, "proxy.example"},
		{"socks5://u:p%20w@[::1]:1080", "socks5://[::1]:1080", []string{"p w"}, "[::1]:1080"},
		{"socks5h://proxy.example", "socks5h://proxy.example", nil, "proxy.example"},
		{"https://proxy.example", "", nil, ""},
		{"ftp://proxy.example", "", nil, ""},
		{"http://", "", nil, ""},
		{"", "", nil, ""},
		{"http://u:hunter2@proxy.example:port", "", nil, ""},
		{"http://u:hunter2%zz@proxy.example", "", nil, ""},
	} {
		up, err := network.ParseUpstream(tt.text)
		if tt.shown == "" {
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("ParseUpstream(%q) = %v, %v; want an error that does not repeat it", tt.text, up, err)
			}
			continue
		}
		if err != nil || up.String() != tt.shown || !slices.Equal(up.Passwords(), tt.passwords) {
			t.Errorf("ParseUpstream(%q) = %s, %q, %v; want %s, %q", tt.text, up, up.Passwords(), err, tt.shown, tt.passwords)
			continue
		}
		if got := up.For("host.example", 22).Host; got != tt.via {
			t.Errorf("%s: connections leave through %s; want %s", tt.text, got, tt.via)
		}
		for _, loopback := range []string{"127.0.0.1", "127.9.9.9", "::1"} {
			if p := up.For(loopback, 443); p != nil {
				t.Errorf("%s: %s has the proxy %s", tt.text, loopback, p.Host)
			}
		}
	}
	var none *network.Upstream
	if none.String() != "none" || none.Passwords() != nil || none.For("host.example", 443) != nil {
		t.Errorf("no proxy is %s, with %q, for some host %v", none, none.Passwords(), none.For("host.example", 443))
	}
}

// TestEnvironmentUpstreamOf: which variable wins where several are set, and whose passwords are masked.
func TestEnvironmentUpstreamOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		env       map[string]string
		plain     string // the proxy for port 80
		tls       string // for all others
		passwords []string
	}{
		{"lower case first, as curl", map[string]string{"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:2"}, "", "low:1", nil},
		{"ALL_PROXY for what has none", map[string]string{"ALL_PROXY": "socks5://all:1", "HTTPS_PROXY": "http://tls:2"}, "all:1", "tls:2", nil},
		{"CGI: the variable is a header of the request", map[string]string{"REQUEST_METHOD": "GET", "HTTP_PROXY": "http://evil:1"}, "", "", nil},
		{"CGI: the other variable is not", map[string]string{"REQUEST_METHOD": "GET", "http_proxy": "http://good:1", "HTTP_PROXY": "http://evil:1"}, "good:1", "", nil},
		{"two passwords", map[string]string{"http_proxy": "http://u:one@h:1", "https_proxy": "http://u:two@h:1"}, "h:1", "h:1", []string{"two", "one"}},
		{"a token", map[string]string{"https_proxy": "http://token-token@h:1"}, "", "h:1", []string{"token-token"}},
		{"every host excluded", map[string]string{"HTTPS_PROXY": "http://tls:2", "NO_PROXY": "*"}, "", "", nil},
		{"a port excluded", map[string]string{"ALL_PROXY": "http://all:2", "NO_PROXY": "host.example:80"}, "", "all:2", nil},
	} {
		up, err := network.EnvironmentUpstream(func(name string) string { return tt.env[name] })
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for port, want := range map[int]string{80: tt.plain, 443: tt.tls, 22: tt.tls} {
			got := ""
			if p := up.For("host.example", port); p != nil {
				got = p.Host
			}
			if got != want {
				t.Errorf("%s: port %d leaves through %q; want %q", tt.name, port, got, want)
			}
		}
		if !slices.Equal(up.Passwords(), tt.passwords) {
			t.Errorf("%s: the passwords are %q; want %q", tt.name, up.Passwords(), tt.passwords)
		}
	}
}
