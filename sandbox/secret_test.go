package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sink"
)

func networkRule(t *testing.T, text string) network.Rule {
	t.Helper()
	r, err := network.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const hostedValue = "canary-hunter2/0815"

func hostSecret(t *testing.T) Secret {
	t.Helper()
	return Secret{Name: "TOKEN", Value: hostedValue, Hosts: []network.Rule{networkRule(t, "api.example.com")}}
}

// Each session has placeholders of its own, in the environment of its commands, and no value.
func TestSecretPlaceholders(t *testing.T) {
	t.Parallel()
	known, _, err := sink.NewSecrets([]sink.Secret{{Name: "TOKEN", Value: hostedValue}})
	if err != nil {
		t.Fatal(err)
	}
	e := New(newFakeEngine(t), &fakeImages{}, Options{Secrets: known})
	spec := Spec{Secrets: []Secret{hostSecret(t)}}
	seen := map[string]bool{}
	for range 2 {
		s, err := e.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop(context.WithoutCancel(t.Context())) })
		env := s.command(Command{Script: "true"}).Env
		i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TOKEN=sandboxbash_secret_TOKEN_") })
		if i < 0 || strings.Contains(strings.Join(env, "\n"), hostedValue) {
			t.Fatalf("environment %q; want a placeholder, and no value", env)
		}
		if seen[env[i]] {
			t.Errorf("two sessions have the placeholder %s", env[i])
		}
		seen[env[i]] = true
		if got := s.command(Command{Script: "true", Env: []string{"TOKEN=mine"}}).Env; !slices.Contains(got, "TOKEN=mine") || slices.Contains(got, env[i]) {
			t.Errorf("with a variable of the caller's: %q", got)
		}
		adopted := &Session{engine: e, info: s.info}
		if got := adopted.command(Command{Script: "true"}).Env; slices.Contains(got, env[i]) {
			t.Errorf("a session that is adopted has the placeholder: %q", got)
		}
	}
}

func TestSecretRefused(t *testing.T) {
	t.Parallel()
	known, _, err := sink.NewSecrets([]sink.Secret{{Name: "TOKEN", Value: hostedValue}})
	if err != nil {
		t.Fatal(err)
	}
	good := hostSecret(t)
	change := func(do func(*Secret)) []Secret {
		s := good
		do(&s)
		return []Secret{s}
	}
	for _, tt := range []struct {
		name    string
		secrets []Secret
		want    string
	}{
		{"not masked", change(func(s *Secret) { s.Value = "another-value" }), "not among Options.Secrets"},
		{"no variable", change(func(s *Secret) { s.Name = "A.B" }), "becomes a variable's"},
		{"no hosts", change(func(s *Secret) { s.Hosts = nil }), "no hosts"},
		{"line end", change(func(s *Secret) { s.Value += "\nx" }), "line end"},
		{"twice", []Secret{good, good}, "there twice"},
	} {
		e := New(newFakeEngine(t), &fakeImages{}, Options{Secrets: known})
		_, err := e.Start(t.Context(), Spec{Secrets: tt.secrets})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Start() = %v; want %q, and no value", tt.name, err, tt.want)
		}
	}
}

func TestSecretNotes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		network Network
		allow   string
		want    string // "": no note
	}{
		{NetworkNone, "", "no rule allows any"},
		{NetworkNone, "example.com", "no rule allows that host"},
		{NetworkNone, "api.example.com:8443", "no rule allows that host"},
		{NetworkNone, "api.example.com", ""},
		{NetworkNone, "*.example.com:443", ""},
		{NetworkNone, "*", ""},
		{NetworkBridge, "", "network bridge"},
	} {
		spec := Spec{Network: tt.network, Secrets: []Secret{hostSecret(t)}}
		if tt.allow != "" {
			spec.Allow = []network.Rule{networkRule(t, tt.allow)}
		}
		notes := strings.Join(spec.secretNotes(), "\n")
		if tt.want == "" && notes != "" || !strings.Contains(notes, tt.want) {
			t.Errorf("network %s, allow %q: notes %q; want %q", tt.network, tt.allow, notes, tt.want)
		}
	}
}

