package gateway

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// locals has a session listen at the loopback addresses that its rules name: services of this machine are
// then at the same addresses inside.
type locals struct {
	mu        sync.Mutex
	tunnel    Tunnel                  // guarded by mu; nil between tunnels
	wanted    []netip.AddrPort        // guarded by mu
	listening map[netip.AddrPort]bool // guarded by mu
	reserved  netip.AddrPort          // of the proxy; not changed
}

// attach has a new tunnel listen, and returns the addresses that are taken.
func (l *locals) attach(ctx context.Context, tunnel Tunnel) (taken []netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tunnel, l.listening = tunnel, map[netip.AddrPort]bool{}
	return l.listen(ctx)
}

func (l *locals) detach() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tunnel, l.listening = nil, nil
}

// want replaces the addresses, and returns those that are taken.
func (l *locals) want(ctx context.Context, addrs []netip.AddrPort) (taken []netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = addrs
	for at := range l.listening {
		if !slices.Contains(addrs, at) {
			_ = l.tunnel.Unlisten(at)
			delete(l.listening, at)
		}
	}
	return l.listen(ctx)
}

// listen needs mu.
func (l *locals) listen(ctx context.Context) (taken []netip.AddrPort) {
	for _, at := range l.wanted {
		switch {
		case l.tunnel == nil || l.listening[at]:
		case at == l.reserved, at == netip.AddrPortFrom(resolverAddr, dnsPort), inRange(at.Addr()), at.Addr() == refusedAddr,
			l.tunnel.Listen(ctx, at) != nil:
			taken = append(taken, at)
		default:
			l.listening[at] = true
		}
	}
	return taken
}

// has reports whether the session listens at an address because of a rule.
func (l *locals) has(at netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listening[at]
}

// taken returns the addresses where the session should listen and does not.
func (l *locals) taken() (all []netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.wanted {
		if l.tunnel != nil && !l.listening[at] {
			all = append(all, at)
		}
	}
	return all
}

// Taken returns the loopback addresses that rules name and where the session does not listen, because one of its
// programs does, or the Gateway itself: connections to them do not get to this machine.
func (g *Gateway) Taken() []netip.AddrPort { return g.locals.taken() }

// recordTaken records addresses where the session cannot listen.
func (g *Gateway) recordTaken(taken []netip.AddrPort) {
	for _, at := range taken {
		g.record(Record{
			Time: time.Now(), Kind: KindConnection, Host: at.Addr().String(), Port: int(at.Port()),
			Reason: ReasonPortTaken, Why: why(network.Verdict{Reason: ReasonPortTaken}),
		})
	}
}

// sameHost reports whether a program that names a host may mean a connection to another one: localhost is a
// name of 127.0.0.1 in every session.
func sameHost(named, host string) bool {
	return named == host || named == "localhost" && host == resolverAddr.String()
}
