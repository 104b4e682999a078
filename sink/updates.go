package sink

import (
	"sync"
	"time"
)

// updateEvery is the shortest time between two updates.
const updateEvery = 50 * time.Millisecond

// Update is the output as it would be shown if the command ended now.
type Update struct {
	Stdout string // both streams if they are merged
	Stderr string
	Bytes  int64 // of scrubbed output so far
}

// Subscription delivers the output of a running command to one reader. Updates come at
// most every 50 ms. A slower reader gets only the latest one, and delays no other.
type Subscription struct {
	c     chan Update
	hub   *hub
	ended sync.Once
}

// Updates returns the channel of updates. It is closed by Close, or when the command's
// output has ended, after an update with the final state.
func (s *Subscription) Updates() <-chan Update { return s.c }

// Close ends the subscription. It may be called at any time and more than once.
func (s *Subscription) Close() { s.hub.leave(s) }

func (s *Subscription) end() { s.ended.Do(func() { close(s.c) }) }

// A hub sends updates to subscribers from one goroutine, which starts with the first
// subscriber and ends with close.
type hub struct {
	snapshot func() Update
	dirty    chan struct{} // something was written since the last update
	closing  chan struct{}
	done     chan struct{} // closed when the goroutine has ended; nil if there is none, guarded by mu

	mu     sync.Mutex
	subs   map[*Subscription]struct{} // guarded by mu
	closed bool                       // guarded by mu
}

func newHub(snapshot func() Update) *hub {
	return &hub{
		snapshot: snapshot,
		dirty:    make(chan struct{}, 1),
		closing:  make(chan struct{}),
		subs:     map[*Subscription]struct{}{},
	}
}

func (h *hub) subscribe() *Subscription {
	s := &Subscription{c: make(chan Update, 1), hub: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.c <- h.snapshot()
		s.end()
		return s
	}
	h.subs[s] = struct{}{}
	h.touch() // the first update has the output so far
	if h.done == nil {
		done := make(chan struct{})
		h.done = done
		go func() {
			defer close(done)
			h.run()
		}()
	}
	return s
}

func (h *hub) leave(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
	s.end()
}

// touch notes that there is new output. It never blocks.
func (h *hub) touch() {
	select {
	case h.dirty <- struct{}{}:
	default:
	}
}

func (h *hub) run() {
	for {
		select {
		case <-h.dirty:
		case <-h.closing:
			return
		}
		h.publish()
		select {
		case <-time.After(updateEvery):
		case <-h.closing:
			return
		}
	}
}

// publish sends every subscriber the latest update, in place of one that it has not
// received yet. Only publish sends, with mu held, so that the send never blocks.
func (h *hub) publish() {
	u := h.snapshot()
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		select {
		case <-s.c:
		default:
		}
		s.c <- u
	}
}

// close sends the last update and ends all subscriptions.
func (h *hub) close() {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.closed = true
	done := h.done
	h.mu.Unlock()
	close(h.closing)
	if done != nil {
		<-done
	}
	h.publish()
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.end()
	}
	clear(h.subs)
}
