package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// lab is a Gateway over sockets, with a resolver and servers of its own.
type lab struct {
	*sockets
	t       *testing.T
	gateway *gateway.Gateway
	hosts   hosts

	mu      sync.Mutex
	servers map[string]string // guarded by mu; "host:port" to the address of a server
	dialled []string          // guarded by mu
	records []gateway.Record  // guarded by mu
}

// proxyAddr is where a lab has its proxy.
var proxyAddr = netip.MustParseAddrPort("127.0.0.1:3128")

// hosts is a resolver of a table.
type hosts map[string][]netip.Addr

func (h hosts) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	addrs, ok := h[strings.TrimSuffix(host, ".")]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "192.0.2.53:53", IsNotFound: true}
	}
	return addrs, nil
}

func newLab(t *testing.T, limits gateway.Limits, allow ...string) *lab {
	t.Helper()
	return newLabWith(t, gateway.Options{Rules: policy(t, allow), Limits: limits})
}

func newLabWith(t *testing.T, opts gateway.Options) *lab {
	t.Helper()
	l := &lab{sockets: newSockets(t), t: t, hosts: hosts{}, servers: map[string]string{}}
	opts.Resolver, opts.Proxy = l.hosts, proxyAddr
	opts.Record = func(r gateway.Record) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.records = append(l.records, r)
	}
	l.gateway = gateway.New(opts)
	l.gateway.SetDial(l.dialServer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if err := l.gateway.Listen(ctx, l.sockets); err != nil {
		t.Fatal(err)
	}
	go func() { done <- l.gateway.Serve(ctx, l.sockets) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve() = %v; want that the context was cancelled", err)
		}
		l.gateway.Close()
	})
	return l
}

func policy(t *testing.T, allow []string, deny ...string) *network.Policy {
	t.Helper()
	p := &network.Policy{}
	for _, text := range allow {
		p.Allow = append(p.Allow, rule(t, text))
	}
	for _, text := range deny {
		p.Deny = append(p.Deny, rule(t, text))
	}
	return p
}

