package serve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// held holds the sessions of one client. The sessions that it has started end with the
// client; those that it has only opened do not.
type held struct {
	host Host
	kept func(sandbox.Info) // called with each session that has ended and whose workspace is kept
	life context.Context    //nolint:containedctx // the client's life, which is that of its sessions
	tell func(context.Context, *Session)
	busy sync.WaitGroup // starts and watches

	mu     sync.Mutex
	closed bool                // guarded by mu
	all    map[string]*holding // guarded by mu; by their ids
	first  *starting           // guarded by mu; the session for requests that name none; nil: none yet
	begun  int                 // guarded by mu; the number of sessions, with those that are being started
}

// holding is a session.
type holding struct {
	*Session
	own bool               // started here
	end context.CancelFunc // ends its watch
	off chan struct{}      // closed when its watch has ended
}

// starting is the first session, which may not be there yet.
type starting struct {
	done chan struct{} // closed when it has started or has failed to
	s    *Session      // set before done is closed
	err  error         // set before done is closed
}

// newHeld holds sessions for a client that lives as long as ctx. It calls tell for each
// session, which reports what happens in it until its context ends.
func newHeld(ctx context.Context, o Options, tell func(context.Context, *Session)) *held {
	kept := o.Kept
	if kept == nil {
		kept = func(sandbox.Info) {}
	}
	return &held{host: o.Host, kept: kept, life: ctx, tell: tell, all: map[string]*holding{}}
}

// start starts or opens a session. The first one is for requests that name none.
func (h *held) start(ctx context.Context, r SessionRequest) (*Session, error) {
	if s, err := h.find(r.Attach); s != nil || err != nil {
		return s, err
	}
	if err := h.admit(); err != nil {
		return nil, err
	}
	s, err := h.host.Start(ctx, r)
	if err != nil {
		h.mu.Lock()
		h.begun--
		h.mu.Unlock()
		return nil, err
	}
	if err := h.take(s, r.Attach == ""); err != nil {
		return nil, err
	}
	return s, nil
}

// find returns the session here whose id is the text or begins with it, nil if there is
// none. It is an error if several begin with it.
func (h *held) find(prefix string) (*Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.all[prefix]; one != nil {
		return one.Session, nil
	}
	var found *Session
	for id, one := range h.all {
		switch {
		case prefix == "" || !strings.HasPrefix(id, prefix):
		case found != nil:
			return nil, failure(KindUnknownSession, "several sessions begin with %s: give more of the id", shown(prefix))
		default:
			found = one.Session
		}
	}
	return found, nil
}

// admit reserves room for one more session.
func (h *held) admit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return errGone
	case h.begun >= maxSessions:
		return failure(KindOverloaded, "there are %d sessions: stop one", maxSessions)
	}
	h.begun++
	return nil
}

// take adds a session.
func (h *held) take(s *Session, own bool) error {
	ctx, end := context.WithCancel(h.life)
	one := &holding{Session: s, own: own, end: end, off: make(chan struct{})}
	h.mu.Lock()
	before := h.all[s.ID]
	taken := !h.closed && before == nil
	if taken {
		h.all[s.ID] = one
		if h.first == nil {
			h.first = &starting{done: make(chan struct{}), s: s}
			close(h.first.done)
		}
		h.busy.Go(func() {
			defer close(one.off)
			h.watch(ctx, one)
		})
	} else {
		h.begun--
	}
	h.mu.Unlock()
	if taken {
		return nil
	}
	end()
	stop, cancel := context.WithTimeout(context.WithoutCancel(h.life), stopTime)
	defer cancel()
	if before != nil { // it was opened twice at the same time
		return s.Lifetime.Release(stop)
	}
	return errors.Join(errGone, h.leave(stop, one))
}

// lookTime is how often a watch checks that its session is still there.
const lookTime = 30 * time.Second

// watch reports what happens in a session, and drops it when it has gone: the next
// request that names no session gets another one.
func (h *held) watch(ctx context.Context, one *holding) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		h.tell(ctx, one.Session)
	}()
	look := time.NewTicker(lookTime)
	defer look.Stop()
	over := (<-chan struct{})(told)
	for gone := false; !gone; {
		select {
		case <-ctx.Done():
			<-told
			return
		case <-over: // perhaps because the session has gone
			over = nil
		case <-look.C:
		}
		gone = one.gone(ctx)
	}
	one.end()
	<-told
	if h.drop(one.ID) != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		_ = h.leave(stop, one) // the reaper removes what is left of it
	}
}

