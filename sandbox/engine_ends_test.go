package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// In profile dev a command is its runner's equal. It can end it, and is never
// believed for it.
func TestDevKillsItsRunner(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Profile: sandbox.Dev})
	script(t, s, "echo kept >f")
	for _, kill := range []string{"echo before; kill -9 $PPID; sleep 100", "kill -9 -1; kill -9 1; sleep 100"} {
		res, err := s.Run(t.Context(), sandbox.Command{Script: kill, Timeout: 20 * time.Second})
		if !isError(err, exec.Unknown, exec.CauseRunnerLost) {
			t.Errorf("Run(%q) = %+v, %v; want outcome-unknown{runner-lost}", kill, res.Status, err)
		}
		// A reset has 2 s. A session that it could not be done for is lost, and says so.
		if _, err := s.Run(t.Context(), sandbox.Command{Script: "true"}); isError(err, exec.Lost, sandbox.CauseKilled, sandbox.CauseRemoved) {
			t.Logf("after %q the engine was too slow for a reset: %v", kill, err)
			s = start(t, sandbox.Spec{Profile: sandbox.Dev})
			script(t, s, "echo kept >f")
			continue
		}
		if got := script(t, s, "cat f; ps ax | grep -c '[s]leep 100' || true"); got != "kept\n0\n" {
			t.Errorf("after %q: %q; want the file kept and nothing of the command", kill, got)
		}
	}
}

func TestPausedContainer(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	id := s.Info().Container
	const timeout = 6 * time.Second // in which the engine pauses it, also on a busy machine
	done := begin(t.Context(), t, s, sandbox.Command{Script: "echo kept >f; echo ready; sleep 1000", Timeout: timeout}, "ready")
	cli(t, "pause", id)
	cliLater(t, "unpause", id)
	e := <-done
	// Some engines kill a paused container: then the reset was the end of it.
	reset := e.err == nil && e.res.Reason == exec.TimedOut && e.res.Killed == "reset"
	if !reset && !isError(e.err, exec.Unknown, exec.CauseUnconfirmed, sandbox.CausePaused) || e.took > timeout+5*time.Second {
		t.Errorf("Run() in a paused container = %+v, %v after %v; want a reset or outcome-unknown by 11s", e.res.Status, e.err, e.took)
	}
	if cli(t, "inspect", "-f", "{{.State.Status}}", id) == "paused" {
		if _, err := s.Run(t.Context(), sandbox.Command{Script: "true", Timeout: time.Second}); err == nil {
			t.Error("Run() in a paused container = nil; want an error")
		}
		cli(t, "unpause", id)
	}
	res, err := s.Run(t.Context(), sandbox.Command{Script: "cat f", Timeout: 20 * time.Second})
	if err == nil && res.Output.Stdout.Text() != "kept\n" || err != nil && !isError(err, exec.Lost, sandbox.CauseKilled, sandbox.CauseRemoved) {
		t.Errorf("Run() after unpause = %+v, %v; want it to work or the session typed lost", res.Output.Stdout.Text(), err)
	}
}

func TestContainerEndsFromOutside(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end   []string
		cause exec.Cause
	}{
		"killed":  {[]string{"kill"}, sandbox.CauseKilled},
		"ended":   {[]string{"kill", "--signal", "TERM"}, sandbox.CauseStopped},
		"removed": {[]string{"rm", "-f"}, sandbox.CauseRemoved},
		"stopped": {[]string{"stop"}, sandbox.CauseStopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, sandbox.Spec{})
			done := begin(t.Context(), t, s, sandbox.Command{Script: "echo partial; sleep 1000", Timeout: time.Minute}, "partial")
			cli(t, append(tt.end, s.Info().Container)...)
			e := <-done
			if !isError(e.err, exec.Lost, tt.cause) || e.res.Output.Stdout.Text() != "partial\n" {
				t.Errorf("Run() = %q, %v; want session-lost{%s} with the output so far", e.res.Output.Stdout.Text(), e.err, tt.cause)
			}
			if _, err := s.Run(t.Context(), sandbox.Command{Script: "true"}); !isError(err, exec.Lost, tt.cause) {
				t.Errorf("Run() afterwards = %v; want session-lost{%s}", err, tt.cause)
			}
		})
	}
}

// The kernel kills PID 1 at the memory limit, because this test has made it the
// first choice: what fills the memory is files, and no process is larger.
func TestOOMOfPID1(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20}})
	script(t, s, "true")
	pid1, _ := onHost(t, s)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid1), []byte("1000"), 0o644); err != nil { //nolint:gosec // it exists
		t.Fatal(err)
	}
	res, err := s.Run(t.Context(), sandbox.Command{Script: "for f in /dev/shm/x /tmp/x ~/x; do head -c 64M /dev/zero >$f; done; sleep 1000", Timeout: 30 * time.Second})
	if !isError(err, exec.Lost, sandbox.CauseOOM) {
		t.Errorf("Run() = %+v, %v; want session-lost{oom}", res.Status, err)
	}
}

