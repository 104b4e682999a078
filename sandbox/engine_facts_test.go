package sandbox_test

import (
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

	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// fill starts processes until there can be no more, says so, and waits.
const fill = `exec perl -e '$SIG{TERM}="IGNORE"; $|=1;
	for (1..2000) { my $p = fork; last if !defined $p; if (!$p) { sleep 1000; exit } }
	print "full\n"; sleep 1000'`

func TestThreadsAtThePidsLimit(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Pids: 128}})
	client := dockertest.Connect(t)
	script(t, s, "true")
	pid1, before := onHost(t, s)
	if len(before) != 1 {
		t.Fatalf("%d runners; want 1", len(before))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := begin(ctx, t, s, sandbox.Command{Script: fill}, "full")
	use, err := client.ContainerUsage(t.Context(), docker.ContainerID(s.Info().Container))
	if err != nil || use.Pids < use.PidsLimit {
		t.Errorf("Usage() = %+v, %v; want the pids limit reached", use, err)
	}
	const spare = 16
	for name, pid := range map[string]int{"PID 1": pid1, "the runner": before[0]} {
		if n, _ := strconv.Atoi(proc(t, pid, "status", "Threads")); n < spare {
			t.Errorf("%s has %d threads at the limit; want at least %d", name, n, spare)
		}
	}
	// The runner kills everything although nothing can be started.
	cancel()
	if e := <-done; e.err != nil || e.res.Reason != exec.Cancelled || e.res.Killed != "kill" {
		t.Errorf("Run(fill) = %+v, %v; want cancelled by kill", e.res, e.err)
	}
	if got := script(t, s, "echo alive"); got != "alive\n" {
		t.Errorf("the next command printed %q", got)
	}
	after1, after := onHost(t, s)
	if after1 != pid1 || !slices.Equal(after, before) {
		t.Errorf("PID 1 and runners were %d %v, are %d %v; want the same", pid1, before, after1, after)
	}
}

// Leftovers that take every place are killed for the next command.
func TestLeftoversMakeRoom(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Pids: 128}})
	pid1, _ := onHost(t, s)
	// One stays that takes every place that becomes free.
	greedy := `perl -e 'exit if fork; close STDOUT;
		for (;;) { my $p = fork; if (!defined $p) { select undef, undef, undef, 0.005; next } if (!$p) { sleep 1000; exit } }'
		sleep 0.5`
	if res, err := s.Run(t.Context(), sandbox.Command{Script: greedy, Timeout: 30 * time.Second}); err != nil || res.Left == 0 {
		t.Fatalf("Run(greedy) = %+v, %v; want children left", res, err)
	}
	// What could not be started has taken nothing of its input.
	text := strings.Repeat("alive\n", 1000)
	res, err := s.Run(t.Context(), sandbox.Command{Script: "cat", Stdin: strings.NewReader(text), Timeout: 30 * time.Second})
	if err != nil || !res.Room || res.Output.Stdout.Text() != text {
		t.Errorf("Run(cat) = %d bytes, %+v, %v; want its input, in the room that was made", len(res.Output.Stdout.Text()), res.Status, err)
	}
	if now, _ := onHost(t, s); now != pid1 {
		t.Errorf("PID 1 was %d, is %d; want the same container", pid1, now)
	}
}

// Commands have their soft limit of open files in every runner. The engine's runc may
// give an exec the hard one, the more often the more begin at once.
func TestOpenFiles(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() { // the child has the runner retire, so that there are many
			res, err := s.Run(t.Context(), sandbox.Command{Script: "ulimit -S -n; sleep 2 >/dev/null &", Timeout: time.Minute})
			if want := fmt.Sprintln(wire.OpenFiles); err != nil || res.Output.Stdout.Text() != want {
				t.Errorf("ulimit -n = %q, %v; want %q", res.Output.Stdout.Text(), err, want)
			}
		})
	}
	all.Wait()
}

func TestOOMScores(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	done := begin(t.Context(), t, s, sandbox.Command{Script: "cat /proc/self/oom_score_adj /proc/$$/oom_score_adj; sleep 1000", Timeout: 2 * time.Second}, "1000\n1000\n")
	pid1, runners := onHost(t, s)
	check := func(when string) {
		for _, pid := range append(runners, pid1) {
			if got := proc(t, pid, "oom_score_adj", ""); got != "500" {
				t.Errorf("%s: oom_score_adj of %s = %s; want 500", when, proc(t, pid, "cmdline", ""), got)
			}
		}
	}
	check("while a command runs")
	if e := <-done; e.err != nil {
		t.Fatal(e.err)
	}
	script(t, s, "true")
	check("after commands")
}

