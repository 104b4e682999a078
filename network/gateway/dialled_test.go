package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxbash/sandboxbash/network"
)

// changing is a resolver whose answer is another one each time.
type changing struct {
	addrs []netip.Addr
	asked int
}

func (c *changing) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	c.asked++
	if c.asked > len(c.addrs) {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return c.addrs[c.asked-1 : c.asked], nil
}

// deaf is a tunnel that listens everywhere, and that nothing comes from.
type deaf struct{ Tunnel }

func (deaf) Listen(context.Context, netip.AddrPort) error { return nil }

// askName asks for the address of example.com, which must be answered.
func askName(t *testing.T, g *Gateway) {
	t.Helper()
	question := dnsmessage.Question{Name: dnsmessage.MustNewName("example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	var reply dnsmessage.Message
	if g.resolve(t.Context(), question, &reply); reply.RCode != dnsmessage.RCodeSuccess || len(reply.Answers) != 1 {
		t.Fatalf("the answer is %+v", reply)
	}
}

// A dial uses the answer to the question before it for a short time, and its own answer likewise.
func TestDialResolver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resolver := &changing{addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}}
		rules := &network.Policy{Allow: []network.Rule{mustRule(t, "example.com"), mustRule(t, "192.0.2.0/24")}}
		g := New(Options{Rules: rules, Resolver: resolver})
		defer g.Close()
		if err := g.Listen(t.Context(), deaf{}); err != nil {
			t.Fatal(err)
		}
		dialled := func() string {
			addrs, err := dialResolver{g}.LookupNetIP(t.Context(), "ip", "example.com.")
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(addrs)
		}
		askName(t, g)
		for _, step := range []struct {
			pause time.Duration
			want  string
			asked int
		}{
			{0, "[192.0.2.1]", 1},
			{dialKept, "[192.0.2.1]", 1},
			{time.Millisecond, "[192.0.2.2]", 2},
			{dialKept, "[192.0.2.2]", 2},
			{dialKept, "[192.0.2.3]", 3},
			{2 * dialKept, (&net.DNSError{Err: "no such host", IsNotFound: true}).Error(), 4},
		} {
			time.Sleep(step.pause)
			if got := dialled(); got != step.want || resolver.asked != step.asked {
				t.Fatalf("%v later %s is dialled, and the resolver was asked %d times; want %s, %d", step.pause, got, resolver.asked, step.want, step.asked)
			}
		}
		// A name that no question has come for is looked up each time.
		resolver.asked = 0
		for want := 1; want <= 2; want++ {
			if _, err := (dialResolver{g}).LookupNetIP(t.Context(), "ip", "proxied.example."); err != nil || resolver.asked != want {
				t.Errorf("the resolver was asked %d times, %v; want %d", resolver.asked, err, want)
			}
		}
	})
}

// What the rules say of an address counts at each dial, however old the answer is that it comes from.
func TestDialJudgesKept(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	resolver := &changing{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	name, address := mustRule(t, fmt.Sprintf("example.com:%d", port)), mustRule(t, fmt.Sprintf("127.0.0.1:%d", port))
	g := New(Options{Rules: &network.Policy{Allow: []network.Rule{name, address}}, Resolver: resolver})
	defer g.Close()
	if err := g.Listen(t.Context(), deaf{}); err != nil {
		t.Fatal(err)
	}
	askName(t, g)
	conn, err := g.dialer(t.Context(), "example.com", port)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	g.SetRules(&network.Policy{Allow: []network.Rule{name}})
	if _, err := g.dialer(t.Context(), "example.com", port); !isDenial(err) {
		t.Errorf("once the address is not allowed any more: %v; want a denial", err)
	}
	if resolver.asked != 1 {
		t.Errorf("the resolver was asked %d times; want once", resolver.asked)
	}
}

func isDenial(err error) bool {
	_, ok := errors.AsType[*network.Denial](err)
	return ok
}

func mustRule(t *testing.T, text string) network.Rule {
	t.Helper()
	r, err := network.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A resolver's answer belongs to it: what a dial does with one changes nothing.
func TestDialResolverClones(t *testing.T) {
	t.Parallel()
	first := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	g := New(Options{Rules: &network.Policy{Allow: []network.Rule{mustRule(t, "example.com"), mustRule(t, "192.0.2.0/24")}}, Resolver: &changing{addrs: slices.Clone(first)}})
	defer g.Close()
	if err := g.Listen(t.Context(), deaf{}); err != nil {
		t.Fatal(err)
	}
	askName(t, g)
	for range 2 {
		got, err := dialResolver{g}.LookupNetIP(t.Context(), "ip", "example.com.")
		if err != nil || !slices.Equal(got, first) {
			t.Fatalf("%v, %v; want %v", got, err, first)
		}
		got[0] = netip.Addr{}
	}
}
