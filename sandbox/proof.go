package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/network"
)

// unreachable are the errors that prove that there is no way to an address.
var unreachable = []string{"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EPERM", "EACCES"}

// reachable returns what a session without a network could connect to, in words.
func (s *Session) reachable(report wire.Posture) (open []string) {
	if s.info.labels.Network != NetworkNone {
		return nil
	}
	for _, fact := range report {
		if name, ok := strings.CutPrefix(string(fact.Key), string(wire.FactReach)); ok && fact.Value == wire.TryAllowed {
			open = append(open, "network none: "+reachWords[name]+" can be reached from inside")
		}
	}
	return open
}

var reachWords = map[string]string{
	"public": "the internet (1.1.1.1)", "public6": "the internet over IPv6", "dns": "a name server (8.8.8.8, UDP)",
	"metadata": "the address of metadata services, 169.254.169.254,", "gateway": "the gateway of the engine's bridge (172.17.0.1)",
}

const (
	// deniedName is a name that does not exist, by RFC 6761, and that no rule but one for every name allows.
	deniedName = "denied.sandboxbash.invalid"
	// refusedWeb is where a session's connections to refused names arrive; see package gateway.
	refusedWeb = "127.127.255.254:80"
)

// reachTime is how long the runner's verb reach waits for an answer.
const reachTime = 8 * time.Second

// prove tries from inside, through the way out that the rules open, what they refuse: a name that no rule
// allows, this machine's own loopback, and the address of metadata services. It returns a *PostureError
// if something answers. Once commands have run in the session, one of its own programs may answer, which it may;
// then only what this process has let through counts.
func (x *exceptions) prove(ctx context.Context, run runFunc, fresh bool) (reachedFacts, error) {
	allow, deny := x.permits.get()
	rules := network.Policy{Allow: allow, Deny: deny}
	web := refusedWeb
	if x.proxied {
		web = proxyAddr.String()
	}
	var targets []string
	if !rules.Name(deniedName).Allowed {
		at := deniedName + ":80"
		if x.proxied {
			at = web
		}
		targets = append(targets, at+" "+deniedName)
	}
	for _, host := range []string{"127.0.0.1", "169.254.169.254"} {
		if !rules.Connect(host, 80).Allowed {
			targets = append(targets, web+" "+host)
		}
	}
	x.let.Store(new(sync.Map))
	x.proving.Store(true)
	defer x.proving.Store(false)
	reached, err := x.session.reach(ctx, run, targets)
	if err != nil {
		return reachedFacts{}, fmt.Errorf("session %s: proof of the network rules: %w", x.session.ID(), err)
	}
	let := func(host string) bool {
		_, ok := x.let.Load().Load(host)
		return ok
	}
	facts := judgeReached(targets, reached, fresh, let)
	if len(facts.open) > 0 {
		err = fmt.Errorf("session %s: %w", x.session.ID(), &PostureError{Mismatches: facts.open})
	}
	return facts, err
}

// reachedFacts are what a proof has found, in words, besides what was refused.
type reachedFacts struct {
	open   []string // was reached
	silent []string // has not answered: that proves nothing
	own    []string // was answered by a program of the session: that proves nothing either
}

func (f reachedFacts) notes() []string { return slices.Concat(f.silent, f.own) }

func judgeReached(targets []string, reached map[string]string, fresh bool, let func(host string) bool) (f reachedFacts) {
	for _, target := range targets {
		_, host, _ := strings.Cut(target, " ")
		switch got := reached[target]; {
		case let(host), got == wire.TryAllowed && fresh:
			f.open = append(f.open, fmt.Sprintf("network rules: %s can be reached from inside, and no rule allows it", host))
		case got == wire.TryAllowed:
			f.own = append(f.own, fmt.Sprintf("network rules: the try to reach %s from inside was answered by a program of the session: it proves nothing", host))
		case got == ReachTimeout, got == wire.ReachNoDNS:
			f.silent = append(f.silent, fmt.Sprintf("network rules: the try to reach %s from inside was not refused, and not answered within %s: it proves nothing", host, reachTime))
		}
	}
	return f
}

