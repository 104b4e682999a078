//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// One runner serves one command after another: whatever a command does, and whether it
// has started or not, the next one starts in the same state.
func TestServe(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	long := strings.Repeat("x", wire.MaxArgument)
	for _, row := range []struct {
		name           string
		req            wire.Request
		stdout, stderr string
		code, signal   int
	}{
		{"exit code", wire.Request{Script: []byte("exit 7")}, "", "", 7, 0},
		{"signal", wire.Request{Script: []byte("kill -USR1 $$")}, "", "", 0, int(unix.SIGUSR1)},
		{"two streams", wire.Request{Script: []byte("echo out; echo err >&2")}, "out\n", "err\n", 0, 0},
		{"merged, in order", wire.Request{Script: []byte("echo 1; echo 2 >&2; echo 3"), Merged: true}, "1\n2\n3\n", "", 0, 0},
		{"streams by their paths", wire.Request{Script: []byte("echo out >/dev/stdout; echo err >/dev/stderr")}, "out\n", "err\n", 0, 0},
		{"no input", wire.Request{Script: []byte("cat; readlink /proc/self/fd/0")}, "/dev/null\n", "", 0, 0},
		{"arguments", wire.Request{Script: []byte(`printf '%s|' "$0" "$@"`), Args: []string{"a b", "", "$c"}}, "sh|a b||$c|", "", 0, 0},
		{"the whole environment", wire.Request{Path: "/usr/bin/env", Env: []string{"A=1", "B=x y"}}, "A=1\nB=x y\n", "", 0, 0},
		{"a program's name", wire.Request{Path: "/bin/sh", Args: []string{"-c", "echo $0"}}, "sh\n", "", 0, 0},
		{"directory", wire.Request{Script: []byte("pwd"), Dir: "/usr"}, "/usr\n", "", 0, 0},
		{"user, group and no other groups", wire.Request{Script: []byte("id -u; id -g; id -G")}, "12345\n12345\n12345\n", "", 0, 0},
		{"a session of its own", wire.Request{Script: []byte("cut -d' ' -f6 /proc/$$/stat | grep -qx $$ && echo leads")}, "leads\n", "", 0, 0},
		{"the first to go without memory", wire.Request{Script: []byte("cat /proc/self/oom_score_adj")}, "1000\n", "", 0, 0},
		{"no descriptor of the runner's", wire.Request{Path: "/bin/ls", Args: []string{"/proc/self/fd"}}, "0\n1\n2\n3\n", "", 0, 0},
		{"a script that is too long for an argument", wire.Request{Script: []byte("echo $#$1 #" + long), Args: []string{"a"}}, "1a\n", "", 0, 0},
		{"a stopped child goes on alone", wire.Request{Script: []byte("sleep 0 & wait; echo done")}, "done\n", "", 0, 0},
	} {
		a := h.run(row.req)
		if a.failed != nil || a.stdout.String() != row.stdout || a.stderr.String() != row.stderr || a.exit.Code != row.code || a.exit.Signal != row.signal {
			t.Errorf("%s: %q, %q, code %d, signal %d, failed %+v; want %q, %q, %d, %d", row.name,
				a.stdout.String(), a.stderr.String(), a.exit.Code, a.exit.Signal, a.failed, row.stdout, row.stderr, row.code, row.signal)
		}
		if a.exit.Rung != wire.RungNone || a.exit.Left != 0 {
			t.Errorf("%s: %s, %d left; want nothing to have ended it and nothing left", row.name, fmt.Sprint(a.exit.Rung), a.exit.Left)
		}
	}
}

