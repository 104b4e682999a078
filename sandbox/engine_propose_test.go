package sandbox_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// answerer answers questions as the test says.
type answerer struct {
	mu    sync.Mutex
	next  sandbox.NetworkAnswer     // guarded by mu
	asked []sandbox.NetworkQuestion // guarded by mu
}

func (a *answerer) ask(_ context.Context, q sandbox.NetworkQuestion) sandbox.NetworkAnswer {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, q)
	return a.next
}

// answers sets the next answer, and forgets the questions.
func (a *answerer) answers(next sandbox.NetworkAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next, a.asked = next, nil
}

func (a *answerer) questions() []sandbox.NetworkQuestion {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// An agent's proposal changes what the session may reach by the person's answer, and by nothing else.
func TestProposeNetwork(t *testing.T) {
	t.Parallel()
	web := webServer(t)
	plain, secure := httptest.NewServer(web), httptest.NewTLSServer(web)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	at, tls := netip.MustParseAddrPort(plain.Listener.Addr().String()), netip.MustParseAddrPort(secure.Listener.Addr().String())
	client := dockertest.Connect(t)
	p := &answerer{}
	e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"once.test", "a.many.test", "b.many.test", "example.com", "bad.test", "denied.test"}, Roots: roots})
	s := startIn(t, client, e, sandbox.Spec{
		Allow: rules(t, at.String(), tls.String()), Deny: rules(t, "denied.test"), AskNetwork: p.ask, User: &sandbox.User{UID: 1000, GID: 1000},
	})
	if q := p.questions(); len(q) != 0 {
		t.Errorf("the start of a session asks %+v", q)
	}
	get := func(url string) string {
		t.Helper()
		return script(t, s, "curl -sS -m 20 "+url+" 2>&1 || true")
	}
	of := func(host string) string { return fmt.Sprintf("%s:%d", host, at.Port()) }
	propose := func(rule string, answer sandbox.NetworkAnswer) sandbox.NetworkDecision {
		t.Helper()
		p.answers(answer)
		d, err := s.ProposeNetwork(t.Context(), rule, "the agent's reason")
		if err != nil {
			t.Fatalf("ProposeNetwork(%s): %v", rule, err)
		}
		q := p.questions()
		if want := (sandbox.NetworkQuestion{Session: s.ID(), Host: d.Host, Port: d.Port, Rule: rule, Proposed: true, Reason: "the agent's reason"}); len(q) != 1 || q[0] != want {
			t.Errorf("the questions are %+v; want %+v", q, want)
		}
		return d
	}

	if got := get("http://" + of("once.test") + "/hello"); strings.Contains(got, hello) {
		t.Fatalf("without a rule: %q", got)
	}
	if d := propose(of("once.test"), sandbox.NetworkAnswer{Scope: sandbox.AllowOnce}); d.Answer != sandbox.AllowOnce || d.By != "callback" || d.Rule != of("once.test") {
		t.Errorf("once: %+v", d)
	}
	if got := get("http://" + of("once.test") + "/hello"); got != hello {
		t.Errorf("after once: %q", got)
	}
	p.answers(sandbox.NetworkAnswer{}) // also about the connection
	if got := get("http://" + of("once.test") + "/hello"); strings.Contains(got, hello) {
		t.Errorf("once holds for a second command: %q", got)
	}

	// A person may widen the rule, to one that is for what was asked.
	if d := propose(of("a.many.test"), sandbox.NetworkAnswer{Scope: sandbox.AllowSession, Rule: of("*.many.test"), By: "terminal"}); d.Answer != sandbox.AllowSession || d.Rule != of("*.many.test") {
		t.Errorf("edited: %+v", d)
	}
	for range 2 {
		if got := get("http://" + of("b.many.test") + "/hello"); got != hello {
			t.Errorf("after an edited rule: %q", got)
		}
	}
	for i, rule := range []string{"not a rule", of("other.test"), "*.bad.test:1"} {
		host := strings.Repeat("x", i) + "bad.test"
		if d := propose(of(host), sandbox.NetworkAnswer{Scope: sandbox.AllowSession, Rule: rule}); d.Answer != sandbox.AllowNo {
			t.Errorf("the answer %q allows: %+v", rule, d)
		}
	}

	// What cannot be asked for reaches no one.
	p.answers(sandbox.NetworkAnswer{Scope: sandbox.AllowSession})
	for _, row := range []struct{ rule, reason, says string }{
		{of("denied.test"), "x", "denied by the rule denied.test"},
		{"10.0.0.1:443", "x", "private"},
		{"*:443", "x", "many hosts"},
		{"a b", "x", "column"},
		{of("new.test"), " ", "say what it is needed for"},
		{of("new.test"), strings.Repeat("x", 513), "longer than 512 bytes"},
	} {
		if _, err := s.ProposeNetwork(t.Context(), row.rule, row.reason); !errors.As(err, new(*sandbox.InputError)) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("ProposeNetwork(%s) = %v; want %q", row.rule, err, row.says)
		}
	}
	if d, err := s.ProposeNetwork(t.Context(), of("b.many.test"), "x"); err != nil || d.Answer != sandbox.AllowSession || d.Rule != of("*.many.test") {
		t.Errorf("what is allowed: %+v, %v", d, err)
	}
	if q := p.questions(); len(q) != 0 {
		t.Errorf("the person was asked: %+v", q)
	}
	if _, err := s.ProposeNetwork(t.Context(), of("new.test"), "x"); !errors.Is(err, sandbox.ErrProposals) {
		t.Errorf("a sixth proposal: %v; want %v", err, sandbox.ErrProposals)
	}
}

// The first rule for some requests of an encrypted host gives the session an authority, and its next commands trust it.
func TestProposeIntercepts(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(webServer(t))
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	at := netip.MustParseAddrPort(secure.Listener.Addr().String())
	client := dockertest.Connect(t)
	p := &answerer{next: sandbox.NetworkAnswer{Scope: sandbox.AllowSession}}
	e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"example.com"}, Roots: roots})
	s := startIn(t, client, e, sandbox.Spec{Allow: rules(t, at.String()), AskNetwork: p.ask, User: &sandbox.User{UID: 1000, GID: 1000}})
	if _, err := s.ProposeNetwork(t.Context(), fmt.Sprintf("GET example.com:%d/hello", at.Port()), "x"); err != nil {
		t.Fatal(err)
	}
	p.answers(sandbox.NetworkAnswer{}) // also about the requests
	url := fmt.Sprintf("https://example.com:%d", at.Port())
	if got := script(t, s, "curl -sS -m 20 "+url+"/hello 2>&1 || true"); got != hello {
		t.Errorf("what was allowed: %q", got)
	}
	if got := script(t, s, "curl -sS -m 20 "+url+"/other 2>&1 || true"); !strings.Contains(got, "blocked by sandbox policy") {
		t.Errorf("what was not: %q", got)
	}
}
