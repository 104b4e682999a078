package images

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

// An image that the engine lacks, or that a session uses, is an error that says which, and
// what the engine has made of images stays.
func TestRemoveErrors(t *testing.T) {
	t.Parallel()
	s := newStocked()
	s.Put("debian:12", engine.Image{ID: "sha256:04", Refs: []string{"debian:12"}})
	s.Used = []string{"debian:12"}
	r := &Resolver{engine: s}
	err := r.Remove(t.Context(), "debian:11")
	if missing, ok := errors.AsType[*MissingError](err); !ok || missing.Ref != "debian:11" || !errors.Is(err, engine.ErrNotFound) || !errors.Is(err, engine.ErrImage) {
		t.Errorf("Remove(debian:11) = %v; want a MissingError", err)
	}
	if err := r.Remove(t.Context(), "Not A Reference"); err == nil || errors.Is(err, engine.ErrNotFound) {
		t.Errorf("Remove of what is not a reference = %v; want another error", err)
	}
	if err := r.Remove(t.Context(), "debian:12"); !errors.Is(err, engine.ErrConflict) || !strings.Contains(err.Error(), `"debian:12"`) {
		t.Errorf("Remove(debian:12) = %v; want a conflict that names it", err)
	}
	if len(s.calls) > 0 || len(s.Refs()) != 1 {
		t.Errorf("left are %q after %q; want the image, and no copies removed", s.Refs(), s.calls)
	}
}
