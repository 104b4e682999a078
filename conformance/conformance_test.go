package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// numbers are those of the list of scenarios that the project was given.
var numbers = strings.Fields("1 2 4 5 6 8 9 11 12 13 15 16 18 19 21 22 23 25 27 28 29 31 32 33 35 37 38 40 41 43 44 46 " +
	"47 49 50 52 53 55 56 57 59 61 63 64 65 66 67 69 70 71 73 74 75 77 79 80 81")

// TestScenarios checks that every number is asked, or it is said why not.
func TestScenarios(t *testing.T) {
	t.Parallel()
	groups, err := loadGroups()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, g := range groups {
		all = append(all, g.ids()...)
	}
	for _, n := range numbers {
		if !slices.Contains(all, n) {
			t.Errorf("number %s is neither a scenario nor listed as not asked", n)
		}
	}
	for _, id := range all {
		if !slices.Contains(numbers, strings.TrimRight(id, "abcdefgh")) {
			t.Errorf("scenario %s is not of the list", id)
		}
	}
}

// TestTargets checks that our targets can be read, and name scenarios that there are.
func TestTargets(t *testing.T) {
	t.Parallel()
	groups, err := loadGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range targetNames() {
		target, err := loadTarget(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, id := range slices.Concat(sortedKeys(target.Known), sortedKeys(target.Unclaimed)) {
			if _, err := (options{only: []string{id}}).pick(groups); err != nil {
				t.Errorf("target %s: %v", name, err)
			}
		}
	}
}

// TestPage checks that the page has a row for every scenario that the data has, as it is there.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	groups, err := loadGroups()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, g := range groups {
		for _, s := range g.Scenarios {
			rows++
			if want := fmt.Sprintf("\n| %s | %s | ", s.ID, oneLine(s.Title)); !strings.Contains(string(text), want) {
				t.Errorf("docs/conformance.md has no row %q: run make conformance", want)
			}
		}
		for _, n := range g.NotAsked {
			if want := fmt.Sprintf("\n- %s, %s: %s.\n", n.ID, n.Title, n.Reason); !strings.Contains(string(text), want) {
				t.Errorf("docs/conformance.md does not say %q: run make conformance", want)
			}
		}
	}
	if got := len(regexp.MustCompile(`(?m)^\| [0-9]+[a-h]? \|`).FindAllString(string(text), -1)); got != rows {
		t.Errorf("docs/conformance.md has %d rows; want %d: run make conformance", got, rows)
	}
}

// local is this machine's bash as a tool. What stands in front of the shell is a wrapper's way to spoil it.
func local(t *testing.T, wrapper string) *Target {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc, and uses GNU timeout")
	}
	target, err := loadTarget("bash")
	if err != nil {
		t.Fatal(err)
	}
	if wrapper == "" {
		return target
	}
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("#!/bin/bash\n"+wrapper+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	target.Vars = map[string]string{"tool": path}
	target.Run = "{tool} {session} {script}"
	target.Long = ""
	return target
}

