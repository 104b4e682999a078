package policy

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the figures into docs/policy.md")

// Lines of docs/policy.md around what this test writes.
const (
	figuresFile  = "../docs/policy.md"
	figuresBegin = "<!-- figures: written by go test ./policy -update -->\n"
	figuresEnd   = "<!-- end of figures -->\n"
)

// maxFalsePositives is the part of benign commands that may be refused.
const maxFalsePositives = 0.005

// figure counts how often something came out as it should.
type figure struct{ good, all int }

func (f *figure) add(good bool) {
	f.all++
	if good {
		f.good++
	}
}

func (f figure) String() string {
	if f.all == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", f.good, f.all)
}

// failing is the part that is not good.
func (f figure) failing() float64 { return float64(f.all-f.good) / float64(f.all) }

// TestFigures holds the policy to its aims, and docs/policy.md to what it does.
func TestFigures(t *testing.T) {
	t.Parallel()
	want := "\n" + corpusFigures(t) + "\n" + verdictFigures(t) + "\n" + benignFigures(t) + "\n"
	text, err := os.ReadFile(figuresFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), figuresBegin)
	got, after, closed := strings.Cut(rest, figuresEnd)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no lines %q and %q", figuresFile, figuresBegin, figuresEnd)
	case got == want:
	case !*update:
		t.Fatalf("%s does not show the figures as they are: run go test ./policy -update\ngot:\n%swant:\n%s", figuresFile, got, want)
	default:
		if err := os.WriteFile(figuresFile, []byte(before+figuresBegin+want+figuresEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// corpusFigures are those of the corpora that belong to the contracts.
func corpusFigures(t *testing.T) string {
	t.Helper()
	found := map[string]*[2]figure{} // by class: refused of what is to be, let through of what is to be
	count := func(class, tier string, blocked, got bool) {
		f := found[class]
		if f == nil {
			f = new([2]figure)
			found[class] = f
		}
		side := 1
		if blocked {
			side = 0
		}
		f[side].add(got == blocked)
		if got != blocked && (tier == "must" || tier == "should") {
			t.Errorf("a row of %s is not as it is to be", class)
		}
	}
	for _, r := range readRows[interceptorRow](t, "interceptor.jsonl") {
		tier := r.Tier
		if tier == "version" {
			tier = "what upstream changed later"
		}
		count("interceptor, "+tier, r.Tier, r.Blocked, r.policy(t, MatchWhole).Check(r.input()).Blocked)
		if otherRules[r.ID] == "" {
			count("interceptor, `match: segments`", r.Tier, r.Newest, r.policy(t, MatchSegments).Check(r.input()).Blocked)
		}
	}
	p := newPolicy(t, Options{Checks: CheckNames()})
	for _, r := range readRows[safetyRow](t, "safety.jsonl") {
		count("safety checks, "+r.Tier, r.Tier, r.Blocked, p.Check(Input{Script: r.Command}).Blocked)
	}
	var b strings.Builder
	b.WriteString("The corpora of the tool contracts; `must`, `should` and `may` are their tiers:\n\n| corpus | refused, of what should be | let through, of what should be |\n|---|---:|---:|\n")
	for _, class := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "| %s | %v | %v |\n", class, found[class][0], found[class][1])
	}
	return b.String()
}

// classes are the ways to hide a command, by the number that verdicts.jsonl has.
var classes = map[int]string{
	0: "nothing hidden", 1: "quotes and escapes in names", 2: "paths to programs", 4: "`$IFS` in the place of spaces", 6: "brace expansion",
	7: "patterns as names", 8: "variables as names", 9: "command substitution as a name", 10: "`eval`", 11: "nested shells", 12: "decoded and piped into a shell",
	13: "fetched and run", 14: "here-documents and here-strings", 15: "`env` and assignments before", 16: "`command`, `builtin`, `exec`", 18: "programs that run others",
	19: "`xargs`", 21: "multi-call programs", 22: "interpreters", 23: "options that run a command", 25: "git's own configuration", 26: "git aliases and hooks",
	28: "destructive git", 29: "aliases and functions", 30: "spellings of options and operands", 31: "odd characters and lines", 33: "deferred code",
	34: "poisoned environment", 36: "history, files and descriptors as scripts", 37: "deletion without `rm`", 38: "long lists", 40: "order of rules",
	41: "where parsers disagree", 43: "effects elsewhere", 44: "text that is evaluated once more",
}

