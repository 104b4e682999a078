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

// stocked is an engine with images and volumes, some of which containers use.
type stocked struct {
	Engine
	images  map[string]engine.Image // by reference
	volumes map[string]engine.Volume
	used    []string // names
}

func (s *stocked) ImagesLabelled(_ context.Context, labels map[string]string) (all []engine.Image, err error) {
	for _, img := range s.images {
		if img.Labels[labelRole] == labels[labelRole] {
			all = append(all, img)
		}
	}
	return all, nil
}

func (s *stocked) Image(_ context.Context, ref string) (engine.Image, error) {
	for name, img := range s.images {
		if name == ref || strings.HasPrefix(string(img.ID), "sha256:"+ref) {
			return img, nil
		}
	}
	return engine.Image{}, notFound(ref)
}

func (s *stocked) Volumes(_ context.Context, labels map[string]string) (all []engine.Volume, err error) {
	for _, v := range s.volumes {
		if v.Labels[labelRole] == labels[labelRole] {
			all = append(all, v)
		}
	}
	return all, nil
}

func (s *stocked) Volume(_ context.Context, name string) (engine.Volume, error) {
	if v, ok := s.volumes[name]; ok {
		return v, nil
	}
	return engine.Volume{}, notFound(name)
}

func (s *stocked) CreateVolume(_ context.Context, v engine.Volume) error {
	s.volumes[v.Name] = v
	return nil
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

func (s *stocked) RemoveVolume(_ context.Context, name string) error {
	_, there := s.volumes[name]
	return s.remove(name, there, func() { delete(s.volumes, name) })
}

func (s *stocked) RemoveImage(_ context.Context, ref string) error {
	_, there := s.images[ref]
	return s.remove(ref, there, func() { delete(s.images, ref) })
}

// left lists what there is.
func (s *stocked) left() []string {
	return slices.Sorted(maps.Keys(s.images))
}

func (s *stocked) volumesLeft() []string { return slices.Sorted(maps.Keys(s.volumes)) }

func (s *stocked) host(name, digest string, labels map[string]string, age time.Duration) {
	img := engine.Image{
		ID: engine.ImageID("sha256:" + strings.Repeat(name, 64)[:64]), Refs: []string{hostRepo + ":" + name},
		Created: time.Now().Add(-age), Labels: map[string]string{labelRole: roleHost, labelDigest: digest},
	}
	maps.Copy(img.Labels, labels)
	s.images[img.Refs[0]] = img
}

func (s *stocked) filled(name, role string, age time.Duration) {
	for _, n := range []string{name, name + markSuffix} {
		s.volumes[n] = engine.Volume{Name: n, Labels: roleLabels(role), Created: time.Now().Add(-age)}
	}
}

func newStocked() *stocked {
	return &stocked{images: map[string]engine.Image{}, volumes: map[string]engine.Volume{}}
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
	for _, n := range []string{"a", "b", "c", "d"} {
		s.filled(programsPrefix+strings.Repeat(n, 12), rolePrograms, 0)
	}
	s.used = append(s.used, programsPrefix+strings.Repeat("b", 12))
	before := len(s.images)

	// What is current is not known: nothing happens.
	if gone, err := r.Prune(t.Context()); err != nil || len(gone) > 0 || len(s.images) != before || len(s.volumes) != 8 {
		t.Fatalf("Prune() = %q, %v, left %q", gone, err, s.left())
	}
	r.remember(stamp(), current)
	gone, err := r.Prune(t.Context())
	want := []string{programsPrefix + strings.Repeat("a", 12), hostRepo + ":a", hostRepo + ":f"}
	if slices.Sort(gone); err != nil || !slices.Equal(gone, want) {
		t.Errorf("Prune() = %q, %v; want %q", gone, err, want)
	}
	if len(s.volumes) != 6 || len(s.images) != before-2 {
		t.Errorf("left %q %q; want what is current, in use, another's or no snapshot of ours", s.left(), s.volumesLeft())
	}
	// When nothing uses it any more it goes, with its volume.
	s.used = nil
	if gone, err := r.Prune(t.Context()); err != nil || len(gone) != 2 || len(s.volumes) != 4 {
		t.Errorf("Prune() = %q, %v, left %q %q; want the other snapshot and its volume removed", gone, err, s.left(), s.volumesLeft())
	}
}

func TestPruneRunners(t *testing.T) {
	t.Parallel()
	s := newStocked()
	r, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := r.runners("amd64")
	if err != nil {
		t.Fatal(err)
	}
	s.filled(mine.content().volume, roleRunner, 2*staleAge)
	s.filled(runnerPrefix+"old", roleRunner, 2*staleAge)
	s.filled(runnerPrefix+"used", roleRunner, 2*staleAge)
	s.filled(runnerPrefix+"new", roleRunner, time.Hour)
	s.images[runnerRepo+":old"] = engine.Image{Refs: []string{runnerRepo + ":old"}, Labels: roleLabels(roleRunner)}
	s.used = []string{runnerPrefix + "used"}
	want := slices.DeleteFunc(s.volumesLeft(), func(n string) bool { return strings.HasPrefix(n, runnerPrefix+"old") })
	if gone, err := r.Prune(t.Context()); err != nil || !slices.Equal(gone, []string{runnerPrefix + "old"}) {
		t.Errorf("Prune() = %q, %v; want the old one that nothing uses", gone, err)
	}
	if got := s.volumesLeft(); !slices.Equal(got, want) || len(s.images) > 0 {
		t.Errorf("left %q %q; want %q", got, s.left(), want)
	}
}
