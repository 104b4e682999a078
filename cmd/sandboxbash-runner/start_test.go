//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/shells"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A shell reads no settings of the image's, gets its script whole, and its arguments behind.
func TestArgv(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", wire.MaxArgument)
	args := []string{"a", "b c"}
	for _, row := range []struct {
		name string
		req  wire.Request
		want []string
		file bool // the script is a file
	}{
		{"sh", wire.Request{Shell: "sh", Script: []byte("echo")}, []string{"/bin/sh", "-c", "--", "echo", "sh"}, false},
		{"sh with arguments", wire.Request{Shell: "sh", Script: []byte("echo"), Args: args}, []string{"/bin/sh", "-c", "--", "echo", "sh", "a", "b c"}, false},
		{"bash", wire.Request{Shell: "bash", Script: []byte("-x"), Args: args}, []string{"/usr/bin/bash", "--noprofile", "--norc", "-c", "--", "-x", "bash", "a", "b c"}, false},
		{"an empty script", wire.Request{Shell: "sh"}, []string{"/bin/sh", "-c", "--", "", "sh"}, false},
		{"the longest argument", wire.Request{Shell: "sh", Script: []byte(long[1:])}, []string{"/bin/sh", "-c", "--", long[1:], "sh"}, false},
		{"a byte more", wire.Request{Shell: "sh", Script: []byte(long), Args: args}, []string{"/bin/sh", "/proc/self/fd/3", "a", "b c"}, true},
		{"a program", wire.Request{Path: "/opt/tool/run", Args: args, Shell: "sh", Script: []byte("echo")}, []string{"run", "a", "b c"}, false},
	} {
		c := &command{req: row.req, server: &server{shells: map[string]shells.Shell{
			"sh": {Name: "/bin/sh", File: "/bin/dash"}, "bash": {Name: "/usr/bin/bash", File: "/usr/bin/bash"},
		}}}
		if got := c.argv(); !slices.Equal(got, row.want) || c.scriptInFile() != row.file {
			t.Errorf("%s: argv() = %.60q, script in a file %t; want %.60q, %t", row.name, got, c.scriptInFile(), row.want, row.file)
		}
	}
}

// Each reason why nothing was started has a name of its own, where there is one.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err   error
		dir   wire.Failure
		other wire.Failure
		errno unix.Errno
	}{
		{unix.ENOENT, wire.FailDirMissing, wire.FailOther, unix.ENOENT},
		{unix.ENOTDIR, wire.FailDirNotDir, wire.FailOther, unix.ENOTDIR},
		{unix.EACCES, wire.FailDirDenied, wire.FailOther, unix.EACCES},
		{unix.ELOOP, wire.FailDirDenied, wire.FailOther, unix.ELOOP},
		{unix.E2BIG, wire.FailDirDenied, wire.FailTooBig, unix.E2BIG},
		{unix.EAGAIN, wire.FailDirDenied, wire.FailResources, unix.EAGAIN},
		{unix.ENOMEM, wire.FailDirDenied, wire.FailResources, unix.ENOMEM},
		{fmt.Errorf("start: %w", unix.EAGAIN), wire.FailDirDenied, wire.FailResources, unix.EAGAIN},
		{&os.PathError{Op: "open", Err: unix.ENOMEM}, wire.FailDirDenied, wire.FailResources, unix.ENOMEM},
		{errors.New("none of the kernel's"), wire.FailDirDenied, wire.FailOther, 0},
	} {
		if got := failedDir("/d", row.err); got.Failure != row.dir || unix.Errno(got.Errno) != row.errno || got.Detail != "/d" {
			t.Errorf("failedDir(%v) = %+v; want %d, errno %d", row.err, got, row.dir, row.errno)
		}
		if got := failedErrno(row.err); got.Failure != row.other || unix.Errno(got.Errno) != row.errno || got.Detail != row.err.Error() {
			t.Errorf("failedErrno(%v) = %+v; want %d, errno %d", row.err, got, row.other, row.errno)
		}
	}
}

