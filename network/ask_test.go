package network_test

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
)

// TestEncodedTwice: a percent sign that is encoded twice is seen whichever of its characters are
// encoded, because the server gets them decoded once already.
func TestEncodedTwice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		target string
		want   network.Reason
	}{
		{"/open/%252fx", network.BadRequest},
		{"/open/%25%32%66x", network.BadRequest},
		{"/open/%252%66x", network.BadRequest},
		{"/open/%25%32fx", network.BadRequest},
		{"/open/%25%32%65%25%32%65/x", network.BadRequest}, // %2e%2e, once decoded
		{"/open/%25%30%30", network.BadRequest},
		{"/open/%2525", network.BadRequest},
		{"/open/100%25", network.RuleAllows},
		{"/open/100%25x", network.RuleAllows},
		{"/open/100%25-2f", network.RuleAllows},
		{"/open/%25?x=%252f", network.RuleAllows}, // a query is not a path
	} {
		p := policyOf(t, "GET h.example/open/*")
		v := p.Request("h.example", 443, "GET", tt.target)
		if v.Reason != tt.want {
			t.Errorf("Request(%s) = %v; want %s", tt.target, v, tt.want)
		}
		if again := p.Request("h.example", 443, "GET", v.Target); v.Allowed && again.Target != v.Target {
			t.Errorf("%s is forwarded as %s, and that as %q", tt.target, v.Target, again.Target)
		}
		denied := policyOf(t, "h.example", "-h.example/secret/*")
		if v := denied.Request("h.example", 443, "GET", tt.target); v.Allowed != (tt.want == network.RuleAllows) {
			t.Errorf("with a denied path, Request(%s) = %v", tt.target, v)
		}
	}
}

// TestAskFor: what a denial advises is a rule that can be written, and that allows what was denied.
func TestAskFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, host, method, target string
		want                       string
	}{
		{"a path", "h.example", "GET", "/x/y", "GET h.example:443/x/y"},
		{"without the query", "h.example", "GET", "/x?token=hunter2", "GET h.example:443/x"},
		{"the root", "h.example", "GET", "/", "GET h.example:443/"},
		{"encoded", "h.example", "GET", "/%7ex/ä", "GET h.example:443/~x/%C3%A4"},
		{"the whole server", "h.example", "OPTIONS", "*", "OPTIONS h.example:443"},
		{"an empty segment", "h.example", "GET", "/a//b", "GET h.example:443"},
		{"an address in the path", "h.example", "GET", "/proxy/https://x.example/", "GET h.example:443"},
		{"an encoded slash", "h.example", "GET", "/@types%2fnode", "GET h.example:443"},
		{"a semicolon", "h.example", "GET", "/a;b", "GET h.example:443"},
		{"encoded twice", "h.example", "GET", "/%2541", "GET h.example:443"},
		{"too long for a rule", "h.example", "GET", "/" + strings.Repeat("x", 5000), "GET h.example:443"},
		{"a user in the path", "h.example", "GET", "/@user:443", "GET h.example:443/@user:443"},
		{"an address", "1.1.1.1", "GET", "/x", "GET 1.1.1.1:443/x"},
		{"an IPv6 address", "[2606:4700::1111]", "GET", "/x", "GET [2606:4700::1111]:443/x"},
		{"another port's method", "h.example", "DELETE", "/x", "DELETE h.example:443/x"},
	} {
		p := policyOf(t, "POST "+tt.host+":443")
		v := p.Request(tt.host, 443, tt.method, tt.target)
		if v.Reason != network.NoRequest || v.Ask != tt.want {
			t.Errorf("%s: Request(%s %.40q) = %v, ask %q; want a request without a rule, ask %q", tt.name, tt.method, tt.target, v.Reason, v.Ask, tt.want)
			continue
		}
		p.Allow = append(p.Allow, rule(t, v.Ask))
		if again := p.Request(tt.host, 443, tt.method, tt.target); !again.Allowed {
			t.Errorf("%s: with %s allowed, Request = %v", tt.name, v.Ask, again)
		}
	}
}
