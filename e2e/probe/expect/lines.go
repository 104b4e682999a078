package expect

import "slices"

// Sets that many lines share.
var (
	anything = Set{}
	granted  = In("allowed")
	nothing  = In("none")

	// A filtered system call. A runtime that does not know the call says ENOSYS.
	refused = In("EPERM", "ENOSYS")
	// The same without the filter: the kernel has looked at the arguments.
	reached = NotIn("EPERM", "EACCES")

	filtered = In("EPERM")                              // by its arguments, which no runtime answers with ENOSYS
	readOnly = In("EROFS", "EACCES", "EPERM", "ENOENT") // or another's, or not in this kernel
	masked   = In("empty", "EACCES", "ENOENT")
	hidden   = In("EACCES", "EPERM")
	noRoute  = In("ENETUNREACH")
	someway  = NotIn("ENETUNREACH", "none")
	noRoute6 = In("ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EINVAL")
)

// same makes lines with the same expectation.
func same(row string, strict, dev, weak Set, names ...string) []Line {
	var out []Line
	for _, name := range names {
		out = append(out, Line{row, name, strict, dev, weak})
	}
	return out
}

// Lines are the lines of the probe.
var Lines = slices.Concat(identity, calls, mounts, descriptors, filesystem, processes, limits, network)

var identity = []Line{
	{"E1", "Uid", In("1000"), In("0"), In("0")},
	{"E1", "Gid", In("1000"), In("0"), In("0")},
	{"E1", "Groups", nothing, nothing, anything},
	{"E1", "CapInh", In("0000000000000000"), In("0000000000000000"), anything},
	{"E1", "CapPrm", In("0000000000000000"), In("00000000000000fb"), NotIn("0000000000000000", "00000000000000fb")},
	{"E1", "CapEff", In("0000000000000000"), In("00000000000000fb"), NotIn("0000000000000000", "00000000000000fb")},
	{"E1", "CapBnd", In("00000000000000e0"), In("00000000200000fb"), NotIn("00000000000000e0", "00000000200000fb")},
	{"E1", "CapAmb", In("0000000000000000"), In("0000000000000000"), anything},
	{"E1", "NoNewPrivs", In("1"), In("1"), In("0")},
	{"E1", "Seccomp", In("2"), In("2"), In("0")},
	{"E1", "threads", In("same,true"), In("same,true"), In("same,true")},
	{"E1", "child-in-new-session", In("euid=1000,0000000000000000,1,2"), In("euid=0,00000000000000fb,1,2"), Having(",0,0")},
	{"E1", "raise-capabilities", filtered, filtered, anything},
	{"E1", "setresuid-0", In("EPERM"), granted, granted},
	{"E1", "setresgid-0", In("EPERM"), granted, granted},
	{"E15", "setuid-copy", In("euid=1000"), In("euid=1000"), In("euid=0")},
	{"E15", "setuid-files", nothing, nothing, anything},
}

// The system calls that the profile removes.
var calls = slices.Concat(
	same("E5", refused, refused, reached, "add_key", "request_key", "keyctl"),
	same("E6", refused, refused, reached, "bpf", "perf_event_open", "lookup_dcookie"),
	same("E7", refused, refused, reached, "io_uring_setup", "io_uring_enter", "io_uring_register"),
	same("E8", refused, refused, reached, "userfaultfd"),
	same("E14", refused, refused, reached, "name_to_handle_at", "open_by_handle_at"),
	same("E17", refused, refused, reached,
		"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
		"swapon", "swapoff", "acct", "quotactl", "sethostname", "setdomainname", "clock_settime",
		"settimeofday", "adjtimex", "syslog", "fanotify_init", "memfd_secret", "kcmp", "pidfd_getfd",
		"process_madvise", "move_pages", "mbind", "iopl", "ioperm", "modify_ldt"),
	[]Line{
		{"E17", "personality", filtered, filtered, granted},
		{"E17", "unknown-call", In("ENOSYS", "EPERM"), In("ENOSYS", "EPERM"), In("ENOSYS")},
		{"E10", "ptrace", refused, In("ESRCH"), In("ESRCH")},
		{"E10", "process_vm_readv", refused, granted, granted},
	},
)

var mounts = slices.Concat(
	same("E2", refused, refused, granted, "mount-tmpfs", "mount-proc", "mount-sysfs", "mount-bind"),
	same("E2", refused, refused, reached, "mount-cgroup", "mount-overlay", "remount-root", "umount-masked",
		"umount-readonly", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "move_mount",
		"mount_setattr", "pivot_root", "chroot"),
	[]Line{
		{"E3", "clone3", In("ENOSYS"), In("ENOSYS"), NotIn("ENOSYS", "EPERM")},
		{"E3", "setns-own", refused, refused, granted},
	},
	same("E3", filtered, filtered, granted, "clone-user", "clone-mount", "clone-net", "clone-pid", "clone-ipc", "clone-uts", "clone-cgroup"),
	same("E3", refused, refused, granted, "unshare-user", "unshare-mount", "unshare-net", "unshare-ipc", "unshare-uts", "unshare-cgroup"),
	same("E3", refused, refused, reached, "unshare-pid", "unshare-time"),
)

