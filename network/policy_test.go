package network_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
)

// policyOf makes a policy of rules; those that begin with - deny.
func policyOf(tb testing.TB, rules ...string) *network.Policy {
	tb.Helper()
	p := &network.Policy{Own: noAddresses}
	for _, text := range rules {
		if text[0] == '-' {
			p.Deny = append(p.Deny, rule(tb, text[1:]))
		} else {
			p.Allow = append(p.Allow, rule(tb, text))
		}
	}
	return p
}

func TestConnect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		rules     []string
		host      string
		port      int
		want      network.Reason
		rule, ask string
		intercept bool
	}{
		{"no rules", nil, "example.com", 443, network.NoRule, "", "example.com:443", false},
		{"default ports", []string{"example.com"}, "example.com", 443, network.RuleAllows, "example.com", "", false},
		{"default ports, http", []string{"example.com"}, "example.com", 80, network.RuleAllows, "example.com", "", false},
		{"another port", []string{"example.com"}, "example.com", 22, network.NoPortRule, "", "example.com:22", false},
		{"port 22 is a rule of its own", []string{"example.com:22"}, "example.com", 22, network.RuleAllows, "example.com:22", "", false},
		{"and of nothing else", []string{"example.com:22"}, "example.com", 443, network.NoPortRule, "", "example.com:443", false},
		{"any port", []string{"example.com:*"}, "example.com", 5432, network.RuleAllows, "example.com:*", "", false},
		{"spelling", []string{"example.com"}, "EXAMPLE.com.", 443, network.RuleAllows, "example.com", "", false},
		{"a longer name", []string{"example.com"}, "evilexample.com", 443, network.NoRule, "", "evilexample.com:443", false},
		{"a name after it", []string{"example.com"}, "example.com.evil.com", 443, network.NoRule, "", "example.com.evil.com:443", false},
		{"below", []string{"*.example.com"}, "a.b.example.com", 443, network.RuleAllows, "*.example.com", "", false},
		{"not the name itself", []string{"*.example.com"}, "example.com", 443, network.NoRule, "", "example.com:443", false},
		{"not a suffix", []string{"*.example.com"}, "evilexample.com", 443, network.NoRule, "", "evilexample.com:443", false},
		{"every name", []string{"*"}, "example.com", 443, network.RuleAllows, "*", "", false},
		{"every name is not every address", []string{"*"}, "1.1.1.1", 443, network.NoRule, "", "1.1.1.1:443", false},
		{"every name is not localhost", []string{"*"}, "localhost", 443, network.LocalName, "", "", false},
		{"nor what is below it", []string{"*"}, "x.LOCALHOST.", 443, network.LocalName, "", "", false},
		{"nor one label", []string{"*"}, "intranet", 443, network.LocalName, "", "", false},
		{"nor the link's", []string{"*"}, "printer.local", 443, network.LocalName, "", "", false},
		{"deny wins", []string{"*", "-example.com"}, "example.com", 443, network.RuleDenies, "example.com", "", false},
		{"deny wins in any spelling", []string{"*", "-example.com"}, "Example.COM.", 443, network.RuleDenies, "example.com", "", false},
		{"deny wins over IDNA", []string{"*", "-bücher.example"}, "BÜCHER。example", 443, network.RuleDenies, "xn--bcher-kva.example", "", false},
		{"deny without a port is every port", []string{"example.com:*", "-example.com"}, "example.com", 22, network.RuleDenies, "example.com", "", false},
		{"deny of a port", []string{"example.com:*", "-example.com:22"}, "example.com", 22, network.RuleDenies, "example.com:22", "", false},
		{"and of no other", []string{"example.com:*", "-example.com:22"}, "example.com", 443, network.RuleAllows, "example.com:*", "", false},
		{"public address", []string{"1.1.1.1"}, "1.1.1.1", 443, network.RuleAllows, "1.1.1.1", "", false},
		{"address in numbers", []string{"1.1.1.1"}, "0x1010101", 443, network.RuleAllows, "1.1.1.1", "", false},
		{"address in brackets", []string{"2606:4700::/32"}, "[2606:4700::1111]", 443, network.RuleAllows, "2606:4700::/32", "", false},
		{"all addresses are not local ones", []string{"0.0.0.0/0:*", "::/0:*"}, "127.0.0.1", 80, network.LocalAddress, "", "", false},
		{"a loopback address", []string{"127.0.0.1:8080"}, "127.0.0.1", 8080, network.RuleAllows, "127.0.0.1:8080", "", false},
		{"on another port", []string{"127.0.0.1:8080"}, "127.0.0.1", 8081, network.LocalAddress, "", "", false},
		{"denied address", []string{"0.0.0.0/0", "-1.1.1.0/24"}, "1.1.1.1", 443, network.RuleDenies, "1.1.1.0/24", "", false},
		{"denied address, mapped", []string{"::/0", "0.0.0.0/0", "-1.1.1.0/24"}, "[::ffff:1.1.1.1]", 443, network.RuleDenies, "1.1.1.0/24", "", false},
		{"denied address, NAT64", []string{"::/0", "-1.1.1.0/24"}, "[64:ff9b::101:101]", 443, network.RuleDenies, "1.1.1.0/24", "", false},
		{"port 0", []string{"*:*"}, "example.com", 0, network.BadPort, "", "", false},
		{"port 65536", []string{"*:*"}, "example.com", 65536, network.BadPort, "", "", false},
		{"bad host", []string{"*:*"}, "exa mple.com", 443, network.BadHost, "", "", false},
		{"paths are intercepted", []string{"GET example.com/x"}, "example.com", 443, network.RuleAllows, "GET example.com/x", "", true},
		{"unless all requests are allowed", []string{"GET example.com/x", "example.com"}, "example.com", 443, network.RuleAllows, "example.com", "", false},
		{"a denied path intercepts", []string{"example.com", "-POST example.com"}, "example.com", 443, network.RuleAllows, "example.com", "", true},
		{"only there", []string{"example.com", "-POST example.com:80"}, "example.com", 443, network.RuleAllows, "example.com", "", false},
		{"preset", []string{"@npm"}, "registry.npmjs.org", 443, network.RuleAllows, "@npm", "", false},
		{"preset, read-only", []string{"@npm:ro"}, "registry.npmjs.org", 443, network.RuleAllows, "@npm:ro", "", true},
		{"a preset denies its hosts", []string{"*:*", "-@github"}, "github.com", 22, network.RuleDenies, "@github", "", false},
		{"git is https only", []string{"@git"}, "github.com", 80, network.NoPortRule, "", "github.com:80", false},
		{"git has no ssh", []string{"@git"}, "github.com", 22, network.NoPortRule, "", "github.com:22", false},
	} {
		p := policyOf(t, tt.rules...)
		v := p.Connect(tt.host, tt.port)
		if v.Reason != tt.want || v.Rule.String() != tt.rule || v.Ask != tt.ask || v.Intercept != tt.intercept || v.Allowed != (tt.want == network.RuleAllows) {
			t.Errorf("%s: Connect(%q, %d) = %+v (%v); want %s, rule %q, ask %q, intercept %v", tt.name, tt.host, tt.port, v, v, tt.want, tt.rule, tt.ask, tt.intercept)
		}
		if v.Ask != "" { // following the advice has the effect that it promises
			p.Allow = append(p.Allow, rule(t, v.Ask))
			if again := p.Connect(tt.host, tt.port); !again.Allowed {
				t.Errorf("%s: with %s allowed, Connect = %v", tt.name, v.Ask, again)
			}
		}
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rules []string
		host  string
		want  network.Reason
		ports []int
		any   bool
	}{
		{"no rules", nil, "example.com", network.NoRule, nil, false},
		{"one rule", []string{"example.com"}, "Example.com.", network.RuleAllows, []int{80, 443}, false},
		{"two rules", []string{"example.com:22", "*.com", "example.com:443"}, "example.com", network.RuleAllows, []int{22, 80, 443}, false},
		{"any port", []string{"example.com:*"}, "example.com", network.RuleAllows, []int{80, 443}, true},
		{"paths", []string{"GET example.com:443/x"}, "example.com", network.RuleAllows, []int{443}, false},
		{"one port denied", []string{"example.com", "-example.com:80"}, "example.com", network.RuleAllows, []int{443}, false},
		{"each port denied", []string{"example.com", "-example.com:80", "-*:443"}, "example.com", network.RuleDenies, nil, false},
		{"denied", []string{"example.com", "-*.com"}, "example.com", network.RuleDenies, nil, false},
		{"some denied requests", []string{"example.com", "-POST example.com"}, "example.com", network.RuleAllows, []int{80, 443}, false},
		{"local", []string{"*:*"}, "localhost", network.LocalName, nil, false},
		{"an address", []string{"1.1.1.1"}, "1.1.1.1", network.BadHost, nil, false},
		{"an address in numbers", []string{"*"}, "0x7f.1", network.BadHost, nil, false},
		{"preset", []string{"@git"}, "github.com", network.RuleAllows, []int{443}, false},
	} {
		v := policyOf(t, tt.rules...).Name(tt.host)
		if v.Reason != tt.want || !slices.Equal(v.Ports, tt.ports) || v.AnyPort != tt.any || v.Allowed != (tt.want == network.RuleAllows) {
			t.Errorf("%s: Name(%q) = %+v; want %s, ports %v, any %v", tt.name, tt.host, v, tt.want, tt.ports, tt.any)
		}
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		rules          []string
		method, target string
		want           network.Reason
		forward        string // "" if denied
	}{
		{"plain", []string{"h.example"}, "POST", "/x?y=1", network.RuleAllows, "/x?y=1"},
		{"method", []string{"GET,HEAD h.example"}, "HEAD", "/x", network.RuleAllows, "/x"},
		{"another method", []string{"GET,HEAD h.example"}, "POST", "/x", network.NoRequest, ""},
		{"lower case", []string{"h.example"}, "get", "/x", network.BadRequest, ""},
		{"TRACE", []string{"h.example"}, "TRACE", "/x", network.BadRequest, ""},
		{"CONNECT", []string{"h.example"}, "CONNECT", "/x", network.BadRequest, ""},
		{"no method", []string{"h.example"}, "", "/x", network.BadRequest, ""},
		{"path", []string{"GET h.example/simple/*"}, "GET", "/simple/flask/", network.RuleAllows, "/simple/flask/"},
		{"path without its end", []string{"GET h.example/simple/*"}, "GET", "/simple", network.NoRequest, ""},
		{"path in other case", []string{"GET h.example/simple/*"}, "GET", "/Simple/x", network.NoRequest, ""},
		{"query is not path", []string{"GET h.example/a"}, "GET", "/b?/a", network.NoRequest, ""},
		{"encoded letters", []string{"GET h.example/simple/*"}, "GET", "/s%69mple/%7Ex%c3%a4", network.RuleAllows, "/simple/~x%C3%A4"},
		{"encoded letters in the rule", []string{"GET h.example/s%69mple"}, "GET", "/simple", network.RuleAllows, "/simple"},
		{"dot segments", []string{"h.example"}, "GET", "/simple/../admin", network.BadRequest, ""},
		{"encoded dot segments", []string{"h.example"}, "GET", "/simple/%2e%2E/admin", network.BadRequest, ""},
		{"half encoded", []string{"h.example"}, "GET", "/simple/.%2e", network.BadRequest, ""},
		{"one dot", []string{"h.example"}, "GET", "/./admin", network.BadRequest, ""},
		{"dots with parameters", []string{"h.example"}, "GET", "/simple/..;x/admin", network.BadRequest, ""},
		{"three dots", []string{"GET h.example/*/x"}, "GET", "/.../x", network.RuleAllows, "/.../x"},
		{"backslash", []string{"h.example"}, "GET", `/simple\..\admin`, network.BadRequest, ""},
		{"encoded backslash", []string{"GET h.example/simple/*"}, "GET", "/simple/..%5cadmin", network.BadRequest, ""},
		{"encoded slash", []string{"GET h.example/simple/*"}, "GET", "/simple/..%2fadmin", network.BadRequest, ""},
		{"encoded slash where paths do not matter", []string{"GET h.example"}, "GET", "/@types%2fnode", network.RuleAllows, "/@types%2Fnode"},
		{"encoded slash under a denied path", []string{"h.example", "-h.example/admin/*"}, "GET", "/x%2fy", network.RuleDenies, ""},
		{"encoded slash, denied for another method", []string{"h.example", "-POST h.example/admin/*"}, "GET", "/x%2fy", network.RuleAllows, "/x%2Fy"},
		{"empty segment", []string{"GET h.example/simple/*"}, "GET", "/simple//x", network.BadRequest, ""},
		{"two slashes to a denied path", []string{"h.example", "-h.example/admin/*"}, "GET", "//admin/x", network.RuleDenies, ""},
		{"encoded twice", []string{"GET h.example/simple/*"}, "GET", "/simple/%252e%252e/x", network.BadRequest, ""},
		{"parameters to a denied path", []string{"h.example", "-h.example/admin/*"}, "GET", "/admin;x/y", network.RuleDenies, ""},
		{"NUL", []string{"h.example"}, "GET", "/x%00y", network.BadRequest, ""},
		{"line end", []string{"h.example"}, "GET", "/x%0d%0aHost:y", network.BadRequest, ""},
		{"raw line end", []string{"h.example"}, "GET", "/x\r\nHost: y", network.BadRequest, ""},
		{"raw line end in the query", []string{"h.example"}, "GET", "/x?\r\nHost: y", network.BadRequest, ""},
		{"bad encoding", []string{"h.example"}, "GET", "/x%zz", network.BadRequest, ""},
		{"cut encoding", []string{"h.example"}, "GET", "/x%2", network.BadRequest, ""},
		{"fragment", []string{"h.example"}, "GET", "/x#y", network.BadRequest, ""},
		{"absolute form", []string{"h.example"}, "GET", "http://other.example/", network.BadRequest, ""},
		{"OPTIONS *", []string{"h.example"}, "OPTIONS", "*", network.RuleAllows, "*"},
		{"OPTIONS * has no path", []string{"h.example/x"}, "OPTIONS", "*", network.NoRequest, ""},
		{"denied method", []string{"h.example", "-POST,PUT h.example"}, "PUT", "/", network.RuleDenies, ""},
		{"denied path", []string{"h.example", "-h.example/admin/*"}, "GET", "/%61dmin/x", network.RuleDenies, ""},
		{"next to the denied path", []string{"h.example", "-h.example/admin/*"}, "GET", "/user/x", network.RuleAllows, "/user/x"},
		{"wildcard over slashes", []string{"POST h.example/*/git-upload-pack"}, "POST", "/a/b.git/git-upload-pack", network.RuleAllows, "/a/b.git/git-upload-pack"},
		{"wildcard, wrong end", []string{"POST h.example/*/git-upload-pack"}, "POST", "/a/b.git/git-upload-pack/x", network.NoRequest, ""},
	} {
		p := policyOf(t, tt.rules...)
		v := p.Request("H.Example.", 443, tt.method, tt.target)
		if v.Reason != tt.want || v.Target != tt.forward || v.Allowed != (tt.want == network.RuleAllows) {
			t.Errorf("%s: Request(%s %q) = %+v (%v); want %s, forward %q", tt.name, tt.method, tt.target, v, v, tt.want, tt.forward)
		}
		if v.Ask != "" {
			p.Allow = append(p.Allow, rule(t, v.Ask))
			if again := p.Request("h.example", 443, tt.method, tt.target); !again.Allowed {
				t.Errorf("%s: with %s allowed, Request = %v", tt.name, v.Ask, again)
			}
		}
		if v.Allowed { // what is forwarded gets the same verdict
			if again := p.Request("h.example", 443, tt.method, v.Target); !again.Allowed || again.Target != v.Target {
				t.Errorf("%s: what it forwards, %q, gets %v", tt.name, v.Target, again)
			}
		}
	}
}

