package sandbox

import (
	"errors"

	"github.com/sandboxbash/sandboxbash/policy"
)

// Admit checks a command and asks rules whether it may run. It keeps the decision in
// c.Decided. The error is an *InputError or a *policy.Denial, of which the caller tells the
// observer. It is for callers that have no session yet.
func Admit(c *Command, rules policy.Checker) error {
	if err := c.Check(); err != nil {
		return err
	}
	var err error
	c.Decided, err = policy.Admit(rules, policy.Input{Script: c.Script})
	return err
}

// Admit is the function Admit, and notifies the observer of a denial. It is for callers
// that have rules of their own: Run and Terminal ask the engine's policy themselves.
func (s *Session) Admit(c *Command, rules policy.Checker) error {
	err := Admit(c, rules)
	if _, denied := errors.AsType[*policy.Denial](err); denied {
		s.Denied(*c, c.Decided)
	}
	return err
}
