package processes_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

func TestAll(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("needs Linux's /proc")
	}
	const mark = "PROCESSES_TEST=one of ours"
	cmd := exec.CommandContext(t.Context(), "cat", "-", "a b")
	cmd.Env = []string{mark}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	find := func() (found []processes.Process) {
		return slices.DeleteFunc(processes.All(), func(p processes.Process) bool { return p.PID != cmd.Process.Pid })
	}
	got := find()
	if len(got) != 1 || got[0].Parent != os.Getpid() || got[0].UID != os.Getuid() || !slices.Equal(got[0].Argv, cmd.Args) || got[0].Command() != "cat - a b" {
		t.Fatalf("All() has %+v; want one child of %d with %q", got, os.Getpid(), cmd.Args)
	}
	if p := got[0]; !p.Has(mark) || !p.Has("- a b") || p.Has("PROCESSES_TEST=another") {
		t.Errorf("%s: Has() does not find its environment and arguments alone", p.Command())
	}
	if kib := processes.Status(cmd.Process.Pid, "VmRSS"); kib <= 0 {
		t.Errorf("Status(VmRSS) = %d; want some", kib)
	}
	_ = stdin.Close()
	_ = cmd.Wait() // "a b" is not a file
	if got := find(); len(got) != 0 || processes.Status(cmd.Process.Pid, "VmRSS") != -1 {
		t.Errorf("after its end: %+v; want none", got)
	}
}

func TestInContainer(t *testing.T) {
	t.Parallel()
	p := processes.Process{Cgroup: "0::/docker/abc123/sub\n"}
	if !p.InContainer("fff", "abc123") || p.InContainer("fff") || p.InContainer() {
		t.Error("InContainer() is wrong about its ids")
	}
}
