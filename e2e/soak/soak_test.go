package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/engines"
)

// seed of the short runs: the same every time, so that a failure can be had again.
const seed = 20261121

// scratch is where the binary under test is; "" if no test has needed it.
var scratch string

// built is the binary under test.
var built = sync.OnceValues(func() (string, error) {
	var err error
	if scratch, err = os.MkdirTemp("", "soak-test-"); err != nil {
		return "", err
	}
	path := filepath.Join(scratch, "sandboxbash")
	build := exec.Command("go", "build", "-o", path, "../../cmd/sandboxbash")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	defer func() { _ = os.RemoveAll(scratch) }() // of "" nothing
	return m.Run()
}

// testLab is a lab for short runs. Without an engine it skips where there is
// none on purpose, and fails in CI.
func testLab(t *testing.T, o options) *lab {
	t.Helper()
	if os.Getenv("SANDBOXBASH_TEST_ENGINE") == "none" {
		t.Skip("needs an engine, and SANDBOXBASH_TEST_ENGINE=none")
	}
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no engine answers: %v\n%s", err, out)
		}
		t.Skipf("no engine answers: %v\n%s", err, out)
	}
	var err error
	if o.binary, err = built(); err != nil {
		t.Fatal(err)
	}
	o.seed = seed
	l, err := openLab(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// testPart runs a part with little to do.
func testPart(t *testing.T, name string) {
	t.Helper()
	l := testLab(t, options{sizes: short})
	for _, p := range parts {
		if p.name != name {
			continue
		}
		s, err := l.take(t.Context(), p)
		if err != nil {
			t.Errorf("seed %d: %v", l.seed, err)
		}
		var page bytes.Buffer
		s.write(&page)
		t.Log(page.String())
		return
	}
	t.Fatalf("no part %s", name)
}

// The parts share an engine and look at all of it: one after the other. The
// nemesis has an engine to itself.
func TestKills(t *testing.T) { testPart(t, "kills") }

func TestHosts(t *testing.T) { testPart(t, "hosts") }

func TestLoad(t *testing.T) { testPart(t, "load") }

func TestLeaks(t *testing.T) { testPart(t, "leaks") }

func TestStarts(t *testing.T) { testPart(t, "starts") }

func TestPolicy(t *testing.T) { testPart(t, "policy") }

// The machine's clock is left alone here: it is every program's.
func TestClock(t *testing.T) {
	l := testLab(t, options{sizes: short})
	moved := 0
	c := &clockRun{l: l, moves: moves[:1], set: func(time.Duration) error { moved++; return nil }}
	s, err := c.run(t.Context())
	if err != nil || moved != 2 || c.asked != 6 || c.off != 0 {
		t.Errorf("seed %d: %v; the clock would have been set %d times, for %d commands; want 2 for 6", l.seed, err, moved, c.asked)
	}
	var page bytes.Buffer
	s.write(&page)
	t.Log(page.String())
	if slices.ContainsFunc(options{}.selected(), func(p part) bool { return p.name == "clock" }) {
		t.Error("the clock is set by who has not asked for that")
	}
}

func TestNemesis(t *testing.T) {
	history := filepath.Join(t.TempDir(), "history.jsonl")
	l := testLab(t, options{sizes: short, minutes: 10.0 / 60, history: history})
	s, err := nemesis(t.Context(), l)
	if errors.Is(err, engines.ErrNotHere) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		text, _ := os.ReadFile(history)
		t.Errorf("seed %d: %v\n%s", l.seed, err, text)
	}
	events, err := readHistory(history)
	if err != nil {
		t.Fatal(err)
	}
	counted := tally(events)
	if counted["command"] == nil || counted["call"] == nil || counted["job"] == nil || counted["fault"] == nil {
		t.Errorf("the history has no command, call, job or fault: %v", counted)
	}
	if again := check(events); len(again) > 0 && len(s.failed) == 0 {
		t.Errorf("check(what was written) = %q, and of what happened nothing is wrong", again)
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	const a, b = "<!-- measured: a -->\nold\n<!-- /measured: a -->\n", "<!-- measured: b -->\nB\n<!-- /measured: b -->\n"
	for _, tt := range []struct{ name, page, want string }{
		{"a new page", "# Top\n", "# Top\n\nNEW\n"},
		{"in its place", "# Top\n\n" + a + "\nbetween\n\n" + b, "# Top\n\nNEW\n\nbetween\n\n" + b},
		{"next to others", "# Top\n\n" + b + "\nend\n", "# Top\n\n" + b + "\nend\n\nNEW\n"},
	} {
		if got, err := replace(tt.page, "a", "NEW\n"); got != tt.want || err != nil {
			t.Errorf("%s: replace() = %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
	if got, err := replace("<!-- measured: a -->\n", "a", "NEW\n"); err == nil {
		t.Errorf("replace(a start without an end) = %q; want an error", got)
	}
}

func TestSave(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.md")
	for _, count := range []int{1, 0} { // the second takes the first one's place
		s := section{name: "a", title: "A"}
		s.count("wrong", count, 0)
		if (s.err() != nil) != (count != 0) {
			t.Errorf("count(%d, want 0): err() = %v", count, s.err())
		}
		if err := (&report{}).save(path, &s); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if page := string(text); !strings.HasPrefix(page, top) || strings.Count(page, "## A\n") != 1 || strings.Contains(page, "Did not hold") {
		t.Errorf("page:\n%s\nwant its top and just the second run's section", page)
	}
}

func TestSections(t *testing.T) {
	t.Parallel()
	var s section
	s.limit("as much", 2, 2)
	s.rss("no growth", 100<<20, 120<<20)
	s.rss("a step", 4<<20, 12<<20)
	if err := s.err(); err != nil {
		t.Errorf("err() = %v; want nil", err)
	}
	s.limit("too much", 3, 2)
	s.rss("growth", 100<<20, 130<<20)
	if len(s.failed) != 2 {
		t.Errorf("failed = %q; want two", s.failed)
	}
}

func TestKindsSince(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		now, before kinds
		want        string
	}{
		{"nothing", kinds{"pipe": 2}, kinds{"pipe": 2}, ""},
		{"more, less, new and gone", kinds{"file": 3, "pipe": 1, "socket": 1}, kinds{"anon_inode": 1, "file": 1, "pipe": 2}, " (file +2, pipe -1, socket +1, anon_inode -1)"},
	} {
		if got := tt.now.since(tt.before); got != tt.want {
			t.Errorf("%s: since() = %q; want %q", tt.name, got, tt.want)
		}
	}
}

// What an engine comes to hold without us is not counted against us, and no more.
func TestCompare(t *testing.T) {
	t.Parallel()
	before := footprint{engineFiles: kinds{"file": 100}, goroutines: 50, engineRSS: 100 << 20}
	for _, tt := range []struct {
		name  string
		files int
		plain plainGrowth
		good  bool
	}{
		{"as much as may be", 110, plainGrowth{}, true},
		{"too much", 111, plainGrowth{}, false},
		{"as much as without us", 130, plainGrowth{files: 20}, true},
		{"more than without us", 131, plainGrowth{files: 20}, false},
	} {
		after := before
		after.engineFiles = kinds{"file": tt.files}
		var s section
		s.compare("", before, after, tt.plain)
		if err := s.err(); (err == nil) != tt.good {
			t.Errorf("%s: err() = %v; want good: %t", tt.name, err, tt.good)
		}
	}
}

func TestReadResult(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, want string
		good       bool
	}{
		{`{"reason":"exited","exitCode":0}`, "exited", true},
		{`{"reason":null,"error":{"outcome":"not-started","cause":"engine"}}`, "not-started", true},
		{``, "", false},
		{`{"reason":"exited"}{"reason":"exited"}`, "exited", false},
		{`{"reason":"exited","error":{"outcome":"not-started"}}`, "not-started", false},
		{`{}`, "", false},
	} {
		got, err := readResult([]byte(tt.text))
		if (err == nil) != tt.good || tt.good && got.outcome() != tt.want || err != nil && !errors.Is(err, errNoOutcome) {
			t.Errorf("readResult(%s) = %+v, %v", tt.text, got, err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	o, err := parse([]string{"-only", "kills,nemesis", "-seed", "7", "-quick"}, &stderr)
	if err != nil || len(o.selected()) != 2 || o.seed != 7 || o.sizes != short {
		t.Errorf("parse() = %+v, %v", o, err)
	}
	for _, args := range [][]string{{"-only", "nothing"}, {"more"}, {"-seed", "x"}} {
		if _, err := parse(args, &stderr); err == nil {
			t.Errorf("parse(%q) = nil; want an error", args)
		}
	}
	if code := run([]string{"-only", "nothing"}, &stderr, &stderr); code != exitUsage {
		t.Errorf("run() = %d; want %d", code, exitUsage)
	}
}

// A survivor is found, with its mark and without.
func TestProcesses(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sleep", "300")
	cmd.Env = []string{"MARK=proc-test-mark"}
	if err := cmd.Start(); err != nil {
		t.Skip(err) // no such program
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("needs proc(5): ", err)
	}
	found := marked("proc-test-mark")
	if len(found) != 1 || found[0].PID != cmd.Process.Pid || found[0].Parent != os.Getpid() || found[0].UID != os.Getuid() {
		t.Errorf("marked() = %v; want the process %d", found, cmd.Process.Pid)
	}
	if memory(cmd.Process.Pid) == 0 || descriptors(os.Getpid()) < 3 {
		t.Errorf("memory() = %d, descriptors() = %d", memory(cmd.Process.Pid), descriptors(os.Getpid()))
	}
}
