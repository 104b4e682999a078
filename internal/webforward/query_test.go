package webforward

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// FuzzQuery: no query takes the token along, in whatever spelling that can be decoded, and parts that have
// nothing to do with it stay as they are. T in the query stands for the token.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"", "a=1", "sandboxbash-token=T", "a=1&sandboxbash-token=T&b=%32", "sandboxbash%2Dtoken=T", "x=T&y", "&&", "%zz=T", "a=1;sandboxbash-token=T", "sandboxbash-token", "a=1%26sandboxbash-token%3DT"} {
		f.Add(q)
	}
	s := New(Options{})
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, raw string) {
		raw = strings.ReplaceAll(raw, "T", s.token)
		got := s.query(raw)
		plain, err := url.QueryUnescape(got)
		if strings.Contains(got, s.token) || err == nil && strings.Contains(plain, s.token) {
			t.Fatalf("query(%q) = %q, with the token", raw, got)
		}
		parts := strings.Split(raw, "&")
		for part := range strings.SplitSeq(got, "&") {
			if part != "" && !slices.Contains(parts, part) {
				t.Fatalf("query(%q) = %q, with a part that it has not", raw, got)
			}
		}
		if decoded, err := url.QueryUnescape(raw); err == nil && got != raw && !strings.Contains(decoded, s.token) && !strings.Contains(decoded, tokenParam) {
			t.Fatalf("query(%q) = %q; want it as it is", raw, got)
		}
	})
}
