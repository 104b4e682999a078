package network

import "errors"

// Narrow returns the host and the port of a rule that is for one host, a name or an address, and one port. For
// every other rule the error says what to name instead.
func (r Rule) Narrow() (host string, port int, err error) {
	switch {
	case r.IsZero():
		return "", 0, errors.New("it is for nothing")
	case r.preset != nil:
		return "", 0, errors.New("a preset is for many hosts: name one of them, as in example.com:443")
	case r.sub:
		return "", 0, errors.New("it is for many hosts: name one of them, as in example.com:443")
	case r.prefix.IsValid() && !r.prefix.IsSingleIP():
		return "", 0, errors.New("it is for a range of addresses: name one of them, as in 203.0.113.7:443")
	case r.port == 0 || r.port == anyPort:
		return "", 0, errors.New("it is for several ports: name one of them, as in example.com:443")
	case r.prefix.IsValid():
		return r.prefix.Addr().String(), r.port, nil
	}
	return r.host, r.port, nil
}

// Propose says whether a person may be asked for a rule that is narrow: Verdict.Ask is the rule then. It is
// not if the rule allows nothing new (the verdict is Allowed), if a deny rule is for its host, and if the host
// is never reachable by a name or is an address that is refused.
func (p *Policy) Propose(r Rule) (Verdict, error) {
	host, port, err := r.Narrow()
	if err != nil {
		return Verdict{}, err
	}
	v := p.Connect(host, port)
	v.Ask = ""
	_, have := find(p.Allow, r.Equal)
	switch {
	case have && v.Allowed, v.Allowed && !v.Intercept:
		return v, nil
	case v.Allowed, v.Reason == NoRule, v.Reason == NoPortRule:
		v.Allowed, v.Ask = false, r.String()
		if v.Reason == RuleAllows {
			v.Reason, v.Rule = NoRequest, Rule{}
		}
	}
	return v, nil
}
