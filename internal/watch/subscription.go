package watch

import (
	"context"
	"slices"
)

// Subscription asks a Hub what is new. It is for one goroutine, but for Changed.
type Subscription struct {
	hub     *Hub
	changed chan struct{}

	version int64              // of the summaries that were returned
	focus   map[string]*cursor // the sessions that it looks at
}

// cursor is what a subscription has had of a detail.
type cursor struct {
	epoch   string
	seq     int64
	screens int64
}

// Update is what is new since the last one.
type Update struct {
	Sessions []Summary
	Details  []Detail
	// Problem is why an engine does not say which sessions there are; ProblemNew, that it has changed.
	Problem    string
	ProblemNew bool
}

// Detail is what is new of a session.
type Detail struct {
	Session string
	Reset   bool // it starts anew: forget what there was
	Gap     bool // items before Items are left out: with Reset, they are older than what is kept, else the subscriber came too late for them
	Items   []Item
	Network []Item
	// Terminals are those that have changed, Order the ids of all.
	Terminals []Terminal
	Order     []string
}

// Subscribe returns a subscription to the summaries of all sessions. The caller must call Close.
func (h *Hub) Subscribe() *Subscription {
	s := &Subscription{hub: h, changed: make(chan struct{}, 1), focus: map[string]*cursor{}}
	h.mu.Lock()
	h.subs[s] = struct{}{}
	h.mu.Unlock()
	signal(s.changed)
	return s
}

// Changed returns a channel that has an element when there may be something new.
func (s *Subscription) Changed() <-chan struct{} { return s.changed }

// Close ends the subscription.
func (s *Subscription) Close() {
	s.Focus()
	s.hub.mu.Lock()
	delete(s.hub.subs, s)
	s.hub.mu.Unlock()
}

// Focus says which sessions the subscriber looks at. Those that the Hub does not know yet are looked at once it does.
func (s *Subscription) Focus(ids ...string) {
	h := s.hub
	h.mu.Lock()
	for id := range s.focus {
		if !slices.Contains(ids, id) {
			delete(s.focus, id)
			h.sessions[id].looking--
		}
	}
	for _, id := range ids {
		if s.focus[id] != nil {
			continue
		}
		if h.sessions[id] == nil {
			h.sessions[id] = &session{id: id, fold: newFold(h.opts.Secrets), summary: Summary{ID: id, Name: id, State: Unknown, NoJournal: true}}
		}
		h.sessions[id].looking++
		s.focus[id] = &cursor{}
	}
	h.mu.Unlock()
	signal(h.wake)
	signal(s.changed)
}

// Next returns what is new.
func (s *Subscription) Next() Update {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	var u Update
	for _, one := range h.sessions {
		if one.version > s.version {
			sum := one.summary
			sum.State = sum.state()
			u.Sessions = append(u.Sessions, sum)
		}
	}
	u.Problem, u.ProblemNew = h.problem, h.told > s.version
	s.version = h.version
	slices.SortFunc(u.Sessions, func(a, b Summary) int { return a.Created.Compare(b.Created) })
	for id, c := range s.focus {
		d := h.sessions[id].detail
		if d == nil {
			continue
		}
		if new, ok := d.after(id, c); ok {
			u.Details = append(u.Details, new)
		}
	}
	return u
}

// after returns what is new to a cursor.
func (d *detail) after(id string, c *cursor) (new Detail, ok bool) {
	new = Detail{Session: id}
	if c.epoch != d.epoch {
		*c = cursor{epoch: d.epoch}
		new.Reset, ok = true, true
	}
	new.Items, new.Gap = d.ring.after(c.seq)
	new.Network, _ = d.network.after(c.seq)
	c.seq = d.seq
	for _, name := range d.order {
		if s := d.screens[name]; s.version > c.screens {
			new.Terminals = append(new.Terminals, s.snapshot())
		}
	}
	if d.changes > c.screens {
		new.Order = slices.Clone(d.order)
	}
	c.screens = d.changes
	return new, ok || len(new.Items)+len(new.Network)+len(new.Terminals) > 0
}

// snapshot is what a terminal shows.
func (s *shown) snapshot() Terminal {
	t := s.t
	if s.term == nil {
		return t
	}
	shot := s.term.Snapshot()
	t.Cols, t.Rows, t.Lines, t.Cursor, t.Title = shot.Cols, shot.Rows, shot.Lines, shot.Cursor, shot.Title
	return t
}

// focus opens and closes details as subscriptions look at sessions.
func (r *run) focus(ctx context.Context) {
	type opening struct {
		id string
		d  *detail
	}
	var open []opening
	r.mu.Lock()
	for id, s := range r.sessions {
		switch {
		case s.looking > 0 && s.detail == nil:
			s.detail = newDetail(r.opts.Secrets)
			open = append(open, opening{id, s.detail})
		case s.looking == 0 && s.detail != nil:
			s.detail.close()
			s.detail = nil
		}
	}
	r.mu.Unlock()
	for _, o := range open {
		r.mu.Lock()
		s := r.sessions[o.id]
		r.mu.Unlock()
		r.look(s)
		for r.readDetail(o.id, o.d) {
		}
		r.followTerminals(ctx, o.id, o.d)
	}
}

// detailOf returns the detail of a session, nil if no subscriber looks at it.
func (h *Hub) detailOf(id string) *detail {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[id]; s != nil {
		return s.detail
	}
	return nil
}

// readDetail reads what is new of a session for its detail, and reports whether there is more.
func (r *run) readDetail(id string, d *detail) (more bool) {
	if d.reader == nil {
		reader, err := r.opts.Dir.Tail(id, detailTail)
		if err != nil {
			return false // there is no journal yet
		}
		d.reader = reader
	}
	records, err := next(d.reader)
	if len(records) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range records {
		d.add(rec)
	}
	for sub := range r.subs {
		if sub.focus[id] != nil {
			signal(sub.changed)
		}
	}
	return err == nil
}
