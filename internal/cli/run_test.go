package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/policy"
)

// Words that a script would drop are refused, with both ways of writing them.
func TestWordsBehindScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(file, []byte("make\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string // in the advice
	}{
		{[]string{"run", "make", "test"}, `'make test', or use the words in the script, as in 'make "$@"' test`},
		{[]string{"run", "--", "make", "test", "-j2"}, `'make test -j2', or use the words in the script, as in 'make "$@"' test -j2`},
		{[]string{"run", "--background", "--session", "x", "make", "test"}, `'make test'`},
		{[]string{"run", "--pty", "make", "test"}, `'make test'`},
		{[]string{"run", "echo '$1'", "a"}, `'make test'`}, // an example
		{[]string{"run", "--file", file, "test"}, `leave them out, or use them in the script, as "$1" or "$@"`},
		{[]string{"run", "-", "test"}, `leave them out`},
		{[]string{"session", "exec", "x", "make", "test"}, `'make test'`},
		{[]string{"session", "exec", "x", "--", "make", "test"}, `'make test'`},
		{[]string{"pty", "start", "x", "--", "make", "test"}, `'make test'`},
	} {
		status, out, errs := clitest.Call(t, clitest.NoEngine(t), test.args...)
		if status != exit.Usage || out != "" || !strings.Contains(errs, "uses no positional parameter") || !strings.Contains(errs, test.want) {
			t.Errorf("execute(%q) = %d, %q, %q; want %d and %q", test.args, status, out, errs, exit.Usage, test.want)
		}
	}
	for _, args := range [][]string{
		{"run", `make "$@"`, "test"}, {"session", "exec", "x", `echo "$10"`, "test"}, {"run", `shift; make`, "test"},
	} {
		if status, _, errs := clitest.Call(t, clitest.NoEngine(t), args...); status != exit.Engine {
			t.Errorf("execute(%q) = %d, %q; want that only an engine is missing", args, status, errs)
		}
	}
}

// A note names a secret that cannot be masked.
func TestShortSecretWarns(t *testing.T) {
	t.Parallel()
	_, _, errs := clitest.Call(t, clitest.NoEngine(t), "run", "--env", "API_KEY=abc12", "true")
	if !strings.Contains(errs, "warning: secret API_KEY") || strings.Contains(errs, "abc12") {
		t.Errorf("run says %q; want a warning about API_KEY without its value", errs)
	}
	_, out, errs := clitest.Call(t, clitest.NoEngine(t), "run", "--json", "--env", "API_KEY=abc12", "true")
	if errs != "" || !strings.Contains(out, `"notes":["warning: secret API_KEY`) {
		t.Errorf("run --json = %q, %q; want the warning among the notes", out, errs)
	}
}

// run refuses before it looks for an engine, and says how not to be refused.
func TestRunDenied(t *testing.T) {
	t.Parallel()
	environ := append(clitest.NoEngine(t), "SANDBOXBASH_POLICY_CHECKS=push")
	for _, args := range [][]string{{"run", "ls; git push -f"}, {"session", "exec", "0199", "ls; git push -f"}} {
		status, out, errs := clitest.Call(t, environ, args...)
		want := "sandboxbash: denied by the policy (push): permission denied: git push --force is not allowed. Use --force-with-lease for safer force pushes, or push without force\n" +
			"  at line 1, column 5; see what it sees with `sandboxbash policy explain`\n"
		if status != exit.Denied || out != "" || errs != want {
			t.Errorf("%q = %d, %q, %q; want %d, %q", args, status, out, errs, exit.Denied, want)
		}
	}
	_, out, _ := clitest.Call(t, environ, "run", "--json", "git push -f")
	var j struct {
		Policy struct {
			Verdict      policy.Verdict
			Rule, Reason string
		}
		Error core.ErrorJSON
	}
	if err := json.Unmarshal([]byte(out), &j); err != nil || j.Policy.Verdict != policy.Deny || j.Policy.Rule != "push" || j.Policy.Reason == "" || j.Error.Cause != "denied" {
		t.Errorf("run --json = %s, %v; want a denial by push", out, err)
	}
	// What is allowed goes on to the engine, that is not there.
	if status, _, errs := clitest.Call(t, environ, "run", "git push"); status != exit.Engine {
		t.Errorf("run of what is allowed = %d, %q; want %d", status, errs, exit.Engine)
	}
	// The interceptor names its tool.
	status, _, errs := clitest.Call(t, clitest.NoEngine(t), "--config", clitest.RulesFile(t), "run", "git commit")
	if status != exit.Denied || !strings.Contains(errs, "use the tool commit instead") || !strings.Contains(errs, "Original command: git commit") ||
		strings.Count(errs, "rule-2 is left out") != 1 {
		t.Errorf("run of what a rule matches = %d, %q", status, errs)
	}
	// A rule that cannot be compiled stops it in strict mode.
	status, _, errs = clitest.Call(t, append(clitest.NoEngine(t), "SANDBOXBASH_POLICY_STRICT=true"), "--config", clitest.RulesFile(t), "run", "true")
	if status != exit.Usage || !strings.Contains(errs, "interceptor rule rule-2: its pattern is invalid") {
		t.Errorf("run with a bad rule and policy.strict = %d, %q; want %d", status, errs, exit.Usage)
	}
}
