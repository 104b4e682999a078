package serve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// held is the sessions of one client: those that it has started, which end with
// it, and those that it has only opened, which do not.
type held struct {
	host Host
	life context.Context //nolint:containedctx // the client's, which sessions live as long as
	tell func(context.Context, *Session)
	busy sync.WaitGroup // starts, and what tells of jobs

	mu     sync.Mutex
	closed bool                // guarded by mu
	all    map[string]*holding // guarded by mu; by their ids
	first  *starting           // guarded by mu; the session of those who name none; nil: none yet
	begun  int                 // guarded by mu; in all, and being started
}

// holding is a session.
type holding struct {
	*Session
	own bool               // started here
	end context.CancelFunc // ends what tells of its jobs
	off chan struct{}      // closed when nothing tells any more
}

// starting is the first session, which may not be there yet.
type starting struct {
	done chan struct{} // closed when it is, or will not be
	s    *Session      // set before done is closed
	err  error         // set before done is closed
}

// newHeld holds sessions for a client that lives as long as ctx. What happens in
// each of them is told by tell, which returns when its context ends.
func newHeld(ctx context.Context, host Host, tell func(context.Context, *Session)) *held {
	return &held{host: host, life: ctx, tell: tell, all: map[string]*holding{}}
}

// start starts or opens a session. If there is none yet it becomes the one of
// those who name none.
func (h *held) start(ctx context.Context, r SessionRequest) (*Session, error) {
	if s := h.find(r.Attach); s != nil {
		return s, nil
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

// find returns the session here whose id begins so, nil if there is none.
func (h *held) find(prefix string) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, one := range h.all {
		if prefix != "" && strings.HasPrefix(id, prefix) {
			return one.Session
		}
	}
	return nil
}

// admit makes room for one more.
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

// take holds a session from now on.
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
	return errors.Join(errGone, one.finish(stop))
}

// lookTime is between two looks at whether a session is still there.
const lookTime = 30 * time.Second

// watch tells what happens in a session. When it has gone, whoever names none
// gets another.
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
		case <-over: // it may be because the session has
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
		_ = one.Lifetime.Stop(stop) // what is left of it is the reaper's
	}
}

// gone tells whether a session is surely not there any more.
func (one *holding) gone(ctx context.Context) bool {
	info, err := one.Lifetime.Info(ctx)
	if err != nil {
		return errors.Is(err, sandbox.ErrUnknownSession)
	}
	return info.Status == "exited" || info.Status == "dead" || info.Status == "removing"
}

// drop forgets a session, and returns it if it was there.
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

// stopTime bounds the end of one session.
const stopTime = 30 * time.Second

// get returns the session of an id, or the first one, which it starts as r says if
// there is none. What others have begun to start is waited for.
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
	case <-ctx.Done(): // the next call finds it
		return nil, context.Cause(ctx)
	}
}

// begin starts the first session. If that fails the next one who needs it tries
// again.
func (h *held) begin(first *starting, r SessionRequest) {
	s, err := h.start(h.life, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	first.s, first.err = s, err
	if err != nil {
		h.first = nil
	}
	close(first.done)
}

// stop ends a session, whoever has started it, or only lets go of it.
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

// finish ends a session that was started here, and lets go of another.
func (one *holding) finish(ctx context.Context) error {
	if one.own {
		return one.Lifetime.Stop(ctx)
	}
	return one.Lifetime.Release(ctx)
}

// list returns the ids of the sessions, and which is the first.
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

// close ends the sessions that were started here, beside each other. The client's
// context must have ended.
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
			ends <- one.finish(ctx)
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