// What cannot be started is refused with its reason, and the runner serves on.
func TestServeFailures(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	echo := []byte("echo ran")
	for _, row := range []struct {
		name    string
		req     wire.Request
		failure wire.Failure
		errno   unix.Errno
		detail  string
	}{
		{"no directory", wire.Request{Script: echo, Dir: "/none"}, wire.FailDirMissing, unix.ENOENT, "/none"},
		{"a file", wire.Request{Script: echo, Dir: "/run/file"}, wire.FailDirNotDir, unix.ENOTDIR, "/run/file"},
		{"a directory of uid 0 alone", wire.Request{Script: echo, Dir: "/run/closed"}, wire.FailDirDenied, unix.EACCES, "/run/closed"},
		{"no such shell", wire.Request{Script: echo, Shell: "fish"}, wire.FailNoShell, 0, "fish"},
		{"no such program", wire.Request{Path: "/none"}, wire.FailOther, unix.ENOENT, "start /none"},
		{"an argument that is too long", wire.Request{Script: echo, Args: []string{strings.Repeat("x", wire.MaxArgument)}}, wire.FailTooBig, unix.E2BIG, "start /"},
	} {
		a := h.run(row.req)
		switch f := a.failed; {
		case f == nil:
			t.Errorf("%s: exit %+v, output %q; want it refused", row.name, a.exit, a.stdout.String())
		case f.Seq != h.seq || f.Failure != row.failure || unix.Errno(f.Errno) != row.errno || !strings.HasPrefix(f.Detail, row.detail):
			t.Errorf("%s: %+v; want failure %d, errno %d, detail %q", row.name, *f, row.failure, row.errno, row.detail)
		}
		if a := h.run(wire.Request{Script: echo}); a.stdout.String() != "ran\n" {
			t.Fatalf("%s: afterwards a command writes %q, %+v; want ran", row.name, a.stdout.String(), a.failed)
		}
	}
}

// A host that does not keep to the protocol is left, and its command with it: nothing
// that it sends can have the runner guess.
func TestServeMalformed(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	open := func(version uint64, lease time.Duration) []byte {
		return wire.Open{Version: version, Lease: lease}.Append(nil)
	}
	for _, row := range []struct {
		name string
		send func(h *host)
		says string
	}{
		{"unknown type", func(h *host) { h.send('~', nil) }, `type '~'`},
		{"a runner's own type", func(h *host) { h.send(wire.TypeExit, nil) }, `type 'X'`},
		{"another version", func(h *host) { h.send(wire.TypeOpen, open(wire.Version+1, time.Minute)) }, "open version"},
		{"no lease", func(h *host) { h.send(wire.TypeOpen, open(wire.Version, 0)) }, "lease 0s"},
		{"an empty Open", func(h *host) { h.send(wire.TypeOpen, nil) }, "malformed"},
		{"an empty Kill", func(h *host) { h.send(wire.TypeKill, nil) }, "malformed"},
		{"an empty Detach", func(h *host) { h.send(wire.TypeDetach, nil) }, "malformed"},
		{"an empty Request", func(h *host) { h.send(wire.TypeRequest, nil) }, "malformed"},
		{"a length above the limit", func(h *host) {
			_, _ = h.in.Write(wire.AppendHeader(nil, wire.TypeStdin, wire.MaxPayload+1))
		}, "payload of"},
		{"a request above the limit", func(h *host) {
			part := wire.AppendFrame(nil, wire.TypePart, make([]byte, wire.MaxPayload))
			for range wire.MaxRequest/wire.MaxPayload + 1 {
				if _, err := h.in.Write(part); err != nil {
					return // it has left
				}
			}
		}, "request above"},
		{"a second command at once", func(h *host) {
			h.request(wire.Request{Script: []byte("echo; exec sleep 4241")})
			h.started()
			h.request(wire.Request{Script: []byte("echo")})
		}, "a command is running"},
		{"half a frame", func(h *host) {
			_, _ = h.in.Write([]byte{byte(wire.TypePing), 0})
			h.in.Close()
		}, "unexpected EOF"},
	} {
		h := l.dial()
		row.send(h)
		if code := h.ends(); code != 1 || !strings.Contains(h.stderr.String(), row.says) {
			t.Errorf("%s: the runner ends with %d and says %q; want 1 and %q", row.name, code, h.stderr.String(), row.says)
		}
	}
	if n := l.count("sleep 4241"); n != 0 {
		t.Errorf("%d commands of hosts that were left are alive; want none", n)
	}
}

// What a later host may say is skipped, and a Ping is answered at any time.
func TestServeOptional(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	h.send(0x80, []byte("of a later version"))
	h.send(wire.TypeStdin, []byte("for no command"))
	h.send(wire.TypeStdinEnd, nil)
	h.send(wire.TypeKill, wire.Kill{Seq: 1}.Append(nil))
	h.send(wire.TypeDetach, wire.Detach{Seq: 1}.Append(nil))
	h.send(wire.TypePing, nil)
	if kind, payload := h.next(); kind != wire.TypePong || len(payload) != 0 {
		t.Errorf("the answer is %q %q; want a Pong", kind, payload)
	}
	if a := h.run(wire.Request{Script: []byte("echo ran")}); a.stdout.String() != "ran\n" {
		t.Errorf("afterwards a command writes %q; want ran", a.stdout.String())
	}
	h.in.Close()
	if code := h.ends(); code != 0 || h.stderr.Len() > 0 {
		t.Errorf("a host that goes: the runner ends with %d and says %q; want 0 and nothing", code, h.stderr.String())
	}
}

