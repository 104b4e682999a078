package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// settleTime is how long a session must have been exited, or a workspace without a session,
// before it counts as left behind. Before that another process may be between two steps.
const settleTime = 10 * time.Second

// Reap removes what is left of ended sessions, and returns their ids. It removes sessions
// that have exited, sessions that were never started and whose owner is gone, sessions of
// one process that have been paused past their lease and whose owner is gone, and workspaces without a
// session. A running session ends itself when its lease is over.
//
// Reap keeps the workspace of a session that was started with a Spec.Keep, unless it is
// empty, and then applies Options.Keep to all kept workspaces. It also calls Images.Prune.
func (e *Engine) Reap(ctx context.Context) ([]string, error) {
	all, err := e.backend.List(ctx)
	if err != nil {
		return nil, err
	}
	var reaped []string
	var keep []ended
	var errs []error
	now := time.Now()
	for _, state := range all {
		if e.isOpen(state.ID) || !dead(state, now) {
			continue
		}
		info, err := describe(state)
		if err == nil && (e.leaves(state, info, now) || e.workspaces != nil && state.Status == engine.StatusLeft && info.keeps()) {
			keep = append(keep, ended{state, info})
			continue
		}
		start := time.Now()
		err = e.remove(ctx, state.Handle)
		if state.Status != engine.StatusLeft {
			e.noteSession(EventReap, state.ID, start, err)
		}
		switch {
		case err != nil:
			errs = append(errs, err)
		case state.Status != engine.StatusLeft:
			reaped = append(reaped, state.ID)
		}
	}
	if len(keep) > 0 {
		if err := e.keepAll(ctx, keep); err != nil {
			errs = append(errs, err)
		} else {
			for _, one := range keep {
				if one.state.Status != engine.StatusLeft {
					reaped = append(reaped, one.info.ID)
				}
			}
		}
	}
	errs = append(errs, e.enforce(ctx, time.Now()))
	pruned, err := e.Prune(ctx)
	if errs = append(errs, err); len(pruned) > 0 && e.opts.Pruned != nil {
		e.opts.Pruned(pruned)
	}
	return reaped, errors.Join(errs...)
}

// Leftovers returns the ids of the sessions of which Reap would remove something, and removes nothing.
func (e *Engine) Leftovers(ctx context.Context) ([]string, error) {
	all, err := e.backend.List(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	now := time.Now()
	for _, state := range all {
		if !e.isOpen(state.ID) && dead(state, now) {
			ids = append(ids, state.ID)
		}
	}
	return ids, nil
}

// Prune removes what this program has made for itself and nothing needs any more, and returns the names:
// snapshots that are not the newest, what was made of images that are gone, and runners of other versions. What a
// session uses stays. Reap does that too. Images go first, so that the engine finds those gone that it has made
// something of.
func (e *Engine) Prune(ctx context.Context) ([]string, error) {
	gone, err := e.images.Prune(ctx)
	if pruner, ok := e.backend.(engine.Pruner); ok {
		more, pruneErr := pruner.Prune(ctx)
		gone, err = append(gone, more...), errors.Join(err, pruneErr)
	}
	return gone, err
}

// isOpen reports whether this process holds the session: then it is not for the
// reaper.
func (e *Engine) isOpen(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[id] != nil
}

// dead reports whether a session was left behind.
func dead(state engine.Session, now time.Time) bool {
	by, known := parseOwner(state.Labels[labelOwner])
	abandoned := known && by.gone()
	if state.Status == engine.StatusLeft { // nothing else about it matters
		made, err := time.Parse(time.RFC3339Nano, state.Labels[labelCreated])
		return err == nil && abandoned && now.Sub(made).Abs() >= settleTime
	}
	info, err := describe(state)
	if err != nil {
		return false // of another version of ours: not ours to judge
	}
	switch state.Status {
	case engine.StatusExited, engine.StatusDead:
		return abandoned || now.Sub(state.Finished).Abs() > settleTime
	case engine.StatusCreated: // and no other process starts it
		return abandoned && now.Sub(info.Created).Abs() > settleTime
	case engine.StatusPaused: // one that outlives its process was paused to be resumed
		if info.Lease > DefaultLease || info.keeps() {
			return false
		}
		since := state.Started
		if since.Before(info.Created) {
			since = info.Created
		}
		return abandoned && now.Sub(since).Abs() > info.Lease
	default:
		return false
	}
}
