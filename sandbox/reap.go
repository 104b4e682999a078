package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// settleTime is how long a container may stand exited, or a volume without one,
// before it counts as left behind: another process may be between two steps.
const settleTime = 10 * time.Second

// Reap removes what is left of sessions: containers of ours that have exited,
// those that were never started or are paused and whose owner is gone past
// their lease, and volumes without a container, with what was to fill them. It
// returns the ids. A running
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
		if err := e.remove(ctx, state.ID, id); err != nil {
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
	case "created", "paused":
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
		if _, err := e.docker.Container(ctx, namePrefix+id); !errors.Is(err, engine.ErrNotFound) {
			continue
		}
		err = e.removeFillers(ctx, v.Name, now)
		if err == nil {
			err = e.removeVolume(ctx, v.Name)
		}
		if err != nil && !errors.Is(err, engine.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeFillers removes the containers that package images makes to fill or clear
// a volume, and that a process has left when it was killed over that: they hold
// the volume for ever.
func (e *Engine) removeFillers(ctx context.Context, volume string, now time.Time) error {
	all, err := e.docker.Containers(ctx, map[string]string{labelRole: "filler"})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range all {
		if !fills(c, volume) || c.Status == "running" || now.Sub(c.Created).Abs() < settleTime {
			continue
		}
		if err := e.docker.RemoveContainer(ctx, c.ID); err != nil && !errors.Is(err, engine.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// fills reports whether a container with the label of one that fills or clears a
// volume is one: an image can carry our labels.
func fills(c engine.ContainerState, volume string) bool {
	return (strings.HasPrefix(c.Name, namePrefix+"fill-") || strings.HasPrefix(c.Name, namePrefix+"clear-")) &&
		len(c.Mounts) == 1 && c.Mounts[0].Type == "volume" && c.Mounts[0].Source == volume
}