func TestReopenStreams(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	for _, tt := range []struct{ script, stdout, stderr string }{
		{"echo x >/dev/stderr", "", "x\n"},
		{"echo x >/dev/stdout", "x\n", ""},
		{"echo x | tee /dev/stdout", "x\nx\n", ""},
		{"echo x | tee /dev/stderr >/dev/null", "", "x\n"},
		{": >/dev/stderr; echo x >>/proc/self/fd/1", "x\n", ""},
		{"(echo a >/dev/fd/2) && bash -c 'echo b >/dev/stderr'", "", "a\nb\n"},
	} {
		res, err := s.Run(t.Context(), sandbox.Command{Script: tt.script, Timeout: 30 * time.Second})
		if out, errs := res.Output.Stdout.Text(), res.Output.Stderr.Text(); err != nil || res.Code != 0 || out != tt.stdout || errs != tt.stderr {
			t.Errorf("Run(%q) = code %d, %v, %q, %q; want %q, %q", tt.script, res.Code, err, out, errs, tt.stdout, tt.stderr)
		}
		merged := sandbox.Command{Script: tt.script, Timeout: 30 * time.Second, Output: sink.Options{Streams: sink.Merged}}
		if got := run(t, s, merged); got != tt.stdout+tt.stderr {
			t.Errorf("Run(%q) merged = %q; want %q", tt.script, got, tt.stdout+tt.stderr)
		}
	}
	if got := run(t, s, sandbox.Command{Script: "cat /dev/stdin", Stdin: strings.NewReader("in")}); got != "in" {
		t.Errorf("cat /dev/stdin = %q; want in", got)
	}
}

func TestWorkingDirectoryAsTheUser(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	script(t, s, "mkdir -p mine/sub none; chmod 700 mine; chmod 0 none; mkdir out; echo >file; ln -s mine link; ln -s loop loop; mkdir $'a\\nb'")
	for dir, want := range map[string]exec.Cause{
		"mine": "", "mine/sub": "", "link": "", "": "", "/": "", "a\nb": "",
		"none": exec.CauseDirDenied, "none/x": exec.CauseDirDenied, "/run/sandboxbash": exec.CauseDirDenied, "/proc/1/root": exec.CauseDirDenied, "loop": exec.CauseDirDenied,
		"missing": exec.CauseDirMissing, "/proc/self/fd/70": exec.CauseDirMissing, "file": exec.CauseNotDir, "file/x": exec.CauseNotDir,
	} {
		res, err := s.Run(t.Context(), sandbox.Command{Script: "pwd", Dir: dir, Timeout: 30 * time.Second})
		if want == "" && (err != nil || res.Code != 0) || want != "" && !isError(err, exec.NotStarted, want) {
			t.Errorf("Run(pwd in %q) = %+v, %v; want %q", dir, res.Status, err, want)
		}
	}
	if got := run(t, s, sandbox.Command{Script: "pwd", Dir: "mine/sub/../../mine"}); got != "/workspace/mine\n" {
		t.Errorf("pwd = %q; want /workspace/mine", got)
	}
}

// Whatever the workspace, its user owns it: git, which asks for that, works.
func TestWorkspaceOwnership(t *testing.T) {
	t.Parallel()
	dockertest.Connect(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to give a directory to another user")
	}
	bound := t.TempDir()
	if err := errors.Join(os.Chown(bound, 4321, 4322), os.Chmod(filepath.Dir(bound), 0o755)); err != nil { //nolint:gosec // the user must reach it
		t.Fatal(err)
	}
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		spec sandbox.Spec
		want string
	}{
		"volume":           {sandbox.Spec{}, "1000:1000"},
		"limited volume":   {sandbox.Spec{Limits: sandbox.Limits{Disk: 32 << 20}}, "1000:1000"},
		"another user":     {sandbox.Spec{User: &sandbox.User{UID: 77, GID: 78}}, "77:78"},
		"copy":             {sandbox.Spec{Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: source, Target: "/workspace"}}, "1000:1000"},
		"bind":             {sandbox.Spec{Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: bound, Target: bound}}, "4321:4322"},
		"dev":              {sandbox.Spec{Profile: sandbox.Dev}, "0:0"},
		"dev with a limit": {sandbox.Spec{Profile: sandbox.Dev, Limits: sandbox.Limits{Disk: 32 << 20}}, "0:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.spec)
			if got := script(t, s, "stat -c %u:%g ."); got != tt.want+"\n" {
				t.Errorf("the workspace belongs to %q; want %s", got, tt.want)
			}
			got := script(t, s, "git init -q . && date >new && git add -A && git commit -q -m one && git log --format=%s")
			if got != "one\n" {
				t.Errorf("git log = %q; want one", got)
			}
			if name != "bind" {
				return
			}
			if owner := ownerOf(t, filepath.Join(bound, "new")); owner != tt.want {
				t.Errorf("on the host the new file belongs to %s; want %s", owner, tt.want)
			}
		})
	}
}

// ownerOf is who owns a file of this machine, as stat(1) says.
func ownerOf(t *testing.T, file string) string {
	t.Helper()
	out, err := osexec.CommandContext(t.Context(), "stat", "-c", "%u:%g", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestCapabilitiesOfACommand(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	got := script(t, s, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'; setsid bash -c 'grep CapEff /proc/self/status' | tr -d '\\t'")
	want := "CapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:00000000000000e0\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\nCapEff:0000000000000000\n"
	if got != want {
		t.Errorf("status of a command:\n%s\nwant\n%s", got, want)
	}
	pid1, runners := onHost(t, s)
	for _, pid := range append(runners, pid1) {
		if got := proc(t, pid, "status", "CapBnd"); got != "00000000000000e0" {
			t.Errorf("CapBnd of %d = %s; want 00000000000000e0", pid, got)
		}
	}
}
