//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// status returns a field of /proc/PID/status.
func status(pid, field string) string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return outcome(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return list(strings.Fields(value))
		}
	}
	return "absent"
}

// identity is what the kernel says this process may do.
func identity() []attempt {
	var out []attempt
	for _, field := range []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"} {
		out = append(out, attempt{"E1", field, func() string { return status("self", field) }})
	}
	return append(out,
		attempt{"E1", "threads", threads},
		attempt{"E1", "child-in-new-session", func() string { return child(&syscall.SysProcAttr{Setsid: true}, "/proc/self/exe") }},
		attempt{"E1", "raise-capabilities", raiseCapabilities},
		attempt{"E1", "setresuid-0", func() string { return elevated(unix.SYS_SETRESUID) }},
		attempt{"E1", "setresgid-0", func() string { return elevated(unix.SYS_SETRESGID) }},
		attempt{"E15", "setuid-copy", setuidCopy},
		attempt{"E15", "setuid-files", setuidFiles},
	)
}

// threads reports whether threads made since have the confinement of the first.
func threads() string {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	for range 4 {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	defer done.Wait()
	defer close(release)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return outcome(err)
	}
	for _, task := range tasks {
		for _, field := range []string{"CapEff", "NoNewPrivs", "Seccomp"} {
			if got := status("self/task/"+task.Name(), field); got != status("self", field) {
				return field + "=" + got
			}
		}
	}
	return fmt.Sprintf("same,%t", len(tasks) > 4)
}

// child runs a copy of this program and returns what it says of itself.
func child(attr *syscall.SysProcAttr, path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "status")
	cmd.SysProcAttr, cmd.Env = attr, []string{}
	text, err := cmd.Output()
	if err != nil {
		return outcome(err)
	}
	return string(text)
}

// starting reports whether a child can be started that way.
func starting(attr *syscall.SysProcAttr) func() string {
	return func() string {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "true")
		cmd.SysProcAttr = attr
		return outcome(cmd.Run())
	}
}

// raiseCapabilities asks for every capability there is.
func raiseCapabilities() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	const every = 1<<32 - 1
	data := [2]unix.CapUserData{{Effective: every, Permitted: every, Inheritable: every}, {Effective: 1 << 8, Permitted: 1 << 8}}
	return onThread(func() string { return outcome(unix.Capset(&header, &data[0])) })
}

// elevated asks for id 0 for one thread, which ends afterwards.
func elevated(number uintptr) string {
	return onThread(func() string { return call(number, 0, 0, 0)() })
}

// onThread calls try on a thread of its own that ends with it, whatever it has changed.
func onThread(try func() string) string {
	result := make(chan string)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		result <- try()
	}()
	return <-result
}

// setuidCopy makes this program setuid for its owner, runs it as uid 1000, and
// returns the effective uid that it had.
func setuidCopy() string {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return outcome(err)
	}
	for _, base := range []string{"/var/tmp", "/home/agent", "/workspace", "/tmp"} { // what is not nosuid first
		if dir, err := os.MkdirTemp(base, "probe"); err == nil {
			return setuidIn(dir, program)
		}
	}
	return "no_directory"
}

// setuidIn is setuidCopy in a directory of its own, which it removes.
func setuidIn(dir string, program []byte) string {
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "probe")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		return outcome(err)
	}
	// Not os.Chmod: its mode bits for setuid are others.
	if err := unix.Chmod(path, 0o4755); err != nil {
		return outcome(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return outcome(err)
	}
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000}
	}
	euid, _, _ := strings.Cut(child(attr, path), ",")
	return euid
}

// setuidFiles lists the programs of the image that would change their uid or gid.
func setuidFiles() string {
	var found []string
	walk(func(path string, mode os.FileMode) {
		if mode.IsRegular() && mode&(os.ModeSetuid|os.ModeSetgid) != 0 {
			found = append(found, path)
		}
	})
	return list(found)
}
