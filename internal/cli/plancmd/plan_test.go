package plancmd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// plans answers lines of input.
func plans(t *testing.T, input string) (status int, answers []string, stderr string) {
	t.Helper()
	status, out, stderr := clitest.Feed(t, input, clitest.NoEngine(t), "plan", "--jsonl")
	for line := range strings.Lines(out) {
		answers = append(answers, strings.TrimSuffix(line, "\n"))
	}
	return status, answers, stderr
}

func TestPlanRows(t *testing.T) {
	t.Parallel()
	const input = `{"contract":"plain","arguments":{"command":"ls <x && y"}}

{"contract":"modes","arguments":{"command":"git add -A","mode":"slow"},"id":7}
{"contract":"agent","arguments":{"command":"cat f"},"settings":{"bashInterceptor.enabled":true},"toolNames":["read"]}
{"contract":"agent","arguments":{"command":"cat local://a","timeout":null},"context":{"local":{"artifacts_dir":"/art"}}}
{"contract":"agent","arguments":{"command":"cd skill://s && cat local://a"}}
{"contract":"agent","arguments":{"command":"cat local://a"},"context":{}}
{"contract":"agent","arguments":{"command":"cat local://a","cwd":"b"},"context":{"local":{"artifacts_dir":"/art"},"session_cwd":"/srv"}}
{"contract":"C","arguments":{"command":"","mode":"slow"},"settings":null,"toolNames":null,"context":null}
`
	status, answers, errs := plans(t, input)
	want := []string{
		`{"command":"ls <x && y","cwd":null,"head":null,"tail":null,"env":{},"timeoutSeconds":30,"notices":[],"denial":null,"error":null}`,
		`{"command":"git add -A","cwd":null,"head":null,"tail":null,"env":{},"timeoutSeconds":900,"notices":[],"denial":{"message":"permission denied: blind git add commands (git add -A, git add ., git add --all, git add *) are not allowed, specify files explicitly","rule":"add","layer":"safety","reason":"`,
		`"denial":{"message":"Blocked: Use the ` + "`read`" + ` tool instead of cat/head/tail. It provides better context and handles binary files.\n\nOriginal command: cat f","rule":"read","layer":"interceptor","suggestedTool":"read"`,
		`{"command":null,"cwd":null,"head":null,"tail":null,"env":{},"timeoutSeconds":null,"notices":[],"denial":null,"error":"Invalid bash arguments: timeout: expected a number, got null"}`,
		`{"command":"cat local://a","cwd":"skill://s",`,
		`"error":"Cannot resolve local:// URL in bash command: local protocol options are unavailable for this session."}`,
		`{"command":"cat '/art/local/a'","cwd":"/srv/b",`,
		`"error":"Command cannot be empty"}`,
	}
	if status != 0 || errs != "" || len(answers) != len(want) {
		t.Fatalf("plan --jsonl = %d, %q, %q; want %d answers", status, answers, errs, len(want))
	}
	for i := range want {
		if !strings.Contains(answers[i], want[i]) {
			t.Errorf("answer %d is %s; want %s in it", i+1, answers[i], want[i])
		}
	}
	if !strings.HasSuffix(answers[1], `,"error":null,"id":7}`) {
		t.Errorf("answer 2 is %s; want the id repeated", answers[1])
	}
}

