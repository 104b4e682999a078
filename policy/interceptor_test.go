package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// readRows reads a file of testdata, one JSON document a line.
func readRows[T any](tb testing.TB, name string) []T {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	var rows []T
	for line := range strings.Lines(string(data)) {
		var r T
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			tb.Fatalf("%s: %v in %s", name, err, line)
		}
		rows = append(rows, r)
	}
	return rows
}

// interceptorRow is a row of the interceptor's corpus.
type interceptorRow struct {
	ID       string   `json:"id"`
	Tier     string   `json:"tier"`
	Command  string   `json:"command"`
	Tools    []string `json:"tools_available"`
	Rules    ruleList `json:"rules"`
	Blocked  bool     `json:"blocked"`
	Tool     string   `json:"suggested_tool"`
	Contains []string `json:"message_contains"`
	Newest   bool     `json:"newest_blocked"`
	Enabled  *bool    `json:"interceptor_enabled"`
}

// withoutCd is what becomes of the rows whose leading cd is the working directory
// under contract agent.
var withoutCd = map[string]string{"int-002": "cat package.json", "int-133": "grep foo f"}

// input is the row's command, as contract agent has the policy check it.
func (r interceptorRow) input() Input {
	if script, ok := withoutCd[r.ID]; ok {
		return Input{Script: script, Original: r.Command}
	}
	return Input{Script: r.Command}
}

// policy is what the row is checked with.
func (r interceptorRow) policy(t *testing.T, match Match) *Policy {
	t.Helper()
	rules := []Rule(r.Rules)
	if r.Enabled != nil && !*r.Enabled {
		rules = nil
	}
	p, _, err := New(Options{Rules: rules, Tools: r.Tools, Match: match})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ruleList is rules, or "default".
type ruleList []Rule

func (l *ruleList) UnmarshalJSON(data []byte) error {
	if string(data) == `"default"` {
		*l = DefaultRules()
		return nil
	}
	return json.Unmarshal(data, (*[]Rule)(l))
}

// All rows in the seed's way of matching.
func TestInterceptorCorpus(t *testing.T) {
	t.Parallel()
	rows := readRows[interceptorRow](t, "interceptor.jsonl")
	if len(rows) != 129 {
		t.Errorf("there are %d rows; want 129", len(rows))
	}
	for _, r := range rows {
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			d := r.policy(t, MatchWhole).Check(r.input())
			denied := d.Verdict == Deny
			if denied != r.Blocked || d.Blocked != r.Blocked || d.Tool != r.Tool {
				t.Fatalf("Check(%q) = %+v; want blocked %v for tool %q", r.Command, d, r.Blocked, r.Tool)
			}
			if !denied {
				return
			}
			for _, part := range r.Contains {
				if !strings.Contains(d.Message, part) {
					t.Errorf("Check(%q) says %q; want %q in it", r.Command, d.Message, part)
				}
			}
			if want := "\n\nOriginal command: " + r.Command; !strings.HasSuffix(d.Message, want) {
				t.Errorf("Check(%q) says %q; want it to end in %q", r.Command, d.Message, want)
			}
		})
	}
}

// otherRules are the rows in which upstream blocks less, or more, because its rule
// for redirections is another: it knows quotes. Where its way of
// matching alone decides, ours is the same.
var otherRules = map[string]string{
	"int-048": "in quotes", "int-190": "without anything to print",
}

// All rows in the way that upstream matches today.
func TestInterceptorSegments(t *testing.T) {
	t.Parallel()
	differ := 0
	for _, r := range readRows[interceptorRow](t, "interceptor.jsonl") {
		want := r.Newest
		if otherRules[r.ID] != "" {
			want = r.Blocked
		}
		if want != r.Blocked {
			differ++
		}
		if d := r.policy(t, MatchSegments).Check(r.input()); d.Blocked != want {
			t.Errorf("%s: Check(%q) = %+v; want blocked %v", r.ID, r.Command, d, want)
		}
	}
	if differ < 9 {
		t.Errorf("only %d rows tell the two ways of matching from each other", differ)
	}
}

