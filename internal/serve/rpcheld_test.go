package serve

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// The network of a session that another process carries is asked there, and nowhere else.
func TestHeldElsewhere(t *testing.T) {
	t.Parallel()
	here := func(context.Context, *peer, *request) (any, error) { return "here", nil }
	var asked string
	held := &Session{ID: "0199", HeldNetwork: func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		if asked = method + " " + string(params); method == "network/log" {
			return nil, sandbox.ErrNoNetwork
		}
		return json.RawMessage(`{"allow":["a.test"],"deny":[]}`), nil
	}}
	get := func(s *Session) func(context.Context, string) (*Session, error) {
		return func(context.Context, string) (*Session, error) { return s, nil }
	}
	r := &request{params: json.RawMessage(`{"session":"0199","rules":["a.test"]}`)}
	answer, err := askHeld(t.Context(), get(held), "network/allow", &peer{}, r, here)
	if raw, ok := answer.(json.RawMessage); err != nil || !ok || string(raw) != `{"allow":["a.test"],"deny":[]}` || asked != `network/allow {"session":"0199","rules":["a.test"]}` {
		t.Errorf("a session that is held elsewhere: %v, %v; asked %s", answer, err, asked)
	}
	_, err = askHeld(t.Context(), get(held), "network/log", &peer{}, r, here)
	if e, ok := errors.AsType[*Error](err); !ok || e.Data.Kind != KindUnavailable {
		t.Errorf("a session that is held nowhere: %v; want %s", err, KindUnavailable)
	}
	for _, tt := range []struct {
		p *peer
		s *Session
	}{{&peer{}, &Session{}}, {&peer{watched: &watchedNetwork{}}, held}} {
		if answer, err := askHeld(t.Context(), get(tt.s), "network/rules", tt.p, r, here); answer != "here" || err != nil {
			t.Errorf("a network of this process: %v, %v", answer, err)
		}
	}
}
