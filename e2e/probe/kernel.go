//go:build linux

package main

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const nowhere = ^uintptr(0) // no descriptor, no process

// text returns a string for the kernel to read; it is kept for as long as the program runs.
func text(s string) uintptr {
	b := append([]byte(s), 0)
	keep = append(keep, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

// room returns n zero bytes for the kernel to read or write.
func room(n int) uintptr { return text(string(make([]byte, n))) }

var keep [][]byte // what addresses given to the kernel point to

// kernel are calls that need privilege or are attack surface.
func kernel() []attempt {
	cwd := uintptr(unix.AT_FDCWD & (1<<64 - 1))
	own := uintptr(unix.Getpid())
	badTime := room(16)
	*(*int64)(unsafe.Pointer(&keep[len(keep)-1][8])) = 2e9 // nanoseconds: the kernel says EINVAL
	processKeyring, sessionKeyring := -2, -3               // KEY_SPEC_PROCESS_KEYRING, KEY_SPEC_SESSION_KEYRING
	out := []attempt{
		{"E5", "add_key", call(unix.SYS_ADD_KEY, text("user"), text("sandboxbash-probe"), text("x"), 1, uintptr(processKeyring))},
		{"E5", "request_key", call(unix.SYS_REQUEST_KEY, text("user"), text("sandboxbash-probe-missing"), 0, 0)},
		{"E5", "keyctl", call(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, uintptr(sessionKeyring), 0)},
		{"E6", "bpf", call(unix.SYS_BPF, unix.BPF_PROG_LOAD, room(128), 128)},
		{"E6", "perf_event_open", call(unix.SYS_PERF_EVENT_OPEN, 0, 0, nowhere, nowhere, 0)},
		{"E6", "lookup_dcookie", call(unix.SYS_LOOKUP_DCOOKIE, 0, 0, 0)},
		{"E7", "io_uring_setup", open(unix.SYS_IO_URING_SETUP, 0, 0)},
		{"E7", "io_uring_enter", call(unix.SYS_IO_URING_ENTER, nowhere, 0, 0, 0, 0, 0)},
		{"E7", "io_uring_register", call(unix.SYS_IO_URING_REGISTER, nowhere, 0, 0, 0)},
		{"E8", "userfaultfd", open(unix.SYS_USERFAULTFD, 0)},
		{"E14", "name_to_handle_at", call(unix.SYS_NAME_TO_HANDLE_AT, cwd, text("/"), room(8), room(4), 0)},
		{"E14", "open_by_handle_at", open(unix.SYS_OPEN_BY_HANDLE_AT, nowhere, 0, 0)},
		{"E17", "init_module", call(unix.SYS_INIT_MODULE, 0, 0, 0)},
		{"E17", "finit_module", call(unix.SYS_FINIT_MODULE, nowhere, text(""), 0)},
		{"E17", "delete_module", call(unix.SYS_DELETE_MODULE, text("sandboxbash_missing"), 0)},
		// With flags that do not exist: without segments it would unload what is loaded.
		{"E17", "kexec_load", call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff)},
		{"E17", "kexec_file_load", call(unix.SYS_KEXEC_FILE_LOAD, nowhere, nowhere, 0, 0, 0xffff0000)},
		{"E17", "reboot", call(unix.SYS_REBOOT, 0, 0, 0, 0)}, // without its magic numbers
		{"E17", "swapon", call(unix.SYS_SWAPON, text("/nonexistent/probe"), 0)},
		{"E17", "swapoff", call(unix.SYS_SWAPOFF, text("/nonexistent/probe"))},
		{"E17", "acct", call(unix.SYS_ACCT, text("/nonexistent/probe"))},
		{"E17", "quotactl", call(unix.SYS_QUOTACTL, 0, text("/nonexistent/probe"), 0, 0)},
		{"E17", "sethostname", sameName(unix.SYS_SETHOSTNAME, func(u *unix.Utsname) []byte { return u.Nodename[:] })},
		{"E17", "setdomainname", sameName(unix.SYS_SETDOMAINNAME, func(u *unix.Utsname) []byte { return u.Domainname[:] })},
		{"E17", "clock_settime", call(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, badTime)},
		{"E17", "settimeofday", call(unix.SYS_SETTIMEOFDAY, badTime, 0)},
		{"E17", "adjtimex", call(unix.SYS_ADJTIMEX, room(256))}, // reads
		{"E17", "syslog", call(unix.SYS_SYSLOG, 10, 0, 0)},      // SYSLOG_ACTION_SIZE_BUFFER
		{"E17", "fanotify_init", open(unix.SYS_FANOTIFY_INIT, 0, 0)},
		{"E17", "memfd_secret", open(unix.SYS_MEMFD_SECRET, 0xffff)},
		{"E17", "kcmp", call(unix.SYS_KCMP, own, own, 0, 0, 0)},
		{"E17", "pidfd_getfd", open(unix.SYS_PIDFD_GETFD, nowhere, 0, 0)},
		{"E17", "process_madvise", call(unix.SYS_PROCESS_MADVISE, nowhere, 0, 0, 0, 0)},
		{"E17", "move_pages", call(unix.SYS_MOVE_PAGES, 0, 0, 0, 0, 0, 0)},
		{"E17", "mbind", call(unix.SYS_MBIND, 1, 1, 0, 0, 0, 0)},
		{"E17", "personality", personality},
		{"E17", "unknown-call", call(9999)},
		{"E10", "ptrace", call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, nowhere, 0, 0)},
		{"E10", "process_vm_readv", readOwnMemory},
	}
	return append(out, archCalls()...)
}

// sameName sets a name of this machine to what it is already.
func sameName(number uintptr, field func(*unix.Utsname) []byte) func() string {
	return func() string {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return outcome(err)
		}
		name := unix.ByteSliceToString(field(&u))
		return call(number, text(name), uintptr(len(name)))()
	}
}

// personality asks for READ_IMPLIES_EXEC on a thread that ends.
func personality() string {
	return onThread(call(unix.SYS_PERSONALITY, 0x400000))
}

// readOwnMemory reads a variable of this process as if it were another's.
func readOwnMemory() string {
	from, to := []byte("x"), []byte{0}
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(1)
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 1}}
	_, err := unix.ProcessVMReadv(unix.Getpid(), local, remote, 0)
	runtime.KeepAlive(from)
	return outcome(err)
}