// Where a command is seen by itself, and where the same text is none (65).
func TestSegments(t *testing.T) {
	t.Parallel()
	p, _, err := New(Options{
		Rules: []Rule{{Pattern: `^\s*git\s+commit\b`, Tool: "commit", Message: "Use the commit tool instead."}},
		Tools: []string{"commit"}, Match: MatchSegments,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		script string
		line   int // where it is blocked; 0: it is not
		column int
	}{
		{"git commit -m x", 1, 1},
		{"  git commit", 1, 3},
		{"true && git commit -m x", 1, 9},
		{"true; git commit", 1, 7},
		{"true || git commit", 1, 9},
		{"true & git commit", 1, 8},
		{"true\ngit commit", 2, 1},
		{"true\n\n  git commit # now", 3, 3},
		{"A=b git commit", 1, 5},
		{"A='x y' B=\"$(date)\" git commit", 1, 21},
		{"git commit | cat", 1, 1},
		{"git add f && git commit && git push", 1, 14},
		{"git log | git commit", 0, 0},
		{"echo 'git commit'", 0, 0},
		{`echo "; git commit"`, 0, 0},
		{`echo \; git commit`, 0, 0},
		{"# git commit", 0, 0},
		{"true # ; git commit", 0, 0},
		{"cat <<X\ngit commit\nX", 0, 0},
		{"echo hi > git commit", 0, 0},
		{"echo hi >| git commit", 0, 0},
		{"git log | grep commit", 0, 0},
		{"(git commit)", 0, 0},
		{"{ git commit; }", 0, 0},
		{"echo $(git commit)", 0, 0},
		{"echo `git commit`", 0, 0},
		{"if true; then git commit; fi", 0, 0},
		{"git commit-tree x", 1, 1}, // \b: a hyphen ends a word
		{"git commits", 0, 0},
		{"", 0, 0},
	} {
		d := p.Check(Input{Script: test.script})
		if !d.Blocked {
			d.Position = Position{}
		}
		if d.Blocked != (test.line > 0) || d.Position.Line != test.line || d.Position.Column != test.column {
			t.Errorf("Check(%q) = blocked %v at %v; want line %d, column %d", test.script, d.Blocked, d.Position, test.line, test.column)
		}
		if d.Blocked && (d.Rule != "rule-1" || d.Tool != "commit") {
			t.Errorf("Check(%q) = rule %q, tool %q; want rule-1, commit", test.script, d.Rule, d.Tool)
		}
	}
}

// The first rule wins, not the first segment that any rule matches.
func TestSegmentsByRule(t *testing.T) {
	t.Parallel()
	rules := []Rule{{Pattern: "^b", Tool: "t"}, {Pattern: "^a", Tool: "t"}}
	p := newPolicy(t, Options{Rules: rules, Tools: []string{"t"}, Match: MatchSegments})
	if d := p.Check(Input{Script: "x; a; b"}); d.Rule != "rule-1" || d.Position.Column != 7 {
		t.Errorf("Check() = rule %s at %v; want rule-1 at 1:7", d.Rule, d.Position)
	}
}

// The command as it was written is looked at first, then what it has become; the
// message has the former.
func TestOriginalCommand(t *testing.T) {
	t.Parallel()
	rules := []Rule{
		{Pattern: "^cat", Tool: "t", Message: "cat"},
		{Pattern: "^cd", Tool: "t", Message: "cd"},
	}
	for _, test := range []struct {
		name string
		in   Input
		want string // of the message; "" is allowed
		pos  Position
	}{
		{"both match, the original wins", Input{Script: "cat f", Original: "cd /x && cat f"}, "Blocked: cd\n\nOriginal command: cd /x && cat f", Position{0, 1, 1}},
		{"only what it becomes", Input{Script: "cat f", Original: "(cat f)"}, "Blocked: cat\n\nOriginal command: (cat f)", Position{0, 1, 1}},
		{"the same", Input{Script: "ls; cat f", Original: "ls; cat f"}, "", Position{}},
		{"nothing but a script", Input{Script: " \n cat f\n"}, "Blocked: cat\n\nOriginal command:  \n cat f\n", Position{3, 2, 2}},
	} {
		ic, _, err := newInterceptor(rules, []string{"t"}, MatchWhole, false)
		if err != nil {
			t.Fatal(err)
		}
		got, blocked := ic.check(test.in, nil)
		if blocked != (test.want != "") || blocked && (got.message() != test.want || got.pos != test.pos) {
			t.Errorf("%s: check(%+v) = %q at %+v; want %q at %+v", test.name, test.in, got.message(), got.pos, test.want, test.pos)
		}
	}
}

// A rule that cannot be compiled is left out with a warning, or is an error.
func TestInvalidRules(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, pattern, flags, want string }{
		{"open group", "^ls(", "", "its pattern is invalid"},
		{"nothing to repeat", "*x", "", "its pattern is invalid"},
		{"of another dialect", "(?i)ls", "", "write (?i) as the rule's flags"},
		{"atomic group", "(?>ls)", "", "offset 0"},
		{"10 MB", strings.Repeat("a", 10<<20), "", "the limit is 65536"},
		{"unknown flag", "ls", "x", `flag 'x' is unknown`},
		{"flag twice", "ls", "ii", "flag i is given twice"},
		{"flag v", "ls", "v", "flag v is not supported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rules := []Rule{{Pattern: "^a", Tool: "t"}, {Pattern: test.pattern, Flags: test.flags, Tool: "t"}, {Pattern: "ls", Tool: "t", Message: "no"}}
			ic, warnings, err := newInterceptor(rules, []string{"t"}, "", false)
			if err != nil || len(warnings) != 1 {
				t.Fatalf("newInterceptor() = %v, %v; want one warning", warnings, err)
			}
			if w := warnings[0]; w.Rule != "rule-2" || !strings.Contains(w.Text, test.want) || !strings.Contains(w.Text, "rule-2") || len(w.Text) > 500 {
				t.Errorf("newInterceptor() warns %+v; want %q in it", w, test.want)
			}
			if got, blocked := ic.check(Input{Script: "ls"}, nil); !blocked || got.rule.ID != "rule-3" {
				t.Errorf("check(ls) = %+v, %v; want rule-3", got, blocked)
			}
			if _, _, err := newInterceptor(rules, nil, "", true); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("newInterceptor(strict) = %v; want %q in it", err, test.want)
			}
		})
	}
	if _, _, err := newInterceptor(nil, nil, "parts", false); err == nil {
		t.Error(`newInterceptor(match "parts") = nil; want an error`)
	}
}

