package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// cutRecord waits for the record of a connection that a limit has cut or refused.
func (l *lab) cutRecord(words string) {
	l.t.Helper()
	r := l.recorded(func(r gateway.Record) bool { return r.Reason == gateway.ReasonLimit })
	if r.Allowed || !strings.Contains(r.Why, words) || r.Ask != "" {
		l.t.Errorf("recorded as %+v; want that it names %q", r, words)
	}
}

// wantReset reads to the end of a connection, which must be a reset.
func wantReset(t *testing.T, conn net.Conn) (n int64) {
	t.Helper()
	n, err := io.Copy(io.Discard, conn)
	timeout, isNet := errors.AsType[net.Error](err)
	if err == nil || isNet && timeout.Timeout() {
		t.Errorf("the connection ended with %v after %d bytes; want a reset", err, n)
	}
	return n
}

func TestLimitOfBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits gateway.Limits
		words  string
	}{
		{"of the session", gateway.Limits{Bytes: 1 << 20}, "the limit of the session is 1048576 bytes"},
		{"of a rule", gateway.Limits{Rules: []gateway.RuleLimit{{Rule: rule(t, "example.com:9000"), Bytes: 1 << 20}}}, "the limit of the rule example.com:9000 is 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, c.limits, "example.com:9000", "other.com:9000")
			at := server(t, func(conn *net.TCPConn) {
				_, _ = conn.Read(make([]byte, 1)) // no reset before the client knows that it is connected
				_, _ = io.Copy(conn, endless{})
				_ = conn.Close()
			})
			l.host("example.com", 9000, at)
			l.host("other.com", 9000, echo(t))
			first := l.connect("example.com", 9000)
			_, _ = first.Write([]byte("x"))
			if n := wantReset(t, first); n > 1<<20 {
				t.Errorf("%d bytes arrived; want no more than the limit", n)
			}
			l.cutRecord(c.words)
			second, err := l.dial(addrPort(l, "example.com", 9000))
			if err == nil {
				wantReset(t, second)
				_ = second.Close()
			}
			if c.limits.Bytes == 0 { // a rule's limit holds for this rule alone
				ping(t, l.connect("other.com", 9000))
			}
		})
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestLimitOfTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits gateway.Limits
		words  string
	}{
		{"idle", gateway.Limits{Idle: 100 * time.Millisecond}, "carried nothing for 100ms"},
		{"total", gateway.Limits{Total: 100 * time.Millisecond}, "a connection's life is 100ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, c.limits, "example.com:9000")
			l.host("example.com", 9000, echo(t))
			conn, err := l.dialName("example.com", 9000)
			if err == nil { // else it was reset before the client had it
				wantReset(t, conn)
			}
			l.cutRecord(c.words)
		})
	}
}

// A rule's rate is for requests too, also for those of one connection.
func TestLimitOfRequests(t *testing.T) {
	l := newLab(t, gateway.Limits{Body: 10, Header: 4 << 10, Rules: []gateway.RuleLimit{{Rule: rule(t, "slow.com"), Rate: 0.001}}}, "example.com", "slow.com")
	l.web()
	l.hosts["slow.com"] = l.hosts["example.com"]
	l.mu.Lock()
	l.servers["slow.com:80"] = l.servers["example.com:80"]
	l.mu.Unlock()
	conn := l.connect("slow.com", 80)
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		r, body := request(t, conn, "GET / HTTP/1.1\r\nHost: slow.com\r\n\r\n")
		if r.StatusCode != want {
			t.Errorf("request %d: %s %q; want %d", i+1, r.Status, body, want)
		}
	}
	l.cutRecord("the limit of the rule slow.com is 0.001 new connections and requests a second")
	for name, text := range map[string]string{
		"a length": "Content-Length: 11\r\n\r\n01234567890",
		"chunks":   "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n",
	} {
		r, body := request(t, l.connect("example.com", 80), "POST / HTTP/1.1\r\nHost: example.com\r\n"+text)
		if r.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a long body with %s: %s %q; want 413", name, r.Status, body)
		}
	}
	if r, body := request(t, l.connect("example.com", 80), "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\n0123456789"); r.StatusCode != http.StatusOK {
		t.Errorf("a body as long as the limit: %s %q", r.Status, body)
	}
	if r, _ := request(t, l.connect("example.com", 80), "GET / HTTP/1.1\r\nHost: example.com\r\nX: "+strings.Repeat("x", 20<<10)+"\r\n\r\n"); r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header: %s; want 431", r.Status)
	}
}

