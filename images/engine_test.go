package images_test

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/images"
)

// connect returns a resolver over the machine's engine. Where none answers, the
// test is skipped, but not in CI.
func connect(t *testing.T) (*images.Resolver, *docker.Client) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an engine, and -short is set")
	}
	client := dockertest.Connect(t)
	r, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r, client
}

func hostImage(t *testing.T, r *images.Resolver) engine.Image {
	t.Helper()
	img, err := r.Host(t.Context(), nil)
	if err != nil {
		t.Fatalf("Host() = %v", err)
	}
	return img
}

func TestHostIsMadeOnce(t *testing.T) {
	r, _ := connect(t)
	start := time.Now()
	first := hostImage(t, r)
	t.Logf("Host() took %v, %d MB", time.Since(start), first.Size/1e6)
	start = time.Now()
	var copied []engine.Progress
	second, err := r.Host(t.Context(), func(p engine.Progress) { copied = append(copied, p) })
	t.Logf("Host() again took %v", time.Since(start))
	if err != nil || first.ID != second.ID || len(copied) != 0 {
		t.Errorf("Host() = %s, then %s, %v, with progress %v; want the same, and nothing copied", first.ID, second.ID, err, copied)
	}
	if first.Size > 250e6 {
		t.Errorf("Host() has %d bytes; want at most 250 MB", first.Size)
	}
}

func TestLoadOnTheEngine(t *testing.T) {
	r, _ := connect(t)
	rootfs := filepath.Join(t.TempDir(), "rootfs.tar")
	out, err := os.Create(rootfs)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(out)
	content := uuid.NewString()
	if err := tw.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tw.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	ref := "sbx-load-test:" + content
	again := ref + "-again"
	dockertest.Cleanup(t, "rmi", ref, again)
	list, err := r.Load(t.Context(), rootfs, ref, nil)
	if err != nil || len(list) != 1 {
		t.Fatalf("Load(a root file system) = %v, %v; want one image", list, err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	dockertest.MustCommand(t, "save", "-o", archive, ref)
	if list, err = r.Load(t.Context(), archive, again, nil); err != nil || len(list) != 1 {
		t.Fatalf("Load(a docker-archive) = %v, %v; want one image", list, err)
	}
	if img, err := r.Resolve(t.Context(), again, nil); err != nil || img.ID != list[0].ID {
		t.Errorf("Resolve(%s) = %s, %v; want %s", again, img.ID, err, list[0].ID)
	}
	if err := r.Remove(t.Context(), again); err != nil {
		t.Errorf("Remove(%s) = %v", again, err)
	}
	if err := r.Remove(t.Context(), again); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("Remove(%s) again = %v; want not found", again, err)
	}
}
