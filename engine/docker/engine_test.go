package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
)

const testLabel = "sandboxbash.docker-test"

// helperArchive is the tar archive of a root file system that holds the helper.
var helperArchive = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sandboxbash-docker-test")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "helper")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "./testdata/helper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the helper: %w\n%s", err, out)
	}
	program, err := os.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	return archive(map[string][]byte{"helper": program, "data/from-image": []byte("kept in the image\n")})
})

func archive(files map[string][]byte) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

// unique gives a name that no other test has.
func unique() string { return "sandboxbash-dockertest-" + uuid.NewString() }

// importHelper makes an image and returns its ID and reference.
func importHelper(tb testing.TB, c *docker.Client) (engine.ImageID, string) {
	tb.Helper()
	rootfs, err := helperArchive()
	if err != nil {
		tb.Fatal(err)
	}
	ref := unique() + ":1"
	id, err := c.ImportImage(tb.Context(), bytes.NewReader(rootfs), engine.ImageConfig{
		Ref: ref, OS: "linux", Arch: runtime.GOARCH, Labels: map[string]string{testLabel: `a "quoted" $HOME \ value`},
	})
	if err != nil {
		tb.Fatal(err)
	}
	removeImage(tb, c, ref)
	return id, ref
}

func removeImage(tb testing.TB, c *docker.Client, ref string) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := c.RemoveImage(context.WithoutCancel(tb.Context()), ref); err != nil {
			tb.Error(err)
		}
	})
}

// hostile builds an image that configures everything an image can.
func hostile(t *testing.T, c *docker.Client) engine.ImageID {
	t.Helper()
	_, base := importHelper(t, c)
	file := "FROM " + base + `
ENV LD_PRELOAD=/evil.so GODEBUG=x=1 KEEP=image
ENTRYPOINT ["/helper", "exit", "9"]
WORKDIR /data
USER 12:34
VOLUME ["/data", "/covered"]
HEALTHCHECK CMD ["/helper", "exit", "1"]
`
	tarball, err := archive(map[string][]byte{"Other": []byte(file)})
	if err != nil {
		t.Fatal(err)
	}
	ref := unique() + ":hostile"
	var steps []string
	id, err := c.BuildImage(t.Context(), bytes.NewReader(tarball), engine.Build{
		Dockerfile: "Other", Ref: ref, Labels: map[string]string{testLabel: "built"},
	}, func(p engine.Progress) { steps = append(steps, p.Status) })
	if err != nil {
		t.Fatal(err)
	}
	removeImage(t, c, ref)
	if len(steps) == 0 {
		t.Error("BuildImage reported no progress")
	}
	img, err := c.Image(t.Context(), ref)
	if err != nil || img.ID != id || img.Labels[testLabel] != "built" {
		t.Fatalf("Image(%q) = %+v, %v; want the image %s that was built", ref, img, err, id)
	}
	return id
}

// shape is a hardened container that waits.
func shape(image engine.ImageID) docker.Container {
	pids, memory, quota, period, oom := int64(64), int64(256<<20), int64(50_000), uint64(100_000), 500
	errno := uint(38)
	return docker.Container{
		Name: unique(), Image: image, Network: "none", ShmBytes: 1 << 20, Labels: map[string]string{testLabel: unique()},
		Spec: specs.Spec{
			Hostname: "sandbox",
			Root:     &specs.Root{Readonly: true},
			Process: &specs.Process{
				Args: []string{"/helper", "wait"}, Env: []string{"KEEP=ours"}, Cwd: "/", NoNewPrivileges: true, OOMScoreAdj: &oom,
				Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL", "CAP_SETUID", "CAP_SETGID"}},
				Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 100, Hard: 200}},
			},
			Mounts: []specs.Mount{{Type: "tmpfs", Destination: "/tmp", Options: []string{"rw", "nosuid", "nodev", "exec", "size=1m"}}},
			Linux: &specs.Linux{
				MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
				Resources: &specs.LinuxResources{
					Pids: &specs.LinuxPids{Limit: &pids}, Memory: &specs.LinuxMemory{Limit: &memory},
					CPU: &specs.LinuxCPU{Quota: &quota, Period: &period},
				},
				Seccomp: &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{
					{Names: []string{"sethostname"}, Action: specs.ActErrno, ErrnoRet: &errno},
				}},
			},
		},
	}
}

