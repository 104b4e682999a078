package sessioncmd_test

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// rows splits a table into its cells.
func rows(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// A list has a head even if it is empty, and is [] in JSON then.
func TestListNothing(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{})
	empty := clitest.NewMemory(t)
	for _, test := range []struct {
		on   *clitest.Memory
		args []string
		head string
	}{
		{empty, []string{"session", "ls"}, "STATUS"},
		{m, []string{"session", "ps", id}, "PPID"},
		{m, []string{"session", "ports", id}, "PORT"},
	} {
		status, out, errs := test.on.Call(test.args...)
		if status != 0 || errs != "" || strings.Count(out, "\n") != 1 || !slices.Contains(strings.Fields(out), test.head) {
			t.Errorf("%q = %d, %q, %q; want a head with %s", test.args, status, out, errs, test.head)
		}
		if status, out, errs := test.on.Call(append(test.args, "--json")...); status != 0 || errs != "" || out != "[]\n" {
			t.Errorf("%q --json = %d, %q, %q; want []", test.args, status, out, errs)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	dir := t.TempDir()
	first := m.Session(1, sandbox.Spec{Image: "one:1"})
	second := m.Session(2, sandbox.Spec{Image: "two:2", Network: sandbox.NetworkBridge, User: &sandbox.User{UID: 1000, GID: 1000}, Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: dir, ReadOnly: true}})
	status, out, errs := m.Call("session", "ls")
	got := rows(out)
	if status != 0 || errs != "" || len(got) != 3 {
		t.Fatalf("session ls = %d, %q, %q; want two rows", status, out, errs)
	}
	for i, id := range []string{first, second} {
		row := strings.Join(got[i+1], " ")
		if !strings.HasPrefix(row, sandbox.MadeUpName(id)+" "+sandbox.ShortID(id)+" ") || i == 1 != strings.HasSuffix(row, ":ro") {
			t.Errorf("row %d is %q; want session %s", i+1, row, id)
		}
	}
	status, out, errs = m.Call("session", "ls", "--json")
	var list []struct{ ID, Image, Status, Network string }
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || errs != "" {
		t.Fatalf("session ls --json = %d, %q, %q: %v", status, out, errs, err)
	}
	if len(list) != 2 || list[0].ID != first || list[1].ID != second || list[1].Image != "two:2" || list[0].Network != "none" {
		t.Errorf("session ls --json = %+v", list)
	}
}

func TestShow(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{Image: "one:1", Limits: sandbox.Limits{Memory: 1 << 30}})
	status, out, errs := m.Call("session", "show", id)
	if status != 0 || errs != "" || !slices.ContainsFunc(rows(out), func(r []string) bool { return slices.Equal(r, []string{"memory", "1GiB"}) }) {
		t.Errorf("session show = %d, %q, %q", status, out, errs)
	}
	status, out, errs = m.Call("session", "show", "--json", id)
	var info sandbox.Info
	if err := json.Unmarshal([]byte(out), &info); err != nil || status != 0 || errs != "" || info.ID != id || info.Limits.Memory != 1<<30 {
		t.Errorf("session show --json = %d, %q, %q: %v", status, out, errs, err)
	}
	status, out, errs = m.Call("session", "show", "--json", clitest.ID(9))
	if status != exit.Usage || errs != "" || !strings.HasPrefix(out, `{"error":{"outcome":"not-started","cause":"unknown-session"`) || strings.Count(out, "\n") != 1 {
		t.Errorf("session show --json = %d, %q, %q; want an object that says that there is none", status, out, errs)
	}
}