// verdictFigures are those of our own cases, with all checks and sets on.
func verdictFigures(t *testing.T) string {
	t.Helper()
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames()})
	type counts struct{ denied, opaque, allowed figure }
	found := map[int]*counts{}
	var total counts
	for _, r := range readRows[verdictRow](t, "verdicts.jsonl") {
		if r.Mode == Guarded {
			continue // it changes what is done, not the verdict
		}
		c := found[r.Row]
		if c == nil {
			c = new(counts)
			found[r.Row] = c
		}
		got := p.Check(Input{Script: r.Command})
		for _, c := range []*counts{c, &total} {
			switch r.Want {
			case Deny:
				c.denied.add(got.Verdict == Deny)
			case Opaque, TooComplex:
				c.opaque.add(got.Verdict != Allow)
			case Allow:
				c.allowed.add(got.Verdict == Allow)
			}
		}
	}
	for what, f := range map[string]figure{"what is to be caught is not denied": total.denied, "what is opaque is called safe": total.opaque} {
		if f.all == 0 || f.good != f.all {
			t.Errorf("%s: %v", what, f)
		}
	}
	var b strings.Builder
	b.WriteString("Ways to hide a command, with all checks and sets on:\n\n| way | denied, of what can be known | not called safe, of what cannot | allowed, of what is harmless or not covered |\n|---|---:|---:|---:|\n")
	for _, row := range slices.Sorted(maps.Keys(found)) {
		name, known := classes[row]
		if !known {
			t.Errorf("class %d has no name", row)
		}
		fmt.Fprintf(&b, "| %s | %v | %v | %v |\n", name, found[row].denied, found[row].opaque, found[row].allowed)
	}
	fmt.Fprintf(&b, "| **together** | %v | %v | %v |\n", total.denied, total.opaque, total.allowed)
	return b.String()
}

// benignRow is a command that was published, and where.
type benignRow struct {
	Command string `json:"command"`
	From    string `json:"from"`
}

func benignFigures(t *testing.T) string {
	t.Helper()
	rows := readRows[benignRow](t, "benign.jsonl")
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.Command] || r.From == "" {
			t.Errorf("benign command %q is there twice, or from nowhere", r.Command)
		}
		seen[r.Command] = true
	}
	if len(rows) < 1000 {
		t.Errorf("there are %d benign commands; want 1000", len(rows))
	}
	var b strings.Builder
	b.WriteString("Benign commands:\n\n| rules | commands | refused | false positives | opaque |\n|---|---:|---:|---:|---:|\n")
	for _, test := range []struct {
		name string
		o    Options
	}{
		{"the three checks", Options{Checks: CheckNames()}},
		{"all checks and sets", Options{Checks: CheckNames(), Sets: SetNames()}},
	} {
		p := newPolicy(t, test.o)
		var passed, known figure
		for _, r := range rows {
			d := p.Check(Input{Script: r.Command})
			if d.Verdict == Deny {
				t.Logf("%s: %s refuses %.200q", test.name, d.Rule, r.Command)
			}
			passed.add(d.Verdict != Deny)
			known.add(d.Verdict == Allow || d.Verdict == Deny)
		}
		if passed.failing() >= maxFalsePositives {
			t.Errorf("%s refuse %d of %d benign commands; want less than %.1f %%", test.name, passed.all-passed.good, passed.all, 100*maxFalsePositives)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %.2f %% | %.2f %% |\n", test.name, passed.all, passed.all-passed.good, 100*passed.failing(), 100*known.failing())
	}
	return b.String()
}
