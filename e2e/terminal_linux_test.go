package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// Row O15, scenario 53: a command on a terminal has this one's size, from the
// first moment and after a change, its exit status comes back, and the terminal is
// left as it was.
func TestPTYSize(t *testing.T) {
	t.Parallel()
	p := sit(t, "run", "--pty", `stty size; tty; trap 'stty size' WINCH; echo ready; while ! read -t 0.1 line; do :; done; exit 7`)
	p.sees("30 100\r\n/dev/pts/")
	p.sees("ready")
	if err := pty.Setsize(p.keys, &pty.Winsize{Rows: 33, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	p.sees("33 132")
	p.types("\r")
	p.leaves(7)
}

// Keys go to the command, and scenario 52: the end of input ends it.
func TestPTYKeys(t *testing.T) {
	t.Parallel()
	id := newSession(t)
	for _, row := range []struct {
		name, script, keys, shows string
		status                    int
	}{
		{"interrupt", `echo ready; sleep 60`, "\x03", "^C", 130},
		{"interrupt caught", `trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done`, "\x03", "caught", 5},
		{"quit", `trap 'echo caught; exit 6' QUIT; echo ready; while :; do sleep 0.05; done`, "\x1c", "caught", 6},
		{"end of input", `echo ready; cat; echo over`, "abc\r\x04", "abc\r\nover", 0},
		{"a prompt", `echo ready; read -p 'Enter name: ' n; echo "Hello $n"`, "John\r", "Hello John", 0},
		{"one escape", `stty raw -echo; echo ready; head -c 1 | od -An -tx1`, "\x1b", "1b", 0},
		{"an arrow", `stty raw -echo; echo ready; head -c 3 | od -An -tx1`, "\x1b[A", "1b 5b 41", 0},
		{"detach keys", `stty raw -echo; echo ready; head -c 4 | od -An -tx1`, "\x10\x11\x10\x11", "10 11 10 11", 0},
		{"a line that is too long", `echo ready; stty -echo; read -r line; echo ${#line}`, strings.Repeat("x", 8<<10) + "\r", "4095", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := sit(t, "run", "--pty", "--session", id, row.script)
			p.sees("ready")
			time.Sleep(200 * time.Millisecond) // for what follows the word
			p.types(row.keys)
			p.sees(row.shows)
			p.leaves(row.status)
		})
	}
}

// Row O14: both ways, all byte values pass as they are.
func TestPTYBytes(t *testing.T) {
	t.Parallel()
	p := sit(t, "run", "--pty", "--kill-keys", "none", `stty raw -echo; printf 'ready:'; head -c 2560 | tee copy; cmp -s <(for i in 0 1 2 3 4 5 6 7 8 9; do for x in {0..255}; do printf '\x'$(printf %x $x); done; done) copy && printf ':same'`)
	p.sees("ready:")
	var all []byte
	for i := range 2560 {
		all = append(all, byte(i))
	}
	for i := 0; i < len(all); i += 100 {
		p.types(string(all[i:min(len(all), i+100)]))
	}
	p.sees(string(all) + ":same")
	p.leaves(0)
}

// Keys that were named end the command and all that it has started; by default none do.
func TestPTYKillKeys(t *testing.T) {
	t.Parallel()
	escEsc := []string{"--kill-keys", "esc esc"}
	id := newSession(t)
	for i, row := range []struct {
		name string
		args []string
		keys []string
	}{
		{"esc esc", escEsc, []string{"\x1b", "\x1b"}},
		{"at once", escEsc, []string{"\x1b\x1b"}},
		{"as a modern terminal sends them", escEsc, []string{"\x1b[27u", "\x1b[27u"}},
		{"another key", []string{"--kill-keys", "ctrl-]"}, []string{"\x1d"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			script := fmt.Sprintf(`trap '' TERM HUP INT; setsid sleep 472%d & echo ready; sleep 472%d`, i, i)
			p := sit(t, append(append([]string{"run", "--pty", "--session", id}, row.args...), script)...)
			p.sees("ready")
			stop := p.presses(row.keys)
			p.leaves(130)
			if took := time.Since(stop()); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			nothingRuns(t, id, fmt.Sprintf("[s]leep 472%d", i))
		})
	}
	for _, row := range []struct {
		name string
		args []string
		keys []string
	}{
		{"too slowly", escEsc, []string{"\x1b", "", "\x1b"}},
		{"with another key between", escEsc, []string{"\x1b", "x", "\x1b"}},
		{"an arrow", escEsc, []string{"\x1b[A", "\x1b[A"}},
		{"alt and an arrow", escEsc, []string{"\x1b\x1b[A"}},
		{"by default", nil, []string{"\x1b", "\x1b"}},
		{"switched off", []string{"--kill-keys", "none"}, []string{"\x1b", "\x1b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := sit(t, append(append([]string{"run", "--pty", "--session", id}, row.args...), `stty raw -echo; echo ready; head -c 1 >/dev/null; sleep 1; echo alive`)...)
			p.sees("ready")
			for _, k := range row.keys {
				if k == "" {
					time.Sleep(3 * time.Second) // far longer than the 400 ms within which it would count
				}
				p.types(k)
				time.Sleep(50 * time.Millisecond)
			}
			p.sees("alive")
			p.leaves(0)
		})
	}
}

// The terminal is put back however the program ends.
func TestPTYRestores(t *testing.T) {
	t.Parallel()
	const script = `printf '\033[?1049h\033[?25l\033[?2004h\033[31m'; stty raw; echo ready; sleep 4722`
	restored := func(p *person) {
		p.t.Helper()
		shown := string(p.screen())
		for _, sequence := range []string{"\x1b[?1049l", "\x1b[?25h", "\x1b[?2004l", "\x1b[m"} {
			if !strings.Contains(shown, sequence) {
				p.t.Errorf("%q was not undone; shown: %q", sequence, shown)
			}
		}
	}
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", "--timeout", "2s", script)
		p.sees("ready")
		began := time.Now()
		p.leaves(124)
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("it took %v", took)
		}
		restored(p)
	})
	t.Run("signal", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", script)
		p.sees("ready")
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.leaves(130)
		restored(p)
	})
	t.Run("two signals", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", script)
		p.sees("ready")
		for range 2 {
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		p.leaves(130)
	})
	t.Run("session lost", func(t *testing.T) {
		t.Parallel()
		id := doomedSession(t)
		p := sit(t, "run", "--pty", "--session", id, script)
		p.sees("ready")
		if out, err := exec.CommandContext(t.Context(), "docker", "kill", "sandboxbash-"+id).CombinedOutput(); err != nil {
			t.Fatalf("docker kill: %v\n%s", err, out)
		}
		p.leaves(125)
		if !regexp.MustCompile(`PTY error: `).Match(p.screen()) {
			t.Errorf("shown: %q; want a PTY error", p.screen())
		}
		restored(p)
	})
	t.Run("not started", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", "--cwd", "/nowhere", "true")
		p.sees("Working directory does not exist: /nowhere")
		p.leaves(2)
	})
	t.Run("stopped terminal", func(t *testing.T) { // row O14: XOFF
		t.Parallel()
		p := sit(t, "run", "--pty", "--timeout", "3s", `echo ready; while sleep 0.01; do echo more; done`)
		p.sees("ready")
		p.types("\x13")
		began := time.Now()
		p.leaves(124)
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A flood stops at a key, and its end is shown.
func TestPTYFlood(t *testing.T) {
	t.Parallel()
	p := sit(t, "run", "--pty", `trap 'echo; echo the last line; exit 3' INT; echo ready; yes a line of the flood; exit 3`)
	p.sees("ready")
	p.sees(strings.Repeat("a line of the flood\r\n", 1000))
	p.types("\x03")
	began := time.Now()
	p.sees("the last line")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the key took %v", took)
	}
	p.leaves(3)
}

// useBrought is the start of a script that uses what bring has brought.
const useBrought = `export PATH=$PWD/bin:$PATH LD_LIBRARY_PATH=$PWD/lib; `

// Scenario 55: real programs, as a person uses them.
func TestPTYPrograms(t *testing.T) {
	t.Parallel()
	id := newSession(t, "--workspace", "copy:"+bring(t, "vi"))
	says(t, "session", "exec", id, `seq -f 'line %g' 1 500 >file; git init -q repo && cd repo && git config user.email a@b && git config user.name n && seq 300 | while read i; do git commit -q --allow-empty -m "commit $i"; done`)
	t.Run("vi", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", "--session", id, useBrought+`vi -u NONE notes.txt; cat notes.txt`)
		p.sees("notes.txt")
		p.types("ihello from vi")
		p.sees("vi")
		p.types("\x1b")
		time.Sleep(600 * time.Millisecond) // one Esc, and none soon after
		p.types(":wq\r")
		p.sees("hello from vi\r\n")
		p.leaves(0)
	})
	t.Run("less", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", "--session", id, `less file; echo left with $?`)
		p.sees("line 20")
		p.types("G")
		p.sees("line 500")
		p.types("q")
		p.sees("left with 0")
		p.leaves(0)
	})
	t.Run("git log", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", "--session", id, "--cwd", "repo", `git log; echo left with $?`)
		p.sees("commit 300")
		p.types("q")
		p.sees("left with 0")
		p.leaves(0)
	})
	t.Run("unattended", func(t *testing.T) { // scenario 50
		t.Parallel()
		p := sit(t, "run", "--pty", "--unattended", "--session", id, "--cwd", "repo", `git log && git commit --allow-empty --amend; echo $TERM $PAGER; exit 4`)
		p.sees("commit 1\r\n")
		p.sees("xterm-256color cat")
		p.leaves(4)
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		p := sit(t, "run", "--pty", "--session", id, `python3 -qi`)
		p.sees(">>> ")
		p.types("6*7\r")
		p.sees("\n42\r\n")
		p.sees(">>> ")
		p.types("while True: pass\r\r")
		time.Sleep(300 * time.Millisecond)
		p.types("\x03")
		p.sees("KeyboardInterrupt")
		p.sees(">>> ")
		p.types("exit(5)\r")
		p.leaves(5)
	})
}

