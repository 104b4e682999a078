package policycmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/tool"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// What the configuration offers is what there is.
func TestPolicyChoices(t *testing.T) {
	t.Parallel()
	var contracts []string
	for _, name := range []tool.Name{tool.Agent, tool.Plain, tool.Modes} {
		contracts = append(contracts, string(name))
	}
	for key, want := range map[string][]string{
		"policy.checks": policy.CheckNames(), "policy.sets": policy.SetNames(), "policy.contract": contracts,
		"policy.mode":  {string(policy.Standard), string(policy.Guarded)},
		"policy.match": {string(policy.MatchWhole), string(policy.MatchSegments)},
	} {
		if s, ok := config.Lookup(key); !ok || !slices.Equal(s.Choices, want) {
			t.Errorf("setting %s offers %q; want %q", key, s.Choices, want)
		}
	}
}

// rows answers lines of input.
func rows(t *testing.T, input string, args ...string) (status int, answers []string, stderr string) {
	t.Helper()
	status, out, stderr := clitest.Feed(t, input, nil, append([]string{"policy", "check", "--jsonl"}, args...)...)
	return status, strings.Split(strings.TrimSuffix(out, "\n"), "\n"), stderr
}

// What --jsonl answers, to the byte: programs read it.
func TestPolicyRows(t *testing.T) {
	t.Parallel()
	const allow = `{"verdict":"allow","blocked":false,"rule":null,"suggestedTool":null,"message":null}`
	const read = `{"verdict":"deny","blocked":true,"rule":"read","suggestedTool":"read","message":"Blocked: Use the ` + "`read`" +
		` tool instead of cat/head/tail. It provides better context and handles binary files.\n\nOriginal command: %s"}`
	const rm = `{"verdict":"deny","blocked":true,"rule":"rm","suggestedTool":null,"message":"permission denied: this rm command could delete critical data (.git, home directory, or root). Specify the full path explicitly (no wildcards, ~, or $HOME)"}`
	const opaque = `{"verdict":"opaque","blocked":false,"rule":"opaque/command-name","suggestedTool":null,"message":null}`
	for _, test := range []struct{ name, row, want string }{
		{"nothing", `{"command":""}`, allow},
		{"check", `{"command":"rm -rf /"}`, rm},
		{"opaque", `{"command":"$x"}`, opaque},
		{"null is nothing", `{"command":"cat f","layer":"","toolNames":null,"rules":null,"sets":null}`, allow},
		{"interceptor", `{"command":"cat f","layer":"interceptor"}`, fmt.Sprintf(read, "cat f")},
		{"its tools", `{"command":"cat f","layer":"interceptor","toolNames":["write","read"]}`, fmt.Sprintf(read, "cat f")},
		{"without the tool", `{"command":"cat f","layer":"interceptor","toolNames":["write"]}`, allow},
		{"no tools", `{"command":"cat f","layer":"interceptor","toolNames":[]}`, allow},
		{"no rules", `{"command":"cat f","layer":"interceptor","rules":[]}`, allow},
		{"default rules", `{"command":"cat f","layer":"interceptor","rules":"default"}`, fmt.Sprintf(read, "cat f")},
		{"behind a directory", `{"command":"cd d && cat f","layer":"interceptor"}`, fmt.Sprintf(read, "cd d && cat f")},
		{"not the others", `{"command":"rm -rf /; $x","layer":"interceptor"}`, allow},
		{"an invalid rule", `{"command":"ls","layer":"interceptor","rules":[{"pattern":"(","tool":"t","message":"m"}]}`, allow},
		{
			"a rule", `{"command":"LS","layer":"interceptor","rules":[{"id":"x","pattern":"^ls","flags":"i","tool":"t","message":"<m>"}]}`,
			`{"verdict":"deny","blocked":true,"rule":"x","suggestedTool":"t","message":"Blocked: <m>\n\nOriginal command: LS"}`,
		},
		{"safety", `{"command":"cat f; rm -rf /","layer":"safety","rules":"default","toolNames":["read"]}`, rm},
		{"rules with the checks", `{"command":"cat f","rules":"default","toolNames":["read"]}`, fmt.Sprintf(read, "cat f")},
		{"id", `{"id":{"n":1},"command":"$x"}`, `{"id":{"n":1},` + opaque[1:]},
	} {
		status, answers, errs := rows(t, test.row)
		if status != 0 || len(answers) != 1 || answers[0] != test.want || (errs != "") != (test.name == "an invalid rule") {
			t.Errorf("%s: %s = %d, %q, %q; want %q", test.name, test.row, status, answers, errs, test.want)
		}
	}
}

