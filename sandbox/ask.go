package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// NetworkQuestion asks whether a session may reach what no rule allows. All its texts come from inside the
// session: show them as plain text.
type NetworkQuestion struct {
	Session string `json:"session"`
	Host    string `json:"host"` // canonical
	Port    int    `json:"port"`
	Method  string `json:"method,omitempty"` // of an HTTP request that can be read; "" for a connection
	Path    string `json:"path,omitempty"`   // of that request, without its query
	Rule    string `json:"rule"`             // the narrowest rule that would allow it
	// Command is the text of the command that runs, with secrets masked and cut to maxAskedCommand bytes. It
	// is "" if none runs, as for a job, and if several do.
	Command string `json:"command,omitempty"`
	// Proposed says that nothing waits for the answer: the agent proposes the rule, for the reason in Reason.
	Proposed bool   `json:"proposed,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// maxAskedCommand bounds NetworkQuestion.Command, in bytes.
const maxAskedCommand = 256

// NetworkScope says for how long an answer allows something.
type NetworkScope string

// Scopes. The zero value is a no.
const (
	AllowNo NetworkScope = "no"
	// AllowOnce allows the host and port until the commands that run have ended, or, if none runs, the next.
	AllowOnce NetworkScope = "once"
	// AllowSession adds the rule to those of the session.
	AllowSession NetworkScope = "session"
	// AllowAlways is AllowSession for rules that the callback has also stored for later sessions.
	AllowAlways NetworkScope = "always"
)

// NetworkAnswer answers a NetworkQuestion. The zero value is a no.
type NetworkAnswer struct {
	Scope NetworkScope
	By    string // who answered, for the record: "terminal", "mcp", "rpc"; "" is "callback"
	// Rule is what is allowed instead of the question's rule; "" is that rule. It must be for the question's host
	// and port: if it is not, or is not a rule, the answer is a no.
	Rule string
}

// Names of those who answer, besides NetworkAnswer.By.
const (
	byCallback = "callback"
	byTimeout  = "timeout"   // no answer came in time, which is a no
	byNone     = "withdrawn" // nothing waited for the answer any more
)

// NetworkDecision is the answer to a question, as an Observer sees it. Its rule is the one that the answer
// allows.
type NetworkDecision struct {
	NetworkQuestion

	Answer NetworkScope `json:"answer"`
	By     string       `json:"by"`
}

// EventNetworkAnswer is the answer to a question about the network: see Observation.Decision.
const EventNetworkAnswer EventKind = "network-answer"

// permits are the rules of a session: its own, and what answers have added.
type permits struct {
	set      func(*network.Policy)
	changing sync.Mutex // one change of the session's own rules at a time

	mu          sync.Mutex
	allow, deny []network.Rule // guarded by mu
	once        []onceRule     // guarded by mu
}

// onceRule is a rule that goes when the commands have ended for which it was added.
type onceRule struct {
	rule network.Rule
	runs map[*networkWatch]bool // none: until the end of the next command
}

// policy needs mu.
func (p *permits) policy() *network.Policy {
	now := &network.Policy{Allow: slices.Clone(p.allow), Deny: p.deny}
	for _, o := range p.once {
		now.Allow = append(now.Allow, o.rule)
	}
	return now
}

// grant adds a rule, for good or until the commands that run have ended.
func (p *permits) grant(rule network.Rule, scope NetworkScope, running func() []*networkWatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if scope == AllowOnce {
		o := onceRule{rule: rule, runs: map[*networkWatch]bool{}}
		for _, w := range running() { // their ends wait for mu
			o.runs[w] = true
		}
		p.once = append(p.once, o)
	} else {
		p.allow = append(p.allow, rule)
	}
	p.set(p.policy())
}

// ended removes the rules that were for a command and have no other.
func (p *permits) ended(w *networkWatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.once)
	p.once = slices.DeleteFunc(p.once, func(o onceRule) bool {
		delete(o.runs, w)
		return len(o.runs) == 0
	})
	if len(p.once) < before {
		p.set(p.policy())
	}
}

// get returns the session's own rules, with those that answers have added for good.
func (p *permits) get() (allow, deny []network.Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allow), slices.Clone(p.deny)
}

// replace replaces the session's own rules. What answers have added for a running command stays.
func (p *permits) replace(allow, deny []network.Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allow, p.deny = slices.Clone(allow), slices.Clone(deny)
	p.set(p.policy())
}

// askWith has questions answered by a function from now on.
func (x *exceptions) askWith(ask func(context.Context, NetworkQuestion) NetworkAnswer) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ask = ask
}

// asked is the gateway's question. It returns true once the rules allow what was asked for.
func (x *exceptions) asked(ctx context.Context, q gateway.Question) bool {
	if x.proving.Load() {
		return false // this process tries what no one wants to be allowed
	}
	x.mu.Lock()
	ask := x.ask
	x.mu.Unlock()
	rule, err := network.ParseRule(q.Rule)
	if err != nil || ask == nil || q.Host == deniedName { // that is this process's own: see prove
		return false
	}
	d := NetworkDecision{NetworkQuestion: NetworkQuestion{Session: x.session.ID(), Host: q.Host, Port: q.Port, Method: q.Method, Path: q.Path, Rule: q.Rule}}
	if running := x.running(); len(running) == 1 && !q.Proposed {
		d.Command = running[0].command
	}
	d.Proposed, d.Reason = q.Proposed, q.Reason
	start := time.Now()
	answer := ask(ctx, d.NetworkQuestion)
	if d.Answer, d.By = answered(ctx, answer); d.Answer != AllowNo {
		if answer.Rule != "" {
			rule, err = network.ParseRule(answer.Rule)
		}
		if err == nil {
			err = x.permit(rule, d)
		}
		if err != nil {
			d.Answer = AllowNo
		} else {
			d.Rule = rule.String()
		}
	}
	if q.Proposed {
		x.mu.Lock()
		x.decided[q.Rule] = d
		x.mu.Unlock()
	}
	x.session.engine.noteDecision(start, d)
	return d.Answer != AllowNo
}

// permit has a rule hold that an answer allows. It must be for what was asked.
func (x *exceptions) permit(rule network.Rule, d NetworkDecision) error {
	if v := (&network.Policy{Allow: []network.Rule{rule}}).Connect(d.Host, d.Port); !v.Allowed {
		return v.Err()
	}
	x.permits.changing.Lock()
	defer x.permits.changing.Unlock()
	if err := x.trustFor(Spec{Allow: []network.Rule{rule}}); err != nil {
		return err
	}
	x.permits.grant(rule, d.Answer, x.running)
	return nil
}

// running are the watches of the commands that run.
func (x *exceptions) running() []*networkWatch {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.watches))
}

// answered is what an answer counts for. What is not one of the scopes is a no, and so is an answer that came
// too late.
func answered(ctx context.Context, a NetworkAnswer) (NetworkScope, string) {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return AllowNo, byTimeout
	case ctx.Err() != nil:
		return AllowNo, byNone
	case a.By == "":
		a.By = byCallback
	}
	switch a.Scope {
	case AllowOnce, AllowSession, AllowAlways:
		return a.Scope, a.By
	case AllowNo:
	}
	return AllowNo, a.By
}

// noteDecision tells the observer of an answer.
func (e *Engine) noteDecision(start time.Time, d NetworkDecision) {
	if o := e.opts.Observer; o != nil {
		o.Note(Observation{Kind: EventNetworkAnswer, Session: d.Session, Start: start, End: time.Now(), Decision: &d, secrets: e.opts.Secrets})
	}
}

// askedText is the text of a command as a question shows it.
func (s *Session) askedText(c Command) string {
	text, _ := newObservation(EventCommand, s.ID(), c, s.engine.opts.Secrets).Command(maxAskedCommand)
	return text
}
