package docker

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/engine"
)

// sessionVolumes are the names of the volumes that end with a session, including those
// that few sessions have.
func sessionVolumes(id string) []string { return append(keptVolumes(id), memoryVolumes(id)...) }

// keptVolumes are those of them that are kept with a workspace: it, and the records.
func keptVolumes(id string) []string {
	return []string{namePrefix + id, namePrefix + id + recordsSuffix}
}

// memoryVolumes are those of them that hold nothing for after the session.
func memoryVolumes(id string) []string {
	return []string{namePrefix + id + tmpSuffix, namePrefix + id + homeSuffix}
}

// Remove removes a session's container and volumes. The workspace goes first where there
// is no container, so that what is kept and cannot be removed stays whole.
func (e *Engine) Remove(ctx context.Context, h engine.Handle) error {
	if h.Ref != "" {
		if err := e.containers.RemoveContainer(ctx, ContainerID(h.Ref)); err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
		return e.removeVolumes(ctx, sessionVolumes(h.ID))
	}
	gone := e.removeVolume(ctx, namePrefix+h.ID)
	if gone != nil && !errors.Is(gone, engine.ErrNotFound) {
		return gone
	}
	if err := e.removeVolumes(ctx, append(sessionVolumes(h.ID), namePrefix+h.ID+keptSuffix)); err != nil {
		return err
	}
	return gone
}

// End removes all of a session but its workspace and its records.
func (e *Engine) End(ctx context.Context, h engine.Handle) error {
	if h.Ref != "" {
		if err := e.containers.RemoveContainer(ctx, ContainerID(h.Ref)); err != nil && !errors.Is(err, engine.ErrNotFound) {
			return err
		}
	}
	return e.removeVolumes(ctx, memoryVolumes(h.ID))
}

// discardVolumes removes what the making of a session may have made.
func (e *Engine) discardVolumes(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callTimeout, errSlow)
	defer cancel()
	return e.removeVolumes(ctx, sessionVolumes(id))
}

// removeVolumes removes those of the named volumes that there are, in parallel.
func (e *Engine) removeVolumes(ctx context.Context, names []string) error {
	var group errgroup.Group
	for _, name := range names {
		group.Go(func() error {
			if err := e.removeVolume(ctx, name); err != nil && !errors.Is(err, engine.ErrNotFound) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

// removeVolume removes a volume of a session, if need be after emptying it.
func (e *Engine) removeVolume(ctx context.Context, name string) error {
	err := e.volumes.RemoveVolume(ctx, name)
	if errors.Is(err, engine.ErrConflict) {
		if err := e.copies.ReleaseWorkspace(ctx, name); err != nil {
			return err
		}
		err = e.volumes.RemoveVolume(ctx, name)
	}
	if err == nil || errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrConflict) {
		return err
	}
	// The engine's own words may repeat a path of any length.
	if clearErr := e.copies.ClearWorkspace(ctx, name); clearErr != nil {
		return fmt.Errorf("the engine cannot remove volume %s: %w", name, clearErr)
	}
	return e.volumes.RemoveVolume(ctx, name)
}
