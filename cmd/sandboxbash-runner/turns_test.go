//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Frames arrive as the host's stream brings them: a byte at a time, or many at once.
func TestTurnsInPieces(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	request := func(seq uint64, script string) []byte {
		return wire.Request{
			Seq: seq, Shell: "sh", Script: []byte(script), Dir: labWork, UID: labUser, GID: labUser, Env: []string{"PATH=/usr/bin:/bin"}, Stdin: true,
		}.Append(nil)
	}
	h.seq = 1
	for _, b := range wire.AppendFrame(nil, wire.TypeRequest, request(1, "exec cat")) {
		if _, err := h.in.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range wire.AppendFrame(wire.AppendFrame(nil, wire.TypeStdin, []byte("slow")), wire.TypeStdinEnd, nil) {
		if _, err := h.in.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if a := h.answer(); a.stdout.String() != "slow" || a.exit.Code != 0 {
		t.Errorf("byte by byte: %q, %+v, %+v; want slow", &a.stdout, a.exit, a.failed)
	}
	// A request in parts of every size, a Ping between them, and its input before it has begun.
	h.seq = 2
	whole := request(2, "exec cat #"+strings.Repeat("x", 3000))
	var all []byte
	for n := 0; len(whole) > n; n++ {
		all = wire.AppendFrame(all, wire.TypePart, whole[:n])
		all = wire.AppendFrame(all, wire.TypePing, nil)
		whole = whole[n:]
	}
	all = wire.AppendFrame(all, wire.TypeRequest, whole)
	all = wire.AppendFrame(all, wire.TypeStdin, []byte("at "))
	all = wire.AppendFrame(all, wire.TypeStdin, nil)
	all = wire.AppendFrame(all, 0xff, []byte("of a later version"))
	all = wire.AppendFrame(all, wire.TypeStdin, []byte("once"))
	all = wire.AppendFrame(all, wire.TypeStdinEnd, nil)
	if _, err := h.in.Write(all); err != nil {
		t.Fatal(err)
	}
	got, ended := "", false
	for !ended {
		switch kind, payload := h.next(); kind {
		case wire.TypePong, wire.TypeTaken:
		case wire.TypeStdout:
			got += string(payload)
		case wire.TypeExit:
			ended = true
		default:
			t.Fatalf("frame of type %q", kind)
		}
	}
	if got != "at once" {
		t.Errorf("all at once: %q; want at once", got)
	}
}

// What a host sends of a command that has ended, or twice, changes nothing: not for that
// command, and not for the next one.
func TestTurnsTooLate(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	end := wire.Request{Script: []byte("cat; echo end"), Stdin: true}
	late := []struct {
		name string
		send func()
	}{
		{"kill", func() { h.send(wire.TypeKill, wire.Kill{Seq: h.seq}.Append(nil)) }},
		{"detach", func() { h.send(wire.TypeDetach, wire.Detach{Seq: h.seq}.Append(nil)) }},
		{"input", func() { h.send(wire.TypeStdin, []byte("late")) }},
		{"the end of its input", func() { h.send(wire.TypeStdinEnd, nil) }},
		{"kill with more fields", func() {
			h.send(wire.TypeKill, append(wire.Kill{Seq: h.seq, TimedOut: true}.Append(nil), "of a later version"...))
		}},
		{"another Open", func() {
			h.send(wire.TypeOpen, wire.Open{Version: wire.Version, Lease: time.Hour}.Append(nil))
		}},
	}
	for _, row := range late {
		row.send()
		h.request(end)
		h.send(wire.TypeStdin, []byte(row.name+" "))
		h.send(wire.TypeStdinEnd, nil)
		h.send(wire.TypeStdinEnd, nil)             // twice
		h.send(wire.TypeStdin, []byte("too late")) // behind the end
		h.send(wire.TypeDetach, wire.Detach{Seq: h.seq}.Append(nil))
		if a := h.answer(); a.stdout.String() != row.name+" end\n" || a.exit.Rung != wire.RungNone || a.exit.Code != 0 {
			t.Errorf("%s: %q, %+v, %+v; want only its own input, and its own end", row.name, &a.stdout, a.exit, a.failed)
		}
	}
	// A host of the version before sends no field that it does not know.
	h.request(wire.Request{Script: []byte("echo; exec sleep 4223")})
	h.started()
	h.send(wire.TypeKill, wire.Kill{Seq: h.seq, Grace: time.Minute}.AppendFor(wire.OldestVersion, nil))
	if a := h.answer(); a.exit.Rung != wire.RungTerm {
		t.Errorf("a kill of version %d: %+v; want SIGTERM to be enough", wire.OldestVersion, a.exit)
	}
	h.seq++
	old := wire.Request{Seq: h.seq, Shell: "sh", Script: []byte("echo old"), Dir: "/", UID: labUser, GID: labUser}
	h.send(wire.TypeRequest, old.AppendFor(wire.OldestVersion, nil))
	h.taken = 0
	if a := h.answer(); a.stdout.String() != "old\n" {
		t.Errorf("a request of version %d: %q, %+v; want old", wire.OldestVersion, &a.stdout, a.failed)
	}
}

// The lease is for commands: between them a host may be silent for longer, after whatever end
// the last one had.
func TestTurnsIdle(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	const lease = 5 * time.Second // with room for a command on a busy machine
	over := make(chan string, 5)
	for name, req := range map[string]wire.Request{
		"a command":            {Script: []byte("echo")},
		"one that has failed":  {Script: []byte("echo"), Dir: "/none"},
		"an answer":            {Path: wire.RunnerPath, Args: wire.VerbPS.Command(), UID: labUser, GID: labUser},
		"one of some length":   {Script: []byte("exec sleep 1")},
		"a command with a job": {Script: []byte("echo"), Job: labJob(false)},
	} {
		h := l.dial()
		h.send(wire.TypeOpen, wire.Open{Version: wire.Version, Lease: lease}.Append(nil))
		h.run(req)
		go func() {
			_, _, _ = h.out.Next() // its stream ends with it
			over <- name
		}()
	}
	select {
	case name := <-over:
		t.Errorf("after %s the runner of a silent host ends; want it to wait for the next command", name)
	case <-time.After(2 * lease):
	}
}

// A host that closes one direction, or breaks off at any place, is gone: the runner ends, and
// so does the command.
func TestTurnsHalfClosed(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	for _, row := range []struct {
		name string
		send func(h *host)
		code int
	}{
		{"before its Open", func(*host) {}, 0},
		{"after its Open", func(h *host) {
			h.send(wire.TypeOpen, wire.Open{Version: wire.Version, Lease: time.Minute}.Append(nil))
		}, 0},
		{"within a request's parts", func(h *host) { h.send(wire.TypePart, []byte("x")) }, 0},
		{"behind a header", func(h *host) { _, _ = h.in.Write(wire.AppendHeader(nil, wire.TypeRequest, 10)) }, 1},
		{"within a payload", func(h *host) {
			b := wire.AppendFrame(nil, wire.TypeRequest, make([]byte, 100))
			_, _ = h.in.Write(b[:50])
		}, 1},
		{"within a command", func(h *host) {
			h.request(wire.Request{Script: []byte("trap '' TERM; echo; while :; do sleep 4222; done")})
			h.started()
		}, 0},
		{"within a command that reads", func(h *host) {
			h.request(wire.Request{Script: []byte("echo; cat; exec sleep 4222"), Stdin: true})
			h.started()
		}, 0},
		{"just behind a request", func(h *host) { h.request(wire.Request{Script: []byte("exec sleep 4222")}) }, 0},
	} {
		h := l.dial()
		row.send(h)
		h.in.Close()
		if code := h.ends(); code != row.code {
			t.Errorf("%s: the runner ends with %d, and says %q; want %d", row.name, code, &h.stderr, row.code)
		}
	}
	if n := l.count("sleep 4222"); n != 0 {
		t.Errorf("%d processes survive their hosts; want none", n)
	}
}

// A command that has ended has ended, even if another process holds its output: the host gets what the
// command has written and not what comes later, and does not wait for it.
func TestExitWhileOutputIsHeld(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	const child = "exec sleep 4221"
	large := strings.Repeat("0123456789abcdef", 1<<14) // four pipes of the default size
	for _, row := range []struct {
		name           string
		req            wire.Request
		stdout, stderr string
		left           bool
	}{
		{"both streams", wire.Request{Script: []byte("echo out; echo err >&2; (" + child + ") &")}, "out\n", "err\n", true},
		{"standard output", wire.Request{Script: []byte("echo out; (" + child + ") 2>/dev/null &")}, "out\n", "", true},
		{"standard error", wire.Request{Script: []byte("echo err >&2; (" + child + ") >/dev/null &")}, "", "err\n", true},
		{"neither", wire.Request{Script: []byte("echo out; (" + child + ") >/dev/null 2>&1 &")}, "out\n", "", true},
		{"merged", wire.Request{Script: []byte("echo out; echo err >&2; (" + child + ") &"), Merged: true}, "out\nerr\n", "", true},
		{"by its path alone", wire.Request{Script: []byte("echo out; (exec 3>/dev/stdout; exec >/dev/null 2>&1; " + child + ") &")}, "out\n", "", true},
		{"much of it", wire.Request{Script: []byte("(" + child + ") & cat"), Stdin: true}, large, "", true},
		{"its standard input", wire.Request{Script: []byte("echo out; (exec >/dev/null 2>&1; " + child + ") <&0 &"), Stdin: true}, "out\n", "", true},
		{"a child that ends with it", wire.Request{Script: []byte("echo out; sleep 0.02 &")}, "out\n", "", false},
	} {
		h := l.serve()
		h.request(row.req)
		if row.stdout == large {
			for rest := large; len(rest) > 0; rest = rest[1<<16:] {
				h.send(wire.TypeStdin, []byte(rest[:1<<16]))
			}
			h.send(wire.TypeStdinEnd, nil)
		}
		began := time.Now()
		a := h.answer()
		if a.stdout.String() != row.stdout || a.stderr.String() != row.stderr || a.exit.Code != 0 || a.exit.Rung != wire.RungNone {
			t.Errorf("%s: %d and %d bytes, %+v, %+v; want %d and %d", row.name, a.stdout.Len(), a.stderr.Len(), a.exit, a.failed, len(row.stdout), len(row.stderr))
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("%s: the end came after %s", row.name, d)
		}
		if row.left {
			if a.exit.Left == 0 {
				t.Errorf("%s: nothing is left; want the child", row.name)
			}
			if code := h.ends(); code != 0 {
				t.Errorf("%s: the runner ends with %d, and says %q; want 0", row.name, code, &h.stderr)
			}
		} else if a.exit.Left == 0 { // it may have ended before it was counted, or not
			if a := h.run(wire.Request{Script: []byte("echo on")}); a.stdout.String() != "on\n" {
				t.Errorf("%s: afterwards %q; want on", row.name, &a.stdout)
			}
		}
	}
	if err := l.init.Process.Signal(unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() bool { return l.count("sleep 4221") == 0 })
}

// A host that is slow gets every byte that was written before the end, however late.
func TestExitWithSlowHost(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	const size = 3 << 20
	h.request(wire.Request{Script: []byte("(exec sleep 4220) & head -c " + strconv.Itoa(size) + " /dev/zero")})
	time.Sleep(3 * drainTime) // all pipes are full, and the command waits for its host
	a := h.answer()
	if a.stdout.Len() != size || a.exit.Code != 0 || a.exit.Left == 0 {
		t.Errorf("%d bytes, %+v; want %d, and a child left", a.stdout.Len(), a.exit, size)
	}
}

// pidsGroup is a cgroup with a pids limit, for the processes of one lab.
func pidsGroup(t *testing.T) (dir string) {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir = filepath.Join(root, "sandboxbash-test-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			eventually(t, "the cgroup is empty", func() bool { return errors.Join(os.Remove(dir)) == nil })
		})
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
			return dir
		}
	}
	t.Skip("this machine gives no cgroup with a pids limit")
	return ""
}

