package docker

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// shadowBytes is the size of the tmpfs that lies over a VOLUME of the image.
const shadowBytes = 64 << 20

// defaultPeriod is the kernel's CFS period in microseconds.
const defaultPeriod = 100_000

// translate says in Docker's words what shape a container has. It is a closed
// translation: a field that is not read here cannot reach the engine.
func translate(op string, want Container, image imageDefaults) (*container.Config, *container.HostConfig, error) {
	p, linux := want.Spec.Process, want.Spec.Linux
	if p == nil || len(p.Args) == 0 {
		return nil, nil, invalid(op, "it has no program to run")
	}
	if linux == nil {
		linux = &specs.Linux{}
	}
	dir := p.Cwd
	if dir == "" {
		dir = "/"
	}
	cfg := &container.Config{
		Hostname:   want.Spec.Hostname,
		User:       user(p.User),
		Env:        environment(p.Env, image),
		Image:      string(want.Image),
		WorkingDir: dir,
		// With an entrypoint of our own the engine takes no CMD from the image.
		Entrypoint:  slices.Clone(p.Args),
		Cmd:         []string{},
		Labels:      want.Labels,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM", // PID 1 ends at once, and its exit code says that it was stopped
	}
	off := false
	host := &container.HostConfig{
		LogConfig:     container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:       []string{"ALL"},
		CapAdd:        capabilities(p.Capabilities),
		CgroupnsMode:  container.CgroupnsModePrivate,
		IpcMode:       container.IPCModePrivate,
		ShmSize:       want.ShmBytes,
		Runtime:       want.Runtime,
		MaskedPaths:   linux.MaskedPaths,
		ReadonlyPaths: linux.ReadonlyPaths,
		Sysctls:       linux.Sysctl,
		Init:          &off, // PID 1 is ours
	}
	if p.OOMScoreAdj != nil {
		host.OomScoreAdj = *p.OOMScoreAdj
	}
	if want.Spec.Root != nil {
		host.ReadonlyRootfs = want.Spec.Root.Readonly
	}
	if want.DNS != nil {
		host.DNS, host.DNSSearch, host.DNSOptions = want.DNS.Servers, want.DNS.Search, want.DNS.Options
	}
	host.Resources = resources(linux.Resources)
	for _, limit := range p.Rlimits {
		host.Ulimits = append(host.Ulimits, &units.Ulimit{
			Name: strings.ToLower(strings.TrimPrefix(limit.Type, "RLIMIT_")), Soft: rlimit(limit.Soft), Hard: rlimit(limit.Hard),
		})
	}
	var err error
	if host.NetworkMode, err = networkMode(op, want.Network); err != nil {
		return nil, nil, err
	}
	if host.SecurityOpt, err = securityOpts(op, p, linux.Seccomp); err != nil {
		return nil, nil, err
	}
	if err := addMounts(op, host, want.Spec.Mounts); err != nil {
		return nil, nil, err
	}
	shadow(host, image.volumes)
	if image.podman {
		if err := forPodman(op, host); err != nil {
			return nil, nil, err
		}
	}
	return cfg, host, nil
}

// user is always numeric: looking a name up makes the engine read a file of the
// container.
func user(u specs.User) string {
	return strconv.FormatUint(uint64(u.UID), 10) + ":" + strconv.FormatUint(uint64(u.GID), 10)
}

// environment is the wanted one, and takes back what the image would add to it:
// a name alone unsets it. Podman knows no unsetting, there it becomes empty.
func environment(want []string, image imageDefaults) []string {
	out := slices.Clone(want)
	has := map[string]bool{}
	for _, kv := range want {
		name, _, _ := strings.Cut(kv, "=")
		has[name] = true
	}
	for _, name := range image.env {
		if name == "" || has[name] {
			continue
		}
		has[name] = true
		if image.podman {
			name += "="
		}
		out = append(out, name)
	}
	return out
}

func capabilities(c *specs.LinuxCapabilities) []string {
	if c == nil {
		return nil
	}
	var out []string
	for _, name := range c.Bounding {
		out = append(out, strings.TrimPrefix(name, "CAP_"))
	}
	return out
}

func networkMode(op, name string) (container.NetworkMode, error) {
	switch name {
	case "", "none":
		return "none", nil
	case "bridge":
		return "bridge", nil
	}
	return "", invalid(op, "network %q: it can be none or bridge", name)
}

