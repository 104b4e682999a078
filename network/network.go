// Package network decides which hosts, ports and requests a session without a network may
// reach. It holds rules, the one spelling of a host that they are matched with, the presets,
// and the addresses that no name may lead to. It opens no connection and resolves no name by
// itself: only a Dialer does, with the resolver that it is given.
//
// A decision has up to four steps, and every step must allow:
//
//	Name     may the name be resolved, and which ports do its rules have
//	Connect  may a connection to this host and port be opened
//	Address  may the address that the name resolved to be dialled
//	Request  may this HTTP request be made, where Connect asked to intercept
//
// Rules match names and addresses as Canonical spells them. A caller passes a host as a client
// wrote it, and dials, forwards and records Verdict.Host.
//
// A Policy does not change once it is in use. To change the rules, make another Policy and
// replace the pointer to the old one, as with an atomic.Pointer: methods of one Policy may be
// called at the same time from any number of goroutines.
package network

import (
	"fmt"
	"net/netip"
)

// Policy is a set of rules: a deny rule wins over every allow rule, and what no rule allows
// is denied. The zero Policy denies everything. Its fields are not changed while a method
// runs; see the package's documentation.
type Policy struct {
	Allow []Rule
	Deny  []Rule

	// Own returns the addresses of this machine's interfaces, which only an address rule for
	// exactly that address allows. If it fails, Address denies every address. nil stands for
	// HostAddresses. It is called for each address that is judged, by a Dialer once for each
	// connection, and at the same time from several goroutines.
	Own func() ([]netip.Addr, error)
}

// Verdict is a policy's decision about a name, a connection, an address or a request.
type Verdict struct {
	Allowed bool
	Reason  Reason
	Rule    Rule   // the rule that decided; the zero Rule if none did
	Host    string // as Canonical spells it; "" if it cannot
	Port    int    // 0 for a name

	// Addr is the address that was judged. It is set by Address alone.
	Addr netip.Addr

	// Detail completes the reason: the kind of address that is refused, such as "loopback", or
	// what is wrong with a host or a path. It may be "".
	Detail string

	// Ask is the narrowest rule that would allow what was denied, as text for ParseRule. It is
	// "" if the verdict allows, and where permission cannot be asked for: a deny rule, a local
	// name or address, and what is not well formed.
	Ask string

	// Intercept says that the requests inside the connection must be judged one by one with
	// Request. It is set by Connect alone.
	Intercept bool

	// Ports are the ports of the rules for a name, in ascending order, and AnyPort says that a
	// rule allows every port: Ports then holds 80 and 443 too. They are set by Name alone.
	Ports   []int
	AnyPort bool

	// Target is the path and query to forward: the spelling that was judged. It is set by
	// Request alone, if the verdict allows.
	Target string
}

// Reason says why a verdict allows or denies. Its values are stable: they are part of JSON
// output and records.
type Reason string

// Reasons.
const (
	RuleAllows   Reason = "allowed"         // an allow rule, and no deny rule
	RuleDenies   Reason = "denied"          // a deny rule
	NoRule       Reason = "no-rule"         // no rule is for this host
	NoPortRule   Reason = "port"            // rules are for this host, but not for this port
	NoRequest    Reason = "request"         // rules are for this host and port, but not for this method and path
	LocalName    Reason = "local-name"      // the name has one label, or is localhost or in .local: no rule can allow it
	LocalAddress Reason = "local-address"   // the address is private, local, this machine's, or not for use: only an address rule allows it
	BadHost      Reason = "bad-host"        // the host is neither a name nor an address
	BadPort      Reason = "bad-port"        // the port is not one from 1 to 65535
	BadRequest   Reason = "bad-request"     // the method or the path cannot be judged, because servers read such a path in different ways
	OwnUnknown   Reason = "own-unavailable" // this machine's own addresses cannot be found out
)

// String says in one sentence what the verdict is and why, as in `no rule allows
// example.com:443`. The text is for people; programs use the fields.
func (v Verdict) String() string {
	what := v.Host
	if v.Port != 0 {
		what = hostPort(v.Host, v.Port)
	}
	switch v.Reason {
	case RuleAllows:
		if v.Rule.IsZero() {
			return what + " is allowed"
		}
		return fmt.Sprintf("%s is allowed by the rule %s", what, v.Rule)
	case RuleDenies:
		return fmt.Sprintf("%s is denied by the rule %s", what, v.Rule)
	case NoRule:
		return "no rule allows " + what
	case NoPortRule:
		return fmt.Sprintf("no rule for %s allows port %d", v.Host, v.Port)
	case NoRequest:
		return fmt.Sprintf("no rule for %s allows the request %s", what, v.Detail)
	case LocalName:
		return what + " is a local name, which is never resolved"
	case LocalAddress:
		return fmt.Sprintf("%s is refused: %s; only a rule for the address allows it", what, v.Detail)
	case BadHost:
		return "the host is neither a name nor an address: " + v.Detail
	case BadPort:
		return fmt.Sprintf("port %d is not one from 1 to 65535", v.Port)
	case BadRequest:
		return fmt.Sprintf("a request to %s is refused: %s", what, v.Detail)
	case OwnUnknown:
		return fmt.Sprintf("%s is refused: the addresses of this machine are unknown: %s", what, v.Detail)
	}
	return fmt.Sprintf("%s: %s", what, string(v.Reason))
}

// Denial is a verdict that does not allow, as an error.
type Denial struct{ Verdict Verdict }

func (d *Denial) Error() string { return d.Verdict.String() }

// Err returns nil if the verdict allows, else a *Denial.
func (v Verdict) Err() error {
	if v.Allowed {
		return nil
	}
	return &Denial{v}
}