// What processes are called is text of the session's: it stays in its row, and holds no secret.
func TestProcesses(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "X_TOKEN=c4nary-0123456789")
	id := m.Session(1, sandbox.Spec{})
	m.Answer = clitest.On(wire.VerbPS, wire.AppendProcesses(nil, []wire.Process{
		{PID: 7, Parent: 1, Group: 7, State: 'S', CPUTicks: 150, Pages: 256, Command: "sleep 60 "},
		{PID: 8, Parent: 7, Group: 7, State: 'R', Command: "evil\n9 1 9 S c4nary-0123456789\x1b[2J"},
	}))
	status, out, errs := m.Call("session", "ps", id)
	want := [][]string{
		{"PID", "PPID", "PGID", "STATE", "CPU", "RSS", "COMMAND"},
		{"7", "1", "7", "S", "1.5s", "1MiB", "sleep", "60"},
		{"8", "7", "7", "R", "0s", "0B", `evil\n9`, "1", "9", "S", `[REDACTED:X_TOKEN]\x1b[2J`},
	}
	if diff := cmp.Diff(want, rows(out)); diff != "" || status != 0 || errs != "" {
		t.Errorf("session ps = %d, %q (-want +got):\n%s", status, errs, diff)
	}
	status, out, errs = m.Call("session", "ps", "--json", id)
	var list []sandbox.Process
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || errs != "" || len(list) != 2 || list[0].Resident != 1<<20 || list[0].CPUMs != 1500 {
		t.Errorf("session ps --json = %d, %q, %q: %v", status, out, errs, err)
	}
	if strings.Contains(out, "c4nary") || !strings.Contains(list[1].Command, "[REDACTED:X_TOKEN]") {
		t.Errorf("session ps --json shows a secret: %q", out)
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "X_TOKEN=c4nary-0123456789")
	id := m.Session(1, sandbox.Spec{})
	m.Answer = clitest.On(wire.VerbPorts, wire.AppendPorts(nil, []wire.Port{
		{Addr: netip.MustParseAddrPort("127.0.0.1:8080"), PID: 7, Command: "server --key c4nary-0123456789"},
		{Addr: netip.MustParseAddrPort("[::]:53"), PID: 9, Command: "a\tb"},
	}))
	status, out, errs := m.Call("session", "ports", id)
	if status != 0 || errs != "" || strings.Contains(out, "c4nary") {
		t.Fatalf("session ports = %d, %q, %q", status, out, errs)
	}
	got := rows(out)
	for _, want := range [][]string{{"127.0.0.1", "8080", "7", "server", "--key", "[REDACTED:X_TOKEN]"}, {"::", "53", "9", `a\tb`}} {
		if !slices.ContainsFunc(got, func(r []string) bool { return slices.Equal(r, want) }) {
			t.Errorf("session ports prints %q; want a row %q", got, want)
		}
	}
	status, out, _ = m.Call("session", "ports", "--json", id)
	var list []sandbox.Port
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || len(list) != 2 || strings.Contains(out, "c4nary") {
		t.Errorf("session ports --json = %d, %q: %v", status, out, err)
	}
}

// What a runner cannot answer, and what it answers that is not a list, is an error of the engine's.
func TestInsideFails(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{})
	for name, answer := range map[string]clitest.Answer{
		"an exit code": func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
			return nil, []byte("no /proc"), wire.Exit{Code: 1}
		},
		"another form": func(wire.Request, []byte) (stdout, stderr []byte, end wire.Exit) {
			return []byte("hello\n"), nil, wire.Exit{}
		},
	} {
		m.Answer = answer
		for _, what := range []string{"ps", "ports"} {
			status, out, errs := m.Call("session", what, id)
			if status != exit.Engine || out != "" || !strings.Contains(errs, "session "+id+": "+what+": ") {
				t.Errorf("%s: session %s = %d, %q, %q; want status %d", name, what, status, out, errs, exit.Engine)
			}
		}
	}
}

// One session that cannot be stopped does not keep the others from it.
func TestStop(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	first, second, third := m.Session(1, sandbox.Spec{}), m.Session(2, sandbox.Spec{}), m.Session(3, sandbox.Spec{})
	status, out, errs := m.Call("session", "stop", first, clitest.ID(9), second)
	if status != exit.Usage || out != first+"\n"+second+"\n" || !strings.Contains(errs, clitest.ID(9)) {
		t.Errorf("session stop = %d, %q, %q; want two of three stopped", status, out, errs)
	}
	if status, out, errs := m.Call("session", "rm", "--quiet", third); status != 0 || out+errs != "" {
		t.Errorf("session rm --quiet = %d, %q, %q; want silence", status, out, errs)
	}
	if left := m.Sessions(); len(left) != 0 {
		t.Errorf("there are still %+v", left)
	}
}

// reap removes what is left of sessions that have ended by themselves, and prints their ids. Others stay.
func TestReap(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	running, ended := m.Session(1, sandbox.Spec{}), m.Session(2, sandbox.Spec{})
	m.Exit(ended, 0)
	status, out, errs := m.Call("session", "reap")
	if status != 0 || strings.Contains(out, running) || errs != "" {
		t.Errorf("session reap = %d, %q, %q", status, out, errs)
	}
	if all := m.Sessions(); len(all) == 0 || all[0].ID != running {
		t.Errorf("after session reap there are %+v; want that %s runs", all, running)
	}
}

