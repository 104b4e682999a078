package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

func TestSessionShell(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{})
	shows(t, s, "export A='x y' B=$'1\\n2'; C=gone; f() { echo \"f $1\"; }; g() { echo g; }; export -f g", "(no output)")
	shows(t, s, `echo "$A|$B|${C-unset}"; f 1; bash -c g`, "x y|1\n2|unset\nf 1\ng\n")
	shows(t, s, "unset A; unset -f f; PATH=$PATH:/opt/x", "(no output)")
	shows(t, s, `echo ${A-unset} ${PATH##*:}; type -t f || echo none`, "unset /opt/x\nnone\n")
	// What a call sets is its own, and what the contract sets is not kept.
	shows(t, s, "export V=kept", "(no output)")
	shows(t, s, "export PAGER=less V=other; echo $V $W", "other call\n", "env", map[string]any{"V": "call", "W": "call"})
	shows(t, s, "echo $V ${W-unset} $PAGER", "kept unset cat\n")
	// Another use of the session has another shell.
	shows(t, openSession(t, sb, SessionOptions{}), "echo ${V-unset}", "unset\n")
	// The user's own commands share it.
	if r := s.Shell(t.Context(), "echo $V; export V=user; cd / && pwd", Events{}); !strings.HasPrefix(r.Text, "kept\n/\n") {
		t.Errorf("Shell() = %q", r.Text)
	}
	shows(t, s, "echo $V; pwd", "user\n/workspace\n")
	if r := s.Shell(t.Context(), "cat <<<x | cat artifact://9", Events{}); !r.IsError || strings.Contains(r.Text, "Available") {
		t.Errorf("Shell() of a URL = %+v; want it as it is", r)
	}
}

// The user's own commands and the agent's run in parallel, in either order.
// The agent's write the state of the shell; the user's only read it.
func TestSessionShellInParallel(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{})
	// begin runs a command that says that it has begun, and ends when its file is there.
	begin := func(file, more string, run func(string, Events) tool.Result) (end func() tool.Result) {
		t.Helper()
		updates, over := &heard{}, make(chan tool.Result, 1)
		go func() {
			over <- run("echo begun; until [ -e "+file+" ]; do sleep 0.05; done; "+more, Events{Update: updates.update})
		}()
		eventually(t, "a command that runs", func() bool { return len(updates.texts()) > 0 })
		return func() tool.Result {
			t.Helper()
			if _, _, err := sb.Ask(t.Context(), sandbox.Command{Script: "touch " + file}); err != nil {
				t.Fatal(err)
			}
			return <-over
		}
	}
	user := func(command string, on Events) tool.Result { return s.Shell(t.Context(), command, on) }
	agent := func(command string, on Events) tool.Result {
		return s.Call(t.Context(), tool.BashName, corpus.Arguments(t, map[string]any{"command": command}), on)
	}
	shows(t, s, "export V=first", "(no output)")

	end := begin("/tmp/one", "export V=user", user)
	shows(t, s, "echo $V; export V=agent", "first\n") // it does not wait
	if r := end(); r.IsError || !strings.HasPrefix(r.Text, "begun\n") {
		t.Errorf("the user's command: %+v", r)
	}
	shows(t, s, "echo $V", "agent\n") // the agent's shell is the agent's

	end = begin("/tmp/two", "echo $V; export V=again", agent)
	if r := user("echo $V; export V=user", Events{}); r.IsError || !strings.HasPrefix(r.Text, "agent\n") {
		t.Errorf("the user's command along with the agent's: %+v; want that it sees what is kept", r)
	}
	if r := end(); r.IsError || !strings.HasPrefix(r.Text, "begun\nagent\n") {
		t.Errorf("the agent's command: %+v", r)
	}
	shows(t, s, "echo $V", "again\n")

	// One that is cancelled in parallel with the agent's changes nothing for it.
	end = begin("/tmp/three", "export W=kept", agent)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if r := s.Shell(ctx, "sleep 60", Events{}); !r.IsError {
		t.Errorf("a cancelled command of the user's: %+v", r)
	}
	end()
	shows(t, s, "echo $V $W", "again kept\n")
}

