package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Labels of a session, besides the engine's own.
const (
	labelOwner   = "sandboxbash.owner"   // the process that created it
	labelLease   = "sandboxbash.lease"   // a duration
	labelCreated = "sandboxbash.created" // RFC 3339, by the creating host's clock
	labelShape   = "sandboxbash.spec"    // JSON
	labelKey     = "sandboxbash.jobkey"  // the key that seals the records of jobs
)

// serveCommand is the constant command line of every exec of a session.
func serveCommand() []string { return append([]string{engine.RunnerPath}, wire.VerbServe.Command()...) }

// shapeOf returns the shape of the session to provision, without its labels.
func shapeOf(id string, spec Spec, p prerequisites) engine.Shape {
	w := engine.Workspace{Target: spec.Workspace.Target, Size: spec.Limits.Disk}
	if spec.Workspace.Kind == WorkspaceBind {
		w = engine.Workspace{Target: spec.Workspace.Target, Bind: spec.Workspace.Dir, ReadOnly: spec.Workspace.ReadOnly}
	}
	draft := maps.Clone(keepLabels(spec))
	draft[labelLease] = spec.Lease.String()
	draft[labelShape] = labelSpec{
		Name: spec.Name, Directory: spec.Directory, By: userKey(),
		Image: spec.Image, Profile: spec.Profile, User: *spec.User, Network: spec.Network, Limits: spec.Limits, Workspace: spec.Workspace,
		HomeInside: spec.HomeInside,
	}.encode()
	return engine.Shape{
		ID: id, Confinement: confinement(spec, mounts(spec)), Image: p.image, Account: spec.account(), Workspace: w, Mounts: spec.engineMounts(), Records: wire.JobsDir,
		Programs: spec.readsPrograms(), Names: spec.names(), Made: madeLabels(time.Now()), Draft: draft,
	}
}

// confinement returns the confinement of PID 1 and of the runners.
func confinement(spec Spec, mounts []specs.Mount) engine.Confinement {
	return engine.Confinement{
		Exact: spec.Profile == Strict, Network: string(spec.Network), Runtime: spec.Runtime, ShmBytes: 64 << 20, DNS: dns(spec.Network),
		Spec: ociSpec(spec, mounts),
	}
}

// labelsOf returns the content of a session's label labelShape.
func labelsOf(spec Spec, img engine.Image, over engine.Overlays) labelSpec {
	return labelSpec{
		Name: spec.Name, Directory: spec.Directory, By: userKey(),
		Image: imageName(spec, img), ImageID: string(img.ID), Profile: spec.Profile, User: *spec.User,
		Network: spec.Network, Limits: spec.Limits, Workspace: spec.Workspace, Path: commandPath(img.Env),
		Programs: over.Programs, Accounts: over.Accounts, Shape: currentShape, Rules: spec.rules(), Env: spec.Env, Mounts: spec.Mounts, UserName: spec.UserName, HomeInside: spec.HomeInside,
	}
}

// madeLabels returns labels for the creating process and the time of creation.
func madeLabels(now time.Time) map[string]string {
	return map[string]string{labelOwner: self().String(), labelCreated: now.UTC().Format(time.RFC3339Nano)}
}

// sessionLabels returns all labels of a session. Labels without a value are set to "",
// because otherwise an engine may take them from the image.
func sessionLabels(spec Spec, l labelSpec, now time.Time) map[string]string {
	labels := madeLabels(now)
	maps.Copy(labels, keepLabels(spec))
	labels[labelLease], labels[labelShape], labels[labelKey], labels[labelReader] = spec.Lease.String(), l.encode(), newKey(), ""
	for _, key := range []string{labelSince, labelCause, labelBytes, labelEntries} {
		labels[key] = "" // only kept workspaces have a value
	}
	return labels
}

// newKey makes a key for sealing the records of a session's jobs.
func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return hex.EncodeToString(key)
}

// decodeKey returns nil if text is not a key.
func decodeKey(text string) []byte {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) == 0 {
		return nil
	}
	return key
}

// capabilities returns the capabilities of PID 1 and the runners. Commands of profile
// strict have none, because they run as another uid.
func capabilities(p Profile) []string {
	caps := []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
	if p == Dev {
		// Commands do not have CAP_AUDIT_WRITE: runners give it up before they fork. A process
		// that has it cannot be traced by one that has not.
		caps = append(caps, "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID")
	}
	return caps
}

// Masked and read-only paths. Setting such a list replaces the engine's own, so these are
// the union of the lists of all engine versions.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// resolverOptions are options of resolv.conf(5). Without any, an engine uses those of its
// machine. They are short because musl waits for the whole timeout if nothing listens.
var resolverOptions = []string{"timeout:1", "attempts:2"}

