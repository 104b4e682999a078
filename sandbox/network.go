package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/authority"
	"github.com/sandboxbash/sandboxbash/network/gateway"
	"github.com/sandboxbash/sandboxbash/network/inject"
)

// Connection is one connection, request or refused name of a session.
type Connection = gateway.Record

// NetworkLimits bound what a session's connections may cost.
type NetworkLimits = gateway.Limits

// NetworkRuleLimit bounds what one rule lets through.
type NetworkRuleLimit = gateway.RuleLimit

// NetworkUse is what a session's connections did while a command ran. What was refused is the
// command's own if the gateway knows which command made it; the rest belongs to all commands that
// ran at the same time.
type NetworkUse struct {
	// Denied are connections and names that the rules refused, each host and port once, at most
	// maxDenied of them.
	Denied  []Connection `json:"denied,omitempty"`
	More    int          `json:"more,omitempty"`    // refused ones beyond that
	Count   int          `json:"count"`             // connections and requests that were allowed
	Secrets []string     `json:"secrets,omitempty"` // names of those that were put into requests
	// Lost means that the stream that carries the connections broke. Those that were open were
	// reset, and new ones work again.
	Lost bool `json:"lost,omitempty"`
}

// maxDenied bounds what a result says of refused connections.
const maxDenied = 16

// DenialText returns one line that says what was refused and which rule would allow it.
func DenialText(c Connection) string {
	text := "network: " + c.Why
	if c.Ask != "" {
		text += "; a user can allow it with the rule " + c.Ask
	}
	return text
}

// Text returns the lines that a reader of the command's output should see.
func (u *NetworkUse) Text() []string {
	if u == nil {
		return nil
	}
	var lines []string
	for _, c := range u.Denied {
		lines = append(lines, DenialText(c))
	}
	if u.More > 0 {
		lines = append(lines, fmt.Sprintf("network: %d more were refused", u.More))
	}
	if u.Lost {
		lines = append(lines, "network: the way out of the session was lost for a moment, and connections that were open were reset")
	}
	return lines
}

// exceptions serves what a session may reach although its network is NetworkNone. Its connections
// leave through this process, which resolves, checks and dials: see package gateway.
type exceptions struct {
	session *Session
	gateway *gateway.Gateway
	// authority signs for hosts whose requests are read; nil: none are, so far.
	authority atomic.Pointer[authority.Authority]
	stop      context.CancelFunc
	ended     chan struct{} // closed when nothing of it runs any more
	wake      chan struct{} // a command has started
	proof     proof
	proven    func(error)              // ends the proof of the first way out
	let       atomic.Pointer[sync.Map] // hosts that the latest proof asked for, and that were let through
	proxied   bool                     // programs have a proxy at proxyAddr
	proving   atomic.Bool              // see prove: what is refused meanwhile was not asked by a command
	log       connectionLog
	absent    int // of keepOpen: see gone

	mu      sync.Mutex
	watches map[*networkWatch]bool // guarded by mu; one for each command that runs
	current tunnel                 // guarded by mu; the zero value while there is none

	permits permits
	ask     func(context.Context, NetworkQuestion) NetworkAnswer // guarded by mu; nil: nothing is asked
	decided map[string]NetworkDecision                           // guarded by mu; by the rule that was proposed, until ProposeNetwork takes it
}

// networkWatch collects what happens while a command runs.
type networkWatch struct {
	id      string              // of the command
	use     NetworkUse          // guarded by exceptions.mu
	seen    map[deniedHost]bool // what was refused
	command string              // as a question shows it
}

// deniedHost is a host and a port, or 0 for a name that was refused at every port.
type deniedHost struct {
	host string
	port int
}

// newExceptions returns nil if the session has no exceptions, or if another process serves them.
func newExceptions(s *Session, spec Spec, info engine.Info, secrets *inject.Set) (*exceptions, error) {
	if len(spec.Allow) == 0 && spec.AskNetwork == nil || spec.Detached {
		return nil, nil //nolint:nilnil // its methods take nil for none
	}
	return newCarrier(s, spec, info, secrets)
}

