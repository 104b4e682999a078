// Package e2e tests the built binary from outside, against a real engine. Nothing
// of ours is imported: what a script sees is what a user sees.
//
// Scripts are in testdata/script; docs of the language are testscript's, the
// commands of our own are in commands_test.go. Names decide how a script runs:
// cli-* needs no engine, slow-* has the machine to itself, because it measures
// time or load, and all others run in parallel.
package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

const scripts = "testdata/script"

// keepVariable keeps the images and volumes that the tests have made.
const keepVariable = "SANDBOXBASH_E2E_KEEP"

// built is the directory of the binary under test.
var built string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sandboxbash-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	if err := goBuild(dir, "../cmd/sandboxbash"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, name := range []string{"GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION"} {
		_ = os.Unsetenv(name) // what is printed depends on them; tests of that set them
	}
	before := made()
	code := m.Run()
	if err := sweep(before); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// noEngine leaves the environment's engine alone: others may be using it.
var noEngine = os.Getenv("SANDBOXBASH_TEST_ENGINE") == "none"

// goBuild builds a program into a directory. Where SANDBOXBASH_TEST_PROGRAMS names a directory of programs, it is
// taken from there: a guest of e2e/lanes has no Go.
func goBuild(dir, pkg string, env ...string) error {
	out := filepath.Join(dir, filepath.Base(pkg))
	if from := os.Getenv("SANDBOXBASH_TEST_PROGRAMS"); from != "" {
		program, err := os.ReadFile(filepath.Join(from, filepath.Base(pkg)))
		if err != nil {
			return err
		}
		return os.WriteFile(out, program, 0o755)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", out, pkg)
	build.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// made lists the images and volumes that are kept between sessions; nil without
// an engine.
func made() []string {
	if noEngine {
		return nil
	}
	var all []string
	for _, args := range [][]string{
		{"image", "ls", "--filter", "reference=sandboxbash/*", "--format", "{{.Repository}}:{{.Tag}}"},
		{"volume", "ls", "--filter", "name=sandboxbash-runner-", "--filter", "name=sandboxbash-programs-", "--filter", "name=sandboxbash-accounts-", "--format", "{{.Name}}"},
	} {
		out, err := exec.Command("docker", args...).Output()
		if err != nil {
			return nil
		}
		all = append(all, strings.Fields(string(out))...)
	}
	return all
}

// sweep removes what was made for the tests, by the program's own means, unless
// there was something before: then it belongs to the user, as does what they asked to keep.
func sweep(before []string) error {
	if len(before) > 0 || os.Getenv(keepVariable) != "" || len(made()) == 0 {
		return nil
	}
	if out, err := exec.Command(filepath.Join(built, "sandboxbash"), "image", "rm", "--all").CombinedOutput(); err != nil {
		return fmt.Errorf("sandboxbash image rm --all: %w\n%s", err, out)
	}
	if left := made(); len(left) > 0 {
		return fmt.Errorf("sandboxbash image rm --all has left: %s", strings.Join(left, " "))
	}
	return nil
}

// hostImage makes the host image, once, and says why not if it cannot.
var hostImage = sync.OnceValue(func() error {
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		return fmt.Errorf("no engine answers: %w\n%s", err, out)
	}
	if out, err := exec.Command(filepath.Join(built, "sandboxbash"), "image", "host").CombinedOutput(); err != nil {
		return fmt.Errorf("sandboxbash image host: %w\n%s", err, out)
	}
	return nil
})

// needEngine skips where there is none on purpose, and fails in CI.
func needEngine(t *testing.T) {
	t.Helper()
	if noEngine {
		t.Skip("needs an engine, and SANDBOXBASH_TEST_ENGINE=none")
	}
	if err := hostImage(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// TestCommandLine runs the scripts that need no engine.
func TestCommandLine(t *testing.T) {
	runScripts(t, offline, func(name string) bool { return strings.HasPrefix(name, "cli-") })
}

var sleepMark = regexp.MustCompile(`sleep (4[0-9]{3})\b`)

// TestMarks checks that no two tests look for the same process: they look at all
// containers, and run at the same time.
func TestMarks(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"testdata/script/*.txtar", "*_test.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	first := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sleepMark.FindAllStringSubmatch(string(text), -1) {
			if was, ok := first[m[1]]; ok && was != file {
				t.Errorf("sleep %s is in %s and in %s: give each a number of its own", m[1], was, file)
			}
			first[m[1]] = file
		}
	}
}

// TestSlow runs the scripts that measure, one after the other.
func TestSlow(t *testing.T) {
	needEngine(t)
	runScripts(t, alone, func(name string) bool { return strings.HasPrefix(name, "slow-") })
}

// TestSessions runs all other scripts.
func TestSessions(t *testing.T) {
	needEngine(t)
	runScripts(t, together, func(name string) bool {
		return !strings.HasPrefix(name, "cli-") && !strings.HasPrefix(name, "slow-")
	})
}

// mode is how scripts run.
type mode int

const (
	together mode = iota
	alone
	offline
)

func runScripts(t *testing.T, how mode, want func(name string) bool) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(scripts, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range all {
		if want(filepath.Base(f)) {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatalf("no script in %s", scripts)
	}
	p := testscript.Params{
		Files: files, Cmds: commands, RequireUniqueNames: true, Condition: condition,
		Setup: func(e *testscript.Env) error { return setup(e, how) },
	}
	p.Deadline, _ = t.Deadline()
	testscript.RunT(shim{T: t, how: how}, p)
}

// condition knows [root]: this user may do what root may.
func condition(name string) (bool, error) {
	if name != "root" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return os.Getuid() == 0, nil
}

// setup gives a script its own home and its own way to the engine, and checks at
// its end that nothing of what it made is left.
func setup(e *testscript.Env, how mode) error {
	home := filepath.Join(e.WorkDir, ".home")
	for _, dir := range []string{home, home + "/config", home + "/state"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	e.Setenv("HOME", home)
	e.Setenv("XDG_CONFIG_HOME", home+"/config")
	e.Setenv("XDG_STATE_HOME", home+"/state")
	e.Setenv("STATE", home+"/state")
	e.Setenv("PATH", built+string(os.PathListSeparator)+os.Getenv("PATH"))
	e.Setenv("SANDBOXBASH_IMAGE", "host")
	e.Setenv("DIRS", cmp.Or(os.Getenv("SANDBOXBASH_TEST_DIRS"), "10")) // of many.txtar, a thousand files each
	e.Setenv(scriptVariable, e.WorkDir)
	e.Values[lastRun{}] = new(run)
	if how == offline {
		e.Setenv("DOCKER_HOST", "unix://"+e.WorkDir+"/no-engine.sock")
		return nil
	}
	p, err := newProxy()
	if err != nil {
		return err
	}
	e.Values[proxyKey{}] = p
	e.Setenv("DOCKER_HOST", "unix://"+p.socket)
	t, ok := e.T().(shim)
	if !ok {
		return errors.New("the scripts run without runScripts")
	}
	e.Defer(func() {
		left := leftovers(p.created(), e.WorkDir, settle)
		p.close()
		if len(left) > 0 && !t.Failed() {
			t.Fatal("left behind:\n  " + strings.Join(left, "\n  "))
		}
	})
	return nil
}

// shim is a test as testscript wants it.
type shim struct {
	*testing.T
	how mode
}

// Run runs a script.
func (s shim) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(shim{T: t, how: s.how}) })
}

// Parallel is called for every script.
func (s shim) Parallel() {
	if s.how != alone {
		s.T.Parallel()
	}
}

// Verbose reports whether to log the parts of a script that succeed.
func (shim) Verbose() bool { return false }
