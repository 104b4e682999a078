package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandboxbash/sandboxbash/network"
)

// Limits bound what a session's connections may cost this machine. Zero values are defaults.
type Limits struct {
	Connections int     // open at once; 0: 1,024
	Rate        float64 // new connections a second; 0: 1,000
	Burst       int     // new connections at once after a pause; 0: 5,000

	// Bytes is how much all connections of the session may carry together, in both directions,
	// TLS included. 0: no limit.
	Bytes int64
	// Idle is how long a connection may carry nothing in either direction, and Total how long
	// it may live. 0: no limit. A connection that waits for the next HTTP request is closed
	// after two minutes in any case.
	Idle, Total time.Duration

	Header int   // bytes of a request's header, where requests are judged; 0: 64 KiB
	Body   int64 // bytes of a request's body, where requests are judged; 0: no limit

	Rules []RuleLimit // of single rules, in addition
}

// RuleLimit limits what one allow rule lets through: the connections and requests for which the
// rule is the one that decides.
type RuleLimit struct {
	Rule  network.Rule
	Bytes int64   // of all its connections together, in both directions; 0: no limit
	Rate  float64 // its new connections and requests a second, at least one at once; 0: no limit
}

const (
	defaultConnections = 1024
	defaultRate        = 1000 // a second
	defaultBurst       = 5000
)

// DNS questions a second, and at once after a pause. A question beyond that is dropped: each costs
// this machine about what a new connection does.
const (
	questionRate  = 1000
	questionBurst = 5000
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
	if l.Header == 0 {
		l.Header = maxHeader
	}
	return l
}

// Check returns an error for limits that make no sense.
func (l Limits) Check() error {
	switch {
	case l.Connections < 0, l.Rate < 0, l.Burst < 0, l.Bytes < 0, l.Idle < 0, l.Total < 0, l.Header < 0, l.Body < 0:
		return errors.New("limits of the network must not be negative")
	case l.Header > maxHeaderLimit:
		return fmt.Errorf("limit header %d bytes: it must be at most %d (1 MiB)", l.Header, maxHeaderLimit)
	case l.Idle > 0 && l.Idle < minIdle:
		return fmt.Errorf("limit idle %v: it must be at least %v", l.Idle, minIdle)
	}
	for _, r := range l.Rules {
		switch {
		case r.Rule.IsZero():
			return errors.New("a limit is for no rule")
		case r.Bytes < 0, r.Rate < 0:
			return fmt.Errorf("limits of the rule %s must not be negative", r.Rule)
		}
	}
	return nil
}

const (
	maxHeaderLimit = 1 << 20                // bytes; a header is held in memory
	minIdle        = 100 * time.Millisecond // a shorter one cuts connections that work
)

// budget is what is left of a limit of bytes, and of a rate.
type budget struct {
	name    string // of what it is, in words
	limit   int64  // bytes; 0: no limit
	used    atomic.Int64
	arrives *rate.Limiter // nil: no limit
}

// spend counts bytes, and returns an error if they are more than there may be.
func (b *budget) spend(n int64) error {
	if b == nil || b.limit == 0 {
		return nil
	}
	if b.used.Add(n) > b.limit {
		return b.spent()
	}
	return nil
}

func (b *budget) spent() error { return limitError(fmt.Sprintf("%s is %d bytes", b.name, b.limit)) }

// admit returns an error if another connection or request is too many.
func (b *budget) admit() error {
	switch {
	case b == nil:
		return nil
	case b.limit > 0 && b.used.Load() >= b.limit:
		return b.spent()
	case b.arrives != nil && !b.arrives.Allow():
		return limitError(fmt.Sprintf("%s is %v new connections and requests a second", b.name, float64(b.arrives.Limit())))
	}
	return nil
}

// budgets are those of a session and of its rules.
type budgets struct {
	session *budget
	byRule  map[string]*budget // by the rule's text; not changed
}

func newBudgets(l Limits) budgets {
	b := budgets{session: &budget{name: "the limit of the session", limit: l.Bytes}, byRule: map[string]*budget{}}
	for _, r := range l.Rules {
		one := &budget{name: "the limit of the rule " + r.Rule.String(), limit: r.Bytes}
		if r.Rate > 0 {
			one.arrives = rate.NewLimiter(rate.Limit(r.Rate), max(1, int(r.Rate)))
		}
		b.byRule[r.Rule.String()] = one
	}
	return b
}

// limitError is a limit that was reached, in words.
type limitError string

func (e limitError) Error() string { return string(e) }

// full returns why no further connection may be opened, or "".
func (g *Gateway) full() string {
	switch {
	case g.open.len() >= g.limits.Connections:
		return fmt.Sprintf("%d connections are open", g.limits.Connections)
	case !g.arrivals.Allow():
		return fmt.Sprintf("more than %v new connections a second", g.limits.Rate)
	}
	if err := g.budgets.session.admit(); err != nil {
		return err.Error()
	}
	return ""
}

// meter is a connection of a session whose bytes and time are counted. It is reset when a limit is
// reached.
type meter struct {
	Conn

	gateway *Gateway
	rule    atomic.Pointer[budget] // of the rule that decided last; nil: no limit of its own
	over    atomic.Pointer[limitError]
	moved   atomic.Int64 // bytes, as a sign of life
	timers  []*time.Timer
	stop    func() // stops the timers, once
}