// Row K14: what hides from its terminal is gone after a kill, and stays after an
// end of its own.
func TestPTYDaemons(t *testing.T) {
	t.Parallel()
	id := newSession(t, "--workspace", "copy:"+bring(t, "tmux"))
	for _, row := range []struct{ name, script, process string }{
		{"tmux", useBrought + `tmux new -d 'sleep 4731'`, "[s]leep 4731"},
		{"script", `setsid script -qc 'sleep 4732' /dev/null </dev/null >/dev/null 2>&1 &`, "[s]leep 4732"},
		{"setsid", `setsid -f sleep 4733 </dev/null >/dev/null 2>&1`, "[s]leep 4733"},
		{"nohup", `nohup sleep 4734 </dev/null >/dev/null 2>&1 &`, "[s]leep 4734"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			wait := row.script + "\n" + `until pgrep -f "` + row.process + `" >/dev/null; do sleep 0.05; done; echo ready`
			p := sit(t, "run", "--pty", "--session", id, wait)
			p.sees("ready")
			p.leaves(0)
			if n := strings.TrimSpace(says(t, "session", "exec", id, `pgrep -fc "`+row.process+`"; true`)); n == "0" {
				t.Error("it did not survive a normal exit")
			}
			says(t, "session", "exec", id, `pkill -f "`+row.process+`"; true`)
			p = sit(t, "run", "--pty", "--timeout", "3s", "--session", id, wait+"; sleep 60")
			p.sees("ready")
			p.leaves(124)
			nothingRuns(t, id, row.process)
		})
	}
}

