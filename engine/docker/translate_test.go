package docker

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

func fullShape() Container {
	return Container{
		Name: "n", Image: "sha256:1", Labels: map[string]string{"k": "v"}, Network: "none", Runtime: "runsc", ShmBytes: 64 << 20,
		DNS: &engine.DNS{Servers: []string{"127.0.0.1"}, Search: []string{"."}, Options: []string{"timeout:1"}},
		Spec: specs.Spec{
			Hostname: "sandbox", Root: &specs.Root{Readonly: true},
			Process: &specs.Process{
				Args: []string{"/.sandboxbash/runner", "init"}, Env: []string{"PATH=/bin"}, Cwd: "/", NoNewPrivileges: true,
				OOMScoreAdj: new(500), Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL", "CAP_SETUID"}},
				Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 4096, Hard: 16384}, {Type: "RLIMIT_CORE"}, {Type: "RLIMIT_STACK", Soft: 1, Hard: 1<<64 - 1}},
			},
			Mounts: []specs.Mount{
				{Type: "tmpfs", Destination: "/tmp", Options: []string{"rw", "exec", "size=1m"}},
				{Type: "volume", Source: "vol", Destination: "/.sandboxbash", Options: []string{"ro", "nocopy"}},
				{Type: "bind", Source: "/home/me/src", Destination: "/home/me/src"},
			},
			Linux: &specs.Linux{
				MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
				Sysctl: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
				Resources: &specs.LinuxResources{
					Memory: &specs.LinuxMemory{Limit: new(int64(2 << 30)), Swap: new(int64(2 << 30)), Swappiness: new(uint64(0))},
					CPU:    &specs.LinuxCPU{Quota: new(int64(150_000))}, Pids: &specs.LinuxPids{Limit: new(int64(512))},
				},
				Seccomp: &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: new(uint(1)), Syscalls: []specs.LinuxSyscall{
					{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: new(uint(38))},
				}},
			},
		},
	}
}

// The create request as a whole: a field that appears or vanishes shows.
func TestTranslateGolden(t *testing.T) {
	t.Parallel()
	image := imageDefaults{env: []string{"PATH", "LD_PRELOAD"}, volumes: []string{"/.sandboxbash/", "/data", "/tmp"}}
	cfg, host, err := translate("create", fullShape(), image)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "create.json", map[string]any{"Config": cfg, "HostConfig": host})
}

func TestTranslatePodmanEnvironment(t *testing.T) {
	t.Parallel()
	got := environment([]string{"A=1"}, imageDefaults{env: []string{"A", "B", "B"}, podman: true})
	if diff := cmp.Diff([]string{"A=1", "B="}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTranslateRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Container){
		"no process":       func(c *Container) { c.Spec.Process = nil },
		"no program":       func(c *Container) { c.Spec.Process.Args = nil },
		"host network":     func(c *Container) { c.Network = "host" },
		"shared network":   func(c *Container) { c.Network = "container:x" },
		"unknown mount":    func(c *Container) { c.Spec.Mounts[1].Type = "overlay" },
		"unknown option":   func(c *Container) { c.Spec.Mounts[2].Options = []string{"rshared"} },
		"nocopy of a bind": func(c *Container) { c.Spec.Mounts[2].Options = []string{"nocopy"} },
		"no source":        func(c *Container) { c.Spec.Mounts[1].Source = "" },
		"relative target":  func(c *Container) { c.Spec.Mounts[0].Destination = "tmp" },
		"listener":         func(c *Container) { c.Spec.Linux.Seccomp.ListenerPath = "/x" },
	} {
		c := fullShape()
		spoil(&c)
		if _, _, err := translate("create", c, imageDefaults{}); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("translate(%s) = %v; want ErrInvalid", name, err)
		}
	}
}
