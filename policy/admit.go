package policy

// Checker decides whether scripts may run. A *Policy is a Checker; a nil *Policy allows
// every script.
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