// create makes a container that is removed with the test, and starts it.
func create(tb testing.TB, c *docker.Client, want docker.Container) docker.ContainerID {
	tb.Helper()
	id, _, err := c.CreateContainer(tb.Context(), want)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.RemoveContainer(context.WithoutCancel(tb.Context()), id); err != nil {
			tb.Error(err)
		}
	})
	if err := c.StartContainer(tb.Context(), id); err != nil {
		tb.Fatal(err)
	}
	return id
}

// run executes the helper and returns its output.
func run(t *testing.T, c *docker.Client, id docker.ContainerID, args ...string) string {
	t.Helper()
	s := open(t, c, id, engine.Exec{Args: append([]string{"/helper"}, args...), User: "0:0"})
	var out bytes.Buffer
	if _, err := io.Copy(&out, s); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func open(t *testing.T, c *docker.Client, id docker.ContainerID, want engine.Exec) engine.Stream {
	t.Helper()
	s, err := c.OpenExec(t.Context(), id, want)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// exitCode waits for the exit code of what a stream is of.
func exitCode(t *testing.T, s engine.Stream) int {
	t.Helper()
	code, err := s.ExitCode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestEngineInfo(t *testing.T) {
	t.Parallel()
	c := dockertest.Connect(t)
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.OS != "linux" || info.Arch == "" || info.CPUs == 0 || info.Version == "" || info.DefaultRuntime == "" || !slices.Contains(info.Runtimes, info.DefaultRuntime) {
		t.Errorf("Info() = %+v; want the engine described", info)
	}
}

func TestEngineContainer(t *testing.T) {
	t.Parallel()
	c := dockertest.Connect(t)
	want := shape(hostile(t, c))
	volume := docker.Volume{Name: unique(), Labels: map[string]string{testLabel: "x"}}
	if err := c.CreateVolume(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.RemoveVolume(context.WithoutCancel(t.Context()), volume.Name); err != nil {
			t.Error(err)
		}
	})
	want.Spec.Mounts = append(want.Spec.Mounts,
		specs.Mount{Type: "volume", Source: volume.Name, Destination: "/covered", Options: []string{"ro", "nocopy"}})
	id := create(t, c, want)

	st, err := c.Container(t.Context(), want.Name)
	if err != nil {
		t.Fatal(err)
	}
	if st.ID != id || st.Name != want.Name || st.Image != want.Image || st.Status != "running" || st.PID == 0 || st.Started.IsZero() || !st.Finished.IsZero() {
		t.Errorf("Container(%s) = %+v; want it running", want.Name, st)
	}
	if got := strings.Join(st.Entrypoint, " "); got != "/helper wait" {
		t.Errorf("Container().Entrypoint = %q; want only ours", got)
	}
	wantMounts := []docker.Mount{
		{Type: "volume", Source: volume.Name, Target: "/covered", ReadOnly: true},
		{Type: "tmpfs", Target: "/data", ReadOnly: true},
		{Type: "tmpfs", Target: "/tmp"},
	}
	if !slices.Equal(st.Mounts, wantMounts) {
		t.Errorf("Container().Mounts = %+v; want %+v", st.Mounts, wantMounts)
	}

	out := run(t, c, id, "look")
	for _, line := range []string{
		"cwd /\n", "args [/helper look]\n", "KEEP=ours", "Uid:\t0\t0", "CapEff:\t00000000000000e0", "CapBnd:\t00000000000000e0",
		"NoNewPrivs:\t1", "Seccomp:\t2", "sethostname 38\n", "nofile 200\n", "mount / ro", "mount /covered ro", "mount /data ro",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("in the container: %q is missing from\n%s", line, out)
		}
	}
	for _, name := range []string{"LD_PRELOAD", "GODEBUG", "KEEP=image"} {
		if strings.Contains(out, name) {
			t.Errorf("in the container: the image's %s took effect", name)
		}
	}

	list, err := c.Containers(t.Context(), want.Labels)
	if err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("Containers(%v) = %+v, %v; want only %s", want.Labels, list, err, id)
	}
	vols, err := c.Volumes(t.Context(), volume.Labels)
	if err != nil || !slices.ContainsFunc(vols, func(v docker.Volume) bool { return v.Name == volume.Name && !v.Created.IsZero() }) {
		t.Errorf("Volumes() = %+v, %v; want %s in it", vols, err, volume.Name)
	}
	if err := c.RemoveVolume(t.Context(), volume.Name); !errors.Is(err, engine.ErrConflict) {
		t.Errorf("RemoveVolume(in use) = %v; want ErrConflict", err)
	}
}