// newCarrier returns what serves the exceptions of spec, which may be none so far.
func newCarrier(s *Session, spec Spec, info engine.Info, secrets *inject.Set) (*exceptions, error) {
	x := &exceptions{session: s, ended: make(chan struct{}), wake: make(chan struct{}, 1), watches: map[*networkWatch]bool{}, decided: map[string]NetworkDecision{}}
	opts := gateway.Options{
		Rules: &network.Policy{Allow: spec.Allow, Deny: spec.Deny}, Resolver: s.engine.opts.Resolver, Begun: x.begun, Record: x.record,
		Exclude: spec.Exclude, Roots: s.engine.opts.Roots, Secrets: secrets, Owner: x.owner,
		Limits: spec.NetworkLimits, Upstream: s.engine.opts.Upstream, Ready: x.ready,
	}
	if spec.intercepts() || secrets != nil {
		signer, err := authority.New(s.ID())
		if err != nil {
			return nil, err
		}
		opts.Authority = signer
		x.authority.Store(signer)
	}
	if spec.AskNetwork != nil {
		x.ask, opts.Ask, opts.AskTime = spec.AskNetwork, x.asked, spec.AskTime
	}
	if info.EmptyResolver {
		opts.Proxy, x.proxied = proxyAddr, true
	}
	x.gateway = gateway.New(opts)
	x.permits.set, x.permits.allow, x.permits.deny = x.gateway.SetRules, spec.Allow, spec.Deny
	return x, nil
}

// proxyAddr is where a session has a proxy if the engine lets it have no resolver of ours.
var proxyAddr = netip.MustParseAddrPort("127.0.0.1:3128")

// open opens the way out, and keeps it open until close. What the rules allow waits until the caller calls
// x.proven.
func (x *exceptions) open(ctx context.Context) error {
	x.proven = x.proof.begin()
	tunnel, err := x.dial(ctx)
	if err != nil {
		close(x.ended)
		return fmt.Errorf("network: %w", err)
	}
	serving, stop := context.WithCancel(context.Background())
	x.stop = stop
	go x.keepOpen(serving, tunnel)
	return nil
}

// netLease is how long the runner keeps connections without a word from this process.
const netLease = 30 * time.Second

// dial opens a runner that carries connections, and has it listen.
func (x *exceptions) dial(ctx context.Context) (tunnel, error) {
	if signer := x.authority.Load(); signer != nil { // before programs find the network
		if err := x.session.trust(ctx, signer); err != nil {
			return tunnel{}, err
		}
	}
	args := append([]string{engine.RunnerPath}, wire.VerbNet.Command()...)
	stream, err := x.session.engine.backend.Open(ctx, x.session.handle, engine.Exec{Args: args, User: "0:0"})
	if err != nil {
		return tunnel{}, err
	}
	t := tunnel{mux.New(mux.Host, stream, mux.Options{Lease: netLease, UID: x.session.info.User.UID})}
	if err := x.gateway.Listen(ctx, t); err != nil {
		err = errors.Join(err, t.Close())
		if words := stream.Stderr(); words != "" {
			err = fmt.Errorf("%w (the runner says: %s)", err, words)
		}
		return tunnel{}, err
	}
	return t, nil
}

// Pauses between two tries to open the way out again. It is only of use to commands, so the start of
// one ends a pause. Without one, as while the session is paused or the engine is away, only jobs and
// survivors wait for it, and the pauses double.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Minute
	wellTime   = 5 * time.Second // a way out that has lived this long counts as a new start
)

// keepOpen serves a tunnel, and opens the next when it breaks: the runner was killed, the container
// was reset, or the engine's stream was cut.
func (x *exceptions) keepOpen(ctx context.Context, t tunnel) {
	defer close(x.ended)
	defer x.gateway.Close()
	pause := firstPause
	for first := true; ; first = false {
		if t.Session != nil {
			began := time.Now()
			x.use(t)
			waited := func() {} // the caller of open makes the first proof
			if !first {
				waited = x.proveWhile(ctx, t)
			}
			_ = x.gateway.Serve(ctx, t) // why it ended says no more than that it did
			x.use(tunnel{})
			_ = t.Close()
			waited()
			if ctx.Err() != nil {
				return
			}
			x.lost()
			if time.Since(began) > wellTime {
				pause = firstPause
			}
		}
		select {
		case <-time.After(pause):
		case <-x.wake:
			pause = firstPause
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, maxPause)
		var err error
		if t, err = x.again(ctx); err != nil && x.gone(ctx, err) {
			return
		}
		if err == nil {
			x.absent = 0
		}
	}
}

