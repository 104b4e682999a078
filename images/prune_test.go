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
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
)

// unfaked has the methods of an engine one level deeper than those of a fake, which come
// first. A test that asks for more than its fake has panics.
type unfaked struct{ Engine }

// stocked is an engine with images, some of which containers use.
type stocked struct {
	unfaked
	*enginetest.ImageStore
	calls []string // on copies
}

func (s *stocked) RemoveCopies(context.Context) error {
	s.calls = append(s.calls, "copies")
	return nil
}

func (s *stocked) RemoveAllCopies(context.Context) error {
	s.calls = append(s.calls, "all copies")
	return nil
}

func (s *stocked) host(name, digest string, labels map[string]string, age time.Duration) {
	img := engine.Image{
		ID: engine.ImageID("sha256:" + strings.Repeat(name, 64)[:64]), Refs: []string{hostRepo + ":" + name},
		Created: time.Now().Add(-age), Labels: map[string]string{engine.LabelRole: engine.RoleSnapshot, labelDigest: digest},
	}
	maps.Copy(img.Labels, labels)
	s.Put(img.Refs[0], img)
}

func (s *stocked) labels(ref string) map[string]string {
	img, _ := s.Image(context.Background(), ref)
	return img.Labels
}

func newStocked() *stocked {
	return &stocked{ImageStore: &enginetest.ImageStore{}}
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
	s.Put("forged:1", engine.Image{Refs: []string{"forged:1"}, Labels: s.labels(hostRepo + ":a")}) // an image can carry our labels
	s.Used = []string{hostRepo + ":b"}
	before := len(s.Refs())

	// What is current is not known: nothing happens.
	if gone, err := r.Prune(t.Context()); err != nil || len(gone) > 0 || len(s.Refs()) != before {
		t.Fatalf("Prune() = %q, %v, left %q", gone, err, s.Refs())
	}
	r.remember(stamp(), current)
	gone, err := r.Prune(t.Context())
	want := []string{hostRepo + ":a", hostRepo + ":f"}
	if slices.Sort(gone); err != nil || !slices.Equal(gone, want) {
		t.Errorf("Prune() = %q, %v; want %q", gone, err, want)
	}
	if len(s.Refs()) != before-2 {
		t.Errorf("left %q; want what is current, in use, another's or no snapshot of ours", s.Refs())
	}
	// When nothing uses it any more it goes.
	s.Used = nil
	if gone, err := r.Prune(t.Context()); err != nil || len(gone) != 1 {
		t.Errorf("Prune() = %q, %v, left %q; want the other snapshot removed", gone, err, s.Refs())
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
			s.Put("forged:1", engine.Image{Refs: []string{"forged:1"}, Labels: s.labels(hostRepo + ":a")})
			app := engine.Image{ID: engine.ImageID("sha256:" + strings.Repeat("e", 64))}
			s.Put("app:1", app)
			s.Put("app:2", app)
			if err := tt.remove(resolver(t, s)); err != nil {
				t.Fatal(err)
			}
			if got := s.Refs(); !slices.Equal(got, tt.left) || !slices.Equal(s.calls, tt.calls) {
				t.Errorf("left %q after %q; want %q after %q", got, s.calls, tt.left, tt.calls)
			}
		})
	}
}
