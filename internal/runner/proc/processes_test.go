//go:build linux

package proc

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const endMainThread = "SANDBOXBASH_TEST_END_MAIN_THREAD"

// actForUser makes the test binary a process that acts for a user, as a transfer does.
const actForUser = "SANDBOXBASH_TEST_ACT_FOR_USER"

// The test binary is its own helper: a process whose main thread has ended, or one that acts
// for a user.
func init() {
	if os.Getenv(actForUser) != "" {
		if err := syscall.Setresuid(0, commandUser, 0); err != nil {
			os.Exit(1)
		}
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	if os.Getenv(endMainThread) == "" {
		return
	}
	time.AfterFunc(time.Minute, func() { os.Exit(0) })
	runtime.LockOSThread() // init runs on the main thread
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// A process lives as long as one of its threads does.
func TestProcessesWithoutMainThread(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), endMainThread+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	main := func() byte {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		p, _ := parseStat(cmd.Process.Pid, stat)
		return p.State
	}
	for deadline := time.Now().Add(10 * time.Second); main() != 'Z'; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the main thread's state is %c; want Z", main())
		}
	}
	if !slices.Contains(Descendants(os.Getpid()), cmd.Process.Pid) {
		t.Error("Descendants() has not the process whose main thread has ended; want it")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); slices.Contains(Descendants(os.Getpid()), cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Descendants() has a process of which all threads have ended")
		}
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	all := []Process{{PID: 9, Parent: 30}, {PID: 20, Parent: 1}, {PID: 30, Parent: 20}, {PID: 31, Parent: 30, State: 'Z'}, {PID: 40, Parent: 1}, {PID: 50, Parent: 49}}
	pids := func(list []Process) (pids []int) {
		for _, p := range list {
			pids = append(pids, p.PID)
		}
		return pids
	}
	if got := pids(Below(all, 20)); !slices.Equal(got, []int{9, 30, 31}) {
		t.Errorf("Below(20) = %v; want 9, 30 and 31", got)
	}
	if got, want := pids(ByDepth(all)), []int{20, 40, 50, 30, 9, 31}; !slices.Equal(got, want) {
		t.Errorf("ByDepth() = %v; want %v", got, want)
	}
	// A list that was read while pids were given out again may have circles.
	if got := ByDepth([]Process{{PID: 2, Parent: 3}, {PID: 3, Parent: 2}}); len(got) != 2 {
		t.Errorf("ByDepth() of a circle = %v", got)
	}
}
