package network

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Rule names what it is for: hosts, their ports, and perhaps the methods and paths of HTTP
// requests. The list of the Policy that holds the rule says whether that is allowed or denied.
// ParseRule makes rules; the zero Rule is for nothing. A Rule does not change.
type Rule struct {
	preset  *preset      // what the rule stands for; all other fields are then unused
	host    string       // a canonical name, or the part after "*." of a pattern, or "" for addresses
	sub     bool         // the names below host, and not host; every name if host is ""
	prefix  netip.Prefix // addresses; not valid for a name
	port    int          // 0: the default ports; anyPort
	methods []string     // sorted; none: every method
	path    string       // a pattern; "": every path
	without string       // text that neither the path nor the query holds, in lower case; "": none
}

const anyPort = -1

// DefaultPorts are the ports of an allow rule without a port.
var DefaultPorts = []int{80, 443}

// String returns the rule's one form, which ParseRule parses to the same rule.
func (r Rule) String() string {
	if r.preset != nil {
		return r.preset.name
	}
	if r.IsZero() {
		return ""
	}
	var b strings.Builder
	if len(r.methods) > 0 {
		b.WriteString(strings.Join(r.methods, ",") + " ")
	}
	b.WriteString(r.target())
	if r.path != "" {
		b.WriteString(r.path)
	}
	if r.without != "" {
		b.WriteString(" !" + r.without)
	}
	return b.String()
}

// target is the hosts and the port.
func (r Rule) target() string {
	port := ""
	switch r.port {
	case 0:
	case anyPort:
		port = ":*"
	default:
		port = ":" + strconv.Itoa(r.port)
	}
	if !r.prefix.IsValid() {
		switch {
		case r.sub && r.host == "":
			return "*" + port
		case r.sub:
			return "*." + r.host + port
		}
		return r.host + port
	}
	text, bits := r.prefix.Addr().String(), ""
	// The path of an address without a port needs the length, which tells them apart.
	if !r.prefix.IsSingleIP() || r.path != "" && port == "" {
		bits = "/" + strconv.Itoa(r.prefix.Bits())
	}
	if r.prefix.Addr().Is6() && (port != "" || r.path != "") {
		text = "[" + text + "]"
	}
	return text + bits + port
}

// Equal reports whether two rules are the same.
func (r Rule) Equal(other Rule) bool { return r.String() == other.String() }

// IsZero reports whether r is the zero Rule, which no text stands for.
func (r Rule) IsZero() bool {
	return r.preset == nil && r.host == "" && !r.sub && !r.prefix.IsValid()
}

// Intercepts says whether the rule is for some requests only, so that they must be seen.
func (r Rule) Intercepts() bool {
	return slices.ContainsFunc(r.Expand(), Rule.conditional)
}

// Expand returns the rules that a preset stands for, or else the rule itself.
func (r Rule) Expand() []Rule {
	if r.preset != nil {
		return slices.Clone(r.preset.rules)
	}
	return []Rule{r}
}

// ExpandDeny is Expand for a deny rule: a preset denies each of its hosts as a whole, also where
// as an allow rule it is for some requests only.
func (r Rule) ExpandDeny() []Rule { return slices.Clone(r.deniedRules()) }

// DenyIntercepts is Intercepts for a deny rule.
func (r Rule) DenyIntercepts() bool { return slices.ContainsFunc(r.deniedRules(), Rule.conditional) }

// conditional says whether the rule is for some requests only.
func (r Rule) conditional() bool { return len(r.methods) > 0 || r.path != "" || r.without != "" }

// matches says whether the rule is for a canonical host, whatever the port.
func (r Rule) matches(name string, addr netip.Addr) bool {
	switch {
	case addr.IsValid():
		return r.holds(addr)
	case r.prefix.IsValid():
		return false
	case r.sub:
		return r.host == "" || strings.HasSuffix(name, "."+r.host)
	}
	return name == r.host && name != ""
}

// holds says whether the rule is an address rule for addr.
func (r Rule) holds(addr netip.Addr) bool { return r.prefix.IsValid() && r.prefix.Contains(addr) }

// hasPort says whether the rule is for a port. A deny rule without a port is for every port.
func (r Rule) hasPort(port int, deny bool) bool {
	switch r.port {
	case anyPort:
		return true
	case 0:
		return deny || slices.Contains(DefaultPorts, port)
	}
	return r.port == port
}

// accepts says whether the rule is for a request of this method and target.
func (r Rule) accepts(method string, t target) bool {
	return (len(r.methods) == 0 || slices.Contains(r.methods, method)) &&
		(r.path == "" || glob(r.path, t.path)) &&
		(r.without == "" || !t.mentions(r.without))
}

// deniedRules are the rules that a deny rule stands for: a preset denies its hosts as a
// whole, also where as an allow rule it allows some requests only.
func (r Rule) deniedRules() []Rule {
	if r.preset == nil {
		return []Rule{r}
	}
	return r.preset.hosts
}

// find returns the first rule of a list, presets expanded, that does what match wants. The
// rule that it returns is the list's own, the preset.
func find(rules []Rule, match func(Rule) bool) (Rule, bool) {
	for _, r := range rules {
		parts := []Rule{r}
		if r.preset != nil {
			parts = r.preset.rules
		}
		if slices.ContainsFunc(parts, match) {
			return r, true
		}
	}
	return Rule{}, false
}
