package sandbox_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// One owner of sessions starts a session, another carries its connections, a third finds that taken.
func TestCarryNetwork(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			fmt.Fprint(w, "whole")
			return
		}
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	allow := rules(t, fmt.Sprintf("web.test:%d", at.Port()), at.String())
	client := dockertest.Connect(t)
	owner := func() *sandbox.Engine {
		e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"web.test"}})
		t.Cleanup(func() { _ = e.Close(t.Context()) })
		return e
	}
	s := startIn(t, client, owner(), sandbox.Spec{Detached: true, Allow: allow, Deny: rules(t, "bad.test"), Lease: time.Minute})
	get := sandbox.Command{Script: fmt.Sprintf("curl -sS http://web.test:%d/", at.Port()), Timeout: time.Minute}
	if res, err := s.Run(t.Context(), get); err != nil || res.Code == 0 || res.Network != nil {
		t.Errorf("before anything carries its connections: code %d, network %+v, %v", res.Code, res.Network, err)
	}
	if err := s.SetNetworkRules(allow, nil); !errors.Is(err, sandbox.ErrNoNetwork) {
		t.Errorf("rules of a session whose connections are not carried here: %v; want ErrNoNetwork", err)
	}
	if _, open := <-s.NetworkDone(); open {
		t.Error("NetworkDone of such a session is open")
	}

	carrier, err := owner().Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if r := carrier.Info().Rules; r == nil || !r.Detached || strings.Join(r.Allow, " ") != allow[0].String()+" "+allow[1].String() || strings.Join(r.Deny, " ") != "bad.test" {
		t.Errorf("the label has the rules %+v", r)
	}
	if err := carrier.CarryNetwork(t.Context(), sandbox.Carried{Allow: allow}); err != nil {
		t.Fatal(err)
	}
	_, _, ended := carrier.ConnectionsAfter(0)
	if got := run(t, s, get); got != "whole" {
		t.Errorf("curl prints %q", got)
	}
	<-ended // which may be after curl
	if list := carrier.Connections(); len(list) != 1 || list[0].Host != "web.test" || !list[0].Allowed {
		t.Errorf("recorded: %+v; want one connection", list)
	}
	other, err := owner().Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := other.CarryNetwork(t.Context(), sandbox.Carried{Allow: allow}); !errors.Is(err, sandbox.ErrNetworkTaken) {
		t.Errorf("a second process that carries the connections: %v; want ErrNetworkTaken", err)
	}

	// What the new rules deny is cut, and the record goes on.
	_, next, more := carrier.ConnectionsAfter(0)
	used := carrier.WatchNetwork()
	done := begin(t.Context(), t, s, sandbox.Command{Script: fmt.Sprintf("echo ready; exec curl -sS http://web.test:%d/slow", at.Port()), Timeout: time.Minute}, "ready")
	<-begun
	if err := carrier.SetNetworkRules(allow, rules(t, "web.test")); err != nil {
		t.Fatal(err)
	}
	if e := <-done; e.err != nil || e.res.Code == 0 {
		t.Errorf("a connection that is denied by now: code %d, %v", e.res.Code, e.err)
	}
	<-more
	if list, _, _ := carrier.ConnectionsAfter(next); len(list) == 0 || list[0].Host != "web.test" {
		t.Errorf("recorded after it: %+v", list)
	}
	if use := used(); use == nil || use.Count != 1 {
		t.Errorf("watched: %+v; want one connection", use)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-carrier.NetworkDone() // without a word to it
}

// The network of a session does not keep it: its lease is that of its commands.
func TestCarrierKeepsNoLease(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"web.test"}})
	s := startIn(t, client, e, sandbox.Spec{Detached: true, Allow: rules(t, "web.test"), Lease: 2 * time.Second})
	carried := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"web.test"}})
	carrier, err := carried.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = carried.Close(t.Context()) })
	if err := carrier.CarryNetwork(t.Context(), sandbox.Carried{Allow: rules(t, "web.test")}); err != nil {
		t.Fatal(err)
	}
	s.Release()
	<-carrier.NetworkDone()
}

// The way out is tried from inside before it carries anything. A program of the session that answers for the name that
// no rule allows proves nothing, which a note says, and does not end the session's network.
func TestCarriedNetworkIsProven(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "whole") }))
	t.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	allow := rules(t, fmt.Sprintf("web.test:%d", at.Port()), at.String())
	client := dockertest.Connect(t)
	opts := sandbox.Options{Resolver: names{"web.test"}}
	s := startIn(t, client, newEngine(client, resolver(t, client), opts), sandbox.Spec{Profile: sandbox.Dev, Detached: true, Allow: allow, Lease: time.Minute})
	run(t, s, sandbox.Command{Timeout: time.Minute, Script: "echo 127.0.0.1 denied.sandboxbash.invalid >>/etc/hosts; (cd /tmp && exec python3 -m http.server --bind 127.0.0.1 80 >/dev/null 2>&1) & " +
		"until curl -sS -o /dev/null http://127.0.0.1:80/ 2>/dev/null; do sleep 0.1; done"})
	owner := newEngine(client, resolver(t, client), opts)
	t.Cleanup(func() { _ = owner.Close(t.Context()) })
	carrier, err := owner.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := carrier.CarryNetwork(t.Context(), sandbox.Carried{Allow: allow}); err != nil {
		t.Fatal(err)
	}
	const want = "the try to reach denied.sandboxbash.invalid from inside was answered by a program of the session"
	if notes := strings.Join(carrier.Notes(), "; "); !strings.Contains(notes, want) || strings.Contains(notes, "169.254") {
		t.Errorf("notes %q; want %q: it was not tried from inside, or more than that has answered", notes, want)
	}
	if list := carrier.Connections(); len(list) != 0 {
		t.Errorf("the tries are recorded as the session's: %+v", list)
	}
	get := sandbox.Command{Script: fmt.Sprintf("curl -sS http://web.test:%d/", at.Port()), Timeout: time.Minute}
	if got := run(t, s, get); got != "whole" {
		t.Errorf("curl prints %q", got)
	}
}
