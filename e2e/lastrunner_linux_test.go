package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// lastRunner is the runner of the program before this one. It is replaced when a
// version of this program is released.
const lastRunner = "testdata/last-runner-linux-amd64.gz"

// lastProgram builds the program with the last runner in it: its sessions are those of
// the version before, as far as the protocol goes.
func lastProgram(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the last runner is kept for amd64 only")
	}
	path := func(name string) string {
		abs, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		return abs
	}
	dir := t.TempDir()
	// It made sessions of the shape before, of which a host expects what their runners can report.
	spec, err := os.ReadFile("../sandbox/spec.go")
	if err != nil {
		t.Fatal(err)
	}
	shaped := strings.Replace(string(spec), "const currentShape = 2\n", "const currentShape = 1\n", 1)
	if shaped == string(spec) {
		t.Fatal("the shape has changed: say here which one the last runner's sessions have")
	}
	if err := os.WriteFile(filepath.Join(dir, "spec.go"), []byte(shaped), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		path("../images/runner/runner-linux-amd64.gz"): path(lastRunner),
		path("../sandbox/spec.go"):                     filepath.Join(dir, "spec.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	file, last := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "last")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-o", last, "../cmd/sandboxbash")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program with the last runner: %v\n%s", err, out)
	}
	return last
}

// Sessions of the program before go on working: what this program and their runners say
// to each other is that program's protocol.
func TestLastRunner(t *testing.T) {
	t.Parallel()
	needEngine(t)
	home, last := t.TempDir(), lastProgram(t)
	volume := ""
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "docker", "volume", "rm", volume).Run()
	}) // another test may use it
	id := program(t, home, last, "session", "start", "--idle", "5m")
	t.Cleanup(func() {
		sandboxbash(t, home, "session", "stop", id)
		if left := engineThings([]string{"sandboxbash-" + id, "sandboxbash-" + id + "-jobs"}); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	volume = program(t, home, "docker", "inspect", "--format", `{{range .Mounts}}{{if eq .Destination "/.sandboxbash"}}{{.Name}}{{end}}{{end}}`, "sandboxbash-"+id)
	sum := program(t, home, "sh", "-c", "zcat "+lastRunner+" | sha256sum")
	if got := sandboxbash(t, home, "session", "exec", id, "sha256sum </.sandboxbash/runner"); got != sum {
		t.Fatalf("the session's runner is %s; want the last one, %s", got, sum)
	}
	oldJob, _, _ := strings.Cut(program(t, home, last, "run", "--session", id, "--background", "echo from the last; exec sleep 4951"), " ") // it printed the pid, too
	oldPTY := program(t, home, last, "pty", "start", id, "-c", "echo a terminal of the last; read line; echo got $line; exec sleep 4952")

	now := func(args ...string) string { t.Helper(); return sandboxbash(t, home, args...) }
	says := func(want string, args ...string) {
		t.Helper()
		if got := now(args...); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("sandboxbash %s: %q; want a match of %q", strings.Join(args, " "), got, want)
		}
	}
	gone := func(mark string) {
		t.Helper()
		if got := now("session", "exec", id, "pgrep -f '[s]leep "+mark+"' || echo none"); got != "none" {
			t.Errorf("sleep %s is still there: %s", mark, got)
		}
	}

	// Commands, their input and output, and their ends.
	says(`^1000 got$`, "run", "--session", id, `read a <<<got; echo $(id -u) $a`)
	start := time.Now()
	kill := exec.CommandContext(t.Context(), filepath.Join(built, "sandboxbash"), "run", "--session", id, "--timeout", "1s", "--json",
		`trap "" TERM; setsid sleep 4953 & sleep 4954 & while :; do sleep 0.1; done`)
	kill.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home)
	out, err := kill.Output()
	exit, _ := errors.AsType[*exec.ExitError](err)
	var ended struct{ Reason, Killed string }
	if json.Unmarshal(out, &ended) != nil || exit == nil || exit.ExitCode() != 124 || ended.Reason != "timed-out" || ended.Killed != "kill" {
		t.Errorf("a command that ignores SIGTERM: %v, %s; want exit status 124, timed-out and killed by kill", err, out)
	}
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("it took %v; want at most 6s", took)
	}
	gone("4953")
	gone("4954")
	says(`"command":"sleep 4951"`, "session", "ps", id, "--json")

	// Files.
	src, dst := filepath.Join(t.TempDir(), "pushed"), filepath.Join(t.TempDir(), "pulled")
	if err := os.MkdirAll(filepath.Join(src, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "sub", "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	now("session", "push", src, id+":")
	now("session", "exec", id, "cd pushed/sub && printf ' and more' >>file && ln -s file link")
	now("session", "pull", id+":/workspace/pushed", dst)
	if b, err := os.ReadFile(filepath.Join(dst, "sub", "link")); string(b) != "content and more" {
		t.Errorf("pulled %q, %v; want what the session has", b, err)
	}

	// Jobs, of the last program and of this one.
	says(`(?s)from the last`, "job", "logs", oldJob, "--session", id)
	newJob := now("run", "--session", id, "--background", "echo from this one; exec sleep 4955")
	for _, job := range []string{oldJob, newJob} {
		says(`"state":"running"`, "job", "show", job, "--session", id, "--json")
		now("job", "stop", job, "--session", id)
		says(`"state":"cancelled"`, "job", "show", job, "--session", id, "--json")
	}
	says(`from this one`, "job", "logs", newJob, "--session", id)
	gone("4951")
	gone("4955")

	// Terminals, of the last program and of this one.
	newPTY := now("pty", "start", "--size", "40x8", id, "-c", "echo a terminal of this one; read line; echo got $line; exec sleep 4956")
	for _, pty := range []string{oldPTY, newPTY} {
		says(pty, "pty", "ls")
		says(`needs_input`, "pty", "wait", "--input", pty)
		now("pty", "write", "--keys", "enter", pty, "typed")
		says(`output`, "pty", "wait", "--text", "got typed", pty)
		says(`(?s)a terminal of (the last|this one).*typed.*got typed`, "pty", "screen", "-q", pty)
		now("pty", "stop", pty)
	}
	gone("4952")
	gone("4956")
}