// A script in a file is all there, is read from its start, and can be read by any user.
func TestScriptFile(t *testing.T) {
	t.Parallel()
	script := strings.Repeat("echo 0123456789\n", 1<<16)
	f, err := scriptFile([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if b, err := os.ReadFile(path); string(b) != script || err != nil {
		t.Errorf("the file holds %d bytes, %v; want %d", len(b), err, len(script))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o444 {
		t.Errorf("its mode is %v, %v; want 0444", info.Mode(), err)
	}
}

// Only the attendant keeps the mark, and only as uid 0: whatever else is started, the words
// of a request do not make it trusted.
func TestTrusted(t *testing.T) {
	t.Parallel()
	attend := []string{string(wire.VerbAttend)}
	for _, row := range []struct {
		name string
		req  wire.Request
		want bool
	}{
		{"the attendant", wire.Request{Path: wire.RunnerPath, Args: attend}, true},
		{"with more words", wire.Request{Path: wire.RunnerPath, Args: append(attend, "x")}, true},
		{"as a user", wire.Request{Path: wire.RunnerPath, Args: attend, UID: 1000}, false},
		{"another program", wire.Request{Path: "/bin/sh", Args: attend}, false},
		{"another spelling", wire.Request{Path: "/./" + wire.RunnerPath, Args: attend}, false},
		{"a shell", wire.Request{Shell: "sh", Args: attend}, false},
		{"another verb", wire.Request{Path: wire.RunnerPath, Args: []string{string(wire.VerbPull)}}, false},
		{"the verb behind another", wire.Request{Path: wire.RunnerPath, Args: []string{"pull", "attend"}}, false},
		{"no verb", wire.Request{Path: wire.RunnerPath}, false},
	} {
		if got := (&command{req: row.req}).trusted(); got != row.want {
			t.Errorf("%s: trusted() = %t; want %t", row.name, got, row.want)
		}
	}
}

// A runner answers only what needs no process, and about jobs only what uid 0 asks.
func TestAnswerTo(t *testing.T) {
	t.Parallel()
	jobs, ps := wire.VerbJobs.Command(), wire.VerbPS.Command()
	for _, row := range []struct {
		name string
		req  wire.Request
		want bool
	}{
		{"jobs", wire.Request{Path: wire.RunnerPath, Args: jobs}, true},
		{"jobs for a user", wire.Request{Path: wire.RunnerPath, Args: jobs, UID: 1000}, false},
		{"jobs and more", wire.Request{Path: wire.RunnerPath, Args: append(jobs, "x")}, false},
		{"ps", wire.Request{Path: wire.RunnerPath, Args: ps}, true},
		{"ps for a user", wire.Request{Path: wire.RunnerPath, Args: ps, UID: 1000}, true},
		{"another program", wire.Request{Path: "/usr/bin/runner", Args: ps}, false},
		{"another verb", wire.Request{Path: wire.RunnerPath, Args: []string{"survey"}}, false},
		{"no verb", wire.Request{Path: wire.RunnerPath}, false},
		{"a script", wire.Request{Shell: "sh", Args: ps}, false},
	} {
		if got := answerTo(&row.req) != nil; got != row.want {
			t.Errorf("%s: it is answered: %t; want %t", row.name, got, row.want)
		}
	}
}

// A long answer is cut into frames; none of them is empty.
func TestAnswerWriter(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ size, frames int }{
		{0, 0}, {1, 1}, {wire.MaxPayload, 1}, {wire.MaxPayload + 1, 2}, {3 * wire.MaxPayload, 3},
	} {
		var out written
		w := answerWriter{out: newFrameWriter(&out)}
		n, err := w.Write(make([]byte, row.size))
		if n != row.size || err != nil || w.sent != uint64(row.size) || len(out.calls) != row.frames {
			t.Errorf("Write(%d bytes) = %d, %v, %d counted in %d frames; want all in %d", row.size, n, err, w.sent, len(out.calls), row.frames)
		}
	}
}

// An OOM kill is counted where the kernel says so, whatever else is in the file.
func TestParseOOMKills(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text string
		want int64
	}{
		{"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 9\n", 2}, // cgroup v2
		{"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5},                // cgroup v1
		{"oom_kill_disable 1\nunder_oom 0\n", 0},                            // before Linux 4.13
		{"oom_kill 7", 7},
		{"oom_kill \n", 0},
		{"oom_kill x\n", 0},
		{"oom_kill", 0},
		{"", 0},
	} {
		if got := parseOOMKills([]byte(row.text)); got != row.want {
			t.Errorf("parseOOMKills(%q) = %d; want %d", row.text, got, row.want)
		}
	}
}

// Without a counter no end counts as an OOM kill, and a file of claims that is cut short
// counts as one without claims.
func TestOOMClaimsDamaged(t *testing.T) {
	t.Parallel()
	open := func(text string) *os.File {
		t.Helper()
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, row := range []struct {
		name   string
		claims string
		want   bool
	}{
		{"no claim yet", "", true},
		{"cut short", "\x05", false},
		{"an older claim", "\x01\x00\x00\x00\x00\x00\x00\x00", true},
		{"a claim of this kill", "\x05\x00\x00\x00\x00\x00\x00\x00", false},
		{"a claim of a later one", "\x09\x00\x00\x00\x00\x00\x00\x00", false},
	} {
		o := &oomCounter{f: open("oom_kill 5\n"), claimed: open(row.claims)}
		w := &oomWatch{counter: o, before: 4}
		if got := w.claim(); got != row.want {
			t.Errorf("%s: claim() = %t; want %t", row.name, got, row.want)
		}
		if w.claim() {
			t.Errorf("%s: one kill is claimed twice", row.name)
		}
	}
	if w := (&oomCounter{claimed: open("")}).watch(); w.claim() {
		t.Error("without a counter claim() = true; want false")
	}
}

// stdin that is not sent is /dev/null, and a duplicate is not inherited by other commands.
func TestOpenStdin(t *testing.T) {
	t.Parallel()
	c := &command{stdin: newStdinPipe(newFrameWriter(io.Discard), 1)}
	null, err := c.openStdin()
	if err != nil || null.Name() != os.DevNull || c.stdin.w != nil {
		t.Fatalf("openStdin() without input = %v, %v; want %s", null, err, os.DevNull)
	}
	defer null.Close()
	twin, err := duplicate(null)
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	if flags, err := unix.FcntlInt(twin.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Error("a duplicate is inherited by every command")
	}
	c.req.Stdin = true
	r, err := c.openStdin()
	if err != nil || c.stdin.w == nil {
		t.Fatalf("openStdin() with input = %v, %v; want a pipe", r, err)
	}
	defer c.stdin.close()
	closeAll([]*os.File{r})
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after closeAll() a read = %v; want %v", err, os.ErrClosed)
	}
}