func TestSessionShellIsTheSame(t *testing.T) {
	t.Parallel()
	s := openSession(t, startSandbox(t), SessionOptions{})
	bare := openSession(t, startSandbox(t), SessionOptions{Contract: tool.Modes})
	shows(t, s, "export KEPT=1; kept() { :; }", "(no output)")
	for _, script := range []string{
		"echo $- $? $0 $# $LINENO $BASH_SUBSHELL ${BASH_SOURCE-none}", "\n\nnope_command\n", "echo )", "echo ${", "set -e\nfalse\necho no", "exit 200", "(exit 4)",
		"set -x; echo hi", "set -u; echo $nope", "f() { exit 9; }; f", "trap 'echo bye' EXIT; exit 3", "trap 'echo dbg' DEBUG; echo hi",
		"trap 'echo err' ERR; false", "set -C -f; echo *", "exec 2>&1; echo x >&2", "echo x >&-", "set -o posix; readonly PAGER=1; echo ok", "env | grep -c -e BASH_ENV -e SANDBOXBASH",
		"compgen -v | grep __sb", "shopt -s extdebug; echo hi", "return 3", "kill -TERM $$", "kill -9 $$; echo no", "false | true; exit", "exec true",
		"declare() { echo no; }; unset() { echo no; }; builtin() { echo no; }; trap() { echo no; }", "IFS=:; export IFS; echo a:b", "sh -c 'echo $0 $-'", "bash -c 'trap; echo $-'",
	} {
		got, want := call(t, s, script), call(t, bare, script)
		text, _, _ := strings.Cut(got.Text, "\n\nWall time:")
		text = strings.TrimPrefix(text, "(no output)")
		plain := want.Text
		if want.IsError {
			_, plain, _ = strings.Cut(want.Text, "\n")
		}
		if text != strings.TrimSuffix(plain, "") || got.IsError != want.IsError {
			t.Errorf("%q: %q, error %v; want %q as without state, error %v (%q)", script, text, got.IsError, plain, want.IsError, want.Text)
		}
		call(t, s, "export KEPT=1; kept() { :; }") // if it is gone
	}
}

func TestSessionShellLost(t *testing.T) {
	t.Parallel()
	s := openSession(t, startSandbox(t), SessionOptions{})
	const gone = "Exported variables and functions of earlier commands are gone: "
	for _, test := range []struct {
		script  string
		timeout int // seconds
		why     string
	}{
		{"exec true", 60, "the command has ended the shell by exec, or set an EXIT trap of its own"},
		{"trap 'echo bye' EXIT", 60, "the command has ended the shell by exec, or set an EXIT trap of its own"},
		{"kill -9 $$", 60, "a signal ended the shell"},
		{"exec sleep 60", 1, "a command ran out of time"},
	} {
		shows(t, s, "export A=1", "(no output)")
		r := call(t, s, test.script, "timeout", test.timeout)
		if r.Details.Run == nil || r.Details.Run.StateLost != test.why {
			t.Errorf("%q: details %+v; want that the state is lost", test.script, r.Details.Run)
		}
		next := shows(t, s, "echo ${A-unset}", "unset\n")
		if said := strings.Count(r.Text+next.Text, gone+test.why+"."); said != 1 {
			t.Errorf("%q: said %d times; want once, in %q and %q", test.script, said, r.Text, next.Text)
		}
	}
	// Where there is nothing to lose, nothing is said.
	s = openSession(t, startSandbox(t), SessionOptions{})
	r := call(t, s, "sleep 60", "timeout", 1)
	next := shows(t, s, "echo ok", "ok\n")
	if r.Details.Run != nil && r.Details.Run.StateLost != "" || strings.Contains(next.Text, gone) {
		t.Errorf("lost %+v, %q; want nothing lost", r.Details.Run, next.Text)
	}
	// A command that is not started leaves it alone, and so does one that is cancelled before.
	shows(t, s, "export A=2", "(no output)")
	call(t, s, "export A=3", "cwd", "nowhere")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("changed my mind"))
	if r := s.Call(over, tool.BashName, raw(`{"command":"export A=4"}`), Events{}); r.Thrown != tool.ToolAbort {
		t.Errorf("cancelled before: %+v; want an abort", r)
	}
	shows(t, s, "echo $A", "2\n")
}

func TestSessionRC(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	rc := "alias ll='echo aliased'\nhi() { echo hi $1; }\n_hidden() { :; }\ncat() { echo no; }\nshopt -s nullglob\nset -o noclobber\n" +
		"PATH=$PATH:/opt/rc\necho noise; echo noise >&2; false\ncase $- in *i*) ;; *) return;; esac\nhi() { echo wrong; }\n"
	s := openSession(t, sb, SessionOptions{RC: rc})
	shows(t, s, "ll; hi you; echo /nope/*; echo ${PATH##*:}; type -t cat _hidden; echo $-", "aliased\nhi you\n\n/opt/rc\nfile\nhBCc\n")
	shows(t, s, "hi() { echo mine; }; alias ll='echo no'", "(no output)")
	shows(t, s, "hi; ll", "mine\naliased\n")
	s.opts.Settings.Async = true
	// What fails, or takes too long, is as if it were not there.
	for _, rc := range []string{"exit 3", "sleep 60", "echo )", "exec sleep 60"} {
		start := time.Now()
		s := openSession(t, sb, SessionOptions{RC: rc})
		shows(t, s, "echo ok", "ok\n")
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("rc %q took %v; want it given up after 2s", rc, took)
		}
		shows(t, s, "export A=1", "(no output)")
		shows(t, s, "echo $A", "1\n")
	}
}
