package images_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/images"
)

// A snapshot of programs as they were before goes when no container uses it.
func TestPruneOnEngine(t *testing.T) {
	_, client := connect(t)
	r, err := images.New(client, images.Options{Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	current := hostImage(t, r)
	var rootfs bytes.Buffer
	if err := tar.NewWriter(&rootfs).Close(); err != nil {
		t.Fatal(err)
	}
	const ref = "sandboxbash/host:test-prune"
	old, err := client.ImportImage(t.Context(), &rootfs, engine.ImageConfig{Ref: ref, OS: "linux", Arch: current.Arch, Labels: map[string]string{
		"sandboxbash.role": "host", "sandboxbash.digest": "old", "sandboxbash.maker": images.MakerOf(r),
	}})
	if err != nil {
		t.Fatal(err)
	}
	dockertest.Cleanup(t, "rmi", "-f", ref)
	user := dockertest.MustCommand(t, "create", "--network", "none", string(old), "true")
	dockertest.Cleanup(t, "rm", "-f", user)
	if gone, err := r.Prune(t.Context()); err != nil || slices.Contains(gone, ref) {
		t.Errorf("Prune() = %q, %v; want nothing that a container uses", gone, err)
	}
	if _, err := client.Image(t.Context(), ref); err != nil {
		t.Errorf("the image in use: %v", err)
	}
	dockertest.MustCommand(t, "rm", "-f", user)
	if gone, err := r.Prune(t.Context()); err != nil || !slices.Contains(gone, ref) {
		t.Errorf("Prune() = %q, %v; want %s removed", gone, err, ref)
	}
	if _, err := client.Image(t.Context(), ref); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("the old image: %v; want it gone", err)
	}
	if _, err := client.Image(t.Context(), string(current.ID)); err != nil {
		t.Errorf("the current image: %v", err)
	}
}
