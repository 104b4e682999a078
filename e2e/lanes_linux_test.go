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

// A lane is a runtime on an engine. The same list of checks, laneChecks, runs on
// each; what a lane may do otherwise stands in differences, with the reason. A lane
// that cannot be had here is skipped, with the reason: that is not passing. See
// docs/lanes.md.
type lane struct {
	name    string
	runtime string // for --runtime; "" is the engine's default
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

// hybrid is where cgroup v2 is mounted in addition to v1. crun
// refuses to work where that has a controller; nothing of ours needs it.
const hybrid = "/sys/fs/cgroup/unified"

// A laneEngine is an engine and the lanes on it.
type laneEngine struct {
	name  string
	start func(*testing.T) seat
	lanes []lane
}

var laneEngines = []laneEngine{
	{"docker", hereSeat, []lane{{name: "runc"}}},
	{"docker-own", startDocker, []lane{
		{name: "crun", runtime: "crun"},
		{name: "runsc", runtime: "runsc", refused: "PR_SET_CHILD_SUBREAPER"},
	}},
	{"podman", startPodman("crun"), []lane{{name: "crun", differences: podmanDifferences}}},
}

var podmanDifferences = []difference{
	{"E12 cgroup-path = shown", "Podman 4.3.1 does not read CgroupnsMode, and has no cgroup namespace by default where cgroups are of version 1; a note says so at every start"},
	{"E31 5.4", "Podman's inspect lists what it has dropped of its own default, and not ALL: the probe reads the capabilities of the process itself"},
	{"E31 5.28", "Podman's inspect has a name of the image where the container was made from its ID"},
}

// startDocker starts a Docker engine that has those of the other runtimes that are
// here.
func startDocker(t *testing.T) seat {
	t.Helper()
	runtimes := map[string]any{}
	if path, err := exec.LookPath("crun"); err == nil {
		runtimes["crun"] = map[string]any{"path": path}
	}
	if path, err := exec.LookPath("runsc"); err == nil {
		// Without a bridge there is no network to give, and gVisor knows no cgroups of
		// version 1 that an engine in a container may make.
		runtimes["runsc"] = map[string]any{"path": path, "runtimeArgs": []string{"--network=none", "--ignore-cgroups", "--platform=ptrace", "--oci-seccomp"}}
	}
	if len(runtimes) == 0 {
		t.Skip("not run: there is neither crun nor runsc here (Debian packages of these names)")
	}
	opts := engines.Options{Config: map[string]any{"runtimes": runtimes}}
	if isMounted(hybrid) {
		opts.Hide = []string{hybrid}
	}
	return newOwnEngine(t, opts).seat
}

// startPodman starts Podman's service with that runtime.
func startPodman(runtime string) func(*testing.T) seat {
	return func(t *testing.T) seat {
		t.Helper()
		needEngine(t)
		needProgram(t, "podman")
		needProgram(t, runtime)
		dir, err := os.MkdirTemp("", "sbx") //nolint:usetesting // short: a socket's path has at most 107 bytes
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

// everyLane has TestLanes start engines of its own too, which takes minutes: make lanes
// sets it.
var everyLane = os.Getenv("SANDBOXBASH_TEST_LANES") == "all"

// TestLanes runs the checks on the lanes of the environment's engine, or on every lane.
func TestLanes(t *testing.T) { //nolint:tparallel // its engines would start in parallel with the tests of limits
	needEngine(t)
	probe := buildProbe(t)
	tried := laneEngines[:1]
	if everyLane {
		tried = laneEngines
	}
	for _, p := range tried {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := p.start(t)
			prepare(t, s)
			for _, l := range p.lanes {
				t.Run(l.name, func(t *testing.T) { runLane(t, &laneRun{lane: l, seat: s, probe: probe, met: map[string]bool{}}) })
			}
		})
	}
}

// prepare has a new engine make the host image and the volume of its programs. That
// takes a while, on a busy machine longer than one call to an engine may: it goes on
// meanwhile, and no check is about that.
func prepare(t *testing.T, s seat) {
	t.Helper()
	s.run(t, "image", "host")
	for range 3 {
		_, err := s.try(t.Context(), "run", "true")
		if err == nil {
			return
		}
		t.Logf("the first session: %v", err)
	}
}

func runLane(t *testing.T, on *laneRun) {
	if on.runtime != "" {
		needProgram(t, on.runtime)
	}
	t.Logf("on %s", on.used(t))
	if on.refused != "" {
		refuses(t, on)
		t.Skipf("not run: sessions are refused, as they must be (%s)", on.refused)
	}
	for _, c := range laneChecks {
		t.Run(c.name, func(t *testing.T) {
			if d, ok := on.allowed(c.name); ok {
				t.Skipf("not run: %s", d.reason)
			}
			c.run(t, on)
		})
	}
	for _, d := range on.differences {
		if !on.met[d.what] && !t.Failed() {
			t.Errorf("the list of differences has %q, and it is not so: take it out", d.what)
		}
	}
}

// used says what the lane is made of, by the engine's word and the runtime's.
func (on *laneRun) used(t *testing.T) string {
	t.Helper()
	engine, err := on.docker(t.Context(), "version", "--format", "{{range .Server.Components}}{{.Name}} {{.Version}}; {{end}}API {{.Server.APIVersion}}")
	if err != nil {
		t.Fatal(err)
	}
	info, err := on.docker(t.Context(), "info", "--format", "{{.Driver}}, cgroup v{{.CgroupVersion}}, kernel {{.KernelVersion}}")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(engine+"; "+info), " ")
	if on.runtime != "" {
		version, err := exec.CommandContext(t.Context(), on.runtime, "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(version), "\n")
		text += "; " + first
	}
	return text
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
func refuses(t *testing.T, on *laneRun) {
	t.Helper()
	before, err := on.docker(t.Context(), "ps", "-aq")
	if err != nil {
		t.Fatal(err)
	}
	out, err := on.try(t.Context(), "run", "--runtime", on.runtime, "echo it ran")
	if status(err) != 125 || !strings.Contains(err.Error(), on.refused) || strings.Contains(out, "it ran") {
		t.Errorf("run: %q, %v; want exit status 125 and %q (if this %s can do it by now, give the lane its differences)", out, err, on.refused, on.runtime)
	}
	out, err = on.try(t.Context(), "doctor", "--runtime", on.runtime)
	if err == nil || !strings.Contains(out, "fail") || !strings.Contains(out, on.refused) {
		t.Errorf("doctor: %v\n%s\nwant a failure with %q", err, out, on.refused)
	}
	if left, err := on.docker(t.Context(), "ps", "-aq"); err != nil || left != before {
		t.Errorf("containers left: %q, %v; before there were %q", left, err, before)
	}
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

func sameDevice(a, b os.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Dev == y.Dev
}
