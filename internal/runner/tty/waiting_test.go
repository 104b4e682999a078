//go:build linux

package tty

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestTerminalOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		stat  string
		tty   uint64
		leads bool
		ok    bool
	}{
		{"12 (cat) S 1 12 10 34816 12 4194304", unix.Mkdev(136, 0), true, true},
		{"12 (a) b (c) S 1 12 10 34823 10 4194304", unix.Mkdev(136, 7), false, true},
		{"12 (cat) S 1 12 10 1083393 12 0", unix.Mkdev(136, 257), true, true}, // minor numbers above 255
		{"12 (cat) S 1 12 10 0 -1 0", 0, false, true},
		{"12 (cat) S 1", 0, false, false},
		{"", 0, false, false},
	} {
		tty, leads, ok := terminalOf([]byte(row.stat))
		if tty != row.tty || leads != row.leads || ok != row.ok {
			t.Errorf("terminalOf(%q) = %#x, %v, %v; want %#x, %v, %v", row.stat, tty, leads, ok, row.tty, row.leads, row.ok)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	t.Parallel()
	var l probe
	if !l.parse("0 0x3 0x7ffd 0x1 0x0 0x0 0x0 0x7ffc 0x7f00\n") || l.blocked[0] != 0 || l.blocked[1] != 3 || l.blocked[2] != 0x7ffd {
		t.Errorf("parsed %v", l.blocked)
	}
	for _, text := range []string{"running\n", "-1 0x7ffc 0x7f00\n", "", "0 0x1", "x 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0"} {
		if l.parse(text) {
			t.Errorf("parse(%q) = true", text)
		}
	}
}

// A probe of this very process: what it reads of memory and of epoll is what is
// there. It has no terminal, so it never waits for one.
func TestLookAtOneself(t *testing.T) {
	t.Parallel()
	p := probe{tty: unix.Mkdev(136, 0)}
	p.process(os.Getpid())
	if got := p.answer(); got == wire.TerminalWaits {
		t.Errorf("answer %q", got)
	}
	if b := readMemory("/proc/self", 0, 16); len(b) != 0 {
		t.Errorf("read %d bytes at address 0", len(b))
	}
}
