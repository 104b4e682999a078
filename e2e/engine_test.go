package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownEngine is an engine of the test's own, with its own socket, data root and
// network namespace: one that may be stopped.
type ownEngine struct {
	dir    string
	driver string
	daemon *exec.Cmd
	exited chan struct{}
}

// newOwnEngine starts one. It needs root and dockerd.
func newOwnEngine(t *testing.T) *ownEngine {
	t.Helper()
	needEngine(t)
	if os.Getuid() != 0 {
		t.Skip("starting an engine of one's own needs root")
	}
	for _, program := range []string{"dockerd", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("starting an engine of one's own needs %s", program)
		}
	}
	driver, err := exec.CommandContext(t.Context(), "docker", "info", "--format", "{{.Driver}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	e := &ownEngine{dir: t.TempDir(), driver: strings.TrimSpace(string(driver))}
	t.Cleanup(func() { e.stop(t) }) // before the directory goes
	e.start(t)
	return e
}

func (e *ownEngine) address() string { return "unix://" + filepath.Join(e.dir, "docker.sock") }

// start starts the daemon and waits until it answers.
func (e *ownEngine) start(t *testing.T) {
	t.Helper()
	config := filepath.Join(e.dir, "daemon.json")
	if err := os.WriteFile(config, []byte(`{"storage-driver":"`+e.driver+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// In a network namespace of its own: an engine without a bridge removes docker0.
	e.daemon = exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", "--net", "dockerd", "--config-file", config, "-H", e.address(),
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"), "-p", filepath.Join(e.dir, "pid"),
		"--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false")
	e.daemon.Stdout, e.daemon.Stderr = log, log
	if err := e.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	e.exited = make(chan struct{})
	go func() {
		defer close(e.exited)
		_ = e.daemon.Wait() // its exit code does not matter
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if exec.CommandContext(t.Context(), "docker", "-H", e.address(), "version").Run() == nil {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(e.dir, "log"))
			t.Fatalf("the engine does not answer:\n%s", text)
		}
	}
}

// stop ends the daemon, which ends its containers, and waits.
func (e *ownEngine) stop(t *testing.T) {
	t.Helper()
	if err := e.daemon.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	select {
	case <-e.exited:
	case <-time.After(time.Minute):
		t.Error("the engine does not end")
		_ = e.daemon.Process.Kill()
		<-e.exited
	}
}

// command is the program, speaking to this engine, with a home of its own.
func (e *ownEngine) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(built, "sandboxbash"), args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.address(), "HOME="+e.dir, "XDG_STATE_HOME="+e.dir, "XDG_CONFIG_HOME="+e.dir,
		"XDG_CACHE_HOME="+e.dir, "SANDBOXBASH_IMAGE=host", "SANDBOXBASH_QUIET=true")
	return cmd
}

// run runs a command that must succeed.
func (e *ownEngine) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := e.command(t, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sandboxbash %q: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// Scenario 74, row L3: an engine that is restarted under a command gives an error
// in bounded time, never a result; nothing is run twice; the next session works,
// and what is left of the old one goes.
func TestEngineRestart(t *testing.T) {
	e := newOwnEngine(t)
	id := e.run(t, "session", "start", "--workspace", "volume")
	victim := e.command(t, "session", "exec", "--json=false", id, "echo x >>started; echo before; sleep 60")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	victim.Stderr = &stderr
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "before\n" || err != nil {
		t.Fatalf("the command printed %q, %v; want before", line, err)
	}

	e.stop(t)
	began := time.Now()
	var exit *exec.ExitError
	if err := victim.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 125 {
		t.Errorf("the command under the restart: %v; want exit status 125\n%s", err, &stderr)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the command ended %s after its engine; want at most 20s", took)
	}
	e.start(t)

	// The old session is dead and says so; it is not started again behind anybody's back.
	lost := e.command(t, "session", "exec", id, "true")
	if err := lost.Run(); !errors.As(err, &exit) || exit.ExitCode() != 125 {
		t.Errorf("a command in the lost session: %v; want exit status 125", err)
	}
	next := e.run(t, "session", "start")
	if got := e.run(t, "session", "exec", next, "echo again"); got != "again" {
		t.Errorf("the next session printed %q; want again", got)
	}
	e.run(t, "session", "reap")
	var list []struct{ ID string }
	if err := json.Unmarshal([]byte(e.run(t, "session", "ls", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].ID != next {
		t.Errorf("sessions after the reap: %+v; want %s alone", list, next)
	}
	e.run(t, "session", "stop", next)
	left, err := exec.CommandContext(t.Context(), "docker", "-H", e.address(), "ps", "-aq").Output()
	if err != nil || len(left) > 0 {
		t.Errorf("containers left: %q, %v; want none", left, err)
	}
}
