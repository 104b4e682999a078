package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Checks: []string{"rm", "mv"}}, `the safety check "mv" is unknown: it can be add, push, rm`},
		{Options{Sets: []string{"git"}}, `the set of safety rules "git" is unknown: it can be git-destructive, `},
		{Options{Mode: "ask"}, `mode "ask" is unknown: it can be standard or guarded`},
		{Options{Match: "some"}, `match "some" is unknown`},
		{Options{Rules: []Rule{{Pattern: "(", Tool: "x"}}, Strict: true}, "interceptor rule rule-1"},
	} {
		_, _, err := New(tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New(%+v): %v; want an error with %q", tt.o, err, tt.want)
		}
	}
	_, warnings, err := New(Options{Rules: []Rule{{ID: "bad", Pattern: "(", Tool: "x"}}})
	if err != nil || len(warnings) != 1 || warnings[0].Rule != "bad" {
		t.Errorf("New with a bad rule: %v, %v; want one warning about bad", warnings, err)
	}
}

func TestNilPolicyAllows(t *testing.T) {
	t.Parallel()
	var p *Policy
	if d := p.Check(Input{Script: "rm -rf /"}); d.Verdict != Allow || d.Blocked {
		t.Errorf("Check = %+v; want it to allow", d)
	}
	if e := p.Explain(Input{Script: "rm -rf /"}); e.Decision.Verdict != Allow || len(e.Commands) != 1 {
		t.Errorf("Explain = %+v; want one command, allowed", e)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	standard := newPolicy(t, Options{Checks: CheckNames()})
	guarded := newPolicy(t, Options{Checks: CheckNames(), Mode: Guarded})
	deep := func(n int) string { return strings.Repeat("( ", n) + "rm -rf /" + strings.Repeat(" )", n) }
	within := "rm -rf /"
	for range 7 { // each doubles the quotes, and so the length
		within = fmt.Sprintf("bash -c '%s'", strings.ReplaceAll(within, "'", `'\''`))
	}
	for _, tt := range []struct {
		name, script string
		want         Verdict
	}{
		{"200 subshells", deep(200), Deny},
		{"201 subshells", deep(201), TooComplex},
		{"200 substitutions", "echo " + strings.Repeat("$(", 200) + "rm -rf /" + strings.Repeat(")", 200), Deny},
		{"100000 substitutions", "echo " + strings.Repeat("$(", 100_000), TooComplex},
		{"201 expansions", "echo " + strings.Repeat("${a:-", 201) + strings.Repeat("}", 201), TooComplex},
		{"200 expansions", "echo " + strings.Repeat("${a:-", 200) + strings.Repeat("}", 200), Allow},
		{"200 parentheses", "((" + strings.Repeat("(", 199) + "1" + strings.Repeat(")", 199) + "))", Allow},
		{"201 parentheses", "((" + strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200) + "))", TooComplex},
		{"201 substitutions", "echo " + strings.Repeat("$(", 201) + "rm -rf /" + strings.Repeat(")", 201), TooComplex},
		{"100000 commands and one", strings.Repeat("true;", 100_000) + "rm -rf /", Deny},
		{"100001 commands and one", strings.Repeat("true;", 100_001) + "rm -rf /", TooComplex},
		{"2 MiB", "rm -rf / #" + strings.Repeat(" ", maxScript-10), Deny},
		{"more than 2 MiB", "rm -rf / #" + strings.Repeat(" ", maxScript-9), TooComplex},
		{"shells in shells", within, Deny},
		{"a function that calls itself", "f() { f; rm -rf /; }; f", Deny},
		{"an eval of itself", `a='eval "$a"'; eval "$a"`, TooComplex},
		{"what comes before the limit", "rm -rf /; " + `a='eval "$a"'; eval "$a"`, Deny},
		{"a MiB that is honest", strings.Repeat("echo \"$x\" | sort > out.txt # it's fine\n", 25_000), Allow},
		{"a MiB of data", "cat > f <<'E'\n" + strings.Repeat("a;b;(c)$d`e\n", 90_000) + "E\n", Allow},
	} {
		d := standard.Check(Input{Script: tt.script})
		if d.Verdict != tt.want || d.Blocked != (tt.want == Deny || tt.want == TooComplex) || d.Blocked != (d.Message != "") {
			t.Errorf("%s: Check = %+v; want %s", tt.name, d, tt.want)
		}
		d = guarded.Check(Input{Script: tt.script})
		if d.Verdict != tt.want || d.Blocked != (tt.want != Allow) || d.Blocked != (d.Message != "") {
			t.Errorf("%s, guarded: Check = %+v; want %s", tt.name, d, tt.want)
		}
	}
}

// TestLimitsOfNoRule lets a script pass that no rule could refuse.
func TestLimitsOfNoRule(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(" ", maxScript+1)
	for _, tt := range []struct {
		name string
		o    Options
		want bool
	}{
		{"none", Options{}, false},
		{"a rule without its tool", Options{Rules: DefaultRules()}, false},
		{"the interceptor", Options{Rules: DefaultRules(), Tools: []string{"read"}}, true},
		{"a check", Options{Checks: []string{checkRm}}, true},
		{"a set", Options{Sets: []string{setGit}}, true},
		{"guarded", Options{Mode: Guarded}, true},
	} {
		if d := newPolicy(t, tt.o).Check(Input{Script: long}); d.Verdict != TooComplex || d.Blocked != tt.want {
			t.Errorf("%s: Check = %+v; want blocked %v", tt.name, d, tt.want)
		}
	}
}

