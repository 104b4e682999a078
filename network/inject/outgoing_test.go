package inject

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/network"
)

const (
	value       = "hunter2/hunter2+x"
	placeholder = "sandboxbash_secret_TOKEN_0123456789abcdef"
	other       = "sandboxbash_secret_OTHER_fedcba9876543210"
	otherValue  = "correct horse&battery"
)

// rules parses the rules of a secret.
func rules(tb testing.TB, texts ...string) []network.Rule {
	tb.Helper()
	var all []network.Rule
	for _, text := range texts {
		r, err := network.ParseRule(text)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// newSet returns a Set of TOKEN, for api.example.com and some requests to git.example.com, and of OTHER.
func newSet(tb testing.TB) *Set {
	tb.Helper()
	set, err := New([]Secret{
		{Name: "TOKEN", Placeholder: placeholder, Value: value, Rules: rules(tb, "api.example.com", "GET,HEAD git.example.com:8443/v1/*")},
		{Name: "OTHER", Placeholder: other, Value: otherValue, Rules: rules(tb, "*.other.example", "api.example.com/query"), InQuery: true},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

func basic(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

func TestOutgoing(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	for _, tt := range []struct {
		name   string
		method string
		at     string // URL
		header http.Header
		want   http.Header // but Accept-Encoding
		query  string
		used   []string
	}{
		{
			name: "bearer", at: "https://api.example.com/v1", header: http.Header{"Authorization": {"Bearer " + placeholder}},
			want: http.Header{"Authorization": {"Bearer " + value}}, used: []string{"TOKEN"},
		},
		{
			name: "own headers of services", at: "https://api.example.com/v1",
			header: http.Header{"X-Api-Key": {placeholder}, "Private-Token": {placeholder}, "X-Custom": {"a " + placeholder + " b " + placeholder}},
			want:   http.Header{"X-Api-Key": {value}, "Private-Token": {value}, "X-Custom": {"a " + value + " b " + value}}, used: []string{"TOKEN"},
		},
		{
			name: "Basic password", at: "https://api.example.com/v1", header: http.Header{"Authorization": {basic("me:" + placeholder)}},
			want: http.Header{"Authorization": {basic("me:" + value)}}, used: []string{"TOKEN"},
		},
		{
			name: "Basic user, not padded, in other letters", at: "https://api.example.com/v1",
			header: http.Header{"Authorization": {"bAsIc  " + base64.RawURLEncoding.EncodeToString([]byte(placeholder+":x"))}},
			want:   http.Header{"Authorization": {basic(value + ":x")}}, used: []string{"TOKEN"},
		},
		{
			name: "Basic without it", at: "https://api.example.com/v1", header: http.Header{"Authorization": {basic("me:mine"), "Basic %%%", "Basic"}},
			want: http.Header{},
		},
		{
			name: "the client's own besides", at: "https://api.example.com/v1",
			header: http.Header{
				"Authorization": {"Bearer mine", "Bearer " + placeholder, "Bearer mine, token " + placeholder}, "X-Api-Key": {"mine"}, "Cookie": {"a=mine; b=" + placeholder + "; c=mine"},
				"Proxy-Authorization": {"Bearer mine"}, "Private-Token": {"mine"}, "X-Auth-Token": {"mine"}, "X-Amz-Security-Token": {"mine"}, "X_api_key": {"mine"},
				"Ocp-Apim-Subscription-Key": {"mine"}, "X-Trackertoken": {"mine"}, "Cf-Access-Client-Secret": {"mine"}, "Accept": {"*/*"}, "Idempotency-Key": {"1"},
			},
			want: http.Header{
				"Authorization": {"Bearer " + value, "token " + value}, "Cookie": {"b=" + value}, "Accept": {"*/*"}, "Idempotency-Key": {"1"},
			}, used: []string{"TOKEN"},
		},
		{
			name: "another path of its host", at: "https://git.example.com:8443/v2/x", header: http.Header{"Authorization": {"Bearer " + placeholder}, "X-Mine": {placeholder}, "Cookie": {"a=b"}},
			want: http.Header{"X-Mine": {placeholder}},
		},
		{
			name: "another method", method: "POST", at: "https://git.example.com:8443/v1/x", header: http.Header{"X-Mine": {placeholder}}, want: http.Header{"X-Mine": {placeholder}},
		},
		{
			name: "its method and path", at: "https://git.example.com:8443/v1/x", header: http.Header{"X-Mine": {placeholder}}, want: http.Header{"X-Mine": {value}}, used: []string{"TOKEN"},
		},
		{
			name: "its path, encoded", at: "https://git.example.com:8443/%761/x", header: http.Header{"X-Mine": {placeholder}}, want: http.Header{"X-Mine": {value}}, used: []string{"TOKEN"},
		},
		{
			name: "a path that can be read in two ways", at: "https://git.example.com:8443/v1//x", header: http.Header{"X-Mine": {placeholder}}, want: http.Header{"X-Mine": {placeholder}},
		},
		{
			name: "a host that is not its own", at: "https://x.other.example/v1", header: http.Header{"X-Mine": {placeholder, other}},
			want: http.Header{"X-Mine": {placeholder, otherValue}}, used: []string{"OTHER"},
		},
		{
			name: "a host of none", at: "https://evil.example/v1", header: http.Header{"Authorization": {"Bearer " + placeholder}, "Range": {"bytes=0-1"}},
			want: http.Header{"Authorization": {"Bearer " + placeholder}, "Range": {"bytes=0-1"}},
		},
		{
			name: "another port", at: "https://api.example.com:444/v1", header: http.Header{"Authorization": {placeholder}}, want: http.Header{"Authorization": {placeholder}},
		},
		{
			name: "plain HTTP", at: "http://api.example.com:443/v1", header: http.Header{"Authorization": {placeholder}}, want: http.Header{"Authorization": {placeholder}},
		},
		{
			name: "plain HTTP on its port", at: "http://api.example.com/v1", header: http.Header{"Authorization": {placeholder}}, want: http.Header{"Authorization": {placeholder}},
		},
		{
			name: "two secrets", at: "https://api.example.com/query?k=" + other + "&t=" + placeholder, header: http.Header{"X-A": {placeholder + other}},
			want: http.Header{"X-A": {value + otherValue}}, query: "k=" + url.QueryEscape(otherValue) + "&t=" + placeholder, used: []string{"OTHER", "TOKEN"},
		},
		{
			name: "what servers repeat", at: "https://api.example.com/v1",
			header: http.Header{"Origin": {placeholder}, "Referer": {placeholder}, "User-Agent": {placeholder}, "Access-Control-Request-Headers": {placeholder}, "Accept-Language": {placeholder}, "If-None-Match": {placeholder}},
			want:   http.Header{"Origin": {placeholder}, "Referer": {placeholder}, "User-Agent": {placeholder}, "Access-Control-Request-Headers": {placeholder}, "Accept-Language": {placeholder}, "If-None-Match": {placeholder}},
		},
		{
			name: "what would hinder masking, or change what was judged", at: "https://api.example.com/v1",
			header: http.Header{"Range": {"bytes=0-9"}, "If-Range": {"x"}, "Accept-Charset": {"utf-16"}, "A-Im": {"gzip"}, "Accept-Encoding": {"gzip", "br"}, "X-Http-Method-Override": {"DELETE"}, "X-Original-Url": {"/v2"}},
			want:   http.Header{},
		},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, tt.at, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = tt.header
		came := r.Header.Clone()
		host, port := r.URL.Hostname(), 443
		if p := r.URL.Port(); p == "8443" {
			port = 8443
		} else if p == "444" {
			port = 444
		} else if r.URL.Scheme == "http" && p == "" {
			port = 80
		}
		used, err := set.Outgoing(r, host, port)
		if err != nil || !slices.Equal(used, tt.used) {
			t.Errorf("%s: Outgoing() = %v, %v; want %v, nil", tt.name, used, err, tt.used)
		}
		if diff := cmp.Diff(came, tt.header); diff != "" {
			t.Errorf("%s: the client's own header was changed (-before +after):\n%s", tt.name, diff)
		}
		encoding := r.Header.Get("Accept-Encoding")
		r.Header.Del("Accept-Encoding")
		if wanted := mustMask(r) && r.URL.Scheme == "https"; wanted != (encoding == "identity") {
			t.Errorf("%s: Accept-Encoding: %s; the answer must be masked: %v", tt.name, encoding, wanted)
		}
		if diff := cmp.Diff(tt.want, r.Header); diff != "" {
			t.Errorf("%s: header (-want +got):\n%s", tt.name, diff)
		}
		if tt.query != "" && r.URL.RawQuery != tt.query {
			t.Errorf("%s: query %s; want %s", tt.name, r.URL.RawQuery, tt.query)
		}
	}
}

// The host is compared in the spelling that is dialled, whatever spelling the caller has.
func TestIntercepts(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	for _, tt := range []struct {
		host string
		port int
		want bool
	}{
		{"api.example.com", 443, true},
		{"API.Example.COM.", 443, true},
		{"api.example.com", 80, false},
		{"api.example.com", 8443, false},
		{"git.example.com", 8443, true},
		{"x.other.example", 443, true},
		{"other.example", 443, false},
		{"evil.example", 443, false},
		{"api.example.com.evil.example", 443, false},
		{"", 443, false},
	} {
		if got := set.Intercepts(tt.host, tt.port); got != tt.want {
			t.Errorf("Intercepts(%q, %d) = %v; want %v", tt.host, tt.port, got, tt.want)
		}
	}
}

// A request as a server has received it has no scheme so far.
func TestOutgoingOfServer(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{true, false} {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/v1"}, Header: http.Header{"Authorization": {placeholder}}}
		if secure {
			r.TLS = &tls.ConnectionState{}
		}
		used, err := newSet(t).Outgoing(r, "api.example.com", 443)
		if (len(used) == 1) != secure || err != nil {
			t.Errorf("over TLS %v: Outgoing() = %v, %v", secure, used, err)
		}
	}
}

func TestNilSet(t *testing.T) {
	t.Parallel()
	var set *Set
	r := &http.Request{Header: http.Header{"Authorization": {"mine"}}, URL: &url.URL{Scheme: "https"}}
	used, err := set.Outgoing(r, "example.com", 443)
	if used != nil || err != nil || r.Header.Get("Authorization") != "mine" || set.Intercepts("example.com", 443) || set.Mask("x") != "x" || set.Incoming(&http.Response{}) != nil {
		t.Error("a nil Set does something")
	}
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	hosts := rules(t, "example.com")
	for _, tt := range []struct {
		name    string
		secrets []Secret
		want    string
	}{
		{"line end", []Secret{{"A", placeholder, "hunter2hunter2\nX: y", hosts, false, false}}, "secret A has a line end"},
		{"carriage return", []Secret{{"A", placeholder, "hunter2\rhunter2", hosts, false, false}}, "secret A has a line end"},
		{"NUL", []Secret{{"A", placeholder, "hunter2\x00hunter2", hosts, false, false}}, "control character"},
		{"space", []Secret{{"A", placeholder, "hunter2hunter2 ", hosts, false, false}}, "white space"},
		{"short", []Secret{{"A", placeholder, "hunter2", hosts, false, false}}, "shorter than 8 bytes"},
		{"empty", []Secret{{"A", placeholder, "", hosts, false, false}}, "no value"},
		{"no hosts", []Secret{{"A", placeholder, value, nil, false, false}}, "no hosts"},
		{"every host", []Secret{{"A", placeholder, value, rules(t, "GET *"), false, false}}, "every host"},
		{"preset", []Secret{{"A", placeholder, value, rules(t, "@npm"), false, false}}, "preset"},
		{"range", []Secret{{"A", placeholder, value, rules(t, "10.0.0.0/8"), false, false}}, "range"},
		{"port 80", []Secret{{"A", placeholder, value, rules(t, "example.com:80"), false, false}}, "plain HTTP"},
		{"short placeholder", []Secret{{"A", "token", value, hosts, false, false}}, "placeholder must have"},
		{"odd placeholder", []Secret{{"A", placeholder + ":", value, hosts, false, false}}, "placeholder must have"},
		{"twice", []Secret{{"A", placeholder, value, hosts, false, false}, {"A", other, value, hosts, false, false}}, "there twice"},
		{"the same placeholder", []Secret{{"A", placeholder, value, hosts, false, false}, {"B", placeholder + "1", value, hosts, false, false}}, "hold each other"},
		{"a value with a placeholder", []Secret{{"A", placeholder, value, hosts, false, false}, {"B", other, "x" + placeholder, hosts, false, false}}, "hold each other"},
		{"a name that no mask can show", []Secret{{"A B", placeholder, value, hosts, false, false}}, "A B"},
	} {
		_, err := New(tt.secrets)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: New() = %v; want %q, and no value", tt.name, err, tt.want)
		}
	}
}

func TestNewPlaceholder(t *testing.T) {
	t.Parallel()
	one, two := NewPlaceholder("A"), NewPlaceholder("A")
	if one == two {
		t.Errorf("NewPlaceholder() = %s twice", one)
	}
	if _, err := New([]Secret{{"A", one, value, rules(t, "example.com"), false, false}, {"B", two, value, rules(t, "example.com"), false, false}}); err != nil {
		t.Errorf("New() with placeholders of ours: %v", err)
	}
}

// A secret without a value has requests that need it refused, and no others.
func TestMissing(t *testing.T) {
	t.Parallel()
	missing := Secret{Name: "GONE", Placeholder: "sandboxbash_secret_GONE_0011223344556677", Rules: rules(t, "api.example.com"), InQuery: true, Missing: true}
	set, err := New([]Secret{missing, {Name: "TOKEN", Placeholder: placeholder, Value: value, Rules: rules(t, "api.example.com")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		at      string
		header  http.Header
		refused bool
	}{
		{"header", "https://api.example.com/", http.Header{"Authorization": {"Bearer " + missing.Placeholder}}, true},
		{"Basic", "https://api.example.com/", http.Header{"Authorization": {basic("me:" + missing.Placeholder)}}, true},
		{"query", "https://api.example.com/?k=" + missing.Placeholder, nil, true},
		{"both", "https://api.example.com/", http.Header{"X-A": {placeholder + missing.Placeholder}}, true},
		{"another secret", "https://api.example.com/", http.Header{"Authorization": {"Bearer " + placeholder}}, false},
		{"none", "https://api.example.com/", nil, false},
		{"another host", "https://example.org/", http.Header{"Authorization": {"Bearer " + missing.Placeholder}}, false},
		{"where none is put", "https://api.example.com/", http.Header{"User-Agent": {missing.Placeholder}}, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.at, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.header != nil {
			r.Header = tt.header
		}
		used, err := set.Outgoing(r, r.URL.Hostname(), 443)
		gone, refused := errors.AsType[*MissingError](err)
		if refused != tt.refused || refused && gone.Name != "GONE" || slices.Contains(used, "GONE") {
			t.Errorf("%s: Outgoing() = %q, %v; want refused %v", tt.name, used, err, tt.refused)
		}
	}
	if !set.Intercepts("api.example.com", 443) || set.Mask(value) == value {
		t.Error("with a secret that is missing, the others are not masked")
	}
	missing.Value = value
	if err := missing.Check(); err == nil {
		t.Error("a secret is missing and has a value")
	}
}
