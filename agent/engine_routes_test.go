package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

func TestSessionDir(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{})
	shows(t, s, "mkdir -p 'real/a b'; ln -s real link; touch file; mkdir closed; chmod 0 closed", "(no output)")
	shows(t, s, "pwd", "/workspace/real/a b\n", "cwd", "link/a b")
	shows(t, s, "cd 'link/a b' && pwd", "/workspace/real/a b\n")
	shows(t, s, "pwd", "/workspace\n", "cwd", "/")
	shows(t, s, "pwd", "/home/agent\n", "cwd", "~")
	for dir, want := range map[string]string{
		"nowhere": "Working directory does not exist: /workspace/nowhere",
		"file":    "Working directory is not a directory: /workspace/file",
	} {
		r := call(t, s, "pwd", "cwd", dir)
		if r.Text != want || r.Thrown != tool.ToolError || r.Details.WallTimeMs != nil {
			t.Errorf("in %s: %+v; want %q", dir, r, want)
		}
	}
	if r := call(t, s, "pwd", "cwd", "closed"); !r.IsError || !strings.Contains(r.Text, "/workspace/closed") {
		t.Errorf("in a closed directory: %+v", r)
	}
}

func TestSessionTerminal(t *testing.T) {
	t.Parallel()
	s := openSession(t, startSandbox(t), SessionOptions{UI: true})
	var term *sandbox.Terminal
	on := Events{Terminal: func(started *sandbox.Terminal) {
		term = started
		_ = started.Type("typed\n")
	}}
	r := callOn(t, s, on, "export A=1; stty size; read line; echo got $line; tty; echo $CI $TERM", "pty", true)
	if r.IsError || !strings.Contains(r.Text, "24 80\n") || !strings.Contains(r.Text, "got typed\n/dev/pts/") || !strings.Contains(r.Text, "\n1 dumb\n") || term == nil {
		t.Errorf("in a terminal: %+v", r)
	}
	shows(t, s, "echo $A", "1\n")
	if r := call(t, s, "echo out; exit 7", "pty", true); !r.IsError || !strings.HasPrefix(r.Text, "out\n") || *r.Details.ExitCode != 7 {
		t.Errorf("exit code: %+v", r)
	}
	if r := call(t, s, "echo out; sleep 60", "pty", true, "timeout", 1); r.Thrown != tool.ToolError || r.Text != "out\n" {
		t.Errorf("timeout: %+v; want the output alone", r)
	}
	if r := call(t, s, "sleep 60", "pty", true, "timeout", 1); r.Text != "Command timed out after 1 seconds" {
		t.Errorf("timeout: %+v", r)
	}
	if r := call(t, s, "tty", "pty", true, "cwd", "nowhere"); r.Text != "Working directory does not exist: /workspace/nowhere" {
		t.Errorf("in no directory: %+v", r)
	}
	for _, o := range []SessionOptions{{}, {UI: true, NoPTY: true}} {
		if r := call(t, openSession(t, startSandbox(t), o), "tty", "pty", true); !strings.HasPrefix(r.Text, "not a tty\n") {
			t.Errorf("UI %v, NoPTY %v: %+v; want no terminal", o.UI, o.NoPTY, r)
		}
	}
}