// A shell in a session, and scenario 29: what it leaves in the background does not
// hold it.
func TestAttach(t *testing.T) {
	t.Parallel()
	id := newSession(t)
	p := sit(t, "session", "attach", id)
	p.sees(":/workspace$ ") // behind the session's name
	p.types("echo $((6*7)); stty size\r")
	p.sees("\r42\r\n30 100\r\n")
	p.types("(trap '' HUP; sleep 4735) & echo shell is $0\r")
	p.sees("shell is bash")
	p.types("exit 3\r")
	p.leaves(3)
	q := sit(t, "session", "attach", id, "-c", `echo "$1 of $#"; exit 4`, "--", "one", "two")
	q.sees("one of 2")
	q.leaves(4)
	if out, err := plainly(t.Context(), "session", "attach", id).CombinedOutput(); err == nil || !strings.Contains(string(out), "not a terminal") {
		t.Errorf("session attach without a terminal: %v, %s; want it refused", err, out)
	}
}

// A user leaves a terminal and comes back, from another one too: with keys, by losing the
// terminal, by the end of the program that was attached.
func TestDetach(t *testing.T) {
	t.Parallel()
	id := newSession(t, "--workspace", "copy:"+bring(t, "vi"))
	dir, err := os.MkdirTemp("", "sbx") //nolint:usetesting // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	state := "XDG_RUNTIME_DIR=" + dir
	attach := func(args ...string) *person {
		p := newPerson(t, args...)
		p.cmd.Env = append(p.cmd.Env, state, "SANDBOXBASH_QUIET=false")
		p.start()
		return p
	}
	p := attach("session", "attach", id)
	p.sees("attached to ")
	p.sees("; detach with ctrl-p ctrl-q\r\n")
	p.sees("$ ")
	p.types("x=kept; stty size\r")
	p.sees("30 100")
	p.types("\x10\x11")
	p.sees("detached; `sandboxbash pty attach pty_")
	p.leaves(0)

	p = attach("pty", "attach")
	p.sees("30 100\r\n") // what was there
	p.types("echo $x\r")
	p.sees("kept\r\n")
	q := attach("pty", "attach") // takes over
	q.sees("kept")
	p.sees("another user has attached")
	p.leaves(0)
	q.types(useBrought + "vi -u NONE notes.txt\r")
	q.sees("\x1b[29;1H~")
	q.types("ihalf a line")
	q.sees("half a line")
	if err := q.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = q.cmd.Wait() // killed

	p = attach("pty", "attach")
	p.sees("half a line")
	p.sees("\x1b[29;1H~") // the editor has drawn all of it again
	p.types(" more\x1b")
	time.Sleep(600 * time.Millisecond) // one Esc, and none soon after
	p.types(":wq\r")
	p.sees("notes.txt\" ")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.sees("detached; ")
	p.leaves(0)

	p = attach("pty", "attach")
	p.sees("notes.txt")
	p.types("cat notes.txt; exit 3\r")
	p.sees("half a line more\r\n")
	p.sees("ended, exit status 3")
	p.leaves(3)
	p = attach("pty", "attach")
	p.sees("there is no terminal to attach to")
	p.leaves(2)

	p = attach("session", "attach", id, "--detach-keys", "ctrl-]", "--", "sleep", "4737")
	p.sees("detach with ctrl-]")
	p.types("\x1d")
	p.sees("detached; ")
	p.leaves(0)
	says(t, "session", "exec", id, "pgrep -f '[s]leep 4737'")
	p = attach("pty", "attach")
	p.sees("attached to ")
	p.types("\x03") // now it is the program's
	p.sees("ended by SIGINT")
	p.leaves(130)
	p = attach("session", "attach", id, "-e", "PS1=it's mine> ")
	p.sees("it's mine> ")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.sees("cancelled")
	p.leaves(130)
	nothingRuns(t, id, "[b]ash -i")
}

