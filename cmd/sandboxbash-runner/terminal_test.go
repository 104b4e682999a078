//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// terminal is the host's end of a command on a terminal: the terminal itself, and the
// attendant.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd // the terminal's runner
	pid    int       // of that, in the lab
	shown  bytes.Buffer

	attendant *exec.Cmd
	in        io.WriteCloser
	out       *wire.Reader
	said      bytes.Buffer // by the attendant, on standard error
}

// openTerminal starts a terminal's runner, and takes its Hello.
func (l *lab) openTerminal() *terminal {
	l.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		l.t.Skip("no pseudo-terminals on this machine: " + err.Error())
	}
	l.t.Cleanup(func() { master.Close() })
	conn, err := master.SyscallConn()
	if err != nil {
		l.t.Fatal(err)
	}
	number := -1
	err = conn.Control(func(fd uintptr) {
		if err := unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil || number < 0 {
		l.t.Fatalf("unlock the terminal: %v", err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	defer slave.Close()
	term := &terminal{t: l.t, master: master}
	// An engine makes the runner the leader of the terminal's session.
	term.cmd = l.command(string(wire.VerbPTY))
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		l.t.Fatal(err)
	}
	term.cmd.Args = slices.Insert(term.cmd.Args, 1, setsid, "--ctty")
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	if err := term.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = term.cmd.Process.Kill()
		_ = term.cmd.Wait()
	})
	kind, payload, err := wire.NewReader(master).Next()
	if err != nil {
		l.t.Fatalf("the terminal's first frame: %v", err)
	}
	hello, err := wire.ParseHello(payload)
	if kind != wire.TypeHello || err != nil || hello.PID < 2 {
		l.t.Fatalf("the terminal's first frame is %q %+v, %v; want a Hello", kind, hello, err)
	}
	term.pid = hello.PID
	return term
}

// attend starts the terminal's attendant.
func (term *terminal) attend(l *lab) {
	term.t.Helper()
	term.attendant = l.command(string(wire.VerbAttend))
	term.attendant.Stderr = &term.said
	in, err := term.attendant.StdinPipe()
	if err != nil {
		term.t.Fatal(err)
	}
	out, err := term.attendant.StdoutPipe()
	if err != nil {
		term.t.Fatal(err)
	}
	if err := term.attendant.Start(); err != nil {
		term.t.Fatal(err)
	}
	term.t.Cleanup(func() {
		in.Close()
		_ = term.attendant.Process.Kill()
		_ = term.attendant.Wait()
	})
	greeting := make([]byte, len(wire.Attending))
	if _, err := io.ReadFull(out, greeting); err != nil || string(greeting) != wire.Attending {
		term.t.Fatalf("the attendant says %q, %v; want %q", greeting, err, wire.Attending)
	}
	if _, err := in.Write(wire.AppendTerminal(nil, term.pid)); err != nil {
		term.t.Fatal(err)
	}
	term.in, term.out = in, wire.NewReader(out)
}

// typed sends the command's request, or whatever the test has for it, on the terminal.
func (term *terminal) typed(b []byte) {
	term.t.Helper()
	if _, err := term.master.Write(b); err != nil {
		term.t.Fatalf("type: %v", err)
	}
}

// labTerminal is a request for a terminal, as frames.
func labTerminal(req wire.Request) []byte {
	req.Seq, req.Dir, req.UID, req.GID = 5, labWork, labUser, labUser
	req.Env = []string{"PATH=/usr/bin:/bin", "TERM=dumb"}
	if req.Shell == "" {
		req.Shell = "sh"
	}
	b := req.Append(nil)
	var frames []byte
	for len(b) > 1000 { // in parts, of any size
		frames = wire.AppendFrame(frames, wire.TypePart, b[:1000])
		b = b[1000:]
	}
	return wire.AppendFrame(frames, wire.TypeRequest, b)
}

// startTerminal starts a command on a terminal, and waits for its start.
func (l *lab) startTerminal(script string) *terminal {
	l.t.Helper()
	term := l.openTerminal()
	term.attend(l)
	term.typed(labTerminal(wire.Request{Script: []byte(script)}))
	if kind, payload := term.next(); kind != wire.TypePong || string(payload) != string(wire.TerminalStarted) {
		l.t.Fatalf("%q: the first answer is %q %q; want that it has started", script, kind, payload)
	}
	return term
}