// Device nodes, terminals and sockets.
var descriptors = slices.Concat(
	same("E13", filtered, filtered, granted, "mknod-block", "mknod-char", "mknodat-block", "mknodat-char"),
	same("E13", filtered, filtered, reached, "mknod-whiteout"),
	same("E13", granted, granted, granted, "mknod-fifo", "mknodat-file"),
	[]Line{
		{"E13", "device-nodes", nothing, nothing, Having("/dev/kmsg")},
		{"E13", "open-kmsg", In("ENOENT"), In("ENOENT"), granted},
		{"E8", "open-userfaultfd", In("ENOENT"), In("ENOENT"), anything},
		{"E25", "open-pty", granted, granted, granted},
		{"E25", "other-terminals", nothing, nothing, anything},
	},
	same("E25", filtered, filtered, reached, "TIOCSTI", "TIOCSTI-high-bit", "TIOCSTI-sign-extended",
		"TIOCLINUX", "TIOCLINUX-high-bit", "TIOCCONS", "TIOCCONS-high-bit"),
	same("E29", granted, granted, granted, "socket-AF_UNIX", "socket-AF_INET", "socket-AF_NETLINK"),
	same("E29", In("allowed", "EAFNOSUPPORT"), In("allowed", "EAFNOSUPPORT"), anything, "socket-AF_INET6"),
	same("E29", filtered, filtered, granted, "socket-AF_INET-raw", "socket-AF_PACKET"),
	same("E29", filtered, filtered, granted, "socket-NETLINK_KOBJECT_UEVENT", "socket-NETLINK_KOBJECT_UEVENT-high-bit", "socket-NETLINK_GENERIC"),
	same("E29", filtered, filtered, reached, "socket-NETLINK_SOCK_DIAG", "socket-NETLINK_XFRM", "socket-NETLINK_AUDIT",
		"socket-NETLINK_CONNECTOR", "socket-NETLINK_NETFILTER"),
	same("E29", filtered, filtered, reached, "socket-AF_INET-packet", "socket-AF_ALG", "socket-AF_ALG-high-bit",
		"socket-AF_VSOCK", "socket-AF_KEY", "socket-AF_XDP", "socket-AF_RDS", "socket-AF_TIPC", "socket-AF_CAN",
		"socket-AF_BLUETOOTH", "socket-AF_SMC", "socket-AF_KCM", "socket-AF_RXRPC", "socket-AF_PPPOX", "socketpair-AF_TIPC"),
	same("E29", In("EFAULT"), In("EFAULT"), In("EFAULT"), "socketpair-AF_UNIX"), // it was given nowhere to put them
	[]Line{
		// PID 1's own socket: a process that is not uid 0 can see that it is there, and no more.
		{"E21", "unix-sockets", In("none", "/run/sandboxbash/init"), In("none", "/run/sandboxbash/init"), anything},
		{"E21", "socket-files", nothing, In("none", "/run/sandboxbash/init"), Having("docker.sock")},
		{"E21", "engine-sockets", nothing, nothing, Having("docker.sock")},
		{"E21", "connect-init", In("EACCES", "ENOENT"), anything, anything},
	},
)

var filesystem = slices.Concat(
	same("E10", readOnly, readOnly, granted, "write-core_pattern", "write-drop_caches", "write-overcommit"),
	same("E10", readOnly, readOnly, anything, "write-sysrq-trigger", "write-modprobe", "write-irq",
		"write-binfmt_misc", "write-uevent_helper", "write-hugepage", "write-power"),
	same("E11", masked, masked, In("readable"), "read-keys", "read-interrupts"),
	same("E11", masked, masked, anything, "read-kcore", "read-timer_list", "read-sched_debug", "read-latency_stats",
		"read-scsi", "read-acpi", "read-firmware", "read-powercap", "read-thermal_throttle"),
	same("E12", readOnly, readOnly, granted, "cgroup-write-procs", "cgroup-mkdir"),
	same("E12", readOnly, readOnly, anything, "cgroup-write-release_agent", "cgroup-write-notify_on_release",
		"cgroup-write-devices.allow", "cgroup-write-memory-limit", "cgroup-write-memory-max"),
	[]Line{{"E12", "cgroup-path", In("root"), In("root"), In("shown")}},
	same("P2", readOnly, In("allowed", "ENOENT"), granted, "create-in-/", "create-in-/etc"),
	same("P2", readOnly, In("allowed", "ENOENT"), anything, "create-in-/usr", "create-in-/usr/bin"),
	same("P2", readOnly, readOnly, anything, "create-in-/.sandboxbash", "create-in-/sys", "create-in-/proc"),
	same("P2", granted, granted, anything, "create-in-/tmp", "create-in-/dev/shm", "create-in-/workspace", "create-in-home"),
	[]Line{
		{"P2", "write-runner", In("EROFS", "EACCES", "ETXTBSY"), In("EROFS", "EACCES", "ETXTBSY"), anything},
		{"S1", "secret-names", nothing, nothing, Having("PROBE_TOKEN")},
		{"S7", "credential-files", nothing, anything, anything}, // uid 0 may read the image's own /etc/shadow
	},
)

