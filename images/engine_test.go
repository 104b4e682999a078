package images_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// command runs the docker command line with arguments and returns its output.
func command(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), args...)
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// cleanup removes things by the docker command line after the test.
func cleanup(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() { _, _ = command(context.WithoutCancel(t.Context()), args...) })
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

func TestRunnerUnderConcurrency(t *testing.T) {
	_, client := connect(t)
	content := []byte("runner " + uuid.NewString())
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var volume, ref string
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		r, err := images.New(client, images.Options{}) // as eight processes: nothing is shared
		if err != nil {
			t.Fatal(err)
		}
		volume, ref = images.UseRunner(r, content)
		wg.Go(func() { _, errs[i] = r.Runner(t.Context(), info.Arch) })
	}
	removeRunner(t, volume, ref)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("Runner() in process %d = %v", i, err)
		}
	}
	if got := readVolume(t, volume); got != string(content) {
		t.Errorf("the runner in the volume = %q; want %q", got, content)
	}
	if out := mustCommand(t, "ps", "-aq", "--filter", "name="+volume); out != "" {
		t.Errorf("fillers left behind: %s", out)
	}
}

func removeRunner(t *testing.T, volume, ref string) {
	t.Helper()
	cleanup(t, "rmi", ref)
	cleanup(t, "volume", "rm", volume, volume+"-filled")
	cleanup(t, "rm", "-f", volume+"-filler")
}

// readVolume returns the runner that a session would see.
func readVolume(t *testing.T, volume string) string {
	t.Helper()
	r, _ := connect(t)
	host := hostImage(t, r)
	return mustCommand(t, "run", "--rm", "--network=none", "-v", volume+":/.sandboxbash:ro,nocopy", string(host.ID), "cat", engine.RunnerPath)
}

func TestRefillHealsAVolume(t *testing.T) {
	r, client := connect(t)
	content := []byte("runner " + uuid.NewString())
	volume, ref := images.UseRunner(r, content)
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removeRunner(t, volume, ref)
	steps := []struct {
		name  string
		spoil func()
	}{
		{"never filled", func() { mustCommand(t, "volume", "create", volume) }},
		{"pruned and made empty", func() {
			mustCommand(t, "volume", "rm", volume)
			mustCommand(t, "volume", "create", volume)
		}},
		{"filled by another process", func() {
			host := hostImage(t, r)
			mustCommand(t, "run", "--rm", "--network=none", "-v", volume+":/v", string(host.ID), "sh", "-c", "echo evil > /v/runner")
		}},
	}
	for _, step := range steps {
		step.spoil()
		if err := r.Refill(t.Context(), info.Arch); err != nil {
			t.Fatalf("%s: Refill() = %v", step.name, err)
		}
		if got := readVolume(t, volume); got != string(content) {
			t.Errorf("%s: the runner after Refill() = %q; want %q", step.name, got, content)
		}
	}
}

func TestRunnerFinishesADeadProcessWork(t *testing.T) {
	r, client := connect(t)
	content := []byte("runner " + uuid.NewString())
	volume, ref := images.UseRunner(r, content)
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removeRunner(t, volume, ref)
	if _, err := r.Runner(t.Context(), info.Arch); err != nil {
		t.Fatal(err)
	}
	// As a process leaves it that dies between making the filler and the mark.
	mustCommand(t, "volume", "rm", volume+"-filled")
	mustCommand(t, "create", "--name", volume+"-filler", "--label", "sandboxbash.role=filler", "--network=none", "-v", volume+":/.sandboxbash", ref, "/x")
	if got, err := r.Runner(t.Context(), info.Arch); got != volume || err != nil {
		t.Errorf("Runner() = %q, %v; want %q, nil", got, err, volume)
	}
	if out := mustCommand(t, "ps", "-aq", "--filter", "name="+volume); out != "" {
		t.Errorf("the dead process's filler is still there: %s", out)
	}
}

// A volume of programs is what the image has there, with its owners and modes.
func TestProgramsAreTheImages(t *testing.T) {
	r, client := connect(t)
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	img := hostImage(t, r)
	volume, err := r.Programs(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	if slow := strings.Contains(info.StorageDriver, "fuse"); (volume != "") != slow {
		t.Fatalf("Programs() = %q on %s; want a volume only where storage is slow", volume, info.StorageDriver)
	}
	if volume == "" {
		return
	}
	list := []string{"sh", "-c", "cd /usr && find . -printf '%p %y %m %U:%G %s %l\\n' | LC_ALL=C sort | sha256sum"}
	run := func(more ...string) string {
		args := append([]string{"run", "--rm", "--network=none"}, more...)
		return mustCommand(t, append(append(args, string(img.ID)), list...)...)
	}
	if got, want := run("-v", volume+":/usr:ro,nocopy"), run(); got != want {
		t.Errorf("the volume is %s, and the image's own %s", got, want)
	}
}

func TestFillWorkspaceOwnsTheVolume(t *testing.T) {
	r, _ := connect(t)
	host := hostImage(t, r)
	for _, owner := range [][2]uint32{{4241, 4241}, {4242, 17}} {
		volume := "sandboxbash-test-" + uuid.NewString()
		mustCommand(t, "volume", "create", volume)
		cleanup(t, "rmi", fmt.Sprintf("sandboxbash/workspace:%d-%d", owner[0], owner[1]))
		cleanup(t, "volume", "rm", volume)
		if err := r.FillWorkspace(t.Context(), volume, owner[0], owner[1]); err != nil {
			t.Fatalf("FillWorkspace(%v) = %v", owner, err)
		}
		got := mustCommand(t, "run", "--rm", "--network=none", "-v", volume+":/workspace:nocopy", string(host.ID), "stat", "-c", "%u:%g %a", "/workspace")
		if want := fmt.Sprintf("%d:%d 755", owner[0], owner[1]); got != want {
			t.Errorf("FillWorkspace(%v): stat = %q; want %q", owner, got, want)
		}
	}
	if out := mustCommand(t, "ps", "-aq", "--filter", "name=-filler"); out != "" {
		t.Errorf("fillers left behind: %s", out)
	}
}

// What clears a volume that is gone already makes none.
func TestClearWorkspaceMakesNone(t *testing.T) {
	r, _ := connect(t)
	name := "sandboxbash-test-" + uuid.NewString()
	cleanup(t, "volume", "rm", "-f", name)
	if err := r.ClearWorkspace(t.Context(), name); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("ClearWorkspace(%s) = %v; want %v", name, err, engine.ErrNotFound)
	}
	if out := mustCommand(t, "volume", "ls", "-q", "--filter", "name="+name); out != "" {
		t.Errorf("it has made %s", out)
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
	cleanup(t, "rmi", ref, again)
	list, err := r.Load(t.Context(), rootfs, ref, nil)
	if err != nil || len(list) != 1 {
		t.Fatalf("Load(a root file system) = %v, %v; want one image", list, err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	mustCommand(t, "save", "-o", archive, ref)
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
