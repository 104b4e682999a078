package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// names is a resolver of names that lead to this machine.
type names []string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	for _, name := range n {
		if strings.TrimSuffix(host, ".") == name {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// rules parses rules.
func rules(t *testing.T, texts ...string) []network.Rule {
	t.Helper()
	var all []network.Rule
	for _, text := range texts {
		r, err := network.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// networked starts a session that may reach web.test at the port of a server of this machine.
func networked(t *testing.T, spec sandbox.Spec, handler http.Handler) (*sandbox.Session, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	client := dockertest.Connect(t)
	spec.Allow = rules(t, fmt.Sprintf("web.test:%d", at.Port()), at.String())
	e := newEngine(client, resolver(t, client), sandbox.Options{Resolver: names{"web.test"}})
	return startIn(t, client, e, spec), fmt.Sprintf("http://web.test:%d", at.Port())
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for _, profile := range []sandbox.Profile{sandbox.Strict, sandbox.Dev} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			s, url := networked(t, sandbox.Spec{Profile: profile}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "%s %s", r.Host, r.URL)
			}))
			if got, want := run(t, s, sandbox.Command{Script: "curl -sS " + url + "/a"}), strings.TrimPrefix(url, "http://")+" /a"; got != want {
				t.Errorf("curl prints %q; want %q", got, want)
			}
			res, err := s.Run(t.Context(), sandbox.Command{Script: "curl -sS " + url + "/b; curl -sS http://refused.test/; curl -sS https://refused.test/"})
			if err != nil {
				t.Fatal(err)
			}
			out := res.Output.Stdout.Text() + res.Output.Stderr.Text()
			for _, want := range []string{"blocked by sandbox policy: no rule allows refused.test:80", "access denied"} {
				if !strings.Contains(out, want) {
					t.Errorf("the output is %q; want %q in it", out, want)
				}
			}
			if res.Network == nil || res.Network.Count != 1 || len(res.Network.Denied) == 0 || res.Network.Denied[0].Host != "refused.test" || res.Network.Denied[0].Ask == "" {
				t.Errorf("the result says of the network: %+v", res.Network)
			}
			if got := run(t, s, sandbox.Command{Script: "ls /sys/class/net"}); strings.TrimSpace(got) != "lo" {
				t.Errorf("the session's interfaces are %q; want lo alone", got)
			}
			// What no rule names fails at once, by name and by address.
			start := time.Now()
			for _, at := range []string{"refused.test:22", "web.test:1", "169.254.169.254:80", "8.8.8.8:53", "127.0.0.1:2375"} {
				host, port, _ := strings.Cut(at, ":")
				if res, err := s.Run(t.Context(), sandbox.Command{Script: fmt.Sprintf("exec 3<>/dev/tcp/%s/%s", host, port)}); err != nil || res.Code == 0 {
					t.Errorf("a connection to %s: exit code %d, %v; want that it fails", at, res.Code, err)
				}
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("the refusals took %v; a client must not hang", took)
			}
		})
	}
}

// When the runner that carries the connections is lost, connections are reset, and the next ones work.
func TestNetworkLost(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 8)
	s, url := networked(t, sandbox.Spec{Profile: sandbox.Dev}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			fmt.Fprint(w, "whole")
			return
		}
		// No length: to its client the body ends where the connection does.
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "a part")
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	go func() {
		<-begun
		if _, err := s.Run(context.WithoutCancel(t.Context()), sandbox.Command{Script: "pkill -KILL -f 'runner net'"}); err != nil {
			t.Errorf("pkill: %v", err)
		}
	}()
	res, err := s.Run(t.Context(), sandbox.Command{Script: "curl -sS --http1.0 " + url + "/slow", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if res.Code == 0 {
		t.Errorf("a body that was cut passes for whole: %q", res.Output.Stdout.Text())
	}
	if res.Network == nil || !res.Network.Lost {
		t.Errorf("the result says of the network: %+v; want that it was lost", res.Network)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		res, err := s.Run(t.Context(), sandbox.Command{Script: "curl -sS " + url + "/"})
		if err == nil && res.Code == 0 && res.Output.Stdout.Text() == "whole" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the network does not come back: %v, %d, %q", err, res.Code, res.Output.Stdout.Text())
		}
	}
}

// Nothing of the way out outlives the session's owner.
func TestNetworkEnds(t *testing.T) {
	t.Parallel()
	s, url := networked(t, sandbox.Spec{Lease: time.Minute}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
	if got := run(t, s, sandbox.Command{Script: "curl -sS " + url}); got != "here" {
		t.Fatalf("curl prints %q", got)
	}
	s.Release()
	res, err := s.Run(t.Context(), sandbox.Command{Script: "curl -sS " + url})
	if err == nil && res.Code == 0 {
		t.Error("after the release, a command reaches the network")
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Logf("Run() = %v", err)
	}
}