// provenHosts are those that prove tries to reach.
var provenHosts = []string{deniedName, "127.0.0.1", "169.254.169.254"}

// errProof refuses what a proof should not have been able to ask for.
var errProof = errors.New("the proof of the network rules asked for it")

// ready is called before anything that the rules allow goes on. It waits for the proof; what the rules let
// through of the proof itself is noted.
func (x *exceptions) ready(ctx context.Context, c Connection) error {
	if x.proving.Load() && c.Port == proofPort && slices.Contains(provenHosts, c.Host) {
		if allow, deny := x.permits.get(); !(&network.Policy{Allow: allow, Deny: deny}).Connect(c.Host, c.Port).Allowed {
			x.let.Load().Store(c.Host, true)
			return errProof
		}
	}
	return x.proof.wait(ctx)
}

// proofPort is the port that prove tries.
const proofPort = 80

// proof holds connections back until the way out that they came by was tried.
type proof struct {
	mu   sync.Mutex
	made *madeProof // guarded by mu; the latest
}

type madeProof struct {
	done chan struct{} // closed when err is set
	err  error
}

// begin has connections wait for the end of a proof, which the caller ends with the returned function.
func (p *proof) begin() (end func(error)) {
	m := &madeProof{done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = m
	return func(err error) {
		m.err = err
		close(m.done)
	}
}

// wait waits for the end of the latest proof, and returns its error.
func (p *proof) wait(ctx context.Context) error {
	p.mu.Lock()
	m := p.made
	p.mu.Unlock()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// proveOnce is prove with a runner of its own, which keeps the session no longer than it runs.
func (x *exceptions) proveOnce(ctx context.Context) (reachedFacts, error) {
	s := x.session
	run := func(ctx context.Context, c exec.Command) (exec.Status, error) {
		stream, err := s.engine.backend.Open(ctx, s.handle, engine.Exec{Args: serveCommand(), User: "0:0"})
		if err != nil {
			return exec.Status{}, err
		}
		stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
		defer stop()
		runner, err := exec.NewRunner(ctx, stream, s.info.Lease)
		if err != nil {
			return exec.Status{}, err
		}
		defer runner.Close()
		return runner.Run(ctx, c)
	}
	return x.prove(ctx, run, false)
}

// Reach has the session's user connect to targets from inside, all at once, and returns what happened by
// target: ReachAllowed, or why not, such as the name of the kernel's error. A target is HOST:PORT, or
// HOST:PORT, a space and the host that an HTTP request is then sent for.
func (s *Session) Reach(ctx context.Context, targets ...string) (map[string]string, error) {
	return s.reach(ctx, nil, targets)
}

// reach is Reach with a run of the caller's; nil: it waits in the queue of commands.
func (s *Session) reach(ctx context.Context, run runFunc, targets []string) (map[string]string, error) {
	var out bytes.Buffer
	err := s.withSpare(ctx, func() error {
		out.Reset()
		streams := helperStreams{out: &limited{w: &out, left: maxHelperOutput}, timeout: helperTime, run: run}
		return s.helperTo(ctx, streams, wire.VerbReach.Command(&wire.ReachArgs{Targets: targets}))
	})
	if err != nil {
		return nil, err
	}
	report, err := wire.ParsePosture(out.Bytes())
	if err != nil {
		return nil, err
	}
	results := map[string]string{}
	for _, fact := range report {
		results[strings.TrimPrefix(string(fact.Key), string(wire.FactReach))] = fact.Value
	}
	for _, target := range targets {
		if results[target] == "" {
			return nil, fmt.Errorf("nothing is reported of %s", target)
		}
	}
	return results, nil
}

// What Reach says of a target, besides names of errors.
const (
	ReachAllowed = wire.TryAllowed  // it was connected to, and answered
	ReachDenied  = wire.ReachDenied // the rules refuse it
	ReachNoName  = wire.ReachNoName // the name does not exist
	ReachTimeout = "ETIMEDOUT"      // nothing came within eight seconds, not even a refusal
)