// PID 1, the runners and other processes. In profile dev a command has the uid of
// its runner and may end it, but neither looks into PID 1 nor changes it.
var processes = slices.Concat(
	same("K", In("EPERM"), In("allowed"), granted, "kill-pid1", "pidfd-kill-pid1", "kill-uid0"),
	same("E3", hidden, hidden, granted, "open-ns-pid1"),
	same("O8", hidden, hidden, granted, "pid1-environ", "pid1-mem", "pid1-maps", "pid1-auxv", "pid1-root-etc",
		"pid1-cwd", "pid1-fd-0", "pid1-exe"),
	same("O8", hidden, hidden, anything, "pid1-map_files", "pid1-stack"),
	// In dev these are also the command's own ancestors.
	same("O8", hidden, anything, granted, "uid0-environ", "uid0-fd-0", "uid0-mem", "uid0-mem-write", "uid0-oom_score_adj"),
	same("O8", hidden, hidden, anything, "runner-environ", "runner-maps", "runner-fd-0", "runner-mem", "runner-mem-write"),
	same("O8", refused, In("EPERM"), anything, "runner-seize", "runner-write"),
	same("E23", nothing, nothing, anything, "shm-files", "sysv-ipc", "kernel-threads"),
	same("E19", nothing, nothing, anything, "inherited-files"),
	// In dev a command sees its ancestors' files; directories among them are its own too.
	same("E19", nothing, anything, anything, "files-of-others"),
	same("E19", In("inside"), In("inside"), In("inside"), "cwd"),
)

var limits = []Line{
	{"R12", "rlimit-core", In("0"), In("0"), NotIn("0")},
	{"R12", "rlimit-nofile", In("16384"), In("16384"), NotIn("16384")},
	{"R12", "rlimit-memlock", In("65536"), In("65536"), NotIn("65536")},
	{"R12", "rlimit-stack", In("67108864"), In("67108864"), NotIn("67108864")},
	{"R12", "raise-rlimit-core", In("EPERM"), In("EPERM"), anything},
	{"R12", "raise-rlimit-nofile", In("EPERM"), In("EPERM"), anything},
	{"R12", "raise-rlimit-memlock", In("EPERM"), In("EPERM"), anything},
	{"R12", "raise-rlimit-stack", In("EPERM"), In("EPERM"), anything},
	{"R1", "pids-limit", NotIn("max", "absent", "ENOENT"), NotIn("max", "absent", "ENOENT"), In("max", "absent", "ENOENT")},
	{"R3", "memory-limit", limited, limited, In(unlimited...)},
	{"R3", "oom_score_adj", In("1000"), In("1000"), NotIn("1000")},
	{"R3", "lower-oom_score_adj", In("EACCES"), In("EACCES"), anything},
	{"R11", "raise-priority", In("EACCES", "EPERM"), In("EACCES", "EPERM"), granted},
	{"R11", "realtime", In("EPERM"), In("EPERM"), anything},
}

var (
	// Of cgroup version 2, and of version 1: the largest multiple of the page size.
	unlimited = []string{"max", "absent", "ENOENT", "9223372036854771712"}
	limited   = NotIn(unlimited...)
)

var network = slices.Concat(
	[]Line{
		{"E22", "interfaces", In("lo"), In("lo"), Having("eth0")},
		{"E22", "gateway", nothing, nothing, someway},
		{"E22", "gateway-tls", nothing, nothing, someway},
		{"S11", "resolve", nothing, nothing, granted},
		{"S11", "loopback", granted, granted, granted},
	},
	same("E22", noRoute, noRoute, someway, "connect-metadata", "connect-desktop-engine", "connect-bridge-engine", "connect-lan", "connect-internet"),
	same("E22", noRoute6, noRoute6, anything, "connect-metadata-v6", "connect-internet-v6"),
	same("S11", noRoute, noRoute, someway, "udp-dns", "udp-broadcast"),
	same("S11", noRoute6, noRoute6, anything, "udp-multicast-v6"),
	same("S11", In("ENETUNREACH", "EACCES"), In("ENETUNREACH", "EACCES"), In("allowed"), "icmp"),
	same("S11", In("EPERM"), In("EPERM"), reached, "add-route", "create-bridge"),
)