// A command's end is the exit status and a line on standard error, its output is passed on with
// its secrets masked.
func TestExec(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "X_TOKEN=c4nary-0123456789")
	id := m.Session(1, sandbox.Spec{})
	for _, test := range []struct {
		name   string
		end    wire.Exit
		status int
		says   string
	}{
		{"done", wire.Exit{}, 0, ""},
		{"an exit code", wire.Exit{Code: 7}, 7, ""},
		{"that of a timeout", wire.Exit{Code: exit.Timeout}, exit.Timeout, ""},
		{"a signal", wire.Exit{Signal: 11}, 128 + 11, "SIGSEGV"},
		{"memory", wire.Exit{Signal: 9, OOM: true}, 137, "memory"},
	} {
		m.Answer = func(req wire.Request, _ []byte) (stdout, stderr []byte, end wire.Exit) {
			if string(req.Script) != "make $1" || !slices.Equal(req.Args, []string{"all"}) {
				t.Errorf("%s: the runner was asked for %q with %q", test.name, req.Script, req.Args)
			}
			return []byte("out c4nary-0123456789\n"), []byte("err\n"), test.end
		}
		status, out, errs := m.Call("session", "exec", id, "-c", "make $1", "all")
		if status != test.status || out != "out [REDACTED:X_TOKEN]\n" || !strings.HasPrefix(errs, "err\n") || !strings.Contains(errs, test.says) || (test.says == "") != (errs == "err\n") {
			t.Errorf("%s: session exec = %d, %q, %q; want %d, and %q said", test.name, status, out, errs, test.status, test.says)
		}
		status, out, errs = m.Call("session", "exec", "--json", id, "-c", "make $1", "all")
		var j struct {
			Stdout, Session string
			ExitCode        *int
		}
		if err := json.Unmarshal([]byte(out), &j); err != nil || status != test.status || errs != "" || j.Stdout != "out [REDACTED:X_TOKEN]\n" || j.Session != id {
			t.Errorf("%s: session exec --json = %d, %q, %q: %v", test.name, status, out, errs, err)
		}
	}
}

// The words of a command line: flags stand before and behind the id, and what is behind -- or
// the first word is never a flag.
func TestExecWords(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{})
	file := filepath.Join(t.TempDir(), "x")
	for _, test := range []struct {
		name, input string
		args        []string
		status      int
		want        string // the script, its arguments and its directory; or a part of the error
	}{
		{"a script", "", []string{id, "pwd"}, 0, "pwd [] /workspace"},
		{"a program", "", []string{id, "echo", "--json", "a b"}, 0, "echo --json 'a b' [] /workspace"},
		{"a script with arguments", "", []string{id, "-c", `echo "$@"`, "a", "b"}, 0, `echo "$@" [a b] /workspace`},
		{"flags in front", "", []string{"--cwd", "/tmp", id, "pwd"}, 0, "pwd [] /tmp"},
		{"flags behind", "", []string{id, "--cwd", "/tmp", "pwd"}, 0, "pwd [] /tmp"},
		{"a program that is a flag", "", []string{id, "--", "--cwd"}, 0, "--cwd [] /workspace"},
		{"all behind --, in the only session", "", []string{"--", "pwd", id}, 0, "pwd " + id + " [] /workspace"},
		{"standard input", "echo in", []string{id, "-"}, 0, "echo in [] /workspace"},
		{"no id", "", []string{"", "pwd"}, exit.Usage, "the session's id is empty"},
		{"another id", "", []string{clitest.ID(9), "pwd"}, exit.Usage, "unknown session"},
		{"no command", "", []string{id}, exit.Usage, "was given one word"},
		{"no such file", "", []string{"--file", file, id}, exit.Usage, "no such file"},
		{"a job with an input", "", []string{"--background", "--stdin", id, "cat"}, exit.Usage, "no standard input"},
		{"a job on a terminal", "", []string{"--background", "--pty", id, "cat"}, exit.Usage, "no terminal"},
	} {
		var asked string
		m.Answer = func(req wire.Request, _ []byte) (stdout, stderr []byte, end wire.Exit) {
			asked = string(req.Script) + " [" + strings.Join(req.Args, " ") + "] " + req.Dir
			return nil, nil, wire.Exit{}
		}
		status, out, errs := m.Feed(test.input, append([]string{"session", "exec"}, test.args...)...)
		switch {
		case status != test.status || out != "":
			t.Errorf("%s: session exec %q = %d, %q, %q; want %d", test.name, test.args, status, out, errs, test.status)
		case status == 0 && (asked != test.want || errs != ""):
			t.Errorf("%s: session exec %q runs %q, and says %q; want %q", test.name, test.args, asked, errs, test.want)
		case status != 0 && (asked != "" || !strings.Contains(errs, test.want)):
			t.Errorf("%s: session exec %q runs %q, and says %q; want that it says %q", test.name, test.args, asked, errs, test.want)
		}
	}
}