func rule(t *testing.T, text string) network.Rule {
	t.Helper()
	r, err := network.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dialServer connects to the server of a host and port, wherever it is.
func (l *lab) dialServer(ctx context.Context, host string, port int) (net.Conn, error) {
	at := net.JoinHostPort(host, fmt.Sprint(port))
	l.mu.Lock()
	addr := l.servers[at]
	l.dialled = append(l.dialled, at)
	l.mu.Unlock()
	if addr == "" {
		addr = "127.0.0.1:1"
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// host adds a host of a public address, and a server for one of its ports.
func (l *lab) host(name string, port int, server string) {
	l.hosts[name] = []netip.Addr{netip.MustParseAddr("93.184.215.14")}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers[net.JoinHostPort(name, fmt.Sprint(port))] = server
}

// lookup asks for the address of a name.
func (l *lab) lookup(name string, kind dnsmessage.Type) dnsmessage.Message {
	l.t.Helper()
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := q.Pack()
	if err != nil {
		l.t.Fatal(err)
	}
	answer, err := l.ask(l.t.Context(), packed)
	if err != nil {
		l.t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		l.t.Fatal(err)
	}
	return m
}

// address is the address of a name in the session.
func (l *lab) address(name string) netip.Addr {
	l.t.Helper()
	m := l.lookup(name, dnsmessage.TypeA)
	if len(m.Answers) != 1 {
		l.t.Fatalf("%s: %d answers, %v", name, len(m.Answers), m.RCode)
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
}

// connect looks a name up and connects to it, as a program of the session does.
func (l *lab) connect(name string, port uint16) *net.TCPConn {
	l.t.Helper()
	conn, err := l.dialName(name, port)
	if err != nil {
		l.t.Fatalf("%s:%d: %v", name, port, err)
	}
	return conn
}

// dialName is connect where a reset may come first.
func (l *lab) dialName(name string, port uint16) (*net.TCPConn, error) {
	l.t.Helper()
	conn, err := l.dial(netip.AddrPortFrom(l.address(name), port))
	if err != nil {
		return nil, err
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn, nil
}

// recorded waits until there is a record that fits.
func (l *lab) recorded(fits func(gateway.Record) bool) gateway.Record {
	l.t.Helper()
	for range 12_000 { // a minute
		l.mu.Lock()
		for _, r := range l.records {
			if fits(r) {
				l.mu.Unlock()
				return r
			}
		}
		l.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
	l.t.Fatalf("no such record among %+v", l.records)
	return gateway.Record{}
}

// echo is a server that returns what it is sent, and ends when the client does.
func echo(t *testing.T) string {
	t.Helper()
	return server(t, func(conn *net.TCPConn) {
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	})
}

func server(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go handle(conn.(*net.TCPConn))
		}
	}()
	return l.Addr().String()
}

func TestNames(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com", "*.example.org", "db.example.net:5432")
	l.host("example.com", 443, "")
	l.host("a.example.org", 443, "")
	l.host("db.example.net", 5432, "")
	l.hosts["inside.example.org"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	refused := netip.MustParseAddr("127.127.255.254")
	first := l.address("example.com")
	if again := l.address("EXAMPLE.com"); again != first || !netip.MustParsePrefix("127.64.0.0/10").Contains(first) {
		t.Errorf("example.com has the addresses %v and %v; want one of 127.64.0.0/10", first, again)
	}
	if other := l.address("a.example.org"); other == first || other == refused {
		t.Errorf("two names have the address %v", other)
	}
	for _, name := range []string{"example.net", "example.org.evil.com", "inside.example.org", "169.254.169.254.nip.io"} {
		if got := l.address(name); got != refused {
			t.Errorf("%s has the address %v; want %v, that of refused names", name, got, refused)
		}
	}
	for name, want := range map[string]dnsmessage.RCode{
		"missing.example.org": dnsmessage.RCodeNameError, "localhost": dnsmessage.RCodeNameError, "printer.local": dnsmessage.RCodeNameError,
		"metadata": dnsmessage.RCodeNameError,
	} {
		if m := l.lookup(name, dnsmessage.TypeA); m.RCode != want || len(m.Answers) != 0 {
			t.Errorf("%s: %v, %d answers; want %v", name, m.RCode, len(m.Answers), want)
		}
	}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeHTTPS, dnsmessage.TypeTXT, dnsmessage.TypeMX, dnsmessage.TypeALL} {
		if m := l.lookup("example.com", kind); m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 0 {
			t.Errorf("example.com %v: %v, %d answers; want none", kind, m.RCode, len(m.Answers))
		}
	}
	parts := first.As4()
	m := l.lookup(fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa", parts[3], parts[2], parts[1], parts[0]), dnsmessage.TypePTR)
	if len(m.Answers) != 1 || m.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String() != "example.com." {
		t.Errorf("the name of %v is %v", first, m.Answers)
	}
	r := l.recorded(func(r gateway.Record) bool { return r.Host == "example.net" })
	if r.Allowed || r.Kind != gateway.KindName || r.Reason != network.NoRule || r.Ask == "" {
		t.Errorf("the refusal is recorded as %+v", r)
	}
	if r := l.recorded(func(r gateway.Record) bool { return r.Host == "missing.example.org" }); strings.Contains(r.Err, "192.0.2.53") {
		t.Errorf("the record names this machine's name server: %+v", r)
	}
}

func TestPortTaken(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:5432")
	l.host("example.com", 5432, "")
	l.sockets.mu.Lock()
	l.taken[netip.MustParseAddrPort("127.64.0.1:5432")] = true
	l.sockets.mu.Unlock()
	if m := l.lookup("example.com", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("the answer is %v; want a failure: a connection would reach the session's own program", m)
	}
	l.recorded(func(r gateway.Record) bool { return r.Reason == gateway.ReasonPortTaken && r.Host == "example.com" })
}

func TestBadQuestions(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	two := dnsmessage.Message{Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("a.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
		{Name: dnsmessage.MustNewName("b.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
	}}
	packed, err := two.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := l.ask(t.Context(), packed)
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil || m.RCode != dnsmessage.RCodeFormatError {
		t.Errorf("two questions: %v, %v; want a format error", m.RCode, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, bad := range [][]byte{nil, {1}, bytes.Repeat([]byte{0xff}, 40), append(packed[:2:2], 0x84)} {
		if answer, err := l.ask(ctx, bad); err == nil {
			t.Errorf("%x is answered with %x", bad, answer)
		}
	}
}

func TestCarry(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:9000")
	l.host("example.com", 9000, echo(t))
	conn := l.connect("example.com", 9000)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes came back, %v", len(got), len(sent), err)
	}
	r := l.recorded(func(r gateway.Record) bool { return r.Kind == gateway.KindConnection })
	if !r.Allowed || r.Sent != int64(len(sent)) || r.Received != r.Sent || r.Rule == "" {
		t.Errorf("recorded as %+v", r)
	}
}

// A body that has no length ends with its connection. If the server breaks off, the client must see a
// reset: an end of the data would make the body look whole.
func TestCarryReset(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:9000")
	l.host("example.com", 9000, server(t, func(conn *net.TCPConn) {
		_, _ = conn.Write([]byte("half"))
		var b [1]byte
		_, _ = conn.Read(b[:])
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}))
	conn := l.connect("example.com", 9000)
	half := make([]byte, 4)
	if _, err := io.ReadFull(conn, half); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("x"))
	if n, err := conn.Read(half); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after the server's reset, Read() = %d, %v; want a reset", n, err)
	}
}

func TestSetRulesCuts(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:9000", "other.com:9000")
	at := echo(t)
	l.host("example.com", 9000, at)
	l.host("other.com", 9000, at)
	cut, kept := l.connect("example.com", 9000), l.connect("other.com", 9000)
	for _, conn := range []net.Conn{cut, kept} {
		ping(t, conn)
	}
	l.gateway.SetRules(policy(t, []string{"example.com:9000", "other.com:9000"}, "example.com"))
	if _, err := cut.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the connection to a host that is now denied: %v; want a reset", err)
	}
	ping(t, kept)
	if got := l.address("example.com"); got != netip.MustParseAddr("127.127.255.254") {
		t.Errorf("the denied name has the address %v", got)
	}
}

func ping(t *testing.T, conn net.Conn) {
	t.Helper()
	var b [4]byte
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		t.Fatal(err)
	}
}

func TestServerName(t *testing.T) {
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }))
	defer upstream.Close()
	l := newLab(t, gateway.Limits{}, "example.com")
	l.host("example.com", 443, upstream.Listener.Addr().String())
	for _, c := range []struct {
		name, sni string
		well      bool
		fragment  int
	}{
		{"its own", "example.com", true, 0},
		{"in capitals", "EXAMPLE.com", true, 0},
		{"in pieces of 7 bytes", "example.com", true, 7},
		{"none", "", true, 0},
		{"another", "evil.com", false, 0},
		{"another, in pieces", "evil.com", false, 7},
		{"one below", "a.example.com", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var conn net.Conn = l.connect("example.com", 443)
			if c.fragment > 0 {
				conn = pieces{conn, c.fragment}
			}
			client := tls.Client(conn, &tls.Config{ServerName: c.sni, InsecureSkipVerify: true}) //nolint:gosec // the server's name is not what is tested
			err := client.HandshakeContext(t.Context())
			if well := err == nil; well != c.well {
				t.Fatalf("Handshake() = %v; want that it succeeds: %v", err, c.well)
			}
		})
	}
	r := l.recorded(func(r gateway.Record) bool { return r.Reason == gateway.ReasonHost })
	if r.Allowed || r.Host != "example.com" {
		t.Errorf("recorded as %+v", r)
	}
}

