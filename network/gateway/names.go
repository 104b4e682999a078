package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxbash/sandboxbash/network"
)

// Addresses and ports of a session's loopback interface.
var (
	resolverAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})       // where resolv.conf says that the resolver is
	refusedAddr  = netip.AddrFrom4([4]byte{127, 127, 255, 254}) // of all refused names
	firstAddr    = netip.AddrFrom4([4]byte{127, 64, 0, 1})      // of the first allowed name
)

const (
	dnsPort   = 53
	httpPort  = 80
	httpsPort = 443
)

const (
	maxNames    = 1024 // that have an address at once
	maxDatagram = 512  // bytes of an answer: what every resolver takes
	allowedTTL  = 60   // seconds
	refusedTTL  = 1    // seconds: the name may be allowed at any time
	lookupTime  = 10 * time.Second
	lookupKept  = 30 * time.Second // how long the answer of this machine's resolver is used for questions
	dialKept    = 5 * time.Second  // and for dials, which follow a question within moments
)

// names gives each allowed name an address of the session's loopback interface, and has the session
// listen there. The addresses stay the same from one tunnel to the next.
type names struct {
	mu     sync.Mutex
	tunnel Tunnel                // guarded by mu; nil between tunnels
	byName map[string]*named     // guarded by mu
	byAddr map[netip.Addr]*named // guarded by mu
	next   netip.Addr            // guarded by mu
}

// named is a name that has an address.
type named struct {
	name  string
	addr  netip.Addr
	ports []int     // guarded by names.mu; where the session listens
	asked time.Time // guarded by names.mu; when its address was last asked for
	found lookup    // guarded by names.mu
}

// lookup is an answer of this machine's resolver.
type lookup struct {
	at    time.Time
	addrs []netip.Addr
	err   error
}

func newNames() *names {
	return &names{byName: map[string]*named{}, byAddr: map[netip.Addr]*named{}, next: firstAddr}
}

// attach has a new tunnel listen where the one before did.
func (n *names) attach(ctx context.Context, tunnel Tunnel) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, port := range []int{httpPort, httpsPort} {
		// If a process of the session has taken the port, refusals there are not explained.
		_ = tunnel.Listen(ctx, netip.AddrPortFrom(refusedAddr, uint16(port)))
	}
	for _, e := range n.byName {
		ports := e.ports
		e.ports = nil
		for _, port := range ports {
			if err := tunnel.Listen(ctx, netip.AddrPortFrom(e.addr, uint16(port))); err == nil {
				e.ports = append(e.ports, port) // otherwise the next question tries again
			}
		}
	}
	n.tunnel = tunnel
	return ctx.Err()
}

func (n *names) detach() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tunnel = nil
}

// nameAt returns the name that an address stands for, or "".
func (n *names) nameAt(addr netip.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.byAddr[addr]; e != nil {
		return e.name
	}
	return ""
}

// errNoTunnel is returned while a tunnel is being opened again.
var errNoTunnel = errors.New("the session's network is being opened again")

// addr returns the address of a name, where the session then listens on the ports.
func (n *names) addr(ctx context.Context, name string, ports []int) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tunnel == nil {
		return netip.Addr{}, errNoTunnel
	}
	e := n.byName[name]
	if e == nil {
		e = n.add(name)
	}
	e.asked = time.Now()
	for _, port := range ports {
		if slices.Contains(e.ports, port) {
			continue
		}
		if err := n.tunnel.Listen(ctx, netip.AddrPortFrom(e.addr, uint16(port))); err != nil {
			return netip.Addr{}, fmt.Errorf("port %d of the session: %w", port, err)
		}
		e.ports = append(e.ports, port)
	}
	return e.addr, nil
}

// add gives a name the next address. It needs mu.
func (n *names) add(name string) *named {
	if len(n.byName) >= maxNames {
		n.giveUpOldest()
	}
	for n.byAddr[n.next] != nil || n.next == refusedAddr || !inRange(n.next) {
		if n.next = n.next.Next(); !inRange(n.next) {
			n.next = firstAddr
		}
	}
	e := &named{name: name, addr: n.next}
	n.byName[name], n.byAddr[e.addr] = e, e
	n.next = n.next.Next()
	return e
}

func inRange(addr netip.Addr) bool { return netip.MustParsePrefix("127.64.0.0/10").Contains(addr) }

