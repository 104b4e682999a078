package network_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// proxies accepts connections and speaks HTTP CONNECT or SOCKS5 with a user and a password. Every host
// leads to the same server.
type proxies struct {
	addr   string
	server string

	mu    sync.Mutex
	asked []string // guarded by mu; host:port
}

func startProxy(t *testing.T, server string, handle func(*proxies, net.Conn)) *proxies {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxies{addr: l.Addr().String(), server: server}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer func() { _ = conn.Close() }()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				handle(p, conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	return p
}

func (p *proxies) through(to string, conn net.Conn, answer string) {
	p.mu.Lock()
	p.asked = append(p.asked, to)
	p.mu.Unlock()
	upstream, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = upstream.Close() }()
	greeting, _ := io.ReadAll(upstream)
	_, _ = io.WriteString(conn, answer+string(greeting)) // in one packet: nothing of it may get lost
}

func httpProxy(p *proxies, conn net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass word")) {
		_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	p.through(r.Host, conn, "HTTP/1.1 200 OK\r\n\r\n")
}

func socksProxy(p *proxies, conn net.Conn) {
	b := make([]byte, 300)
	read := func(n int) []byte { _, _ = io.ReadFull(conn, b[:n]); return b[:n] }
	read(int(read(2)[1]))
	_, _ = conn.Write([]byte{5, 2}) // user and password
	user := string(read(int(read(2)[1])))
	if password := string(read(int(read(1)[0]))); user != "user" || password != "pass word" {
		_, _ = conn.Write([]byte{1, 1})
		return
	}
	_, _ = conn.Write([]byte{1, 0})
	host := string(read(int(read(5)[4])))
	port := read(2)
	p.through(net.JoinHostPort(host, strconv.Itoa(int(port[0])<<8|int(port[1]))), conn, "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
}

func TestUpstream(t *testing.T) {
	t.Parallel()
	port, _ := listen(t)
	server := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	r := &answers{table: map[string][][]string{
		"public.example.": {{"93.184.215.14"}},
		"inside.example.": {{"93.184.215.14", "10.0.0.1"}},
	}}
	policy := policyOf(t, "*:*", "-denied.example")
	for _, way := range []struct {
		scheme string
		handle func(*proxies, net.Conn)
	}{{"http", httpProxy}, {"socks5", socksProxy}} {
		p := startProxy(t, server, way.handle)
		dial := func(user, host string) (string, error) {
			t.Helper()
			up, err := network.ParseUpstream(way.scheme + "://" + user + p.addr)
			if err != nil {
				t.Fatal(err)
			}
			d := dialer(policy, r)
			d.Upstream = up
			conn, err := d.DialContext(t.Context(), host, 443)
			if err != nil {
				return "", err
			}
			defer func() { _ = conn.Close() }()
			if _, ok := conn.(*net.TCPConn); !ok {
				t.Errorf("the connection is a %T; want a *net.TCPConn, which ends and resets as itself", conn)
			}
			got, err := io.ReadAll(conn)
			return string(got), err
		}
		for _, host := range []string{"public.example", "only-the-proxy-knows.example"} {
			if got, err := dial("user:pass%20word@", host); got != "hello" || err != nil {
				t.Errorf("%s: %s says %q, %v", way.scheme, host, got, err)
			}
		}
		for _, host := range []string{"denied.example", "inside.example", "127.0.0.1", "localhost"} {
			if _, err := dial("user:pass%20word@", host); err == nil {
				t.Errorf("%s: %s is dialled", way.scheme, host)
			} else if _, ok := errors.AsType[*network.Denial](err); !ok {
				t.Errorf("%s: %s: %v; want a denial", way.scheme, host, err)
			}
		}
		_, err := dial("user:wrong@", "public.example")
		bad, ok := errors.AsType[*network.UpstreamError](err)
		if !ok || strings.Contains(bad.Error(), "wrong") || strings.Contains(bad.Error(), p.addr) {
			t.Errorf("%s: with a wrong password: %v; want an error of the proxy that names neither it nor its address", way.scheme, err)
		}
		p.mu.Lock()
		if got, want := strings.Join(p.asked, " "), "public.example:443 only-the-proxy-knows.example:443"; got != want {
			t.Errorf("%s: it was asked for %s; want %s", way.scheme, got, want)
		}
		p.mu.Unlock()
	}
}

func TestEnvironmentUpstream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, env string
		shown     string
		host      string
		port      int
		want      string
	}{
		{"none", "", "none", "a.example", 443, ""},
		{"https", "HTTPS_PROXY=http://u:p@proxy:3128", "http://proxy:3128", "a.example", 443, "proxy:3128"},
		{"https is not for port 80", "HTTPS_PROXY=http://proxy:3128", "http://proxy:3128", "a.example", 80, ""},
		{"other ports", "https_proxy=proxy:3128", "http://proxy:3128", "a.example", 22, "proxy:3128"},
		{"all", "ALL_PROXY=socks5://proxy:1080", "socks5://proxy:1080", "a.example", 80, "proxy:1080"},
		{"all, with another for http", "all_proxy=socks5h://s:1 http_proxy=http://h:2", "socks5h://s:1, http://h:2", "a.example", 80, "h:2"},
		{"excluded", "HTTPS_PROXY=http://proxy:3128 NO_PROXY=.example", "http://proxy:3128", "a.example", 443, ""},
		{"loopback", "HTTPS_PROXY=http://proxy:3128", "http://proxy:3128", "127.0.0.1", 443, ""},
	} {
		env := map[string]string{}
		for kv := range strings.FieldsSeq(tt.env) {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		up, err := network.EnvironmentUpstream(func(name string) string { return env[name] })
		if err != nil || up.String() != tt.shown {
			t.Errorf("%s: %v, %v; want %s", tt.name, up, err, tt.shown)
			continue
		}
		got := ""
		if p := up.For(tt.host, tt.port); p != nil {
			got = p.Host
		}
		if got != tt.want {
			t.Errorf("%s: For(%s, %d) = %q; want %q", tt.name, tt.host, tt.port, got, tt.want)
		}
	}
	for _, bad := range []string{"ftp://user:hunter2@proxy", "https://user:hunter2@proxy", "http://user:hunter2@", "%zz:hunter2"} {
		up, err := network.EnvironmentUpstream(func(name string) string { return map[string]string{"HTTPS_PROXY": bad}[name] })
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, %v; want an error without the password", bad, up, err)
		}
		if says := err != nil && strings.Contains(err.Error(), "most proxies take the same as http://HOST:PORT"); says != strings.HasPrefix(bad, "https:") {
			t.Errorf("%s: %v; want what to do for https:// alone", bad, err)
		}
	}
}