// outcomes asks a target some scenarios. It may be called from any goroutine.
func outcomes(t *testing.T, target *Target, ids ...string) map[string]Outcome {
	t.Helper()
	o := options{only: ids, jobs: 4}
	groups, err := loadGroups()
	if err == nil {
		groups, err = o.pick(groups)
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	got := make(map[string]Outcome)
	for id, r := range askTarget(t.Context(), target, groups, o, func(r Result) { t.Logf("%s: %s %s: %s", target.Name, r.ID, r.Outcome, r.Detail) }) {
		got[id] = r.Outcome
	}
	return got
}

// TestBadTools is the control of the kit: tools that do one thing wrong fail what is about that thing,
// and pass the rest.
func TestBadTools(t *testing.T) {
	t.Parallel()
	// A wrapper is given the session's directory and a script.
	tests := []struct {
		name    string
		wrapper string
		want    map[string]Outcome
	}{
		{
			name: "good", wrapper: `cd "$1" && exec bash -c "$2"`,
			want: map[string]Outcome{"1": Pass, "2": Pass, "4": Pass, "11": Pass, "18": Pass, "29": Pass, "16b": Pass, "25": Pass, "47": Pass, "56b": Pass, "57": Pass},
		},
		{
			name: "gives text for bytes", wrapper: `cd "$1"; bash -c "$2" | tr -d '\0'; exit ${PIPESTATUS[0]}`,
			want: map[string]Outcome{"1": Pass, "16": Fail, "16b": Fail, "25": Pass},
		},
		{
			name: "loses a line", wrapper: `cd "$1"; bash -c "$2" | sed 5000d; exit ${PIPESTATUS[0]}`,
			want: map[string]Outcome{"1": Pass, "21": Fail, "25": Fail},
		},
		{
			name: "returns 0 always", wrapper: `cd "$1"; bash -c "$2"; exit 0`,
			want: map[string]Outcome{"1": Pass, "4": Fail, "5": Fail, "8": Fail, "21": Fail, "57": Fail},
		},
		{
			name: "truncates", wrapper: `cd "$1"; bash -c "$2" | head -c 1000; exit ${PIPESTATUS[0]}`,
			want: map[string]Outcome{"1": Pass, "16b": Fail, "18": Fail, "21": Fail, "4": Pass},
		},
		{
			name: "merges streams", wrapper: `cd "$1"; exec bash -c "$2" 2>&1`,
			want: map[string]Outcome{"1": Pass, "2": Fail, "25": Fail, "4": Pass},
		},
		{
			name: "adds a newline", wrapper: `cd "$1"; bash -c "$2"; code=$?; echo; exit $code`,
			want: map[string]Outcome{"1": Fail, "11": Fail, "16": Fail, "8": Pass},
		},
		{
			name: "keeps no files", wrapper: `cd "$(mktemp -d -p "$1")"; exec bash -c "$2"`,
			want: map[string]Outcome{"1": Pass, "12": Fail, "56b": Fail},
		},
		{
			name: "waits for every holder of its output", wrapper: `cd "$1"; set -o pipefail; bash -c "$2" | cat`,
			want: map[string]Outcome{"1": Pass, "29": Fail},
		},
	}
	var all sync.WaitGroup // they wait more than they work: -parallel is not for them
	for _, tt := range tests {
		target := local(t, tt.wrapper)
		all.Go(func() {
			if got := outcomes(t, target, sortedKeys(tt.want)...); !maps.Equal(got, tt.want) {
				t.Errorf("%s: got %v; want %v", tt.name, got, tt.want)
			}
		})
	}
	all.Wait()
}

// TestBadTimeouts is the control of what looks from outside: of timeouts, and of processes on this host.
func TestBadTimeouts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, timeout string
		want          map[string]Outcome
	}{
		{"kills the group", "timeout -k 1 {seconds}", map[string]Outcome{"33": Pass, "35": Pass, "37": Fail, "38": Pass}},
		{"kills the leader alone", "timeout --foreground -k 1 {seconds}", map[string]Outcome{"33": Pass, "37": Fail, "38": Fail}},
		{"does not insist", "timeout {seconds}", map[string]Outcome{"33": Pass, "35": Fail}},
		{"has none", "env IGNORED={seconds}", map[string]Outcome{"33": Fail}},
		{"ends too soon", "timeout -k 1 0.1", map[string]Outcome{"33": Fail}},
	}
	var all sync.WaitGroup
	for _, tt := range tests {
		target := local(t, "")
		target.Timeout = tt.timeout
		all.Go(func() {
			if got := outcomes(t, target, sortedKeys(tt.want)...); !maps.Equal(got, tt.want) {
				t.Errorf("%s: got %v; want %v", tt.name, got, tt.want)
			}
		})
	}
	all.Wait()
}

// TestSandboxbash asks our own binary all but the slow ones. Each has to pass, or to be known with its reason.
func TestSandboxbash(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOXBASH_TEST_ENGINE") == "none" {
		t.Skip("needs an engine, and SANDBOXBASH_TEST_ENGINE=none")
	}
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no engine answers: %v\n%s", err, out)
		}
		t.Skipf("no engine answers: %v", err)
	}
	binary := filepath.Join(t.TempDir(), "sandboxbash")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/sandboxbash")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the binary under test: %v\n%s", err, out)
	}
	keep := made(t)
	t.Cleanup(func() {
		if len(keep) > 0 { // they belong to another test
			return
		}
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "image", "rm", "--all").CombinedOutput(); err != nil {
			t.Errorf("sandboxbash image rm --all: %v\n%s", err, out)
		}
	})
	if out, err := exec.CommandContext(t.Context(), binary, "image", "host").CombinedOutput(); err != nil {
		t.Fatalf("sandboxbash image host: %v\n%s", err, out)
	}
	target, err := loadTarget("sandboxbash")
	if err != nil {
		t.Fatal(err)
	}
	target.Vars["sandboxbash"] = binary
	target.Environ["XDG_STATE_HOME"], target.Environ["XDG_CONFIG_HOME"] = t.TempDir(), t.TempDir()
	groups, err := loadGroups()
	if err != nil {
		t.Fatal(err)
	}
	column := Column{Target: target}
	column.Results = askTarget(t.Context(), target, groups, options{jobs: 6}, func(r Result) {
		if r.Outcome != Pass {
			t.Logf("%s %s: %s", r.ID, r.Outcome, r.Detail)
		}
	})
	if wrong := column.wrong(true); len(wrong) > 0 {
		t.Errorf("%s; want every scenario to pass or to be known, not %q", column.sum(), wrong)
	}
}

// made lists the images that the binary has made on this engine.
func made(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "image", "ls", "-q", "--filter", "reference=sandboxbash/*").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}
