package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/authority"
)

// NetworkRules are what a session without a network may reach all the same, as it was started
// with. The process that carries its connections may have others by now.
type NetworkRules struct {
	Allow []string `json:"allow,omitempty"` // as network.ParseRule takes them
	Deny  []string `json:"deny,omitempty"`
	// Detached is that of Spec.
	Detached bool `json:"detached,omitempty"`
	// Secrets are those of a Spec that is Detached, without their values.
	Secrets []HostedSecret `json:"secrets,omitempty"`
}

// ErrNoNetwork is returned if this process does not carry the session's connections.
var ErrNoNetwork = errors.New("this process does not carry the session's connections")

// ErrNetworkTaken is returned if a session's connections cannot be carried because a process
// listens where the gateway has to: most likely another process of this program carries them
// already.
var ErrNetworkTaken = errors.New("127.0.0.1:53 of the session is taken: a program in it listens there, or another process carries its connections")

// Carried is how the connections of a session are carried: see the fields of Spec.
type Carried struct {
	Allow, Deny, Exclude []network.Rule
	Limits               NetworkLimits
	// Secrets hold the values of those that the session was started with (NetworkRules.Secrets), with the
	// same names, hosts and InQuery. Others are left out. A request that needs one that is not here, or
	// that is for other requests here, is refused, and the session's Notes say so.
	Secrets []Secret
}

// CarryNetwork carries the connections of a session that was started with Spec.Detached, until
// Release, or until the session is gone: see NetworkDone. Its programs find the network when
// CarryNetwork returns, and what the rules refuse was tried from inside before: the error is a *PostureError
// if this process let something of it through. It keeps the session no longer than its lease.
//
// The error is an ErrNetworkTaken if another process carries them.
func (s *Session) CarryNetwork(ctx context.Context, carried Carried) error {
	if s.info.Network != NetworkNone || s.info.Rules == nil || !s.info.Rules.Detached {
		return fmt.Errorf("session %s: its connections are carried by the process that started it, or it has the engine's network", s.ID())
	}
	info, err := s.engine.backend.Info(ctx)
	if err != nil {
		return err
	}
	spec := Spec{Network: NetworkNone, Allow: carried.Allow, Deny: carried.Deny, Exclude: carried.Exclude, NetworkLimits: carried.Limits}
	if err := errors.Join(spec.checkNetwork(), checkSecrets(carried.Secrets), s.engine.unmasked(carried.Secrets)); err != nil {
		return err
	}
	secrets, notes, err := s.info.heldSecrets(carried.Secrets)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), err)
	}
	x, err := newCarrier(s, spec, info, secrets)
	if err != nil {
		return err
	}
	s.engine.mu.Lock()
	taken := s.network != nil
	if !taken {
		s.network = x
		s.notes = slices.Concat(s.notes, notes)
	}
	s.engine.mu.Unlock()
	if taken {
		return fmt.Errorf("session %s: this process carries its connections already: %w", s.ID(), ErrNetworkTaken)
	}
	if err := x.open(ctx); err != nil {
		s.engine.mu.Lock()
		s.network = nil
		s.engine.mu.Unlock()
		if errors.Is(err, mux.AddrInUse) {
			err = &hinted{error: fmt.Errorf("%w: %w", ErrNetworkTaken, err), hint: HintResolver, about: s.ID()}
		}
		return fmt.Errorf("session %s: %w", s.ID(), err)
	}
	found, err := x.proveOnce(ctx)
	x.proven(err)
	s.engine.mu.Lock()
	s.notes = slices.Concat(s.notes, found.notes())
	if err != nil {
		s.network = nil
	}
	s.engine.mu.Unlock()
	if err != nil {
		x.close()
	}
	return err
}

// carrier returns what carries the session's connections in this process, or nil.
func (s *Session) carrier() *exceptions {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.network
}

// NetworkDone returns a channel that is closed when this process does not carry the session's
// connections any more: the session was released or is gone. It is closed if it never did.
func (s *Session) NetworkDone() <-chan struct{} {
	if x := s.carrier(); x != nil {
		return x.ended
	}
	none := make(chan struct{})
	close(none)
	return none
}

// WatchNetwork collects what the session's connections do until the returned function is
// called, which returns it: nil if there were none. It must be called.
func (s *Session) WatchNetwork() (used func() *NetworkUse) { return s.carrier().watch(Command{}) }

// watchNetwork is WatchNetwork for a command. If another process carries the connections,
// Options.Network asks it. carried reports whether this or another process carries them, or may.
func (s *Session) watchNetwork(ctx context.Context, c Command) (used func() *NetworkUse, carried bool) {
	x, ask, rules := s.carrier(), s.engine.opts.Network, s.info.Rules
	if x == nil && ask != nil && rules != nil && rules.Detached {
		if used := ask(ctx, s.info); used != nil {
			return used, true
		}
	}
	return x.watch(c), x != nil || rules != nil && (!rules.Detached || len(rules.Allow) > 0)
}

