package images

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
)

// List returns every image on the engine.
func (r *Resolver) List(ctx context.Context) ([]engine.Image, error) { return r.engine.Images(ctx) }

// Remove removes the image that ref names from the engine; "host" removes every
// snapshot of ours, of programs as they were before included. An image that is
// not there is an engine.ErrNotFound.
func (r *Resolver) Remove(ctx context.Context, ref string) error {
	t, err := parseRef(ref)
	if err != nil {
		return err
	}
	if t.name == HostRef {
		return errors.Join(r.removeRoles(ctx, roleHost), r.removeVolumes(ctx, programsPrefix))
	}
	img, err := r.engine.Image(ctx, t.name)
	if err == nil {
		err = r.engine.RemoveImage(ctx, t.name)
	}
	if err != nil {
		return fmt.Errorf("image %q: %w", ref, err)
	}
	if _, err := r.engine.Image(ctx, string(img.ID)); !errors.Is(err, engine.ErrNotFound) {
		return err // it has other names
	}
	return r.removeVolumes(ctx, programsPrefix+digits(img.ID))
}

// RemoveAll removes what this package has made for itself: snapshots, the
// runner and workspace images, and the volumes filled from them. Images that were
// pulled, loaded or built stay. It goes on after an error and returns them all;
// what a session uses is an engine.ErrConflict.
func (r *Resolver) RemoveAll(ctx context.Context) error {
	return errors.Join(
		r.removeRoles(ctx, roleHost, roleRunner, roleWorkspace),
		r.removeVolumes(ctx, runnerPrefix),
		r.removeVolumes(ctx, programsPrefix),
	)
}

// removeVolumes removes volumes by the begin of their names. An engine that has
// made one while a container was created has given it no label.
func (r *Resolver) removeVolumes(ctx context.Context, prefix string) error {
	volumes, err := r.engine.Volumes(ctx, nil)
	if err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	var errs []error
	for _, v := range volumes {
		if strings.HasPrefix(v.Name, prefix) {
			errs = append(errs, ignore(r.engine.RemoveVolume(ctx, v.Name), engine.ErrNotFound))
		}
	}
	return errors.Join(errs...)
}

// removeRoles removes images by our label and our names: an image can carry our
// labels.
func (r *Resolver) removeRoles(ctx context.Context, roles ...string) error {
	list, err := r.engine.Images(ctx)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	var errs []error
	for _, img := range list {
		for _, role := range roles {
			if img.Labels[labelRole] != role {
				continue
			}
			for _, ref := range img.Refs {
				if strings.HasPrefix(ref, "sandboxbash/"+role+":") {
					errs = append(errs, ignore(r.engine.RemoveImage(ctx, ref), engine.ErrNotFound))
				}
			}
			if len(img.Refs) == 0 {
				errs = append(errs, ignore(r.engine.RemoveImage(ctx, string(img.ID)), engine.ErrNotFound))
			}
		}
	}
	return errors.Join(errs...)
}