// A row that cannot be checked keeps its place.
func TestMalformedRows(t *testing.T) {
	t.Parallel()
	bad := []string{
		`{`, `[]`, `"x"`, `{"command":1}`, `{"command":null}`, `{"command":"a"} {}`, `{"command":"a","layer":"x"}`, `{"command":"a","tool":[]}`,
		`{"command":"a","rules":"all"}`, `{"command":"a","rules":[{"regex":"x"}]}`, `{"command":"a","sets":["x"]}`, `{"command":"a","sets":"x"}`,
		"\x00", "not JSON", `{"command":"a","command":"b"}`, `{"command":"a","Command":"b"}`, `{"command":"\ud800"}`, "{\"command\":\"\xff\"}",
	}
	status, answers, errs := rows(t, `{"command":"a"}`+"\r\n\n"+strings.Join(bad, "\n")+"\n"+`{"command":"$b"}`)
	if status != exit.Usage || len(answers) != len(bad)+2 || errs != "" {
		t.Fatalf("rows() = %d, %d answers, %q; want %d, %d", status, len(answers), errs, exit.Usage, len(bad)+2)
	}
	if !strings.Contains(answers[0], `"allow"`) || !strings.Contains(answers[len(answers)-1], `"opaque"`) {
		t.Errorf("the good rows are answered with %s and %s", answers[0], answers[len(answers)-1])
	}
	for i, row := range bad {
		var a struct {
			Verdict *string
			Blocked bool
			Rule    *string
			Error   string
		}
		if err := json.Unmarshal([]byte(answers[i+1]), &a); err != nil {
			t.Fatal(err)
		}
		if a.Verdict != nil || !a.Blocked || a.Rule != nil || !strings.HasPrefix(a.Error, fmt.Sprintf("line %d: ", i+3)) {
			t.Errorf("%s is answered with %s; want an error of line %d", row, answers[i+1], i+3)
		}
	}
}

// The contract decides what is on where a row says nothing.
func TestPolicyContracts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args    []string
		command string
		verdict policy.Verdict
	}{
		{nil, "rm -rf /", policy.Deny},
		{[]string{"--contract", "modes"}, "rm -rf /", policy.Deny},
		{[]string{"--contract", "agent"}, "rm -rf /", policy.Allow},
		{[]string{"--contract", "agent"}, "cat f", policy.Allow},
		{[]string{"--contract", "plain"}, "rm -rf /", policy.Allow},
		{[]string{"--contract", "plain", "--check", "rm"}, "rm -rf /", policy.Deny},
		{[]string{"--check", "add"}, "rm -rf /", policy.Allow},
		{nil, "git reset --hard", policy.Allow},
		{[]string{"--set", "git-destructive"}, "git reset --hard", policy.Deny},
	} {
		_, answers, _ := rows(t, fmt.Sprintf(`{"command":%q}`, test.command), test.args...)
		if want := fmt.Sprintf(`{"verdict":%q,`, test.verdict); !strings.HasPrefix(answers[0], want) {
			t.Errorf("%q under %q = %s; want %s", test.command, test.args, answers[0], test.verdict)
		}
	}
}

// A line longer than any may be is an error in its place, and is not kept.
func TestLongRows(t *testing.T) {
	t.Parallel()
	long := io.MultiReader(strings.NewReader(`{"command":"`), io.LimitReader(filler{}, stdio.MaxRow), strings.NewReader("\"}\n"+`{"command":"a"}`))
	var out, errs bytes.Buffer
	status := cli.Run(t.Context(), "", []string{"policy", "check", "--jsonl"}, nil, long, &out, &errs)
	got := out.String()
	if status != exit.Usage || strings.Count(got, "\n") != 2 || !strings.Contains(got, "line 1: it is longer than 67108864 bytes") || !strings.Contains(got, `"allow"`) {
		t.Errorf("check --jsonl = %d, %.300q, %q; want an error and an answer", status, got, errs.String())
	}
}

// filler reads as x without end.
type filler struct{}