func TestSessionPlain(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := openSession(t, startSandbox(t), SessionOptions{
		Contract: tool.Plain, Env: []string{"GIT_PAGER=x"}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	r := call(t, s, `echo out; echo err >&2; echo "$GIT_PAGER ${CI-none}"; exit 3`)
	if r.Text != `{"stdout":"out\nx none\n","stderr":"err\n","exitCode":3}` || r.IsError {
		t.Errorf("result %+v", r)
	}
	if got := log.String(); !strings.Contains(got, "exitCode=3") || !strings.Contains(got, "stdoutBytes=11 stderrBytes=4") || strings.Contains(got, "none\\n") {
		t.Errorf("log %q; want the code and the sizes", got)
	}
	r = call(t, s, "head -c 1048577 /dev/zero | tr '\\0' x; echo s3cr3t-value >&2")
	if out := *r.Plain.Stdout; len(out) != 1<<20+len("... (truncated)") || !strings.HasSuffix(out, "x... (truncated)") || *r.Plain.Stderr != "[REDACTED:TOKEN]\n" {
		t.Errorf("%d bytes, stderr %q; want the first MiB, and the secret masked", len(out), *r.Plain.Stderr)
	}
	if r := s.Call(t.Context(), tool.JobName, raw(`{}`), Events{}); r.Text != `{"error":"Unknown tool: job"}` {
		t.Errorf("the job tool: %+v; want none", r)
	}
}

// One call at a time, in contract agent; a call that waits ends with its context.
func TestSessionTurns(t *testing.T) {
	t.Parallel()
	s := openSession(t, startSandbox(t), SessionOptions{})
	done := make(chan tool.Result, 4)
	for range 4 {
		go func() { done <- call(t, s, "mkdir busy && sleep 0.2 && rmdir busy") }()
	}
	for range 4 {
		if r := <-done; r.IsError {
			t.Errorf("two ran at once: %+v", r)
		}
	}
	var updates heard
	go func() { done <- callOn(t, s, Events{Update: updates.update}, "echo on; sleep 60") }()
	eventually(t, "a running command", func() bool { return len(updates.texts()) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if r := s.Call(ctx, tool.BashName, raw(`{"command":"touch ran"}`), Events{}); r.Thrown != tool.ToolAbort || !strings.Contains(r.Text, "Command cancelled") {
		t.Errorf("a call that waited: %+v", r)
	}
	// The user's commands do not wait.
	if r := s.Shell(t.Context(), "ls", Events{}); r.IsError || !strings.HasPrefix(r.Text, "(no output)") {
		t.Errorf("the user's command: %+v", r)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if r := <-done; r.Thrown != tool.ToolError || r.Text != "[Command cancelled]\non\n" {
		t.Errorf("a call when the session is closed: %+v", r)
	}
	if r := call(t, s, "true"); r.Text != "the session is closed" {
		t.Errorf("a call afterwards: %+v", r)
	}
	if r := s.Shell(t.Context(), "true", Events{}); !r.IsError {
		t.Errorf("a command afterwards: %+v", r)
	}
}

func TestSessionURLs(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		file := filepath.Join(host, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(host, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("s/SKILL.md", "read me\n", 0o600)
	write("s/bin/run.sh", "echo ran $1 from \"$(pwd)\"\n", 0o700)
	write("s/it's.txt", "quoted\n", 0o600)
	write("secret.txt", "the host's own\n", 0o644)
	link("../secret.txt", "s/out.txt")
	link("/etc/hostname", "s/bin/abs")
	link("../../secret.txt", "s/bin/up")
	link("run.sh", "s/bin/in")
	write("art/0.bash.log", "zero\n", 0o600)
	big, err := os.Create(filepath.Join(host, "s", "big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(big.Truncate(maxPlaced+1), big.Close()); err != nil {
		t.Fatal(err)
	}
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{URLs: tool.URLs{
		Skills: []tool.Skill{{Name: "s", Dir: filepath.Join(host, "s")}}, Resolver: tool.Roots{Artifacts: filepath.Join(host, "art")},
	}})
	shows(t, s, "cat skill://s 'skill://s/it%27s.txt' artifact://0", "read me\nquoted\nzero\n")
	shows(t, s, "bash skill://s/bin/run.sh me; cat $F", "ran me from /workspace\nzero\n", "env", map[string]any{"F": "artifact://0"})
	shows(t, s, "bash ./in x", "ran x from "+sandbox.PlacedPath("", ""), "cwd", "skill://s/bin")
	r := call(t, s, "ls; cat run.sh", "cwd", "skill://s/bin")
	if !strings.HasPrefix(r.Text, "in\nrun.sh\necho ran") {
		t.Errorf("%q; want no link that leads out", r.Text)
	}
	// No command can change, remove or replace it.
	r = call(t, s, "f=$(dirname skill://s) ; for d in $f ${f%/*} ${f%/*/*}; do ls -ld $d >&2; touch $d/x; mv $d $d.old; rm -rf $d; chmod 777 $d; ln -s x $d/y; done 2>&1; echo x >skill://s ; cat skill://s")
	if !strings.Contains(r.Text, "read me\n") || strings.Contains(r.Text, "\nx\n") {
		t.Errorf("attacks on what was placed: %+v", r)
	}
	shows(t, s, "cat skill://s", "read me\n")
	// What changes on the host is seen by the next command.
	write("s/SKILL.md", "read me again\n", 0o600)
	shows(t, s, "cat skill://s", "read me again\n")
	for url, want := range map[string]string{
		"skill://s/big":     "skill://s/big is larger than 256 MiB, the most that is copied into the session",
		"skill://s/out.txt": "path escapes from parent",
		"skill://s/bin/up":  "path escapes from parent",
	} {
		if r := call(t, s, "cat "+url); !r.IsError || r.Thrown != tool.ToolError || !strings.Contains(r.Text, want) {
			t.Errorf("%s: %+v; want %q", url, r, want)
		}
	}
	if r := call(t, s, "cat skill://s/none"); !r.IsError || !strings.Contains(r.Text, "No such file or directory") {
		t.Errorf("no such file: %+v; want cat's own word", r)
	}
	// A plan says where it would be, and copies nothing.
	write("s/new", "new\n", 0o600)
	p := s.Plan(raw(`{"command":"cat skill://s/new"}`))
	at := p.Expansions[0].Placed
	if p.Command != "cat '"+at+"'" || !strings.HasSuffix(at, "/new") {
		t.Errorf("Plan() = %+v", p)
	}
	if r := call(t, s, "ls "+at); !r.IsError {
		t.Errorf("after Plan(): %+v; want nothing copied", r)
	}
	shows(t, s, "cat skill://s/new ; cat "+at, "new\nnew\n")
	if _, err := s.put(t.Context(), tool.Expansion{URL: "skill://s/big", Kind: "skill", Path: filepath.Join(host, "s", "big")}); err == nil {
		t.Error("put() of too much: no error")
	} else if large := (*TooLargeError)(nil); !errors.As(err, &large) || large.Limit != maxPlaced {
		t.Errorf("put() of too much = %v; want a *TooLargeError", err)
	}
}

func TestSessionLocal(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(host, "local", name))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(host, "local", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := asyncSettings()
	s := openSession(t, startSandbox(t), SessionOptions{Settings: settings, URLs: tool.URLs{Local: &tool.Local{Artifacts: host, Session: "x"}}})
	shows(t, s, "echo one >local://a/b.txt ; cat local:/a/b.txt ; ln -s a/b.txt local://in ; ln -s /etc/passwd local://out", "one\n")
	if got := read("a/b.txt"); got != "one\n" {
		t.Errorf("b.txt on the host: %q", got)
	}
	// What the host's own tools do is there for the next command.
	write("plan.md", "the plan\n")
	write("a/b.txt", "changed\n")
	shows(t, s, "cat local://plan.md local://a/b.txt ; rm local://plan.md ; echo more >>local://a/b.txt", "the plan\nchanged\n")
	if got := read("a/b.txt"); got != "changed\nmore\n" || read("plan.md") == "the plan\n" {
		t.Errorf("on the host: %q and %q; want it appended to, and the plan gone", got, read("plan.md"))
	}
	if _, err := os.Lstat(filepath.Join(host, "local", "out")); err == nil {
		t.Error("a link that leads out is on the host")
	}
	if err := os.Remove(filepath.Join(host, "local", "a", "b.txt")); err != nil {
		t.Fatal(err)
	}
	shows(t, s, "ls local://a", "(no output)")
	write("kept", "by the host\n")
	shows(t, s, "true", "(no output)")
	if got := read("kept"); got != "by the host\n" {
		t.Errorf("a file of the host alone: %q; want it kept", got)
	}
	// A job's files come when it has ended.
	call(t, s, "sleep 0.3; echo job >local://job.txt", "async", true)
	if _, err := waitJob(t.Context(), s, "bg_1"); err != nil || read("job.txt") != "job\n" {
		t.Errorf("waitJob() = %v, file %q", err, read("job.txt"))
	}
	if left, err := filepath.Glob(filepath.Join(host, ".pull-*")); err != nil || left != nil {
		t.Errorf("left on the host: %q, %v", left, err)
	}
}

func TestSessionPrefixAndUpdates(t *testing.T) {
	t.Parallel()
	s := openSession(t, startSandbox(t), SessionOptions{Prefix: "env PREFIXED=1"})
	shows(t, s, "sh -c 'echo $PREFIXED'", "1\n")
	var updates heard
	r := callOn(t, s, Events{Update: updates.update}, "bash -c 'for i in {1..2000}; do echo $i; done; echo s3cr3t-value'")
	all := updates.texts()
	if len(all) == 0 || len(all) > 40 || !strings.HasSuffix(all[len(all)-1], "\n2000\n[REDACTED:TOKEN]\n") || !strings.HasPrefix(r.Text, all[len(all)-1]) {
		t.Errorf("%d updates; want few, and the last with everything", len(all))
	}
	ctx, cancel := context.WithCancel(t.Context())
	on := Events{Update: func(tool.Update) { cancel() }}
	if r := s.Call(ctx, tool.BashName, raw(`{"command":"bash -c 'echo on; sleep 60'"}`), on); r.Thrown != tool.ToolAbort || r.Text != "[Command cancelled]\non\n" || r.Details.Reason != exec.Cancelled {
		t.Errorf("aborted: %+v", r)
	}
}

func TestSessionMinimizerAndLimit(t *testing.T) {
	t.Parallel()
	settings := tool.DefaultSettings()
	settings.Minimizer.Enabled = true
	s := openSession(t, startSandbox(t), SessionOptions{Settings: settings, Limit: 1 << 20})
	r := shows(t, s, "printf 'same\n%.0s' 1 2 3 4 5", "same\n[the line above came 5 times]\n[raw output: artifact://")
	if r.Details.ArtifactID != "" {
		t.Errorf("details %+v; want no artifact of the output itself", r.Details)
	}
	shows(t, s, "printf 'same\n%.0s' 1 2 3 4 5 | cat", "same\nsame\n")
	if r := call(t, s, "yes"); r.Thrown != tool.ToolError || !strings.HasPrefix(r.Text, "[Command wrote more than the output limit]\n") {
		t.Errorf("yes: thrown %q, %.80q; want it ended", r.Thrown, r.Text)
	}
}
