package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A way out of a session without a network is found, whatever else its report says.
func TestReachable(t *testing.T) {
	t.Parallel()
	report := wire.Posture{
		{Key: wire.FactReach.Of("public"), Value: "ENETUNREACH"},
		{Key: wire.FactReach.Of("metadata"), Value: wire.TryAllowed},
		{Key: wire.FactTry.Of("public"), Value: wire.TryAllowed},
	}
	s := &Session{info: Info{labels: labelSpec{Network: NetworkNone}}}
	if got := s.reachable(report); len(got) != 1 || !strings.Contains(got[0], "169.254.169.254") {
		t.Errorf("reachable() = %q; want the address of metadata services", got)
	}
	if got := s.reachable(report[:1]); len(got) != 0 {
		t.Errorf("reachable() = %q; want nothing", got)
	}
	s.info.labels.Network = NetworkBridge
	if got := s.reachable(report); len(got) != 0 {
		t.Errorf("reachable() on the bridge = %q; want nothing", got)
	}
}

// Variables name a proxy only where there is one, in both cases of letters.
func TestProxyVariables(t *testing.T) {
	t.Parallel()
	has := func(l labelSpec, kv string) bool { return slices.Contains(l.environment(), kv) }
	for _, kv := range []string{
		"http_proxy=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128",
		"ALL_PROXY=socks5h://127.0.0.1:3128", "no_proxy=localhost,127.0.0.0/8,::1",
	} {
		if !has(labelSpec{Proxy: true}, kv) || has(labelSpec{}, kv) {
			t.Errorf("%s: with a proxy %t, without one %t; want true and false", kv, has(labelSpec{Proxy: true}, kv), has(labelSpec{}, kv))
		}
	}
}

// What is refused, what is reached and what gives no answer are three things.
func TestJudgeReached(t *testing.T) {
	t.Parallel()
	web := refusedWeb + " "
	targets := []string{web + "a", web + "b", web + "c", web + "d", web + "e"}
	reached := map[string]string{
		targets[0]: wire.ReachDenied, targets[1]: wire.TryAllowed, targets[2]: ReachTimeout, targets[3]: "ECONNREFUSED", targets[4]: wire.ReachNoDNS,
	}
	let := func(host string) bool { return host == "d" }
	const of = "network rules: the try to reach "
	for _, fresh := range []bool{true, false} {
		f := judgeReached(targets, reached, fresh, let)
		open, own := "network rules: d can be reached", of+"b from inside was answered by a program of the session"
		if fresh {
			open, own = "network rules: b can be reached", ""
		}
		if text := strings.Join(f.open, "; "); !strings.HasPrefix(text, open) || !strings.Contains(text, "rules: d can be reached") || strings.Contains(text, "rules: a ") {
			t.Errorf("fresh %v: reached: %q", fresh, f.open)
		}
		if !strings.HasPrefix(strings.Join(f.own, "; "), own) || (own == "") != (len(f.own) == 0) {
			t.Errorf("fresh %v: its own: %q; want %q", fresh, f.own, own)
		}
		if len(f.silent) != 2 || !strings.HasPrefix(f.silent[0], of+"c from inside was not refused, and not answered within 8s") {
			t.Errorf("fresh %v: not answered: %q; want c and e", fresh, f.silent)
		}
	}
}

// What the gateway lets through of a proof is found, whatever has answered, and nothing is dialled for it.
func TestProofSeesWhatIsLetThrough(t *testing.T) {
	t.Parallel()
	x := &exceptions{}
	x.let.Store(new(sync.Map))
	x.proving.Store(true)
	end := x.proof.begin()
	if err := x.ready(t.Context(), Connection{Host: "127.0.0.1", Port: 80}); !errors.Is(err, errProof) {
		t.Errorf("a request of the proof that is let through: %v; want that it is refused", err)
	}
	if _, found := x.let.Load().Load("127.0.0.1"); !found {
		t.Error("it is not noted")
	}
	end(nil)
	if err := x.ready(t.Context(), Connection{Host: "web.test", Port: 80}); err != nil {
		t.Errorf("what the rules allow, after the proof: %v", err)
	}
}

// Connections wait for the proof of the way out that they came by, and its error is theirs.
func TestProofHoldsBack(t *testing.T) {
	t.Parallel()
	var p proof
	first := p.begin()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the proof: %v; want that it waits", err)
	}
	second := p.begin() // the first way out broke meanwhile
	first(nil)
	short, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the proof of another way out: %v; want that it waits", err)
	}
	second(context.Canceled)
	if err := p.wait(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("after a proof that failed: %v", err)
	}
}