// TestGit: the presets let git clone and fetch, and never push.
func TestGit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, target string
		want           bool
	}{
		{"GET", "/o/r.git/info/refs?service=git-upload-pack", true},
		{"POST", "/o/r.git/git-upload-pack", true},
		{"GET", "/o/r/archive/v1.tar.gz", true},
		{"GET", "/o/r.git/info/refs?service=git-receive-pack", false},
		{"GET", "/o/r.git/info/refs?service=git%2Dreceive%2dpack", false},
		{"GET", "/o/r.git/info/refs?service=git%252dreceive-pack", false},
		{"GET", "/o/r.git/info/refs?service=%25252525252567it-receive-pack", false},
		{"GET", "/o/r.git/info/refs?service=GIT-Receive-Pack", false},
		{"GET", "/o/r.git?x=%252525252525252541", false}, // too deep to read
		{"GET", "/o/r.git?x=%252541", true},
		{"POST", "/o/r.git/git-receive-pack", false},
		{"POST", "/o/r.git/git-%72eceive-pack", false},
		{"POST", "/o/r.git/git-receive-pack/git-upload-pack", false},
		{"POST", "/o/r.git/git-upload-pack?service=git-receive-pack", false},
		{"POST", "/o/r.git/git-receive-pack%2fgit-upload-pack", false},
		{"POST", "/o/r.git/info/lfs/objects/batch", false},
		{"PUT", "/o/r.git/git-upload-pack", false},
	} {
		for _, preset := range []string{"@git", "@github"} {
			if v := policyOf(t, preset).Request("github.com", 443, tt.method, tt.target); v.Allowed != tt.want {
				t.Errorf("%s: %s %s: %v; want allowed: %v", preset, tt.method, tt.target, v, tt.want)
			}
		}
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	own := netip.MustParseAddr("203.0.113.7")
	for _, tt := range []struct {
		addr  string
		rules []string
		want  network.Reason
	}{
		{"93.184.216.34", nil, network.RuleAllows},
		{"2606:4700:4700::1111", nil, network.RuleAllows},
		{"0.0.0.0", nil, network.LocalAddress},
		{"0.1.2.3", nil, network.LocalAddress},
		{"10.1.2.3", nil, network.LocalAddress},
		{"100.64.0.1", nil, network.LocalAddress},
		{"100.128.0.1", nil, network.RuleAllows},
		{"100.100.100.200", nil, network.LocalAddress},
		{"127.0.0.1", nil, network.LocalAddress},
		{"127.255.255.254", nil, network.LocalAddress},
		{"168.63.129.16", nil, network.LocalAddress},
		{"168.63.129.17", nil, network.RuleAllows},
		{"169.254.169.254", nil, network.LocalAddress},
		{"172.15.255.255", nil, network.RuleAllows},
		{"172.16.0.1", nil, network.LocalAddress},
		{"172.31.255.255", nil, network.LocalAddress},
		{"172.32.0.0", nil, network.RuleAllows},
		{"192.0.0.192", nil, network.LocalAddress},
		{"192.168.1.1", nil, network.LocalAddress},
		{"198.18.0.1", nil, network.LocalAddress},
		{"198.20.0.0", nil, network.RuleAllows},
		{"224.0.0.1", nil, network.LocalAddress},
		{"240.0.0.1", nil, network.LocalAddress},
		{"255.255.255.255", nil, network.LocalAddress},
		{"203.0.113.7", nil, network.LocalAddress}, // this machine's
		{"203.0.113.8", nil, network.RuleAllows},
		{"::", nil, network.LocalAddress},
		{"::1", nil, network.LocalAddress},
		{"fc00::1", nil, network.LocalAddress},
		{"fd00:ec2::254", nil, network.LocalAddress},
		{"fe80::1", nil, network.LocalAddress},
		{"fec0::1", nil, network.LocalAddress},
		{"ff02::1", nil, network.LocalAddress},
		{"100::1", nil, network.LocalAddress},
		{"2001:db8::1", nil, network.LocalAddress},
		{"4000::1", nil, network.LocalAddress},
		{"64:ff9b:1::1", nil, network.LocalAddress},

		// IPv4 inside IPv6, private and public.
		{"::ffff:127.0.0.1", nil, network.LocalAddress},
		{"::ffff:93.184.216.34", nil, network.RuleAllows},
		{"::ffff:0:127.0.0.1", nil, network.LocalAddress},
		{"::127.0.0.1", nil, network.LocalAddress},
		{"::10.0.0.1", nil, network.LocalAddress},
		{"64:ff9b::127.0.0.1", nil, network.LocalAddress},
		{"64:ff9b::169.254.169.254", nil, network.LocalAddress},
		{"64:ff9b::203.0.113.7", nil, network.LocalAddress}, // this machine's
		{"64:ff9b::93.184.216.34", nil, network.RuleAllows},
		{"2002:7f00:1::", nil, network.LocalAddress},
		{"2002:a9fe:a9fe::1", nil, network.LocalAddress},
		{"2002:5db8:d822::1", nil, network.RuleAllows},
		{"2001:0:5db8:d822::80ff:fffe", nil, network.LocalAddress}, // Teredo: the client is 127.0.0.1
		{"2001:0:a00:1::a247:27dd", nil, network.LocalAddress},     // Teredo: the server is 10.0.0.1
		{"2606:4700::5efe:10.0.0.1", nil, network.LocalAddress},    // ISATAP
		{"2606:4700::200:5efe:10.0.0.1", nil, network.LocalAddress},

		// Address rules.
		{"10.1.2.3", []string{"10.1.2.3"}, network.RuleAllows},
		{"10.1.2.3", []string{"10.0.0.0/8"}, network.RuleAllows},
		{"10.1.2.3", []string{"10.0.0.0/8:*"}, network.RuleAllows},
		{"10.1.2.3", []string{"10.0.0.0/8:80"}, network.LocalAddress},
		{"10.1.2.3", []string{"0.0.0.0/0"}, network.LocalAddress},
		{"10.1.2.3", []string{"8.0.0.0/5"}, network.LocalAddress},
		{"10.1.2.3", []string{"*", "host.example"}, network.LocalAddress},
		{"64:ff9b::10.1.2.3", []string{"10.0.0.0/8"}, network.RuleAllows},
		{"10.1.2.3", []string{"10.0.0.0/8", "-10.1.0.0/16"}, network.RuleDenies},
		{"64:ff9b::10.1.2.3", []string{"10.0.0.0/8", "-10.1.0.0/16"}, network.RuleDenies},
		{"93.184.216.34", []string{"-93.184.216.0/24"}, network.RuleDenies},
		{"93.184.216.34", []string{"-93.184.216.0/24:80"}, network.RuleAllows},
		{"169.254.169.254", []string{"169.254.0.0/16"}, network.LocalAddress},
		{"169.254.169.254", []string{"169.254.169.254"}, network.RuleAllows},
		{"169.254.1.1", []string{"169.254.0.0/16"}, network.RuleAllows},
		{"100.100.100.200", []string{"100.64.0.0/10"}, network.LocalAddress},
		{"203.0.113.7", []string{"203.0.113.0/24"}, network.LocalAddress},
		{"203.0.113.7", []string{"203.0.113.7"}, network.RuleAllows},
		{"::1", []string{"::1"}, network.RuleAllows},
		{"::1", []string{"::/0"}, network.LocalAddress},
		{"fd00::1", []string{"fd00::/8"}, network.RuleAllows},
	} {
		p := policyOf(t, tt.rules...)
		p.Own = func() ([]netip.Addr, error) { return []netip.Addr{own}, nil }
		v := p.Address("host.example", netip.AddrPortFrom(netip.MustParseAddr(tt.addr), 443))
		if v.Reason != tt.want || v.Allowed != (tt.want == network.RuleAllows) || v.Ask != "" {
			t.Errorf("Address(%s) with %v = %v (%+v); want %s", tt.addr, tt.rules, v, v, tt.want)
		}
	}
}

