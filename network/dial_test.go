package network_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// resolve returns the path that a server reaches which decodes a target and then resolves its
// dot segments.
func resolve(tb testing.TB, target string) string {
	tb.Helper()
	raw, _, _ := strings.Cut(target, "?")
	decoded, err := url.PathUnescape(raw)
	if err != nil {
		tb.Fatalf("%q does not decode: %v", target, err)
	}
	end := ""
	if strings.HasSuffix(decoded, "/") {
		end = "/"
	}
	return path.Clean(strings.ReplaceAll(decoded, `\`, "/")) + end
}

// answers resolves names from a table, each look-up with the next of its answers.
type answers struct {
	lookups atomic.Int32
	table   map[string][][]string
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n := int(a.lookups.Add(1)) - 1
	all := a.table[host]
	if len(all) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var addrs []netip.Addr
	for _, text := range all[min(n, len(all)-1)] {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs, nil
}

// listen opens a port on the loopback whose connections say hello, and counts them.
func listen(t *testing.T) (port int, accepted *atomic.Int32) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	count := &atomic.Int32{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).Port, count
}

func dialer(p *network.Policy, r network.Resolver) *network.Dialer {
	return &network.Dialer{Policy: func() *network.Policy { return p }, Resolver: r, Timeout: 5 * time.Second}
}

func TestDial(t *testing.T) {
	t.Parallel()
	port, _ := listen(t)
	r := &answers{table: map[string][][]string{"host.example.": {{"::ffff:127.0.0.1"}}}}
	p := policyOf(t, "host.example:*", "127.0.0.1:*")
	var asked atomic.Int32
	p.Own = func() ([]netip.Addr, error) { asked.Add(1); return nil, nil }
	conn, err := dialer(p, r).DialContext(t.Context(), "HOST.example.", port)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if got, err := io.ReadAll(conn); string(got) != "hello" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if n := r.lookups.Load(); n != 1 {
		t.Errorf("%d look-ups; want 1", n)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("this machine's addresses were read %d times; want 1", n)
	}
}

// TestDialRefused: nothing is sent to what is denied, by whatever name or answer it is reached.
func TestDialRefused(t *testing.T) {
	t.Parallel()
	port, accepted := listen(t)
	r := &answers{table: map[string][][]string{
		"rebind.example.": {{"127.0.0.1"}},
		"mapped.example.": {{"::ffff:127.0.0.1", "64:ff9b::7f00:1"}},
		"none.example.":   {{}},
	}}
	p := policyOf(t, "*:*", "0.0.0.0/0:*", "::/0:*", "-denied.example")
	for _, tt := range []struct {
		host string
		want network.Reason // "": an error of the resolver
	}{
		{"rebind.example", network.LocalAddress},
		{"mapped.example", network.LocalAddress},
		{"none.example", ""},
		{"unknown.example", ""},
		{"denied.example", network.RuleDenies},
		{"DENIED.example.", network.RuleDenies},
		{"localhost", network.LocalName},
		{"127.0.0.1", network.LocalAddress},
		{"0x7f.1", network.LocalAddress},
		{"2130706433", network.LocalAddress},
		{"[::ffff:127.0.0.1]", network.LocalAddress},
		{"0", network.LocalAddress},
	} {
		conn, err := dialer(p, r).DialContext(t.Context(), tt.host, port)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s: connected", tt.host)
			continue
		}
		denial, ok := errors.AsType[*network.Denial](err)
		if ok != (tt.want != "") || ok && denial.Verdict.Reason != tt.want {
			t.Errorf("%s: %v; want %q", tt.host, err, tt.want)
		}
	}
	if n := accepted.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// TestDialOnlyAllowed: of several addresses only those that are allowed are dialled, and a
// second answer of the resolver, as DNS rebinding gives, is never asked for.
func TestDialOnlyAllowed(t *testing.T) {
	t.Parallel()
	port, _ := listen(t)
	r := &answers{table: map[string][][]string{"host.example.": {{"10.255.255.1", "127.0.0.1"}, {"10.255.255.1"}}}}
	p := policyOf(t, "host.example:*", "127.0.0.1:*")
	start := time.Now()
	conn, err := dialer(p, r).DialContext(t.Context(), "host.example", port)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if got := conn.RemoteAddr().(*net.TCPAddr).IP.String(); got != "127.0.0.1" || r.lookups.Load() != 1 {
		t.Errorf("connected to %s after %d look-ups and %v", got, r.lookups.Load(), time.Since(start))
	}
}

// TestDialNext: where an address does not answer the next one is tried.
func TestDialNext(t *testing.T) {
	t.Parallel()
	port, _ := listen(t)
	r := &answers{table: map[string][][]string{"host.example.": {{"127.0.0.2", "127.0.0.1"}}}}
	p := policyOf(t, "host.example:*", "127.0.0.0/8:*")
	conn, err := dialer(p, r).DialContext(t.Context(), "host.example", port) // refused at 127.0.0.2
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
