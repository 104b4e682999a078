package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// Connection is one connection, request or refused name of a session.
type Connection = gateway.Record

// NetworkUse is what a session's connections did while a command ran. If several commands ran at the
// same time, it is that of all of them.
type NetworkUse struct {
	// Denied are connections and names that the rules refused, each host and port once, at most
	// maxDenied of them.
	Denied []Connection `json:"denied,omitempty"`
	More   int          `json:"more,omitempty"` // refused ones beyond that
	Count  int          `json:"count"`          // connections and requests that were allowed
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
	stop    context.CancelFunc
	ended   chan struct{} // closed when nothing of it runs any more

	mu      sync.Mutex
	watches map[*networkWatch]bool // guarded by mu; one for each command that runs
	current tunnel                 // guarded by mu; the zero value while there is none
}

// networkWatch collects what happens while a command runs.
type networkWatch struct {
	use  NetworkUse          // guarded by exceptions.mu
	seen map[deniedHost]bool // what was refused
}

// deniedHost is a host and a port, or 0 for a name that was refused at every port.
type deniedHost struct {
	host string
	port int
}

// newExceptions returns nil if the session has no exceptions.
func newExceptions(s *Session, spec Spec, info engine.Info) *exceptions {
	if len(spec.Allow) == 0 {
		return nil
	}
	x := &exceptions{session: s, ended: make(chan struct{}), watches: map[*networkWatch]bool{}}
	opts := gateway.Options{Rules: &network.Policy{Allow: spec.Allow, Deny: spec.Deny}, Resolver: s.engine.opts.Resolver, Begun: x.begun, Record: x.record}
	if info.EmptyResolver {
		opts.Proxy = proxyAddr
	}
	x.gateway = gateway.New(opts)
	return x
}

// proxyAddr is where a session has a proxy if the engine lets it have no resolver of ours.
var proxyAddr = netip.MustParseAddrPort("127.0.0.1:3128")

// open opens the way out, and keeps it open until close.
func (x *exceptions) open(ctx context.Context) error {
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

// Pauses between two tries to open the way out again.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// keepOpen serves a tunnel, and opens the next when it breaks: the runner was killed, the container
// was reset, or the engine's stream was cut.
func (x *exceptions) keepOpen(ctx context.Context, t tunnel) {
	defer close(x.ended)
	defer x.gateway.Close()
	pause := firstPause
	for {
		if t.Session != nil {
			began := time.Now()
			x.use(t)
			_ = x.gateway.Serve(ctx, t) // why it ended says no more than that it did
			x.use(tunnel{})
			_ = t.Close()
			if ctx.Err() != nil {
				return
			}
			x.lost()
			if time.Since(began) > maxPause {
				pause = firstPause
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, maxPause)
		var err error
		if t, err = x.again(ctx); errors.Is(err, engine.ErrNotFound) {
			return // the session is gone
		}
	}
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
func (x *exceptions) watch() func() *NetworkUse {
	if x == nil {
		return func() *NetworkUse { return nil }
	}
	w := &networkWatch{seen: map[deniedHost]bool{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watches[w] = true
	return func() *NetworkUse {
		x.mu.Lock()
		carried := w.use.Count > 0
		x.mu.Unlock()
		if carried {
			x.confirm()
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.watches, w)
		if w.use.Count == 0 && len(w.use.Denied) == 0 && !w.use.Lost {
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
	x.mu.Lock()
	for w := range x.watches {
		w.add(c)
	}
	x.mu.Unlock()
	x.session.engine.noteConnection(x.session.ID(), c)
}

// add needs exceptions.mu.
func (w *networkWatch) add(c Connection) {
	if c.Allowed {
		return // it was counted when it began; a name that could not be looked up is the program's to tell
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
	if len(s.Allow) == 0 {
		return nil // what is denied is denied by default
	}
	if s.Network != NetworkNone {
		return fmt.Errorf("network %s: rules are exceptions from network none: leave out one of the two", s.Network)
	}
	for _, r := range s.Allow {
		if !slices.ContainsFunc(r.Expand(), func(part network.Rule) bool { return !part.Intercepts() }) {
			return fmt.Errorf("network rule %s: requests inside TLS cannot be judged by method, path or text so far: allow whole hosts, as in example.com", r)
		}
	}
	return nil
}

// networkNotes returns notes about what of the network may surprise.
func (s *Spec) networkNotes() []string {
	if s.Network == NetworkBridge {
		return []string{"network bridge: the engine's host, its local network and cloud metadata services are reachable from this session"}
	}
	var notes []string
	for _, r := range s.Allow {
		for _, part := range r.Expand() {
			if part.Intercepts() {
				notes = append(notes, fmt.Sprintf("network: %s of %s is refused: requests inside TLS cannot be judged so far", part, r))
			}
		}
	}
	return notes
}
