// Package gateway is the host's end of a session's network. The session itself has no network but
// its loopback interface. Its connections arrive as streams of a Tunnel; a Gateway asks the rules,
// resolves names on this machine, dials, and carries the bytes. All that is parsed (DNS, HTTP, the
// first message of TLS) is parsed here, never inside the session.
//
// A program inside finds the network without any setting of its own: /etc/resolv.conf names a
// resolver on the session's loopback, whose questions a Gateway answers. An allowed name gets an
// address of 127.64.0.0/10 that stands for this name alone, and the session then listens on the
// ports of its rules at this address. A refused name gets an address that all refused names share,
// where connections to ports 80 and 443 are told why they are refused.
package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/sandboxbash/sandboxbash/network"
)

// Tunnel carries the connections of one session. Its methods are safe for concurrent use.
type Tunnel interface {
	// Listen makes the session listen at an address of its loopback interface. If a process
	// of the session listens there already, it returns an error.
	Listen(ctx context.Context, at netip.AddrPort) error
	// Unlisten closes a listener. Its connections stay.
	Unlisten(at netip.AddrPort) error
	// Accept waits for the next connection to a listener. LocalAddr of the connection is
	// the listener's address.
	Accept(ctx context.Context) (Conn, error)
	// Question waits for the next datagram to port 53. Answer answers it by its id.
	Question(ctx context.Context) (id uint32, datagram []byte, err error)
	Answer(id uint32, datagram []byte) error
}

// Conn is a connection of a session.
type Conn interface {
	net.Conn
	CloseWrite() error
	// Reset ends the connection so that the peer sees an error, never an end of the data.
	Reset()
}

// Limits bound what a session's connections may cost this machine. Zero values are defaults.
type Limits struct {
	Connections int     // open at once; 0: 1,024
	Rate        float64 // new connections a second; 0: 1,000
	Burst       int     // new connections at once after a pause; 0: 5,000
}

const (
	defaultConnections = 1024
	defaultRate        = 1000 // a second
	defaultBurst       = 5000
)

func (l Limits) withDefaults() Limits {
	if l.Connections == 0 {
		l.Connections = defaultConnections
	}
	if l.Rate == 0 {
		l.Rate = defaultRate
	}
	if l.Burst == 0 {
		l.Burst = defaultBurst
	}
	return l
}

// Options of a Gateway. Zero values are defaults.
type Options struct {
	Rules    *network.Policy  // nil: nothing is allowed
	Resolver network.Resolver // of this machine; nil: net.DefaultResolver
	Limits   Limits
	// Proxy is where the session has a proxy (HTTP, and CONNECT), for sessions whose resolver
	// cannot be the gateway. The zero value: nowhere.
	Proxy netip.AddrPort
	// Begun is called with each connection and request that is allowed, before anything is
	// dialled for it. Record is called with each connection, request and refused name when it
	// has ended. Both are called concurrently and must not block. They may be nil.
	Begun, Record func(Record)
}

// Gateway serves the network of one session, over one tunnel after the other. It is safe for
// concurrent use.
type Gateway struct {
	rules    atomic.Pointer[network.Policy]
	resolver network.Resolver
	dialer   func(ctx context.Context, host string, port int) (net.Conn, error)
	limits   Limits
	begun    func(Record)
	record   func(Record)
	arrivals *rate.Limiter
	proxy    netip.AddrPort

	names *names
	open  connections
	web   *web
}

// New returns a Gateway that serves nothing so far.
func New(opts Options) *Gateway {
	g := &Gateway{resolver: opts.Resolver, limits: opts.Limits.withDefaults(), record: opts.Record, proxy: opts.Proxy, names: newNames()}
	if g.resolver == nil {
		g.resolver = net.DefaultResolver
	}
	if g.begun = opts.Begun; g.begun == nil {
		g.begun = func(Record) {}
	}
	if g.record == nil {
		g.record = func(Record) {}
	}
	g.dialer = (&network.Dialer{Policy: g.rules.Load, Resolver: g.resolver, Timeout: dialTime}).DialContext
	g.arrivals = rate.NewLimiter(rate.Limit(g.limits.Rate), g.limits.Burst)
	g.SetRules(opts.Rules)
	g.web = newWeb(g)
	return g
}

// SetRules replaces the rules. They hold for the next connection and the next request. Connections
// that are open and that the new rules refuse are reset.
func (g *Gateway) SetRules(rules *network.Policy) {
	if rules == nil {
		rules = &network.Policy{}
	}
	g.rules.Store(rules)
	g.open.reset(func(t target) bool { return t.name != "" && !rules.Connect(t.name, t.port).Allowed })
}