// At the pids limit nothing can be started. The runner says so, and goes on to do all that
// needs no process: it answers questions, kills, and serves the next command once there is
// room again. PID 1 can make that room.
func TestPidsLimit(t *testing.T) {
	t.Parallel()
	dir := pidsGroup(t)
	l := newLab(t, time.Minute)
	_, job := l.background("exec sleep 4219", labJob(true))
	h, busy := l.serve(), l.serve()
	busy.request(wire.Request{Script: []byte("echo; exec sleep 4218")})
	busy.started()
	leaves := l.serve()
	if a := leaves.run(wire.Request{Script: []byte("sleep 4217 & sleep 4217 &")}); a.exit.Left != 2 {
		t.Fatalf("%+v; want two children left", a.exit)
	}
	leaves.ends()
	join := func(pid int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), strconv.AppendInt(nil, int64(pid), 10), 0); err != nil {
			t.Fatal(err)
		}
	}
	join(l.init.Process.Pid)
	join(childOf(t, h.cmd))
	limit := func(most string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(most), 0); err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // below what is there: no fork succeeds
	for range 3 {
		a := h.run(wire.Request{Script: []byte("echo")})
		if f := a.failed; f == nil || f.Failure != wire.FailResources || unix.Errno(f.Errno) != unix.EAGAIN {
			t.Errorf("a command at the limit: %+v, %+v; want it refused because there is no room", f, a.exit)
		}
	}
	a := h.run(wire.Request{Path: wire.RunnerPath, Args: wire.VerbPS.Command(), UID: labUser, GID: labUser})
	if all, err := wire.ParseProcesses(a.stdout.Bytes()); err != nil || len(all) != 4 {
		t.Errorf("ps at the limit: %+v, %v; want the job, the command and two children", all, err)
	}
	h.query(wire.JobQuery{Verb: wire.JobList, Keep: wire.JobKeep{Known: time.Hour, Unknown: time.Hour}})
	states, err := wire.ParseJobStates(h.answer().stdout.Bytes())
	if err != nil || len(states) != 1 || states[0].ID != job.ID || !states[0].Alive {
		t.Errorf("jobs at the limit: %+v, %v; want %s alive", states, err, job.ID)
	}
	if err := l.init.Process.Signal(unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "PID 1 has made room", func() bool { return l.count("sleep 4217") == 0 })
	if n := l.count("sleep 4218") + l.count("sleep 4219"); n != 2 {
		t.Errorf("%d of the command and the job are alive; want both", n)
	}
	limit("max")
	if a := h.run(wire.Request{Script: []byte("echo room")}); a.stdout.String() != "room\n" {
		t.Errorf("with room again: %q, %+v; want room", &a.stdout, a.failed)
	}
}

// Commands differ from runners in what they may do: they lack the mark, have no ambient
// rights, and cannot trace a runner of the same uid.
func TestCommandsLackMark(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	status := "grep -E '^Cap(Prm|Eff)' /proc/self/status"
	a := h.run(wire.Request{Script: []byte(status)})
	for line := range bytes.Lines(a.stdout.Bytes()) {
		if f := bytes.Fields(line); len(f) != 2 || len(bytes.Trim(f[1], "0")) != 0 {
			t.Errorf("a command of a user has %q; want no rights", line)
		}
	}
	// As uid 0 without root's group, which the lab takes for a user's. All other rights are
	// the lab's own.
	a = h.run(wire.Request{Script: []byte(status), UID: 0, GID: 1})
	lines := 0
	for line := range bytes.Lines(a.stdout.Bytes()) {
		lines++
		var key string
		var set uint64
		if _, err := fmt.Sscanf(string(line), "%s %x", &key, &set); err != nil || set>>unix.CAP_AUDIT_WRITE&1 != 0 {
			t.Errorf("a command of uid 0 has %q, %v; want no mark", line, err)
		}
	}
	if lines != 2 {
		t.Errorf("the status has %d sets: %q; want 2", lines, &a.stdout)
	}
}
