package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// listens reports whether the session listens at an address.
func (l *lab) listens(at string) bool {
	l.sockets.mu.Lock()
	defer l.sockets.mu.Unlock()
	return l.sockets.listeners[netip.MustParseAddrPort(at)] != nil
}

// A service of this machine that a rule names is at the same address in the session.
func TestLoopback(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "127.0.0.1:5432", "127.0.0.2")
	l.host("127.0.0.1", 5432, echo(t))
	conn, err := l.dial(netip.MustParseAddrPort("127.0.0.1:5432"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, "word"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "word" {
		t.Errorf("the answer is %q, %v; want word", got, err)
	}
	for _, at := range []string{"127.0.0.2:80", "127.0.0.2:443"} {
		if !l.listens(at) {
			t.Errorf("the session does not listen at %s", at)
		}
	}

	// Without the rule it is cut, and no new one is possible.
	l.gateway.SetRules(policy(t, []string{"127.0.0.2"}))
	if _, err := io.ReadFull(conn, got); err == nil {
		t.Errorf("the open connection goes on with %q", got)
	}
	if l.listens("127.0.0.1:5432") {
		t.Error("the session still listens")
	}
	r := l.recorded(func(r gateway.Record) bool { return r.Host == "127.0.0.1" && r.Port == 5432 })
	if !r.Allowed || r.Rule != "127.0.0.1:5432" {
		t.Errorf("the record is %+v", r)
	}
}

// Where a program of the session listens already, connections do not get out, and the gateway says so. So
// it does at its own addresses.
func TestLoopbackTaken(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	at := netip.MustParseAddrPort("127.0.0.1:5432")
	l.sockets.mu.Lock()
	l.taken[at] = true
	l.sockets.mu.Unlock()
	own := []string{"127.0.0.1:53", "127.0.0.1:3128", "127.64.0.1:80", "127.127.255.254:443"}
	l.gateway.SetRules(policy(t, append([]string{"127.0.0.1:5432"}, own...)))
	want := []netip.AddrPort{at}
	for _, text := range own {
		want = append(want, netip.MustParseAddrPort(text))
	}
	if got := l.gateway.Taken(); !slices.Equal(got, want) {
		t.Errorf("Taken() = %v; want %v", got, want)
	}
	for _, one := range want {
		l.recorded(func(r gateway.Record) bool {
			return r.Reason == gateway.ReasonPortTaken && r.Host == one.Addr().String() && r.Port == int(one.Port())
		})
	}
	l.sockets.mu.Lock()
	delete(l.taken, at)
	l.sockets.mu.Unlock()
	l.gateway.SetRules(policy(t, []string{"127.0.0.1:5432"}))
	if got := l.gateway.Taken(); len(got) > 0 || !l.listens("127.0.0.1:5432") {
		t.Errorf("Taken() = %v once the port is free; want none", got)
	}
}

// localhost is a name of 127.0.0.1 inside, and of no other address.
func TestLoopbackName(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	t.Cleanup(server.Close)
	l := newLab(t, gateway.Limits{}, "127.0.0.1", "127.0.0.2", "example.com")
	for _, at := range []string{"127.0.0.1", "127.0.0.2"} {
		l.host(at, 80, strings.TrimPrefix(server.URL, "http://"))
	}
	l.host("example.com", 80, strings.TrimPrefix(server.URL, "http://"))
	for _, tt := range []struct{ at, host, status, body string }{
		{"127.0.0.1:80", "localhost", "200", "127.0.0.1"},
		{"127.0.0.1:80", "LOCALHOST:80", "200", "127.0.0.1"},
		{"127.0.0.1:80", "127.0.0.1", "200", "127.0.0.1"},
		{"127.0.0.1:80", "localhost:81", "421", ""},
		{"127.0.0.1:80", "example.com", "421", ""},
		{"127.0.0.2:80", "localhost", "421", ""},
		{l.address("example.com").String() + ":80", "localhost", "421", ""},
	} {
		conn, err := l.dial(netip.MustParseAddrPort(tt.at))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tt.host)
		all, err := io.ReadAll(conn)
		if _, body, _ := strings.Cut(string(all), "\r\n\r\n"); !strings.HasPrefix(string(all), "HTTP/1.1 "+tt.status) || tt.body != "" && body != tt.body {
			t.Errorf("%s, Host %s: %q, %v; want %s, %q", tt.at, tt.host, all, err, tt.status, tt.body)
		}
	}
}
