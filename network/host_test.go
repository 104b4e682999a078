package network_test

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/sandboxbash/sandboxbash/network"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ host, want string }{
		{"example.com", "example.com"},
		{"EXAMPLE.com", "example.com"},
		{"example.com.", "example.com"},
		{"example.com..", ""},
		{".example.com", ""},
		{"bücher.example", "xn--bcher-kva.example"},
		{"BÜCHER.example", "xn--bcher-kva.example"},
		{"bu\u0308cher.example", "xn--bcher-kva.example"},
		{"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
		{"example。com", "example.com"},
		{"example．com．", "example.com"},
		{"ｅｘａｍｐｌｅ.com", "example.com"},
		{"exam\u00adple.com", "example.com"}, // a soft hyphen
		{"faß.example", "xn--fa-hia.example"},
		{"xn--a.example", ""},        // not valid punycode
		{"xn--abc-.example", ""},     // punycode of ASCII
		{"xn--example-.com", ""},     // the same
		{"exa%6dple.com", ""},        // not decoded twice
		{"example.com\x00.evil", ""}, // what C would cut
		{"example.com/evil", ""},
		{"user@example.com", ""},
		{"example.com:443", ""},
		{"exa mple.com", ""},
		{"", ""},
		{".", ""},
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.1.", "127.0.0.1"},
		{"0x7f.1", "127.0.0.1"},
		{"0X7F.0.0.1", "127.0.0.1"},
		{"127.1", "127.0.0.1"},
		{"2130706433", "127.0.0.1"},
		{"0x7f000001", "127.0.0.1"},
		{"017700000001", "127.0.0.1"},
		{"0177.0.0.01", "127.0.0.1"},
		{"127.0.0.010", "127.0.0.8"},
		{"0", "0.0.0.0"},
		{"0x", "0.0.0.0"},
		{"１２７。０。０。１", "127.0.0.1"},
		{"①②⑦.0.0.1", "127.0.0.1"},
		{"256.0.0.1", ""},
		{"127.0.0.08", ""},
		{"4294967296", ""},
		{"1.2.3.4.5", ""},
		{"1.2.3.0x", "1.2.3.0"},
		{"example.0x7f", ""},
		{"::1", "::1"},
		{"[::1]", "::1"},
		{"[0:0:0:0:0:0:0:1]", "::1"},
		{"[::ffff:127.0.0.1]", "127.0.0.1"},
		{"::FFFF:7f00:1", "127.0.0.1"},
		{"[fe80::1%25eth0]", ""},
		{"fe80::1%eth0", ""},
		{"[127.0.0.1]", ""},
		{"[example.com]", ""},
		{"[::1", ""},
		{"::1]", ""},
		{"[[::1]]", ""},
	} {
		got, err := network.Canonical(tt.host)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("Canonical(%q) = %q, %v; want %q", tt.host, got, err, tt.want)
		}
	}
}

// FuzzCanonical holds every spelling of a host to one verdict: the spelling itself, its
// canonical form, and other spellings of that form.
func FuzzCanonical(f *testing.F) {
	for _, host := range []string{"Example.COM.", "bücher.example", "0x7f.1", "[::1]", "::ffff:7f00:1", "１２７。0.0.1", "a_b.example", "xn--abc-.com", "faß.de", "\u200dx.com"} {
		f.Add(host)
	}
	deny := &network.Policy{
		Allow: []network.Rule{rule(f, "*:*"), rule(f, "0.0.0.0/0:*"), rule(f, "::/0:*")}, Own: noAddresses,
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, err := network.Canonical(host)
		if err != nil {
			if name != "" {
				t.Fatalf("Canonical(%q) = %q, %v", host, name, err)
			}
			return
		}
		spellings := []string{host, name, strings.ToUpper(name), name + "."}
		if addr, err := netip.ParseAddr(name); err == nil {
			if addr.Is6() {
				spellings = []string{host, name, "[" + name + "]", strings.ToUpper(name), addr.StringExpanded()}
			}
		} else {
			spellings = append(spellings, strings.ReplaceAll(name, ".", "。"))
			if shown, err := idna.ToUnicode(name); err == nil {
				spellings = append(spellings, shown)
			}
		}
		want := deny.Connect(name, 443)
		for _, s := range spellings {
			if got, err := network.Canonical(s); got != name || err != nil {
				t.Errorf("Canonical(%q) = %q, %v; want %q as for %q", s, got, err, name, host)
			}
			if got := deny.Connect(s, 443); got.Allowed != want.Allowed || got.Reason != want.Reason || got.Host != want.Host {
				t.Errorf("Connect(%q) = %v; want %v", s, got, want)
			}
		}
	})
}

func noAddresses() ([]netip.Addr, error) { return nil, nil }
