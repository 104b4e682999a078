package network_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
)

func TestParseRule(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"example.com", "example.com"},
		{"  Example.COM. ", "example.com"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"example.com:22", "example.com:22"},
		{"example.com:*", "example.com:*"},
		{"*.example.com", "*.example.com"},
		{"*", "*"},
		{"*:443", "*:443"},
		{"my_host.example.com", "my_host.example.com"},
		{"r3---sn-h.example.com", "r3---sn-h.example.com"},
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"10.0.0.0/8:5432", "10.0.0.0/8:5432"},
		{"127.0.0.1:8080", "127.0.0.1:8080"},
		{"0x7f.1:8080", "127.0.0.1:8080"},
		{"2130706433", "127.0.0.1"},
		{"10.0.0.1/32", "10.0.0.1"},
		{"10.0.0.1/32/api/*", "10.0.0.1/32/api/*"},
		{"GET 10.0.0.1:80/api/*", "GET 10.0.0.1:80/api/*"},
		{"fd00::/8", "fd00::/8"},
		{"[fd00::]/8:443", "[fd00::]/8:443"},
		{"[::1]:8080", "[::1]:8080"},
		{"::1", "::1"},
		{"[::1]/x", ""}, // the length of a range is missing
		{"[::1]/128/x", "[::1]/128/x"},
		{"::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"::ffff:10.0.0.1", "10.0.0.1"},
		{"GET,HEAD pypi.org/simple/*", "GET,HEAD pypi.org/simple/*"},
		{"HEAD,GET,GET  pypi.org/simple/**", "GET,HEAD pypi.org/simple/*"},
		{"GET pypi.org/*", "GET pypi.org"},
		{"pypi.org/*", "pypi.org"},
		{"GET pypi.org/", "GET pypi.org/"},
		{"pypi.org:443/a%7eb/%e2%82%ac", "pypi.org:443/a~b/%E2%82%AC"},
		{"pypi.org/ä", "pypi.org/%C3%A4"},
		{"GET github.com:443 !Git-Receive-Pack", "GET github.com:443 !git-receive-pack"},
		{"github.com !x", "github.com !x"},
		{"@npm", "@npm"},
		{"@npm:ro", "@npm:ro"},
		{"@github", "@github"},
	} {
		r, err := network.ParseRule(tt.text)
		if err != nil {
			if tt.want != "" {
				t.Errorf("ParseRule(%q): %v; want %q", tt.text, err, tt.want)
			}
			continue
		}
		if got := r.String(); got != tt.want {
			t.Errorf("ParseRule(%q) = %q; want %q", tt.text, got, tt.want)
		}
		again, err := network.ParseRule(tt.want)
		if err != nil || again.String() != tt.want {
			t.Errorf("ParseRule(%q) = %q, %v; want itself", tt.want, again, err)
		}
	}
}