// A line that is not a request is answered too, and the others are as they were.
func TestPlanBadRows(t *testing.T) {
	t.Parallel()
	const good = `{"contract":"plain","arguments":{"command":"ls"}}`
	for _, test := range []struct{ row, want string }{
		{`{`, "a request is a JSON object: they are not JSON"},
		{`[]`, "a request is a JSON object: expected an object, got an array"},
		{`{"arguments":{}} {}`, "a request is a JSON object: they are not JSON"},
		{`{"contract":"bash","arguments":{}}`, `unknown contract \"bash\": it can be agent, plain or modes`},
		{`{"contract":"plain"}`, "arguments is required"},
		{`{"contract":"plain","arguments":{},"argument":{}}`, `there is no field \"argument\"`},
		{`{"contract":"plain","arguments":{},"contract":"modes"}`, `a request is a JSON object: \"contract\" is given twice`},
		{`{"contract":5,"arguments":{}}`, "contract: expected a string, got the number 5"},
		{`{"contract":"agent","arguments":{},"settings":{"async":true}}`, `settings: there is no field \"async\"`},
		{`{"contract":"agent","arguments":{},"toolNames":"read"}`, "toolNames: expected an array of strings, got a string"},
		{`{"contract":"agent","arguments":{},"context":{"skill":[]}}`, `context: there is no field \"skill\"`},
	} {
		status, answers, errs := plans(t, good+"\n"+test.row+"\n"+good)
		if status != 2 || errs != "" || len(answers) != 3 || answers[0] != answers[2] || !strings.Contains(answers[0], `"command":"ls"`) {
			t.Errorf("%s: status %d, %q, %q; want 2 and three answers", test.row, status, answers, errs)
			continue
		}
		if want := `"error":"line 2: ` + test.want + `"}`; !strings.HasPrefix(answers[1], `{"command":null,`) || !strings.HasSuffix(answers[1], want) {
			t.Errorf("%s: answer %s; want %s at its end", test.row, answers[1], want)
		}
	}
}

func TestPlanLongRow(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 8<<20)
	status, answers, errs := plans(t, `{"contract":"plain","arguments":{"command":"`+long+`"}}`+"\n"+`{"contract":"plain","arguments":{"command":"ls"}}`)
	if status != 0 || errs != "" || len(answers) != 2 {
		t.Fatalf("plan --jsonl = %d, %d answers, %q", status, len(answers), errs)
	}
	var row struct{ Command string }
	if err := json.Unmarshal([]byte(answers[0]), &row); err != nil || row.Command != long {
		t.Errorf("the command has %d bytes, %v; want %d", len(row.Command), err, len(long))
	}
}

func TestPlanOne(t *testing.T) {
	t.Parallel()
	status, out, errs := clitest.Call(t, clitest.NoEngine(t), "plan", "--contract", "agent", `{"command":"cd /x && make","timeout":9999}`)
	if status != 0 || errs != "" || !strings.HasPrefix(out, `{"command":"make","cwd":"/x",`) ||
		!strings.Contains(out, `"GIT_PAGER":"cat"`) || !strings.Contains(out, `"timeoutSeconds":3600,"notices":["Timeout clamped to 3600s (requested 9999s; allowed range 1-3600s)."]`) {
		t.Errorf("plan = %d, %s, %q", status, out, errs)
	}
	for _, args := range [][]string{
		{"plan"}, {"plan", "{}", "{}"}, {"plan", "--jsonl", "{}"}, {"plan", "--contract", "bash", "{}"},
	} {
		if status, out, errs := clitest.Call(t, clitest.NoEngine(t), args...); status != 2 || out != "" || errs == "" {
			t.Errorf("%q = %d, %q, %q; want wrong use", args, status, out, errs)
		}
	}
}

// A rule that cannot be compiled is left out, with a note.
func TestPlanBadRule(t *testing.T) {
	t.Parallel()
	row := `{"contract":"agent","arguments":{"command":"cat f"},"toolNames":["t"],"settings":{"bashInterceptor.enabled":true,` +
		`"bashInterceptor.patterns":[{"pattern":"(","tool":"t","message":"m"},{"pattern":"^cat","tool":"t","message":"n"}]}}`
	status, answers, errs := plans(t, row)
	if status != 0 || len(answers) != 1 || !strings.Contains(answers[0], `"message":"Blocked: n\n\nOriginal command: cat f"`) || !strings.Contains(errs, "rule-1 is left out") {
		t.Errorf("plan --jsonl = %d, %q, %q", status, answers, errs)
	}
}
