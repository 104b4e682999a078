package sandbox

import (
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Kernel values that the rules compare with. They are those of amd64 and arm64,
// which agree, and stand here because this package is built on hosts that are
// not Linux.
const (
	errNOSYS = 38 // ENOSYS

	afUNIX    = 1  // AF_UNIX
	afINET    = 2  // AF_INET
	afINET6   = 10 // AF_INET6
	afNETLINK = 16 // AF_NETLINK, for getifaddrs(3)

	netlinkROUTE = 0 // NETLINK_ROUTE

	fileType = 0xf000 // S_IFMT
	fifo     = 0x1000 // S_IFIFO
	regular  = 0x8000 // S_IFREG; mknod(2) takes 0 for it as well

	tioCSTI  = 0x5412 // TIOCSTI types into another's terminal
	tioLINUX = 0x541c // TIOCLINUX pastes into a console
	tioCONS  = 0x541d // TIOCCONS takes the console's output

	// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET. There is
	// no bit for NEWTIME: in clone(2) it is part of the exit signal.
	newNamespaces = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
)

// allowedCalls are the system calls that any process in a session may make with
// any arguments. The list began as the unconditional part of the default profile
// of github.com/moby/profiles/seccomp (0.2.3, Apache-2.0), without what only a
// 32-bit program needs and without
//
//   - adjtimex, clock_adjtime: the clock belongs to the host
//   - fanotify_mark, name_to_handle_at: useless without their privileged halves
//   - memfd_secret, uretprobe, modify_ldt: attack surface that no build or test needs
//   - ptrace, process_vm_readv, process_vm_writev: see debugCalls
//   - ioctl, mknod, mknodat, socketpair: see seccomp
//
// What only exists on one of amd64 and arm64 is listed all the same: a runtime
// skips the names its machine, or its libseccomp, does not know, and they stay
// denied.
const allowedCalls = `
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown
clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2
dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait
epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr
flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait
futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64
getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday
getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel
io_destroy io_getevents io_pgetevents io_setup io_submit ioprio_get ioprio_set kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen
listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise
map_shadow_stack membarrier memfd_create mincore mkdir mkdirat mlock mlock2 mlockall mmap mprotect
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget
msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat openat2 pause
pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64
preadv preadv2 prlimit64 process_mrelease pselect6 pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat rename
renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list
set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority
setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat
shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statmount statx
symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times
tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write
writev`

// debugCalls are what debuggers and strace need, for profile dev alone.
const debugCalls = "ptrace process_vm_readv process_vm_writev"

// seccomp returns the system call filter of a profile: what it does not allow
// fails with EPERM, or with ENOSYS if it is newer than the runtime's libseccomp.
// It holds for every process in the container, the runners included, and for
// 64-bit calls alone: one of i386 or x32 ends the process with SIGSYS.
//
// Every rule but clone3's allows, because of two properties of libseccomp, both
// seen on a real engine: a rule without arguments swallows each rule with
// arguments for the same call, whatever their actions, and a rule whose action
// is the default is dropped. So "allowed but for some arguments" is written as
// the list of argument patterns that are allowed.
func seccomp(profile Profile) *specs.LinuxSeccomp {
	calls := strings.Fields(allowedCalls)
	if profile == Dev {
		calls = append(calls, strings.Fields(debugCalls)...)
	}
	rules := []specs.LinuxSyscall{{Names: calls, Action: specs.ActAllow}}

	// The address families: io_uring, the way around this, is not allowed at all.
	for _, family := range []uint64{afUNIX, afINET, afINET6} {
		rules = append(rules, allow("socket socketpair", equal(0, family)))
	}
	// The other protocols tell of the machine (NETLINK_KOBJECT_UEVENT sends its devices'
	// events into every network namespace of its first user namespace) or are attack surface.
	rules = append(rules, allow("socket", equal(0, afNETLINK), equal(2, netlinkROUTE)))
	// PER_LINUX and PER_LINUX32, each with and without UNAME26, and the query.
	for _, persona := range []uint64{0, 0x8, 0x20000, 0x20008, 0xffffffff} {
		rules = append(rules, allow("personality", equal(0, persona)))
	}
	for _, kind := range []uint64{0, fifo, regular} {
		rules = append(rules,
			allow("mknod", masked(1, fileType, kind)),
			allow("mknodat", masked(2, fileType, kind)))
	}
	for _, m := range allBut32(tioCSTI, tioLINUX, tioCONS) {
		rules = append(rules, allow("ioctl", masked(1, m.mask, m.value)))
	}
	rules = append(rules, allow("clone", masked(0, newNamespaces, 0)))

	// The flags of clone3 lie behind a pointer, where no filter sees them. ENOSYS
	// makes every libc fall back to clone.
	nosys := uint(errNOSYS)
	rules = append(rules, specs.LinuxSyscall{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &nosys})
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno,
		// Both, for an engine of either; the other one's rules are never reached. Without
		// a list runc leaves out its rule that a call newer than every one named here is
		// ENOSYS, and libcs only fall back from that, not from EPERM.
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64},
		Syscalls:      rules,
	}
}

// allow permits the calls, separated by spaces, where all of args hold.
func allow(calls string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: strings.Fields(calls), Action: specs.ActAllow, Args: args}
}

// equal holds where argument index is value, in all of its 64 bits.
func equal(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}

// masked holds where argument index has exactly the bits of value below mask.
func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	// OCI's names mislead here: Value is the mask, ValueTwo what is left under it.
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}

// pattern matches the numbers n with n & mask == value.
type pattern struct{ mask, value uint64 }

// allBut32 returns disjoint patterns that match each 64-bit number unless its
// low 32 bits are one of denied. The kernel looks at no more than those of an
// ioctl request, and some libcs sign-extend it, so a comparison of 64 bits
// for being unequal could be passed with any of the high bits set.
//
// It walks the binary trie of the denied numbers from the top bit and returns
// the subtrees that hold none of them: about 32 patterns per distant number.
func allBut32(denied ...uint32) []pattern {
	const low32 = 1<<32 - 1
	var out []pattern
	var walk func(bits uint, prefix uint32, denied []uint32)
	walk = func(bits uint, prefix uint32, denied []uint32) { // bits are still open below prefix
		if len(denied) == 0 {
			out = append(out, pattern{low32 &^ (1<<bits - 1), uint64(prefix)})
			return
		}
		if bits == 0 {
			return // prefix itself is denied
		}
		top := uint32(1) << (bits - 1)
		var zero, one []uint32
		for _, d := range denied {
			if d&top == 0 {
				zero = append(zero, d)
			} else {
				one = append(one, d)
			}
		}
		walk(bits-1, prefix, zero)
		walk(bits-1, prefix|top, one)
	}
	walk(32, 0, denied)
	return out
}
