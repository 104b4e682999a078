package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Network is what a session may reach, and what it has reached: a *sandbox.Session. Its errors
// wrap sandbox.ErrNoNetwork if this process does not carry the session's connections.
type Network interface {
	NetworkRules() (allow, deny []network.Rule, err error)
	UpdateNetworkRules(change func(allow, deny []network.Rule) (newAllow, newDeny []network.Rule, err error)) error
	ConnectionsAfter(from uint64) (list []sandbox.Connection, next uint64, more <-chan struct{})
}

// heldElsewhere has a method done by the process that carries the connections of the session, if that is
// not this one: a session's network has one owner.
func heldElsewhere(name string, do func(context.Context, *peer, *request) (any, error)) func(context.Context, *peer, *request) (any, error) {
	return func(ctx context.Context, p *peer, r *request) (any, error) {
		return askHeld(ctx, p.session, name, p, r, do)
	}
}

func askHeld(ctx context.Context, session func(context.Context, string) (*Session, error), name string, p *peer, r *request, do func(context.Context, *peer, *request) (any, error)) (any, error) {
	var n named
	if p.watched != nil || len(r.params) > 0 && json.Unmarshal(r.params, &n) != nil {
		return do(ctx, p, r)
	}
	s, err := session(ctx, n.Session)
	if err != nil || s.HeldNetwork == nil {
		return do(ctx, p, r)
	}
	answer, err := s.HeldNetwork(ctx, name, r.params)
	if err != nil {
		return nil, networkError(err)
	}
	return answer, nil
}

// networkOf returns the network of a session.
func (p *peer) networkOf(ctx context.Context, session string) (Network, error) {
	if p.watched != nil {
		return p.watched.network, nil
	}
	s, err := p.session(ctx, session)
	if err != nil {
		return nil, err
	}
	return part(s.Network, "network of its own")
}

// networkError is the answer to a request about a network that another process carries.
func networkError(err error) error {
	if errors.Is(err, sandbox.ErrNoNetwork) {
		return failure(KindUnavailable, "%v: it was started without rules, or another process carries them", err)
	}
	return err
}

// NetworkRules are the rules of a session.
type NetworkRules struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	Notes []string `json:"notes,omitempty"` // of a change
}

func newNetworkRules(allow, deny []network.Rule) NetworkRules {
	return NetworkRules{Allow: network.Texts(allow), Deny: network.Texts(deny)}
}

func doNetworkRules(ctx context.Context, p *peer, n named) (any, error) {
	net, err := p.networkOf(ctx, n.Session)
	if err != nil {
		return nil, err
	}
	allow, deny, err := net.NetworkRules()
	if err != nil {
		return nil, networkError(err)
	}
	return newNetworkRules(allow, deny), nil
}

// ruleChange adds rules to a list, and takes rules back.
type ruleChange struct {
	Session string   `json:"session"`
	Rules   []string `json:"rules"`
	Remove  []string `json:"remove"`
}

func doNetworkAllow(ctx context.Context, p *peer, c ruleChange) (any, error) {
	return c.do(ctx, p, func(add, remove, allow, deny []network.Rule) ([]network.Rule, []network.Rule, error) {
		changed, err := changeRules("allow", allow, add, remove)
		return changed, deny, err
	})
}

func doNetworkDeny(ctx context.Context, p *peer, c ruleChange) (any, error) {
	return c.do(ctx, p, func(add, remove, allow, deny []network.Rule) ([]network.Rule, []network.Rule, error) {
		changed, err := changeRules("deny", deny, add, remove)
		return allow, changed, err
	})
}

