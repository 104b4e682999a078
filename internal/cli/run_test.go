package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/policy"
)

// The policy is asked about the script that words stand for, in every command that takes words.
func TestWordsAreOneScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(file, []byte("git push -f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := append(clitest.NoEngine(t), "SANDBOXBASH_POLICY_CHECKS=push")
	for _, command := range [][]string{
		{"run"}, {"run", "--background", "--session", "x"}, {"run", "--pty"}, {"session", "exec", "x"}, {"policy", "check"}, {"policy", "explain"},
	} {
		for _, words := range [][]string{
			{"git", "push", "-f"},
			{"--", "git", "push", "-f"},
			{"git push -f"},
			{"--", "git push -f"},
			{"-c", "git push -f"},
			{"-c", "git push -f", "a"},
			{"--command=git push -f", "--", "a"},
			{"--file", file},
			{"--file", file, "a"},
		} {
			args := append(slices.Clone(command), words...)
			status, out, errs := clitest.Call(t, environ, args...)
			want := exit.Denied
			if command[len(command)-1] == "explain" {
				want = 0
			}
			if status != want || !strings.Contains(out+errs, "--force-with-lease") {
				t.Errorf("%q = %d, %q, %q; want it denied", args, status, out, errs)
			}
		}
		for _, words := range [][]string{{"git", "push -f"}, {"-c", `$1 push`, "git"}, {"echo", "git push -f"}} {
			args := append(slices.Clone(command), words...)
			if status, _, errs := clitest.Call(t, environ, args...); status == exit.Denied || strings.Contains(errs, "usage") {
				t.Errorf("%q = %d, %q; want it allowed", args, status, errs)
			}
		}
	}
	for _, words := range [][]string{{"--", "git", "push", "-f"}, {"-c", "git push -f"}, {"--file", file}} {
		args := append([]string{"pty", "start", "x"}, words...)
		if status, out, errs := clitest.Call(t, environ, args...); status == exit.Usage {
			t.Errorf("%q = %d, %q, %q; want it understood", args, status, out, errs)
		}
	}
	for _, args := range [][]string{{"run"}, {"run", "--"}, {"session", "exec", "--"}, {"policy", "check", "--"}} {
		if status, _, errs := clitest.Call(t, environ, args...); status != exit.Usage || !strings.Contains(errs, "there is no command") {
			t.Errorf("%q = %d, %q; want %d", args, status, errs, exit.Usage)
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
