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

// MissingError says that an image is not on the engine. It is an engine.ErrNotFound and
// an engine.ErrImage.
type MissingError struct{ Ref string }

func (e *MissingError) Error() string { return fmt.Sprintf("image %q is not on the engine", e.Ref) }

func (e *MissingError) Unwrap() []error { return []error{engine.ErrNotFound, engine.ErrImage} }

// Remove removes the image that ref names from the engine. The reference "host" removes
// every snapshot, older ones included. The error is a *MissingError if the engine lacks
// the image.
func (r *Resolver) Remove(ctx context.Context, ref string) error {
	t, err := parseRef(ref)
	if err != nil {
		return err
	}
	if t.name == HostRef {
		return errors.Join(r.removeRoles(ctx, roleHost), r.removeVolumes(ctx, programsPrefix), r.collectAccounts(ctx))
	}
	img, err := r.engine.Image(ctx, t.name)
	if errors.Is(err, engine.ErrNotFound) {
		return &MissingError{ref}
	}
	if err == nil {
		err = r.engine.RemoveImage(ctx, t.name)
	}
	if err != nil {
		return fmt.Errorf("image %q: %w", ref, err)
	}
	if _, err := r.engine.Image(ctx, string(img.ID)); !errors.Is(err, engine.ErrNotFound) {
		return err // it has other names
	}
	return errors.Join(r.removeVolumes(ctx, programsPrefix+digits(img.ID)), r.collectAccounts(ctx))
}

// RemoveAll removes what this package has made for itself: snapshots, the runner and
// workspace images, and the volumes filled from them. Images that were pulled, loaded or
// built stay. RemoveAll goes on after an error and returns all errors. An object that a
// session uses gives an engine.ErrConflict.
func (r *Resolver) RemoveAll(ctx context.Context) error {
	return errors.Join(
		r.removeRoles(ctx, roleHost, roleRunner, roleWorkspace),
		r.removeVolumes(ctx, runnerPrefix),
		r.removeVolumes(ctx, programsPrefix),
		r.removeVolumes(ctx, accountsPrefix),
	)
}

// removeVolumes removes the volumes whose names have a prefix. It does not go by label:
// an engine gives none to a volume that it makes while it creates a container.
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

// removeRoles removes images that have both our label and one of our names: an image that
// is not ours can carry our labels.
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
