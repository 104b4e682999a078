package cli_test

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// Wrong use exits with 2 and says what is wrong and what there is, before any engine
// is asked: there is none here.
func TestMisuse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string // in what is said
	}{
		{[]string{"--engine", "foo", "session", "ls"}, `"foo" (--engine) is not an engine's address`},
		{[]string{"--engine", "tcp://127.0.0.1:99999", "session", "ls"}, "a port from 1 to 65535"},
		{[]string{"--engine", "ssh://x?a=b", "session", "ls"}, "query parameters are not allowed"},
		{[]string{"--engine", "ftp://x", "image", "ls"}, "ftp:// is not supported"},
		{[]string{"run", "--workspace", "copy:/a", "--workspace", "copy:/b", "true"}, "workspace"},
		{[]string{"run", "--workspace=copy:/a", "--workspace=copy:/a", "true"}, "given twice"},
		{[]string{"run", "--timeout", "1s", "--timeout", "2s", "true"}, "given twice"},
		{[]string{"--config", "/a", "--config", "/b", "version"}, "given twice"},
		{[]string{"--ci", "none", "version", "--ci", "github"}, "given twice"},
		{[]string{"session", "exec", "--timeout", "1s", "x", "--timeout", "2s", "true"}, "given twice"},
		{[]string{"run", "--quiet", "--quiet=false", "true"}, "given twice"},
		{[]string{"run", "--cpus", "0.001", "true"}, "at least 0.01"},
		{[]string{"run", "--mount", "/:/host", "true"}, "/ belongs to the machine as a whole"},
		{[]string{"run", "--mount", "x", "true"}, "as in ./data:/data"},
		{[]string{"run", "--mount", "/nosuch:/d", "true"}, "no such file"},
		{[]string{"run", "--cache", "./x:/d", "true"}, "a directory of this machine is a mount"},
		{[]string{"run", "--cache", "UP:/d", "true"}, "a cache's name has up to 63"},
		{[]string{"run", "--cache", "x:/workspace/x", "true"}, "lies in the workspace"},
		{[]string{"run", "--session", "x", "--cache", "x:/d", "true"}, "--cache cannot change session x"},
		{[]string{"session", "start", "--env", "NOSUCH"}, "NOSUCH is not set in this environment"},
		{[]string{"cache", "rm"}, "takes names of caches"},
		{[]string{"cache", "nosuch"}, "it has ls, prune, rm"},
		{[]string{"run", "--pids", "2000000000", "true"}, "at most 4194304"},
		{[]string{"run", "--session", "", "true"}, "the session's id is empty"},
		{[]string{"session", "exec", "", "true"}, "the session's id is empty"},
		{[]string{"session", "attach", ""}, "the session's id is empty"},
		{[]string{"session", "cp", "a", "b"}, "neither \"a\" nor \"b\" is in a session"},
		{[]string{"session", "cp", "a:b", "c:d"}, "are both in a session"},
		{[]string{"session", "cp", "--gitignore", ":a", "b"}, "--gitignore is about files of this machine"},
		{[]string{"session", "cp", "--exclude", "[", "a", ":"}, "--exclude: "},
		{[]string{"session", "cp", "a"}, "what to copy, and where to"},
		{[]string{"session", "logs", "a", "b"}, "takes one session"},
		{[]string{"session", "logs", ""}, "the session's id is empty"},
		{[]string{"session", "cp", ":a", ":b", "nosuch"}, "nosuch is not a directory, and several sources need one"},
		{[]string{"session", "pull", ":a"}, "SESSION:PATH, and where to"},
		{[]string{"session", "pull", ":a", "b", "d"}, `"b" does not name a path in a session`},
		{[]string{"session", "pull", "web:a", "other:b", "d/"}, `"web:a" and "other:b" are not in the same place`},
		{[]string{"session", "pull", ":a", ":b", "nosuch"}, "nosuch is not a directory, and several sources need one"},
		{[]string{"session", "pull", ":x/a", ":y/a", "d/"}, ":x/a and :y/a have one name"},
		{[]string{"session", "pull", ":a", ":b", "-"}, "does not write to standard output"},
		{[]string{"session", "sync", "--watch", "--back"}, "--watch only brings changes into the session"},
		{[]string{"session", "sync", "--watch", "--json"}, "cannot be given together"},
		{[]string{"pty", "start", ""}, "the session's id is empty"},
		{[]string{"job", "stop", "--session", "", "bg_1"}, "the session's id is empty"},
		{[]string{"serve", "mcp", "--http", "127.0.0.1:99999"}, "--http"},
		{[]string{"nosuch"}, "it has artifact, audit"},
		{[]string{"help", "nosuch"}, "it has artifact, audit"},
		{[]string{"help", "session", "nosuch"}, "it has allow, apply, attach, cp, deny, diff, exec"},
		{[]string{"help", "version", "nosuch"}, `version has no command "nosuch"`},
		{[]string{"completion", "tcsh"}, "it has bash, fish, powershell, zsh"},
		{[]string{"completion", "bash", "x"}, "takes no arguments"},
		{[]string{"session", "nosuch"}, "it has allow, apply, attach, cp, deny, diff, exec"},
		{[]string{"image", "nosuch"}, "it has build, host, load"},
		{[]string{"job", "nosuch"}, "it has logs, ls"},
		{[]string{"pty", "nosuch"}, "it has attach, logs, ls"},
		{[]string{"artifact", "nosuch"}, "it has cat, gc, grep, ls, rm, show"},
		{[]string{"artifact", "show", "1", "2"}, "takes at most one id"},
		{[]string{"audit", "nosuch"}, "it has show, verify"},
		{[]string{"policy", "nosuch"}, "it has check, explain"},
		{[]string{"serve", "nosuch"}, "it has mcp, rpc"},
	} {
		status, out, errs := clitest.Call(t, clitest.NoEngine(t), test.args...)
		if status != exit.Usage || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("execute(%q) = %d, %q, %q; want %d and %q", test.args, status, out, errs, exit.Usage, test.want)
		}
	}
	// Nothing left in a variable or a file makes a call another one.
	for _, args := range [][]string{{"image", "rm"}, {"artifact", "rm"}} {
		status, out, errs := clitest.Call(t, append(clitest.NoEngine(t), "SANDBOXBASH_RM_ALL=true"), args...)
		if status != exit.Usage || !strings.Contains(errs, "or --all, not both") || !strings.Contains(errs, "SANDBOXBASH_RM_ALL is not a setting") {
			t.Errorf("execute(%q) with SANDBOXBASH_RM_ALL = %d, %q, %q; want %d", args, status, out, errs, exit.Usage)
		}
	}
	for _, args := range [][]string{
		{"help"},
		{"help", "session", "exec"},
		{"help", "config"},
		{"completion", "bash"},
		{"completion"},
		{"version", "--json", "--json"},
		{"__complete", "run", "--profile", ""},
		{"__complete", "run", "--profile", "dev", "--shell", ""},
	} {
		if status, out, errs := clitest.Call(t, clitest.NoEngine(t), args...); status != 0 || out == "" {
			t.Errorf("execute(%q) = %d, %q, %q; want 0 and a text", args, status, out, errs)
		}
	}
}
