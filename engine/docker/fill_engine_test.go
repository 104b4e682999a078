package docker_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/images"
)

// hostImage is the snapshot of this machine's programs.
func hostImage(t *testing.T) engine.Image {
	t.Helper()
	r, err := images.New(dockertest.Connect(t), images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	img, err := r.Host(t.Context(), nil)
	if err != nil {
		t.Fatalf("Host() = %v", err)
	}
	return img
}

func TestRunnerUnderConcurrency(t *testing.T) {
	client := dockertest.Connect(t)
	runner, content := ownRunner()
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		r := docker.NewCopier(client, runner) // as eight processes: nothing is shared
		wg.Go(func() { _, errs[i] = r.Runner(t.Context(), info.Arch) })
	}
	volume, _ := removeRunner(t, content)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("Runner() in process %d = %v", i, err)
		}
	}
	if got := readVolume(t, volume); got != content {
		t.Errorf("the runner in the volume = %q; want %q", got, content)
	}
	if out := dockertest.MustCommand(t, "ps", "-aq", "--filter", "name="+volume); out != "" {
		t.Errorf("fillers left behind: %s", out)
	}
}

// ownRunner returns a runner of the test's own, and its content. The content is also its ID.
func ownRunner() (runner func(arch string) (engine.Content, error), content string) {
	content = "test-" + uuid.NewString()
	return func(string) (engine.Content, error) {
		return engine.Content{ID: content, Write: func(w io.Writer) error {
			data, err := archive(map[string][]byte{engine.RunnerPath[1:]: []byte(content)})
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		}}, nil
	}, content
}

// removeRunner removes what is made of a runner when the test ends. It returns the names
// of its volume and image.
func removeRunner(t *testing.T, id string) (volume, ref string) {
	t.Helper()
	volume, ref = "sandboxbash-runner-"+id, engine.RunnerRepo+":"+id
	dockertest.Cleanup(t, "rmi", ref)
	dockertest.Cleanup(t, "volume", "rm", volume, volume+"-filled")
	dockertest.Cleanup(t, "rm", "-f", volume+"-filler")
	return volume, ref
}

// readVolume returns the runner that a session would see.
func readVolume(t *testing.T, volume string) string {
	t.Helper()
	host := hostImage(t)
	return dockertest.MustCommand(t, "run", "--rm", "--network=none", "-v", volume+":/.sandboxbash:ro,nocopy", string(host.ID), "cat", engine.RunnerPath)
}

func TestRefillHealsAVolume(t *testing.T) {
	client := dockertest.Connect(t)
	runner, content := ownRunner()
	r := docker.NewCopier(client, runner)
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	volume, _ := removeRunner(t, content)
	steps := []struct {
		name  string
		spoil func()
	}{
		{"never filled", func() { dockertest.MustCommand(t, "volume", "create", volume) }},
		{"pruned and made empty", func() {
			dockertest.MustCommand(t, "volume", "rm", volume)
			dockertest.MustCommand(t, "volume", "create", volume)
		}},
		{"filled by another process", func() {
			host := hostImage(t)
			dockertest.MustCommand(t, "run", "--rm", "--network=none", "-v", volume+":/v", string(host.ID), "sh", "-c", "echo evil > /v/runner")
		}},
	}
	for _, step := range steps {
		step.spoil()
		if err := r.Refill(t.Context(), info.Arch); err != nil {
			t.Fatalf("%s: Refill() = %v", step.name, err)
		}
		if got := readVolume(t, volume); got != content {
			t.Errorf("%s: the runner after Refill() = %q; want %q", step.name, got, content)
		}
	}
}

func TestRunnerFinishesADeadProcessWork(t *testing.T) {
	client := dockertest.Connect(t)
	runner, content := ownRunner()
	r := docker.NewCopier(client, runner)
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	volume, ref := removeRunner(t, content)
	if _, err := r.Runner(t.Context(), info.Arch); err != nil {
		t.Fatal(err)
	}
	// As a process leaves it that dies between making the filler and the mark.
	dockertest.MustCommand(t, "volume", "rm", volume+"-filled")
	dockertest.MustCommand(t, "create", "--name", volume+"-filler", "--label", "sandboxbash.role=filler", "--network=none", "-v", volume+":/.sandboxbash", ref, "/x")
	if got, err := r.Runner(t.Context(), info.Arch); got != volume || err != nil {
		t.Errorf("Runner() = %q, %v; want %q, nil", got, err, volume)
	}
	if out := dockertest.MustCommand(t, "ps", "-aq", "--filter", "name="+volume); out != "" {
		t.Errorf("the dead process's filler is still there: %s", out)
	}
}

// A volume of programs is what the image has there, with its owners and modes.
func TestProgramsAreTheImages(t *testing.T) {
	client := dockertest.Connect(t)
	r := docker.NewCopier(client, images.Runner)
	info, err := client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	img := hostImage(t)
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
		return dockertest.MustCommand(t, append(append(args, string(img.ID)), list...)...)
	}
	if got, want := run("-v", volume+":/usr:ro,nocopy"), run(); got != want {
		t.Errorf("the volume is %s, and the image's own %s", got, want)
	}
}

func TestFillWorkspaceOwnsTheVolume(t *testing.T) {
	r := docker.NewCopier(dockertest.Connect(t), images.Runner)
	host := hostImage(t)
	for _, owner := range [][2]uint32{{4241, 4241}, {4242, 17}} {
		volume := "sandboxbash-test-" + uuid.NewString()
		dockertest.MustCommand(t, "volume", "create", volume)
		dockertest.Cleanup(t, "rmi", fmt.Sprintf("sandboxbash/workspace:%d-%d", owner[0], owner[1]))
		dockertest.Cleanup(t, "volume", "rm", volume)
		if err := r.FillWorkspace(t.Context(), volume, owner[0], owner[1]); err != nil {
			t.Fatalf("FillWorkspace(%v) = %v", owner, err)
		}
		got := dockertest.MustCommand(t, "run", "--rm", "--network=none", "-v", volume+":/workspace:nocopy", string(host.ID), "stat", "-c", "%u:%g %a", "/workspace")
		if want := fmt.Sprintf("%d:%d 755", owner[0], owner[1]); got != want {
			t.Errorf("FillWorkspace(%v): stat = %q; want %q", owner, got, want)
		}
	}
	if out := dockertest.MustCommand(t, "ps", "-aq", "--filter", "name=-filler"); out != "" {
		t.Errorf("fillers left behind: %s", out)
	}
}

// What clears a volume that is gone already makes none.
func TestClearWorkspaceMakesNone(t *testing.T) {
	r := docker.NewCopier(dockertest.Connect(t), images.Runner)
	name := "sandboxbash-test-" + uuid.NewString()
	dockertest.Cleanup(t, "volume", "rm", "-f", name)
	if err := r.ClearWorkspace(t.Context(), name); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("ClearWorkspace(%s) = %v; want %v", name, err, engine.ErrNotFound)
	}
	if out := dockertest.MustCommand(t, "volume", "ls", "-q", "--filter", "name="+name); out != "" {
		t.Errorf("it has made %s", out)
	}
}
