package sandbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// settleTime is how long a container may stand exited, or a volume without one,
// before it counts as left behind: another process may be between two steps.
const settleTime = 10 * time.Second

// Reap removes what is left of sessions: containers of ours that have exited,
// those that were never started and whose owner is gone, those that are paused and
// whose owner is gone past their lease, and volumes without a container. It returns the ids. A running
// session ends itself when its lease is over.
func (e *Engine) Reap(ctx context.Context) ([]string, error) {
	all, err := e.containers(ctx)
	if err != nil {
		return nil, err
	}
	var reaped []string
	var errs []error
	now := time.Now()
	for _, state := range all {
		id, _ := ours(state)
		if e.isOpen(id) || !dead(state, now) {
			continue
		}
		start := time.Now()
		err := e.remove(ctx, state.ID, id)
		e.noteSession(EventReap, id, start, err)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		reaped = append(reaped, id)
	}
	errs = append(errs, e.reapVolumes(ctx, now))
	return reaped, errors.Join(errs...)
}

// isOpen reports whether this process holds the session: then it is not for the
// reaper.
func (e *Engine) isOpen(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[id] != nil
}

// dead decides whether a container of ours is left behind.
func dead(state engine.ContainerState, now time.Time) bool {
	info, err := describe(state)
	if err != nil {
		return false // of another version of ours: not ours to judge
	}
	by, known := parseOwner(info.Owner)
	abandoned := known && by.gone()
	switch state.Status {
	case "exited", "dead":
		return abandoned || now.Sub(state.Finished).Abs() > settleTime
	case "created": // and nobody else starts it
		return abandoned && now.Sub(info.Created).Abs() > settleTime
	case "paused":
		since := state.Started
		if since.Before(info.Created) {
			since = info.Created
		}
		return abandoned && now.Sub(since).Abs() > info.Lease
	default:
		return false
	}
}

// reapVolumes removes volumes whose session has no container: its making was cut
// off.
func (e *Engine) reapVolumes(ctx context.Context, now time.Time) error {
	all, err := e.docker.Volumes(ctx, map[string]string{labelRole: "workspace"})
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range all {
		id := v.Labels[LabelSession]
		if !validID(id) || !slices.Contains(sessionVolumes(id), v.Name) || e.isOpen(id) {
			continue
		}
		by, known := parseOwner(v.Labels[labelOwner])
		made, err := time.Parse(time.RFC3339Nano, v.Labels[labelCreated])
		if err != nil || !known || !by.gone() || now.Sub(made).Abs() < settleTime {
			continue
		}
		switch _, err := e.docker.Container(ctx, namePrefix+id); {
		case err == nil:
			continue
		case !errors.Is(err, engine.ErrNotFound):
			// An engine that does not answer for one is not asked about the next: there may
			// be many, and each would take as long.
			return errors.Join(append(errs, err)...)
		}
		if err := e.removeVolume(ctx, v.Name); err != nil && !errors.Is(err, engine.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
