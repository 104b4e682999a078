package sandbox

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// verdict is what a filter says to a call, read as libseccomp reads it: a rule
// without arguments decides alone, otherwise any rule that matches.
func verdict(t *testing.T, filter *specs.LinuxSeccomp, name string, args ...uint64) string {
	t.Helper()
	for _, rule := range filter.Syscalls {
		if !slices.Contains(rule.Names, name) {
			continue
		}
		matches := true
		for _, arg := range rule.Args {
			n := uint64(0)
			if int(arg.Index) < len(args) {
				n = args[arg.Index]
			}
			switch arg.Op {
			case specs.OpEqualTo:
				matches = matches && n == arg.Value
			case specs.OpMaskedEqual:
				matches = matches && n&arg.Value == arg.ValueTwo
			default:
				t.Fatalf("rule for %s compares with %s, which this test does not know", name, arg.Op)
			}
		}
		if !matches {
			continue
		}
		if rule.Action == specs.ActErrno && rule.ErrnoRet != nil && *rule.ErrnoRet == errNOSYS {
			return "ENOSYS"
		}
		if rule.Action != specs.ActAllow {
			t.Fatalf("rule for %s has action %s", name, rule.Action)
		}
		return "allow"
	}
	if filter.DefaultAction != specs.ActErrno || filter.DefaultErrnoRet != nil {
		t.Fatalf("default action %s, errno %v; want %s without one, which is EPERM", filter.DefaultAction, filter.DefaultErrnoRet, specs.ActErrno)
	}
	return "EPERM"
}

func TestSeccompDeniesWhateverTheArguments(t *testing.T) {
	t.Parallel()
	denied := strings.Fields(`
		_sysctl acct add_key adjtimex afs_syscall bpf chroot clock_adjtime clock_settime create_module
		delete_module fanotify_init fanotify_mark finit_module fsconfig fsmount fsopen fspick get_kernel_syms
		get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp
		kexec_file_load kexec_load keyctl lookup_dcookie mbind memfd_secret migrate_pages modify_ldt mount
		mount_setattr move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree
		open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise query_module quotactl
		quotactl_fd reboot request_key security set_mempolicy set_mempolicy_home_node setdomainname
		sethostname setns settimeofday socketcall swapoff swapon sysfs syslog umount umount2 unshare
		uretprobe uselib userfaultfd ustat vhangup vm86 vm86old vserver`)
	for _, profile := range []Profile{Strict, Dev} {
		filter := seccomp(profile)
		for _, rule := range filter.Syscalls {
			for _, name := range rule.Names {
				if slices.Contains(denied, name) {
					t.Errorf("seccomp(%s) has a rule for %s (%s); want none", profile, name, rule.Action)
				}
			}
		}
	}
}