// Standard input is asked for, and comes back whole.
func TestServeStdin(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	h.request(wire.Request{Script: []byte("exec cat"), Stdin: true})
	var sent, got bytes.Buffer
	room := 0
	for ended := false; ; {
		kind, payload := h.next()
		switch kind {
		case wire.TypeTaken:
			taken, err := wire.ParseTaken(payload)
			if err != nil || taken.Seq != h.seq {
				t.Fatalf("%+v, %v; want to be asked for command %d", taken, err, h.seq)
			}
			room += int(taken.Bytes)
		case wire.TypeStdout:
			got.Write(payload)
			continue
		case wire.TypeExit:
			if !bytes.Equal(sent.Bytes(), got.Bytes()) || sent.Len() < 3*wire.StdinWindow {
				t.Errorf("%d bytes of %d came back, or others", got.Len(), sent.Len())
			}
		default:
			t.Fatalf("frame of type %q", kind)
		}
		if kind == wire.TypeExit {
			break
		}
		if room > wire.StdinWindow {
			t.Fatalf("the runner asks for %d bytes at once; want at most %d", room, wire.StdinWindow)
		}
		for room > 0 && !ended {
			chunk := bytes.Repeat([]byte{byte(sent.Len() >> 10)}, min(room, 60<<10))
			sent.Write(chunk)
			room -= len(chunk)
			h.send(wire.TypeStdin, chunk)
			if sent.Len() >= 3*wire.StdinWindow {
				ended = true
				h.send(wire.TypeStdinEnd, nil)
			}
		}
	}
	// A command that never reads is killed all the same, whatever is queued for it.
	h.request(wire.Request{Script: []byte("echo; exec sleep 4240"), Stdin: true})
	h.started()
	for range 2 * wire.StdinWindow / wire.MaxPayload {
		h.send(wire.TypeStdin, make([]byte, wire.MaxPayload))
	}
	h.send(wire.TypeKill, wire.Kill{Seq: h.seq}.Append(nil))
	if a := h.answer(); a.exit.Rung != wire.RungKill || a.exit.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v; want it killed", a.exit)
	}
}

