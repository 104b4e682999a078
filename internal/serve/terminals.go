package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// heldTerminal is a terminal of a client.
type heldTerminal struct {
	Terminal
	id      string
	session string
	command string // as the client has sent it; "" if a tool runs it
	started time.Time
	forget  func() // a Holder's: called when the client forgets the terminal, which does not end with the client
}

// terminals are those of one client, at most maxTerminals. They may be used
// concurrently.
type terminals struct {
	start, end string // appended to errors: how to start and to end a terminal

	mu      sync.Mutex
	all     map[string]*heldTerminal // guarded by mu; by their ids
	opening int                      // guarded by mu; places reserved for terminals that are not in all yet
	opened  int                      // guarded by mu; terminals so far, for their ids
}

// reserve reserves a place for a terminal before it opens, so that several that open at
// the same time do not exceed the limit together. free ends the reservation: when the
// terminal is in the table, or was not opened.
func (t *terminals) reserve() (free func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all)+t.opening >= maxTerminals {
		return nil, failure(KindOverloaded, "there are %d terminals: end one%s", maxTerminals, t.end)
	}
	t.opening++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.opening--
	}), nil
}

// open opens a terminal in a session. It lives as long as life.
func (t *terminals) open(ctx, life context.Context, s *Session, r TerminalRequest) (*heldTerminal, error) {
	opener, err := part(s.Terminals, "terminals")
	if err != nil {
		return nil, err
	}
	free, err := t.reserve()
	if err != nil {
		return nil, err
	}
	defer free()
	term, err := open(ctx, life, opener, r)
	if err != nil {
		return nil, err
	}
	return t.add(s, term, r.Command), nil
}

// hold adds a terminal that is open already.
func (t *terminals) hold(s *Session, term Terminal) (*heldTerminal, error) {
	free, err := t.reserve()
	if err != nil {
		return nil, err
	}
	defer free()
	return t.add(s, term, ""), nil
}

// TerminalPrefix begins the ids of terminals.
const TerminalPrefix = "pty_"

// add gives a terminal an id. The caller has reserved its place.
func (t *terminals) add(s *Session, term Terminal, command string) *heldTerminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
	h := &heldTerminal{Terminal: term, id: fmt.Sprintf("%s%d", TerminalPrefix, t.opened), session: s.ID, command: command, started: time.Now()}
	t.put(h)
	return h
}

// put adds a terminal that has an id. It needs mu, unless t is not in use yet.
func (t *terminals) put(h *heldTerminal) {
	if t.all == nil {
		t.all = map[string]*heldTerminal{}
	}
	t.all[h.id] = h
}

// get returns the terminal of an id.
func (t *terminals) get(id string) (*heldTerminal, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.all[id]; h != nil {
		return h, nil
	}
	return nil, failure(KindUnknownTerminal, "there is no terminal %s: start one%s", shown(id), t.start)
}

// list returns the terminals, the oldest first.
func (t *terminals) list() []*heldTerminal {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.all))
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b *heldTerminal) int { return a.started.Compare(b.started) })
	return all
}

// remove forgets a terminal.
func (t *terminals) remove(h *heldTerminal) {
	t.mu.Lock()
	delete(t.all, h.id)
	t.mu.Unlock()
	if h.forget != nil {
		h.forget()
	}
}

// close ends the terminals that are the client's own. The context that they live as
// long as has ended.
func (t *terminals) close() {
	t.mu.Lock()
	left := t.all
	t.all = nil
	t.mu.Unlock()
	maps.DeleteFunc(left, func(_ string, h *heldTerminal) bool { return h.forget != nil })
	for _, h := range left {
		h.Kill()
	}
	for _, h := range left {
		_, _ = h.Wait() // the client has gone: its result has no reader
	}
}