// Close resets what is open. No tunnel may be served after it.
func (g *Gateway) Close() {
	g.open.reset(func(target) bool { return true })
	g.web.close()
}

// Listen has the session listen where its programs look for the network: a resolver, a proxy if there is
// one, and the addresses that names were given over an earlier tunnel. Programs find the network from
// then on; Serve must follow.
func (g *Gateway) Listen(ctx context.Context, tunnel Tunnel) error {
	if err := tunnel.Listen(ctx, netip.AddrPortFrom(resolverAddr, dnsPort)); err != nil {
		return fmt.Errorf("the resolver's port: %w", err)
	}
	if g.proxy.IsValid() {
		if err := tunnel.Listen(ctx, g.proxy); err != nil {
			return fmt.Errorf("the proxy's port: %w", err)
		}
	}
	return g.names.attach(ctx, tunnel)
}

// Serve serves the connections of a tunnel on which Listen was called, until ctx ends or the tunnel
// breaks, and returns why. Connections that are open then are reset. A Gateway serves one tunnel at a
// time.
func (g *Gateway) Serve(ctx context.Context, tunnel Tunnel) error {
	group, ctx := errgroup.WithContext(ctx)
	defer g.open.reset(func(target) bool { return true })
	defer g.names.detach()
	group.Go(func() error { return g.answerAll(ctx, tunnel) })
	group.Go(func() error { return g.acceptAll(ctx, tunnel) })
	return group.Wait()
}

// maxQuestions is how many DNS questions are answered at once. Each may wait for this machine's
// resolver; a question beyond that is dropped, as a busy resolver does, and asked again.
const maxQuestions = 64

func (g *Gateway) answerAll(ctx context.Context, tunnel Tunnel) error {
	var answers errgroup.Group
	answers.SetLimit(maxQuestions)
	defer func() { _ = answers.Wait() }()
	for {
		id, question, err := tunnel.Question(ctx)
		if err != nil {
			return fmt.Errorf("DNS questions: %w", err)
		}
		answers.TryGo(func() error {
			if answer := g.answer(ctx, question, maxDatagram); answer != nil {
				return tunnel.Answer(id, answer)
			}
			return nil
		})
	}
}

func (g *Gateway) acceptAll(ctx context.Context, tunnel Tunnel) error {
	for {
		conn, err := tunnel.Accept(ctx)
		if err != nil {
			return fmt.Errorf("connections: %w", err)
		}
		at, err := netip.ParseAddrPort(conn.LocalAddr().String())
		if err != nil {
			conn.Reset()
			return fmt.Errorf("connections: the session gave no listener's address: %w", err)
		}
		if !g.arrivals.Allow() || g.open.len() >= g.limits.Connections {
			conn.Reset()
			g.record(Record{Time: time.Now(), Kind: KindConnection, Host: g.names.nameAt(at.Addr()), Port: int(at.Port()), Reason: ReasonLimit, Why: why(network.Verdict{Reason: ReasonLimit})})
			continue
		}
		go g.handle(ctx, conn, at)
	}
}

// handle carries one connection to the listener at.
func (g *Gateway) handle(ctx context.Context, conn Conn, at netip.AddrPort) {
	start := time.Now()
	switch name := g.names.nameAt(at.Addr()); {
	case at.Port() == dnsPort && at.Addr() == resolverAddr:
		g.answerStream(ctx, conn)
	case at.Addr() == refusedAddr:
		g.refuse(ctx, conn, int(at.Port()), start)
	case at == g.proxy:
		g.web.serve(conn, target{})
	case name == "":
		conn.Reset() // the name was given up while the connection was on its way
	case at.Port() == httpPort:
		g.web.serve(conn, target{name, httpPort})
	default:
		g.carry(ctx, conn, target{name, int(at.Port())}, start)
	}
}

// target is what a connection of a session is for.
type target struct {
	name string // canonical
	port int
}

func (t target) String() string { return net.JoinHostPort(t.name, fmt.Sprint(t.port)) }

// connections are those that are open.
type connections struct {
	mu  sync.Mutex
	all map[Conn]target // guarded by mu
}

func (c *connections) add(conn Conn, t target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[Conn]target{}
	}
	c.all[conn] = t
}

func (c *connections) remove(conn Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, conn)
}

func (c *connections) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// reset resets the connections whose target is one of those.
func (c *connections) reset(those func(target) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, t := range c.all {
		if those(t) {
			conn.Reset()
		}
	}
}
