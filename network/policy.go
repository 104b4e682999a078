package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// judged is a host that a policy is asked about.
type judged struct {
	name string     // canonical; "" for an address
	addr netip.Addr // not valid for a name
}

// begin makes the verdict that all questions about a host begin with. If it is not well
// formed the verdict is final: its Reason is set.
func begin(host string) (Verdict, judged) {
	name, addr, err := canonical(host)
	if err != nil {
		return Verdict{Reason: BadHost, Detail: err.Error()}, judged{}
	}
	v := Verdict{Host: name}
	if addr.IsValid() {
		v.Host = addr.String()
	} else if localName(name) {
		v.Reason = LocalName
	}
	return v, judged{name, addr}
}

// Name says whether a name may be resolved at all, and which ports its rules have. It allows a
// name if a rule allows it on one port or more. An address is not a name: it is denied.
func (p *Policy) Name(host string) Verdict {
	v, j := begin(host)
	if v.Reason != "" {
		return v
	}
	if j.addr.IsValid() {
		v.Reason, v.Detail = BadHost, "it is an address, not a name"
		return v
	}
	denied := func(port int) (Rule, bool) { return p.denies(j, port) }
	if rule, ok := denied(anyPort); ok {
		v.Reason, v.Rule = RuleDenies, rule
		return v
	}
	var last Rule // denied every port of an allow rule
	for _, r := range p.Allow {
		for _, part := range r.parts() {
			if !part.matches(j.name, j.addr) {
				continue
			}
			ports := []int{part.port}
			if part.port == 0 || part.port == anyPort {
				ports = DefaultPorts
			}
			for _, port := range ports {
				if rule, ok := denied(port); ok {
					last = rule
					continue
				}
				v.Ports = append(v.Ports, port)
			}
			v.AnyPort = v.AnyPort || part.port == anyPort
			if v.Rule.IsZero() && (len(v.Ports) > 0 || v.AnyPort) {
				v.Rule = r
			}
		}
	}
	slices.Sort(v.Ports)
	v.Ports = slices.Compact(v.Ports)
	switch {
	case !v.Rule.IsZero():
		v.Allowed, v.Reason = true, RuleAllows
	case !last.IsZero():
		v.Reason, v.Rule = RuleDenies, last
	default:
		v.Reason, v.Ask = NoRule, v.Host
	}
	return v
}

// denies returns the deny rule for all requests to a host on a port. With anyPort it is one for
// every port.
func (p *Policy) denies(j judged, port int) (Rule, bool) {
	return p.findDeny(func(r Rule) bool {
		if r.conditional() || !r.matches(j.name, j.addr) {
			return false
		}
		if port == anyPort {
			return r.port == anyPort || r.port == 0
		}
		return r.hasPort(port, true)
	})
}

// findDeny is find over the deny rules, where a preset stands for its hosts.
func (p *Policy) findDeny(match func(Rule) bool) (Rule, bool) {
	for _, r := range p.Deny {
		if slices.ContainsFunc(r.deniedRules(), match) {
			return r, true
		}
	}
	return Rule{}, false
}

// Connect says whether a connection to a host, a name or an address, and port may be opened,
// and whether its requests must be judged one by one: Verdict.Intercept. A literal address
// needs an address rule, also a public one. The address that a name resolves to must be judged
// by Address as well.
func (p *Policy) Connect(host string, port int) Verdict {
	v, j := p.reach(host, port)
	if v.Reason != "" {
		return v
	}
	plain := p.allowRule(j, port, func(r Rule) bool { return !r.conditional() })
	v.Rule = plain
	if plain.IsZero() {
		v.Rule = p.allowRule(j, port, func(Rule) bool { return true })
	}
	_, someDenied := p.findDeny(func(r Rule) bool {
		return r.conditional() && r.matches(j.name, j.addr) && r.hasPort(port, true)
	})
	v.Allowed, v.Reason, v.Intercept = true, RuleAllows, plain.IsZero() || someDenied
	return v
}

// reach is what Connect and Request have in common: the verdict is final if its Reason is set,
// else one or more rules are for the host and port, and none denies all requests.
func (p *Policy) reach(host string, port int) (Verdict, judged) {
	v, j := begin(host)
	v.Port = port
	if v.Reason != "" {
		return v, j
	}
	if port < 1 || port > 65535 {
		v.Reason = BadPort
		return v, j
	}
	if rule, ok := p.denies(j, port); ok {
		v.Reason, v.Rule = RuleDenies, rule
		return v, j
	}
	if j.addr.IsValid() {
		// Only an address rule allows an address that is refused, whatever rule is for it.
		if a := p.Address(v.Host, netip.AddrPortFrom(j.addr, uint16(port))); !a.Allowed {
			return a, j
		}
	}
	if rule := p.allowRule(j, port, func(Rule) bool { return true }); !rule.IsZero() {
		return v, j
	}
	v.Reason, v.Ask = NoRule, askFor(v.Host, port)
	if slices.ContainsFunc(p.Allow, func(r Rule) bool {
		return slices.ContainsFunc(r.parts(), func(part Rule) bool { return part.matches(j.name, j.addr) })
	}) {
		v.Reason = NoPortRule
	}
	return v, j
}

