//go:build linux

package proc

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// commandUser is the uid of the session's commands in these tests.
const commandUser = 12345

// waiting starts a shell with the arguments that waits until the test ends.
func waiting(t *testing.T, uid uint32, args ...string) (pid int) {
	t.Helper()
	return start(t, uid, append([]string{"sh", "-c", "read line"}, args...)...)
}

// start starts a shell as a user. args are all of its arguments, its own name too.
func start(t *testing.T, uid uint32, args ...string) (pid int) {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Cmd{Path: path, Args: args}
	if uid != uint32(os.Getuid()) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: os.Getuid() != 0}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skip("processes of several users need uid 0")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// listed is what WriteList says of a process.
func listed(t *testing.T, pid int, uid uint32) (found wire.Process, ok bool) {
	t.Helper()
	var out bytes.Buffer
	if err := WriteList(&out, uid); err != nil {
		t.Fatal(err)
	}
	all, err := wire.ParseProcesses(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.PID == 1 || p.PID == os.Getpid() {
			t.Errorf("WriteList() has %+v; want neither PID 1 nor this process", p)
		}
		if p.PID == pid {
			found, ok = p, true
		}
	}
	return found, ok
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// A process is listed with the arguments that it was started with, whatever bytes they hold,
// and nothing that it calls itself makes it a runner.
func TestWriteList(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 2*wire.MaxCommandLine)
	for _, row := range []struct {
		name string
		args []string
		want string // the start of the command line
	}{
		{"plain", []string{"sh", "-c", "read line", "x"}, "sh -c read line x"},
		{"line breaks and quotes", []string{"sh", "-c", "read line", "a\n\"b\"\\ \x1b[2J"}, "sh -c read line a\n\"b\"\\ \x1b[2J"},
		{"no text", []string{"sh", "-c", "read line", "\xff\xfe"}, "sh -c read line \xff\xfe"},
		{"an empty argument inside", []string{"sh", "-c", "read line", "", "x"}, "sh -c read line  x"},
		{"long", []string{"sh", "-c", "read line", long}, "sh -c read line aaaa"},
		{"a runner's name", []string{"/.sandboxbash/runner", "-c", "read line", "serve"}, "/.sandboxbash/runner -c read line serve"},
		{"a line of the list", []string{"1 0 1 S 0 0 0 \"init\"\n2", "-c", "read line"}, "1 0 1 S 0 0 0 \"init\"\n2 -c read line"},
	} {
		pid := start(t, commandUser, row.args...)
		var p wire.Process
		var ok bool
		waitFor(t, row.name+": it is another program", func() bool {
			p, ok = listed(t, pid, commandUser)
			return ok && strings.HasPrefix(p.Command, row.want)
		})
		if p.Parent != os.Getpid() || p.Group != unix.Getpgrp() || p.State == 0 || p.StartTicks == 0 || len(p.Command) > wire.MaxCommandLine {
			t.Errorf("%s: %+v; want a child of this process, in its group", row.name, p)
		}
	}
}

// A process without arguments has its name: a zombie, or one that has overwritten them.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	waitFor(t, "it is a zombie", func() bool { return !Runs(pid) })
	if got := commandLine(Process{PID: pid, Name: "tr ue\n"}); got != "tr ue\n" {
		t.Errorf("commandLine(a zombie) = %q; want its name", got)
	}
	if got := commandLine(Process{PID: -1, Name: "gone"}); got != "gone" {
		t.Errorf("commandLine(what has gone) = %q; want its name", got)
	}
	if got := commandLine(Process{PID: os.Getpid(), Name: "x"}); !strings.HasPrefix(got, os.Args[0]) || strings.Contains(got, "\x00") {
		t.Errorf("commandLine(this process) = %q; want its arguments", got)
	}
}

// In profile strict a process of uid 0 is ours, in dev one with the mark; what has ended
// is neither.
func TestOurs(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("processes of several users need uid 0")
	}
	root, user := waiting(t, 0), waiting(t, commandUser)
	drop, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("no setpriv on this machine")
	}
	unmarked := start(t, 0, "sh", "-c", "exec "+drop+" --bounding-set -audit_write --inh-caps -audit_write sh -c 'read line'")
	waitFor(t, "it has dropped the mark", func() bool { return !Marked(unmarked) })
	transfer := exec.CommandContext(t.Context(), "/proc/self/exe")
	transfer.Env = append(os.Environ(), actForUser+"=1")
	if err := transfer.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = transfer.Process.Kill()
		_ = transfer.Wait()
	}()
	acting := strconv.Itoa(commandUser)
	waitFor(t, "it acts for the user", func() bool {
		uids := strings.Fields(Status(transfer.Process.Pid, "Uid"))
		return len(uids) == 4 && uids[1] == acting
	})
	for _, row := range []struct {
		name        string
		pid         int
		strict, dev bool
	}{
		{"uid 0 acting for a user", transfer.Process.Pid, true, true},
		{"this process", os.Getpid(), true, true},
		{"uid 0 with the mark", root, true, true},
		{"uid 0 without the mark", unmarked, true, false},
		{"a user", user, false, false},
		{"no process", 1 << 23, false, false},
	} {
		if strict, dev := Ours(row.pid, commandUser), Ours(row.pid, 0); strict != row.strict || dev != row.dev {
			t.Errorf("%s: Ours() = %t in strict, %t in dev; want %t, %t", row.name, strict, dev, row.strict, row.dev)
		}
	}
	if _, ok := listed(t, root, commandUser); ok {
		t.Error("in strict the list has a process of uid 0")
	}
	if _, ok := listed(t, unmarked, 0); !ok {
		t.Error("in dev the list has not the command of uid 0")
	}
}

