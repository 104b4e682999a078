//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
	var l ttyLook
	if !l.parse("0 0x3 0x7ffd 0x1 0x0 0x0 0x0 0x7ffc 0x7f00\n") || l.blocked[0] != 0 || l.blocked[1] != 3 || l.blocked[2] != 0x7ffd {
		t.Errorf("parsed %v", l.blocked)
	}
	for _, text := range []string{"running\n", "-1 0x7ffc 0x7f00\n", "", "0 0x1", "x 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0"} {
		if l.parse(text) {
			t.Errorf("parse(%q) = true", text)
		}
	}
}

// A look at this very process: what it reads of memory and of epoll is what is
// there. It has no terminal, so it never waits for one.
func TestLookAtOneself(t *testing.T) {
	t.Parallel()
	look := ttyLook{tty: unix.Mkdev(136, 0)}
	look.process(os.Getpid())
	if got := look.answer(); got == waiting {
		t.Errorf("answer %q", got)
	}
	if b := readMemory("/proc/self", 0, 16); len(b) != 0 {
		t.Errorf("read %d bytes at address 0", len(b))
	}
}

func TestReadPID(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text, rest string
		pid        int
	}{
		{"123\nrest", "rest", 123},
		{"1\n", "", 0},
		{"x\n", "\n", 0},
		{"", "", 0},
		{strings.Repeat("9", 100), strings.Repeat("9", 92), 0},
	} {
		r := bytes.NewReader([]byte(row.text))
		pid, err := readPID(r)
		if pid != row.pid || (err == nil) != (row.pid > 0) {
			t.Errorf("readPID(%q) = %d, %v; want %d", row.text, pid, err, row.pid)
		}
		if got := row.text[len(row.text)-r.Len():]; got != row.rest {
			t.Errorf("readPID(%q) left %q; want %q", row.text, got, row.rest)
		}
	}
}

func TestKnownTerms(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"x/xterm", "76/vt100"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer func(old []string) { terminfoDirs = old }(terminfoDirs)
	terminfoDirs = []string{dir}
	var out bytes.Buffer
	names := "unknown\nxterm\n../x/xterm\nx/xterm\n\n.\n..\nvt100\n"
	if err := knownTerms(strings.NewReader(names), &out); err != nil || out.String() != "xterm\nvt100\n" {
		t.Errorf("knownTerms() = %q, %v; want xterm and vt100", out.String(), err)
	}
}
