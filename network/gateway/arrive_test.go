package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

var resolverAddr = netip.MustParseAddrPort("127.0.0.1:53")

// proxy connects to the session's proxy.
func (l *lab) proxy() *net.TCPConn {
	l.t.Helper()
	conn, err := l.dial(proxyAddr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// socksTo is what a client of SOCKS5 sends to connect to a host.
func socksTo(host string, port int) []byte {
	b := append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(host))}, host...)
	return binary.BigEndian.AppendUint16(b, uint16(port))
}

// socks connects to a host through SOCKS5, and returns the reply.
func (l *lab) socks(host string, port int) (*net.TCPConn, byte) {
	l.t.Helper()
	conn := l.proxy()
	_, _ = conn.Write(socksTo(host, port))
	reply := make([]byte, 12)
	if _, err := io.ReadFull(conn, reply); err != nil {
		l.t.Fatalf("SOCKS5 to %s:%d: %v", host, port, err)
	}
	return conn, reply[3]
}

// isReset reports whether a connection to the proxy is reset when it sends a request.
func (l *lab) isReset(request string) bool {
	conn, err := l.dial(proxyAddr)
	if err != nil {
		return true // before it was there
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err = io.WriteString(conn, request); err == nil { // a write that meets a reset takes its error
		_, err = io.Copy(io.Discard, conn)
	}
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// TestLimitCountsAll: a connection counts from its start, also while it waits for its first bytes or is
// dialled, so that no number of them waits at the same time.
func TestLimitCountsAll(t *testing.T) {
	for _, c := range []struct {
		name string
		open func(l *lab) *net.TCPConn
	}{
		{"nothing is said to the proxy", (*lab).proxy},
		{"half a SOCKS request", func(l *lab) *net.TCPConn {
			conn := l.proxy()
			_, _ = conn.Write([]byte{5, 1, 0, 5, 1})
			return conn
		}},
		{"half an HTTP request", func(l *lab) *net.TCPConn {
			conn := l.proxy()
			_, _ = io.WriteString(conn, "GET http://example.com/")
			return conn
		}},
		{"half the name of TLS to a refused host", func(l *lab) *net.TCPConn {
			conn := l.connect("evil.com", 443)
			_, _ = conn.Write([]byte{0x16, 3, 1, 0, 200})
			return conn
		}},
		{"a dial under way", func(l *lab) *net.TCPConn { return l.connect("example.com", 9000) }},
		{"questions over TCP", func(l *lab) *net.TCPConn {
			conn, err := l.dial(resolverAddr)
			if err != nil {
				l.t.Fatal(err)
			}
			l.t.Cleanup(func() { _ = conn.Close() })
			return conn
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, gateway.Limits{Connections: 3}, "example.com", "example.com:9000")
			l.host("example.com", 9000, "")
			l.gateway.SetDial(func(ctx context.Context, _ string, _ int) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			for range 3 {
				_ = c.open(l).SetDeadline(time.Now().Add(20 * time.Second))
			}
			for tries := 0; l.gateway.Open() < 3; tries++ { // they arrive by ways of their own
				if tries == 60_000 { // a minute
					t.Fatalf("%d connections count; want all 3", l.gateway.Open())
				}
				time.Sleep(time.Millisecond)
			}
			// A request would be answered, if it were let in.
			if !l.isReset("GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n") {
				t.Error("a fourth connection was let in; want a reset")
			}
			l.cutRecord("3 connections are open")
		})
	}
}

// TestRulesDuringDial: a connection that is dialled while the rules change to refuse it is not
// carried, however it was asked for.
func TestRulesDuringDial(t *testing.T) {
	for _, c := range []struct {
		name, rules string // the rules that come during the dial
		reason      network.Reason
	}{
		{"refused", "other.com", network.NoRule},
		{"to be read", "GET example.com:9000/a", gateway.ReasonUnread},
		{"allowed by another rule", "*:9000", ""},
	} {
		for way, open := range map[string]func(l *lab) *net.TCPConn{
			"its own address": func(l *lab) *net.TCPConn { return l.connect("example.com", 9000) },
			"SOCKS5": func(l *lab) *net.TCPConn {
				conn := l.proxy()
				_, _ = conn.Write(socksTo("example.com", 9000))
				return conn
			},
			"CONNECT": func(l *lab) *net.TCPConn {
				conn := l.proxy()
				_, _ = io.WriteString(conn, "CONNECT example.com:9000 HTTP/1.1\r\nHost: example.com:9000\r\n\r\n")
				return conn
			},
		} {
			t.Run(c.name+", "+way, func(t *testing.T) {
				l := newLab(t, gateway.Limits{}, "example.com:9000")
				l.host("example.com", 9000, server(t, func(conn *net.TCPConn) {
					_, _ = io.WriteString(conn, "secret of the host")
					_ = conn.Close()
				}))
				dials, release := make(chan bool), make(chan bool)
				l.gateway.SetDial(func(ctx context.Context, host string, port int) (net.Conn, error) {
					dials <- true
					<-release
					return l.dialServer(ctx, host, port)
				})
				conn := open(l)
				<-dials
				l.gateway.SetRules(policy(t, []string{c.rules}))
				close(release)
				got, _ := io.ReadAll(conn)
				_ = conn.Close()
				if carried := strings.Contains(string(got), "secret"); carried != (c.reason == "") {
					t.Errorf("the session read %q", got)
				}
				r := l.recorded(func(r gateway.Record) bool { return r.Kind == gateway.KindConnection })
				if r.Reason != c.reason || r.Allowed != (c.reason == "") {
					t.Errorf("recorded as %+v; want %q", r, c.reason)
				}
			})
		}
	}
}

// TestSOCKSRead: what a rule is for some requests of is read behind SOCKS5 too.
func TestSOCKSRead(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a/*")
	l.serve("example.com", tells)
	for path, want := range map[string]int{"/a/b": http.StatusOK, "/b": http.StatusForbidden} {
		conn, reply := l.socks("example.com", 443)
		if reply != 0 {
			t.Fatalf("the reply is %d; want 0", reply)
		}
		secure := tls.Client(conn, &tls.Config{ServerName: "example.com", RootCAs: l.session, MinVersion: tls.VersionTLS12})
		if r, body := request(t, secure, "GET "+path+" HTTP/1.1\r\nHost: example.com\r\n\r\n"); r.StatusCode != want {
			t.Errorf("%s: %s %q; want %d", path, r.Status, body, want)
		}
	}
	conn, _ := l.socks("example.com", 80)
	if r, body := request(t, conn, "GET /b HTTP/1.1\r\nHost: example.com\r\n\r\n"); r.StatusCode != http.StatusForbidden {
		t.Errorf("plain HTTP: %s %q; want 403", r.Status, body)
	}
}

// TestSOCKSAsk: a connection over SOCKS5 waits for the answer of the user, and is judged by it.
func TestSOCKSAsk(t *testing.T) {
	var l *lab
	asked := make(chan gateway.Question, 4)
	l = newLabWith(t, gateway.Options{Ask: func(_ context.Context, q gateway.Question) bool {
		asked <- q
		if q.Host == "no.com" {
			return false
		}
		l.gateway.SetRules(policy(t, []string{q.Rule}))
		return true
	}})
	l.host("example.com", 9000, echo(t))
	conn, reply := l.socks("example.com", 9000)
	if q := <-asked; reply != 0 || q.Rule != "example.com:9000" {
		t.Fatalf("the reply is %d after %+v", reply, q)
	}
	ping(t, conn)
	if _, reply := l.socks("no.com", 443); reply != 2 {
		t.Errorf("after a no the reply is %d; want 2, not allowed", reply)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.dialled, []string{"example.com:9000"}) {
		t.Errorf("%q was dialled", l.dialled)
	}
}

// TestSOCKSPieces: the bytes of a request may come one by one, and a request that ends before it is
// whole is for nothing.
func TestSOCKSPieces(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:9000")
	l.host("example.com", 9000, echo(t))
	whole := socksTo("example.com", 9000)
	conn := l.proxy()
	for i := range whole {
		if _, err := conn.Write(whole[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	reply := make([]byte, 12)
	if _, err := io.ReadFull(conn, reply); err != nil || reply[3] != 0 {
		t.Fatalf("the reply is %v, %v", reply, err)
	}
	ping(t, conn)
	for end := 1; end < len(whole); end++ {
		conn := l.proxy()
		_, _ = conn.Write(whole[:end])
		_ = conn.CloseWrite()
		got, err := io.ReadAll(conn)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			t.Errorf("after %d of %d bytes nothing ends", end, len(whole))
		}
		if len(got) > 3 && got[3] == 0 {
			t.Errorf("after %d of %d bytes it says %v, a connection", end, len(whole), got)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dialled) != 1 {
		t.Errorf("%q was dialled; want one connection", l.dialled)
	}
}

// TestSOCKSUnreachable: a host that does not answer is not one that is refused.
func TestSOCKSUnreachable(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:9000")
	l.host("example.com", 9000, "127.0.0.1:1")
	conn, reply := l.socks("example.com", 9000)
	if rest, err := io.ReadAll(conn); reply != 4 || len(rest) > 0 || err != nil {
		t.Errorf("the reply is %d, then %q, %v; want 4, host unreachable, and the end", reply, rest, err)
	}
	if r := l.recorded(func(r gateway.Record) bool { return r.Err != "" }); !r.Allowed || r.Err != "connection refused" {
		t.Errorf("recorded as %+v", r)
	}
}

// TestQuestionsOverTCPAreLimited: questions over TCP have the rate of those in datagrams.
func TestQuestionsOverTCPAreLimited(t *testing.T) {
	l := newLab(t, gateway.Limits{})
	conn, err := l.dial(resolverAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName("x.local."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	packed, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	one := append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
	const flood, burst, rate = 6000, 5000, 1000
	start := time.Now()
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(slices.Repeat(one, flood))
		sent <- err
	}()
	in := bufio.NewReader(conn)
	for i := range flood {
		var length [2]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			t.Fatalf("answer %d: %v", i+1, err)
		}
		if _, err := io.CopyN(io.Discard, in, int64(binary.BigEndian.Uint16(length[:]))); err != nil {
			t.Fatal(err)
		}
	}
	if took, least := time.Since(start), time.Second*(flood-burst)/rate*9/10; took < least {
		t.Errorf("%d questions were answered within %v; want at least %v", flood, took, least)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestLimitsCheck(t *testing.T) {
	of := func(r gateway.RuleLimit) gateway.Limits { return gateway.Limits{Rules: []gateway.RuleLimit{r}} }
	some := rule(t, "example.com")
	for _, tt := range []struct {
		limits gateway.Limits
		want   string // "": they make sense
	}{
		{gateway.Limits{}, ""},
		{gateway.Limits{Connections: 1, Rate: 0.5, Burst: 1, Bytes: 1, Idle: 100 * time.Millisecond, Total: 1, Header: 1 << 20, Body: 1}, ""},
		{gateway.Limits{Connections: -1}, "negative"},
		{gateway.Limits{Rate: -0.1}, "negative"},
		{gateway.Limits{Burst: -1}, "negative"},
		{gateway.Limits{Bytes: -1}, "negative"},
		{gateway.Limits{Idle: -time.Second}, "negative"},
		{gateway.Limits{Total: -1}, "negative"},
		{gateway.Limits{Header: -1}, "negative"},
		{gateway.Limits{Body: -1}, "negative"},
		{gateway.Limits{Header: 1<<20 + 1}, "1 MiB"},
		{gateway.Limits{Idle: 99 * time.Millisecond}, "at least 100ms"},
		{of(gateway.RuleLimit{Rule: some, Bytes: 1, Rate: 0.1}), ""},
		{of(gateway.RuleLimit{Rule: some, Bytes: -1}), "the rule example.com must not be negative"},
		{of(gateway.RuleLimit{Rule: some, Rate: -1}), "the rule example.com must not be negative"},
		{of(gateway.RuleLimit{Bytes: 1}), "no rule"},
	} {
		err := tt.limits.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Check(%+v) = %v; want %q", tt.limits, err, tt.want)
		}
	}
}

// TestNamesGivenUp: a session that asks for ever more names loses the address of the one it has not
// asked for the longest, and what listened there is closed.
func TestNamesGivenUp(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "*.example.com:9000")
	const most = 1024
	name := func(i int) string { return fmt.Sprintf("n%d.example.com", i) }
	for i := range most + 2 {
		l.hosts[name(i)] = l.hosts["example.com"]
		l.host(name(i), 9000, "")
	}
	at := map[string]bool{}
	first := l.address(name(0))
	for i := range most {
		at[l.address(name(i)).String()] = true
	}
	if len(at) != most {
		t.Fatalf("%d names have %d addresses", most, len(at))
	}
	second := l.address(name(1))
	l.address(name(0)) // asked for again: the second is the oldest by now
	for i := 2; i < most; i++ {
		l.address(name(i))
	}
	l.address(name(1))
	l.address(name(0))
	oldest := l.address(name(2))
	l.address(name(2)) // name(3) is the oldest
	third := l.address(name(most))
	if at[third.String()] {
		t.Errorf("a new name has the address %v of another", third)
	}
	if again := l.address(name(0)); again != first {
		t.Errorf("%s had %v and has %v", name(0), first, again)
	}
	if again := l.address(name(1)); again != second {
		t.Errorf("%s had %v and has %v", name(1), second, again)
	}
	if again := l.address(name(2)); again != oldest {
		t.Errorf("%s had %v and has %v", name(2), oldest, again)
	}
	l.sockets.mu.Lock()
	listening := len(l.listeners)
	l.sockets.mu.Unlock()
	if want := most + 4; listening != want { // and the resolver, the proxy, and refused names at two ports
		t.Errorf("the session listens at %d addresses; want %d", listening, want)
	}
}