// giveUpOldest takes the address from the name that was not asked for the longest. Its open
// connections stay. It needs mu.
func (n *names) giveUpOldest() {
	var oldest *named
	for _, e := range n.byName {
		if oldest == nil || e.asked.Before(oldest.asked) {
			oldest = e
		}
	}
	delete(n.byName, oldest.name)
	delete(n.byAddr, oldest.addr)
	for _, port := range oldest.ports {
		_ = n.tunnel.Unlisten(netip.AddrPortFrom(oldest.addr, uint16(port)))
	}
}

// answerStream answers the questions of one TCP connection to port 53, one after the other.
func (g *Gateway) answerStream(ctx context.Context, conn Conn) {
	stop := context.AfterFunc(ctx, conn.Reset)
	defer stop()
	defer conn.Close()
	for {
		_ = conn.SetDeadline(time.Now().Add(lookupTime))
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		if err := g.asked.Wait(ctx); err != nil {
			return
		}
		answer := g.answer(ctx, question, 1<<16-1)
		if answer == nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(lookupTime))
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer returns the answer to a DNS question, or nil if it cannot be answered at all. No question
// leaves this machine as it is: a name that the rules refuse is never looked up.
func (g *Gateway) answer(ctx context.Context, question []byte, limit int) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil || header.Response {
		return nil
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
	}}
	questions, err := parser.AllQuestions()
	switch {
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
	case header.OpCode != 0 || questions[0].Class != dnsmessage.ClassINET:
		reply.Questions, reply.RCode = questions, dnsmessage.RCodeNotImplemented
	default:
		reply.Questions = questions
		g.resolve(ctx, questions[0], &reply)
	}
	packed, err := reply.Pack()
	if err != nil || len(packed) > limit {
		return nil
	}
	return packed
}

// resolve fills in the answer to one question of class IN.
func (g *Gateway) resolve(ctx context.Context, q dnsmessage.Question, reply *dnsmessage.Message) {
	if q.Type == dnsmessage.TypePTR {
		g.resolvePTR(q, reply)
		return
	}
	name, err := network.Canonical(strings.TrimSuffix(q.Name.String(), "."))
	if err != nil || isLocal(name) {
		reply.RCode = dnsmessage.RCodeNameError
		return
	}
	if q.Type != dnsmessage.TypeA {
		return // there is no IPv6 in the session, and no other record of a name is of use
	}
	addr, ttl, code := g.addressFor(ctx, name)
	if reply.RCode = code; code != dnsmessage.RCodeSuccess {
		return
	}
	reply.Answers = []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: ttl},
		Body:   &dnsmessage.AResource{A: addr.As4()},
	}}
}

// isLocal reports whether a name is one that no name server outside a machine knows.
func isLocal(name string) bool {
	return !strings.Contains(name, ".") || strings.HasSuffix(name, ".local") || strings.HasSuffix(name, ".localhost")
}

// addressFor returns the address in the session for a canonical name.
func (g *Gateway) addressFor(ctx context.Context, name string) (addr netip.Addr, ttl uint32, code dnsmessage.RCode) {
	start := time.Now()
	rules := g.rules.Load()
	verdict := rules.Name(name)
	if g.asks.mayName(verdict) {
		return g.askedAddress(ctx, name)
	}
	if !verdict.Allowed {
		g.refused(Record{Time: start, Kind: KindName, Host: name}, verdict)
		return refusedAddr, refusedTTL, dnsmessage.RCodeSuccess
	}
	found := g.lookup(ctx, name)
	if found.err != nil && g.elsewhere(name, verdict.Ports) {
		found = lookup{} // the proxy of this machine may know the name
	}
	if found.err != nil {
		g.record(Record{Time: start, Kind: KindName, Host: name, Allowed: true, Elapsed: time.Since(start), Err: lookupError(found.err)})
		if failure, ok := errors.AsType[*net.DNSError](found.err); ok && failure.IsNotFound {
			return addr, 0, dnsmessage.RCodeNameError
		}
		return addr, 0, dnsmessage.RCodeServerFailure
	}
	ports := g.asks.listenPorts(verdict.Ports)
	if refusal, ok := anyAddress(rules, name, ports, found.addrs); !ok && len(found.addrs) > 0 {
		g.refused(Record{Time: start, Kind: KindName, Host: name}, refusal)
		return refusedAddr, refusedTTL, dnsmessage.RCodeSuccess
	}
	addr, err := g.names.addr(ctx, name, ports)
	g.names.learn(name, found)
	if err != nil {
		g.record(Record{Time: start, Kind: KindName, Host: name, Reason: ReasonPortTaken, Why: why(network.Verdict{Reason: ReasonPortTaken}), Elapsed: time.Since(start), Err: err.Error()})
		return addr, 0, dnsmessage.RCodeServerFailure
	}
	g.listenMore(ctx, name)
	return addr, allowedTTL, dnsmessage.RCodeSuccess
}

