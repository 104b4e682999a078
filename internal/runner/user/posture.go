//go:build linux

package user

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Posture reports what confines a command: facts from the kernel, and the results of
// attempts. It is started like a command, as the session's user, before the first command.
// The host compares the report with what it has requested from the engine.
func Posture(w io.Writer, args []string) error {
	var a wire.PostureArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return err
	}
	var report wire.Posture
	if err := addStatus(&report); err != nil {
		return err
	}
	if err := addMounts(&report); err != nil {
		return err
	}
	addLimits(&report)
	addTries(&report)
	addNames(&report)
	addReach(&report)
	for _, path := range a.Masked {
		report.Add(wire.FactMasked.Of(path), readable(path))
	}
	interfaces, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return err
	}
	var names []string // sorted by ReadDir
	for _, i := range interfaces {
		names = append(names, i.Name())
	}
	report.Add(wire.FactInterfaces, strings.Join(names, ","))
	_, err = w.Write(report.Append(nil))
	return err
}

func addStatus(report *wire.Posture) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	keys := wire.StatusKeys()
	for line := range proc.Lines(status) {
		key, value, _ := strings.Cut(string(line), ":")
		if key := wire.FactKey(key); slices.Contains(keys, key) {
			report.Add(key, strings.Join(strings.Fields(value), " "))
		}
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	report.Add(wire.FactOOMScore, strings.TrimSpace(string(score)))
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	path := wire.CgroupHidden
	for line := range proc.Lines(groups) {
		if !strings.HasSuffix(string(line), ":/") { // not the root of a cgroup namespace
			path = wire.CgroupShown
		}
	}
	report.Add(wire.FactCgroup, path)
	return nil
}

func addMounts(report *wire.Posture) error {
	mounts, err := proc.Mounts()
	for _, m := range mounts {
		report.AddMount(m.Mount)
	}
	return err
}

// limitFiles are where the two versions of cgroups keep their limits.
var limitFiles = map[string][]string{
	"memory": {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
	"pids":   {"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"},
	"cpu":    {"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"},
}

func addLimits(report *wire.Posture) {
	for _, name := range []string{"memory", "pids", "cpu"} {
		value := wire.FactUnknown
		for _, path := range limitFiles[name] {
			if b, err := os.ReadFile(path); err == nil {
				value = strings.TrimSpace(string(b))
				break
			}
		}
		report.Add(wire.FactLimit.Of(name), value)
	}
	for name, resource := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "core": unix.RLIMIT_CORE} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil {
			report.Add(wire.FactRlimit.Of(name), fmt.Sprintf("%d:%d", limit.Cur, limit.Max))
		}
	}
}

// readable reports what can be read at a path. It does not wait if a file of the kernel has
// nothing to read yet.
func readable(path string) string {
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
		return wire.MaskedSomething
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return wire.MaskedClosed
	default:
		return wire.MaskedNothing
	}
}

// addTries attempts what the kernel must refuse, and reports the results. An attempt that is
// allowed does no harm: it changes nothing that outlives this process.
func addTries(report *wire.Posture) {
	try := func(name string, err error) {
		answer := wire.TryAllowed
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			answer = unix.ErrnoName(errno)
		} else if err != nil {
			answer = "error"
		}
		report.Add(wire.FactTry.Of(name), answer)
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
	// CLONE_NEWUTS changes nothing that can be seen.
	try("unshare", raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_NEWUTS))
	// The kernel checks the permission to mount first. ENODEV means that it was granted.
	try("mount", unix.Mount("none", "/", "none-such", 0, ""))
	try("io_uring", raw(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&ring))))
	try("keyctl", raw(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, 0, 0))
	try("bpf", raw(unix.SYS_BPF, 0, 0, 0))
	try("userfaultfd", raw(unix.SYS_USERFAULTFD, 0))
	try("af_alg", socket(unix.AF_ALG, unix.SOCK_SEQPACKET))
	try("af_vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM))
	try("af_packet", socket(unix.AF_PACKET, unix.SOCK_RAW))
	try("kill_init", unix.Kill(1, 0))
	// No process has this pid. ESRCH means that the filter allows ptrace.
	try("ptrace", raw(unix.SYS_PTRACE, unix.PTRACE_CONT, math.MaxInt32))
}
