package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// person answers the questions of a lab.
type person struct {
	mu    sync.Mutex
	asked []gateway.Question                           // guarded by mu
	reply func(context.Context, gateway.Question) bool // what is answered
	grant func(gateway.Question)                       // changes the rules
}

func (p *person) ask(ctx context.Context, q gateway.Question) bool {
	p.mu.Lock()
	p.asked = append(p.asked, q)
	p.mu.Unlock()
	yes := p.reply(ctx, q)
	if yes {
		p.grant(q)
	}
	return yes
}

func (p *person) questions() []gateway.Question {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]gateway.Question(nil), p.asked...)
}

func yes(context.Context, gateway.Question) bool { return true }
func no(context.Context, gateway.Question) bool  { return false }

// silent gives no answer.
func silent(ctx context.Context, _ gateway.Question) bool {
	<-ctx.Done()
	return false
}

// askingLab is a lab with a person, and deny rules.
func askingLab(t *testing.T, wait time.Duration, reply func(context.Context, gateway.Question) bool, deny ...string) (*lab, *person) {
	t.Helper()
	p := &person{reply: reply}
	rules := policy(t, nil, deny...)
	l := newLabWith(t, gateway.Options{Rules: rules, Ask: p.ask, AskTime: wait})
	p.grant = func(q gateway.Question) {
		p.mu.Lock()
		defer p.mu.Unlock()
		rules = &network.Policy{Allow: append(append([]network.Rule(nil), rules.Allow...), rule(t, q.Rule)), Deny: rules.Deny}
		l.gateway.SetRules(rules)
	}
	return l, p
}

// fetch makes one plain request to a name, as a program would.
func (l *lab) fetch(name, path string) (int, string, error) {
	m := l.lookup(name, dnsmessage.TypeA)
	if len(m.Answers) != 1 {
		return 0, "", fmt.Errorf("the look-up of %s has code %v", name, m.RCode)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A), 80)
	conn, err := l.dial(at)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, name)
	all, err := io.ReadAll(conn)
	var status int
	_, _ = fmt.Sscanf(string(all), "HTTP/1.1 %d", &status)
	return status, string(all), err
}

func TestAsk(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
	t.Cleanup(server.Close)
	addr := strings.TrimPrefix(server.URL, "http://")
	for _, tt := range []struct {
		name   string
		wait   time.Duration // long enough for all to wait for one answer
		reply  func(context.Context, gateway.Question) bool
		status int
	}{{"yes", time.Minute, yes, 200}, {"no", time.Minute, no, 403}, {"no answer", 5 * time.Second, silent, 403}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, p := askingLab(t, tt.wait, tt.reply)
			l.host("web.test", 80, addr)
			l.lookup("web.test", dnsmessage.TypeA)
			if asked := p.questions(); len(asked) > 0 {
				t.Errorf("a look-up alone asks %+v", asked)
			}
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					if status, text, err := l.fetch("web.test", "/a"); status != tt.status {
						t.Errorf("the request has status %d, %q, %v; want %d", status, text, err, tt.status)
					}
				})
			}
			clients.Wait()
			want := gateway.Question{Host: "web.test", Port: 80, Method: "GET", Path: "/a", Rule: "web.test:80"}
			if asked := p.questions(); len(asked) != 1 || asked[0] != want {
				t.Errorf("questions: %+v; want one, %+v", asked, want)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if tt.status != 200 && len(l.dialled) > 0 {
				t.Errorf("dialled %q without a yes", l.dialled)
			}
		})
	}
}

// What can never be allowed by an answer is never asked for.
func TestNeverAsked(t *testing.T) {
	t.Parallel()
	l, p := askingLab(t, time.Minute, yes, "denied.test", "half.test:80")
	for name, addr := range map[string]string{"denied.test": "93.184.215.14", "half.test": "93.184.215.14"} {
		l.hosts[name] = []netip.Addr{netip.MustParseAddr(addr)}
		if status, text, _ := l.fetch(name, "/"); status != http.StatusForbidden {
			t.Errorf("%s: status %d, %q; want 403", name, status, text)
		}
	}
	// A name that can be asked for is not looked up: not even that it does not exist is known.
	if m := l.lookup("missing.test", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 {
		t.Errorf("a name that does not exist has code %v; want an address of its own before it is looked up", m.RCode)
	}
	if asked := p.questions(); len(asked) > 0 {
		t.Errorf("questions: %+v; want none", asked)
	}
}

// Many targets at once put a few questions, and the rest is refused at once.
func TestAskFlood(t *testing.T) {
	t.Parallel()
	const wait = 2 * time.Second
	var mu sync.Mutex
	var ends []time.Time // of the questions' time
	l, _ := askingLab(t, wait, func(ctx context.Context, q gateway.Question) bool {
		end, _ := ctx.Deadline()
		mu.Lock()
		ends = append(ends, end)
		mu.Unlock()
		return silent(ctx, q)
	})
	for i := range 20 {
		l.hosts[fmt.Sprintf("h%d.test", i)] = []netip.Addr{netip.MustParseAddr("93.184.215.14")}
	}
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			if status, _, _ := l.fetch(fmt.Sprintf("h%d.test", i), "/"); status != http.StatusForbidden {
				t.Errorf("h%d.test: status %d; want 403", i, status)
			}
		})
	}
	clients.Wait()
	mu.Lock()
	defer mu.Unlock()
	asked, first := 0, slices.MinFunc(ends, time.Time.Compare)
	for _, end := range ends {
		if end.Sub(first) < wait/2 { // on a slow machine there are more once the first are over
			asked++
		}
	}
	if asked > 8 {
		t.Errorf("%d questions at once; want 8 at most", asked)
	}
}

