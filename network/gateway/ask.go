package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandboxbash/sandboxbash/network"
)

// Question asks a person whether the rules should allow something that no rule allows.
type Question struct {
	Host   string // canonical
	Port   int
	Method string // of an HTTP request that the gateway can read; "" for a connection
	Path   string // of that request, without its query
	Rule   string // the narrowest rule that would allow it, as text for network.ParseRule
	// Proposed says that nothing waits: the agent proposes the rule, for the reason in Reason.
	Proposed bool
	Reason   string
}

// Errors of Propose, besides a *network.Denial.
var (
	ErrNoQuestions = errors.New("no one is asked what this session may reach")
	ErrAskedBefore = errors.New("this host and port were refused a short time ago, or are being asked for")
	ErrProposals   = errors.New("too many rules were proposed in a short time")
)

// DefaultAskTime is how long a question waits for its answer unless Options.AskTime says otherwise.
const DefaultAskTime = 30 * time.Second

// Bounds of questions. What is beyond them is refused without a question.
const (
	maxAsked     = 8               // questions that wait for an answer at once
	maxHeld      = 128             // connections and requests that wait for an answer at once
	refusalKept  = 5 * time.Minute // how long a "no" stands for its host and port
	maxRefusals  = 1024            // that are remembered; the oldest is forgotten
	maxEarly     = 16 << 10        // bytes of a connection that are read while it waits
	unknownNames = 64              // names that no rule allows and that get an address at once,
	unknownRate  = rate.Limit(0.1) // and one every ten seconds from then on

	proposals = 5 // questions of the agent's own that a person is asked at once,
)

// proposalRate is how many more a person is asked from then on.
var proposalRate = rate.Every(time.Minute)

// askedPorts are where the session listens for a name that may be asked for.
var askedPorts = []int{22, httpPort, httpsPort}

// asking puts the questions of one gateway. A question is about a host and a port: connections that want
// the same wait for the same answer.
type asking struct {
	put   func(context.Context, Question) bool
	wait  time.Duration
	fresh *rate.Limiter // of names that no rule allows
	own   *rate.Limiter // of what the agent proposes

	mu      sync.Mutex
	open    map[target]*openQuestion // guarded by mu
	held    int                      // guarded by mu; connections and requests that wait
	refused map[target]time.Time     // guarded by mu; until when
}

// openQuestion is a question that has no answer so far.
type openQuestion struct {
	done    chan struct{}
	yes     bool               // set before done is closed
	cancel  context.CancelFunc // withdraws the question
	waiting int                // guarded by asking.mu
}

// newAsking returns nil if there is nothing to put questions with.
func newAsking(opts Options) *asking {
	if opts.Ask == nil {
		return nil
	}
	a := &asking{put: opts.Ask, wait: opts.AskTime, fresh: rate.NewLimiter(unknownRate, unknownNames), own: rate.NewLimiter(proposalRate, proposals), open: map[target]*openQuestion{}, refused: map[target]time.Time{}}
	if a.wait <= 0 {
		a.wait = DefaultAskTime
	}
	return a
}

// askable reports whether permission can be asked for: what is refused is so for lack of a rule, and for
// nothing else.
func askable(v network.Verdict) bool {
	switch v.Reason { //nolint:exhaustive // no other refusal can be lifted by a rule
	case network.NoRule, network.NoPortRule, network.NoRequest:
		return !v.Allowed && v.Ask != ""
	}
	return false
}

// mayName reports whether a name that the rules refuse gets an address of its own in the session, because it
// can be asked for. Each takes listeners, so there are only so many.
func (a *asking) mayName(v network.Verdict) bool {
	return a != nil && askable(v) && a.fresh.Allow()
}

// listenPorts are the ports where the session listens for a name: those of its rules, and those that can be
// asked for.
func (a *asking) listenPorts(ruled []int) []int {
	if a == nil {
		return ruled
	}
	if len(ruled) == 0 {
		return []int{httpPort, httpsPort}
	}
	return ruled
}

