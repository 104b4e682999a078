package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/authority"
)

// pipeConn is a connection of a session within the bubble of a test.
type pipeConn struct {
	net.Conn

	at netip.AddrPort
}

func (c *pipeConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.at) }
func (c *pipeConn) CloseWrite() error   { return c.Close() }
func (c *pipeConn) Reset()              { _ = c.Close() }

// noHosts is a resolver that knows no name.
type noHosts struct{}

func (noHosts) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return nil, errors.New("no such host")
}

// A client that sends a byte now and then does not hold its connection: the time is for the whole of
// what has to come, and does not begin again with each byte.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	const pause = 7 * time.Second
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + string(make([]byte, 500))
	proxy := netip.MustParseAddrPort("127.0.0.1:3128")
	at := func(addr netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(addr, port) }
	for _, tt := range []struct {
		name   string
		at     netip.AddrPort
		whole  string // comes at once
		slowly string
		most   time.Duration
	}{
		{"the line of a request", at(firstAddr, httpPort), "", "GET /a-path-that-is-long-enough HTTP/1.1\r\n", helloTime},
		{"the header of a request", at(firstAddr, httpPort), "GET / HTTP/1.1\r\n", "X-Header: and so on\r\n\r\n", helloTime},
		{"the start of TLS that is read", at(firstAddr, httpsPort), "", hello, 2 * helloTime},
		{"the rest of TLS that is read", at(firstAddr, httpsPort), hello[:200], hello[200:], 2 * helloTime},
		{"the start of a request where TLS is read", at(firstAddr, httpsPort), "", "DELETE-AND-SO-ON / HTTP/1.1\r\n", helloTime},
		{"the start of TLS with a refused name", at(refusedAddr, httpsPort), "", hello, 2 * helloTime},
		{"a request for a refused name", at(refusedAddr, httpPort), "", "GET /a-path-that-is-long-enough HTTP/1.1\r\n", helloTime},
		{"a CONNECT request", proxy, "CONNECT a.test:443 ", "HTTP/1.1\r\nHost: a.test:443\r\n\r\n", 2 * helloTime},
		{"TLS in a tunnel", proxy, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", hello, 2 * helloTime},
		{"SOCKS", proxy, "\x05", "\x02\x00\x01\x05\x01\x00\x03\x06a.test\x01\xbb", helloTime},
		{"a question over TCP", at(resolverAddr, dnsPort), "\x00", "\x20" + string(make([]byte, 32)), lookupTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				signs, err := authority.New("test")
				if err != nil {
					t.Fatal(err)
				}
				rule, err := network.ParseRule("GET a.test/a")
				if err != nil {
					t.Fatal(err)
				}
				g := New(Options{Rules: &network.Policy{Allow: []network.Rule{rule}}, Resolver: noHosts{}, Authority: signs, Proxy: proxy})
				g.names.add("a.test")
				ctx, cancel := context.WithCancel(t.Context())
				program, inside := net.Pipe()
				start := time.Now()
				go g.handle(ctx, g.metered(&pipeConn{inside, tt.at}), tt.at)
				ended := make(chan time.Duration, 1)
				go func() { // an answer, and the end
					buf := make([]byte, 4096)
					for {
						if _, err := program.Read(buf); err != nil {
							ended <- time.Since(start)
							return
						}
					}
				}()
				_, _ = program.Write([]byte(tt.whole))
				for i := range len(tt.slowly) {
					time.Sleep(pause)
					if _, err := program.Write([]byte{tt.slowly[i]}); err != nil {
						break
					}
				}
				_ = program.SetDeadline(time.Now().Add(time.Hour))
				if took := <-ended; took > tt.most+drainTime {
					t.Errorf("the connection was open for %v; want %v at most", took, tt.most)
				}
				_ = program.Close()
				cancel()
				g.Close()
				synctest.Wait()
				if n := g.open.len(); n != 0 {
					t.Errorf("%d connections count as open", n)
				}
			})
		})
	}
}