// On a terminal a command's colours pass, and nothing else that is not text.
func TestColours(t *testing.T) {
	t.Parallel()
	id := newSession(t)
	const script = `printf 'a \033[31mred\033[2J b\033]0;title\a\n'`
	p := sit(t, "session", "exec", id, script)
	p.sees("a \x1b[31mred b\r\n\x1b[m")
	p.leaves(0)
	p = newPerson(t, "session", "exec", id, script)
	p.cmd.Env = append(p.cmd.Env, "NO_COLOR=1")
	p.start()
	p.sees("a red b\r\n")
	p.leaves(0)
	p = sit(t, "session", "ls", "-a")
	p.sees("\x1b[1mNAME ")
	p.sees("\x1b[32mrunning\x1b[m")
	p.leaves(0)
}

// An editor in an attached shell does not notice that other commands of its session
// are killed, those included that only a stop of everything reaches.
func TestAttachOutlivesKills(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"strict", "dev"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			id := newSession(t, "--profile", profile, "--workspace", "copy:"+bring(t, "vi"))
			p := sit(t, "session", "attach", id)
			p.sees(" ")
			p.types(useBrought + "vi -u NONE notes.txt\r")
			p.sees("\x1b[29;1H~") // all of an empty screen
			p.types("ibefore")
			p.sees("before")
			const hop = `perl -e 'use POSIX; $SIG{TERM}=$SIG{HUP}=$SIG{CHLD}="IGNORE"; if (fork) { sleep 600 while 1 } setsid(); POSIX::close($_) for 0..2;
				while (1) { my $p = fork; POSIX::_exit(0) if $p }' & sleep 600`
			for range 3 {
				out, err := plainly(t.Context(), "session", "exec", "--json", "--timeout", "1500ms", id, hop).Output()
				if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 124 || !bytes.Contains(out, []byte(`"proved":true`)) {
					t.Errorf("the kill: %v\n%s\nwant a timeout, and proved", err, out)
				}
			}
			p.types(" after")
			p.sees("after")
			p.types("\x1b")
			time.Sleep(600 * time.Millisecond) // one Esc, and none soon after
			p.types(":wq\r")
			p.sees("notes.txt\" ")
			p.types("cat notes.txt; exit 3\r")
			p.sees("before after\r\n")
			p.leaves(3)
		})
	}
}

