package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/e2e/probe/expect"
)

// The tools of rows E30 to E32 cannot be had everywhere, and one of them attacks the
// machine. These are checks of our own of what they look at. They stand in for the
// tools and are not the tools: what a new version asks is asked here when a person
// adds it.

// A fact is one thing that a tool finds out about a container.
type fact struct {
	row, tool, asks string
	// Either lines of the probe, which is run on every lane and has its own
	// expectations; or a script and what it must print.
	probe        []string
	script, want string
}

var facts = slices.Concat(amicontained, deepce, cdk, escapeBench)

var amicontained = []fact{
	{row: "E30", tool: "amicontained", asks: "capabilities, effective and bounding", probe: []string{"CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"}},
	{row: "E30", tool: "amicontained", asks: "whether seccomp filters", probe: []string{"Seccomp"}},
	{row: "E30", tool: "amicontained", asks: "which calls are blocked", probe: []string{
		"mount-tmpfs", "umount-masked", "pivot_root", "chroot", "unshare-user", "setns-own", "kexec_load", "init_module", "delete_module",
		"perf_event_open", "bpf", "userfaultfd", "keyctl", "add_key", "request_key", "lookup_dcookie", "reboot", "swapon", "acct", "settimeofday",
		"open_by_handle_at", "io_uring_setup", "ptrace", "syslog", "quotactl", "iopl", "ioperm", "move_pages",
	}},
	{row: "E30", tool: "amicontained", asks: "namespaces of its own", probe: []string{"kernel-threads", "open-ns-pid1", "interfaces"}},
	{row: "E30", tool: "amicontained", asks: "whether a user namespace can be had", probe: []string{"unshare-user", "clone-user", "clone3"}},
	{row: "E30", tool: "amicontained", asks: "the engine's socket", probe: []string{"engine-sockets"}},
}

var deepce = []fact{
	{row: "E30", tool: "deepce", asks: "who one is, and sudo", script: "id -u; sudo -n true 2>/dev/null && echo sudo; su -c true </dev/null 2>/dev/null && echo su; true", want: "1000"},
	{row: "E30", tool: "deepce", asks: "groups of the engine", probe: []string{"Groups"}},
	{row: "E30", tool: "deepce", asks: "the engine's socket", probe: []string{"socket-files", "engine-sockets"}},
	{row: "E30", tool: "deepce", asks: "whether it is privileged", probe: []string{"device-nodes", "CapEff", "mknod-block"}},
	{row: "E30", tool: "deepce", asks: "container id, by its cgroup", probe: []string{"cgroup-path"}},
	{row: "E30", tool: "deepce", asks: "directories of the host", script: `grep -cE ' (/mnt|/host[^n]|/media|/root|/etc|/var/run/docker.sock) ' /proc/mounts`, want: "0"},
	{row: "E30", tool: "deepce", asks: "passwords in the environment", probe: []string{"secret-names"}},
	{row: "E30", tool: "deepce", asks: "files with passwords, keys and histories", probe: []string{"credential-files"}},
	{row: "E30", tool: "deepce", asks: "files of the system that one may write", probe: []string{"create-in-/", "create-in-/etc", "create-in-/usr", "create-in-/usr/bin"}},
	{row: "E30", tool: "deepce", asks: "setuid programs", probe: []string{"setuid-files"}},
	{row: "E30", tool: "deepce", asks: "who else is on the network", probe: []string{"interfaces", "gateway", "connect-lan"}},
}

var cdk = []fact{
	{row: "E30", tool: "CDK evaluate", asks: "services and keys in the environment", probe: []string{"secret-names"}},
	{row: "E30", tool: "CDK evaluate", asks: "capabilities of an escape", probe: []string{"CapEff", "CapBnd"}},
	{row: "E30", tool: "CDK evaluate", asks: "mounts of the host, and lxcfs", script: `grep -cE 'lxcfs|/kubelet/|docker.sock' /proc/mounts`, want: "0"},
	{row: "E30", tool: "CDK evaluate", asks: "abstract sockets of the host's network", probe: []string{"unix-sockets"}},
	{row: "E30", tool: "CDK evaluate", asks: "route_localnet", script: `cat /proc/sys/net/ipv4/conf/*/route_localnet 2>/dev/null | grep -c 1`, want: "0"},
	{row: "E30", tool: "CDK evaluate", asks: "name services of a cluster", probe: []string{"resolve", "udp-dns"}},
	{row: "E30", tool: "CDK evaluate", asks: "a cluster's server and service account", script: "ls -d /var/run/secrets/kubernetes.io /run/secrets 2>/dev/null; env | grep -c ^KUBERNETES", want: "0"},
	{row: "E30", tool: "CDK evaluate", asks: "metadata of clouds", probe: []string{"connect-metadata", "connect-metadata-v6"}},
	{row: "E30", tool: "CDK evaluate", asks: "sensitive files of the host", script: "ls -d /host /rootfs /var/lib/docker /var/lib/kubelet /etc/kubernetes 2>/dev/null; true", want: ""},
	{row: "E30", tool: "CDK evaluate", asks: "cgroups that one may write", probe: []string{"cgroup-write-procs", "cgroup-mkdir", "cgroup-write-release_agent", "cgroup-write-devices.allow", "mount-cgroup"}},
	{row: "E30", tool: "CDK evaluate", asks: "whether addresses are random", script: "cat /proc/sys/kernel/randomize_va_space", want: "2"},
	{row: "E30", tool: "CDK evaluate", asks: "whose processes one sees", probe: []string{"kernel-threads", "pid1-root-etc"}},
}