func TestParseRuleErrors(t *testing.T) {
	t.Parallel()
	const never = "can never match"
	for _, tt := range []struct {
		text   string
		column int
		want   string
	}{
		{"", 1, "empty"},
		{"   ", 1, "empty"},
		{"https://example.com", 1, "no https://"},
		{"user@example.com", 5, "no user"},
		{"example.com:", 13, "not a port"},
		{"example.com:0", 13, "not a port"},
		{"example.com:65536", 13, "not a port"},
		{"example.com:080", 13, "not a port"},
		{"example.com:http", 13, "not a port"},
		{"bücher.example:x", 16, "not a port"},
		{"get example.com", 1, "not a method"},
		{"GET,,PUT example.com", 5, "a method is missing"},
		{"GET,put example.com", 5, "not a method"},
		{"GET,TRACE example.com", 5, never},
		{"CONNECT example.com", 1, never},
		{"localhost", 1, never},
		{"localhost:8080", 1, never},
		{"x.localhost", 1, never},
		{"*.localhost", 1, never},
		{"printer.local", 1, never},
		{"*.local", 1, never},
		{"intranet", 1, never},
		{"224.0.0.1", 1, never},
		{"0.0.0.0", 1, never},
		{"[::]:80", 1, never},
		{"foo.*.example.com", 5, "start only"},
		{"*foo.example.com", 1, "start only"},
		{"*.10.0.0.1", 1, "no names below"},
		{"10.0.0.1/8", 10, "write 10.0.0.0/8"},
		{"10.0.0.0/33", 10, "no such length"},
		{"10.0.0.0/08", 10, "length"},
		{"10.0.0.1/api", 10, "length"},
		{"::ffff:10.0.0.0/8", 17, "no such length"},
		{"[10.0.0.1]", 1, "brackets"},
		{"[::1", 1, "brackets"},
		{"[fe80::1%eth0]", 1, "not a host"},
		{"[::1]x", 6, "neither a port nor a path"},
		{"1.2.3.4.5", 1, "ends in a number"},
		{"example.com.5", 1, "ends in a number"},
		{"exa mple.com", 1, "not a method"},
		{"GET example.com extra", 17, "a word too many"},
		{"GET example.com !a b", 20, "a word too many"},
		{"example.com !", 13, "missing"},
		{"example.com !a/b", 15, "letters"},
		{"GET example.com/a/../b", 16, never},
		{"GET example.com/a//b", 16, never},
		{"GET example.com/a%2fb", 16, never},
		{"GET example.com/a%5Cb", 16, never},
		{"GET example.com/a\\b", 16, never},
		{"GET example.com/a%2", 16, never},
		{"GET example.com/a?b=c", 18, "no query"},
		{"GET example.com/x/git-receive-pack !git-receive-pack", 36, never},
		{"@nmp", 1, "@npm"},
		{"@git:ro", 5, "write @git"},
		{"@npm:rw", 1, "no preset"},
		{"@npm x", 6, "stands alone"},
		{"GET @npm", 5, "no user"},
		{"a\tb", 2, "control"},
		{"exa\xffmple.com", 4, "UTF-8"},
		{strings.Repeat("a", 5000), 1, "too long"},
		{strings.Repeat("a.", 127) + "com", 1, "253"},
		{strings.Repeat("a", 64) + ".com", 1, "63"},
		{"-a.com", 1, "hyphen"},
		{"a..com", 1, "empty"},
		{"a.com..", 1, "empty"},
	} {
		r, err := network.ParseRule(tt.text)
		bad, ok := errors.AsType[*network.RuleError](err)
		if !ok {
			t.Errorf("ParseRule(%q) = %q, %v; want a *RuleError", tt.text, r, err)
			continue
		}
		if bad.Column != tt.column || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseRule(%q): column %d, %v; want column %d and %q", tt.text, bad.Column, err, tt.column, tt.want)
		}
		if !r.IsZero() {
			t.Errorf("ParseRule(%q) = %q with an error; want the zero Rule", tt.text, r)
		}
	}
}

func TestPresets(t *testing.T) {
	t.Parallel()
	for _, preset := range network.Presets() {
		r := rule(t, preset.Name)
		for _, part := range r.Expand() {
			if got := rule(t, part.String()).String(); got != part.String() {
				t.Errorf("%s: %s parses to %s", preset.Name, part, got)
			}
		}
		// Go's proxy sends clients for large modules to one directory of a host that holds much else.
		readOnly := preset.Name == "@go" || strings.HasSuffix(preset.Name, ":ro") || strings.HasPrefix(preset.Name, "@git")
		// No preset lets a client write where it is read-only.
		p := policyOf(t, preset.Name)
		for _, part := range r.Expand() {
			words := strings.Fields(part.String())
			host, _, _ := strings.Cut(words[min(1, len(words)-1)], ":")
			v := p.Request(host, 443, "PUT", "/x")
			if plain := !strings.Contains(part.String(), " "); v.Allowed != plain {
				t.Errorf("%s: PUT https://%s/x: %v", preset.Name, host, v)
			}
		}
		if r.Intercepts() != readOnly {
			t.Errorf("%s: Intercepts() = %v; want %v", preset.Name, r.Intercepts(), readOnly)
		}
	}
}

func rule(tb testing.TB, text string) network.Rule {
	tb.Helper()
	r, err := network.ParseRule(text)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func FuzzParseRule(f *testing.F) {
	for _, text := range []string{
		"example.com", "GET,HEAD pypi.org/simple/*", "*.example.com:22", "10.0.0.0/8:5432", "[fd00::]/8:443/x", "::1",
		"@npm:ro", "GET github.com:443 !git-receive-pack", "0x7f.1", "bücher.example/ä%7e", "::ffff:10.0.0.0/104", "１２７。0.0.1:*",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := network.ParseRule(text)
		if err != nil {
			if bad, ok := errors.AsType[*network.RuleError](err); !ok || bad.Column < 1 || bad.Column > len(text)+1 {
				t.Fatalf("ParseRule(%q): %#v", text, err)
			}
			return
		}
		again, err := network.ParseRule(r.String())
		if err != nil || again.String() != r.String() {
			t.Fatalf("ParseRule(%q) = %q, which parses to %q, %v", text, r, again, err)
		}
	})
}
