package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxbash/sandboxbash/e2e/engines"
	"github.com/sandboxbash/sandboxbash/e2e/probe/expect"
)

// A lane is an engine with a runtime. The same list of checks, laneChecks, runs on
// each; what a lane may do otherwise stands in differences, with the reason. A lane
// that cannot be had here is skipped, with the reason: that is not passing. See
// docs/lanes.md.
type lane struct {
	name    string
	runtime string // for --runtime; "" is the engine's default
	start   func(*testing.T) seat
	// refused is what the program says on a lane where it cannot do its work; ""
	// where it can. It must refuse, and leave nothing.
	refused     string
	differences []difference
}

// A difference is something that a lane may do otherwise than runc on Docker.
type difference struct {
	what   string // the name of a check, or a line of the probe with its outcome
	reason string
}

// hybrid is where the second version of cgroups is mounted beside the first. crun
// refuses to work where that has a controller; nothing of ours needs it.
const hybrid = "/sys/fs/cgroup/unified"

var lanes = []lane{
	{name: "docker-runc", start: func(t *testing.T) seat { return hereSeat(t) }},
	{name: "docker-crun", runtime: "crun", start: dockerLane("crun", "crun")},
	{
		name: "docker-runsc", runtime: "runsc", start: dockerLane("runsc", "runsc"),
		refused: "PR_SET_CHILD_SUBREAPER",
	},
	{name: "podman-runc", start: podmanLane("runc"), differences: podmanDifferences},
	{name: "podman-crun", start: podmanLane("crun"), differences: podmanDifferences},
}

var podmanDifferences = []difference{
	{"E12 cgroup-path = shown", "Podman 4.3.1 does not read CgroupnsMode, and has no cgroup namespace by default where cgroups are of version 1; a note says so at every start"},
}

// dockerLane starts a Docker engine with that runtime registered.
func dockerLane(name, program string) func(*testing.T) seat {
	return func(t *testing.T) seat {
		needProgram(t, program)
		path := lookPath(program)
		runtime := map[string]any{"path": path}
		if name == "runsc" {
			// Without a bridge there is no network to give, and gVisor knows no cgroups
			// of version 1 that an engine in a container may make.
			runtime["runtimeArgs"] = []string{"--network=none", "--ignore-cgroups", "--platform=ptrace", "--oci-seccomp"}
		}
		opts := engines.Options{Config: map[string]any{"runtimes": map[string]any{name: runtime}}}
		if isMounted(hybrid) {
			opts.Hide = []string{hybrid}
		}
		return newOwnEngine(t, opts).seat
	}
}

// podmanLane starts Podman's service with that runtime.
func podmanLane(runtime string) func(*testing.T) seat {
	return func(t *testing.T) seat {
		t.Helper()
		needEngine(t)
		needProgram(t, "podman")
		dir, err := os.MkdirTemp("", "sbx")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		opts := engines.PodmanOptions{Dir: dir, Runtime: runtime}
		if runtime == "crun" && isMounted(hybrid) {
			opts.Hide = []string{hybrid}
		}
		p, err := engines.StartPodman(t.Context(), opts)
		if errors.Is(err, engines.ErrNotHere) {
			t.Skipf("not run: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("Podman said:\n%s", lastOf(p.Log(), 4000))
			}
		})
		return seat{host: p.Host(), home: t.TempDir()}
	}
}

// TestLanes runs the checks on every lane.
func TestLanes(t *testing.T) {
	needEngine(t)
	probe := buildProbe(t)
	for _, l := range lanes {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := l.start(t)
			if l.refused != "" {
				refuses(t, l, s)
				return
			}
			on := &laneRun{lane: l, seat: s, probe: probe, met: map[string]bool{}}
			for _, c := range laneChecks {
				t.Run(c.name, func(t *testing.T) {
					if d, ok := on.allowed(c.name); ok {
						t.Logf("not run on %s: %s", l.name, d.reason)
						return
					}
					c.run(t, on)
				})
			}
			for _, d := range l.differences {
				if !on.met[d.what] && !t.Failed() {
					t.Errorf("%s: the list of differences has %q, and it is not so: take it out", l.name, d.what)
				}
			}
		})
	}
}

// laneRun is a lane at work.
type laneRun struct {
	lane
	seat
	probe   string // directory of the probe
	session string // once started
	met     map[string]bool
}

// allowed finds a difference, and notes that it was met.
func (on *laneRun) allowed(what string) (difference, bool) {
	i := slices.IndexFunc(on.differences, func(d difference) bool { return d.what == what })
	if i < 0 {
		return difference{}, false
	}
	on.met[what] = true
	return on.differences[i], true
}

// begin starts a session of the lane's runtime.
func (on *laneRun) begin(t *testing.T, flags ...string) string {
	t.Helper()
	args := append([]string{"session", "start", "--idle", "10m"}, flags...)
	if on.runtime != "" {
		args = append(args, "--runtime", on.runtime)
	}
	id := on.run(t, args...)
	t.Cleanup(func() { _, _ = on.try(context.WithoutCancel(t.Context()), "session", "stop", id) }) // it may be stopped already
	return id
}

// in runs a script in a session, and returns its output and exit status.
func (on *laneRun) in(t *testing.T, id string, args ...string) (string, int) {
	t.Helper()
	out, err := on.try(t.Context(), append(append([]string{"session", "exec"}, args[:len(args)-1]...), id, args[len(args)-1])...)
	return out, status(err)
}

// refuses checks that a lane that cannot do the work says so, and why, by doctor
// too, and that nothing is left.
func refuses(t *testing.T, l lane, s seat) {
	t.Helper()
	out, err := s.try(t.Context(), "run", "--runtime", l.runtime, "echo it ran")
	if status(err) != 125 || !strings.Contains(err.Error(), l.refused) || strings.Contains(out, "it ran") {
		t.Errorf("run: %q, %v; want exit status 125 and %q", out, err, l.refused)
	}
	out, err = s.try(t.Context(), "doctor", "--runtime", l.runtime)
	if err == nil || !strings.Contains(out, "fail") || !strings.Contains(out, l.refused) {
		t.Errorf("doctor: %v\n%s\nwant a failure with %q", err, out, l.refused)
	}
	if left, err := s.docker(t.Context(), "ps", "-aq"); err != nil || left != "" {
		t.Errorf("containers left: %q, %v", left, err)
	}
	t.Logf("not run on %s: sessions are refused (%s)", l.name, l.refused)
}

// checkProbe compares the probe's lines with what the column wants, but for the
// lane's differences.
func (on *laneRun) checkProbe(t *testing.T, column expect.Column, output string) {
	t.Helper()
	for _, wrong := range expect.Check(column, output) {
		what, _, _ := strings.Cut(wrong, ";")
		if _, ok := on.allowed(what); !ok {
			t.Error(wrong)
		}
	}
}

func lastOf(text string, n int) string { return text[max(0, len(text)-n):] }

func isMounted(dir string) bool {
	var here, above os.FileInfo
	var err error
	if here, err = os.Stat(dir); err != nil {
		return false
	}
	if above, err = os.Stat(filepath.Dir(dir)); err != nil {
		return false
	}
	return !sameDevice(here, above)
}

// needProgram skips where a program of a Debian package is missing.
func needProgram(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("not run: there is no %s here (Debian package %[1]s)", program)
	}
}

func lookPath(program string) string {
	path, _ := exec.LookPath(program) // needProgram has found it
	return path
}

func sameDevice(a, b os.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Dev == y.Dev
}