// next is the next frame that comes by the attendant.
func (term *terminal) next() (wire.Type, []byte) {
	term.t.Helper()
	kind, payload, err := term.out.Next()
	if err != nil {
		term.t.Fatalf("the next frame by the attendant: %v, and it says %q", err, &term.said)
	}
	return kind, payload
}

func (term *terminal) send(kind wire.Type, payload []byte) {
	term.t.Helper()
	if _, err := term.in.Write(wire.AppendFrame(nil, kind, payload)); err != nil {
		term.t.Fatalf("send %q: %v", kind, err)
	}
}

// shows reads the terminal until it shows a text.
func (term *terminal) shows(text string) {
	term.t.Helper()
	if err := term.master.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		term.t.Fatal(err)
	}
	b := make([]byte, 4096)
	for !strings.Contains(term.shown.String(), text) {
		n, err := term.master.Read(b)
		if term.shown.Write(b[:n]); err != nil {
			term.t.Fatalf("the terminal shows %q, %v; want %q", &term.shown, err, text)
		}
	}
}

// exits waits for the Exit, and for the runner's own end.
func (term *terminal) exits() (exit wire.Exit, code int) {
	term.t.Helper()
	kind, payload := term.next()
	exit, err := wire.ParseExit(payload)
	if kind != wire.TypeExit || err != nil {
		term.t.Fatalf("frame %q, %v; want the Exit", kind, err)
	}
	return exit, term.ends()
}

// ends waits for the end of the terminal's runner, and returns its exit code.
func (term *terminal) ends() int {
	term.t.Helper()
	_ = term.cmd.Wait()
	return term.cmd.ProcessState.ExitCode()
}

// A command on a terminal has all of it: its input, its size, its signals and its path. Its
// end comes by the attendant, and as the exit code of its runner.
func TestTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	for _, row := range []struct {
		name, script string
		typed, shows string // shows comes before typed
		last         string // and this after it
		code, signal int
	}{
		{"a line", "echo hello", "", "hello\r\n", "", 0, 0},
		{"exit code", "exit 7", "", "", "", 7, 0},
		{"signal", "kill -TERM $$", "", "", "", 0, 15},
		{"input", "echo ready; read line; echo got $line", "word\n", "ready", "got word", 0, 0},
		{"it is a terminal", "test -t 0 && test -t 1 && test -t 2 && echo yes", "", "yes", "", 0, 0},
		{"by its path", "echo shown >$(tty)", "", "shown", "", 0, 0},
		{"as the controlling one", "echo shown >/dev/tty", "", "shown", "", 0, 0},
		{"in the foreground", "set -- $(cat /proc/$$/stat); test $5 = $8 && test $5 = $$ && echo leads", "", "leads", "", 0, 0},
		{"as its user", "echo $(id -u):$(id -g):$(id -G)", "", "12345:12345:12345", "", 0, 0},
		{"Ctrl-C", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.01; done", "\x03", "ready", "caught", 9, 0},
		{"Ctrl-D", "echo ready; cat; echo end", "\x04", "ready", "end", 0, 0},
		{"a long script", "echo long #" + strings.Repeat("x", wire.MaxArgument), "", "long", "", 0, 0},
	} {
		term := l.startTerminal(row.script)
		if row.shows != "" {
			term.shows(row.shows)
		}
		if row.typed != "" {
			term.typed([]byte(row.typed))
			term.shows(row.last)
		}
		exit, code := term.exits()
		want := row.code
		if row.signal > 0 {
			want = 128 + row.signal
		}
		if exit.Seq != 5 || exit.Code != row.code || exit.Signal != row.signal || exit.Rung != wire.RungNone || code != want {
			t.Errorf("%s: %+v, and the runner ends with %d; want code %d, signal %d, and %d", row.name, exit, code, row.code, row.signal, want)
		}
	}
}

