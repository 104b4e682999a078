package hookcmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func bash(dir, command string) string {
	text, _ := json.Marshal(map[string]any{
		"hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": dir, "tool_input": map[string]any{"command": command, "run_in_background": true},
	})
	return string(text)
}

type answer struct {
	Specific struct {
		Decision string         `json:"permissionDecision"`
		Reason   string         `json:"permissionDecisionReason"`
		Input    map[string]any `json:"updatedInput"`
	} `json:"hookSpecificOutput"`
}

// A command is rewritten for the session of the client's directory, and the user is asked unless
// --approve says otherwise. Nothing runs, and a secret in it stays what it is.
func TestHookClaude(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "API_TOKEN=a-secret-of-the-user")
	m.Answer = func(req wire.Request, _ []byte) (stdout, stderr []byte, end wire.Exit) {
		t.Errorf("%q ran", req.Script)
		return nil, nil, wire.Exit{}
	}
	id := m.Session(1, sandbox.Spec{Name: "web", Directory: dir, Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: dir}})
	for _, test := range []struct {
		name, dir, command, decision string
		args                         []string
		want                         string
	}{
		{"asked", dir, "ls", "ask", nil, " shell --session " + id + " -c ls"},
		{"a directory below", filepath.Join(dir, "sub"), "ls", "ask", nil, " shell --session " + id + " -c ls"},
		{"approved", dir, "a 'b'", "allow", []string{"--approve"}, " -c 'a '\\''b'\\'''"},
		{"named", dir, "ls", "ask", []string{"--session", "web"}, "--session " + id},
		{"a secret", dir, "x a-secret-of-the-user", "ask", nil, "'x a-secret-of-the-user'"},
		{"a workflow command", dir, "::x::", "ask", []string{"--ci", "github"}, "::x::"},
	} {
		status, out, errs := m.Feed(bash(test.dir, test.command), append([]string{"hook", "claude"}, test.args...)...)
		var got answer
		if err := json.Unmarshal([]byte(out), &got); status != 0 || err != nil || errs != "" {
			t.Errorf("%s: hook claude = %d, %q, %q (%v)", test.name, status, out, errs, err)
			continue
		}
		command, _ := got.Specific.Input["command"].(string)
		if got.Specific.Decision != test.decision || !strings.Contains(command, test.want) || got.Specific.Input["run_in_background"] != true || !strings.Contains(got.Specific.Reason, "web") {
			t.Errorf("%s: hook claude prints %s; want %s and %q", test.name, out, test.decision, test.want)
		}
	}
	status, out, errs := m.Feed(fmt.Sprintf(`{"hook_event_name":"PreToolUse","tool_name":"Read","cwd":%q,"tool_input":{}}`, dir), "hook", "claude")
	if status != 0 || out != "" || errs != "" {
		t.Errorf("hook claude for another tool = %d, %q, %q; want nothing", status, out, errs)
	}
}

// Everything that goes wrong ends with 2, the one status after which the client does not run the
// command, and prints nothing on standard output.
func TestHookRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(broken, []byte("nosuch: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := clitest.NewMemory(t)
	with.Session(1, sandbox.Spec{Directory: dir, Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: dir}})
	two := clitest.NewMemory(t)
	two.Session(1, sandbox.Spec{Directory: dir})
	two.Session(2, sandbox.Spec{Directory: dir})
	for _, test := range []struct {
		name, input string
		m           *clitest.Memory
		args        []string
		want        string
	}{
		{"no input", "", with, nil, "JSON"},
		{"no session", bash(dir, "ls"), clitest.NewMemory(t), nil, "sandboxbash session start"},
		{"two sessions", bash(dir, "ls"), two, nil, "2 sessions"},
		{"an unknown session", bash(dir, "ls"), with, []string{"--session", "nosuch"}, "nosuch"},
		{"another directory", bash(t.TempDir(), "ls"), with, nil, "does not have the directory"},
		{"no directory", bash("", "ls"), with, nil, "cwd"},
		{"an unknown flag", bash(dir, "ls"), with, []string{"--nosuch"}, "nosuch"},
		{"a word", bash(dir, "ls"), with, []string{"x"}, "no arguments"},
		{"a broken configuration", bash(dir, "ls"), with, []string{"--config", broken}, "nosuch"},
		{"PowerShell", strings.Replace(bash(dir, "ls"), `"Bash"`, `"PowerShell"`, 1), with, nil, "use the tool Bash"},
		{"a denied command", bash(dir, "rm -rf /"), with, nil, "rm"},
		{"a blank command", bash(dir, " "), with, nil, "script"},
	} {
		test.m.Environ = append(test.m.Environ, "SANDBOXBASH_POLICY_CHECKS=rm")
		status, out, errs := test.m.Feed(test.input, append([]string{"hook", "claude"}, test.args...)...)
		if status != 2 || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("%s: hook claude = %d, %q, %q; want 2 and %q", test.name, status, out, errs, test.want)
		}
	}
	if status, out, errs := clitest.Feed(t, bash(dir, "ls"), clitest.NoEngine(t), "hook", "claude"); status != 2 || out != "" || errs == "" {
		t.Errorf("hook claude without an engine = %d, %q, %q; want 2", status, out, errs)
	}
	for _, args := range [][]string{{"hook", "nosuch"}} {
		if status, _, _ := clitest.Call(t, clitest.NoEngine(t), args...); status != 2 {
			t.Errorf("%q = %d; want 2", args, status)
		}
	}
}
