package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// Errors of ProposeNetwork that are not about the rule.
var (
	// ErrNoQuestions is the error for a session without Spec.AskNetwork.
	ErrNoQuestions = gateway.ErrNoQuestions
	// ErrAskedBefore is the error for a host and port that was refused in the last five minutes, or
	// about which a question is open.
	ErrAskedBefore = gateway.ErrAskedBefore
	// ErrProposals is the error for more than five proposals at once, and one a minute from then on.
	ErrProposals = gateway.ErrProposals
)

// maxReason bounds the reason of a proposal, in bytes.
const maxReason = 512

// ProposeNetwork asks for a rule that an agent proposes. The question goes to Spec.AskNetwork, as those about
// connections do, and the answer has the same effect: the proposal itself allows nothing. The rule must be
// narrow: one host, a name or an address, and one port, with methods and a path if wanted. reason is the agent's,
// and must not be empty.
//
// The result says what was answered and which rule holds by now. If rules allow it already no one is asked, and By is
// "". The error is an *InputError for a rule that may not be asked for, as for what a deny rule is for and for local
// addresses, and one of ErrNoQuestions, ErrAskedBefore, ErrProposals and ErrNoNetwork otherwise.
func (s *Session) ProposeNetwork(ctx context.Context, rule, reason string) (NetworkDecision, error) {
	none := NetworkDecision{Answer: AllowNo}
	reason = strings.TrimSpace(s.engine.opts.Secrets.Scrub(reason))
	switch {
	case reason == "":
		return none, badInput("reason", "reason: say what it is needed for")
	case len(reason) > maxReason:
		return none, badInput("reason", "reason: it is longer than %d bytes", maxReason)
	}
	parsed, err := network.ParseRule(rule)
	if err != nil {
		return none, &InputError{Field: "rule", Text: err.Error(), err: err}
	}
	x := s.carrier()
	if x == nil {
		return none, fmt.Errorf("session %s: %w", s.ID(), ErrNoNetwork)
	}
	yes, v, err := x.gateway.Propose(ctx, parsed, reason)
	switch denial, refused := errors.AsType[*network.Denial](err); {
	case refused:
		return none, &InputError{Field: "rule", Text: fmt.Sprintf("rule %s: %s; it cannot be asked for", parsed, denial), err: err}
	case errors.Is(err, ErrNoQuestions), errors.Is(err, ErrAskedBefore), errors.Is(err, ErrProposals):
		return none, fmt.Errorf("session %s: rule %s: %w", s.ID(), parsed, err)
	case err != nil:
		return none, &InputError{Field: "rule", Text: fmt.Sprintf("rule %s: %v", parsed, err), err: err}
	case v.Allowed:
		return NetworkDecision{Answer: AllowSession, NetworkQuestion: NetworkQuestion{Session: s.ID(), Host: v.Host, Port: v.Port, Rule: v.Rule.String()}}, nil
	}
	x.mu.Lock()
	d, answered := x.decided[v.Ask]
	delete(x.decided, v.Ask)
	x.mu.Unlock()
	if !answered || !yes {
		d = NetworkDecision{Answer: AllowNo, By: byTimeout, NetworkQuestion: NetworkQuestion{Session: s.ID(), Host: v.Host, Port: v.Port, Rule: v.Ask}}
	}
	return d, nil
}
