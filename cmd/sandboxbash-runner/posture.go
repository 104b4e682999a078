//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// posture prints what confines a command, one "key=value" a line, read by the
// kernel's word and by trying. It runs as the session's user, started the way
// commands are, before the first of them; the host compares it with what it
// has asked the engine for. Paths are those that are to be masked.
func posture(w io.Writer, paths []string) error {
	out := bufio.NewWriter(w)
	if err := printStatus(out); err != nil {
		return err
	}
	if err := printMounts(out); err != nil {
		return err
	}
	printLimits(out)
	printTries(out)
	for _, path := range paths {
		fmt.Fprintf(out, "masked.%s=%s\n", path, look(path))
	}
	interfaces, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return err
	}
	var names []string // sorted by ReadDir
	for _, i := range interfaces {
		names = append(names, i.Name())
	}
	fmt.Fprintf(out, "interfaces=%s\n", strings.Join(names, ","))
	return out.Flush()
}

// statusKeys are the lines of proc_pid_status(5) that the host compares.
var statusKeys = []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"}

func printStatus(w io.Writer) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range lines(status) {
		key, value, _ := strings.Cut(string(line), ":")
		for _, want := range statusKeys {
			if key == want {
				fmt.Fprintf(w, "%s=%s\n", key, strings.Join(strings.Fields(value), " "))
			}
		}
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "oom_score_adj=%s\n", strings.TrimSpace(string(score)))
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	path := "root" // of a cgroup namespace
	for line := range lines(groups) {
		if !strings.HasSuffix(string(line), ":/") {
			path = "shown"
		}
	}
	fmt.Fprintf(w, "cgroup=%s\n", path)
	return nil
}

// printMounts prints target, type and options of every mount, and its place: the
// device of its file system, and where in that it begins.
func printMounts(w io.Writer) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range lines(info) {
		before, after, ok := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 1 {
			return fmt.Errorf("unknown line in mountinfo: %q", line)
		}
		fmt.Fprintf(w, "mount=%s %s %s\nplace=%s %s %s\n", f[4], g[0], f[5], f[4], f[2], f[3])
	}
	return nil
}

// limitFiles are where the two versions of cgroups keep their limits.
var limitFiles = map[string][]string{
	"memory": {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
	"pids":   {"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"},
	"cpu":    {"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"},
}

func printLimits(w io.Writer) {
	for _, name := range []string{"memory", "pids", "cpu"} {
		value := "unknown"
		for _, path := range limitFiles[name] {
			if b, err := os.ReadFile(path); err == nil {
				value = strings.TrimSpace(string(b))
				break
			}
		}
		fmt.Fprintf(w, "limit.%s=%s\n", name, value)
	}
	for name, resource := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "core": unix.RLIMIT_CORE} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil {
			fmt.Fprintf(w, "rlimit.%s=%d:%d\n", name, limit.Cur, limit.Max)
		}
	}
}

// look tells what there is to read at a path: "nothing", also where there is no
// such path, "something", or "closed" to this user. It does not wait for what a
// file of the kernel's may say later.
func look(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		if _, err = f.Readdirnames(1); errors.Is(err, unix.ENOTDIR) {
			_, err = f.Read(make([]byte, 1))
		}
	}
	switch {
	case err == nil:
		return "something"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "closed"
	default:
		return "nothing"
	}
}

// printTries prints what the kernel answers to what it must refuse. Each try is
// harmless where it is allowed: it changes nothing that outlives this process.
func printTries(w io.Writer) {
	try := func(name string, err error) {
		answer := "allowed"
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			answer = unix.ErrnoName(errno)
		} else if err != nil {
			answer = "error"
		}
		fmt.Fprintf(w, "try.%s=%s\n", name, answer)
	}
	raw := func(number uintptr, args ...uintptr) error {
		var a [4]uintptr
		copy(a[:], args)
		_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
	socket := func(domain, kind int) error {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	var ring [120]byte // struct io_uring_params
	// CLONE_NEWUTS changes nothing that anybody sees.
	try("unshare", raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_NEWUTS))
	// Whether one may mount is decided before what: ENODEV is an answer to those who may.
	try("mount", unix.Mount("none", "/", "none-such", 0, ""))
	try("io_uring", raw(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&ring))))
	try("keyctl", raw(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, 0, 0))
	try("bpf", raw(unix.SYS_BPF, 0, 0, 0))
	try("userfaultfd", raw(unix.SYS_USERFAULTFD, 0))
	try("af_alg", socket(unix.AF_ALG, unix.SOCK_SEQPACKET))
	try("af_vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM))
	try("af_packet", socket(unix.AF_PACKET, unix.SOCK_RAW))
	try("kill_init", unix.Kill(1, 0))
	// No process has that number: ESRCH is an answer to those who may trace.
	try("ptrace", raw(unix.SYS_PTRACE, unix.PTRACE_CONT, math.MaxInt32))
}
