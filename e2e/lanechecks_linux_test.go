package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
var laneChecks = slices.Concat(ordinaryChecks, escapeChecks, resourceChecks, factChecks, behaviourChecks, lastChecks)

var ordinaryChecks = []laneCheck{
	{"doctor finds nothing wrong", func(t *testing.T, on *laneRun) {
		args := []string{"doctor"}
		if on.runtime != "" {
			args = append(args, "--runtime", on.runtime)
		}
		if out, err := on.try(t.Context(), args...); err != nil || !strings.Contains(out, "confined as profile strict should be") {
			t.Errorf("doctor: %v\n%s", err, out)
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
		on.run(t, "session", "pull", on.session+":out", filepath.Join(dir, "pulled")+string(filepath.Separator))
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
}

var lastChecks = []laneCheck{
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
		for name := range strings.FieldsSeq(containers + " " + volumes) {
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
func isEIO(err error) bool { return errors.Is(err, syscall.EIO) }

func checkTerminal(t *testing.T, on *laneRun) {
	out := on.onTerminal(t, "stty size; tty; exit 7", 7)
	if !strings.Contains(out, "43 132\n") || !strings.Contains(out, "/dev/pts/") {
		t.Errorf("on a terminal: %q; want 43 132 and its name", out)
	}
}

// checkKill counts what is left of a command from outside of the container.
func checkKill(t *testing.T, on *laneRun) {
	mark := "lane-kill-" + on.session
	began := time.Now()
	_, code := on.in(t, on.session, "--timeout", "1s", "--env", "M="+mark,
		`trap "" TERM; setsid sleep 300 & setsid -f sleep 300; (setsid bash -c 'trap "" TERM; (sleep 300) & sleep 300' &) ; sleep 300`)
	if took := time.Since(began); code != 124 || took > 30*time.Second {
		t.Errorf("status %d after %s; want 124", code, took)
	}
	pattern := regexp.MustCompile(regexp.QuoteMeta(mark))
	if left := inContainers(pattern); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
	// The control: one that is meant to live is seen from here.
	on.in(t, on.session, "--env", "M="+mark+"-lives", "setsid -f sleep 300")
	if left := inContainers(regexp.MustCompile(mark + "-lives")); len(left) == 0 {
		t.Error("a process that lives cannot be seen from outside: that none was found proves nothing")
	}
}