// A command that cannot be started is refused by the attendant, never in the terminal's text.
func TestTerminalRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	h.request(wire.Request{Script: []byte("echo; exec sleep 4228")})
	h.started()
	for _, row := range []struct {
		name    string
		req     wire.Request
		failure wire.Failure
	}{
		{"no such shell", wire.Request{Shell: "fish"}, wire.FailNoShell},
		{"no such program", wire.Request{Path: "/none"}, wire.FailOther},
		{"alone, besides another", wire.Request{Script: []byte("echo"), Exclusive: true}, wire.FailBusy},
	} {
		term := l.openTerminal()
		term.attend(l)
		term.typed(labTerminal(row.req))
		kind, payload := term.next()
		failed, err := wire.ParseFailed(payload)
		if kind != wire.TypeFailed || err != nil || failed.Failure != row.failure || failed.Seq != 5 {
			t.Errorf("%s: %q %+v, %v; want failure %d", row.name, kind, failed, err, row.failure)
		}
		if code := term.ends(); code != 1 {
			t.Errorf("%s: the runner ends with %d; want 1", row.name, code)
		}
	}
}

// What comes on the terminal before the request is the request's frames and nothing else.
func TestTerminalMalformed(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	for _, row := range []struct {
		name  string
		typed []byte
		says  string
	}{
		{"another frame", wire.AppendFrame(nil, wire.TypePing, nil), "type 'p'"},
		{"one that may be left out elsewhere", wire.AppendFrame(nil, 0x80, nil), "malformed"},
		{"an empty request", wire.AppendFrame(nil, wire.TypeRequest, nil), "malformed"},
		{"half a request", wire.AppendFrame(nil, wire.TypeRequest, []byte{1, 0, 2, 's'}), "malformed"},
		{"a length above the limit", wire.AppendHeader(nil, wire.TypeRequest, wire.MaxPayload+1), "payload of"},
		{"no frame", []byte("\r\nls\r\n"), "payload of"},
	} {
		term := l.openTerminal()
		term.typed(row.typed)
		term.shows("runner pty: ")
		term.shows(row.says)
		if code := term.ends(); code != 1 {
			t.Errorf("%s: the runner ends with %d; want 1", row.name, code)
		}
	}
}

// When the attendant goes, or says what it may not, the command is killed, with all that it
// has started. An attendant that asks gets what the command does.
func TestTerminalAttendant(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	const script = "trap '' HUP; setsid sh -c 'echo ready; exec sleep 4227' & exec sleep 4227"
	kill := func(seq uint64, grace time.Duration) []byte { return wire.Kill{Seq: seq, Grace: grace}.Append(nil) }
	for _, row := range []struct {
		name  string
		does  func(term *terminal)
		rung  wire.Rung // what the Exit says; RungNone if no attendant is there to get it
		ended unix.Signal
	}{
		{"kill", func(term *terminal) { term.send(wire.TypeKill, kill(5, 0)) }, wire.RungKill, unix.SIGKILL},
		{"kill with a grace", func(term *terminal) { term.send(wire.TypeKill, kill(5, 100*time.Millisecond)) }, wire.RungKill, unix.SIGTERM},
		{"kill of another command", func(term *terminal) { term.send(wire.TypeKill, kill(4, time.Minute)) }, wire.RungKill, unix.SIGKILL},
		{"malformed kill", func(term *terminal) { term.send(wire.TypeKill, nil) }, wire.RungKill, unix.SIGKILL},
		{"half a frame", func(term *terminal) { _, _ = term.in.Write([]byte{'k', 0}); term.in.Close() }, wire.RungNone, 0},
		{"its host goes", func(term *terminal) { term.in.Close() }, wire.RungNone, 0},
		{"it dies", func(term *terminal) { _ = unix.Kill(childOf(t, term.attendant), unix.SIGKILL) }, wire.RungNone, 0},
	} {
		term := l.startTerminal(script)
		term.shows("ready")
		term.send(0x90, []byte("of a later version")) // skipped
		row.does(term)
		if row.rung != wire.RungNone {
			if exit, _ := term.exits(); exit.Rung != row.rung || exit.Signal != int(row.ended) || exit.Left != 0 {
				t.Errorf("%s: %+v; want rung %d, signal %d and nothing left", row.name, exit, row.rung, row.ended)
			}
		} else if code := term.ends(); code != 128+9 {
			t.Errorf("%s: the runner ends with %d; want %d", row.name, code, 128+9)
		}
		eventually(t, row.name+": nothing is left", func() bool { return l.count("sleep 4227") == 0 })
	}
}

