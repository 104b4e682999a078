package network_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
)

func TestPropose(t *testing.T) {
	t.Parallel()
	p := policyOf(t, "allowed.example", "GET read.example:443/a/*", "*.sub.example:8443", "@git",
		"-denied.example", "-*.evil.example", "-half.example:443", "-8.8.4.4")
	p.Own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("9.9.9.9")}, nil }
	for _, tt := range []struct {
		rule   string
		reason network.Reason
		ask    string
		err    string
	}{
		{"new.example:443", network.NoRule, "new.example:443", ""},
		{"NEW.example.:443", network.NoRule, "new.example:443", ""},
		{"new.example:22", network.NoRule, "new.example:22", ""},
		{"GET new.example:443/a/*", network.NoRule, "GET new.example:443/a/*", ""},
		{"8.8.8.8:53", network.NoRule, "8.8.8.8:53", ""},
		{"allowed.example:22", network.NoPortRule, "allowed.example:22", ""},
		{"GET read.example:443/b/*", network.NoRequest, "GET read.example:443/b/*", ""},
		{"half.example:80", network.NoRule, "half.example:80", ""},

		{"allowed.example:443", network.RuleAllows, "", ""}, // nothing new
		{"GET allowed.example:443/x", network.RuleAllows, "", ""},
		{"GET read.example:443/a/*", network.RuleAllows, "", ""},
		{"x.sub.example:8443", network.RuleAllows, "", ""},

		{"denied.example:443", network.RuleDenies, "", ""},
		{"GET denied.example:443/x", network.RuleDenies, "", ""},
		{"a.evil.example:443", network.RuleDenies, "", ""},
		{"half.example:443", network.RuleDenies, "", ""},
		{"8.8.4.4:53", network.RuleDenies, "", ""},
		{"10.1.2.3:443", network.LocalAddress, "", ""},
		{"127.0.0.1:8080", network.LocalAddress, "", ""},
		{"169.254.169.254:80", network.LocalAddress, "", ""},
		{"[::1]:80", network.LocalAddress, "", ""},
		{"[64:ff9b::7f00:1]:80", network.LocalAddress, "", ""},
		{"9.9.9.9:443", network.LocalAddress, "", ""}, // this machine's

		{"*", "", "", "many hosts"},
		{"*:443", "", "", "many hosts"},
		{"*.example.com:443", "", "", "many hosts"},
		{"@npm", "", "", "many hosts"},
		{"8.8.8.0/31:443", "", "", "a range of addresses"},
		{"0.0.0.0/0:443", "", "", "a range of addresses"},
		{"new.example", "", "", "several ports"},
		{"new.example:*", "", "", "several ports"},
	} {
		r, err := network.ParseRule(tt.rule)
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Propose(r)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Propose(%s) = %+v, %v; want an error with %q", tt.rule, v, err, tt.err)
			}
			continue
		}
		if err != nil || v.Reason != tt.reason || v.Ask != tt.ask || v.Allowed != (tt.reason == network.RuleAllows) {
			t.Errorf("Propose(%s) = %+v, %v; want %s, and to ask for %q", tt.rule, v, err, tt.reason, tt.ask)
		}
	}
	if _, err := p.Propose(network.Rule{}); err == nil {
		t.Error("the zero rule may be asked for")
	}
}