// listenMore has the session listen at the other ports that can be asked for, if they are free.
func (g *Gateway) listenMore(ctx context.Context, name string) {
	if g.asks == nil {
		return
	}
	for _, port := range askedPorts {
		_, _ = g.names.addr(ctx, name, []int{port}) // a process of the session may listen there
	}
}

// permit puts the question about a connection if the rules do not allow it, and waits for the answer. The
// rules decide afterwards, whatever it was. The result is the connection with what was read of it
// meanwhile.
func (g *Gateway) permit(ctx context.Context, conn Conn, t target) Conn {
	if g.asks == nil {
		return conn
	}
	connect := func() network.Verdict { return g.rules.Load().Connect(t.name, t.port) }
	verdict := connect()
	if !askable(verdict) {
		return conn
	}
	ctx, early := readEarly(ctx, conn)
	g.reconsider(ctx, verdict, Question{}, connect)
	return early()
}

// reconsider puts the question about what the rules refuse for lack of a rule. If the answer is yes the
// rules were changed, and the result is what they say now; otherwise it is the verdict. again asks the
// rules.
func (g *Gateway) reconsider(ctx context.Context, v network.Verdict, q Question, again func() network.Verdict) network.Verdict {
	if g.asks == nil || !askable(v) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, g.asks.wait)
	defer cancel()
	for askable(v) && !g.asks.isRefused(target{v.Host, v.Port}) {
		if refusal, ok := g.leads(v); !ok {
			return refusal
		}
		q.Host, q.Port, q.Rule = v.Host, v.Port, v.Ask
		yes, own := g.asks.answer(ctx, q)
		if !yes {
			return v
		}
		asked := v.Ask
		if v = again(); own && v.Ask == asked {
			return v // the answer was yes, and no rule came of it
		}
	}
	return v
}

// Propose asks for a rule that an agent proposes, for a reason, although nothing waits for it. It
// returns true if Options.Ask did, or if the rules allow it already: the verdict is Allowed then. What may not be
// asked for is a *network.Denial; a rule that is not narrow is another error.
func (g *Gateway) Propose(ctx context.Context, rule network.Rule, reason string) (bool, network.Verdict, error) {
	if g.asks == nil {
		return false, network.Verdict{}, ErrNoQuestions
	}
	v, err := g.rules.Load().Propose(rule)
	if err != nil || v.Allowed {
		return v.Allowed, v, err
	}
	if v.Ask == "" {
		return false, v, v.Err()
	}
	if refusal, ok := g.leads(v); !ok {
		return false, refusal, refusal.Err()
	}
	if g.asks.isRefused(target{v.Host, v.Port}) {
		return false, v, ErrAskedBefore
	}
	if !g.asks.own.Allow() {
		return false, v, ErrProposals
	}
	ctx, cancel := context.WithTimeout(ctx, g.asks.wait)
	defer cancel()
	yes, own := g.asks.answer(ctx, Question{Host: v.Host, Port: v.Port, Rule: v.Ask, Proposed: true, Reason: reason})
	if !own {
		return false, v, ErrAskedBefore // what was asked is not this
	}
	return yes, v, nil
}

// questionOf is what a question says of a request, besides its host.
func questionOf(r *http.Request) Question {
	if r.Method == http.MethodConnect {
		return Question{} // it is for a connection
	}
	return Question{Method: r.Method, Path: r.URL.EscapedPath()}
}

// leads reports whether a host may have an address that may be dialled once a rule allows the host. If it
// has none, the result is why. It looks nothing up: that would tell the name to name servers before the
// answer. What the host's name leads to is judged when it is dialled.
func (g *Gateway) leads(v network.Verdict) (network.Verdict, bool) {
	found, _ := g.names.known(v.Host, lookupKept)
	if addr, err := netip.ParseAddr(v.Host); err == nil {
		found.addrs = []netip.Addr{addr}
	}
	if len(found.addrs) == 0 {
		return v, true
	}
	return anyAddress(g.rules.Load(), v.Host, []int{v.Port}, found.addrs)
}

