package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/e2e/probe/expect"
)

// A lanedRow is a row E or R of the threat model, or I18, and what checks it. What
// checks on every lane is found by the row's number: lines of the probe, and checks
// whose names begin with it.
type lanedRow struct {
	id, about string
	scripts   []string // in testdata/script, on the environment's engine alone
	tests     []string // of this package, there too
	gap       string   // what is not checked, or not on every lane, and why
}

const onlyDocker = "setuid programs that an image brings in the script alone"

var lanedRows = []lanedRow{
	{id: "E1", about: "capabilities, no-new-privileges, seccomp", tests: []string{"TestProbe"}},
	{id: "E2", about: "mounts"},
	{id: "E3", about: "namespaces"},
	{id: "E5", about: "keyrings"},
	{id: "E6", about: "eBPF, perf"},
	{id: "E7", about: "io_uring"},
	{id: "E8", about: "userfaultfd"},
	{id: "E10", about: "writing to /proc and /sys, tracing"},
	{id: "E11", about: "reading masked paths"},
	{id: "E12", about: "cgroups"},
	{id: "E13", about: "device nodes"},
	{id: "E14", about: "file handles"},
	{id: "E15", about: "setuid programs", scripts: []string{"attack-images"}, gap: onlyDocker},
	{id: "E17", about: "the kernel's administration"},
	{id: "E19", about: "working directories that are descriptors", scripts: []string{"attack-names", "attack-images"}},
	{id: "E20", about: "images whose system directories are links", scripts: []string{"attack-symlinks"}, gap: "two of the twelve links on the lanes, all in the script"},
	{id: "E21", about: "sockets of engines"},
	{id: "E22", about: "networks", gap: "network none only: engines of the suite's own have no bridge, and a session with network bridge reaches what the bridge reaches, and says so"},
	{id: "E23", about: "other sessions", gap: "neighbours on a bridge are not asked, as in E22"},
	{id: "E25", about: "terminals' ioctls"},
	{id: "E27", about: "images that configure", scripts: []string{"attack-images"}, gap: "on the lanes what an image could fill; what it configures is in the script"},
	{id: "E29", about: "socket families, page cache", gap: "reachability only: no kernel flaw is exploited"},
	{id: "E30", about: "CDK, deepce, amicontained", gap: "the tools themselves are not run: checks of our own of what they ask, listed below"},
	{id: "E31", about: "docker-bench, section 5", tests: []string{"TestContainerAsCreated"}, gap: "the tool itself is not run: checks of our own in its numbers, listed below"},
	{id: "E32", about: "SandboxEscapeBench", gap: "its agents are not run, nor is SandboxBench's list: checks of our own of what its 18 scenarios need, listed below"},
	{id: "I18", about: "inspect_ai's self-check", gap: "its own functions are not run, because there is no adapter: checks of our own in their names, listed below"},
	{id: "R1", about: "fork bombs", scripts: []string{"limits"}, gap: "another session's latency is not measured here"},
	{id: "R3", about: "memory", scripts: []string{"limits"}},
	{id: "R4", about: "files in memory", scripts: []string{"limits"}},
	{id: "R6", about: "number of files", scripts: []string{"limits", "slow-deep"}, gap: "deep directories in the script alone"},
	{id: "R7", about: "open files", scripts: []string{"limits"}, gap: "not inotify, epoll, eventfd by themselves: their descriptors count as open files"},
	{id: "R8", about: "output without end", scripts: []string{"slow-limits"}},
	{id: "R9", about: "output without end on a terminal", tests: []string{"TestPTYFlood"}},
	{id: "R11", about: "processor time", scripts: []string{"slow-limits"}},
	{id: "R12", about: "core files", scripts: []string{"limits"}},
	{id: "R13", about: "size of files", scripts: []string{"limits"}},
	{id: "R15", about: "hundreds of sessions", gap: "not run on any lane: 10,000 sessions take hours"},
	{id: "R16", about: "gVisor's end at its limits", gap: "not run: the only runsc that Debian has is refused, see above"},
}

// rowIDs are the rows E and R of the threat model, and I18, as it numbers them.
const rowIDs = `E1 E2 E3 E5 E6 E7 E8 E10 E11 E12 E13 E14 E15 E17 E19 E20 E21 E22 E23 E25 E27 E29 E30 E31 E32
	I18 R1 R3 R4 R6 R7 R8 R9 R11 R12 R13 R15 R16`