// Status reads one line, and no other that starts like it.
func TestStatus(t *testing.T) {
	t.Parallel()
	own := os.Getpid()
	for _, row := range []struct {
		pid       int
		key, want string
	}{
		{own, "Pid", strconv.Itoa(own)},
		{own, "PPid", strconv.Itoa(os.Getppid())},
		{own, "P", ""},
		{own, "", ""},
		{own, "None", ""},
		{1 << 23, "Pid", ""},
		{-1, "Pid", ""},
	} {
		if got := Status(row.pid, row.key); got != row.want {
			t.Errorf("Status(%d, %q) = %q; want %q", row.pid, row.key, got, row.want)
		}
	}
}

// A stopped process does not run, and neither does one that has ended.
func TestRuns(t *testing.T) {
	t.Parallel()
	pid := waiting(t, uint32(os.Getuid()))
	if !Runs(pid) {
		t.Error("Runs(a process that waits) = false; want true")
	}
	for _, step := range []struct {
		name   string
		signal unix.Signal
		want   bool
	}{{"stopped", unix.SIGSTOP, false}, {"continued", unix.SIGCONT, true}, {"killed", unix.SIGKILL, false}} {
		if err := unix.Kill(pid, step.signal); err != nil {
			t.Fatal(err)
		}
		waitFor(t, step.name, func() bool { return Runs(pid) == step.want })
	}
	if Runs(1<<23) || Runs(-1) {
		t.Error("Runs(no process) = true; want false")
	}
}

// The name of a process may hold whatever would end it.
func TestParseStat(t *testing.T) {
	t.Parallel()
	const rest = " S 1 7 7 0 -1 4194304 5 6 0 0 30 12 8 9 20 0 4 0 9999 1000000 321 18446744073709551615"
	for _, row := range []struct {
		name, stat string
		want       Process
		ok         bool
	}{
		{"plain", "42 (cat)" + rest, Process{Name: "cat"}, true},
		{"brackets", "42 (a) Z 9 (b)" + rest, Process{Name: "a) Z 9 (b"}, true},
		{"spaces and line breaks", "42 ( \n )" + rest, Process{Name: " \n "}, true},
		{"empty", "42 ()" + rest, Process{}, true},
		{"a closing bracket alone", "42 ())" + rest, Process{Name: ")"}, true},
		{"cut short", "42 (cat) S 1 7 7", Process{}, false},
		{"no name", "42 cat" + rest, Process{}, false},
		{"brackets the wrong way round", "42 )cat(" + rest, Process{}, false},
		{"nothing", "", Process{}, false},
	} {
		want := row.want
		if row.ok {
			want.PID, want.Parent, want.Group, want.Session, want.State, want.Threads = 42, 1, 7, 7, 'S', 4
			want.CPUTicks, want.StartTicks, want.Pages = 42, 9999, 321
		}
		if got, ok := parseStat(42, []byte(row.stat)); got != want || ok != row.ok {
			t.Errorf("%s: parseStat(%q) = %+v, %t; want %+v, %t", row.name, row.stat, got, ok, want, row.ok)
		}
	}
	for state, want := range map[byte][2]bool{'R': {}, 'S': {}, 'D': {}, 'I': {}, 'Z': {true, false}, 'X': {true, false}, 'T': {false, true}, 't': {false, true}} {
		if p := (Process{State: state}); p.Dead() != want[0] || p.Stopped() != want[1] {
			t.Errorf("state %c: dead %t, stopped %t; want %t, %t", state, p.Dead(), p.Stopped(), want[0], want[1])
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"": nil, "a": {"a"}, "a\n": {"a"}, "a\nb": {"a", "b"}, "\n\na\n": {"", "", "a"},
	} {
		var got []string
		for line := range Lines([]byte(text)) {
			got = append(got, string(line))
		}
		if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Errorf("Lines(%q) = %q; want %q", text, got, want)
		}
	}
	for range Lines([]byte("a\nb\n")) {
		break // it must not panic
	}
}