// A question ends when the program that waits has gone, and counts as none then.
func TestAskWithdrawn(t *testing.T) {
	t.Parallel()
	withdrawn := make(chan struct{}, 1)
	l, p := askingLab(t, time.Minute, func(ctx context.Context, _ gateway.Question) bool {
		<-ctx.Done()
		withdrawn <- struct{}{}
		return false
	})
	l.hosts["web.test"] = []netip.Addr{netip.MustParseAddr("93.184.215.14")}
	for i := range 2 { // the second is asked again
		m := l.lookup("web.test", dnsmessage.TypeA)
		conn, err := l.dial(netip.AddrPortFrom(netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A), 443))
		if err != nil {
			t.Fatal(err)
		}
		for len(p.questions()) <= i {
			time.Sleep(time.Millisecond)
		}
		_ = conn.Close()
		<-withdrawn
		for { // the gateway forgets the question soon after it has ended
			l.mu.Lock()
			over := len(l.records) > i
			l.mu.Unlock()
			if over {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// A proposal is a question like that of a connection: it is bounded, narrow, and its no stands for both.
func TestPropose(t *testing.T) {
	t.Parallel()
	l, p := askingLab(t, time.Minute, func(_ context.Context, q gateway.Question) bool { return !strings.HasPrefix(q.Host, "no") }, "denied.example")
	l.hosts["lan.example"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	propose := func(text string) (bool, network.Verdict, error) {
		return l.gateway.Propose(t.Context(), rule(t, text), "because")
	}
	for _, text := range []string{"denied.example:443", "10.0.0.1:443", "127.0.0.1:80"} {
		if yes, _, err := propose(text); yes || !errors.As(err, new(*network.Denial)) {
			t.Errorf("Propose(%s) = %v, %v; want a denial", text, yes, err)
		}
	}
	for _, text := range []string{"*.example:443", "@npm", "8.8.8.0/24:443", "a.example"} {
		if yes, _, err := propose(text); yes || err == nil || errors.As(err, new(*network.Denial)) {
			t.Errorf("Propose(%s) = %v, %v; want that it is not narrow", text, yes, err)
		}
	}
	if asked := p.questions(); len(asked) != 0 {
		t.Fatalf("what cannot be asked for was: %+v", asked)
	}
	if yes, _, err := propose("GET yes.example:443/a/*"); !yes || err != nil {
		t.Errorf("Propose() = %v, %v; want yes", yes, err)
	}
	if asked, want := p.questions(), (gateway.Question{Host: "yes.example", Port: 443, Rule: "GET yes.example:443/a/*", Proposed: true, Reason: "because"}); len(asked) != 1 || asked[0] != want {
		t.Errorf("the questions are %+v; want %+v", asked, want)
	}
	if yes, v, err := propose("GET yes.example:443/a/*"); !yes || err != nil || !v.Allowed || len(p.questions()) != 1 {
		t.Errorf("what is allowed is asked for: %v, %+v, %v", yes, v, err)
	}
	if yes, _, err := propose("no.example:80"); yes || err != nil {
		t.Errorf("Propose() = %v, %v; want no", yes, err)
	}
	if yes, _, err := propose("GET no.example:80/other"); yes || !errors.Is(err, gateway.ErrAskedBefore) {
		t.Errorf("after a no, Propose() = %v, %v; want that it was asked before", yes, err)
	}
	if status, text, err := l.fetch("no.example", "/"); status != http.StatusForbidden || len(p.questions()) != 2 {
		t.Errorf("after a no, a connection gets %d %q, %v, and the questions are %+v", status, text, err, p.questions())
	}
	var err error
	for i := range 10 {
		if _, _, err = propose(fmt.Sprintf("yes%d.example:443", i)); err != nil {
			break
		}
	}
	if asked := p.questions(); !errors.Is(err, gateway.ErrProposals) || len(asked) != 5 {
		t.Errorf("after %d questions, Propose() = %v; want 5, and that they are too many", len(asked), err)
	}
	none := gateway.New(gateway.Options{Rules: policy(t, nil)})
	t.Cleanup(none.Close)
	if _, _, err := none.Propose(t.Context(), rule(t, "a.example:443"), "because"); !errors.Is(err, gateway.ErrNoQuestions) {
		t.Errorf("without a user to ask, Propose() = %v; want %v", err, gateway.ErrNoQuestions)
	}
}

// No answer to a proposal is a no, in time.
func TestProposeTimeout(t *testing.T) {
	t.Parallel()
	l, _ := askingLab(t, 50*time.Millisecond, silent)
	if yes, _, err := l.gateway.Propose(t.Context(), rule(t, "a.example:443"), "because"); yes || err != nil {
		t.Errorf("Propose() = %v, %v; want no", yes, err)
	}
}
