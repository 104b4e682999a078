package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// person is a user at a terminal of 100 by 30, on which the program runs.
type person struct {
	t       *testing.T
	keys    *os.File // the terminal's other side
	tty     *os.File
	cmd     *exec.Cmd
	before  unix.Termios
	drained chan struct{}

	mu    sync.Mutex
	shown []byte // guarded by mu
}

// sit starts the program on a terminal. What it needs of its environment it gets
// from the test's.
func sit(t *testing.T, args ...string) *person {
	t.Helper()
	p := newPerson(t, args...)
	p.start()
	return p
}

func newPerson(t *testing.T, args ...string) *person {
	t.Helper()
	needEngine(t)
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(keys, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	p := &person{t: t, keys: keys, tty: tty, drained: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, filepath.Join(built, "sandboxbash"), args...)
	p.cmd.Env = append(os.Environ(), "TERM=xterm-256color", "SANDBOXBASH_IMAGE=host", "SANDBOXBASH_QUIET=true", "XDG_STATE_HOME="+t.TempDir())
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	t.Cleanup(func() {
		cancel()
		_ = p.tty.Close()
		_ = p.keys.Close()
		<-p.drained
	})
	p.before = p.modes()
	return p
}

func (p *person) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(p.drained)
		buf := make([]byte, 64<<10)
		for {
			n, err := p.keys.Read(buf)
			p.mu.Lock()
			p.shown = append(p.shown, buf[:n]...)
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// modes are those of the terminal.
func (p *person) modes() unix.Termios {
	p.t.Helper()
	modes, err := unix.IoctlGetTermios(int(p.tty.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *modes
}

func (p *person) screen() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.shown)
}

// sees waits until a text has been shown, behind the one that was seen before,
// and forgets what stood before its end.
func (p *person) sees(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		at := bytes.Index(p.shown, []byte(text))
		if at >= 0 {
			p.shown = append([]byte(nil), p.shown[at+len(text):]...)
		}
		p.mu.Unlock()
		if at >= 0 {
			return
		}
		if time.Now().After(deadline) {
			shown := p.screen()
			p.t.Fatalf("no %q within 30s; shown: %q", text, shown[max(0, len(shown)-2000):])
		}
	}
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.keys, text); err != nil {
		p.t.Fatal(err)
	}
}

// presses types keys, one soon after the other. A loaded machine may read them too far apart: if
// nothing has come of them after a while they are typed again, until stop is called. It returns when
// they were typed last.
func (p *person) presses(keys []string) (stop func() time.Time) {
	over, ended := make(chan struct{}), make(chan struct{})
	var began time.Time
	go func() {
		defer close(ended)
		for {
			began = time.Now()
			for _, k := range keys {
				if _, err := io.WriteString(p.keys, k); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			select {
			case <-over:
				return
			case <-time.After(10 * time.Second):
			}
		}
	}()
	stop = sync.OnceValue(func() time.Time {
		close(over)
		<-ended
		return began
	})
	p.t.Cleanup(func() { stop() }) // before the terminal is closed
	return stop
}

// leaves waits for the end of the program, which must have that exit status and
// leave the terminal as it was.
func (p *person) leaves(status int) {
	p.t.Helper()
	err := p.cmd.Wait()
	got := p.cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || got != status {
		p.t.Errorf("exit status %d, %v; want %d; shown: %q", got, err, status, p.screen())
	}
	if after := p.modes(); after != p.before {
		p.t.Errorf("the terminal's modes are %+v; want them as before, %+v", after, p.before)
	}
	p.seesAll()
}

// seesAll waits until all that the program has written has been shown.
func (p *person) seesAll() {
	p.t.Helper()
	const end = "[nothing follows]"
	if _, err := p.tty.WriteString(end); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		shown, all := bytes.CutSuffix(p.shown, []byte(end))
		p.shown = shown
		p.mu.Unlock()
		if all {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the end of what was written is not shown: %q", shown[max(0, len(shown)-2000):])
		}
	}
}

// newSession starts a session, which is stopped with the test.
func newSession(t *testing.T, args ...string) string {
	t.Helper()
	id, stop := openSession(t, args...)
	t.Cleanup(func() {
		if out, err := stop(); err != nil {
			t.Errorf("session stop: %v\n%s", err, out)
		}
	})
	return id
}

// doomedSession starts a session that the test ends from outside. A start of another
// session meanwhile removes what is left of it.
func doomedSession(t *testing.T) string {
	t.Helper()
	id, stop := openSession(t)
	t.Cleanup(func() {
		if out, err := stop(); err != nil && !bytes.Contains(out, []byte("unknown session")) {
			t.Errorf("session stop: %v\n%s", err, out)
		}
	})
	return id
}

func openSession(t *testing.T, args ...string) (id string, stop func() ([]byte, error)) {
	t.Helper()
	needEngine(t)
	id = strings.TrimSpace(says(t, append([]string{"session", "start"}, args...)...))
	return id, plainly(context.WithoutCancel(t.Context()), "session", "stop", id).CombinedOutput
}

// plainly is the program, not on a terminal.
func plainly(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(built, "sandboxbash"), args...)
	cmd.Env = append(os.Environ(), "SANDBOXBASH_IMAGE=host", "SANDBOXBASH_QUIET=true")
	return cmd
}

// says runs the program, which must succeed, and returns what it prints.
func says(t *testing.T, args ...string) string {
	t.Helper()
	cmd := plainly(t.Context(), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sandboxbash %q: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

// nothingRuns checks that a command's processes are gone.
func nothingRuns(t *testing.T, id, pattern string) {
	t.Helper()
	var left string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		left = strings.TrimSpace(says(t, "session", "exec", id, `pgrep -fa "`+pattern+`" || echo none`))
		if left == "none" {
			return
		}
	}
	t.Errorf("still there: %s", left)
}

// bring copies programs of this machine, with the libraries that they need, to a
// directory for a workspace.
func bring(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s is needed: %v", name, err)
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			t.Fatal(err)
		}
		place(t, path, filepath.Join(dir, "bin", name))
		libraries, err := exec.CommandContext(t.Context(), "ldd", path).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", path, err)
		}
		for _, m := range regexp.MustCompile(`=> (/\S+)`).FindAllStringSubmatch(string(libraries), -1) {
			if base := filepath.Base(m[1]); !strings.HasPrefix(base, "libc.") { // the image's own goes with its loader
				place(t, m[1], filepath.Join(dir, "lib", base))
			}
		}
	}
	return dir
}

func place(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
}