// A pager that waits for its reader for longer than the command may run has all output.
func TestPager(t *testing.T) {
	t.Parallel()
	id := newSession(t)
	p := newPerson(t)
	p.cmd.Path, p.cmd.Args = "/bin/bash", []string{
		"bash", "-o", "pipefail", "-c",
		`"$0" session exec --timeout 3s "$1" 'seq 300000' | less; exit "${PIPESTATUS[0]}"`, filepath.Join(built, "sandboxbash"), id,
	}
	p.start()
	p.sees("\r\n20\r\n")
	time.Sleep(4 * time.Second) // longer than the timeout: the reader's time is not the command's
	p.types("G")
	p.sees("300000")
	p.types("q")
	p.leaves(0)
}

// A pager that is left early ends the command, with the status that a pipe gives.
func TestPagerLeft(t *testing.T) {
	t.Parallel()
	id := newSession(t)
	p := newPerson(t)
	p.cmd.Path, p.cmd.Args = "/bin/bash", []string{
		"bash", "-c",
		`"$0" session exec "$1" 'yes | cat -n' | less; exit "${PIPESTATUS[0]}"`, filepath.Join(built, "sandboxbash"), id,
	}
	p.start()
	p.sees("    20")
	p.types("q")
	p.leaves(141)
	nothingRuns(t, id, "[y]es")
}

// Without a terminal --pty changes nothing but a word in the JSON; with a terminal the
// JSON goes to standard output. Scenario 47: no call waits for input that cannot come.
func TestPTYFallback(t *testing.T) {
	t.Parallel()
	id := newSession(t)
	type result struct {
		Stdout   string
		ExitCode *int
		PTY      *bool
		Error    *struct{ Message string }
	}
	parse := func(text []byte) (r result) {
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		return r
	}
	cmd := plainly(t.Context(), "run", "--pty", "--json", "--session", id, `cat; [ -t 1 ] || echo no terminal; exit 3`)
	out, _ := cmd.Output()
	if r := parse(out); r.PTY == nil || *r.PTY || r.Stdout != "no terminal\n" || *r.ExitCode != 3 {
		t.Errorf("without a terminal: %s", out)
	}
	if r := parse([]byte(says(t, "run", "--json", "--session", id, "true"))); r.PTY != nil {
		t.Error("pty is in the result of a command that did not ask for it")
	}
	p := newPerson(t, "run", "--pty", "--json", "--session", id, `tty >/dev/null && echo a terminal; read -r line; exit 3`)
	var file bytes.Buffer
	p.cmd.Stdout = &file
	p.start()
	p.sees("a terminal")
	p.types("\r")
	p.leaves(3)
	if r := parse(file.Bytes()); r.PTY == nil || !*r.PTY || !strings.HasPrefix(r.Stdout, "a terminal\n") || *r.ExitCode != 3 {
		t.Errorf("with a terminal: %s", file.Bytes())
	}
}

// A terminal whose program is killed outright ends with it.
func TestPTYKilledHost(t *testing.T) {
	t.Parallel()
	id := newSession(t)
	p := sit(t, "run", "--pty", "--session", id, `trap '' HUP TERM; echo ready; sleep 4736`)
	p.sees("ready")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // killed
	nothingRuns(t, id, "[s]leep 4736")
}
