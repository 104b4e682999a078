package network_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
)

// TestCheckSecret: a secret is for servers that are named, and is never sent in plain HTTP.
func TestCheckSecret(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rule, want string }{
		{"api.example.com", ""},
		{"api.example.com:443", ""},
		{"api.example.com:8443", ""},
		{"api.example.com:*", ""},
		{"*.example.com", ""},
		{"POST api.example.com/v1/*", ""},
		{"10.0.0.1:443", ""},
		{"[fd00::1]:443", ""},
		{"@npm", "preset"},
		{"@npm:ro", "preset"},
		{"*", "every host"},
		{"*:443", "every host"},
		{"GET *", "every host"},
		{"10.0.0.0/8", "range"},
		{"[fd00::]/8:443", "range"},
		{"api.example.com:80", "plain HTTP"},
		{"10.0.0.1:80", "plain HTTP"},
	} {
		err := rule(t, tt.rule).CheckSecret()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("CheckSecret(%s) = %v; want %q", tt.rule, err, tt.want)
		}
	}
	if err := (network.Rule{}).CheckSecret(); err == nil {
		t.Error("a secret may be for nothing")
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "example.org", false},
		{"example.com", "a.example.com", false},
		{"example.com", "*.example.com", false},
		{"a.example.com", "*.example.com", true},
		{"evilexample.com", "*.example.com", false},
		{"*.example.com", "*.example.com", true},
		{"*.a.example.com", "*.example.com", true},
		{"*.a.example.com", "*.b.example.com", false},
		{"*.com", "*.example.com", true},
		{"*", "example.com", true},
		{"*", "*.example.com", true},
		{"*", "*", true},
		{"*", "10.0.0.1", false},
		{"example.com", "10.0.0.1", false},
		{"10.0.0.0/8", "10.0.0.1", true},
		{"10.0.0.0/8", "10.1.0.0/16", true},
		{"10.0.0.0/8", "11.0.0.0/8", false},
		{"10.0.0.0/8", "fd00::/8", false},
		{"example.com:443", "example.com", true},
		{"example.com:8443", "example.com", false},
		{"example.com:80", "example.com:443", false},
		{"example.com:*", "example.com:22", true},
		{"example.com:*", "example.com:*", true},
		{"example.com:*", "example.com", true},
		{"GET example.com/a", "POST example.com/b", true}, // one connection is for both
		{"@npm", "registry.npmjs.org", true},
		{"@npm", "registry.npmjs.org:22", false},
		{"@npm", "*.npmjs.org", true},
		{"@npm", "@npm:ro", true},
		{"@npm", "@pypi", false},
		{"@github", "@git", true},
	} {
		a, b := rule(t, tt.a), rule(t, tt.b)
		if got := a.Overlaps(b); got != tt.want {
			t.Errorf("%s overlaps %s: %v; want %v", a, b, got, tt.want)
		}
		if got := b.Overlaps(a); got != tt.want {
			t.Errorf("%s overlaps %s: %v; want %v", b, a, got, tt.want)
		}
	}
}

// TestOverlapsConnections: if some connection is one that both of two rules are for, they overlap.
func TestOverlapsConnections(t *testing.T) {
	t.Parallel()
	var rules []network.Rule
	for _, text := range []string{
		"*", "*:22", "*:*", "example.com", "example.com:22", "example.com:*", "*.example.com", "*.example.com:443", "a.example.com:80",
		"a.b.example.com", "*.b.example.com:*", "8.8.8.8", "8.8.0.0/16:*", "0.0.0.0/0", "::/0:443", "2606:4700::1111", "@npm", "@npm:ro",
	} {
		rules = append(rules, rule(t, text))
	}
	hosts := []string{"example.com", "a.example.com", "a.b.example.com", "other.org", "registry.npmjs.org", "8.8.8.8", "8.8.4.4", "2606:4700::1111"}
	reached := func(r network.Rule) (all []string) {
		p := &network.Policy{Allow: []network.Rule{r}, Own: noAddresses}
		for _, host := range hosts {
			for _, port := range []int{22, 80, 443, 8443} {
				if v := p.Connect(host, port); v.Allowed {
					all = append(all, v.String()[:strings.Index(v.String(), " ")])
				}
			}
		}
		return all
	}
	for _, a := range rules {
		mine := reached(a)
		for _, b := range rules {
			shared := slices.DeleteFunc(reached(b), func(to string) bool { return !slices.Contains(mine, to) })
			if len(shared) > 0 && !a.Overlaps(b) {
				t.Errorf("%s and %s are both for %q, and do not overlap", a, b, shared)
			}
		}
	}
}

// TestExpandDeny: a preset that is denied denies its hosts as a whole, so that no request needs to be
// seen, and what Expand and ExpandDeny return is the caller's to change.
func TestExpandDeny(t *testing.T) {
	t.Parallel()
	for _, preset := range network.Presets() {
		r := rule(t, preset.Name)
		if r.DenyIntercepts() {
			t.Errorf("-%s intercepts", preset.Name)
		}
		p := policyOf(t, "*:*", "-"+preset.Name)
		for _, part := range r.ExpandDeny() {
			for _, port := range []int{22, 80, 443} {
				if v := p.Connect(part.String(), port); v.Reason != network.RuleDenies || !v.Rule.Equal(r) {
					t.Errorf("with -%s, %s port %d: %v", preset.Name, part, port, v)
				}
			}
		}
		before := network.Texts(r.ExpandDeny())
		r.ExpandDeny()[0], r.Expand()[0] = network.Rule{}, network.Rule{}
		if after := network.Texts(r.ExpandDeny()); !slices.Equal(before, after) || r.Expand()[0].IsZero() {
			t.Errorf("%s is changed through what it expands to: %q, %q", preset.Name, before, after)
		}
	}
	one := rule(t, "GET example.com:443/x")
	if got := network.Texts(one.ExpandDeny()); !slices.Equal(got, []string{"GET example.com:443/x"}) || !one.DenyIntercepts() {
		t.Errorf("-%s expands to %q, intercepts: %v", one, got, one.DenyIntercepts())
	}
	if got := network.Texts(nil); got == nil || len(got) != 0 {
		t.Errorf("the texts of no rules are %#v; want an empty list, which JSON shows as []", got)
	}
}
