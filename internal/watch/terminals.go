package watch

import (
	"context"
	"slices"
	"time"
)

// Terminals are those that processes of this machine keep. What such a terminal shows can be asked for, whether or
// not a journal records it.
type Terminals interface {
	// List returns the terminals of a session.
	List(ctx context.Context, session string) ([]Terminal, error)
	// Follow calls show with what a terminal shows, now and after each change, until its program has ended,
	// which the last call says, or ctx ends.
	Follow(ctx context.Context, id string, show func(Terminal)) error
}

// A process that keeps a terminal may not answer yet when the journal says that the terminal has begun.
var relistTimes = []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}

// sameStart is how far apart two accounts of one terminal's start may be.
const sameStart = 3 * time.Second

// followTerminals shows the terminals of a session that others keep, as long as the detail is there.
func (r *run) followTerminals(ctx context.Context, id string, d *detail) {
	if r.opts.Terminals == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	d.unfollow = cancel
	r.helpers.Go(func() {
		known := map[string]bool{}
		for {
			for _, pause := range relistTimes {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				list, err := r.opts.Terminals.List(ctx, id)
				if err != nil {
					continue // they are listed again with the next one that begins
				}
				for _, t := range list {
					if !known[t.ID] {
						known[t.ID] = true
						r.helpers.Go(func() { r.followTerminal(ctx, id, d, t) })
					}
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-d.asked:
			}
		}
	})
}

func (r *run) followTerminal(ctx context.Context, id string, d *detail, t Terminal) {
	s := &shown{t: t}
	show := func(t Terminal) {
		t.Command, t.Title, t.End = d.clean(t.Command), d.clean(t.Title), d.clean(t.End)
		t.Lines = slices.Clone(t.Lines)
		for i, line := range t.Lines {
			t.Lines[i] = d.clean(line)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		d.instead(t.Started)
		s.t = t
		d.show(s)
		for sub := range r.subs {
			if sub.focus[id] != nil {
				signal(sub.changed)
			}
		}
	}
	show(t)
	if err := r.opts.Terminals.Follow(ctx, t.ID, show); err != nil && ctx.Err() == nil {
		t = s.t
		t.End = "lost: " + err.Error()
		show(t)
	}
}

// instead removes the journal's account of a terminal that began then.
func (d *detail) instead(began time.Time) {
	for at, id := range d.order {
		s := d.screens[id]
		if s.term != nil && s.t.Started.Sub(began).Abs() < sameStart {
			delete(d.screens, id)
			d.order = slices.Delete(d.order, at, at+1)
			d.changes++
			return
		}
	}
}
