package doctorcmd

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

const topicNetwork = "network"

// Names that exist in the trial session alone.
const (
	allowedName = "allowed.sandboxbash.test"
	deniedName  = "denied.sandboxbash.test"
)

// refusedWeb is where requests to refused names arrive in a session.
const refusedWeb = "127.127.255.254:80"

// networkFindings tries from inside what a session without a network can reach, with a rule for a server
// of this process's own. Nothing is sent to another machine.
func (a *doctor) networkFindings(ctx context.Context, r *images.Resolver) []finding {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	found := []finding{a.upstreamFinding(), storeFinding()}
	allowed, err := serve(ctx)
	if err != nil {
		return append(found, fail(topicNetwork, err.Error(), ""))
	}
	defer allowed.close()
	private, err := serve(ctx)
	if err != nil {
		return append(found, fail(topicNetwork, err.Error(), ""))
	}
	defer private.close()
	s, err := a.startReaching(ctx, r, allowed.port)
	if err != nil {
		return append(found, startFailure(err))
	}
	tries := []struct {
		target, what string
		open         bool // it must be reached
	}{
		{fmt.Sprintf("%s:%d %[1]s", allowedName, allowed.port), "an allowed name, with a server on this machine", true},
		{deniedName + ":80 " + deniedName, "a name that no rule allows", false},
		{fmt.Sprintf("%s 127.0.0.1:%d", refusedWeb, private.port), "another port of this machine's loopback", false},
		{refusedWeb + " 169.254.169.254", "metadata services, by the rules", false},
		{"169.254.169.254:80", "metadata services, by the address", false},
		{"1.1.1.1:443", "an address of the internet", false},
		{"172.17.0.1:80", "the gateway of the engine's bridge", false},
	}
	var targets []string
	for _, t := range tries {
		targets = append(targets, t.target)
	}
	reached, err := s.Reach(ctx, targets...)
	if err != nil {
		found = append(found, fail(topicNetwork, err.Error(), ""))
	}
	for _, t := range tries {
		switch got := reached[t.target]; {
		case err != nil:
		case !t.open && got == sandbox.ReachTimeout:
			found = append(found, warn(topicNetwork, t.what+": not refused, and not answered within 8s, which proves nothing",
				"run it again when the machine has less to do; if it stays, do not use this engine for sessions without a network"))
		case t.open && got == sandbox.ReachAllowed:
			found = append(found, ok(topicNetwork, "%s: %s", t.what, got))
		case !t.open && got != sandbox.ReachAllowed:
			found = append(found, ok(topicNetwork, "%s: refused (%s)", t.what, got))
		case t.open:
			found = append(found, fail(topicNetwork, t.what+": "+got, "connections of rules do not leave this session: look at the lines above"))
		default:
			found = append(found, fail(topicNetwork, t.what+" can be reached", "do not use this engine for sessions without a network"))
		}
	}
	if n := private.seen.Load(); n > 0 {
		found = append(found, fail(topicNetwork, fmt.Sprintf("%d connections came to a port of this machine that no rule allows", n), "do not use rules with this version"))
	}
	if err := s.Stop(ctx); err != nil {
		found = append(found, fail(topicNetwork, "the session could not be removed: "+err.Error(), "remove it with `sandboxbash session reap`"))
	}
	return found
}

// startReaching starts a session with a rule for one port of this machine, under a name.
func (a *doctor) startReaching(ctx context.Context, r *images.Resolver, port int) (*sandbox.Session, error) {
	spec, err := a.cfg.Spec()
	if err != nil {
		return nil, err
	}
	spec.Network, spec.Lease = sandbox.NetworkNone, sandbox.DefaultLease
	spec.Workspace = sandbox.Workspace{Kind: sandbox.WorkspaceVolume, Target: sandbox.DefaultTarget}
	for _, host := range []string{allowedName, "127.0.0.1"} {
		rule, err := network.ParseRule(fmt.Sprintf("%s:%d", host, port))
		if err != nil {
			return nil, err
		}
		spec.Allow = append(spec.Allow, rule)
	}
	return a.connection.Unobserved(r, sandbox.Options{Resolver: loopback{}}).Start(ctx, spec)
}

// loopback resolves the allowed name, and no other.
type loopback struct{}

func (loopback) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if strings.TrimSuffix(host, ".") != allowedName {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
}

// trial is a server on this machine's loopback.
type trial struct {
	port  int
	seen  atomic.Int64 // connections
	close func()
}

func serve(ctx context.Context) (*trial, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	t := &trial{port: int(at.Port())}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "reached") }),
		ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				t.seen.Add(1)
			}
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with Close
	}()
	t.close = func() {
		_ = server.Close()
		<-done
	}
	return t, nil
}

// upstreamFinding tells which proxy connections leave through.
func (a *doctor) upstreamFinding() finding {
	up, err := a.connection.Upstream()
	switch {
	case err != nil:
		return fail("proxy", err.Error(), "correct it, or say network.proxy: none in the configuration file")
	case up == nil:
		return ok("proxy", "none: connections of sessions with rules leave this machine directly")
	}
	return warn("proxy", fmt.Sprintf("connections of sessions with rules leave through %s, which looks names up itself: names are judged, and addresses only if this machine knows them", up), "")
}

// storeFinding tells whether there are certificates of authorities, which servers are verified with where
// requests are judged inside TLS.
func storeFinding() finding {
	pool, err := x509.SystemCertPool()
	if err == nil && !pool.Equal(x509.NewCertPool()) {
		return ok("certificates", "this machine's store is there")
	}
	return warn("certificates", "this machine has no store of authorities", "install ca-certificates, or name a file in SSL_CERT_FILE")
}