func TestEngineStop(t *testing.T) {
	t.Parallel()
	c := dockertest.Connect(t)
	image, _ := importHelper(t, c)
	want := shape(image)
	id := create(t, c, want)
	if err := c.StartContainer(t.Context(), id); err != nil {
		t.Errorf("StartContainer(running) = %v; want nil", err)
	}
	if _, _, err := c.CreateContainer(t.Context(), want); !errors.Is(err, engine.ErrConflict) {
		t.Errorf("CreateContainer(name taken) = %v; want ErrConflict", err)
	}
	// PID 1 may not have its handler yet, and then ignores the signal.
	waiting := make(chan error, 1)
	go func() { waiting <- c.WaitContainer(t.Context(), id) }()
	var err error
	for done := false; !done; {
		if err := c.SignalContainer(t.Context(), id, "SIGTERM"); err != nil && !errors.Is(err, engine.ErrNotRunning) {
			t.Fatal(err)
		}
		select {
		case err = <-waiting:
			done = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		t.Fatalf("WaitContainer() = %v; want nil", err)
	}
	st, err := c.Container(t.Context(), string(id))
	if err != nil || st.Status != "exited" || st.ExitCode != 7 || st.Finished.IsZero() || st.PID != 0 {
		t.Errorf("Container() = %+v, %v; want it exited with 7", st, err)
	}
	if err := c.SignalContainer(t.Context(), id, "SIGKILL"); !errors.Is(err, engine.ErrNotRunning) {
		t.Errorf("SignalContainer(stopped) = %v; want ErrNotRunning", err)
	}
	if _, err := c.OpenExec(t.Context(), id, engine.Exec{Args: []string{"/helper", "look"}}); !errors.Is(err, engine.ErrNotRunning) {
		t.Errorf("OpenExec(stopped) = %v; want ErrNotRunning", err)
	}
	for range 2 {
		if err := c.RemoveContainer(t.Context(), id); err != nil {
			t.Errorf("RemoveContainer() = %v; want nil", err)
		}
	}
	if _, err := c.Container(t.Context(), string(id)); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("Container(removed) = %v; want ErrNotFound", err)
	}
	if err := c.WaitContainer(t.Context(), id); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("WaitContainer(removed) = %v; want ErrNotFound", err)
	}
}