// pieces writes few bytes at a time.
type pieces struct {
	net.Conn

	size int
}

func (p pieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var m int
		m, err = p.Conn.Write(b[:min(p.size, len(b))])
		n, b = n+m, b[m:]
	}
	return n, err
}

// refusedTLS is what a client is told whose name is refused.
func TestRefusedTLS(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	client := tls.Client(l.connect("evil.com", 443), &tls.Config{ServerName: "evil.com"})
	if err := client.HandshakeContext(t.Context()); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("Handshake() = %v; want the alert access denied", err)
	}
	r := l.recorded(func(r gateway.Record) bool { return r.Kind == gateway.KindConnection })
	if r.Host != "evil.com" || r.Port != 443 || r.Allowed || r.Ask == "" {
		t.Errorf("recorded as %+v", r)
	}
}

// A name that was refused when it was looked up, and is allowed since, works with the old answer too.
func TestAllowedMeanwhile(t *testing.T) {
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	l := newLab(t, gateway.Limits{}, "example.com")
	l.host("late.com", 443, upstream.Listener.Addr().String())
	conn := l.connect("late.com", 443)
	l.gateway.SetRules(policy(t, []string{"late.com"}))
	client := tls.Client(conn, &tls.Config{ServerName: "late.com", InsecureSkipVerify: true}) //nolint:gosec // the server's name is not what is tested
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	l := newLab(t, gateway.Limits{Connections: 2}, "example.com:9000")
	l.host("example.com", 9000, echo(t))
	first, second := l.connect("example.com", 9000), l.connect("example.com", 9000)
	ping(t, first)
	ping(t, second)
	third, err := l.dial(netip.AddrPortFrom(l.address("example.com"), 9000))
	if err == nil {
		_, err = third.Read(make([]byte, 1))
		_ = third.Close()
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a third connection: %v; want a reset", err)
	}
	l.recorded(func(r gateway.Record) bool { return r.Reason == gateway.ReasonLimit && r.Host == "example.com" })
	_ = first.Close()
	l.recorded(func(r gateway.Record) bool { return r.Allowed })
	ping(t, l.connect("example.com", 9000))
}

