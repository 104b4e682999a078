package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/probe/expect"
)

// patience bounds each program that these tests run.
const patience = 2 * time.Minute

// program runs a program that must succeed, with its own home directory.
func program(t *testing.T, home, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home, "SANDBOXBASH_IMAGE=host")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// sandboxbash runs the binary under test.
func sandboxbash(t *testing.T, home string, args ...string) string {
	t.Helper()
	return program(t, home, filepath.Join(built, "sandboxbash"), args...)
}

// startSession starts a session that ends with the test, and checks that it has
// left nothing then.
func startSession(t *testing.T, home string, flags ...string) string {
	t.Helper()
	id := sandboxbash(t, home, append([]string{"session", "start", "--idle", "5m"}, flags...)...)
	t.Cleanup(func() {
		sandboxbash(t, home, "session", "stop", id)
		if left := engineThings([]string{"sandboxbash-" + id, "sandboxbash-" + id + "-jobs"}); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return id
}

// buildProbe builds the probe for the engine, alone in a directory.
func buildProbe(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := goBuild(dir, "./probe", "GOOS=linux", "GOARCH="+program(t, dir, "docker", "version", "--format", "{{.Server.Arch}}")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestProbe tries from inside what a command must not be able to do, in a session
// of each profile. The weak container is the control: there the same attempts
// must succeed, or their failing in a session proves nothing.
func TestProbe(t *testing.T) {
	t.Parallel()
	needEngine(t)
	dir := buildProbe(t)
	check := func(t *testing.T, column expect.Column, output string) {
		t.Helper()
		for _, wrong := range expect.Check(column, output) {
			t.Error(wrong)
		}
	}
	for _, column := range []expect.Column{expect.Strict, expect.Dev} {
		t.Run(string(column), func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			id := startSession(t, home, "--profile", string(column), "--workspace", "copy:"+dir)
			check(t, column, sandboxbash(t, home, "session", "exec", "--timeout", "60s", id, "./probe all"))
		})
	}
	t.Run("strict, started again", func(t *testing.T) { // the same after the reset of a container
		t.Parallel()
		home := t.TempDir()
		id := startSession(t, home, "--workspace", "copy:"+dir)
		program(t, home, "docker", "restart", "-t", "0", "sandboxbash-"+id)
		check(t, expect.Strict, sandboxbash(t, home, "session", "exec", "--timeout", "60s", id, "./probe all"))
	})
	t.Run("strict, in the background", func(t *testing.T) {
		t.Parallel()
		home := t.TempDir()
		id := startSession(t, home, "--workspace", "copy:"+dir)
		sandboxbash(t, home, "session", "exec", id, "setsid -f sh -c './probe all >all.part 2>&1; mv all.part all'")
		check(t, expect.Strict, sandboxbash(t, home, "session", "exec", "--timeout", "60s", id, "until test -e all; do sleep 0.1; done; cat all"))
	})
	t.Run("weak", func(t *testing.T) {
		t.Parallel()
		home := t.TempDir()
		host := sandboxbash(t, home, "image", "host")
		id := program(t, home, "docker", slices.Concat([]string{"run", "-d"}, expect.WeakFlags(), []string{host, "sleep", "600"})...)
		t.Cleanup(func() { program(t, home, "docker", "rm", "-f", "-v", id) })
		program(t, home, "docker", "cp", filepath.Join(dir, "probe"), id+":/probe")
		check(t, expect.Weak, program(t, home, "docker", "exec", "--user", "0:0", id, "/probe", "all"))
	})
}

// inspected has the fields that section 5 of docker-bench-security checks.
type inspected struct {
	HostConfig struct {
		Privileged, PublishAllPorts, ReadonlyRootfs        bool
		CapAdd, CapDrop, SecurityOpt                       []string
		Binds, Links, VolumesFrom, DNS                     []string
		NetworkMode, PidMode, IpcMode, UTSMode, UsernsMode string
		CgroupParent, CgroupnsMode                         string
		Memory, MemorySwap, PidsLimit, CPUQuota, CPUPeriod int64
		NanoCpus                                           int64
		OomKillDisable                                     bool
		OomScoreAdj                                        int
		Devices, DeviceRequests                            []any
		DeviceCgroupRules                                  []string
		PortBindings, Sysctls                              map[string]any
		RestartPolicy                                      struct{ Name string }
		LogConfig                                          struct{ Type string }
		Ulimits                                            []struct{ Name string }
		MaskedPaths, ReadonlyPaths                         []string
	}
	Config struct {
		User, WorkingDir, StopSignal string
		Env, Entrypoint, Cmd         []string
		Healthcheck                  struct{ Test []string }
		Image                        string
	}
	Mounts []struct {
		Type, Name, Source, Destination, Propagation string
		RW                                           bool
	}
	Image string
}

// TestContainerAsCreated compares a session's container, by the engine's word,
// with docker-bench-security's section 5 and the threat model's table.
func TestContainerAsCreated(t *testing.T) {
	t.Parallel()
	needEngine(t)
	for _, profile := range []string{"strict", "dev"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			id := startSession(t, home, "--profile", profile)
			var all []inspected
			if err := json.Unmarshal([]byte(program(t, home, "docker", "inspect", "sandboxbash-"+id)), &all); err != nil || len(all) != 1 {
				t.Fatalf("docker inspect: %v, %d containers", err, len(all))
			}
			c := all[0]
			h := c.HostConfig
			for _, check := range []struct {
				what string
				ok   bool
			}{
				{"5.3 capabilities are dropped", slices.Equal(h.CapDrop, []string{"ALL"})},
				{"5.4 not privileged", !h.Privileged},
				{"5.5, 5.20, 5.31 no mount of the host", len(h.Binds) == 0 && len(h.VolumesFrom) == 0},
				{"5.7, 5.8 no ports", len(h.PortBindings) == 0 && !h.PublishAllPorts},
				{"5.9 no network", h.NetworkMode == "none" && len(h.Links) == 0},
				{"5.10 memory", h.Memory == 2<<30 && h.MemorySwap == h.Memory},
				{"5.11 cpus", h.CPUQuota > 0 || h.NanoCpus > 0},
				{"5.12 read-only root", h.ReadonlyRootfs == (profile == "strict")},
				{"5.14 no restarts", h.RestartPolicy.Name == "no" || h.RestartPolicy.Name == ""},
				{"5.15, 5.16, 5.20, 5.30 namespaces of its own", h.PidMode == "" && h.IpcMode != "host" && h.UTSMode == "" && h.UsernsMode == "" && h.CgroupnsMode == "private"},
				{"5.17 no devices", len(h.Devices) == 0 && len(h.DeviceRequests) == 0 && len(h.DeviceCgroupRules) == 0},
				{"5.18 limits", len(h.Ulimits) >= 4},
				{"5.21, 5.25 seccomp, no new privileges", hasSecurity(h.SecurityOpt)},
				{"5.24 no parent cgroup", h.CgroupParent == ""},
				{"5.26 the image's health check is off", slices.Equal(c.Config.Healthcheck.Test, []string{"NONE"})},
				{"5.27 an image ID, not a tag", strings.HasPrefix(c.Config.Image, "sha256:") && c.Config.Image == c.Image},
				{"5.28 pids", h.PidsLimit == map[string]int64{"strict": 512, "dev": 4096}[profile]},
				{"OOM", !h.OomKillDisable && h.OomScoreAdj == 500},
				{"sysctls of its own namespaces alone", namespaced(h.Sysctls)},
				{"nothing is logged", h.LogConfig.Type == "none"},
				{"our program, and nothing of the image", slices.Contains(slices.Concat(c.Config.Entrypoint, c.Config.Cmd), "init") && c.Config.Entrypoint[0] == "/.sandboxbash/runner"},
				{"uid 0 in /", (c.Config.User == "0:0" || c.Config.User == "0") && c.Config.WorkingDir == "/" && c.Config.StopSignal == "SIGTERM"},
				{"masked", slices.Contains(h.MaskedPaths, "/proc/kcore") && slices.Contains(h.MaskedPaths, "/proc/interrupts") && slices.Contains(h.ReadonlyPaths, "/proc/sys")},
			} {
				if !check.ok {
					t.Errorf("not so: %s", check.what)
				}
			}
			for _, env := range c.Config.Env {
				if !strings.HasPrefix(env, "PATH=") {
					t.Errorf("the container's environment has %q", env)
				}
			}
			// Programs come from a volume only where the engine's storage is slow.
			writable := map[string]bool{"/.sandboxbash": false, "/usr": false, "/workspace": true, "/run/jobs": true}
			if profile == "dev" {
				delete(writable, "/usr")
			}
			for _, m := range c.Mounts {
				if want, ok := writable[m.Destination]; m.Type != "volume" || !ok || m.RW != want {
					t.Errorf("mounted: %+v", m)
				}
			}
		})
	}
}

// namespaced reports whether there are settings of the kernel, and each is one of the
// container's own namespaces.
func namespaced(sysctls map[string]any) bool {
	for name := range sysctls {
		own := name == "net.ipv4.ip_unprivileged_port_start" || strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || strings.HasPrefix(name, "fs.mqueue.")
		if !own {
			return false
		}
	}
	return len(sysctls) > 0
}

// hasSecurity reports whether there is a profile of our own and no way to more
// privileges.
func hasSecurity(opts []string) bool {
	own := slices.ContainsFunc(opts, func(o string) bool {
		return strings.HasPrefix(o, "seccomp=") && strings.Contains(o, "SCMP_ACT_ERRNO") && !strings.Contains(o, `"io_uring_setup"`)
	})
	unconfined := slices.ContainsFunc(opts, func(o string) bool { return strings.Contains(o, "unconfined") })
	return own && !unconfined && (slices.Contains(opts, "no-new-privileges") || slices.Contains(opts, "no-new-privileges:true") || slices.Contains(opts, "no-new-privileges=true"))
}