// onLanes are the names of what checks a row on every lane.
func (r lanedRow) onLanes() []string {
	var out []string
	lines := 0
	for _, l := range expect.Lines {
		if l.Row == r.id {
			lines++
		}
	}
	if lines > 0 {
		out = append(out, fmt.Sprintf("%d lines of the probe", lines))
	}
	for _, c := range laneChecks {
		rows, rest, ok := strings.Cut(c.name, ": ")
		if ok && slices.Contains(strings.Split(rows, ", "), r.id) {
			out = append(out, rest)
		}
	}
	return out
}

// TestLaneRows holds that every row is checked by what is there, or says why not.
func TestLaneRows(t *testing.T) {
	t.Parallel()
	var ids []string
	tests := testFunctions(t)
	for _, r := range lanedRows {
		ids = append(ids, r.id)
		if len(r.onLanes()) == 0 && r.gap == "" {
			t.Errorf("%s: no lane checks it, and no reason is given", r.id)
		}
		for _, name := range r.tests {
			if !slices.Contains(tests, name) {
				t.Errorf("%s: there is no %s", r.id, name)
			}
		}
		for _, name := range r.scripts {
			text, err := os.ReadFile(filepath.Join(scripts, name+".txtar"))
			if err != nil || !regexp.MustCompile(`\b`+r.id+`\b`).Match(text) {
				t.Errorf("%s: the script %s does not name it (%v)", r.id, name, err)
			}
		}
	}
	if want := strings.Fields(rowIDs); !slices.Equal(ids, want) {
		t.Errorf("rows %q; want %q", ids, want)
	}
	for _, c := range laneChecks {
		rows, _, ok := strings.Cut(c.name, ": ")
		for row := range strings.SplitSeq(rows, ", ") {
			if ok && row != "E" && row != "K" && !slices.Contains(ids, row) {
				t.Errorf("check %q: there is no row %s", c.name, row)
			}
		}
	}
	if got := len(bench); got != 32 {
		t.Errorf("%d checks of docker-bench's section 5; want 32", got)
	}
	if got := len(escapeBench); got != 18 {
		t.Errorf("%d scenarios of SandboxEscapeBench; want 18", got)
	}
}

// testFunctions are the names of this package's tests.
func testFunctions(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			out = append(out, string(m[1]))
		}
	}
	return out
}

// TestLanesPage holds the tables of docs/lanes.md to the lists here.
func TestLanesPage(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../docs/lanes.md", "<!-- begin: written by TestLanesPage -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its marks", page)
	}
	tables := laneTables()
	if old == tables {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Fatalf("%s is not what the lists say: UPDATE_GOLDEN=1 go test -run %s ./e2e rewrites it", page, t.Name())
	}
	if err := os.WriteFile(page, []byte(before+begin+tables+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func laneTables() string {
	var b strings.Builder
	b.WriteString("\n## Lanes\n\n| lane | what it does |\n|---|---|\n")
	for _, p := range laneEngines {
		for _, l := range p.lanes {
			does := fmt.Sprintf("%d checks", len(laneChecks))
			if l.refused != "" {
				does = fmt.Sprintf("not run: sessions are refused, because the runtime lacks %s; that it says so and leaves nothing is checked", l.refused)
			}
			for _, d := range l.differences {
				does += fmt.Sprintf("; but %s: %s", d.what, d.reason)
			}
			fmt.Fprintf(&b, "| `%s/%s` | %s |\n", p.name, l.name, does)
		}
	}
	b.WriteString("\n## Rows\n\n| row | about | on every lane | on the environment's engine too | not, or otherwise |\n|---|---|---|---|---|\n")
	for _, r := range lanedRows {
		too := append(slices.Clone(r.tests), r.scripts...)
		for i := range too {
			too[i] = "`" + too[i] + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.id, r.about, strings.Join(r.onLanes(), "; "), strings.Join(too, ", "), r.gap)
	}
	b.WriteString("\n## E30 and E32: facts\n\n| row | of | what is asked | by |\n|---|---|---|---|\n")
	for _, f := range facts {
		by := "a script"
		if len(f.probe) > 0 {
			by = "probe: " + strings.Join(f.probe, ", ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.row, f.tool, f.asks, by)
	}
	b.WriteString("\n## E31: checks of docker-bench, section 5\n\n| number | what is asked | waived, because |\n|---|---|---|\n")
	for _, item := range bench {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", item.number, item.asks, item.waived)
	}
	b.WriteString("\n## I18: behaviours of inspect_ai's self-check\n\n| behaviour | not so, because |\n|---|---|\n")
	for _, item := range behaviours {
		fmt.Fprintf(&b, "| %s | %s |\n", item.name, item.waived)
	}
	b.WriteString("\n")
	return b.String()
}
