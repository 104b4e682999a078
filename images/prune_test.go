package images

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// stocked is an engine with images, some of which containers use.
type stocked struct {
	Engine
	images map[string]engine.Image // by reference
	used   []string                // names
	calls  []string                // on copies
}

func (s *stocked) ImagesLabelled(_ context.Context, labels map[string]string) (all []engine.Image, err error) {
	for _, img := range s.images {
		if img.Labels[engine.LabelRole] == labels[engine.LabelRole] {
			all = append(all, img)
		}
	}
	return all, nil
}

func (s *stocked) Image(_ context.Context, ref string) (engine.Image, error) {
	for name, img := range s.images {
		if name == ref || string(img.ID) == ref || strings.HasPrefix(string(img.ID), "sha256:"+ref) {
			return img, nil
		}
	}
	return engine.Image{}, notFound(ref)
}

func (s *stocked) remove(name string, there bool, do func()) error {
	switch {
	case slices.Contains(s.used, name):
		return &engine.Error{Op: "remove " + name, Kind: engine.ErrConflict, Err: errors.New("it is in use")}
	case !there:
		return notFound(name)
	}
	do()
	return nil
}

func (s *stocked) RemoveImage(_ context.Context, ref string) error {
	_, there := s.images[ref]
	return s.remove(ref, there, func() { delete(s.images, ref) })
}

func (s *stocked) Images(context.Context) ([]engine.Image, error) {
	return slices.Collect(maps.Values(s.images)), nil
}

func (s *stocked) RemoveCopies(context.Context) error {
	s.calls = append(s.calls, "copies")
	return nil
}

func (s *stocked) RemoveAllCopies(context.Context) error {
	s.calls = append(s.calls, "all copies")
	return nil
}

// left lists what there is.
func (s *stocked) left() []string {
	return slices.Sorted(maps.Keys(s.images))
}

func (s *stocked) host(name, digest string, labels map[string]string, age time.Duration) {
	img := engine.Image{
		ID: engine.ImageID("sha256:" + strings.Repeat(name, 64)[:64]), Refs: []string{hostRepo + ":" + name},
		Created: time.Now().Add(-age), Labels: map[string]string{engine.LabelRole: engine.RoleSnapshot, labelDigest: digest},
	}
	maps.Copy(img.Labels, labels)
	s.images[img.Refs[0]] = img
}

func newStocked() *stocked {
	return &stocked{images: map[string]engine.Image{}}
}

func TestPruneHosts(t *testing.T) {
	t.Parallel()
	s := newStocked()
	r, err := New(s, Options{Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	mine := map[string]string{labelMaker: r.maker()}
	current := strings.Repeat("c", 64)
	s.host("a", "old", mine, time.Second)
	s.host("b", "old, in use", mine, time.Hour)
	s.host("c", current, mine, time.Hour)
	s.host("d", "another's", map[string]string{labelMaker: "another"}, 100*staleAge)
	s.host("e", "of an unknown maker", nil, time.Hour)
	s.host("f", "of an unknown maker, and old", nil, 2*staleAge)
	s.images["forged:1"] = engine.Image{Refs: []string{"forged:1"}, Labels: s.images[hostRepo+":a"].Labels} // an image can carry our labels
	s.used = []string{hostRepo + ":b"}
	before := len(s.images)

	// What is current is not known: nothing happens.
	if gone, err := r.Prune(t.Context()); err != nil || len(gone) > 0 || len(s.images) != before {
		t.Fatalf("Prune() = %q, %v, left %q", gone, err, s.left())
	}
	r.remember(stamp(), current)
	gone, err := r.Prune(t.Context())
	want := []string{hostRepo + ":a", hostRepo + ":f"}
	if slices.Sort(gone); err != nil || !slices.Equal(gone, want) {
		t.Errorf("Prune() = %q, %v; want %q", gone, err, want)
	}
	if len(s.images) != before-2 {
		t.Errorf("left %q; want what is current, in use, another's or no snapshot of ours", s.left())
	}
	// When nothing uses it any more it goes.
	s.used = nil
	if gone, err := r.Prune(t.Context()); err != nil || len(gone) != 1 {
		t.Errorf("Prune() = %q, %v, left %q; want the other snapshot removed", gone, err, s.left())
	}
}

// What the engine has made of an image goes with its last name.
func TestRemove(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		remove      func(*Resolver) error
		left, calls []string
	}{
		{"one name", func(r *Resolver) error { return r.Remove(t.Context(), "app:1") }, []string{"app:2", "forged:1", hostRepo + ":a"}, nil},
		{"the last name", func(r *Resolver) error {
			return errors.Join(r.Remove(t.Context(), "app:1"), r.Remove(t.Context(), "app:2"))
		}, []string{"forged:1", hostRepo + ":a"}, []string{"copies"}},
		{"snapshots", func(r *Resolver) error { return r.Remove(t.Context(), HostRef) }, []string{"app:1", "app:2", "forged:1"}, []string{"copies"}},
		{"all", func(r *Resolver) error { return r.RemoveAll(t.Context()) }, []string{"app:1", "app:2", "forged:1"}, []string{"all copies"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStocked()
			s.host("a", "x", nil, 0)
			s.images["forged:1"] = engine.Image{Refs: []string{"forged:1"}, Labels: s.images[hostRepo+":a"].Labels}
			app := engine.Image{ID: engine.ImageID("sha256:" + strings.Repeat("e", 64))}
			s.images["app:1"], s.images["app:2"] = app, app
			if err := tt.remove(resolver(t, s)); err != nil {
				t.Fatal(err)
			}
			if got := s.left(); !slices.Equal(got, tt.left) || !slices.Equal(s.calls, tt.calls) {
				t.Errorf("left %q after %q; want %q after %q", got, s.calls, tt.left, tt.calls)
			}
		})
	}
}