// TestDenyWins looks at scripts of which one part is denied and another is not
// known.
func TestDenyWins(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames(), Mode: Guarded})
	for _, script := range []string{
		"$x; rm -rf /", "rm -rf /; $x", "eval \"$y\" && git push -f", "rm -rf /\nif", "bash -c \"$x; rm -rf /\"", "source f; git add .",
	} {
		if d := p.Check(Input{Script: script}); d.Verdict != Deny {
			t.Errorf("Check(%q) = %+v; want deny", script, d)
		}
	}
}

func TestPositionsAndMessages(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames(), Mode: Guarded})
	for _, tt := range []struct {
		script, rule, at, message string
	}{
		{"ls\n  sudo rm -rf /", "rm", "2:8", "permission denied: this rm command"},
		{"ls\nbash -c 'ls\nrm -rf /'", "rm", "2:9", "permission denied: this rm command"},
		{"a\n$x", "opaque/command-name", "2:1", "permission denied: at 2:1 the command's name is made when the script runs (`$x`). Write the command's name out"},
		{"git reset --hard", "git-destructive/reset", "1:1", "permission denied: git resets that discard changes (git reset --hard, git read-tree --reset) are not allowed. Keep the changes with git stash, or use git reset --keep"},
		{"if", "opaque/parse-error", "1:1", "permission denied: at 1:1 the script cannot be parsed"},
	} {
		d := p.Check(Input{Script: tt.script})
		if d.Rule != tt.rule || d.Position.String() != tt.at || !strings.HasPrefix(d.Message, tt.message) || strings.Contains(d.Message, "\n") {
			t.Errorf("Check(%q) = %s at %v: %q; want %s at %s: %q", tt.script, d.Rule, d.Position, d.Message, tt.rule, tt.at, tt.message)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames()})
	e := p.Explain(Input{Script: "sudo -u x bash -c 'ls \"$1\"; r\"m\" -rf /' _ a{b,c} | $y\nf() { echo $(date) $@; }; f 1 2"})
	var lines []string
	var tell func(nodes []*Node, indent string)
	tell = func(nodes []*Node, indent string) {
		for _, n := range nodes {
			words := make([]string, len(n.Argv))
			for i, word := range n.Argv {
				if words[i] = word.Text; !word.Known {
					words[i] = "?" + word.Text
				}
			}
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s%s [%s] %s %s %s", indent, n.Position, n.Via, strings.Join(words, "|"), n.Verdict, n.Rule)))
			tell(n.Children, indent+"- ")
		}
	}
	tell(e.Commands, "")
	want := []string{
		"1:1 [] sudo|-u|x|bash|-c|ls \"$1\"; r\"m\" -rf /|_|ab|ac allow",
		"- 1:11 [sudo] bash|-c|ls \"$1\"; r\"m\" -rf /|_|ab|ac allow",
		"- - 1:19 [bash -c] ls|ab allow",
		"- - 1:19 [bash -c] rm|-rf|/ deny rm",
		"1:52 [] ?$y opaque opaque/command-name",
		"2:14 [$(…)] date allow",
		"2:7 [function f] echo|?$(date)|?$@ allow",
		"2:27 [] f|1|2 allow",
		"- 2:14 [$(…)] date allow",
		"- 2:7 [function f] echo|?$(date)|1|2 allow",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("Explain differs (-want +got):\n%s", diff)
	}
	if e.Decision.Verdict != Deny {
		t.Errorf("Explain decides %+v; want deny", e.Decision)
	}
	data, err := json.Marshal(e)
	if err != nil || !strings.Contains(string(data), `"commands":[{"position":{"offset":0,"line":1,"column":1},"argv":[{"text":"sudo","known":true}`) {
		t.Errorf("JSON: %s, %v", data, err)
	}
}

func TestRulesAreDescribed(t *testing.T) {
	t.Parallel()
	sets := map[string]int{}
	for _, r := range RuleInfos() {
		sets[r.Set]++
		if r.Text == "" || !strings.HasPrefix(r.Message, "permission denied: ") || strings.Contains(r.Message, "\n") {
			t.Errorf("rule %+v lacks a text, or its message is not one line", r)
		}
	}
	for _, name := range append(SetNames(), "") {
		if sets[name] == 0 {
			t.Errorf("set %q has no rule", name)
		}
	}
	var d error = &Denial{Decision{Rule: "rm", Message: "no"}}
	if denial, ok := errors.AsType[*Denial](d); !ok || denial.Rule != "rm" || d.Error() == "" {
		t.Errorf("a denial is %v", d)
	}
}

// TestEveryRuleDenies makes sure that no rule is a dead letter.
func TestEveryRuleDenies(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames(), Mode: Guarded})
	seen := map[string]bool{opaqueFault: true} // which must not be seen
	for _, r := range readRows[verdictRow](t, "verdicts.jsonl") {
		seen[p.Check(Input{Script: r.Command}).Rule] = true
		for _, set := range SetNames() { // a rule may be behind another
			seen[newPolicy(t, Options{Sets: []string{set}}).Check(Input{Script: r.Command}).Rule] = true
		}
	}
	for _, r := range append(RuleInfos(), OpaqueInfos()...) {
		if !seen[r.ID] {
			t.Errorf("no case for rule %s", r.ID)
		}
	}
}

func TestCheckConcurrently(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames()})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, r := range readRows[verdictRow](t, "verdicts.jsonl") {
				if r.Mode == "" && p.Check(Input{Script: r.Command}).Verdict != r.Want {
					t.Errorf("Check(%q) is not %s", r.Command, r.Want)
				}
			}
		})
	}
	wg.Wait()
}