// Wrong words are refused before anything is asked of the engine.
func TestWrongWords(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{})
	served := m.Session(2, sandbox.Spec{Allow: []network.Rule{rule(t, "example.com")}})
	bridged := m.Session(3, sandbox.Spec{Network: sandbox.NetworkBridge})
	for _, test := range []struct {
		args string
		want []string
	}{
		{"attach " + id + " " + id, []string{"takes the id of one session", "after --"}},
		{"push x", []string{"SESSION:DIR"}},
		{"push x nowhere", []string{`"nowhere" does not name a path in a session`, "a colon"}},
		{"pull " + id + " .", []string{"does not name a path in a session"}},
		{"pull " + id + ":a -", []string{"does not write to standard output", "session exec"}},
		{"diff " + id, []string{"is not a copy of a directory", "diff SESSION DIR"}},
		{"diff " + id + " /no/such/directory", []string{"/no/such/directory is not a directory of this machine"}},
		{"diff -u --stat " + id, []string{"patch", "stat"}},
		{"apply " + id, []string{"is not a copy of a directory", "pull SESSION:. DIR"}},
		{"allow " + id, []string{"there is no rule to allow", "--remove RULE"}},
		{"deny " + id, []string{"there is no rule to deny"}},
		{"allow " + id + " example.com http://", []string{"rule 2, column"}},
		{"allow " + id + " example.com", []string{"session " + id, "belongs to the process that started it", "network/allow"}},
		{"deny " + served + " example.com", []string{"belongs to the process that started it"}},
		{"allow " + bridged + " example.com", []string{"has network bridge", "without --network"}},
		{"network --limit 5000 " + id, []string{"--limit 5000", "at most"}},
		{"network --follow " + id, []string{"cannot be followed", "--follow"}},
		{"network --follow " + served, []string{"cannot be followed", "network/log"}},
		{"network " + id, []string{"no record of the connections", "audit.enabled"}},
		{"forward " + id, []string{"there is nothing to forward"}},
		{"forward " + id + " x:80", []string{"x:80"}},
		{"forward " + id + " 99999", []string{"99999"}},
		{"hold " + id, []string{"there is no handover", "session start --allow RULE"}},
		{"start --workspace nfs:/x", []string{"nfs:/x", "copy:DIR"}},
		{"start --allow http://", []string{"http://"}},
		{"start --network bridge --allow example.com", []string{"bridge"}},
		{"start extra", []string{"takes no arguments"}},
	} {
		status, out, errs := m.Call(append([]string{"session"}, strings.Fields(test.args)...)...)
		if status != exit.Usage || out != "" {
			t.Errorf("session %s = %d, %q, %q; want status %d", test.args, status, out, errs, exit.Usage)
		}
		for _, want := range test.want {
			if !strings.Contains(errs, want) {
				t.Errorf("session %s says %q; want %q in it", test.args, errs, want)
			}
		}
	}
	if all := m.Sessions(); len(all) != 3 {
		t.Errorf("there are %d sessions; want that none was started or stopped", len(all))
	}
}