func (filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A check that waits for a person to type ends with its context.
func TestRowsInterrupted(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	var out, errs bytes.Buffer
	if status := cli.Run(clitest.Interrupted(t), "", []string{"policy", "check", "--jsonl"}, nil, r, &out, &errs); status != exit.Cancelled {
		t.Errorf("check --jsonl = %d, %q; want %d", status, errs.String(), exit.Cancelled)
	}
}

func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("ls\ngit push -f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		args   []string
		status int
		out    string // a part
	}{
		{"allow", []string{"ls"}, 0, "allow\n"},
		{"deny", []string{"ls; rm -rf /"}, exit.Denied, "deny  rm  at line 1, column 5  "},
		{"message", []string{"rm -rf /"}, exit.Denied, "\n  permission denied: this rm command could delete"},
		{"file", []string{"--file", script}, exit.Denied, "at line 2, column 1"},
		{"opaque", []string{"$x"}, 0, "; it would run, and the result would say so\n"},
		{"guarded", []string{"--policy-mode", "guarded", "$x"}, exit.Denied, "opaque  opaque/command-name  at line 1, column 1"},
		{"JSON", []string{"--json", "ls; git push -f"}, exit.Denied, `"layer":"safety","position":{"offset":4,"line":1,"column":5},"reason":"`},
		{"JSON of what is allowed", []string{"--json", "ls"}, 0, `{"verdict":"allow","blocked":false,"rule":null,"suggestedTool":null,"message":null}` + "\n"},
		{"an escape sequence", []string{"rm -rf / $'\\e[31m'\x1b[31m"}, exit.Denied, "deny  rm"},
	} {
		status, out, errs := clitest.Call(t, nil, append([]string{"policy", "check", "--contract", "modes"}, test.args...)...)
		if status != test.status || !strings.Contains(out, test.out) || errs != "" || strings.Contains(out, "\x1b") {
			t.Errorf("%s: policy check %q = %d, %q, %q; want %d, %q", test.name, test.args, status, out, errs, test.status, test.out)
		}
	}
}

// Without a contract a policy is that of run: what the configuration says, and nothing else.
func TestPolicyOfRun(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"policy", "check", "git", "push", "-f"}, {"policy", "explain", "git push -f"}} {
		status, out, errs := clitest.Call(t, nil, args...)
		if status != 0 || !strings.HasPrefix(out, "allow\n") || !strings.Contains(errs, "the configuration has no rules, so run allows every command") {
			t.Errorf("%q = %d, %q, %q; want it allowed, and why", args, status, out, errs)
		}
		_, out, errs = clitest.Call(t, []string{"SANDBOXBASH_POLICY_CHECKS=push"}, args...)
		if !strings.HasPrefix(out, "deny  push") || errs != "" {
			t.Errorf("%q with a check = %q, %q; want it denied", args, out, errs)
		}
		_, out, _ = clitest.Call(t, nil, append([]string{"--config", clitest.RulesFile(t)}, args[0], args[1], "git commit")...)
		if !strings.HasPrefix(out, "deny  commit") {
			t.Errorf("%q with rules = %q; want it denied", args, out)
		}
	}
}