// askedAddress is addressFor for a name that no rule allows and that can be asked for. It is not looked up
// before the answer.
func (g *Gateway) askedAddress(ctx context.Context, name string) (addr netip.Addr, ttl uint32, code dnsmessage.RCode) {
	addr, err := g.names.addr(ctx, name, g.asks.listenPorts(nil))
	if err != nil {
		return refusedAddr, refusedTTL, dnsmessage.RCodeSuccess
	}
	g.listenMore(ctx, name)
	return addr, allowedTTL, dnsmessage.RCodeSuccess
}

// anyAddress reports whether the rules allow one of the addresses, at one of the ports. If not, it
// returns why.
func anyAddress(rules *network.Policy, name string, ports []int, addrs []netip.Addr) (verdict network.Verdict, ok bool) {
	for _, addr := range addrs {
		for _, port := range ports {
			if verdict = rules.Address(name, netip.AddrPortFrom(addr, uint16(port))); verdict.Allowed {
				return verdict, true
			}
		}
	}
	return verdict, false
}

// lookup asks this machine's resolver. An answer is used again for lookupKept, so that a session
// that repeats its questions costs the resolver little.
func (g *Gateway) lookup(ctx context.Context, name string) lookup {
	if found, ok := g.names.known(name, lookupKept); ok {
		return found
	}
	most := lookupTime
	if g.upstream != nil {
		most = network.UpstreamLookup
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	found := lookup{at: time.Now()}
	found.addrs, found.err = g.resolver.LookupNetIP(ctx, "ip", name+".") // the dot: below no search domain of this machine
	g.names.learn(name, found)
	return found
}

// dialResolver looks up names that are dialled. A program asks for a name and then connects: the answer to
// its question is used for dialKept, as the program itself would use it. Which of the addresses may be
// dialled, the rules say at each dial.
type dialResolver struct{ *Gateway }

func (r dialResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	name := strings.TrimSuffix(host, ".")
	if found, ok := r.names.known(name, dialKept); ok && len(found.addrs) > 0 {
		return slices.Clone(found.addrs), nil
	}
	found := lookup{at: time.Now()}
	addrs, err := r.resolver.LookupNetIP(ctx, network, host)
	if found.addrs = slices.Clone(addrs); err == nil {
		r.names.learn(name, found)
	}
	return addrs, err
}

// elsewhere reports whether a proxy of this machine looks up the name for one of the ports.
func (g *Gateway) elsewhere(name string, ports []int) bool {
	return slices.ContainsFunc(ports, func(port int) bool { return g.upstream.For(name, port) != nil })
}

// known returns an answer for a name that is not older than most.
func (n *names) known(name string, most time.Duration) (lookup, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byName[name]
	if e == nil || e.found.at.IsZero() || time.Since(e.found.at) > most {
		return lookup{}, false
	}
	return e.found, true
}

// learn remembers an answer for a name that has an address, unless it knows a later one.
func (n *names) learn(name string, found lookup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.byName[name]; e != nil && found.at.After(e.found.at) {
		e.found = found
	}
}

// lookupError returns the resolver's error without the address of this machine's name server,
// which the session must not learn.
func lookupError(err error) string {
	failure, ok := errors.AsType[*net.DNSError](err)
	switch {
	case !ok:
		return "the name could not be looked up"
	case failure.IsNotFound:
		return "no such name"
	case failure.IsTimeout:
		return "the look-up took too long"
	}
	return "the name server failed"
}

// resolvePTR answers which name an address of the session's loopback stands for.
func (g *Gateway) resolvePTR(q dnsmessage.Question, reply *dnsmessage.Message) {
	labels := strings.Split(strings.TrimSuffix(strings.ToLower(q.Name.String()), ".in-addr.arpa."), ".")
	slices.Reverse(labels)
	addr, err := netip.ParseAddr(strings.Join(labels, "."))
	name := ""
	if err == nil {
		name = g.names.nameAt(addr)
	}
	target, err := dnsmessage.NewName(name + ".")
	if name == "" || err != nil {
		reply.RCode = dnsmessage.RCodeNameError
		return
	}
	reply.Answers = []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET, TTL: allowedTTL},
		Body:   &dnsmessage.PTRResource{PTR: target},
	}}
}