// escapeBench is SandboxEscapeBench's list of 18 scenarios, as its paper names them
// (arXiv 2603.02277). Each takes a mistake of the program that starts the container; what is
// asked here is whether a session has it, and in the last check of E32 whether a
// setting of ours can make it.
var escapeBench = []fact{
	{row: "E32", tool: "orchestration", asks: "Kubernetes roles", script: "ls -d /var/run/secrets/kubernetes.io 2>/dev/null; true", want: ""},
	{row: "E32", tool: "orchestration", asks: "kubectl cp", script: "ls -d /.sandboxbash; test -w /.sandboxbash && echo writable; true", want: "/.sandboxbash"},
	{row: "E32", tool: "orchestration", asks: "CRI-O and kernel parameters", probe: []string{"write-core_pattern", "write-modprobe"}},
	{row: "E32", tool: "orchestration", asks: "route_localnet", probe: []string{"interfaces", "add-route"}},
	{row: "E32", tool: "runtime", asks: "privileged container", probe: []string{"CapEff", "device-nodes", "mknod-block", "Seccomp"}},
	{row: "E32", tool: "runtime", asks: "the engine's socket", probe: []string{"engine-sockets", "connect-bridge-engine", "connect-desktop-engine"}},
	{row: "E32", tool: "runtime", asks: "a host path that is mounted", script: `grep -cE ' (/mnt|/host[^n]|/rootfs) ' /proc/mounts`, want: "0"},
	{row: "E32", tool: "runtime", asks: "CAP_SYS_ADMIN", probe: []string{"mount-tmpfs", "mount-cgroup", "unshare-mount"}},
	{row: "E32", tool: "runtime", asks: "CAP_SYS_MODULE", probe: []string{"init_module", "finit_module"}},
	{row: "E32", tool: "runtime", asks: "CAP_DAC_READ_SEARCH", probe: []string{"open_by_handle_at", "name_to_handle_at"}},
	{row: "E32", tool: "runtime", asks: "runc, CVE-2019-5736", probe: []string{"pid1-exe", "write-runner", "uid0-mem-write"}},
	{row: "E32", tool: "runtime", asks: "runc, CVE-2024-21626", probe: []string{"inherited-files", "files-of-others", "cwd"}},
	{row: "E32", tool: "kernel", asks: "the machine's PID namespace", probe: []string{"kernel-threads", "ptrace", "process_vm_readv"}},
	{row: "E32", tool: "kernel", asks: "release_agent of cgroups", probe: []string{"cgroup-write-release_agent", "cgroup-write-notify_on_release", "mount-cgroup"}},
	{row: "E32", tool: "kernel", asks: "eBPF verifier", probe: []string{"bpf"}},
	{row: "E32", tool: "kernel", asks: "Dirty COW (memory of others)", probe: []string{"ptrace", "uid0-mem-write", "pid1-mem"}},
	{row: "E32", tool: "kernel", asks: "Dirty Pipe (page cache of shared layers)", probe: []string{"socket-AF_ALG", "write-runner"}},
	{row: "E32", tool: "kernel", asks: "packet sockets", probe: []string{"socket-AF_PACKET", "socket-AF_INET-packet", "unshare-net"}},
}

var factChecks = []laneCheck{
	{"E30: what amicontained, deepce and CDK ask", func(t *testing.T, on *laneRun) { checkFacts(t, on, "E30") }},
	{"E31: the 32 checks of docker-bench, section 5", checkBench},
	{"E32: what the 18 scenarios need", func(t *testing.T, on *laneRun) { checkFacts(t, on, "E32") }},
	{"E32: no setting of ours makes it", checkNoSetting},
}

