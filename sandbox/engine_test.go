package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// These tests hold what a session promises against a real engine: the facts that
// the runner has to live with, and what happens to a container from outside.
// What they believe they read from the host.

// start starts a session of the image host, which ends with the test.
func start(t *testing.T, spec sandbox.Spec) *sandbox.Session {
	t.Helper()
	client := dockertest.Connect(t)
	return startWith(t, client, resolver(t, client), spec)
}

func resolver(t *testing.T, client *docker.Client) *images.Resolver {
	t.Helper()
	r, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newEngine owns sessions on a Docker engine.
func newEngine(client *docker.Client, r *images.Resolver, opts sandbox.Options) *sandbox.Engine {
	return sandbox.New(docker.NewEngine(client, images.Runner), r, opts)
}

func startWith(t *testing.T, client *docker.Client, imgs *images.Resolver, spec sandbox.Spec) *sandbox.Session {
	t.Helper()
	return startIn(t, client, newEngine(client, imgs, sandbox.Options{}), spec)
}

func startIn(t *testing.T, client *docker.Client, e *sandbox.Engine, spec sandbox.Spec) *sandbox.Session {
	t.Helper()
	if spec.Image == "" {
		spec.Image = "host"
	}
	s, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start(%+v) = %v", spec, err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Stop(ctx), e.Close(ctx)); err != nil {
			t.Errorf("Stop() = %v", err)
		}
		if _, err := client.Container(ctx, "sandboxbash-"+s.ID()); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the container after Stop(): %v; want not found", err)
		}
		if _, err := client.Volume(ctx, "sandboxbash-"+s.ID()); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the workspace after Stop(): %v; want not found", err)
		}
	})
	return s
}

// run runs a script that must exit with 0, and returns its standard output.
func run(t *testing.T, s *sandbox.Session, c sandbox.Command) string {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	res, err := s.Run(t.Context(), c)
	if err != nil || res.Reason != exec.Exited || res.Code != 0 {
		t.Fatalf("Run(%q) = %s, code %d, %v\n%s%s", c.Script, res.Reason, res.Code, err, res.Output.Stdout.Text(), res.Output.Stderr.Text())
	}
	return res.Output.Stdout.Text()
}

func script(t *testing.T, s *sandbox.Session, text string) string {
	t.Helper()
	return run(t, s, sandbox.Command{Script: text})
}

// cli runs the docker command line.
func cli(t *testing.T, args ...string) string {
	t.Helper()
	out, err := osexec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func cliLater(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		_ = osexec.CommandContext(context.WithoutCancel(t.Context()), "docker", args...).Run()
	})
}

// onHost are the host's pids of a session's PID 1 and runners, by /proc.
func onHost(t *testing.T, s *sandbox.Session) (pid1 int, runners []int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to see the container's processes in /proc")
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		group, err := os.ReadFile(dir + "/cgroup")
		if err != nil || !bytes.Contains(group, []byte(s.Info().Container)) {
			continue
		}
		argv, _ := os.ReadFile(dir + "/cmdline")
		pid, _ := strconv.Atoi(filepath.Base(dir))
		switch {
		case bytes.HasPrefix(argv, []byte("/.sandboxbash/runner\x00init\x00")):
			pid1 = pid
		case bytes.Equal(argv, []byte("/.sandboxbash/runner\x00serve\x00")):
			runners = append(runners, pid)
		}
	}
	if pid1 == 0 {
		t.Skip("the container's processes are not in this machine's /proc")
	}
	return pid1, runners
}

// proc reads one file of a process; a line of it if key is not "".
func proc(t *testing.T, pid int, file, key string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	if key == "" {
		return strings.TrimSpace(string(b))
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("/proc/%d/%s has no %s", pid, file, key)
	return ""
}

func isError(err error, outcome exec.Outcome, causes ...exec.Cause) bool {
	var e *exec.Error
	return errors.As(err, &e) && e.Outcome == outcome && slices.Contains(causes, e.Cause)
}

// awaited is a writer that tells when a word has been written.
type awaited struct {
	word string
	seen chan struct{}
	once sync.Once
	mu   sync.Mutex
	got  []byte // guarded by mu
}

func await(word string) *awaited { return &awaited{word: word, seen: make(chan struct{})} }

func (a *awaited) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got = append(a.got, p...); bytes.Contains(a.got, []byte(a.word)) {
		a.once.Do(func() { close(a.seen) })
	}
	return len(p), nil
}

// ended is a Run's end.
type ended struct {
	res  sandbox.Result
	err  error
	took time.Duration
}

// begin runs a command in parallel with the test, and returns once it has printed word.
func begin(ctx context.Context, t *testing.T, s *sandbox.Session, c sandbox.Command, word string) <-chan ended {
	t.Helper()
	printed := await(word)
	c.Output.LiveStdout = printed
	done := make(chan ended, 1)
	go func() {
		start := time.Now()
		res, err := s.Run(ctx, c)
		done <- ended{res, err, time.Since(start)}
	}()
	select {
	case <-printed.seen:
	case e := <-done:
		t.Fatalf("Run(%q) = %+v, %v before it printed %q", c.Script, e.res, e.err, word)
	case <-time.After(30 * time.Second):
		t.Fatalf("no %q within 30s", word)
	}
	return done
}