func TestSeccompVerdicts(t *testing.T) {
	t.Parallel()
	const high = 1 << 32 // beyond what the kernel looks at
	for _, tt := range []struct {
		name   string
		call   string
		args   []uint64
		strict string
		dev    string // "" is the same
	}{
		{"plain", "openat", nil, "allow", ""},
		{"unknown", "no_such_call", nil, "EPERM", ""},
		{"ptrace", "ptrace", nil, "EPERM", "allow"},
		{"read of another's memory", "process_vm_readv", nil, "EPERM", "allow"},
		{"write to another's memory", "process_vm_writev", nil, "EPERM", "allow"},

		{"clone3", "clone3", []uint64{0xdead, 88}, "ENOSYS", ""},
		{"fork by clone", "clone", []uint64{0x1200011}, "allow", ""},
		{"thread", "clone", []uint64{0x3d0f00}, "allow", ""},
		{"NEWNS", "clone", []uint64{0x20000 | 17}, "EPERM", ""},
		{"NEWCGROUP", "clone", []uint64{0x2000000 | 17}, "EPERM", ""},
		{"NEWUTS", "clone", []uint64{0x4000000 | 17}, "EPERM", ""},
		{"NEWIPC", "clone", []uint64{0x8000000 | 17}, "EPERM", ""},
		{"NEWUSER", "clone", []uint64{0x10000000 | 17}, "EPERM", ""},
		{"NEWPID", "clone", []uint64{0x20000000 | 17}, "EPERM", ""},
		{"NEWNET", "clone", []uint64{0x40000000 | 17}, "EPERM", ""},
		{"NEWUSER under a high bit", "clone", []uint64{high | 0x10000000}, "EPERM", ""},

		{"AF_UNSPEC", "socket", []uint64{0}, "EPERM", ""},
		{"AF_UNIX", "socket", []uint64{1}, "allow", ""},
		{"AF_INET", "socket", []uint64{2}, "allow", ""},
		{"AF_AX25", "socket", []uint64{3}, "EPERM", ""},
		{"AF_INET6", "socket", []uint64{10}, "allow", ""},
		{"NETLINK_ROUTE", "socket", []uint64{16, 3, 0}, "allow", ""},
		{"NETLINK_SOCK_DIAG", "socket", []uint64{16, 3, 4}, "EPERM", ""},
		{"NETLINK_AUDIT", "socket", []uint64{16, 3, 9}, "EPERM", ""},
		{"NETLINK_KOBJECT_UEVENT", "socket", []uint64{16, 2, 15}, "EPERM", ""},
		{"NETLINK_KOBJECT_UEVENT under a high bit", "socket", []uint64{16, 2, high | 15}, "EPERM", ""},
		{"NETLINK_ROUTE under a high bit", "socket", []uint64{16, 2, high}, "EPERM", ""},
		{"another family's protocol", "socket", []uint64{2, 3, 1}, "allow", ""},
		{"pair of AF_NETLINK", "socketpair", []uint64{16, 3, 0}, "EPERM", ""},
		{"AF_PACKET", "socket", []uint64{17}, "EPERM", ""},
		{"AF_ALG", "socket", []uint64{38}, "EPERM", ""},
		{"AF_ALG under a high bit", "socket", []uint64{high | 38}, "EPERM", ""},
		{"AF_VSOCK", "socket", []uint64{40}, "EPERM", ""},
		{"AF_XDP", "socket", []uint64{44}, "EPERM", ""},
		{"pair of AF_UNIX", "socketpair", []uint64{1, 1}, "allow", ""},
		{"pair of AF_TIPC", "socketpair", []uint64{30, 1}, "EPERM", ""},

		{"PER_LINUX", "personality", []uint64{0}, "allow", ""},
		{"PER_LINUX32", "personality", []uint64{8}, "allow", ""},
		{"UNAME26", "personality", []uint64{0x20000}, "allow", ""},
		{"UNAME26 of PER_LINUX32", "personality", []uint64{0x20008}, "allow", ""},
		{"query", "personality", []uint64{0xffffffff}, "allow", ""},
		{"READ_IMPLIES_EXEC", "personality", []uint64{0x400000}, "EPERM", ""},
		{"MMAP_PAGE_ZERO", "personality", []uint64{0x100000}, "EPERM", ""},
		{"ADDR_NO_RANDOMIZE", "personality", []uint64{0x40000}, "EPERM", ""},

		{"fifo", "mknod", []uint64{0, 0o010644}, "allow", ""},
		{"regular file", "mknod", []uint64{0, 0o100600}, "allow", ""},
		{"regular file by 0", "mknod", []uint64{0, 0o600}, "allow", ""},
		{"character device", "mknod", []uint64{0, 0o020666}, "EPERM", ""},
		{"block device", "mknod", []uint64{0, 0o060666}, "EPERM", ""},
		{"block device under a high bit", "mknod", []uint64{0, high | 0o060666}, "EPERM", ""},
		{"socket node", "mknod", []uint64{0, 0o140666}, "EPERM", ""},
		{"fifo at", "mknodat", []uint64{7, 0, 0o010644}, "allow", ""},
		{"regular file at", "mknodat", []uint64{7, 0, 0o100644}, "allow", ""},
		{"block device at", "mknodat", []uint64{7, 0o010644, 0o060666}, "EPERM", ""},
		{"character device at", "mknodat", []uint64{7, 0, 0o020666}, "EPERM", ""},

		{"TCGETS", "ioctl", []uint64{0, 0x5401}, "allow", ""},
		{"TIOCSTI", "ioctl", []uint64{0, 0x5412}, "EPERM", ""},
		{"TIOCSTI under a high bit", "ioctl", []uint64{0, high | 0x5412}, "EPERM", ""},
		{"TIOCSTI sign-extended", "ioctl", []uint64{0, 0xffffffff_00005412}, "EPERM", ""},
		{"TIOCGWINSZ", "ioctl", []uint64{0, 0x5413}, "allow", ""},
		{"FIONREAD", "ioctl", []uint64{0, 0x541b}, "allow", ""},
		{"TIOCLINUX", "ioctl", []uint64{0, 0x541c}, "EPERM", ""},
		{"TIOCCONS", "ioctl", []uint64{0, 0x541d}, "EPERM", ""},
		{"TIOCCONS under a high bit", "ioctl", []uint64{0, high<<8 | 0x541d}, "EPERM", ""},
		{"TIOCGSERIAL", "ioctl", []uint64{0, 0x541e}, "allow", ""},
		{"TIOCGPTN sign-extended", "ioctl", []uint64{0, 0xffffffff_80045430}, "allow", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dev := tt.dev
			if dev == "" {
				dev = tt.strict
			}
			for profile, want := range map[Profile]string{Strict: tt.strict, Dev: dev} {
				if got := verdict(t, seccomp(profile), tt.call, tt.args...); got != want {
					t.Errorf("seccomp(%s): %s(%#x) = %s; want %s", profile, tt.call, tt.args, got, want)
				}
			}
		})
	}
}

