package networkcmd

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
)

func TestParseQuestion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		words string
		want  question
		fault string
	}{
		{"example.com", question{"GET", "example.com", 443, ""}, ""},
		{"example.com:22", question{"GET", "example.com", 22, ""}, ""},
		{"POST example.com:8443", question{"POST", "example.com", 8443, "/"}, ""},
		{"example.com/x?y=1", question{"GET", "example.com", 443, "/x?y=1"}, ""},
		{"https://example.com", question{"GET", "example.com", 443, "/"}, ""},
		{"HTTP://Example.com./x#frag", question{"GET", "Example.com.", 80, "/x"}, ""},
		{"https://example.com?y", question{"GET", "example.com", 443, "/?y"}, ""},
		{"https://user:pw@example.com:8443/x", question{"GET", "example.com", 8443, "/x"}, ""},
		{"https://example.com\\@evil.example/", question{"GET", "evil.example", 443, "/"}, ""},
		{"ssh://git@github.com/o/r", question{"GET", "github.com", 22, ""}, ""},
		{"http://[::1]:8080/", question{"GET", "[::1]", 8080, "/"}, ""},
		{"[::1]", question{"GET", "[::1]", 443, ""}, ""},
		{"::1", question{"GET", "::1", 443, ""}, ""},
		{"git@github.com:o/r", question{}, "not a port"},
		{"example.com:0", question{}, "not a port"},
		{"example.com:99999", question{}, "not a port"},
		{"gopher://example.com", question{}, "unknown"},
		{"gopher://example.com:70/", question{"GET", "example.com", 70, ""}, ""},
		{"https:///x", question{}, "missing"},
	} {
		got, err := parseQuestion(strings.Fields(tt.words))
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("parseQuestion(%q) = %+v, %v; want an error with %q", tt.words, got, err, tt.fault)
			}
			continue
		}
		if got != tt.want || err != nil {
			t.Errorf("parseQuestion(%q) = %+v, %v; want %+v", tt.words, got, err, tt.want)
		}
	}
}

// table resolves names to the addresses that it lists.
type table map[string][]string

func (r table) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, text := range r[host] {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	if addrs == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// A name whose addresses are all refused is denied; one allowed address is enough.
func TestResolve(t *testing.T) {
	t.Parallel()
	r := table{"one.example.": {"10.0.0.1", "93.184.216.34"}, "none.example.": {"10.0.0.1", "::1"}}
	allow, err := network.ParseRule("*.example")
	if err != nil {
		t.Fatal(err)
	}
	p := &network.Policy{Allow: []network.Rule{allow}}
	for _, tt := range []struct {
		host    string
		allowed bool
		text    string
		fails   bool
	}{
		{"one.example", true, "deny  10.0.0.1  10.0.0.1 is private\n  allow  93.184.216.34\n", false},
		{"none.example", false, "deny  10.0.0.1  10.0.0.1 is private\n  deny  ::1  ::1 is loopback\n", false},
		{"unknown.example", false, "", true},
	} {
		c := ask(p, question{method: "GET", host: tt.host, port: 443})
		err := c.resolve(t.Context(), p, r)
		if (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.host, err)
			continue
		}
		if !tt.fails && (c.verdict.Allowed != tt.allowed || !strings.Contains(c.text("here"), tt.text)) {
			t.Errorf("%s: allowed %v, text:\n%swant %v and:\n%s", tt.host, c.verdict.Allowed, c.text("here"), tt.allowed, tt.text)
		}
	}
}