func rule(t *testing.T, text string) network.Rule {
	t.Helper()
	r, err := network.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// show says what a session may reach, and whether its connections are carried.
func TestShowNetwork(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	allow := []network.Rule{rule(t, "example.com"), rule(t, "api.example.org")}
	served := m.Session(1, sandbox.Spec{Allow: allow, Deny: []network.Rule{rule(t, "www.example.com")}})
	held := m.Session(2, sandbox.Spec{Allow: allow, Detached: true})
	for id, want := range map[string][]string{
		served: {"example.com, api.example.org", "www.example.com", "carried by the process that started the session"},
		held:   {"example.com, api.example.org", "refused: ", "the next command starts one"},
	} {
		status, out, errs := m.Call("session", "show", id)
		for _, text := range want {
			if status != 0 || errs != "" || !strings.Contains(out, text) {
				t.Errorf("session show = %d, %q, %q; want %q in it", status, out, errs, text)
			}
		}
	}
}

// Completion of a path offers sessions with a colon, and what is in a directory of one; the other word is
// a file of this machine.
func TestCompletionOfPaths(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{Image: "one:1"})
	name := sandbox.MadeUpName(id)
	m.Answer = func(req wire.Request, _ []byte) (stdout, stderr []byte, end wire.Exit) {
		if strings.Contains(string(req.Script), "ls -1Ap") {
			return []byte("main.go\nsrc/\n.git/\n"), nil, wire.Exit{}
		}
		return nil, nil, wire.Exit{}
	}
	for _, test := range []struct {
		args []string
		want []string
		last string // the directive
	}{
		{[]string{"pull", ""}, []string{name + ":"}, ":6"},
		{[]string{"pull", name + ":"}, []string{name + ":main.go", name + ":src/"}, ":6"},
		{[]string{"pull", ":"}, []string{":main.go", ":src/"}, ":6"},
		{[]string{"pull", name + ":/w/s"}, []string{name + ":/w/src/"}, ":6"},
		{[]string{"pull", name + ":."}, []string{name + ":.git/"}, ":6"},
		{[]string{"pull", "nosuch:"}, nil, ":6"},
		{[]string{"pull", name + ":x", ""}, nil, ":0"},
		{[]string{"pull", name + ":x", "y", ""}, nil, ":4"},
		{[]string{"pull", name + ":x", name + ":s"}, []string{name + ":src/"}, ":6"},
		{[]string{"pull", name + ":x", name + ":y", ""}, nil, ":0"},
		{[]string{"push", ""}, nil, ":0"},
		{[]string{"push", "x", name + ":s"}, []string{name + ":src/"}, ":6"},
	} {
		status, out, _ := m.Call(append([]string{"__complete", "session"}, test.args...)...)
		var got []string
		for line := range strings.Lines(out) {
			if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, ":") || strings.Contains(line, ".go") || strings.Contains(line, "/") {
				offer, _, _ := strings.Cut(line, "\t")
				got = append(got, offer)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" || status != 0 || !strings.HasSuffix(strings.TrimSpace(out), test.last) {
			t.Errorf("%q = %d, %q; want %s, completion (-want +got):\n%s", test.args, status, out, test.last, diff)
		}
	}
}

// Completion offers the sessions that go on from the word, each once, with a description.
func TestCompletion(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	first, second := m.Session(1, sandbox.Spec{Image: "one:1"}), m.Session(2, sandbox.Spec{Image: "two:2"})
	one, two := sandbox.MadeUpName(first), sandbox.MadeUpName(second)
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"session", "show", ""}, []string{one, two}},
		{[]string{"session", "stop", ""}, []string{one, two}},
		{[]string{"session", "stop", first, ""}, []string{two}},
		{[]string{"session", "stop", one, ""}, []string{two}},
		{[]string{"session", "stop", second[:len(second)-6]}, []string{first, second}},
		{[]string{"session", "stop", sandbox.ShortID(second)}, []string{sandbox.ShortID(second)}},
		{[]string{"session", "ps", second}, []string{second}},
		{[]string{"session", "ports", "zz"}, nil},
		{[]string{"session", "exec", ""}, []string{one, two}},
		{[]string{"session", "exec", first, ""}, nil},
		{[]string{"session", "forward", first, ""}, nil},
		{[]string{"run", "--session", ""}, []string{one, two}},
		{[]string{"job", "ls", "--session", ""}, []string{one, two}},
	} {
		status, out, _ := m.Call(append([]string{"__complete"}, test.args...)...)
		var got []string
		for line := range strings.Lines(out) {
			if id, text, offer := strings.Cut(line, "\t"); offer {
				got = append(got, id)
				if !strings.Contains(text, "running, ") || !strings.Contains(text, ":") {
					t.Errorf("%q describes %s as %q", test.args, id, text)
				}
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" || status != 0 {
			t.Errorf("%q = %d; completion (-want +got):\n%s", test.args, status, diff)
		}
	}
	m.Hang["list"] = true // for as long as completion waits
	if status, out, _ := m.Call("__complete", "session", "show", ""); status != 0 || strings.Contains(out, first) {
		t.Errorf("with an engine that hangs, completion = %d, %q", status, out)
	}
}