// libseccomp drops or refuses what this test forbids, silently in part.
func TestSeccompRulesDoNotShadowEachOther(t *testing.T) {
	t.Parallel()
	for _, profile := range []Profile{Strict, Dev} {
		seen := map[string]specs.LinuxSyscall{}
		for _, rule := range seccomp(profile).Syscalls {
			if len(rule.Args) > 1 && (len(rule.Args) > 2 || rule.Args[0].Index == rule.Args[1].Index) { // runc reads two of one as "or"
				t.Errorf("seccomp(%s): a rule for %v compares %v; want one argument, or two different ones", profile, rule.Names, rule.Args)
			}
			for _, name := range rule.Names {
				if other, ok := seen[name]; ok && (len(rule.Args) == 0 || len(other.Args) == 0) {
					t.Errorf("seccomp(%s): %s has a rule without arguments and another one", profile, name)
				}
				seen[name] = rule
			}
		}
	}
	if names := strings.Fields(allowedCalls); !slices.IsSorted(names) {
		t.Error("allowedCalls is not sorted; want it sorted, to be read and compared")
	}
}

func TestSeccompNamesItsArchitectures(t *testing.T) {
	t.Parallel()
	// Only 64-bit ones: i386's socketcall would go round the address families.
	want := []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64}
	if diff := cmp.Diff(want, seccomp(Strict).Architectures); diff != "" {
		t.Errorf("seccomp(strict).Architectures (-want +got):\n%s", diff)
	}
}

func TestSeccompSurvivesJSON(t *testing.T) {
	t.Parallel()
	for _, profile := range []Profile{Strict, Dev} {
		want := seccomp(profile)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatalf("Marshal(seccomp(%s)) = %v", profile, err)
		}
		var got *specs.LinuxSeccomp
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("Unmarshal(Marshal(seccomp(%s))) = %v", profile, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seccomp(%s) after JSON (-want +got):\n%s", profile, diff)
		}
	}
}

func TestAllBut32(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, denied := range [][]uint32{
		{},
		{0},
		{1<<32 - 1},
		{tioCSTI},
		{tioCSTI, tioLINUX, tioCONS},
		{1, 2, 3, 4},
		{0, 1<<32 - 1},
		{7, 7},
		{random.Uint32(), random.Uint32(), random.Uint32()},
	} {
		patterns := allBut32(denied...)
		numbers := []uint32{0, 1, 1 << 31, 1<<32 - 1}
		for _, d := range denied {
			for bit := range 32 {
				numbers = append(numbers, d, d^1<<bit, d+uint32(bit), d-uint32(bit))
			}
		}
		for range 1000 {
			numbers = append(numbers, random.Uint32())
		}
		for _, low := range numbers {
			want := 1
			if slices.Contains(denied, low) {
				want = 0
			}
			for _, high := range []uint64{0, 1 << 32, 0xffffffff << 32, random.Uint64() << 32} {
				got := 0
				for _, p := range patterns {
					if (high|uint64(low))&p.mask == p.value {
						got++
					}
				}
				if got != want {
					t.Errorf("allBut32(%#x): %d patterns match %#x; want %d", denied, got, high|uint64(low), want)
				}
			}
		}
	}
	if got := len(allBut32(tioCSTI, tioLINUX, tioCONS)); got != 33 {
		t.Errorf("len(allBut32(TIOCSTI, TIOCLINUX, TIOCCONS)) = %d; want 33, the size of the filter depends on it", got)
	}
}