// proveWhile makes the proof of a way out that was opened again, while it is served. If it is not proven, what the
// rules allow is refused, and the way out ends, to be opened once more. The returned function waits.
func (x *exceptions) proveWhile(ctx context.Context, t tunnel) (wait func()) {
	done := make(chan struct{})
	end := x.proof.begin()
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		found, err := x.proveOnce(ctx)
		if err == nil && len(found.silent) > 0 {
			err = errors.New(found.silent[0])
		}
		end(err)
		if err != nil {
			_ = t.Close()
		}
	}()
	return func() { <-done }
}

// again opens the way out of a session that may have been reset.
func (x *exceptions) again(ctx context.Context) (tunnel, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := x.session.settled(ctx); err != nil {
		return tunnel{}, err
	}
	return x.dial(ctx)
}

// close ends the way out. Open connections are reset.
func (x *exceptions) close() {
	if x == nil {
		return
	}
	if x.stop != nil {
		x.stop()
	}
	<-x.ended
}

// use sets the tunnel that is served.
func (x *exceptions) use(t tunnel) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.current = t
}

// confirmTime bounds the question whether the runner lives that carried a command's connections.
const confirmTime = 500 * time.Millisecond

// confirm asks the runner that carries connections for a sign of life. If it was killed, the command's
// connections were reset, and its end may be known before that of the runner is.
func (x *exceptions) confirm() {
	x.mu.Lock()
	t := x.current
	x.mu.Unlock()
	if t.Session == nil {
		return // it is known, see lost
	}
	ctx, cancel := context.WithTimeout(context.Background(), confirmTime)
	defer cancel()
	if err := t.Listen(ctx, resolverAddr); err != nil { // it listens there already, and answers that it does
		x.lost()
	}
}

// resolverAddr is where a session's resolv.conf says that the resolver is.
var resolverAddr = netip.MustParseAddrPort("127.0.0.1:53")

// lost notes for the commands that run that their connections were reset.
func (x *exceptions) lost() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for w := range x.watches {
		w.use.Lost = true
	}
}

// watch collects what happens until the returned function is called, which returns it. A session
// without exceptions has no use to tell of.
func (x *exceptions) watch(c Command) func() *NetworkUse {
	if x == nil {
		return func() *NetworkUse { return nil }
	}
	w := &networkWatch{id: c.id, seen: map[deniedHost]bool{}, command: x.session.askedText(c)}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watches[w] = true
	if x.current.Session == nil {
		select {
		case x.wake <- struct{}{}:
		default: // it is told
		}
	}
	return func() *NetworkUse {
		x.mu.Lock()
		carried := w.use.Count > 0
		x.mu.Unlock()
		x.gateway.Flush()
		if carried {
			x.confirm()
		}
		defer x.permits.ended(w) // when it is not among those that run any more
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.watches, w)
		if w.use.Count == 0 && len(w.use.Denied)+w.use.More+len(w.use.Secrets) == 0 && !w.use.Lost {
			return nil
		}
		return &w.use
	}
}

// begun is called with each connection and request that is allowed, before anything is dialled.
func (x *exceptions) begun(Connection) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for w := range x.watches {
		w.use.Count++
	}
}

// record is given each connection when it has ended.
func (x *exceptions) record(c Connection) {
	if x.proving.Load() && !c.Allowed {
		return
	}
	x.mu.Lock()
	for w := range x.watches {
		if c.Command == "" || c.Command == w.id {
			w.add(c)
		}
	}
	x.mu.Unlock()
	x.log.add(x.session.engine.remembered(c))
	x.session.engine.noteConnection(x.session.ID(), c)
}