// TestOwnUnknown: where this machine's addresses are unknown no address is allowed.
func TestOwnUnknown(t *testing.T) {
	t.Parallel()
	p := policyOf(t, "*")
	p.Own = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	if v := p.Address("example.com", netip.MustParseAddrPort("93.184.216.34:443")); v.Allowed || v.Reason != network.OwnUnknown {
		t.Errorf("Address = %v; want %s", v, network.OwnUnknown)
	}
}

// TestHostAddresses: every address of this machine's interfaces is refused, in each form.
func TestHostAddresses(t *testing.T) {
	t.Parallel()
	own, err := network.HostAddresses()
	if err != nil || len(own) == 0 {
		t.Fatalf("HostAddresses() = %v, %v", own, err)
	}
	p := &network.Policy{Allow: []network.Rule{rule(t, "*:*"), rule(t, "0.0.0.0/0:*"), rule(t, "::/0:*")}}
	for _, addr := range own {
		forms := []netip.Addr{addr}
		if addr.Is4() {
			forms = append(forms, netip.MustParseAddr(fmt.Sprintf("::ffff:%s", addr)), netip.MustParseAddr(fmt.Sprintf("64:ff9b::%s", addr)))
		}
		for _, form := range forms {
			if v := p.Address("example.com", netip.AddrPortFrom(form, 443)); v.Allowed {
				t.Errorf("Address(%s) = %v; want it refused", form, v)
			}
		}
	}
}

