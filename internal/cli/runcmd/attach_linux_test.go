package runcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// desk is a terminal with a user, and far the terminal that the user attaches to.
type desk struct {
	t      *testing.T
	keys   *os.File // the user's side
	tty    *os.File
	far    *far
	end    context.CancelCauseFunc
	result chan error
	before unix.Termios

	mu    sync.Mutex
	shown strings.Builder // guarded by mu
}

// far shows what is typed, and ends as the test says.
type far struct {
	live io.Writer
	over chan Parting
	lost chan error

	mu    sync.Mutex
	typed string      // guarded by mu
	size  screen.Size // guarded by mu
}

func (f *far) Write(p []byte) (int, error) {
	f.mu.Lock()
	f.typed += string(p)
	f.mu.Unlock()
	return f.live.Write(p)
}

func (f *far) Resize(_ context.Context, size screen.Size) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = size
	return nil
}

func (f *far) Kill() {
	f.over <- Parting{Result: sandbox.Result{Status: exec.Status{Reason: exec.Cancelled}}}
}

func (f *far) Detach() { f.over <- Parting{Left: "detached"} }

func (f *far) Wait() (Parting, error) {
	select {
	case p := <-f.over:
		p.Restore = []byte("[restored]")
		return p, nil
	case err := <-f.lost:
		return Parting{}, err
	}
}

// sit attaches a user with a terminal to a far one. The first of the keys that detach waits for window.
func sit(t *testing.T, window time.Duration) *desk {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(keys, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, keys: keys, tty: tty, far: &far{over: make(chan Parting, 4), lost: make(chan error, 1)}, result: make(chan error, 1)}
	modes, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	d.before = *modes
	t.Cleanup(func() {
		_ = keys.Close()
		_ = tty.Close()
	})
	go func() {
		buf := make([]byte, 4<<10)
		for {
			n, err := keys.Read(buf)
			d.mu.Lock()
			d.shown.Write(buf[:n])
			d.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	p := core.New("", nil, tty, tty, tty)
	p.Cfg.Config = &config.Config{PTY: config.PTY{KillKeys: "ctrl-]", DetachKeys: "ctrl-p,ctrl-q"}}
	console, err := New(p).Console()
	if err != nil {
		t.Fatal(err)
	}
	console.window = window
	ctx, end := context.WithCancelCause(t.Context())
	d.end = end
	dialled := make(chan struct{})
	go func() {
		d.result <- console.Attach(ctx, Label{Session: "web", ID: "pty_1"}, func(_ context.Context, size screen.Size, live *stdio.Writer) (Attachment, error) {
			defer close(dialled)
			d.far.live, d.far.size = live, size
			return d.far, nil
		})
	}()
	<-dialled
	return d
}

func (d *desk) sees(text string) {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		shown := d.shown.String()
		d.mu.Unlock()
		if strings.Contains(shown, text) {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("no %q; shown: %q", text, shown)
		}
	}
}

func (d *desk) types(text string) {
	d.t.Helper()
	if _, err := d.keys.WriteString(text); err != nil {
		d.t.Fatal(err)
	}
}

// leaves checks that it ends with that status, and the terminal as it was.
func (d *desk) leaves(status int) {
	d.t.Helper()
	err := <-d.result
	got := 0
	if err != nil {
		got = exit.Judge(err).Status
		if s, ok := errors.AsType[exit.StatusError](err); ok {
			got = int(s)
		}
	}
	if got != status {
		d.t.Errorf("status %d (%v); want %d", got, err, status)
	}
	after, err := unix.IoctlGetTermios(int(d.tty.Fd()), unix.TCGETS)
	if err != nil || *after != d.before {
		d.t.Errorf("the modes are %+v, %v; want them as before", after, err)
	}
}

// A user types, detaches with keys, and reads where the program is now.
func TestConsoleDetaches(t *testing.T) {
	t.Parallel()
	d := sit(t, time.Hour) // the second key may come late on a busy machine
	d.sees("attached to web (pty_1); detach with ctrl-p ctrl-q\r\n")
	d.types("ls\x03\x1b")
	d.sees("ls\x03\x1b")
	if err := pty.Setsize(d.keys, &pty.Winsize{Rows: 20, Cols: 90}); err != nil {
		t.Fatal(err)
	}
	d.types("\x10")
	time.Sleep(50 * time.Millisecond)
	d.types("\x11")
	d.leaves(0)
	d.sees("[restored]\r\nsandboxbash: detached; `sandboxbash pty attach pty_1` comes back\r\n")
	if d.far.typed != "ls\x03\x1b" {
		t.Errorf("typed: %q; want the keys that detach left out", d.far.typed)
	}
	if d.far.size != (screen.Size{Cols: 100, Rows: 30}) && d.far.size != (screen.Size{Cols: 90, Rows: 20}) {
		t.Errorf("the size is %+v", d.far.size)
	}
}

// A key that was held is typed when no other has come.
func TestConsoleHeldKey(t *testing.T) {
	t.Parallel()
	d := sit(t, detachWindow)
	d.types("\x10")
	d.sees("\x10")
	d.far.over <- Parting{Result: sandbox.Result{Status: exec.Status{Reason: exec.Exited, Code: 3}}}
	d.leaves(3)
	d.sees("sandboxbash: ended, exit status 3\r\n")
}

// Keys that were named kill; so does a signal. A terminal that has gone detaches.
func TestConsoleEnds(t *testing.T) {
	t.Parallel()
	d := sit(t, detachWindow)
	d.types("\x1d")
	d.leaves(exit.Cancelled)
	d.sees("sandboxbash: cancelled")

	d = sit(t, detachWindow)
	d.end(exit.ErrInterrupted)
	d.leaves(exit.Cancelled)

	d = sit(t, detachWindow)
	d.end(exit.ErrHangup)
	d.leaves(0)
	d.sees("detached; ")

	d = sit(t, detachWindow)
	d.far.lost <- &exec.Error{Outcome: exec.Lost, Cause: exec.CauseRunnerLost, Err: errors.New("it is gone")}
	d.leaves(exit.Engine)
	d.sees("\x1b[?1049l") // it is not known what the program has changed
}

// Without a terminal there is nothing to attach, and keys that do not exist are refused.
func TestConsoleRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ kill, detach, says string }{
		{"none", "hyper-x", "--detach-keys"}, {"hyper-x", "none", "--kill-keys"},
	} {
		keys, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		p := core.New("", nil, tty, tty, tty)
		p.Cfg.Config = &config.Config{PTY: config.PTY{KillKeys: row.kill, DetachKeys: row.detach}}
		_, err = New(p).Console()
		if err == nil || !strings.Contains(exit.Judge(err).Todo, row.says) {
			t.Errorf("Console() with %+v = %v, %+v", row, err, exit.Judge(err))
		}
		_ = tty.Close()
		_ = keys.Close()
	}
	p := core.New("", nil, strings.NewReader(""), io.Discard, io.Discard)
	p.Cfg.Config = &config.Config{}
	if _, err := New(p).Console(); !errors.Is(err, errNoConsole) {
		t.Error(fmt.Errorf("Console() without a terminal = %w", err))
	}
}
