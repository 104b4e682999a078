package tool

import "github.com/sandboxbash/sandboxbash/policy"

// NewPolicy returns the policy of a contract for a host without a policy of its own.
// For agent it is the interceptor, if that is on, with the rules whose tools the agent
// has; for modes it is the three safety checks. It is nil if it could refuse nothing.
// The warnings are about rules that are left out.
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

// checker returns the host's policy or, without one, the contract's own; nil if there
// is none.
func (p *Plan) checker(h Host) (policy.Checker, error) {
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