// add needs exceptions.mu.
func (w *networkWatch) add(c Connection) {
	for _, name := range c.Secrets {
		if !slices.Contains(w.use.Secrets, name) {
			w.use.Secrets = append(w.use.Secrets, name)
		}
	}
	if c.Allowed {
		return // it was counted when it began; a name that could not be looked up is the program's to tell
	}
	if c.Reason == gateway.ReasonRepeats {
		w.use.More += c.Count
		return
	}
	// A refused name is looked up first, and then often connected to: that says no more.
	at := deniedHost{c.Host, c.Port}
	if w.seen[at] || w.seen[deniedHost{c.Host, 0}] {
		return
	}
	w.seen[at] = true
	if len(w.use.Denied) >= maxDenied {
		w.use.More++
		return
	}
	w.use.Denied = append(w.use.Denied, c)
}

// noteConnection tells the observer of a connection that has ended.
func (e *Engine) noteConnection(session string, c Connection) {
	if o := e.opts.Observer; o != nil {
		o.Note(Observation{
			Kind: EventConnection, Session: session, Start: c.Time, End: c.Time.Add(c.Elapsed), Connection: &c, secrets: e.opts.Secrets,
		})
	}
}

// tunnel is a mux.Session as a gateway sees it.
type tunnel struct{ *mux.Session }

// unlistenTime bounds how long a listener's end is waited for.
const unlistenTime = 5 * time.Second

func (t tunnel) Unlisten(at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(context.Background(), unlistenTime)
	defer cancel()
	return t.Session.Unlisten(ctx, at)
}

func (t tunnel) Accept(ctx context.Context) (gateway.Conn, error) {
	st, err := t.Session.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return connection{st}, nil
}

func (t tunnel) Question(ctx context.Context) (id uint32, datagram []byte, err error) {
	return t.ReceiveDatagram(ctx)
}

// Answer drops an answer if the session takes none: its resolver asks again.
func (t tunnel) Answer(id uint32, datagram []byte) error {
	if err := t.SendDatagram(id, datagram); !errors.Is(err, mux.ErrFull) {
		return err
	}
	return nil
}

// connection is a mux.Stream as a gateway sees it.
type connection struct{ *mux.Stream }

func (c connection) Reset() { c.Stream.Reset(wire.NetCut) }

// checkNetwork returns an error for rules that cannot hold.
func (s *Spec) checkNetwork() error {
	if err := s.NetworkLimits.Check(); err != nil {
		return err
	}
	if len(s.Allow) == 0 && s.AskNetwork == nil {
		return nil // what is denied is denied by default
	}
	if s.AskTime < 0 {
		return fmt.Errorf("ask time %s: it must not be negative", s.AskTime)
	}
	if s.Network != NetworkNone && len(s.Allow) == 0 {
		return fmt.Errorf("network %s: questions are about exceptions from network none: leave out one of the two", s.Network)
	}
	if s.Network != NetworkNone {
		return fmt.Errorf("network %s: rules are exceptions from network none: leave out one of the two", s.Network)
	}
	for _, r := range s.Exclude {
		if r.DenyIntercepts() {
			return fmt.Errorf("network exclude %s: a host is excluded with all its requests: leave out the methods, the path and the text", r)
		}
	}
	return nil
}

const bridgeNote = "network bridge: the engine's host, its local network and cloud metadata services are reachable from this session"

// networkNotes returns notes about what of the network may surprise.
func (s *Spec) networkNotes() []string {
	if s.Network == NetworkBridge {
		return append(s.secretNotes(), bridgeNote)
	}
	notes := s.secretNotes()
	excluded := network.Policy{Deny: s.Exclude}
	for _, r := range s.Allow {
		for _, part := range r.Expand() {
			if by, ok := excluded.Overruled(part); ok && part.Intercepts() {
				notes = append(notes, fmt.Sprintf("network: %s allows nothing over TLS: it is for some requests, and %s is excluded from being read", part, by))
			}
		}
	}
	return notes
}