// A kill goes as far up the ladder as it must, and nothing is left behind it.
func TestServeKill(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	const (
		forever = "while :; do sleep 4239; done"
		patient = 20 * time.Second
		// The shell's time for its trap on a busy machine. Its child ignores SIGINT, and waits for SIGTERM.
		interrupted = 5 * time.Second
	)
	// What takes a signal says itself that it is there: a shell's child has its parent's
	// trap until it is another program.
	for _, row := range []struct {
		name   string
		script string
		kill   wire.Kill
		rung   wire.Rung
		code   int
		signal unix.Signal
	}{
		{"asked", "echo; exec sleep 4239", wire.Kill{Grace: patient}, wire.RungTerm, 0, unix.SIGTERM},
		{"with a trap", "trap 'exit 3' TERM; sh -c 'echo; exec sleep 4239' & wait", wire.Kill{Grace: patient}, wire.RungTerm, 3, 0},
		{"interrupted", "trap 'exit 4' INT; sh -c 'echo; exec sleep 4239' & wait", wire.Kill{Grace: interrupted, Interrupt: true}, wire.RungTerm, 4, 0},
		{"interrupted alone", "echo; exec sleep 4239", wire.Kill{Grace: patient, Interrupt: true}, wire.RungInt, 0, unix.SIGINT},
		{"deaf", "trap '' TERM INT; echo; " + forever, wire.Kill{Grace: 50 * time.Millisecond}, wire.RungKill, 0, unix.SIGKILL},
		{"deaf and interrupted", "trap '' TERM INT; echo; " + forever, wire.Kill{Grace: 50 * time.Millisecond, Interrupt: true}, wire.RungKill, 0, unix.SIGKILL},
		{"at once", "echo; exec sleep 4239", wire.Kill{}, wire.RungKill, 0, unix.SIGKILL},
		{"stopped", "echo; kill -STOP $$", wire.Kill{Grace: patient}, wire.RungTerm, 0, unix.SIGTERM},
		{"children in sessions of their own", "(setsid setsid sleep 4239 &); setsid sh -c 'echo; exec sleep 4239' & exec sleep 4239", wire.Kill{Grace: 50 * time.Millisecond}, wire.RungKill, 0, unix.SIGTERM},
		{"children that fork on", "f() { setsid sh -c '" + forever + "' & }; trap '' TERM; f; f; f; echo; " + forever, wire.Kill{}, wire.RungKill, 0, unix.SIGKILL},
	} {
		h.request(wire.Request{Script: []byte(row.script)})
		h.started()
		h.send(wire.TypeKill, wire.Kill{Seq: h.seq + 1}.Append(nil)) // of another command
		kill := row.kill
		kill.Seq = h.seq
		h.send(wire.TypeKill, kill.Append(nil))
		h.send(wire.TypeKill, wire.Kill{Seq: h.seq}.Append(nil)) // only the first counts
		var a reply
		for kind := wire.TypeStdout; kind != wire.TypeExit; {
			var payload []byte
			if kind, payload = h.next(); kind == wire.TypeExit {
				var err error
				if a.exit, err = wire.ParseExit(payload); err != nil {
					t.Fatal(err)
				}
			}
		}
		if e := a.exit; e.Rung != row.rung || e.Code != row.code || e.Signal != int(row.signal) || e.Left != 0 {
			t.Errorf("%s: rung %d, code %d, signal %d, %d left; want %d, %d, %d, none", row.name, e.Rung, e.Code, e.Signal, e.Left, row.rung, row.code, row.signal)
		}
		if n := l.count("sleep 4239"); n != 0 {
			t.Errorf("%s: %d processes survive; want none", row.name, n)
		}
	}
}

// A kill that comes before the command's start is not lost.
func TestServeEarlyKill(t *testing.T) {
	t.Parallel()
	h := newLab(t, time.Minute).serve()
	for range 20 {
		h.request(wire.Request{Script: []byte("exec sleep 4238")})
		h.send(wire.TypeKill, wire.Kill{Seq: h.seq}.Append(nil))
		if a := h.answer(); a.exit.Signal != int(unix.SIGKILL) || a.exit.Rung != wire.RungKill {
			t.Fatalf("%+v; want it killed", a.exit)
		}
	}
}

// A command that leaves children has ended; its runner goes, and PID 1 takes the
// children and what they write.
func TestServeChildrenLeft(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	a := h.run(wire.Request{Script: []byte(`(while ! test -e go; do sleep 0.01; done; echo late; echo late >&2; touch wrote; exec sleep 4237) & echo now`)})
	if a.stdout.String() != "now\n" || a.exit.Code != 0 || a.exit.Left == 0 {
		t.Errorf("%q, %+v; want now, 0, and children left", a.stdout.String(), a.exit)
	}
	if code := h.ends(); code != 0 {
		t.Errorf("the runner ends with %d; want 0", code)
	}
	next := l.serve()
	if a := next.run(wire.Request{Script: []byte("touch go; while ! test -e wrote; do sleep 0.01; done")}); a.exit.Code != 0 || a.exit.Left != 0 {
		t.Errorf("%+v; want the child to have written, and not to be counted again", a.exit)
	}
	eventually(t, "the child lives on", func() bool { return l.count("sleep 4237") == 1 }) // it execs after it has written
	// SIGUSR2 has PID 1 end everything below it, and nothing else.
	if err := l.init.Process.Signal(unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of what was left", func() bool { return l.count("sleep 4237") == 0 })
	if a := next.run(wire.Request{Script: []byte("echo on")}); a.stdout.String() != "on\n" {
		t.Errorf("afterwards a command writes %q; want on", a.stdout.String())
	}
}

// A command ends with its host.
func TestServeHostGone(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	h.request(wire.Request{Script: []byte("trap '' TERM HUP PIPE; echo; setsid sleep 4236 & exec sleep 4236")})
	h.started()
	h.in.Close()
	if code := h.ends(); code != 0 {
		t.Errorf("the runner ends with %d, and says %q; want 0", code, h.stderr.String())
	}
	if n := l.count("sleep 4236"); n != 0 {
		t.Errorf("%d processes survive their host; want none", n)
	}
}

// A host that says nothing for the length of its lease counts as gone.
func TestServeSilentHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.dial()
	h.send(wire.TypeOpen, wire.Open{Version: wire.Version, Lease: 100 * time.Millisecond}.Append(nil))
	h.request(wire.Request{Script: []byte("exec sleep 4235")})
	if code := h.ends(); code != 1 || !strings.Contains(h.stderr.String(), "no word from the host") {
		t.Errorf("the runner ends with %d, and says %q; want 1 and that there is no word", code, h.stderr.String())
	}
	if n := l.count("sleep 4235"); n != 0 {
		t.Errorf("%d processes survive their host; want none", n)
	}
}