// checkFacts runs the scripts of a row. The lines of the probe have their own check;
// here they must exist and be checked in strict.
func checkFacts(t *testing.T, on *laneRun, row string) {
	for _, f := range facts {
		if f.row != row {
			continue
		}
		for _, name := range f.probe {
			if !slices.ContainsFunc(expect.Lines, func(l expect.Line) bool { return l.Name == name }) {
				t.Errorf("%s, %s: the probe has no line %q", f.tool, f.asks, name)
			}
		}
		if f.script == "" {
			continue
		}
		if out, _ := on.in(t, on.session, f.script); out != f.want {
			t.Errorf("%s, %s: %q; want %q", f.tool, f.asks, out, f.want)
		}
	}
}

// checkNoSetting looks at every flag that starts a session, and tries the ones with
// which a mistake could be made.
func checkNoSetting(t *testing.T, on *laneRun) {
	known := []string{
		"allow", "deny", // rules for connections that leave through this process: the container has none but lo
		"cpus", "disk", "help", "home", "idle", "image", "json", "memory", "name", "network", "pids", "profile", "quiet", "runtime", "tmp", "user", "workspace",
		"cache", "env", "env-unsafe", "home-in-workspace", "image-env", "mount", "user-name", // directories that the user names, and texts
		"ci", "color", "config", "engine", "log-format", "log-level", // of what is printed, and where the engine is
	}
	for line := range strings.Lines(on.run(t, "session", "start", "--help")) {
		_, rest, ok := strings.Cut(line, "--")
		name := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '\n' })
		if ok && strings.HasPrefix(strings.TrimLeft(line, " "), "-") && !slices.Contains(known, name[0]) {
			t.Errorf("--%s: a flag that was not reviewed: can it make a container that lets commands out?", name[0])
		}
	}
	for _, args := range [][]string{
		{"--network", "host"},
		{"--network", "container:x"},
		{"--profile", "privileged"},
		{"--runtime", "/bin/sh"},
		{"--workspace", "bind:/"},
		{"--workspace", "bind:/proc"},
		{"--workspace", "bind:/var/run/docker.sock"},
		{"--workspace", "bind:/sys"},
		{"--mount", "/:/x"},
		{"--mount", "/proc:/x"},
		{"--mount", "/sys/fs/cgroup:/x"},
		{"--mount", "/var/run:/x"},
		{"--mount", "/var/lib/docker:/x"},
		{"--cache", "x:/proc/x"},
	} {
		if id, err := on.try(t.Context(), append([]string{"session", "start"}, args...)...); err == nil {
			t.Errorf("session start %s: session %s; want it refused", strings.Join(args, " "), id)
			on.run(t, "session", "stop", id)
		}
	}
}

// A benchItem is one of docker-bench-security's checks of containers (section 5 of
// the CIS benchmark, in the numbers of its version 1.6).
type benchItem struct {
	number, asks string
	ok           func(*inspected) bool
	waived       string // why it is not so, or not asked
}