func TestPolicyExplain(t *testing.T) {
	t.Parallel()
	status, out, errs := clitest.Call(t, nil, "policy", "explain", "--contract", "modes", "ls 'a b' $x\nsudo sh -c 'git push -f'")
	lines := strings.Split(out, "\n")
	if status != 0 || errs != "" || !strings.HasPrefix(lines[0], "deny  push  at line 2, column ") {
		t.Errorf("policy explain = %d, %q, %q; want it to begin with the decision", status, out, errs)
	}
	for _, want := range []string{"1:1 ", " ls 'a b' ‹$x›", " sudo sh -c 'git push -f'", "] git push -f", "A word in ‹› is made when the script runs"} {
		if !strings.Contains(out, want) {
			t.Errorf("policy explain prints %q; want %q in it", out, want)
		}
	}
	if _, out, _ := clitest.Call(t, nil, "policy", "explain", ""); out != "allow\n" {
		t.Errorf("policy explain of nothing = %q", out)
	}
	_, out, _ = clitest.Call(t, nil, "policy", "explain", "--contract", "modes", "--json", "git push -f")
	var e struct {
		Decision struct{ Verdict, Rule string }
		Commands []policy.Node
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Decision.Verdict != "deny" || e.Decision.Rule != "push" || len(e.Commands) != 1 {
		t.Errorf("policy explain --json = %s, %v", out, err)
	}
}

// listedRule is a rule as policy rules --json lists it.
type listedRule struct {
	Rule, Text, Tool, Message, Why string
	On                             bool
}

func TestPolicyRules(t *testing.T) {
	t.Parallel()
	list := func(args ...string) map[string]listedRule {
		t.Helper()
		status, out, errs := clitest.Call(t, nil, append([]string{"policy", "rules", "--json"}, args...)...)
		var rules []listedRule
		if err := json.Unmarshal([]byte(out), &rules); status != 0 || err != nil {
			t.Fatalf("policy rules --json = %d, %q, %q: %v", status, out, errs, err)
		}
		byID := map[string]listedRule{}
		for _, r := range rules {
			byID[r.Rule] = r
		}
		return byID
	}
	plain := list("--contract=modes")
	if len(plain) != len(policy.DefaultRules())+len(policy.RuleInfos())+len(policy.OpaqueInfos()) {
		t.Errorf("policy rules lists %d rules, or two have one name", len(plain))
	}
	for _, r := range policy.RuleInfos() {
		if got := plain[r.ID]; got.On != (r.Set == "") || got.Message == "" || got.Text == "" {
			t.Errorf("rule %s is listed as %+v; want it on only if it is a check", r.ID, got)
		}
	}
	if got := plain["read"]; got.On || got.Why != "policy.interceptor is off" || got.Tool != "read" {
		t.Errorf("rule read is listed as %+v; want it off", got)
	}
	own := list("--config", clitest.RulesFile(t))
	for rule, why := range map[string]string{"commit": "", "rule-2": "invalid", "rule-3": "no tool read"} {
		if got := own[rule]; got.On != (why == "") || got.Why != why {
			t.Errorf("rule %s is listed as %+v; want it on, or off for %q", rule, got, why)
		}
	}
	if _, listed := own["read"]; listed {
		t.Error("the default rules are listed with others")
	}
	_, out, _ := clitest.Call(t, nil, "policy", "rules")
	if !strings.Contains(out, "\nsafety       rm ") && !strings.Contains(out, "\nsafety ") {
		t.Errorf("policy rules prints %q", out)
	}
}

func TestPolicyTest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, test := range []struct {
		name, file, text string
		status           int
		want             string // a part of what is printed
	}{
		{"as wanted", "a.yaml", "- {command: ls, want: allow}\n- {command: git push -f, want: deny, rule: push}\n", 0, "all 2 cases are as wanted\n"},
		{"lines", "a.jsonl", `{"command":"ls","want":"allow"}` + "\n\n" + `{"command":"$x","want":"opaque"}` + "\n", 0, "all 2 cases are as wanted\n"},
		{
			"a diff", "b.yaml", "# mine\n- {command: ls, want: allow}\n- command: git push -f\n  want: allow\n", exit.Findings,
			"b.yaml:3: git push -f\n  - verdict: allow\n  + verdict: deny\n  + rule: push\n1 of 2 cases failed\n",
		},
		{"a rule", "c.jsonl", `{"command":"git push -f","want":"deny","rule":"add"}`, exit.Findings, "  - rule: add\n  + rule: push\n"},
		{
			"a tool", "d.yaml", "- {command: cat f, layer: interceptor, want: deny, tool: write, rules: [{pattern: c, tool: t, message: m}]}\n", exit.Findings,
			"  + rule: rule-1\n  - tool: write\n  + tool: t\n",
		},
		{"no command", "e.yaml", "- {want: allow}\n", exit.Usage, "line 1: there is no command"},
		{"another verdict", "f.jsonl", `{"command":"ls","want":"blocked"}`, exit.Usage, `want is "blocked"`},
		{"unknown field", "g.yaml", "- {command: ls, want: allow, why: not}\n", exit.Usage, "why"},
		{"unknown field of a rule", "h.yaml", "- {command: ls, want: allow, rules: [{regex: x}]}\n", exit.Usage, "rules is neither"},
		{"unknown layer", "i.yaml", "- {command: ls, want: allow, layer: x}\n", exit.Usage, `layer "x" is unknown`},
		{"no list", "j.yaml", "command: ls\n", exit.Usage, "it is not a list of cases"},
		{"empty", "k.yaml", "", exit.Usage, "it has no cases"},
		{"not there", "", "", exit.Usage, "no such file"},
	} {
		file := filepath.Join(dir, "missing")
		if test.file != "" {
			file = filepath.Join(dir, test.file)
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		status, out, errs := clitest.Call(t, nil, "policy", "test", file)
		if status != test.status || !strings.Contains(out+errs, test.want) {
			t.Errorf("%s: policy test = %d, %q, %q; want %d, %q", test.name, status, out, errs, test.status, test.want)
		}
	}
}