// NetworkRules returns the rules for the session's connections. The error is an ErrNoNetwork if
// this process does not carry them.
func (s *Session) NetworkRules() (allow, deny []network.Rule, err error) {
	x := s.carrier()
	if x == nil {
		return nil, nil, fmt.Errorf("session %s: %w", s.ID(), ErrNoNetwork)
	}
	allow, deny = x.permits.get()
	return allow, deny, nil
}

// SetNetworkRules replaces the rules. They hold for the next connection and the next request.
// Connections that are open and that the new rules deny are reset. The error is an ErrNoNetwork
// if this process does not carry the session's connections.
func (s *Session) SetNetworkRules(allow, deny []network.Rule) error {
	return s.UpdateNetworkRules(func(_, _ []network.Rule) ([]network.Rule, []network.Rule, error) { return allow, deny, nil })
}

// UpdateNetworkRules calls change with the present rules, and sets the rules that it returns, as
// SetNetworkRules does. No other change of the rules comes between. If change fails, the rules
// stay as they are.
func (s *Session) UpdateNetworkRules(change func(allow, deny []network.Rule) (newAllow, newDeny []network.Rule, err error)) error {
	x := s.carrier()
	if x == nil {
		return fmt.Errorf("session %s: %w", s.ID(), ErrNoNetwork)
	}
	x.permits.changing.Lock()
	defer x.permits.changing.Unlock()
	allow, deny, err := change(x.permits.get())
	if err != nil {
		return err
	}
	spec := Spec{Network: NetworkNone, Allow: allow, Deny: deny}
	if err := spec.checkNetwork(); err != nil {
		return &InputError{Field: "network", Text: err.Error(), err: err}
	}
	if err := x.trustFor(spec); err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), err)
	}
	x.permits.replace(allow, deny)
	return nil
}

// trustFor has the session trust an authority if rules are the first that need one. Commands that
// run already have no variables that name it.
func (x *exceptions) trustFor(spec Spec) error {
	if !spec.intercepts() || x.authority.Load() != nil {
		return nil
	}
	signer, err := authority.New(x.session.ID())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if err := x.session.trust(ctx, signer); err != nil {
		return err
	}
	x.authority.Store(signer)
	x.gateway.SetAuthority(signer)
	return nil
}

// MaxConnections is how many of the connections that have ended a process remembers.
const MaxConnections = 1000

// maxRemembered bounds each text of a remembered connection, in bytes.
const maxRemembered = 512

// connectionLog are the last connections that have ended.
type connectionLog struct {
	mu   sync.Mutex
	ring []Connection  // guarded by mu; the one with number n is at n modulo MaxConnections
	next uint64        // guarded by mu; the number of connections so far
	more chan struct{} // guarded by mu; closed when one is added; nil: none waits for it
}

func (l *connectionLog) add(c Connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < MaxConnections {
		l.ring = append(l.ring, c)
	} else {
		l.ring[l.next%MaxConnections] = c
	}
	l.next++
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// after returns the connections from a number on, the number after the last one, and a channel
// that is closed when there are more.
func (l *connectionLog) after(from uint64) (list []Connection, next uint64, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept := uint64(len(l.ring)); from < l.next-kept {
		from = l.next - kept
	}
	for n := from; n < l.next; n++ {
		list = append(list, l.ring[n%MaxConnections])
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return list, l.next, l.more
}

// remembered returns a connection as it is remembered: without secrets, and of bounded size.
func (e *Engine) remembered(c Connection) Connection {
	for _, text := range []*string{&c.Host, &c.Path, &c.Why, &c.Ask, &c.Err} {
		*text = e.opts.Secrets.Scrub(*text)
		if len(*text) > maxRemembered {
			*text = (*text)[:maxRemembered]
		}
	}
	return c
}

// Connections returns the last connections of the session that have ended, oldest first, at most
// MaxConnections. Secrets are masked in them. There are none if this process does not carry the
// session's connections.
func (s *Session) Connections() []Connection {
	list, _, _ := s.ConnectionsAfter(0)
	return list
}

// ConnectionsAfter is Connections from a number on: connections are counted from 0. next is
// the number to go on with, and more is closed when there are more, which is never if this process
// does not carry the session's connections.
func (s *Session) ConnectionsAfter(from uint64) (list []Connection, next uint64, more <-chan struct{}) {
	x := s.carrier()
	if x == nil {
		return nil, 0, nil
	}
	return x.log.after(from)
}

// gone reports whether a session that cannot be reached does not exist any more. Its container
// may have ended because it is being reset, so that counts only if it goes on.
func (x *exceptions) gone(ctx context.Context, err error) bool {
	if errors.Is(err, engine.ErrNotFound) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	state, err := x.session.state(ctx)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return true
	case err != nil || state.Status == engine.StatusRunning || state.Status == engine.StatusPaused:
		x.absent = 0
		return false
	}
	x.absent++
	return x.absent > maxAbsent
}

// maxAbsent is how often in a row a session may be found without a running container. With the
// pauses between the tries these are 11 s; a reset takes 2.
const maxAbsent = 6
