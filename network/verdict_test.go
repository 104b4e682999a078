package network_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
)

// TestVerdictText: what people read of each decision names the host, and the rule or the fault.
func TestVerdictText(t *testing.T) {
	t.Parallel()
	p := policyOf(t, "*.example.com", "GET h.example/x", "8.8.8.8", "-no.example.com", "-POST h.example")
	for _, tt := range []struct {
		verdict network.Verdict
		want    string
	}{
		{p.Connect("A.example.com.", 443), "a.example.com:443 is allowed by the rule *.example.com"},
		{p.Address("a.example.com", netip.MustParseAddrPort("93.184.215.14:443")), "a.example.com:443 is allowed"},
		{p.Connect("no.example.com", 443), "no.example.com:443 is denied by the rule no.example.com"},
		{p.Connect("other.example", 443), "no rule allows other.example:443"},
		{p.Connect("2606:4700::1111", 443), "no rule allows [2606:4700::1111]:443"},
		{p.Connect("a.example.com", 22), "no rule for a.example.com allows port 22"},
		{p.Connect("8.8.8.8", 53), "no rule for 8.8.8.8 allows port 53"},
		{p.Request("h.example", 443, "GET", "/y?q"), "no rule for h.example:443 allows the request GET /y"},
		{p.Request("h.example", 443, "POST", "/x"), "h.example:443 is denied by the rule POST h.example"},
		{p.Request("h.example", 443, "GET", "/x/../y"), "a request to h.example:443 is refused: the path has a segment of one dot or two"},
		{p.Request("h.example", 443, "GET", "x"), "a request to h.example:443 is refused: the path does not begin with a slash"},
		{p.Request("h.example", 443, "get", "/x"), `a request to h.example:443 is refused: "get" is not a method that can be forwarded`},
		{p.Connect("localhost", 443), "localhost:443 is a local name, which is never resolved"},
		{p.Name("localhost"), "localhost is a local name, which is never resolved"},
		{p.Name("a.example.com"), "a.example.com is allowed by the rule *.example.com"},
		{p.Connect("127.0.0.1", 80), "127.0.0.1:80 is refused: 127.0.0.1 is loopback; only a rule for the address allows it"},
		{p.Connect("::ffff:10.0.0.1", 80), "10.0.0.1:80 is refused: 10.0.0.1 is private; only a rule for the address allows it"},
		{
			p.Address("a.example.com", netip.MustParseAddrPort("[64:ff9b::a9fe:a9fe]:443")),
			"a.example.com:443 is refused: 64:ff9b::a9fe:a9fe holds 169.254.169.254, which is a cloud's metadata service; only a rule for the address allows it",
		},
		{p.Connect("exa mple", 80), "the host is neither a name nor an address: a name has letters, digits, hyphens and dots"},
		{p.Name("8.8.8.8"), "the host is neither a name nor an address: it is an address, not a name"},
		{p.Connect("a.example.com", -1), "port -1 is not one from 1 to 65535"},
		{network.Verdict{Host: "h", Reason: "later"}, "h: later"},
	} {
		if got := fmt.Sprint(tt.verdict); got != tt.want {
			t.Errorf("%s; want %s", got, tt.want)
		}
		err := tt.verdict.Err()
		denial, ok := errors.AsType[*network.Denial](err)
		if ok == tt.verdict.Allowed || ok && (err.Error() != tt.want || denial.Verdict.Reason != tt.verdict.Reason) {
			t.Errorf("the error of %q is %v", tt.want, err)
		}
	}
}

// TestAddressOdd: addresses that no connection is made to are refused, and addresses that hold
// others are judged by each of them.
func TestAddressOdd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rules []string
		addr  netip.Addr
		want  network.Reason
	}{
		{"none", []string{"*"}, netip.Addr{}, network.BadHost},
		{"a zone", []string{"fe80::1"}, netip.MustParseAddr("fe80::1%eth0"), network.BadHost},
		{"Teredo, whose server is public and whose client is private", []string{"::/0"}, netip.MustParseAddr("2001:0:808:808::f5ff:fffe"), network.LocalAddress},
		{"Teredo, with the client denied", []string{"::/0", "-8.8.4.4"}, netip.MustParseAddr("2001:0:808:808::f7f7:fbfb"), network.RuleDenies},
		{"Teredo, with the server denied", []string{"::/0", "-8.8.8.8"}, netip.MustParseAddr("2001:0:808:808::f7f7:fbfb"), network.RuleDenies},
		{"Teredo, public", nil, netip.MustParseAddr("2001:0:808:808::f7f7:fbfb"), network.RuleAllows},
		{"6to4 of a private address", nil, netip.MustParseAddr("2002:a00:1::1"), network.LocalAddress},
		{"6to4, with the address allowed", []string{"10.0.0.1"}, netip.MustParseAddr("2002:a00:1::1"), network.RuleAllows},
		{"6to4, with the address allowed on another port", []string{"10.0.0.1:8080"}, netip.MustParseAddr("2002:a00:1::1"), network.LocalAddress},
		{"ISATAP of a private address", nil, netip.MustParseAddr("2606:4700::5efe:a00:1"), network.LocalAddress},
		{"ISATAP of a public address", nil, netip.MustParseAddr("2606:4700::200:5efe:808:808"), network.RuleAllows},
		{"compatible", nil, netip.MustParseAddr("::7f00:1"), network.LocalAddress},
		{"not assigned", []string{"::/0"}, netip.MustParseAddr("4000::1"), network.LocalAddress},
		{"not assigned, and named", []string{"4000::1"}, netip.MustParseAddr("4000::1"), network.RuleAllows},
		{"a wider rule than the range", []string{"10.0.0.0/7"}, netip.MustParseAddr("10.0.0.1"), network.LocalAddress},
		{"carriers' addresses", []string{"0.0.0.0/0"}, netip.MustParseAddr("100.64.0.1"), network.LocalAddress},
		{"carriers' addresses, allowed as a range", []string{"100.64.0.0/10"}, netip.MustParseAddr("100.64.0.1"), network.RuleAllows},
		{"metadata among them, in that range", []string{"100.64.0.0/10"}, netip.MustParseAddr("100.100.100.200"), network.LocalAddress},
		{"metadata at a public address", []string{"168.63.0.0/16"}, netip.MustParseAddr("168.63.129.16"), network.LocalAddress},
		{"metadata of IPv6 in a private range", []string{"fd00::/8"}, netip.MustParseAddr("fd00:ec2::254"), network.LocalAddress},
		{"for documentation", []string{"::/0"}, netip.MustParseAddr("2001:db8::1"), network.LocalAddress},
		{"next to it", nil, netip.MustParseAddr("2001:db9::1"), network.RuleAllows},
		{"metadata in a range that is allowed", []string{"169.254.0.0/16"}, netip.MustParseAddr("169.254.169.254"), network.LocalAddress},
		{"metadata, named", []string{"169.254.169.254"}, netip.MustParseAddr("169.254.169.254"), network.RuleAllows},
	} {
		v := policyOf(t, tt.rules...).Address("h.example", netip.AddrPortFrom(tt.addr, 443))
		if v.Reason != tt.want || v.Allowed != (tt.want == network.RuleAllows) {
			t.Errorf("%s: %v; want %s", tt.name, v, tt.want)
		}
	}
}