// web starts a server for example.com:80 that says what it was asked.
func (l *lab) web() {
	l.t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Alt-Svc", `h3=":443"`)
		fmt.Fprintf(w, "%s %s %s %q", r.Method, r.Host, r.RequestURI, body)
	}))
	l.t.Cleanup(upstream.Close)
	l.host("example.com", 80, upstream.Listener.Addr().String())
}

// request writes bytes to a connection and reads one response.
func request(t *testing.T, conn net.Conn, text string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

func TestWeb(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	l.web()
	conn := l.connect("example.com", 80)
	r, body := request(t, conn, "POST /a%20b?c=d HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\n\r\nabc")
	if want := `POST example.com /a%20b?c=d "abc"`; r.StatusCode != 200 || body != want {
		t.Errorf("the answer is %d %q; want %q", r.StatusCode, body, want)
	}
	if r.Header.Get("Alt-Svc") != "" {
		t.Error("the answer names another way to the host, which was not judged")
	}
	if r, body := request(t, conn, "GET /next HTTP/1.1\r\nHost: Example.com:80\r\n\r\n"); r.StatusCode != 200 || !strings.Contains(body, "/next") {
		t.Errorf("a second request: %d %q", r.StatusCode, body)
	}
	rec := l.recorded(func(r gateway.Record) bool { return r.Method == "POST" })
	if !rec.Allowed || rec.Status != 200 || rec.Sent != 3 || rec.Received == 0 || rec.Path != "/a%20b" || rec.Host != "example.com" || rec.Port != 80 {
		t.Errorf("recorded as %+v", rec)
	}
}

func TestWebRefuses(t *testing.T) {
	for _, c := range []struct {
		name, host, request string
		status              int
		says                string
	}{
		{"another host", "example.com", "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n", 421, "names another host"},
		{"another port", "example.com", "GET / HTTP/1.1\r\nHost: example.com:8080\r\n\r\n", 421, "names another host"},
		{"an absolute form for another host", "example.com", "GET http://evil.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 421, "names another host"},
		{"TRACE", "example.com", "TRACE / HTTP/1.1\r\nHost: example.com\r\n\r\n", 405, "TRACE"},
		{"CONNECT on the way to a host", "example.com", "CONNECT evil.com:443 HTTP/1.1\r\nHost: evil.com:443\r\n\r\n", 421, "names another host"},
		{"two hosts", "example.com", "GET / HTTP/1.1\r\nHost: example.com\r\nHost: evil.com\r\n\r\n", 400, ""},
		{"two lengths", "example.com", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, ""},
		{"not HTTP", "example.com", "SSH-2.0-x\r\n\r\n", 400, ""},
		{"a huge header", "example.com", "GET / HTTP/1.1\r\nHost: example.com\r\nX: " + strings.Repeat("x", 128<<10) + "\r\n\r\n", 431, ""},
		{"a refused name", "evil.com", "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n", 403, "ask the user to allow evil.com"},
		{"a refused name, with a body", "evil.com", "POST / HTTP/1.1\r\nHost: evil.com\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300000), 403, "ask the user to allow evil.com"},
		{"no name", "evil.com", "GET / HTTP/1.0\r\n\r\n", 421, ""},
		{"a request that only a rule for another path allows", "paths.com", "POST /a HTTP/1.1\r\nHost: paths.com\r\nContent-Length: 0\r\n\r\n", 403, ""},
		{"a path that servers read in two ways", "paths.com", "GET /a/%2e%2e%2fb HTTP/1.1\r\nHost: paths.com\r\n\r\n", 403, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, gateway.Limits{}, "example.com", "GET paths.com/a/*")
			l.web()
			l.hosts["paths.com"] = l.hosts["example.com"]
			r, body := request(t, l.connect(c.host, 80), c.request)
			if r.StatusCode != c.status || !strings.Contains(body, c.says) {
				t.Errorf("the answer is %d %q; want %d and %q", r.StatusCode, body, c.status, c.says)
			}
			if c.says != "" && r.Status != fmt.Sprintf("%d %s", c.status, strings.TrimSpace(body)) {
				t.Errorf("the phrase is %q and the body %q; want the same words: some clients show one, some the other", r.Status, body)
			}
			if strings.ContainsAny(body, "'\"`$;|&<>()\\") && c.says != "" {
				t.Errorf("a shell that is given %q would run it", body)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dialled) > 0 {
				t.Errorf("%v was dialled", l.dialled)
			}
		})
	}
}

// Smuggling: a body whose length is said in two ways must not hide a second request.
func TestWebSmuggling(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	var seen []string
	var mu sync.Mutex
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.Host+r.RequestURI)
	}))
	defer upstream.Close()
	l.host("example.com", 80, upstream.Listener.Addr().String())
	conn := l.connect("example.com", 80)
	hidden := "GET /hidden HTTP/1.1\r\nHost: evil.com\r\n\r\n"
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", len(hidden)+5, hidden)
	_ = conn.CloseWrite()
	_, _ = io.Copy(io.Discard, conn)
	mu.Lock()
	defer mu.Unlock()
	for _, s := range seen {
		if strings.Contains(s, "hidden") || strings.Contains(s, "evil") {
			t.Errorf("the server was asked %q", s)
		}
	}
}