// dns returns the resolver settings of a session. A session without a network must not see
// the name servers and the search list of the engine's machine, so its look-ups go to its
// own loopback address and fail at once. resolv.conf is fixed when a container is created.
func dns(n Network) *engine.DNS {
	if n != NetworkNone {
		return nil
	}
	return &engine.DNS{Servers: []string{"127.0.0.1"}, Search: []string{"."}, Options: resolverOptions}
}

// sysctls returns settings for the container's own namespaces, fixed when it is created.
// Objects of its IPC namespace outlive the processes that created them. They are bounded so
// that they leave memory for the next command, and, for POSIX message queues, leave some of
// what the kernel grants to all processes of one uid together.
func sysctls(l Limits) map[string]string {
	shm := quarter(l.Memory)
	return map[string]string{
		wire.UnprivilegedPorts:  "0", // commands may listen on every port of their own network
		"kernel.shmmax":         strconv.FormatInt(shm, 10),
		"kernel.shmall":         strconv.FormatInt(shm/pageSize, 10),
		"kernel.msgmni":         "256", // of 16 KiB each
		"fs.mqueue.queues_max":  "2",   // of 80 KiB each; RLIMIT_MSGQUEUE is 800 KiB for the uid
		"fs.mqueue.msg_max":     "10",
		"fs.mqueue.msgsize_max": "8192",
	}
}

const cpuPeriod = 100_000 // microseconds; the kernel's default CFS period

func ociSpec(spec Spec, mounts []specs.Mount) specs.Spec {
	oom := 500 // the kernel kills the container before the engine and the host's processes
	swappiness := uint64(0)
	quota := int64(math.Round(spec.Limits.CPUs * cpuPeriod))
	period := uint64(cpuPeriod)
	limits := spec.Limits
	return specs.Spec{
		Hostname: "sandbox",
		Root:     &specs.Root{Readonly: spec.Profile == Strict},
		Process: &specs.Process{
			Args: append([]string{engine.RunnerPath}, wire.VerbInit.Command(&wire.InitArgs{Lease: spec.Lease, User: spec.User.UID})...),

			Cwd:             "/",
			Env:             []string{"PATH=" + standardPath},
			NoNewPrivileges: true,
			OOMScoreAdj:     &oom,
			Capabilities:    &specs.LinuxCapabilities{Bounding: capabilities(spec.Profile)},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: wire.OpenFiles, Hard: 16384},
				{Type: "RLIMIT_CORE"},
				{Type: "RLIMIT_MEMLOCK", Soft: 64 << 10, Hard: 64 << 10},
				{Type: "RLIMIT_STACK", Soft: 8 << 20, Hard: 64 << 20},
				// The kernel counts per uid, over all containers. What is above this limit
				// remains for processes of the same uid on the engine's machine.
				{Type: "RLIMIT_SIGPENDING", Soft: 4096, Hard: 4096},
			},
		},
		Mounts: mounts,
		Linux: &specs.Linux{
			Seccomp:       seccomp(spec.Profile),
			MaskedPaths:   maskedPaths,
			ReadonlyPaths: readonlyPaths,
			Sysctl:        sysctls(limits),
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &limits.Memory, Swap: &limits.Memory, Swappiness: &swappiness},
				CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
				Pids:   &specs.LinuxPids{Limit: &limits.Pids},
			},
		},
	}
}

// mounts returns the mounts that are in memory.
func mounts(spec Spec) []specs.Mount {
	tmpfs := func(at, options string) specs.Mount {
		return specs.Mount{Type: "tmpfs", Destination: at, Options: strings.Split("rw,nosuid,nodev,"+options, ",")}
	}
	all := []specs.Mount{
		tmpfs("/tmp", fmt.Sprintf("exec,size=%d,nr_inodes=200k,mode=1777", spec.Limits.Tmp)),
		tmpfs("/run", "noexec,size=16m,mode=755"),
	}
	if spec.Profile == Strict && !spec.HomeInside && !spec.mountsAt(strictHome) {
		all = append(all, tmpfs(strictHome, fmt.Sprintf("exec,size=%d,nr_inodes=200k,mode=700,uid=%d,gid=%d", spec.Limits.Home, spec.User.UID, spec.User.GID)))
		all = append(all, spec.wayTo(strictHome, tmpfs)...)
	}
	return all
}

// quarter returns a quarter of the memory in whole MiB, at most 512 MiB. It is the default
// limit for files and objects that count as memory and outlive their processes. If they
// could use all memory, a session could not even start a command to remove them.
func quarter(memory int64) int64 {
	return min(512, max(1, memory>>20/4)) << 20
}

// newID returns a session id: a UUID of version 7, which sorts by time.
func newID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}
