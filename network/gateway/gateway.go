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
//
// net/http logs the start of an answer that was not asked for with the standard logger of package log, unmasked, and
// has no setting for it. A program that has secrets and uses this package directs that logger elsewhere, as the
// command line does: slog.SetDefault(slog.New(slog.DiscardHandler)), or log.SetOutput.
package gateway

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/authority"
	"github.com/sandboxbash/sandboxbash/network/inject"
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

// Options of a Gateway. Zero values are defaults.
type Options struct {
	Rules    *network.Policy  // nil: nothing is allowed
	Resolver network.Resolver // of this machine; nil: net.DefaultResolver
	Limits   Limits
	// Authority signs for hosts whose requests are read: a rule is for some requests alone, or a secret
	// is put into them. The session trusts it. nil: TLS cannot be read, and what must be read is refused.
	Authority *authority.Authority
	// Exclude are rules for hosts, whose connections are never read: their clients accept no certificate
	// but the host's, or have one of their own. They are refused where requests would have to be judged.
	Exclude []network.Rule
	// Secrets are put into requests inside TLS. It may be nil.
	Secrets *inject.Set
	// Roots are the authorities that hosts are verified with. nil: those of this machine.
	Roots *x509.CertPool
	// Proxy is where the session has a proxy (HTTP, CONNECT and SOCKS5), for sessions whose resolver
	// cannot be the gateway. The zero value: nowhere.
	Proxy netip.AddrPort
	// Upstream is the proxy of this machine's network that connections leave through. nil: none.
	Upstream *network.Upstream
	// Ask is called where a connection or a request is refused for lack of a rule, and for no other reason. It
	// returns true if it has extended the rules (SetRules), which are then asked again; nothing is dialled
	// before. It is called concurrently, once for a host and port at a time, and must return soon after its
	// context has ended, which it does after AskTime (0: DefaultAskTime) or when nothing waits for the answer
	// any more. nil: nothing is asked.
	Ask     func(ctx context.Context, q Question) bool
	AskTime time.Duration
	// Owner returns the command that has made a connection which arrived at a time, or "" if it
	// is not known so far. The result is used in records only. nil: the command is never known.
	Owner func(conn Conn, came time.Time) string
	// Ready is waited for before a connection or request that is allowed goes on: before anything is
	// dialled for it, and before it is written to a connection that is open. An error refuses it. nil: it
	// goes on at once.
	Ready func(ctx context.Context, r Record) error
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
	owner    func(Conn, time.Time) string
	ready    func(context.Context, Record) error
	begun    func(Record)
	record   func(Record)
	repeats  *repeats
	arrivals *rate.Limiter
	asked    *rate.Limiter // DNS questions
	budgets  budgets
	proxy    netip.AddrPort
	upstream *network.Upstream

	authority atomic.Pointer[authority.Authority]
	exclude   *network.Policy // that denies the hosts of Options.Exclude
	secrets   *inject.Set
	roots     *x509.CertPool

	names *names
	open  connections
	web   *web
	asks  *asking // nil: nothing is asked
}

// New returns a Gateway. It serves nothing before Serve is called.
func New(opts Options) *Gateway {
	g := &Gateway{
		resolver: opts.Resolver, limits: opts.Limits.withDefaults(), proxy: opts.Proxy, upstream: opts.Upstream, names: newNames(),
		exclude: &network.Policy{Deny: opts.Exclude}, secrets: opts.Secrets, roots: opts.Roots,
	}
	g.authority.Store(opts.Authority)
	if g.resolver == nil {
		g.resolver = net.DefaultResolver
	}
	if g.owner = opts.Owner; g.owner == nil {
		g.owner = func(Conn, time.Time) string { return "" }
	}
	if g.ready = opts.Ready; g.ready == nil {
		g.ready = func(context.Context, Record) error { return nil }
	}
	if g.begun = opts.Begun; g.begun == nil {
		g.begun = func(Record) {}
	}
	g.repeats = newRepeats(opts.Record)
	g.record = g.repeats.record
	g.dialer = (&network.Dialer{Policy: g.rules.Load, Resolver: dialResolver{g}, Timeout: dialTime, Upstream: opts.Upstream}).DialContext
	g.asks = newAsking(opts)
	g.arrivals = rate.NewLimiter(rate.Limit(g.limits.Rate), g.limits.Burst)
	g.asked = rate.NewLimiter(questionRate, questionBurst)
	g.budgets = newBudgets(g.limits)
	g.web = newWeb(g)
	g.SetRules(opts.Rules)
	return g
}

// SetRules replaces the rules. They hold for the next connection and the next request. Connections
// that are open and that the new rules refuse are reset, and so are those that pass unread and that the
// new rules want read.
func (g *Gateway) SetRules(rules *network.Policy) {
	if rules == nil {
		rules = &network.Policy{}
	}
	g.rules.Store(rules)
	g.open.reset(func(o opened) bool {
		verdict := rules.Connect(o.name, o.port)
		return o.name != "" && (!verdict.Allowed || verdict.Intercept && o.unread)
	})
	g.web.transport.CloseIdleConnections() // to addresses that were judged by the rules before
}

// SetAuthority sets the authority of a Gateway that has none. The session must trust it already.
func (g *Gateway) SetAuthority(a *authority.Authority) { g.authority.Store(a) }

// Close resets all open connections. No tunnel may be served after Close.
func (g *Gateway) Close() {
	g.open.reset(func(opened) bool { return true })
	g.web.close()
	g.repeats.flush()
}

// Flush records what has only been counted so far.
func (g *Gateway) Flush() { g.repeats.flush() }

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
	defer g.open.reset(func(opened) bool { return true })
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
		if !g.asked.Allow() {
			continue // as a busy resolver does
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
		if over := g.full(); over != "" {
			conn.Reset()
			g.refused(Record{Time: time.Now(), Kind: KindConnection, Host: g.names.nameAt(at.Addr()), Port: int(at.Port())}, network.Verdict{Reason: ReasonLimit, Detail: over})
			continue
		}
		metered := g.metered(conn)
		g.open.arrive(metered)
		go func() {
			defer g.open.arrived(metered)
			g.handle(ctx, metered, at)
		}()
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
		g.serveProxy(ctx, conn, start)
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

// opened is what an open connection is for.
type opened struct {
	target

	unread bool // its bytes pass as they are
}

// connections are those that are open.
type connections struct {
	mu       sync.Mutex
	all      map[Conn]opened // guarded by mu
	arriving map[Conn]bool   // guarded by mu; those that wait for their first bytes, an answer or a dial
}

// arrive counts a connection that is for nothing so far. arrived must follow.
func (c *connections) arrive(conn Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arriving == nil {
		c.arriving = map[Conn]bool{}
	}
	c.arriving[conn] = true
}

func (c *connections) arrived(conn Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.arriving, conn)
}

func (c *connections) add(conn Conn, o opened) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[Conn]opened{}
	}
	c.all[conn] = o
	delete(c.arriving, beneath(conn))
}

func (c *connections) remove(conn Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, conn)
}

func (c *connections) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) + len(c.arriving)
}

// reset resets those connections.
func (c *connections) reset(those func(opened) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, o := range c.all {
		if those(o) {
			conn.Reset()
		}
	}
}