// metered returns conn itself if nothing limits it, so that its bytes take no way around.
func (g *Gateway) metered(conn Conn) Conn {
	l := g.limits
	if l.Bytes == 0 && l.Idle == 0 && l.Total == 0 && len(l.Rules) == 0 {
		return conn
	}
	m := &meter{Conn: conn, gateway: g}
	var mu sync.Mutex // the timer of idle is set again from its own goroutine
	ended := false
	m.stop = sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		for _, t := range m.timers {
			t.Stop()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if l.Total > 0 {
		m.timers = append(m.timers, time.AfterFunc(l.Total, func() {
			m.cut(limitError(fmt.Sprintf("the limit of a connection's life is %v", l.Total)))
		}))
	}
	if l.Idle > 0 {
		var idle *time.Timer
		before := int64(0)
		idle = time.AfterFunc(l.Idle, func() {
			mu.Lock()
			now := m.moved.Load()
			moves := now != before
			if before = now; moves && !ended {
				idle.Reset(l.Idle)
			}
			mu.Unlock()
			if !moves {
				m.cut(limitError(fmt.Sprintf("the connection carried nothing for %v", l.Idle)))
			}
		})
		m.timers = append(m.timers, idle)
	}
	return m
}

// count counts bytes that were carried. It returns an error, and resets the connection, if they
// are too many.
func (m *meter) count(n int) error {
	if n <= 0 {
		return nil
	}
	m.moved.Add(int64(n))
	err := errors.Join(m.gateway.budgets.session.spend(int64(n)), m.rule.Load().spend(int64(n)))
	if over, ok := errors.AsType[limitError](err); ok {
		m.cut(over)
		return over
	}
	return nil
}

// cut resets the connection because of a limit.
func (m *meter) cut(over limitError) {
	m.over.CompareAndSwap(nil, &over)
	m.Reset()
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if over := m.count(n); over != nil {
		return 0, over
	}
	return n, err
}

func (m *meter) Write(p []byte) (int, error) {
	if over := m.count(len(p)); over != nil {
		return 0, over
	}
	return m.Conn.Write(p)
}

// ReadFrom and WriteTo leave the copying to the connection, which takes buffers only when there is
// something to put into them.
func (m *meter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(m.Conn, countedReader{r, m})
}

// WriteTo is for io.Copy.
func (m *meter) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(countedTo{w, m}, m.Conn)
}

func (m *meter) Close() error {
	m.stop()
	return m.Conn.Close()
}

func (m *meter) Reset() {
	m.stop()
	m.Conn.Reset()
}

// countedReader counts what is read for a meter's connection.
type countedReader struct {
	io.Reader

	m *meter
}

func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if over := c.m.count(n); over != nil {
		return 0, over
	}
	return n, err
}

// countedTo counts what a meter's connection has brought.
type countedTo struct {
	io.Writer

	m *meter
}

func (c countedTo) Write(p []byte) (int, error) {
	if over := c.m.count(len(p)); over != nil {
		return 0, over
	}
	return c.Writer.Write(p)
}

// meterOf returns the meter below a connection, or nil.
func meterOf(conn Conn) *meter {
	m, _ := beneath(conn).(*meter)
	return m
}

// admit asks the limits of the rule that allows a connection or a request.
func (g *Gateway) admit(verdict network.Verdict) error {
	if err := g.budgets.byRule[verdict.Rule.String()].admit(); err != nil {
		return &network.Denial{Verdict: network.Verdict{Reason: ReasonLimit, Rule: verdict.Rule, Host: verdict.Host, Port: verdict.Port, Detail: err.Error()}}
	}
	return nil
}

// follow has the bytes of conn count for the rule with this text from now on.
func (g *Gateway) follow(conn Conn, rule string) {
	if m := meterOf(conn); m != nil {
		m.rule.Store(g.budgets.byRule[rule])
	}
}

// admitRequest asks the limits about a request that the rules allow. The rules' verdict is
// returned if no limit is reached. A CONNECT is a connection: see begin.
func (g *Gateway) admitRequest(conn Conn, r *http.Request, verdict network.Verdict) network.Verdict {
	if !verdict.Allowed || r.Method == http.MethodConnect {
		return verdict
	}
	g.follow(conn, verdict.Rule.String())
	if denial, ok := errors.AsType[*network.Denial](g.admit(verdict)); ok {
		return denial.Verdict
	}
	if g.limits.Body > 0 && r.ContentLength > g.limits.Body {
		return g.bodyDenial(verdict.Host, verdict.Port).Verdict
	}
	return verdict
}

func (g *Gateway) bodyDenial(host string, port int) *network.Denial {
	return &network.Denial{Verdict: network.Verdict{Reason: ReasonBody, Host: host, Port: port, Detail: fmt.Sprintf("the limit of a request's body is %d bytes", g.limits.Body)}}
}

// limitBody returns the body of a request, which fails with a Denial once it is too long. A body
// with a length was refused before: see admitRequest.
func (g *Gateway) limitBody(r *http.Request, record *Record) io.ReadCloser {
	if g.limits.Body == 0 {
		return r.Body
	}
	return &limitedBody{ReadCloser: r.Body, left: g.limits.Body, over: g.bodyDenial(record.Host, record.Port)}
}

type limitedBody struct {
	io.ReadCloser

	left int64
	over error
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.over
	}
	return n, err
}

// ended completes the record of a connection that has ended: a limit may have cut it.
func (g *Gateway) ended(conn Conn, r Record) Record {
	if m := meterOf(conn); m != nil {
		if over := m.over.Load(); over != nil {
			rule := r.Rule
			r.refuse(network.Verdict{Reason: ReasonLimit, Host: r.Host, Port: r.Port, Detail: string(*over)})
			r.Rule = rule
		}
	}
	return r
}

// limitText says which limit was reached.
func limitText(verdict network.Verdict) string {
	at := ""
	if verdict.Host != "" {
		at = target{verdict.Host, verdict.Port}.String() + ": "
	}
	if verdict.Detail == "" {
		return at + "a limit was reached"
	}
	return at + "a limit was reached: " + verdict.Detail
}
