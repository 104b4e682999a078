package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/sandboxbash/sandboxbash/e2e/probe/expect"
)

// laneCheck is one thing that every lane can do, or has in its differences.
type laneCheck struct {
	name string
	run  func(*testing.T, *laneRun)
}

// laneChecks run one after the other, on one session but where a check says
// otherwise. The first starts it and the last stops it.
var laneChecks = []laneCheck{
	{"doctor finds nothing wrong", func(t *testing.T, on *laneRun) {
		args := []string{"doctor"}
		if on.runtime != "" {
			args = append(args, "--runtime", on.runtime)
		}
		if out := on.run(t, args...); !strings.Contains(out, "confined as profile strict should be") {
			t.Errorf("doctor: %s", out)
		}
	}},
	{"the runtime is the one asked for", checkRuntime},
	{"a session starts", func(t *testing.T, on *laneRun) {
		on.session = on.run(t, append(on.startFlags(), "--workspace", "copy:"+on.probe, "--pids", "128", "--memory", "256m")...)
	}},
	{"exit codes, streams, input", func(t *testing.T, on *laneRun) {
		for _, tt := range []struct {
			script, want string
			status       int
		}{
			{"echo out; echo err >&2; exit 7", "out", 7},
			{"kill -SEGV $$", "", 139},
			{"id -u; pwd; umask", "1000\n/workspace\n0022", 0},
			{"touch /etc/x || echo refused", "refused", 0},
			{"seq 200000 | tail -n 1", "200000", 0},
		} {
			if out, code := on.in(t, on.session, tt.script); out != tt.want || code != tt.status {
				t.Errorf("%s: %q, status %d; want %q, %d", tt.script, out, code, tt.want, tt.status)
			}
		}
		cmd := on.command(t.Context(), "session", "exec", "--stdin", on.session, "sha256sum; echo done")
		cmd.Stdin = strings.NewReader(strings.Repeat("a line of input\n", 100_000))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), inputSum) || !strings.HasSuffix(string(out), "done\n") {
			t.Errorf("1.6 MB of input: %s, %v; want %s", out, err, inputSum)
		}
	}},
	{"terminal", checkTerminal},
	{"K: killed at the timeout, double forks too", checkKill},
	{"files in and out", func(t *testing.T, on *laneRun) {
		dir := t.TempDir()
		content := strings.Repeat("bytes\x00\xff", 50_000)
		if err := os.WriteFile(filepath.Join(dir, "in"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		on.run(t, "session", "push", filepath.Join(dir, "in"), on.session+":")
		on.run(t, "session", "exec", on.session, "cp in out; rm in")
		on.run(t, "session", "pull", on.session+":out", filepath.Join(dir, "pulled"))
		got, err := os.ReadFile(filepath.Join(dir, "pulled", "out"))
		if err != nil || string(got) != content {
			t.Errorf("pulled %d bytes, %v; want the %d that were pushed", len(got), err, len(content))
		}
	}},
	{"jobs", func(t *testing.T, on *laneRun) {
		out, err := on.try(t.Context(), "run", "--json", "--session", on.session, "--background", "echo from the job; exit 3")
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			jobs := listJobsAt(t, on)
			if len(jobs) == 1 && jobs[0].ExitCode != nil {
				if *jobs[0].ExitCode != 3 {
					t.Errorf("the job's exit code is %d; want 3 (%s)", *jobs[0].ExitCode, out)
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the job does not end: %+v", jobs)
			}
		}
	}},
	{"E: the probe", func(t *testing.T, on *laneRun) {
		out, code := on.in(t, on.session, "--timeout", "90s", "./probe all")
		if code != 0 {
			t.Errorf("the probe's exit status is %d", code)
		}
		on.checkProbe(t, expect.Strict, out)
	}},
	{"E1: the same on a terminal", func(t *testing.T, on *laneRun) {
		out := on.onTerminal(t, "for k in CapEff CapBnd NoNewPrivs Seccomp; do grep ^$k: /proc/self/status; done", 0)
		got := strings.Join(strings.Fields(out), " ")
		if want := "CapEff: 0000000000000000 CapBnd: 00000000000000e0 NoNewPrivs: 1 Seccomp: 2"; got != want {
			t.Errorf("on a terminal: %s; want %s", got, want)
		}
	}},
	{"E27: an image fills no volume of ours", checkHostileImage},
	{"R1: fork bomb", func(t *testing.T, on *laneRun) {
		began := time.Now()
		_, code := on.in(t, on.session, "--timeout", "2s", ":(){ :|:& };: ; wait; sleep 60")
		if took := time.Since(began); code != 124 || took > 30*time.Second {
			t.Errorf("a fork bomb: status %d after %s; want 124", code, took)
		}
		on.works(t)
	}},
	{"R3: memory hog", func(t *testing.T, on *laneRun) {
		out, code := on.in(t, on.session, "--json", `exec perl -e '$x = q(a) x 2_000_000_000; sleep 9'`)
		var said struct{ Reason string }
		if json.Unmarshal([]byte(out), &said) != nil || code != 137 || said.Reason != "oom-killed" {
			t.Errorf("a memory hog: status %d, %s; want 137, oom-killed", code, out)
		}
		on.works(t)
	}},
	{"R6: number of files", func(t *testing.T, on *laneRun) {
		out, _ := on.in(t, on.session, `cd /tmp; perl -e 'for (1..300000) { open(F, q(>), qq(/tmp/f$_)) or print($!), last; close F }'; find /tmp -name 'f*' -delete`)
		if out != "No space left on device" {
			t.Errorf("300000 files: %q; want them refused", out)
		}
	}},
	{"R7: open files", func(t *testing.T, on *laneRun) {
		out, _ := on.in(t, on.session, `perl -e 'my @f; while (open(my $f, q(<), q(/dev/null))) { push @f, $f } print $!'`)
		if out != "Too many open files" {
			t.Errorf("open files: %q; want them refused", out)
		}
	}},
	{"R13: size of the workspace", func(t *testing.T, on *laneRun) {
		id := on.begin(t, "--disk", "8m")
		out, _ := on.in(t, id, "head -c 20M /dev/zero 2>&1 >fill | tail -n 1; stat -c %s fill; rm fill; echo works >file; cat file")
		if !strings.HasSuffix(out, "8388608\nworks") {
			t.Errorf("20 MB in 8: %q", out)
		}
	}},
	{"R11: processor time", func(t *testing.T, on *laneRun) {
		id := on.begin(t, "--cpus", "0.5")
		out, _ := on.in(t, id, "--json", "--timeout", "3s", "for i in $(seq 16); do (while :; do :; done) & done; wait")
		var said struct {
			Usage struct{ CPUMs int }
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil || said.Usage.CPUMs > 2500 || said.Usage.CPUMs == 0 {
			t.Errorf("16 busy loops on half a processor for 3 s used %d ms (%v)", said.Usage.CPUMs, err)
		}
	}},
	{"the container started again", func(t *testing.T, on *laneRun) {
		if _, err := on.docker(t.Context(), "restart", "-t", "0", "sandboxbash-"+on.session); err != nil {
			t.Fatal(err)
		}
		out, code := on.in(t, on.session, "--timeout", "90s", "./probe all")
		if code != 0 {
			t.Errorf("the probe's exit status is %d", code)
		}
		on.checkProbe(t, expect.Strict, out)
	}},
	{"nothing is left", func(t *testing.T, on *laneRun) {
		on.run(t, "session", "stop", on.session)
		containers, err := on.docker(t.Context(), "ps", "-a", "--format", "{{.Names}}")
		volumes, err2 := on.docker(t.Context(), "volume", "ls", "--format", "{{.Name}}")
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		for _, name := range strings.Fields(containers + " " + volumes) {
			if strings.Contains(name, on.session) {
				t.Errorf("left: %s", name)
			}
		}
	}},
}

// inputSum is the SHA-256 of 100,000 times "a line of input\n".
const inputSum = "61c35b0899cf656eca8516e3cb51bc94bb948e643a0d5ae9e583010d9b9c0059"

func (on *laneRun) startFlags() []string {
	flags := []string{"session", "start", "--idle", "10m"}
	if on.runtime != "" {
		flags = append(flags, "--runtime", on.runtime)
	}
	return flags
}

// works checks that the session still does.
func (on *laneRun) works(t *testing.T) {
	t.Helper()
	if out, code := on.in(t, on.session, "echo works"); out != "works" || code != 0 {
		t.Errorf("then: %q, status %d; want works", out, code)
	}
}

func listJobsAt(t *testing.T, on *laneRun) []jobFound {
	t.Helper()
	var jobs []jobFound
	if err := json.Unmarshal([]byte(on.run(t, "job", "ls", "--json", "--session", on.session)), &jobs); err != nil {
		t.Fatal(err)
	}
	return jobs
}

// checkRuntime asks a runtime that the engine does not have: it must not be
// replaced by another.
func checkRuntime(t *testing.T, on *laneRun) {
	out, err := on.try(t.Context(), "run", "--runtime", "no-such-runtime", "echo it ran")
	if status(err) == 0 || strings.Contains(out, "it ran") {
		t.Errorf("--runtime no-such-runtime: %q, %v; want a refusal", out, err)
	}
}

// onTerminal runs a script in the session on a terminal of the test's.
func (on *laneRun) onTerminal(t *testing.T, script string, code int) string {
	t.Helper()
	cmd := on.command(t.Context(), "run", "--pty", "--session", on.session, script)
	keys, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 43, Cols: 132})
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	out, err := io.ReadAll(keys)
	if err != nil && !isEIO(err) {
		t.Error(err)
	}
	if got := status(cmd.Wait()); got != code {
		t.Errorf("%s on a terminal: status %d, %q; want %d", script, got, out, code)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

// isEIO: what a terminal says when all who had it are gone.
func isEIO(err error) bool {
	pathErr, ok := err.(*os.PathError)
	return ok && pathErr.Err == syscall.EIO
}

func checkTerminal(t *testing.T, on *laneRun) {
	out := on.onTerminal(t, "stty size; tty; exit 7", 7)
	if !strings.Contains(out, "43 132\n") || !strings.Contains(out, "/dev/pts/") {
		t.Errorf("on a terminal: %q; want 43 132 and its name", out)
	}
}

// checkKill counts what is left of a command from outside of the container.
func checkKill(t *testing.T, on *laneRun) {
	mark := fmt.Sprintf("lane-kill-%s-%d", on.name, os.Getpid())
	began := time.Now()
	_, code := on.in(t, on.session, "--timeout", "1s", "--env", "M="+mark,
		`trap "" TERM; setsid sleep 300 & setsid -f sleep 300; (setsid bash -c 'trap "" TERM; (sleep 300) & sleep 300' &) ; sleep 300`)
	if took := time.Since(began); code != 124 || took > 30*time.Second {
		t.Errorf("status %d after %s; want 124", code, took)
	}
	pattern := regexp.MustCompile(mark)
	if left := inContainers(pattern); len(left) > 0 && !strings.Contains(fmt.Sprint(left), "sandboxbash") {
		t.Errorf("survivors: %v", left)
	}
	// The control: one that is meant to live is seen from here.
	on.in(t, on.session, "--env", "M="+mark+"-lives", "setsid -f sleep 300")
	if left := inContainers(regexp.MustCompile(mark + "-lives")); len(left) == 0 {
		t.Error("a process that lives cannot be seen from outside: that none was found proves nothing")
	}
}

// checkHostileImage starts from an image that brings files for all our volumes,
// writable for the session's user, where the engine has lost the runner's volume.
func checkHostileImage(t *testing.T, on *laneRun) {
	const tag = "sbx-e2e-lane-hostile:1"
	host := on.run(t, "image", "host")
	build := t.TempDir()
	dir := filepath.Join(build, "files")
	script := "mkdir -p /x/.sandboxbash /x/run/jobs /x/workspace && echo 'echo pwned' >/x/.sandboxbash/runner && echo planted | tee /x/run/jobs/planted >/x/workspace/planted && chmod -R 777 /x"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(script, "/x", dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := on.docker(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	must("tag", host, "sbx-e2e-lane-base:1")
	if err := os.WriteFile(filepath.Join(build, "Dockerfile"), []byte("FROM sbx-e2e-lane-base:1\nCOPY --chown=1000:1000 files /\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	on.run(t, "image", "build", build, tag)
	t.Cleanup(func() {
		for _, name := range []string{tag, "sbx-e2e-lane-base:1"} {
			_, _ = on.docker(context.WithoutCancel(t.Context()), "rmi", name)
		}
	})
	id := on.begin(t, "--image", tag)
	out, code := on.in(t, id, "id -u; ls -A /workspace /run/jobs; touch /run/jobs/x /.sandboxbash/x; stat -c %u /run/jobs; head -c 4 /.sandboxbash/runner | tail -c 3")
	if want := "1000\n/run/jobs:\n\n/workspace:\n0\nELF"; code != 0 || out != want {
		t.Errorf("on a hostile image: %q, status %d; want %q", out, code, want)
	}
}