var bench = []benchItem{
	{number: "5.1", asks: "no swarm services", ok: func(c *inspected) bool { return c.HostConfig.NetworkMode == "none" }},
	{number: "5.2", asks: "AppArmor is not off", ok: func(c *inspected) bool { return !hasOption(c, "apparmor=unconfined") }},
	{number: "5.3", asks: "SELinux", waived: "the engine's: Debian has AppArmor, and a session turns neither off"},
	{number: "5.4", asks: "capabilities", ok: func(c *inspected) bool {
		return slices.Contains(c.HostConfig.CapDrop, "ALL") && len(c.HostConfig.CapAdd) == 3
	}},
	{number: "5.5", asks: "not privileged", ok: func(c *inspected) bool { return !c.HostConfig.Privileged }},
	{number: "5.6", asks: "no directory of the host", ok: func(c *inspected) bool {
		return !slices.ContainsFunc(c.HostConfig.Binds, func(b string) bool { return strings.HasPrefix(b, "/") })
	}},
	{number: "5.7", asks: "no sshd", ok: func(c *inspected) bool { return c.Config.Entrypoint[0] == "/.sandboxbash/runner" }},
	{number: "5.8", asks: "no privileged port", ok: func(c *inspected) bool { return len(c.HostConfig.PortBindings) == 0 }},
	{number: "5.9", asks: "no port", ok: func(c *inspected) bool { return len(c.HostConfig.PortBindings) == 0 && !c.HostConfig.PublishAllPorts }},
	{number: "5.10", asks: "not the host's network", ok: func(c *inspected) bool { return c.HostConfig.NetworkMode == "none" }},
	{number: "5.11", asks: "memory", ok: func(c *inspected) bool {
		return c.HostConfig.Memory > 0 && c.HostConfig.MemorySwap == c.HostConfig.Memory
	}},
	{number: "5.12", asks: "processor time", ok: func(c *inspected) bool { return c.HostConfig.NanoCpus > 0 || c.HostConfig.CPUQuota > 0 }},
	{number: "5.13", asks: "read-only root", ok: func(c *inspected) bool { return c.HostConfig.ReadonlyRootfs }},
	{number: "5.14", asks: "no address of the host", ok: func(c *inspected) bool { return len(c.HostConfig.PortBindings) == 0 }},
	{number: "5.15", asks: "not started again", ok: func(c *inspected) bool { return slices.Contains([]string{"", "no"}, c.HostConfig.RestartPolicy.Name) }},
	{number: "5.16", asks: "not the host's processes", ok: func(c *inspected) bool { return c.HostConfig.PidMode != "host" }},
	{number: "5.17", asks: "not the host's IPC", ok: func(c *inspected) bool { return c.HostConfig.IpcMode != "host" }},
	{number: "5.18", asks: "no device", ok: func(c *inspected) bool { return len(c.HostConfig.Devices)+len(c.HostConfig.DeviceRequests) == 0 }},
	{number: "5.19", asks: "limits of its own", ok: func(c *inspected) bool { return len(c.HostConfig.Ulimits) >= 4 }},
	{number: "5.20", asks: "no shared propagation", ok: func(c *inspected) bool {
		for _, m := range c.Mounts {
			if strings.Contains(m.Propagation, "shared") {
				return false
			}
		}
		return true
	}},
	{number: "5.21", asks: "not the host's name", ok: func(c *inspected) bool { return c.HostConfig.UTSMode != "host" }},
	{number: "5.22", asks: "seccomp is not off", ok: func(c *inspected) bool { return !hasOption(c, "unconfined") && hasOption(c, "seccomp=") }},
	{number: "5.23", asks: "no privileged exec", ok: func(c *inspected) bool { return !c.HostConfig.Privileged }},
	{number: "5.24", asks: "no exec of uid 0", waived: "the runner is uid 0 with KILL, SETUID and SETGID; commands are not, and cannot reach it (lines uid0-* of the probe)"},
	{number: "5.25", asks: "no other cgroup", ok: func(c *inspected) bool { return c.HostConfig.CgroupParent == "" }},
	{number: "5.26", asks: "no new privileges", ok: func(c *inspected) bool { return hasOption(c, "no-new-privileges") }},
	{number: "5.27", asks: "health check", waived: "an image's is a program of the image that runs every few seconds: it is off; the runner's lease does its work"},
	{number: "5.28", asks: "the newest image", ok: func(c *inspected) bool {
		return strings.TrimPrefix(c.Config.Image, "sha256:") == strings.TrimPrefix(c.Image, "sha256:")
	}},
	{number: "5.29", asks: "number of processes", ok: func(c *inspected) bool { return c.HostConfig.PidsLimit > 0 }},
	{number: "5.30", asks: "not docker0", ok: func(c *inspected) bool { return c.HostConfig.NetworkMode == "none" }},
	{number: "5.31", asks: "not the host's users", ok: func(c *inspected) bool { return c.HostConfig.UsernsMode != "host" }},
	{number: "5.32", asks: "not the engine's socket", ok: func(c *inspected) bool {
		for _, m := range c.Mounts {
			if strings.Contains(m.Source+m.Destination, ".sock") {
				return false
			}
		}
		return true
	}},
}

func hasOption(c *inspected, text string) bool {
	return slices.ContainsFunc(c.HostConfig.SecurityOpt, func(o string) bool { return strings.Contains(o, text) })
}

func checkBench(t *testing.T, on *laneRun) {
	out, err := on.docker(t.Context(), "inspect", "sandboxbash-"+on.session)
	var all []inspected
	if err != nil || json.Unmarshal([]byte(out), &all) != nil || len(all) != 1 {
		t.Fatalf("docker inspect: %v\n%s", err, out)
	}
	for _, b := range bench {
		if b.waived != "" || b.ok(&all[0]) {
			continue
		}
		what := fmt.Sprintf("E31 %s", b.number)
		if _, ok := on.allowed(what); !ok {
			t.Errorf("%s %s: not so", what, b.asks)
		}
	}
}
