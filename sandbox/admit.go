package sandbox

import "github.com/sandboxbash/sandboxbash/policy"

// Admit checks a command and asks rules whether it may run. It keeps the decision in
// c.Decided. The error is an *InputError, or a *policy.Denial that the observer has
// received as well. It is for callers that have rules of their own: Run and Terminal ask
// the engine's policy themselves.
func (s *Session) Admit(c *Command, rules policy.Checker) error {
	if err := c.Check(); err != nil {
		return err
	}
	var err error
	if c.Decided, err = policy.Admit(rules, policy.Input{Script: c.Script}); err != nil {
		s.Denied(*c, c.Decided)
	}
	return err
}
