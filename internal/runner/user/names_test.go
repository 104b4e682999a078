//go:build linux

package user

import (
	"slices"
	"testing"
)

func TestResolverValues(t *testing.T) {
	t.Parallel()
	const file = "# a comment\nnameserver 127.0.0.1\n  nameserver\t10.0.0.1\ndomain corp.example\nsearch a.example b.example\noptions timeout:1 attempts:2"
	for key, want := range map[string][]string{
		"nameserver": {"127.0.0.1", "10.0.0.1"}, "search": {"corp.example", "a.example", "b.example"}, "options": {"timeout:1", "attempts:2"},
	} {
		if got := resolverValues([]byte(file), key); !slices.Equal(got, want) {
			t.Errorf("resolverValues(%s) = %q; want %q", key, got, want)
		}
	}
	if got := resolverValues(nil, "search"); len(got) != 0 {
		t.Errorf("resolverValues of nothing = %q; want none", got)
	}
}

func TestHostsKind(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"": "own",
		"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nff02::1\tip6-allnodes\n":     "own",
		"127.0.0.1 localhost localhost.localdomain\n127.0.1.1 sandbox sandboxbash-0199 # mine.example": "own",
		"127.0.0.1 localhost build-7.corp.example\n":                                                   "foreign",
		"10.0.0.7 db":                         "foreign",
		"10.0.2.2 host.containers.internal\n": "foreign",
	} {
		if got := hostsKind([]byte(file), "sandbox"); got != want {
			t.Errorf("hostsKind(%q) = %s; want %s", file, got, want)
		}
	}
}