// A session runs so many commands at once, whatever runner serves them, and one that
// wants to be alone is not started besides another.
func TestServeSlots(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	busy := make([]*host, slots)
	for i := range busy {
		busy[i] = l.serve()
		busy[i].request(wire.Request{Script: []byte("echo; exec sleep 4234")})
		busy[i].started()
	}
	h := l.serve()
	refused := func(when string, req wire.Request, want bool) {
		t.Helper()
		a := h.run(req)
		if got := a.failed != nil && a.failed.Failure == wire.FailBusy; got != want || a.failed != nil && !got {
			t.Errorf("%s: refused as busy is %t, %+v; want %t", when, got, a.failed, want)
		}
	}
	hello, alone := wire.Request{Script: []byte("echo hello")}, wire.Request{Script: []byte("echo hello"), Exclusive: true}
	refused("every slot is taken", hello, true)
	refused("a program of ours", wire.Request{Path: "/bin/true"}, false)
	end := func(h *host) {
		t.Helper()
		h.send(wire.TypeKill, wire.Kill{Seq: h.seq}.Append(nil))
		h.answer()
	}
	end(busy[0])
	refused("one slot is free", hello, false)
	refused("alone, besides others", alone, true)
	for _, b := range busy[1:] {
		end(b)
	}
	refused("alone", alone, false)
	refused("after that", hello, false)
}

// PID 1 ends the container when its lease is over or it is told to, and says which.
func TestInitEnds(t *testing.T) {
	t.Parallel()
	short := newLab(t, 200*time.Millisecond)
	told := newLab(t, time.Minute)
	_ = told.serve() // PID 1 is ready
	if err := told.init.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		l    *lab
		code int
	}{"lease": {short, wire.ExitLeaseOver}, "SIGTERM": {told, wire.ExitStopped}} {
		_ = row.l.init.Wait()
		if got := row.l.init.ProcessState.ExitCode(); got != row.code {
			t.Errorf("%s: PID 1 ends with %d; want %d", name, got, row.code)
		}
	}
}

// Whatever verb is not one, or has not its arguments, is refused before it does anything.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{nil, wire.ExitUsage, "usage: runner"},
		{[]string{"sh"}, wire.ExitUsage, "usage: runner"},
		{[]string{"init"}, 1, "runner init: arguments"},
		{[]string{"init", "--lease", "x", "--user", "1"}, 1, "runner init: arguments"},
		{[]string{"init", "--lease", "1s", "--user", "4294967295"}, 1, "not an id"},
		{[]string{"clear"}, 1, "runner clear: arguments"},
		{[]string{"clear", "/none", "/none"}, 1, "too many"},
		{[]string{"pull", "1000", "/none"}, 1, "runner pull: arguments"},
		{[]string{"push", "1:1"}, 1, "runner push: arguments"},
		{[]string{"accounts", "/none"}, 1, "runner accounts: arguments"},
		{[]string{"survey", "soon"}, 1, "runner survey: arguments"},
		{[]string{"clear", "/none"}, 1, "no such file"},
		{[]string{"attend"}, 1, "runner attend: no pid"},
		{[]string{"jobs"}, 64, "usage"},
	} {
		cmd := exec.CommandContext(t.Context(), testBinary(t), row.args...)
		cmd.Env = append(cmd.Environ(), labRole+"="+labVerb)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != row.code || !strings.Contains(stderr.String(), row.says) {
			t.Errorf("runner %q ends with %d and says %q; want %d and %q", row.args, got, stderr.String(), row.code, row.says)
		}
	}
}
