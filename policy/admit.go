package policy

// Checker decides about scripts: a *Policy, which may be nil and then allows every
// script, or another program's own.
type Checker interface {
	Check(in Input) Decision
}

// Admit asks rules whether a script may run. The error is a *Denial if it may not.
// Without rules every script may run, and the decision is the zero value.
func Admit(rules Checker, in Input) (Decision, error) {
	if rules == nil {
		return Decision{}, nil
	}
	d := rules.Check(in)
	if d.Blocked {
		return d, &Denial{Decision: d}
	}
	return d, nil
}
