//go:build linux

package tty

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// task makes what /proc shows of a thread, as far as a probe reads it.
func task(t *testing.T, syscall, wchan string) (dir, thread string) {
	t.Helper()
	dir = t.TempDir()
	thread = filepath.Join(dir, "task", "1")
	if err := os.MkdirAll(thread, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"syscall": syscall, "wchan": wchan} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(thread, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, thread
}

// A thread whose system call cannot be read is known by the place where it sleeps; one that
// is in no call runs.
func TestThread(t *testing.T) {
	t.Parallel()
	const other = "1048575 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n"
	for _, row := range []struct {
		name, syscall, wchan string
		want                 wire.TerminalState
	}{
		{"runs", "running\n", "0", wire.TerminalBusy},
		{"blocked outside of any call", "-1 0x7ffc 0x7f00\n", "0", wire.TerminalBusy},
		{"in another call", other, "n_tty_read", wire.TerminalBusy},
		{"hidden, in a read of a terminal", "", "n_tty_read", wire.TerminalWaits},
		{"hidden, in a read on another kernel", "", "n_tty_read.isra.0", wire.TerminalWaits},
		{"hidden, elsewhere", "", "do_epoll_wait", wire.TerminalUnknown},
		{"hidden, and its place too", "", "", wire.TerminalUnknown},
		{"hidden, and the place is not told", "", "0", wire.TerminalUnknown},
	} {
		dir, thread := task(t, row.syscall, row.wchan)
		var p probe
		p.thread(dir, thread)
		if got := p.answer(); got != row.want {
			t.Errorf("%s: the answer is %c; want %c", row.name, got, row.want)
		}
	}
	var p probe
	p.process(-1) // it has ended since it was listed
	if got := p.answer(); got != wire.TerminalUnknown {
		t.Errorf("of a process that has ended: %c; want %c", got, wire.TerminalUnknown)
	}
}

// Epoll's descriptors are read line by line; lines that are something else do not count.
func TestEpolled(t *testing.T) {
	t.Parallel()
	fd, device := master(t)
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "fdinfo"), 0o700), os.Symlink("/proc/self/fd", filepath.Join(dir, "fd"))); err != nil {
		t.Fatal(err)
	}
	own := strconv.Itoa(fd)
	for _, row := range []struct {
		name, info string
		want       bool
	}{
		{"input", "pos:\t0\nflags:\t02\ntfd:  " + own + " events:       19 data: 3 pos:0 ino:5 sdev:1\n", true},
		{"input, last of several", "tfd: 0 events: 4 data: 0\ntfd: " + own + " events: 1 data: 0\n", true},
		{"output", "tfd: " + own + " events: 4 data: 0\n", false},
		{"another descriptor", "tfd: 1000000 events: 1 data: 0\n", false},
		{"no number", "tfd: x events: 1 data: 0\n", false},
		{"a negative number", "tfd: -" + own + " events: 1 data: 0\n", false},
		{"no events", "tfd: " + own + " events:\n", false},
		{"events that are not a number", "tfd: " + own + " events: in data: 0\n", false},
		{"another kind of line", "inotify wd:" + own + " events: 1 data: 0\n", false},
		{"nothing", "", false},
	} {
		if err := os.WriteFile(filepath.Join(dir, "fdinfo", "9"), []byte(row.info), 0o600); err != nil {
			t.Fatal(err)
		}
		p := probe{tty: device}
		if got := p.epolled(dir, 9); got != row.want {
			t.Errorf("%s: epolled() = %t; want %t", row.name, got, row.want)
		}
	}
}

// Without a terminal, or without the right to look, nothing is claimed.
func TestWaitsForInputUnknown(t *testing.T) {
	refused := func(func() error) error { return errors.New("no right to look") }
	if got := WaitsForInput(refused); got == wire.TerminalWaits {
		t.Errorf("without the right to look: %c", got)
	}
	direct := func(fn func() error) error { return fn() }
	if got := WaitsForInput(direct); got == wire.TerminalWaits { // standard input is not a terminal
		t.Errorf("without a terminal: %c", got)
	}
}