// allowRule returns the first allow rule for a host and port of which a part is as wanted.
func (p *Policy) allowRule(j judged, port int, want func(Rule) bool) Rule {
	rule, _ := find(p.Allow, func(r Rule) bool {
		return r.matches(j.name, j.addr) && r.hasPort(port, false) && want(r)
	})
	return rule
}

// parts is Expand without a copy.
func (r Rule) parts() []Rule {
	if r.preset != nil {
		return r.preset.rules
	}
	return []Rule{r}
}

// askFor is the narrowest rule for a host and port.
func askFor(host string, port int) string { return hostPort(host, port) }

// Request says whether an HTTP request may be made on an intercepted connection. requestTarget
// is what follows the method: a path with or without a query, as in /simple/?x=1, or * for
// OPTIONS. If the verdict allows, exactly Verdict.Target must be forwarded: it is the spelling
// that was judged. The host and port are those of the connection; the caller makes sure that
// the request's own Host agrees.
//
// A path that servers read in different ways (dot segments, backslashes, control characters)
// is refused. So are %2f, %5c, empty segments and percent signs encoded twice, where the rules
// for the host look at the path.
func (p *Policy) Request(host string, port int, method, requestTarget string) Verdict {
	v, j := p.reach(host, port)
	if v.Reason != "" {
		return v
	}
	t, err := parseTarget(method, requestTarget)
	if err == nil && !validMethod(method) {
		err = fmt.Errorf("%q is not a method that can be forwarded", method)
	}
	if err != nil {
		v.Reason, v.Detail = BadRequest, err.Error()
		return v
	}
	if rule, ok := p.findDeny(func(r Rule) bool {
		if !r.matches(j.name, j.addr) || !r.hasPort(port, true) {
			return false
		}
		// What cannot be read in one way alone is denied if one reading may be.
		return r.accepts(method, t) || t.unclear != "" && r.path != "" && (len(r.methods) == 0 || slices.Contains(r.methods, method))
	}); ok {
		v.Reason, v.Rule = RuleDenies, rule
		return v
	}
	unclear := false
	v.Rule = p.allowRule(j, port, func(r Rule) bool {
		if t.unclear != "" && (r.path != "" || r.without != "") {
			unclear = true
			return false
		}
		return r.accepts(method, t)
	})
	switch {
	case !v.Rule.IsZero():
		v.Allowed, v.Reason, v.Target = true, RuleAllows, t.String()
	case unclear:
		v.Reason, v.Detail = BadRequest, t.unclear
	default:
		v.Reason, v.Detail = NoRequest, method+" "+t.path
		v.Ask = method + " " + askFor(v.Host, port)
		// No rule can name the target *, a path that servers read in different ways, or one that is too long.
		if _, err := ParseRule(v.Ask + t.path); err == nil {
			v.Ask += t.path
		}
	}
	return v
}

// Overruled returns a deny rule that denies all that an allow rule is for, so that the allow
// rule never allows anything. The result is false if there is none.
func (p *Policy) Overruled(allow Rule) (by Rule, overruled bool) {
	for _, part := range allow.parts() {
		rule, ok := p.findDeny(func(d Rule) bool { return d.coversAll(part) })
		if !ok {
			return Rule{}, false
		}
		by = rule
	}
	return by, !by.IsZero()
}

// coversAll says whether a deny rule denies all that an allow rule is for.
func (r Rule) coversAll(allow Rule) bool {
	if r.conditional() || r.port != 0 && r.port != anyPort && r.port != allow.port {
		return false
	}
	switch {
	case allow.prefix.IsValid():
		return r.prefix.IsValid() && r.prefix.Contains(allow.prefix.Addr()) && r.prefix.Bits() <= allow.prefix.Bits()
	case r.prefix.IsValid():
		return false
	case allow.sub:
		return r.sub && (r.host == "" || r.host == allow.host || strings.HasSuffix(allow.host, "."+r.host))
	}
	return r.matches(allow.host, netip.Addr{})
}