// A command at the memory limit is what the kernel kills, and the session lives.
func TestOOMOfACommand(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20}})
	for _, hog := range []string{
		`exec perl -e '$x = "a" x (256 << 20)'`,
		`perl -e '$x = "a" x (256 << 20)'`, // the last command of a shell that lives
	} {
		res, err := s.Run(t.Context(), sandbox.Command{Script: hog, Timeout: 30 * time.Second})
		if err != nil || res.Reason != exec.OOMKilled {
			t.Errorf("Run(%q) = %+v, %v; want oom-killed", hog, res.Status, err)
		}
	}
	if got := script(t, s, "echo alive"); got != "alive\n" {
		t.Errorf("the next command printed %q", got)
	}
	// A kill from outside has another cause, although there was an OOM kill before.
	cli(t, "kill", s.Info().Container)
	if _, err := s.Run(t.Context(), sandbox.Command{Script: "true"}); !isError(err, exec.Lost, sandbox.CauseKilled, sandbox.CauseOOM) {
		t.Errorf("Run() = %v; want session-lost", err)
	}
}

// A runner volume that a prune has emptied is filled again, and never from the
// image of a session: this one brings a runner of its own.
func TestRunnerVolumePruned(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	resolver, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	host, err := resolver.Host(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	evil := "#!/bin/sh\necho evil >/workspace/evil\nexec sleep 1000\n"
	dockerfile := "FROM " + string(host.ID) + "\nCOPY runner /.sandboxbash/runner\n"
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "runner"), []byte(evil), 0o755), //nolint:gosec // it is a program
		os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	hostile := "sbx-test-hostile:" + id
	cli(t, "build", "-q", "-t", hostile, dir)
	cliLater(t, "rmi", hostile)

	// The control: without our care the image fills the volume, and its program runs.
	control := "sandboxbash-runner-control-" + id
	cliLater(t, "volume", "rm", control)
	if got := cli(t, "run", "--rm", "--network=none", "-v", control+":/.sandboxbash:ro", hostile, "cat", "/.sandboxbash/runner"); !strings.Contains(got, "evil") {
		t.Fatalf("the control does not show the hole: %q", got)
	}

	// Other tests use the genuine volume at the same time: this one is the test's own.
	own := "test-" + id
	volume := "sandboxbash-runner-" + own
	for _, name := range []string{volume, volume + "-filled"} {
		cli(t, "volume", "create", name) // empty, as after a prune, and marked as filled
	}
	cliLater(t, "rmi", "sandboxbash/runner:"+own)
	cliLater(t, "volume", "rm", volume, volume+"-filled")
	runner := func(arch string) (engine.Content, error) {
		c, err := images.Runner(arch)
		c.ID = own
		return c, err
	}
	s := startIn(t, client, sandbox.New(docker.NewEngine(client, runner), resolver, sandbox.Options{}), sandbox.Spec{Image: hostile})
	if got := script(t, s, "ls; head -c 4 /.sandboxbash/runner | tail -c 3"); got != "ELF" {
		t.Errorf("in the session: %q; want only our runner", got)
	}
}

// After a reset the user has a home again, and a pids limit that a host left raised
// when it ended is what it was: the session is checked and goes on.
func TestHomeAfterReset(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	cli(t, "update", "--pids-limit", "2000", s.Info().Container)
	const look = "stat -c %a:%u ~; cat ~/.gitconfig; git init -q g && cd g && git commit -q --allow-empty -m x && git log --format=%an"
	want := script(t, s, look)
	script(t, s, "rm -r g")
	done := begin(t.Context(), t, s, sandbox.Command{Script: "echo ready; sleep 1000", Timeout: 6 * time.Second}, "ready")
	_, runners := onHost(t, s)
	for _, pid := range runners {
		if out, err := osexec.CommandContext(t.Context(), "kill", "-STOP", strconv.Itoa(pid)).CombinedOutput(); err != nil {
			t.Fatalf("kill -STOP: %v\n%s", err, out)
		}
	}
	if e := <-done; e.err != nil || e.res.Killed != "reset" || e.took > 11*time.Second {
		t.Fatalf("Run() with a stopped runner = %+v, %v after %s; want a reset by 11s", e.res.Status, e.err, e.took)
	}
	if got := script(t, s, look); got != want {
		t.Errorf("the home after a reset: %q; want %q", got, want)
	}
}
