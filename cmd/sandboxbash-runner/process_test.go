//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// The threads are there afterwards, and stay.
func TestStartThreads(t *testing.T) {
	startThreads(spareThreads)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) < spareThreads {
		t.Errorf("%d threads after startThreads(); want at least %d", len(tasks), spareThreads)
	}
}

// Children have the soft limit also where this process has begun with more.
func TestLimitOpenFiles(t *testing.T) {
	var before, limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
	limit = syscall.Rlimit{Cur: before.Max, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := limitOpenFiles(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -S -n; ulimit -H -n").Output()
	if want := fmt.Sprintf("%d\n%d\n", min(wire.OpenFiles, before.Max), before.Max); err != nil || string(out) != want {
		t.Errorf("limits of a child: %q, %v; want %q", out, err, want)
	}
}

func BenchmarkStartThreads(b *testing.B) {
	for b.Loop() {
		startThreads(spareThreads)
		runtime.Gosched()
	}
}
