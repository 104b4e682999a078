package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Row L10: setting the clock changes no owner. A step of the clock changes only the boot
// time that the kernel computes from the present time.
func TestBirthAndTheClock(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	process := func(state, start string) string {
		return "7 (a) (b c) " + state + strings.Repeat(" 1", 18) + " " + start + strings.Repeat(" 1", 30) + "\n"
	}
	const boot = "01234567-89ab-cdef-0123-456789abcdef\n"
	write("sys/kernel/random/boot_id", boot)
	write("stat", "btime 1700000000\n")
	write("7/stat", process("S", "4711"))
	before, ok := birthIn(proc, 7)
	if !ok || before != "0123456789abcdef.4711" {
		t.Fatalf("birthIn() = %q, %t", before, ok)
	}
	write("stat", "btime 1700003600\n")
	if after, ok := birthIn(proc, 7); !ok || after != before {
		t.Errorf("an hour's step of the clock: birthIn() = %q, %t; want %q", after, ok, before)
	}
	if after, ok := birthIn(proc, 8); ok {
		t.Errorf("of a process that cannot be looked at: birthIn() = %q; want nothing", after)
	}
	write("7/stat", process("Z", "4711"))
	if after, ok := birthIn(proc, 7); !ok || after != "" {
		t.Errorf("of one that has ended: birthIn() = %q, %t; want that it is not there", after, ok)
	}
	write("7/stat", process("S", "4712"))
	if after, ok := birthIn(proc, 7); !ok || after == before {
		t.Errorf("of the next with its pid: birthIn() = %q, %t; want another than %q", after, ok, before)
	}
}

func TestBirthOfTheEnded(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, ok := startTime(cmd.Process.Pid)
	if !ok {
		t.Errorf("startTime() of a child = %q, false", first)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if after, ok := startTime(cmd.Process.Pid); !ok || after != "" {
		t.Errorf("startTime() of a child that has ended = %q, %t; want none", after, ok)
	}
}