func TestWebUnreachable(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	l.host("example.com", 80, "127.0.0.1:1")
	r, body := request(t, l.connect("example.com", 80), "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	if r.StatusCode != http.StatusBadGateway || !strings.Contains(body, "connection refused") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("the answer is %d %q; want 502 and why, without an address", r.StatusCode, body)
	}
	if rec := l.recorded(func(r gateway.Record) bool { return r.Status == 0 && r.Err != "" }); !rec.Allowed || rec.Err != "connection refused" {
		t.Errorf("recorded as %+v", rec)
	}
}

func TestProxy(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com", "other.com:9000")
	l.web()
	l.host("other.com", 9000, echo(t))
	dial := func() *net.TCPConn {
		conn, err := l.dial(proxyAddr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn
	}
	conn := dial()
	defer func() { _ = conn.Close() }()
	if r, body := request(t, conn, "GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n"); r.StatusCode != 200 || !strings.Contains(body, "GET example.com /a") {
		t.Errorf("the absolute form: %d %q", r.StatusCode, body)
	}
	if r, body := request(t, conn, "GET http://evil.com/a HTTP/1.1\r\nHost: evil.com\r\n\r\n"); r.StatusCode != 403 {
		t.Errorf("a refused host on the same connection: %d %q", r.StatusCode, body)
	}
	tunnel := dial()
	defer func() { _ = tunnel.Close() }()
	// The bytes behind the request are the tunnel's, although they came with it.
	if _, err := io.WriteString(tunnel, "CONNECT other.com:9000 HTTP/1.1\r\nHost: other.com:9000\r\n\r\nearly"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(tunnel)
	if r, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect}); err != nil || r.StatusCode != 200 {
		t.Fatalf("CONNECT: %v, %v", r, err)
	}
	early := make([]byte, 5)
	if _, err := io.ReadFull(in, early); err != nil || string(early) != "early" {
		t.Errorf("the echo is %q, %v", early, err)
	}
	for at, want := range map[string]string{
		"example.com:22": "403 ", "evil.com:443": "403 ", "169.254.169.254:80": "403 ", "[::1]:443": "403 ", "2130706433:80": "403 ",
		"other.com:9001": "403 ",
	} {
		c := dial()
		if r, body := request(t, c, "CONNECT "+at+" HTTP/1.1\r\nHost: "+at+"\r\n\r\n"); !strings.HasPrefix(r.Status, want) || !strings.HasPrefix(body, "blocked by sandbox policy: ") {
			t.Errorf("CONNECT %s: %q %q; want %s", at, r.Status, body, want)
		}
		_ = c.Close()
	}
}

