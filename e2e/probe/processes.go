//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes are what can be done to PID 1, to the runners, and to whatever else
// of uid 0 runs in the container.
func processes() []attempt {
	out := []attempt{
		{"K", "kill-pid1", call(unix.SYS_KILL, 1, 0)},
		{"K", "pidfd-kill-pid1", pidfdKill},
		{"K", "kill-uid0", func() string {
			return everyRoot(func(pid string) string {
				number, err := strconv.Atoi(pid)
				if err != nil {
					return outcome(err)
				}
				return outcome(unix.Kill(number, 0))
			})
		}},
		{"E3", "open-ns-pid1", opening(unix.O_RDONLY, "/proc/1/ns/mnt")},
		{"E23", "shm-files", func() string { return names("/dev/shm") }},
		{"E23", "sysv-ipc", systemV},
		{"E23", "kernel-threads", kernelThreads},
	}
	for _, name := range []string{"environ", "mem", "maps", "auxv", "root/etc", "cwd", "fd/0", "exe"} {
		out = append(out, attempt{"O8", "pid1-" + strings.ReplaceAll(name, "/", "-"), opening(unix.O_RDONLY, "/proc/1/"+name)})
	}
	for _, name := range []string{"map_files", "stack"} { // these say no when they are read
		out = append(out, attempt{"O8", "pid1-" + name, func() string { return reading("/proc/1/" + name) }})
	}
	for _, name := range []string{"environ", "fd/0", "mem"} {
		out = append(out, attempt{"O8", "uid0-" + strings.ReplaceAll(name, "/", "-"), func() string {
			return everyRoot(func(pid string) string { return opening(unix.O_RDONLY, "/proc/"+pid+"/"+name)() })
		}})
	}
	for name, file := range map[string]string{"environ": "environ", "maps": "maps", "fd-0": "fd/0", "mem": "mem"} {
		out = append(out, attempt{"O8", "runner-" + name, func() string {
			return everyRunner(func(pid int) error { return tryOpen(unix.O_RDONLY, fmt.Sprintf("/proc/%d/%s", pid, file)) })
		}})
	}
	out = append(out,
		attempt{"O8", "runner-mem-write", func() string {
			return everyRunner(func(pid int) error { return tryOpen(unix.O_RDWR, fmt.Sprintf("/proc/%d/mem", pid)) })
		}},
		attempt{"O8", "runner-seize", func() string {
			return everyRunner(func(pid int) error {
				_, errno := raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0)
				return errno // 0 is one that allows it
			})
		}},
		attempt{"O8", "runner-write", func() string {
			var b [1]byte
			own := []unix.Iovec{{Base: &b[0], Len: 1}}
			return everyRunner(func(pid int) error {
				_, err := unix.ProcessVMWritev(pid, own, []unix.RemoteIovec{{Base: 4096, Len: 1}}, 0)
				return err
			})
		}})
	return append(out,
		attempt{"O8", "uid0-mem-write", func() string {
			return everyRoot(func(pid string) string { return opening(unix.O_RDWR, "/proc/"+pid+"/mem")() })
		}},
		attempt{"O8", "uid0-oom_score_adj", func() string {
			return everyRoot(func(pid string) string { return opening(unix.O_WRONLY, "/proc/"+pid+"/oom_score_adj")() })
		}},
		attempt{"E19", "cwd", func() string {
			dir, err := os.Readlink("/proc/self/cwd")
			if err != nil {
				return outcome(err)
			}
			if strings.HasPrefix(dir, "(unreachable)") {
				return "unreachable"
			}
			return "inside"
		}},
		attempt{"E19", "files-of-others", filesOfOthers})
}

// everyRoot tries on each other process whose real uid is 0, and lists the distinct
// outcomes.
func everyRoot(try func(pid string) string) string {
	var found []string
	for _, pid := range pids() {
		if uid, _, _ := strings.Cut(status(pid, "Uid"), ","); uid == "0" {
			found = append(found, try(pid))
		}
	}
	return list(found)
}

// everyRunner tries on each of our own programs in the container, and lists the
// distinct outcomes.
func everyRunner(try func(pid int) error) string {
	var found []string
	for _, pid := range pids() {
		if status(pid, "Name") != "runner" {
			continue
		}
		if number, err := strconv.Atoi(pid); err == nil {
			found = append(found, outcome(try(number)))
		}
	}
	return list(found)
}

func tryOpen(flags int, path string) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// pids lists every other process that can be seen.
func pids() []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	own := strconv.Itoa(os.Getpid())
	var found []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err == nil && entry.Name() != own {
			found = append(found, entry.Name())
		}
	}
	return found
}

func pidfdKill() string {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(fd)
	return outcome(unix.PidfdSendSignal(fd, 0, nil, 0))
}

// names lists a directory.
func names(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return outcome(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return list(found)
}

// systemV lists the System V objects of this IPC namespace by their kind.
func systemV() string {
	var found []string
	for _, kind := range []string{"shm", "sem", "msg"} {
		table, err := os.ReadFile("/proc/sysvipc/" + kind)
		if err != nil {
			return outcome(err)
		}
		if strings.Count(string(table), "\n") > 1 { // the first line is a heading
			found = append(found, kind)
		}
	}
	return list(found)
}

// kernelThreads reports whether those of the host are in sight.
func kernelThreads() string {
	for _, pid := range pids() {
		if status(pid, "Name") == "kthreadd" {
			return "visible"
		}
	}
	return none
}

// inheritedFiles lists what this process was started with beyond its standard streams.
func inheritedFiles() string {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return outcome(err)
	}
	defer dir.Close()
	entries, err := dir.Readdirnames(-1)
	if err != nil {
		return outcome(err)
	}
	var found []string
	for _, name := range entries {
		number, err := strconv.Atoi(name)
		target, _ := os.Readlink(filepath.Join("/proc/self/fd", name))
		switch {
		case err != nil || number <= 2 || number == int(dir.Fd()):
		case strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/sys/fs/cgroup/cpu"):
			// The Go runtime's own: its poller, and the quota that it derives GOMAXPROCS from.
		default:
			found = append(found, name+":"+target)
		}
	}
	return list(found)
}

// filesOfOthers lists directories that other processes hold open, as far as that
// can be seen: a directory of the host would be the way out of CVE-2024-21626.
func filesOfOthers() string {
	var found []string
	for _, pid := range pids() {
		links, _ := filepath.Glob("/proc/" + pid + "/fd/*")
		for _, link := range links {
			if info, err := os.Stat(link); err == nil && info.IsDir() {
				target, _ := os.Readlink(link)
				found = append(found, pid+":"+target)
			}
		}
	}
	return list(found)
}
