package tool

import "github.com/sandboxbash/sandboxbash/policy"

// NewPolicy returns what decides for a contract where a host has nothing else: for
// agent the interceptor, if it is on, with the rules whose tools the agent has; for
// modes its three safety checks. It is nil if there is nothing that it could
// refuse. The warnings tell of rules that are left out.
func NewPolicy(contract Name, s Settings, tools []string) (*policy.Policy, []policy.Warning, error) {
	opts := policy.Options{Tools: tools, Match: s.Match}
	switch {
	case contract == Agent && s.Interceptor:
		opts.Rules = s.Rules
		if opts.Rules == nil {
			opts.Rules = policy.DefaultRules()
		}
	case contract == Modes:
		opts.Checks = policy.CheckNames()
	default:
		return nil, nil, nil
	}
	return policy.New(opts)
}

// checker is the host's policy, or the contract's own; nil if there is none.
func (p *Plan) checker(h Host) (Checker, error) {
	if h.Policy != nil {
		return h.Policy, nil
	}
	own, warnings, err := NewPolicy(p.Contract, h.Settings, h.Tools)
	if own == nil || err != nil {
		return nil, err
	}
	for _, w := range warnings {
		p.Warnings = append(p.Warnings, w.Text)
	}
	return own, nil
}