// A resolver falls back to TCP for long answers, and some ask that way alone.
func TestNamesOverTCP(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	l.host("example.com", 443, "")
	conn, err := l.dial(netip.MustParseAddrPort("127.0.0.1:53"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	q := dnsmessage.Message{Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
	}}
	packed, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a connection may carry several
		if _, err := conn.Write(append([]byte{0, byte(len(packed))}, packed...)); err != nil {
			t.Fatal(err)
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, int(length[0])<<8|int(length[1]))
		if _, err := io.ReadFull(conn, answer); err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || len(m.Answers) != 1 {
			t.Errorf("%d answers, %v", len(m.Answers), err)
		}
	}
}

// What a tunnel has served is served again over the next: names keep their addresses.
func TestNextTunnel(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:9000")
	l.host("example.com", 9000, echo(t))
	before := l.address("example.com")
	next := newSockets(t)
	if err := l.gateway.Listen(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	conn, err := next.dial(netip.AddrPortFrom(before, 9000))
	if err != nil {
		t.Fatalf("over the next tunnel nothing listens at %v: %v", before, err)
	}
	_ = conn.Close()
}

// Where a rule is for some requests, bytes that are not read as requests do not pass: not inside TLS, and
// not through a tunnel to port 80.
func TestUnread(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "GET example.com/a/*")
	l.web()
	l.host("example.com", 443, echo(t))
	secure, err := l.dial(netip.AddrPortFrom(l.address("example.com"), 443))
	if err == nil { // else it was reset before the client had it
		_, err = secure.Read(make([]byte, 1))
		_ = secure.Close()
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a connection to port 443: %v; want a reset", err)
	}
	for _, at := range []string{"example.com:80", "example.com:443"} {
		conn, err := l.dial(proxyAddr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if r, body := request(t, conn, "CONNECT "+at+" HTTP/1.1\r\nHost: "+at+"\r\n\r\n"); r.StatusCode != http.StatusForbidden {
			t.Errorf("CONNECT %s: %q %q; want 403", at, r.Status, body)
		}
		_ = conn.Close()
	}
	if r, body := request(t, l.connect("example.com", 80), "GET /a/b HTTP/1.1\r\nHost: example.com\r\n\r\n"); r.StatusCode != http.StatusOK {
		t.Errorf("the request that the rule is for: %q %q", r.Status, body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dialled) != 1 {
		t.Errorf("%v was dialled; want one connection, for the request", l.dialled)
	}
}

// A connection that arrives while a Gateway is closed is reset, and nothing waits for it.
func TestCloseResets(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	l.web()
	conn := l.connect("example.com", 80)
	l.gateway.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives on")
	}
	late, err := l.dial(netip.AddrPortFrom(l.address("example.com"), 80))
	if err != nil {
		return // reset before it was there
	}
	_ = late.SetDeadline(time.Now().Add(20 * time.Second))
	var timeout net.Error
	if _, err := late.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("a connection after Close: %v; want that it ends at once", err)
	}
	_ = late.Close()
}