// do changes one of the two lists, and answers with both.
func (c ruleChange) do(ctx context.Context, p *peer, change func(add, remove, allow, deny []network.Rule) ([]network.Rule, []network.Rule, error)) (any, error) {
	add, err := parseRules("rules", c.Rules)
	if err != nil {
		return nil, err
	}
	remove, err := parseRules("remove", c.Remove)
	if err != nil {
		return nil, err
	}
	if len(add)+len(remove) == 0 {
		return nil, badParams("rules is required, or remove: as in example.com:443")
	}
	net, err := p.networkOf(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	var answer NetworkRules
	err = net.UpdateNetworkRules(func(allow, deny []network.Rule) ([]network.Rule, []network.Rule, error) {
		allow, deny, err := change(add, remove, allow, deny)
		answer = newNetworkRules(allow, deny)
		answer.Notes = overruled(add, allow, deny)
		return allow, deny, err
	})
	if err != nil {
		return nil, networkError(err)
	}
	return answer, nil
}

// overruled says which of the new rules never allow anything.
func overruled(added, allow, deny []network.Rule) []string {
	var notes []string
	p := &network.Policy{Allow: allow, Deny: deny}
	for _, r := range added {
		if !slices.ContainsFunc(allow, r.Equal) {
			continue
		}
		if by, ok := p.Overruled(r); ok {
			notes = append(notes, fmt.Sprintf("the rule %s allows nothing, because the rule %s denies all of it, and a deny rule wins", r, by))
		}
	}
	return notes
}

func parseRules(field string, texts []string) ([]network.Rule, error) {
	var rules []network.Rule
	for i, text := range texts {
		r, err := network.ParseRule(text)
		if bad, ok := errors.AsType[*network.RuleError](err); ok {
			why := bad.Text
			if bad.Hint != "" {
				why += ": " + bad.Hint
			}
			return nil, badParams("%s: entry %d, column %d: %s", field, i+1, bad.Column, why)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// changeRules returns a list with rules added, each once, and others taken back.
func changeRules(name string, list, add, remove []network.Rule) ([]network.Rule, error) {
	for _, r := range remove {
		i := slices.IndexFunc(list, r.Equal)
		if i < 0 {
			return nil, badParams("%s is not one of the %s rules: there are %d: %q", r, name, len(list), network.Texts(list))
		}
		list = slices.Delete(list, i, i+1)
	}
	for _, r := range add {
		if !slices.ContainsFunc(list, r.Equal) {
			list = append(list, r)
		}
	}
	return list, nil
}

type networkLog struct {
	Session string `json:"session"`
	After   uint64 `json:"after"`
	Limit   int    `json:"limit"`
	Wait    bool   `json:"wait"`
}

// NetworkLog are connections of a session that have ended.
type NetworkLog struct {
	Connections []LoggedConnection `json:"connections"`
	Next        uint64             `json:"next"`             // After, for those that come
	Missed      uint64             `json:"missed,omitempty"` // that are not remembered any more
}

// LoggedConnection is a connection with its duration.
type LoggedConnection struct {
	sandbox.Connection
	Ms int64 `json:"ms"`
}

func doNetworkLog(ctx context.Context, p *peer, q networkLog) (any, error) {
	if q.Limit < 0 || q.Limit > sandbox.MaxConnections {
		return nil, badParams("limit: it can be 1 to %d", sandbox.MaxConnections)
	}
	net, err := p.networkOf(ctx, q.Session)
	if err != nil {
		return nil, err
	}
	if _, _, err := net.NetworkRules(); err != nil {
		return nil, networkError(err)
	}
	list, next, more := net.ConnectionsAfter(q.After)
	for len(list) == 0 && q.Wait {
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		list, next, more = net.ConnectionsAfter(q.After)
	}
	log := NetworkLog{Connections: []LoggedConnection{}, Next: next}
	if first := next - uint64(len(list)); first > q.After && q.After > 0 {
		log.Missed = first - q.After
	}
	if q.Limit > 0 && len(list) > q.Limit {
		list = list[len(list)-q.Limit:]
	}
	for _, c := range list {
		log.Connections = append(log.Connections, LoggedConnection{c, c.Elapsed.Milliseconds()})
	}
	return log, nil
}