func TestEngineExec(t *testing.T) {
	t.Parallel()
	c := dockertest.Connect(t)
	image, _ := importHelper(t, c)
	id := create(t, c, shape(image))

	s := open(t, c, id, engine.Exec{Args: []string{"/helper", "cat"}, User: "0:0"})
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if code, err := s.ExitCode(soon); err == nil {
		t.Errorf("ExitCode(running) = %d; want an error", code)
	}
	sent := bytes.Repeat([]byte("\x00\x01\x02\x10\x11\x1e\x1f\x1d\xff\n"), 100_000)
	wrote := make(chan error, 1)
	go func() {
		_, err := s.Write(sent)
		wrote <- errors.Join(err, s.CloseWrite())
	}()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("cat gave %d bytes, %v; want the %d that it got", len(got), err, len(sent))
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if code := exitCode(t, s); code != 0 {
		t.Errorf("ExitCode(cat) = %d; want 0", code)
	}

	s = open(t, c, id, engine.Exec{Args: []string{"/helper", "both"}, User: "0:0"})
	if got, err := io.ReadAll(s); string(got) != "to stdout" || err != nil || s.Stderr() != "to stderr" {
		t.Errorf("both gave %q, %v, stderr %q; want each in its place", got, err, s.Stderr())
	}

	s = open(t, c, id, engine.Exec{Args: []string{"/helper", "exit", "42"}, User: "0:0"})
	if _, err := io.ReadAll(s); err != nil {
		t.Error(err)
	}
	if code := exitCode(t, s); code != 42 {
		t.Errorf("ExitCode(exit 42) = %d; want 42", code)
	}

	s = open(t, c, id, engine.Exec{Args: []string{"/helper", "winsize"}, User: "0:0", TTY: true, Rows: 33, Cols: 111})
	if _, err := s.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); !strings.Contains(string(got), "&{33 111 ") || err != nil {
		t.Errorf("winsize gave %q, %v; want 33 rows and 111 columns", got, err)
	}

	if _, err := c.OpenExec(t.Context(), "0123", engine.Exec{Args: []string{"/helper"}}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("OpenExec(unknown container) = %v; want ErrNotFound", err)
	}
}

// A Close while a Read waits ends the Read.
func TestEngineExecClose(t *testing.T) {
	t.Parallel()
	c := dockertest.Connect(t)
	image, _ := importHelper(t, c)
	id := create(t, c, shape(image))
	s := open(t, c, id, engine.Exec{Args: []string{"/helper", "cat"}, User: "0:0"})
	read := make(chan error, 1)
	go func() {
		_, err := s.Read(make([]byte, 1))
		read <- err
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Read() while closing = %v; want an error that is not the end", err)
	}
}

func TestEngineImages(t *testing.T) {
	t.Parallel()
	c := dockertest.Connect(t)
	id, ref := importHelper(t, c)
	img, err := c.Image(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if img.ID != id || !slices.Contains(img.Refs, ref) || img.OS != "linux" || img.Arch != runtime.GOARCH || img.Size == 0 || img.Created.IsZero() {
		t.Errorf("Image(%s) = %+v; want what was imported", ref, img)
	}
	if got, want := img.Labels[testLabel], `a "quoted" $HOME \ value`; got != want {
		t.Errorf("Image().Labels = %q; want %q", got, want)
	}
	all, err := c.Images(t.Context())
	if err != nil || !slices.ContainsFunc(all, func(i engine.Image) bool { return i.ID == id }) {
		t.Errorf("Images() = %d images, %v; want %s among them", len(all), err, id)
	}
	if _, err := c.Image(t.Context(), unique()); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("Image(unknown) = %v; want ErrNotFound", err)
	}
	want := shape("sha256:" + engine.ImageID(strings.Repeat("0", 64)))
	if _, _, err := c.CreateContainer(t.Context(), want); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("CreateContainer(unknown image) = %v; want ErrNotFound", err)
	}
	if _, err := c.LoadImages(t.Context(), strings.NewReader("no archive"), nil); err == nil {
		t.Error("LoadImages(garbage) = nil; want an error")
	}
	if _, err := c.BuildImage(t.Context(), bytes.NewReader(nil), engine.Build{}, nil); err == nil {
		t.Error("BuildImage(nothing) = nil; want an error")
	}
}

func TestEngineBindMissing(t *testing.T) {
	t.Parallel()
	c := dockertest.Connect(t)
	image, _ := importHelper(t, c)
	want := shape(image)
	want.Spec.Mounts = []specs.Mount{{Type: "bind", Source: "/nowhere/" + unique(), Destination: "/workspace"}}
	if _, _, err := c.CreateContainer(t.Context(), want); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("CreateContainer(bind of a missing directory) = %v; want ErrInvalid", err)
	}
}