// isRefused reports whether the answer for a host and port was no, not long ago.
func (a *asking) isRefused(t target) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.saidNo(t)
}

// saidNo is isRefused for callers that have mu.
func (a *asking) saidNo(t target) bool {
	until, ok := a.refused[t]
	if ok && time.Now().After(until) {
		delete(a.refused, t)
		return false
	}
	return ok
}

// answer returns the answer to a question, and whether this caller put it. Nothing else of the same host and
// port is asked meanwhile. It returns no if ctx ends first.
func (a *asking) answer(ctx context.Context, q Question) (yes, own bool) {
	one, own := a.join(ctx, q)
	if one == nil {
		return false, own
	}
	answered := false
	select {
	case <-one.done:
		answered = true
	case <-ctx.Done():
	}
	a.mu.Lock()
	a.held--
	one.waiting--
	last := one.waiting == 0
	a.mu.Unlock()
	if last && !answered { // nothing waits for the answer any more
		one.cancel()
		<-one.done
	}
	return answered && one.yes, own
}

// join returns the question about a host and port, and whether this call has put it. It returns nil if
// the answer has come, and was no, meanwhile, and if too much waits already.
func (a *asking) join(ctx context.Context, q Question) (one *openQuestion, own bool) {
	t := target{q.Host, q.Port}
	a.mu.Lock()
	defer a.mu.Unlock()
	one = a.open[t]
	if a.saidNo(t) || a.held >= maxHeld || one == nil && len(a.open) >= maxAsked {
		return nil, false
	}
	if own = one == nil; own {
		one = a.begin(context.WithoutCancel(ctx), t, q)
	}
	a.held++
	one.waiting++
	return one, own
}

// begin puts a question. It needs mu.
func (a *asking) begin(ctx context.Context, t target, q Question) *openQuestion {
	ctx, withdraw := context.WithCancel(ctx)
	timed, cancel := context.WithTimeout(ctx, a.wait)
	one := &openQuestion{done: make(chan struct{}), cancel: withdraw}
	a.open[t] = one
	go func() { // its last waiter waits for it
		defer close(one.done)
		defer withdraw()
		defer cancel()
		yes := a.put(timed, q)
		a.mu.Lock()
		defer a.mu.Unlock()
		one.yes = yes && timed.Err() == nil
		delete(a.open, t)
		if !one.yes && ctx.Err() == nil { // a question that was withdrawn has no answer
			a.refuse(t)
		}
	}()
	return one
}

// refuse remembers a "no". It needs mu.
func (a *asking) refuse(t target) {
	if len(a.refused) >= maxRefusals {
		var oldest target
		for other, until := range a.refused {
			if oldest == (target{}) || until.Before(a.refused[oldest]) {
				oldest = other
			}
		}
		delete(a.refused, oldest)
	}
	a.refused[t] = time.Now().Add(refusalKept)
}

// readEarly reads what a program sends while its connection waits for an answer, and ends the context when
// the program gives up. The function that it returns ends that, and returns the connection as if nothing
// had been read.
func readEarly(ctx context.Context, conn Conn) (context.Context, func() Conn) {
	ctx, gone := context.WithCancel(ctx)
	var early []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		chunk := make([]byte, 4<<10)
		for len(early) < maxEarly {
			n, err := conn.Read(chunk)
			early = append(early, chunk[:n]...)
			if err != nil {
				gone() // or the answer is there
				return
			}
		}
	}()
	return ctx, func() Conn {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		gone()
		_ = conn.SetReadDeadline(time.Time{})
		return &bufferedConn{Conn: conn, first: bytes.NewReader(early)}
	}
}

// sayDenied tells a client that speaks TLS that it is refused: clients show the alert's name.
func sayDenied(conn Conn) {
	_ = conn.SetDeadline(time.Now().Add(drainTime))
	if _, err := conn.Write(alertAccessDenied); err == nil && conn.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, drainBytes)
	}
	_ = conn.Close()
}