// A flood of refusals becomes a bounded number of records, which together stand for all.
func TestFloodOfRefusals(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	const flood = 2000
	for i := range flood {
		l.address(fmt.Sprintf("x%d.evil.com", i))
	}
	l.gateway.Flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, r := range l.records {
		total += max(1, r.Count)
	}
	if total != flood || len(l.records) > flood/2 {
		t.Errorf("%d records stand for %d refusals; want far fewer that stand for %d", len(l.records), total, flood)
	}
}

func TestSOCKS(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com:9000")
	l.host("example.com", 9000, echo(t))
	name := func(host string, port int) []byte {
		b := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
		return append(b, byte(port>>8), byte(port))
	}
	for _, c := range []struct {
		name    string
		hello   []byte
		request []byte
		want    byte
	}{
		{"an allowed name", []byte{5, 1, 0}, name("example.com", 9000), 0},
		{"the same in capitals, with a dot", []byte{5, 2, 2, 0}, name("EXAMPLE.com.", 9000), 0},
		{"another port", []byte{5, 1, 0}, name("example.com", 22), 2},
		{"another name", []byte{5, 1, 0}, name("evil.com", 443), 2},
		{"an address", []byte{5, 1, 0}, []byte{5, 1, 0, 1, 169, 254, 169, 254, 0, 80}, 2},
		{"an address of IPv6", []byte{5, 1, 0}, append(append([]byte{5, 1, 0, 4}, make([]byte, 15)...), 1, 0, 80), 2},
		{"a name that is an address", []byte{5, 1, 0}, name("0x7f.1", 80), 2},
		{"a name that is none", []byte{5, 1, 0}, name("a b\r\n", 80), 2},
		{"BIND", []byte{5, 1, 0}, []byte{5, 2, 0, 1, 1, 2, 3, 4, 0, 80}, 7},
		{"UDP", []byte{5, 1, 0}, []byte{5, 3, 0, 1, 1, 2, 3, 4, 0, 80}, 7},
		{"another kind of address", []byte{5, 1, 0}, []byte{5, 1, 0, 9, 1, 2}, 8},
		{"no name", []byte{5, 1, 0}, []byte{5, 1, 0, 3, 0, 0, 80}, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := l.dial(proxyAddr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = conn.Write(append(bytes.Clone(c.hello), c.request...))
			got := make([]byte, 12)
			if _, err := io.ReadFull(conn, got); err != nil || got[0] != 5 || got[1] != 0 || got[2] != 5 || got[3] != c.want {
				t.Fatalf("the answer is %v, %v; want the reply %d", got, err, c.want)
			}
			if c.want == 0 {
				ping(t, conn)
			}
		})
	}
	conn, err := l.dial(proxyAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte{5, 1, 2})
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, []byte{5, 0xff}) {
		t.Errorf("without a method that it has the answer is %v, %v; want none acceptable", got, err)
	}
	if r := l.recorded(func(r gateway.Record) bool { return r.Host == "evil.com" }); r.Reason != network.NoRule || r.Ask != "evil.com:443" {
		t.Errorf("recorded as %+v", r)
	}
}

func addrPort(l *lab, name string, port uint16) netip.AddrPort {
	l.t.Helper()
	return netip.AddrPortFrom(l.address(name), port)
}
