package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
)

// List returns every image on the engine.
func (r *Resolver) List(ctx context.Context) ([]engine.Image, error) { return r.engine.Images(ctx) }

// MissingError says that an image is not on the engine. It wraps engine.ErrNotFound and
// engine.ErrImage.
type MissingError struct{ Ref string }

func (e *MissingError) Error() string { return fmt.Sprintf("image %q is not on the engine", e.Ref) }

func (e *MissingError) Unwrap() []error { return []error{engine.ErrNotFound, engine.ErrImage} }

// Remove removes the image that ref names from the engine. The reference "host" removes
// every snapshot, older ones included, and "host+go" those with that tool alone. The error is a *MissingError if the engine lacks
// the image.
func (r *Resolver) Remove(ctx context.Context, ref string) error {
	t, err := parseRef(ref)
	if err != nil {
		return err
	}
	if isHost(t.name) {
		return errors.Join(r.removeHosts(ctx, toolsOf(t.name)), r.engine.RemoveCopies(ctx))
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
	return r.engine.RemoveCopies(ctx)
}

// RemoveAll removes what sandboxbash has made for itself: snapshots, and all that the
// engine keeps between sessions. Images that were pulled, loaded or built stay. RemoveAll
// goes on after an error and returns all errors. For an object that a session uses, the
// error wraps engine.ErrConflict.
func (r *Resolver) RemoveAll(ctx context.Context) error {
	return errors.Join(r.removeHosts(ctx, nil), r.engine.RemoveAllCopies(ctx))
}

// removeHosts removes images that have both our label and one of our names: an image that
// is not ours can carry our labels. With tools it removes those alone that have exactly these.
func (r *Resolver) removeHosts(ctx context.Context, tools []string) error {
	list, err := r.engine.Images(ctx)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	var errs []error
	remove := func(ref string) {
		if err := r.engine.RemoveImage(ctx, ref); !errors.Is(err, engine.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	for _, img := range list {
		if img.Labels[engine.LabelRole] != engine.RoleSnapshot || tools != nil && !slices.Equal(slices.Sorted(maps.Keys(Tools(img))), tools) {
			continue
		}
		for _, ref := range img.Refs {
			if strings.HasPrefix(ref, hostRepo+":") {
				remove(ref)
			}
		}
		if len(img.Refs) == 0 {
			remove(string(img.ID))
		}
	}
	return errors.Join(errs...)
}