func resources(r *specs.LinuxResources) container.Resources {
	var out container.Resources
	if r == nil {
		return out
	}
	if m := r.Memory; m != nil {
		if m.Limit != nil {
			out.Memory = *m.Limit
		}
		if m.Swap != nil {
			out.MemorySwap = *m.Swap
		}
		if m.Swappiness != nil {
			n := int64(*m.Swappiness)
			out.MemorySwappiness = &n
		}
	}
	if cpu := r.CPU; cpu != nil && cpu.Quota != nil && *cpu.Quota > 0 {
		period := int64(defaultPeriod)
		if cpu.Period != nil && *cpu.Period > 0 {
			period = int64(*cpu.Period)
		}
		out.NanoCPUs = *cpu.Quota * 1_000_000_000 / period
	}
	if r.Pids != nil {
		out.PidsLimit = r.Pids.Limit
	}
	return out
}

// rlimit keeps "unlimited", which OCI writes as the largest number and Docker as -1.
func rlimit(n uint64) int64 {
	if n > 1<<63-1 {
		return -1
	}
	return int64(n)
}

func securityOpts(op string, p *specs.Process, profile *specs.LinuxSeccomp) ([]string, error) {
	var out []string
	if p.NoNewPrivileges {
		out = append(out, "no-new-privileges")
	}
	if profile == nil {
		return out, nil
	}
	if profile.ListenerPath != "" {
		return nil, invalid(op, "seccomp: Docker's profiles have no listener")
	}
	// Docker's profile is OCI's under the same names. Engines that do not know
	// defaultErrnoRet or errnoRet ignore them and answer EPERM: still a refusal.
	text, err := json.Marshal(profile)
	if err != nil {
		return nil, invalid(op, "seccomp: %w", err)
	}
	return append(out, "seccomp="+string(text)), nil
}

func addMounts(op string, host *container.HostConfig, mounts []specs.Mount) error {
	for _, m := range mounts {
		if !path.IsAbs(m.Destination) {
			return invalid(op, "mount %q: its place in the container must be absolute", m.Destination)
		}
		if m.Type == "tmpfs" {
			if host.Tmpfs == nil {
				host.Tmpfs = map[string]string{}
			}
			host.Tmpfs[path.Clean(m.Destination)] = strings.Join(m.Options, ",")
			continue
		}
		one, err := storage(op, m)
		if err != nil {
			return err
		}
		host.Mounts = append(host.Mounts, one)
	}
	return nil
}

// storage translates a volume or a bind.
func storage(op string, m specs.Mount) (mount.Mount, error) {
	out := mount.Mount{Type: mount.Type(m.Type), Source: m.Source, Target: path.Clean(m.Destination)}
	nocopy := false
	for _, opt := range m.Options {
		switch {
		case opt == "ro":
			out.ReadOnly = true
		case opt == "nocopy" && m.Type == "volume":
			nocopy = true
		default:
			return out, invalid(op, "mount %s: a %s knows no option %q", m.Destination, m.Type, opt)
		}
	}
	if m.Source == "" {
		return out, invalid(op, "mount %s: it has no source", m.Destination)
	}
	switch m.Type {
	case "volume":
		out.VolumeOptions = &mount.VolumeOptions{NoCopy: nocopy}
	case "bind":
		out.BindOptions = &mount.BindOptions{Propagation: mount.PropagationRPrivate}
	default:
		return out, invalid(op, "mount %s: type %q: it can be tmpfs, volume or bind", m.Destination, m.Type)
	}
	return out, nil
}

// shadow lays a tmpfs over each VOLUME of the image that no mount covers, as
// writable as the root is. The engine would make an anonymous volume there,
// without a limit, that outlives a container removed by other hands.
func shadow(host *container.HostConfig, volumes []string) {
	covered := map[string]bool{}
	for _, m := range host.Mounts {
		covered[m.Target] = true
	}
	for dir := range host.Tmpfs {
		covered[dir] = true
	}
	for _, dir := range volumes {
		target := path.Clean("/" + dir)
		if covered[target] {
			continue
		}
		covered[target] = true
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeTmpfs, Target: target, ReadOnly: host.ReadonlyRootfs,
			TmpfsOptions: &mount.TmpfsOptions{SizeBytes: shadowBytes},
		})
	}
}