// A Ping is answered with what the kernel shows of the command: whether it waits for input.
func TestTerminalState(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	for _, row := range []struct {
		name, script string
		want         wire.TerminalState
	}{
		{"reads", "echo ready; read line", wire.TerminalWaits},
		{"a child reads", "echo ready; cat | cat", wire.TerminalWaits},
		{"computes", "echo ready; while :; do :; done", wire.TerminalBusy},
		{"sleeps", "echo ready; exec sleep 4226", wire.TerminalBusy},
	} {
		term := l.startTerminal(row.script)
		term.shows("ready")
		state := wire.TerminalState(0)
		for deadline := time.Now().Add(20 * time.Second); state != row.want && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			term.send(wire.TypePing, nil)
			kind, payload := term.next()
			pong, err := wire.ParsePong(payload)
			if kind != wire.TypePong || err != nil {
				t.Fatalf("%s: the answer is %q %q, %v; want a Pong", row.name, kind, payload, err)
			}
			state = pong.State
		}
		if state != row.want {
			t.Errorf("%s: its state stays %c; want %c", row.name, state, row.want)
		}
		term.send(wire.TypeKill, wire.Kill{Seq: 5}.Append(nil))
		term.exits()
	}
}

// Input that is typed and not read yet means that the command is not waiting.
func TestTerminalTypedAhead(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	term := l.startTerminal("echo ready; while ! test -e go; do sleep 0.01; done; read line; echo got $line; read line")
	term.shows("ready")
	term.typed([]byte("early\n"))
	term.send(wire.TypePing, nil)
	if _, payload := term.next(); string(payload) != string(wire.TerminalBusy) {
		t.Errorf("with input that is not read the state is %q; want %c", payload, wire.TerminalBusy)
	}
	l.inside("touch " + labWork + "/go")
	term.shows("got early")
}

// An attendant without a terminal ends with the reason, and says nothing as if it were one.
func TestAttendRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve() // PID 1 is ready
	for _, row := range []struct{ name, stdin, says string }{
		{"no pid", "", "no pid"},
		{"half a pid", "12", "no pid"},
		{"no number", "x\n", "malformed"},
		{"a path", "../init\n", "malformed"},
		{"an empty line", "\n", "malformed"},
		{"PID 1", "1\n", "malformed"},
		{"too large a pid", "99999999999\n", "malformed"},
		{"no such terminal", "4000000\n", "connect to terminal 4000000"},
	} {
		cmd := l.command(string(wire.VerbAttend))
		cmd.Stdin = strings.NewReader(row.stdin)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 1 || stdout.String() != wire.Attending || !strings.Contains(stderr.String(), row.says) {
			t.Errorf("%s: the attendant ends with %d, says %q and %q; want 1 and %q", row.name, code, &stdout, &stderr, row.says)
		}
	}
	if a := h.run(wire.Request{Script: []byte("ls /run/sandboxbash")}); a.exit.Code == 0 {
		t.Errorf("a command lists the sockets: %q", &a.stdout)
	}
}

// A terminal's socket is there until its attendant has come, and takes one.
func TestTerminalSocket(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	sockets := func() int {
		out, err := exec.CommandContext(t.Context(), "nsenter", "-t", l.pid(), "-m", "--", "ls", stateDir).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(out), "terminal")
	}
	term := l.openTerminal()
	if n := sockets(); n != 1 {
		t.Errorf("%d sockets before the attendant; want 1", n)
	}
	term.attend(l)
	term.typed(labTerminal(wire.Request{Script: []byte("echo ready; read line")}))
	term.shows("ready")
	if n := sockets(); n != 0 {
		t.Errorf("%d sockets after the attendant; want none", n)
	}
	second := &terminal{t: t, pid: term.pid}
	second.attend(l)
	if _, _, err := second.out.Next(); err == nil {
		t.Error("a second attendant gets frames")
	}
	_ = second.attendant.Wait()
	if !strings.Contains(second.said.String(), "connect to terminal") {
		t.Errorf("a second attendant says %q; want that it cannot connect", &second.said)
	}
}