// A rule counts only if its tool is present, by its exact name.
func TestTools(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tools []string
		want  bool
	}{{nil, false}, {[]string{"Read"}, false}, {[]string{"read "}, false}, {[]string{"write", "read"}, true}} {
		ic, _, err := newInterceptor(DefaultRules(), test.tools, "", false)
		if err != nil {
			t.Fatal(err)
		}
		if _, blocked := ic.check(Input{Script: "cat f"}, nil); blocked != test.want {
			t.Errorf("check(cat f) with tools %q = %v; want %v", test.tools, blocked, test.want)
		}
	}
}

// Undecided rules make a script opaque, unless another one matches.
func TestUndecided(t *testing.T) {
	t.Parallel()
	bomb := Rule{ID: "bomb", Pattern: `^(?=x)(x+x+)+y`, Tool: "t", Message: "m"}
	text := strings.Repeat("x", 2000)
	for _, test := range []struct {
		name    string
		rules   []Rule
		mode    Mode
		verdict Verdict
		blocked bool
		rule    string
	}{
		{"standard runs it", []Rule{bomb}, Standard, Opaque, false, "bomb"},
		{"guarded refuses it", []Rule{bomb}, Guarded, Opaque, true, "bomb"},
		{"a later one matches", []Rule{bomb, {Pattern: "xx", Tool: "t"}}, Standard, Deny, true, "rule-2"},
	} {
		ic, _, err := newInterceptor(test.rules, []string{"t"}, "", true)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		got, found := ic.check(Input{Script: text}, nil)
		d := got.decision(test.mode)
		if !found || d.Verdict != test.verdict || d.Blocked != test.blocked || d.Rule != test.rule || d.Blocked == (d.Message == "") {
			t.Errorf("%s: check() = %+v, %v; want %s, blocked %v, rule %s", test.name, d, found, test.verdict, test.blocked, test.rule)
		}
		if took := time.Since(begin); took > patience {
			t.Errorf("%s: it took %v", test.name, took)
		}
	}
}

// patience is what a bounded time of 50 ms may become on a machine that is busy
// with other tests; a pattern without a bound takes hours.
const patience = 30 * time.Second

// One bad pattern does not stall, whatever the command.
func TestMatchTime(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1<<20)
	mixed := make([]byte, 1<<20)
	for i, x := 0, uint32(1); i < len(mixed); i++ {
		x = x*1664525 + 1013904223
		mixed[i] = 'a' + byte(x>>31)
	}
	for _, test := range []struct{ name, pattern, text string }{
		{"nested", `(a+)+$`, long + "!"},
		{"counted twice", `(.{1,1000}){1,1000}`, long},
		{"counted twice, to the end", `(.{1,1000}){1,1000}$`, long + "\n"},
		{"counted", `.{1,1000}x`, long},
		{"many states", `(a|b)*a(a|b){200}c`, string(mixed)},
		{"lookahead", `^(?=(a+)+$)`, long + "!"},
		{"backreference", `(a*)*\1b`, long},
		{"empty", ``, long},
	} {
		m, err := compileECMAScript(test.pattern, "")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		at, decided := m.match([]segment{{text: test.text}}, begin.Add(matchTime))
		took := time.Since(begin)
		t.Logf("%s: %T, matched %v, decided %v, %v", test.name, m, at == 0, decided, took)
		if took > patience {
			t.Errorf("match(%s) took %v; want 50ms", test.name, took)
		}
	}
}
