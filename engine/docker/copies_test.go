package docker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

// The programs of a snapshot go into a volume where storage is slow, and nothing is asked
// for elsewhere.
func TestProgramsAreForSnapshotsOnSlowStorage(t *testing.T) {
	t.Parallel()
	snapshot := engine.Image{ID: "sha256:" + engine.ImageID(strings.Repeat("a", 64)), Labels: roleLabels(engine.RoleSnapshot)}
	for _, tt := range []struct {
		driver string
		img    engine.Image
	}{
		{"overlay2", snapshot},
		{"fuse-overlayfs", engine.Image{ID: snapshot.ID}},
		{"fuse-overlayfs", engine.Image{ID: snapshot.ID, Labels: roleLabels("image")}},
	} {
		s := newStocked()
		s.Facts.StorageDriver = tt.driver
		r := over(s)
		if got, err := r.Programs(t.Context(), tt.img); got != "" || err != nil { // it would ask for volumes
			t.Errorf("Programs(%v) on %s = %q, %v; want none", tt.img.Labels, tt.driver, got, err)
		}
	}
}

// An image of ours is found by its content, whatever another has for a name and labels.
func TestSmallImage(t *testing.T) {
	t.Parallel()
	img := smallImage{ref: engine.RunnerRepo + ":1", arch: "amd64", labels: roleLabels(roleRunner), layer: []byte("layer")}
	cfg, err := img.config()
	if err != nil {
		t.Fatal(err)
	}
	id := ociarchive.Digest(cfg)
	for name, other := range map[string]smallImage{
		"another layer":   {ref: img.ref, arch: img.arch, labels: img.labels, layer: []byte("other")},
		"another machine": {ref: img.ref, arch: "arm64", labels: img.labels, layer: img.layer},
		"another role":    {ref: img.ref, arch: img.arch, labels: roleLabels("image"), layer: img.layer},
	} {
		if cfg, err := other.config(); err != nil || ociarchive.Digest(cfg) == id {
			t.Errorf("%s has the image ID %s, too: %v", name, id, err)
		}
	}
	eng := newStocked()
	eng.Put(img.ref, engine.Image{ID: "sha256:imposter", Labels: img.labels})
	if got, err := img.ensure(t.Context(), eng); err != nil || eng.Loaded() == nil {
		t.Errorf("ensure() = %s, %v and loads nothing; want it loaded", got, err)
	}
	eng = newStocked()
	eng.Put("x", engine.Image{ID: engine.ImageID(id)})
	if got, err := img.ensure(t.Context(), eng); string(got) != id || err != nil || eng.Loaded() != nil {
		t.Errorf("ensure() = %s, %v, loaded %d bytes; want %s as it is", got, err, len(eng.Loaded()), id)
	}
	eng = newStocked()
	eng.Err = engine.ErrUnreachable
	if _, err := img.ensure(t.Context(), eng); !errors.Is(err, engine.ErrUnreachable) || eng.Loaded() != nil {
		t.Errorf("ensure() = %v; want the engine's error", err)
	}
}

func TestPruneRunners(t *testing.T) {
	t.Parallel()
	s := newStocked()
	r := over(s)
	s.filled(runnerPrefix+"0a", roleRunner, 2*staleAge)
	s.filled(runnerPrefix+"old", roleRunner, 2*staleAge)
	s.filled(runnerPrefix+"used", roleRunner, 2*staleAge)
	s.filled(runnerPrefix+"new", roleRunner, time.Hour)
	s.Put(engine.RunnerRepo+":old", engine.Image{Refs: []string{engine.RunnerRepo + ":old"}, Labels: roleLabels(roleRunner)})
	s.Used = []string{runnerPrefix + "used"}
	want := slices.DeleteFunc(s.volumesLeft(), func(n string) bool { return strings.HasPrefix(n, runnerPrefix+"old") })
	if gone, err := r.Prune(t.Context()); err != nil || !slices.Equal(gone, []string{runnerPrefix + "old"}) {
		t.Errorf("Prune() = %q, %v; want the old one that nothing uses", gone, err)
	}
	if got := s.volumesLeft(); !slices.Equal(got, want) || len(s.Refs()) > 0 {
		t.Errorf("left %q %q; want %q", got, s.Refs(), want)
	}
}

// The volumes of programs whose image is gone go, but for those in use.
func TestPrunePrograms(t *testing.T) {
	t.Parallel()
	s := newStocked()
	name := func(n string) string { return programsPrefix + strings.Repeat(n, 12) }
	s.Put("there", engine.Image{ID: engine.ImageID("sha256:" + strings.Repeat("a", 64))})
	for _, n := range []string{"a", "b", "c"} {
		s.filled(name(n), rolePrograms, 0)
	}
	s.Used = []string{name("b")}
	gone, err := over(s).Prune(t.Context())
	if err != nil || !slices.Equal(gone, []string{name("c")}) {
		t.Errorf("Prune() = %q, %v; want the one of no image that nothing uses", gone, err)
	}
	if left := s.volumesLeft(); !slices.Equal(left, []string{name("a"), name("a") + markSuffix, name("b"), name("b") + markSuffix}) {
		t.Errorf("left %q", left)
	}
}

// Images that are made to fill volumes go by their name and their label, never by one of
// the two.
func TestRemoveImages(t *testing.T) {
	t.Parallel()
	s := newStocked()
	for ref, role := range map[string]string{
		engine.RunnerRepo + ":1": roleRunner, engine.WorkspaceRepo + ":1-1": roleWorkspace,
		"forged:1": roleRunner, engine.RunnerRepo + ":2": "image", "sandboxbash/host:1": engine.RoleSnapshot,
	} {
		s.Put(ref, engine.Image{Refs: []string{ref}, Labels: roleLabels(role)})
	}
	if err := over(s).removeImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Refs(), []string{"forged:1", "sandboxbash/host:1", engine.RunnerRepo + ":2"}; !slices.Equal(got, want) {
		t.Errorf("left %q; want %q", got, want)
	}
}