// gone reports whether a session certainly does not exist any more.
func (one *holding) gone(ctx context.Context) bool {
	info, err := one.Lifetime.Info(ctx)
	if err != nil {
		return errors.Is(err, sandbox.ErrUnknownSession)
	}
	return info.Status == "exited" || info.Status == "dead" || info.Status == "removing"
}

// drop removes a session, and returns it; nil if there is none.
func (h *held) drop(id string) *holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.all[id]
	if one == nil {
		return nil
	}
	delete(h.all, id)
	h.begun--
	if h.first != nil && h.first.s == one.Session {
		h.first = nil
	}
	return one
}

// stopTime bounds how long ending one session may take.
const stopTime = 30 * time.Second

// get returns the session with the id or, without an id, the first one, which it starts
// as r says if there is none. If another call is starting that, get waits for it.
func (h *held) get(ctx context.Context, id string, r SessionRequest) (*Session, error) {
	if id != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		if one := h.all[id]; one != nil {
			return one.Session, nil
		}
		return nil, failure(KindUnknownSession, "this connection has no session %s: start it with session/start, or open it with session/attach", shown(id))
	}
	h.mu.Lock()
	wait := h.first
	if wait == nil && !h.closed {
		wait = &starting{done: make(chan struct{})}
		h.first = wait
		h.busy.Go(func() { h.begin(wait, r) })
	}
	h.mu.Unlock()
	if wait == nil {
		return nil, errGone
	}
	select {
	case <-wait.done:
		return wait.s, wait.err
	case <-ctx.Done(): // the start goes on: the next call finds the session
		return nil, context.Cause(ctx)
	}
}

// begin starts the first session. If that fails the next call of get tries again.
func (h *held) begin(first *starting, r SessionRequest) {
	s, err := h.start(h.life, r)
	h.begunFirst(first, s, err)
}

// begunFirst ends the start of the first session. If the session has gone meanwhile, the next call
// of get starts another.
func (h *held) begunFirst(first *starting, s *Session, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first.s, first.err = s, err
	if err != nil || h.all[s.ID] == nil {
		h.first = nil
	}
	close(first.done)
}

// stop ends a session, even one that was only opened here, or only releases it.
func (h *held) stop(ctx context.Context, id string, release bool) error {
	one := h.drop(id)
	if one == nil {
		return failure(KindUnknownSession, "this connection has no session %s", shown(id))
	}
	one.own = !release
	one.end()
	<-one.off
	return one.finish(ctx)
}

// finish ends a session that was started here, and releases another one.
func (one *holding) finish(ctx context.Context) error {
	if one.own {
		return one.Lifetime.Stop(ctx)
	}
	return one.Lifetime.Release(ctx)
}

// leave ends a session that was started here because its client or the session itself
// has gone, and releases another one. It calls kept if the workspace is kept.
func (h *held) leave(ctx context.Context, one *holding) error {
	if !one.own {
		return one.Lifetime.Release(ctx)
	}
	kept, err := one.Lifetime.Leave(ctx)
	if kept != nil {
		h.kept(*kept)
	}
	return err
}

// list returns the ids of the sessions, and whether each was started here, and the id of
// the first.
func (h *held) list() (own map[string]bool, first string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	own = map[string]bool{}
	for id, one := range h.all {
		own[id] = one.own
	}
	if h.first != nil && h.first.s != nil {
		first = h.first.s.ID
	}
	return own, first
}

// close ends the sessions that were started here, all at once, and releases the others.
// The client's context must have ended.
func (h *held) close(ctx context.Context) []error {
	h.mu.Lock()
	h.closed = true
	all := h.all
	h.all = map[string]*holding{}
	h.mu.Unlock()
	ends := make(chan error, len(all))
	for _, one := range all {
		go func() {
			one.end()
			<-one.off
			ends <- h.leave(ctx, one)
		}()
	}
	var errs []error
	for range all {
		if err := <-ends; err != nil {
			errs = append(errs, err)
		}
	}
	h.busy.Wait()
	return errs
}
