package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// Labels of a session's container. An image can carry any of them, so they are
// never believed alone: see ours.
const (
	LabelSession = "sandboxbash.session" // the session's id
	labelOwner   = "sandboxbash.owner"   // the process that has made it
	labelLease   = "sandboxbash.lease"   // a duration
	labelCreated = "sandboxbash.created" // RFC 3339, by the creating host's clock
	labelShape   = "sandboxbash.spec"    // JSON
	labelDigest  = "sandboxbash.digest"  // of the whole shape
	labelKey     = "sandboxbash.jobkey"  // what the records of jobs are sealed with
	labelRole    = "sandboxbash.role"    // set by images on what it makes, and on session containers to shadow an image's own
)

const (
	namePrefix   = "sandboxbash-"
	runnerDir    = "/.sandboxbash"
	runnerPath   = runnerDir + "/runner"
	runnerVolume = "sandboxbash-runner-" // and a content hash
	programsDir  = "/usr"                // images.ProgramsDir
)

// serveCommand is the constant command line of every exec of a session.
func serveCommand() []string { return []string{runnerPath, "serve"} }

// containerShape is the whole container of a session.
func containerShape(id string, spec Spec, p provision, l labelSpec, now time.Time) engine.Container {
	c := engine.Container{
		Name: namePrefix + id, Image: p.image.ID, Network: string(spec.Network),
		Runtime: spec.Runtime, ShmBytes: 64 << 20, Spec: ociSpec(spec, p, id),
	}
	c.Labels = map[string]string{
		LabelSession: id,
		labelOwner:   self().String(),
		labelLease:   spec.Lease.String(),
		labelCreated: now.UTC().Format(time.RFC3339Nano),
		labelShape:   l.encode(),
		labelDigest:  digestOf(c.Spec),
		labelKey:     newKey(),
		labelRole:    "session",
	}
	return c
}

// digestOf is over the values of a shape: two equal shapes have the same.
func digestOf(shape specs.Spec) string {
	b, err := json.Marshal(shape)
	if err != nil {
		panic(err) // plain fields only: cannot happen
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// capabilities of PID 1 and the runners. Commands of profile strict have none:
// they drop to another uid.
func capabilities(p Profile) []string {
	caps := []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
	if p == Dev {
		caps = append(caps, "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID")
	}
	return caps
}

// Masked and read-only paths: the lists of all engine versions together, because
// setting the field replaces the engine's own.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

const cpuPeriod = 100_000 // microseconds; the kernel's default CFS period

func ociSpec(spec Spec, p provision, id string) specs.Spec {
	oom := 500 // the container dies before the engine and the host's own
	swappiness := uint64(0)
	quota := int64(math.Round(spec.Limits.CPUs * cpuPeriod))
	period := uint64(cpuPeriod)
	limits := spec.Limits
	return specs.Spec{
		Hostname: "sandbox",
		Root:     &specs.Root{Readonly: spec.Profile == Strict},
		Process: &specs.Process{
			Args:            []string{runnerPath, "init", "--lease", spec.Lease.String()},
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
			},
		},
		Mounts: mounts(spec, p, id),
		Linux: &specs.Linux{
			Seccomp:       seccomp(spec.Profile),
			MaskedPaths:   maskedPaths,
			ReadonlyPaths: readonlyPaths,
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &limits.Memory, Swap: &limits.Memory, Swappiness: &swappiness},
				CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
				Pids:   &specs.LinuxPids{Limit: &limits.Pids},
			},
		},
	}
}

func mounts(spec Spec, p provision, id string) []specs.Mount {
	own := fmt.Sprintf("uid=%d,gid=%d", spec.User.UID, spec.User.GID)
	tmpfs := func(at, options string) specs.Mount {
		return specs.Mount{Type: "tmpfs", Destination: at, Options: strings.Split("rw,nosuid,nodev,"+options, ",")}
	}
	all := []specs.Mount{
		// NoCopy: only a container of our own runner image ever fills this volume.
		{Type: "volume", Source: p.runner, Destination: runnerDir, Options: []string{"ro", "nocopy"}},
		tmpfs("/tmp", "exec,"+tmpfsSize(spec.Limits.Memory)+",nr_inodes=200k,mode=1777"),
		tmpfs("/run", "noexec,size=16m,mode=755"),
		{Type: "volume", Source: namePrefix + id + jobsSuffix, Destination: wire.JobsDir, Options: []string{"nocopy"}},
	}
	if p.programs != "" {
		all = append(all, specs.Mount{Type: "volume", Source: p.programs, Destination: programsDir, Options: []string{"ro", "nocopy"}})
	}
	if spec.Profile == Strict {
		all = append(all, tmpfs("/home/agent", "exec,"+tmpfsSize(spec.Limits.Memory)+",nr_inodes=200k,mode=700,"+own))
	}
	w := spec.Workspace
	if w.Kind == WorkspaceBind {
		m := specs.Mount{Type: "bind", Source: w.Dir, Destination: w.Target}
		if w.ReadOnly {
			m.Options = []string{"ro"}
		}
		return append(all, m)
	}
	return append(all, specs.Mount{Type: "volume", Source: namePrefix + id, Destination: w.Target, Options: []string{"nocopy"}})
}

// tmpfsSize is a quarter of the memory, which such files count as, at most 512 MiB:
// a session whose files have taken all memory could not even remove them.
func tmpfsSize(memory int64) string {
	return fmt.Sprintf("size=%dm", min(512, max(1, memory>>20/4)))
}

// ours reports whether a container is a session of ours and which. An image can
// carry our labels, and anybody can choose a name: it takes both, our
// entrypoint, and our runner mounted read-only where that entrypoint lies.
func ours(c engine.ContainerState) (id string, ok bool) {
	id = c.Labels[LabelSession]
	if !validID(id) || c.Name != namePrefix+id {
		return "", false
	}
	if len(c.Entrypoint) < 2 || c.Entrypoint[0] != runnerPath || c.Entrypoint[1] != "init" {
		return "", false
	}
	for _, m := range c.Mounts {
		if m.Type == "volume" && m.Target == runnerDir && m.ReadOnly && strings.HasPrefix(m.Source, runnerVolume) {
			return id, true
		}
	}
	return "", false
}

// newID returns a session id: a UUID of version 7, which sorts by time.
func newID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}

// validID reports whether id has the form of newID's.
func validID(id string) bool {
	u, err := uuid.Parse(id)
	return err == nil && u.String() == id
}