// A prepared session is not given to a caller with other rules or secrets.
func TestWarmKeyHasRulesAndSecrets(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	for _, spec := range []Spec{
		{},
		{Allow: []network.Rule{networkRule(t, "a.example.com")}},
		{Allow: []network.Rule{networkRule(t, "b.example.com")}},
		{Deny: []network.Rule{networkRule(t, "b.example.com")}},
		{Secrets: []Secret{hostSecret(t)}},
		{Secrets: []Secret{{Name: "TOKEN", Value: hostedValue + "2", Hosts: hostSecret(t).Hosts}}},
		{Secrets: []Secret{{Name: "TOKEN", Value: hostedValue, Hosts: []network.Rule{networkRule(t, "b.example.com")}}}},
	} {
		key := warmKey(spec)
		if keys[key] || strings.Contains(key, hostedValue) {
			t.Errorf("the key of %v is another's, or shows the value", spec)
		}
		keys[key] = true
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	s := hostSecret(t)
	spec := Spec{Secrets: []Secret{s}}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v", spec), fmt.Sprintf("%#v", s), fmt.Sprintf("%q", s)} {
		if strings.Contains(text, hostedValue) {
			t.Errorf("it is printed: %s", text)
		}
	}
}

// A detached session has the same placeholders in each process, which its label gives, and another one has others.
func TestHeldPlaceholders(t *testing.T) {
	t.Parallel()
	known, _, err := sink.NewSecrets([]sink.Secret{{Name: "TOKEN", Value: hostedValue}})
	if err != nil {
		t.Fatal(err)
	}
	e := New(newFakeEngine(t), &fakeImages{}, Options{Secrets: known})
	seen := map[string]bool{}
	for range 2 {
		s, err := e.Start(t.Context(), Spec{Detached: true, Secrets: []Secret{hostSecret(t)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop(context.WithoutCancel(t.Context())) })
		if len(s.placeholders) != 1 || !strings.HasPrefix(s.placeholders[0], "TOKEN=sandboxbash_secret_TOKEN_") || seen[s.placeholders[0]] {
			t.Fatalf("placeholders %q; want one of its own", s.placeholders)
		}
		seen[s.placeholders[0]] = true
		label, err := decodeLabel(s.info.labels.encode())
		if err != nil {
			t.Fatal(err)
		}
		adopted := Info{ID: s.ID(), Rules: label.Rules, key: s.info.key}
		if got := adopted.heldPlaceholders(); !slices.Equal(got, s.placeholders) {
			t.Errorf("another process has the placeholders %q; want %q", got, s.placeholders)
		}
		if text := s.info.labels.encode(); strings.Contains(text, hostedValue) || strings.Contains(text, "sandboxbash_secret_") {
			t.Errorf("the label has the value or the placeholder: %s", text)
		}
	}
}

// A value goes only where the session was started to have it go.
func TestHeldSecrets(t *testing.T) {
	t.Parallel()
	info := Info{ID: "0199", key: []byte("key"), Rules: &NetworkRules{Detached: true, Secrets: describedSecrets([]Secret{hostSecret(t)})}}
	elsewhere, asQuery := hostSecret(t), hostSecret(t)
	elsewhere.Hosts, asQuery.InQuery = []network.Rule{networkRule(t, "api.example.org")}, true
	for _, tt := range []struct {
		name  string
		given []Secret
		note  string // "": the value is there
	}{
		{"given", []Secret{{Name: "OTHER", Value: "of-another-session", Hosts: elsewhere.Hosts}, hostSecret(t)}, ""},
		{"not given", nil, "secret TOKEN: requests that need it are refused, because "},
		{"for another host", []Secret{elsewhere}, "it is for other requests there"},
		{"also in the query", []Secret{asQuery}, "it is for other requests there"},
	} {
		set, notes, err := info.heldSecrets(tt.given)
		if err != nil {
			t.Fatal(err)
		}
		if !set.Intercepts("api.example.com", 443) || set.Intercepts("api.example.org", 443) {
			t.Errorf("%s: it is for other hosts than the session was started with", tt.name)
		}
		if masked := set.Mask(hostedValue) != hostedValue; masked != (tt.note == "") || !strings.Contains(strings.Join(notes, "\n"), tt.note) || tt.note == "" && len(notes) > 0 {
			t.Errorf("%s: value there %v, notes %q; want note %q", tt.name, masked, notes, tt.note)
		}
	}
}