// TestOwnLoopback: the loopback addresses are this machine's, and a range of them can be allowed.
func TestOwnLoopback(t *testing.T) {
	t.Parallel()
	p := policyOf(t, "127.0.0.0/8:8080")
	p.Own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil }
	if v := p.Connect("127.0.0.1", 8080); !v.Allowed {
		t.Errorf("Connect = %v; want it allowed", v)
	}
}

// The cost of a decision, with all presets: what a gateway pays for each connection and request.
func BenchmarkDecisions(b *testing.B) {
	p := policyOf(b, network.PresetNames()...)
	p.Own = nil
	to := netip.MustParseAddrPort("93.184.216.34:443")
	for name, decide := range map[string]func() network.Verdict{
		"Name":    func() network.Verdict { return p.Name("registry.npmjs.org") },
		"Connect": func() network.Verdict { return p.Connect("registry.npmjs.org", 443) },
		"Address": func() network.Verdict { return p.Address("registry.npmjs.org", to) },
		"Request": func() network.Verdict {
			return p.Request("github.com", 443, "GET", "/o/r.git/info/refs?service=git-upload-pack")
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v := decide(); !v.Allowed {
					b.Fatal(v)
				}
			}
		})
	}
}

// FuzzRequest: what is forwarded is what was judged, and no path below /open leads out of it.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{"/open/x", "/open/%2e%2e/x", "/open/..%2fx", "/o%70en/x?y", "/open//../x", "/open/\\..\\x", "/open/%252e./x"} {
		f.Add("GET", s)
	}
	p := &network.Policy{Allow: []network.Rule{rule(f, "GET h.example/open/*")}, Own: noAddresses}
	f.Fuzz(func(t *testing.T, method, target string) {
		v := p.Request("h.example", 443, method, target)
		if !v.Allowed {
			return
		}
		if again := p.Request("h.example", 443, method, v.Target); !again.Allowed || again.Target != v.Target {
			t.Fatalf("%q is forwarded as %q, which gets %+v", target, v.Target, again)
		}
		if reached := resolve(t, v.Target); method != "GET" || len(reached) < 6 || reached[:6] != "/open/" {
			t.Fatalf("%s %q reaches %q", method, target, reached)
		}
	})
}

func TestOverruled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ allow, deny, want string }{
		{"example.com", "example.com", "example.com"},
		{"example.com", "*.com", "*.com"},
		{"example.com:22", "example.com", "example.com"},
		{"example.com", "example.com:80", ""},
		{"example.com:80", "example.com:80", "example.com:80"},
		{"example.com", "POST example.com", ""},
		{"*.example.com", "*.com", "*.com"},
		{"*.com", "*.example.com", ""},
		{"*", "*.com", ""},
		{"*.example.com", "example.com", ""},
		{"*", "*", "*"},
		{"10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"},
		{"10.0.0.0/8", "10.1.0.0/16", ""},
		{"10.0.0.1", "*", ""},
		{"@pypi", "pypi.org", ""},
		{"@pypi", "@pypi:ro", "@pypi:ro"},
	} {
		by, ok := policyOf(t, tt.allow, "-"+tt.deny).Overruled(rule(t, tt.allow))
		if by.String() != tt.want || ok != (tt.want != "") {
			t.Errorf("Overruled(%s) by %s = %q, %v; want %q", tt.allow, tt.deny, by, ok, tt.want)
		}
	}
}
