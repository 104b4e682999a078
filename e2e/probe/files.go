//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// files are kernel interfaces in the file system, and where writing works.
func files() []attempt {
	var out []attempt
	for _, f := range []struct{ name, path string }{
		{"sysrq-trigger", "/proc/sysrq-trigger"},
		{"core_pattern", "/proc/sys/kernel/core_pattern"},
		{"modprobe", "/proc/sys/kernel/modprobe"},
		{"drop_caches", "/proc/sys/vm/drop_caches"},
		{"overcommit", "/proc/sys/vm/overcommit_memory"},
		{"irq", "/proc/irq/default_smp_affinity"},
		{"binfmt_misc", "/proc/sys/fs/binfmt_misc/register"},
		{"uevent_helper", "/sys/kernel/uevent_helper"},
		{"hugepage", "/sys/kernel/mm/transparent_hugepage/enabled"},
		{"power", "/sys/power/state"},
	} {
		out = append(out, attempt{"E10", "write-" + f.name, opening(unix.O_WRONLY, f.path)})
	}
	for _, f := range []struct{ name, path string }{
		{"kcore", "/proc/kcore"},
		{"keys", "/proc/keys"},
		{"timer_list", "/proc/timer_list"},
		{"sched_debug", "/proc/sched_debug"},
		{"interrupts", "/proc/interrupts"},
		{"latency_stats", "/proc/latency_stats"},
		{"scsi", "/proc/scsi"},
		{"acpi", "/proc/acpi"},
		{"firmware", "/sys/firmware"},
		{"powercap", "/sys/devices/virtual/powercap"},
		{"thermal_throttle", "/sys/devices/system/cpu/cpu0/thermal_throttle"},
	} {
		out = append(out, attempt{"E11", "read-" + f.name, func() string { return reading(f.path) }})
	}
	for _, f := range []struct{ name, file string }{
		{"release_agent", "release_agent"},
		{"notify_on_release", "notify_on_release"},
		{"devices.allow", "devices.allow"},
		{"procs", "cgroup.procs"},
		{"memory-limit", "memory.limit_in_bytes"},
		{"memory-max", "memory.max"},
	} {
		out = append(out, attempt{"E12", "cgroup-write-" + f.name, func() string {
			return everyCgroup(func(dir string) error {
				fd, err := unix.Open(filepath.Join(dir, f.file), unix.O_WRONLY|unix.O_CLOEXEC, 0)
				if err == nil {
					_ = unix.Close(fd)
				}
				return err
			})
		}})
	}
	out = append(out,
		attempt{"E12", "cgroup-mkdir", func() string {
			return everyCgroup(func(dir string) error {
				path := filepath.Join(dir, "sandboxbash-probe")
				err := unix.Mkdir(path, 0o700)
				if err == nil {
					_ = unix.Rmdir(path)
				}
				return err
			})
		}},
		attempt{"E12", "cgroup-path", cgroupPath})
	for _, dir := range []string{"/", "/etc", "/usr", "/usr/bin", "/.sandboxbash", "/sys", "/proc", "/tmp", "/dev/shm", "/workspace"} {
		out = append(out, attempt{"P2", "create-in-" + dir, func() string { return creating(dir) }})
	}
	return append(out,
		attempt{"P2", "create-in-home", func() string {
			home, err := os.UserHomeDir()
			if err != nil {
				return "no_home"
			}
			return creating(home)
		}},
		attempt{"P2", "write-runner", opening(unix.O_WRONLY, "/.sandboxbash/runner")},
		attempt{"S1", "secret-names", secretNames},
		attempt{"S7", "credential-files", credentialFiles})
}

// reading reads a byte of a file, or an entry of a directory.
func reading(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return outcome(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return outcome(err)
	}
	if info.IsDir() {
		_, err = f.Readdirnames(1)
	} else {
		_, err = f.Read(make([]byte, 1))
	}
	switch {
	case errors.Is(err, io.EOF):
		return "empty"
	case err != nil:
		return outcome(err)
	}
	return "readable"
}

// creating makes a file and removes it.
func creating(dir string) string {
	f, err := os.CreateTemp(dir, "probe")
	if err != nil {
		return outcome(err)
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	return allowed
}

// everyCgroup tries in each cgroup directory, of version 1 and 2, and returns
// "allowed" if one try succeeded, and else how the last one failed. Where there
// is no such file anywhere that is ENOENT.
func everyCgroup(try func(dir string) error) string {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*")
	const top = "/sys/fs/cgroup" // a cgroup in version 2; in version 1 an ordinary tmpfs
	if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err == nil {
		dirs = append(dirs, top)
	}
	last := "ENOENT"
	for _, dir := range dirs {
		switch got := outcome(try(dir)); got {
		case allowed:
			return allowed
		case "ENOENT", "ENOTDIR":
		default:
			last = got
		}
	}
	return last
}

// cgroupPath reports whether the place in the host's hierarchy can be seen.
func cgroupPath() string {
	table, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return outcome(err)
	}
	for line := range strings.Lines(string(table)) {
		_, path, ok := strings.Cut(strings.TrimSpace(line), ":/")
		if ok && path != "" {
			return "shown"
		}
	}
	return "root"
}

// secretNames lists the environment variables that are named like secrets.
func secretNames() string {
	var found []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		for _, part := range []string{"SECRET", "TOKEN", "KEY", "PASSW", "CREDENTIAL", "CANARY", "GITHUB_", "ACTIONS_", "AWS_", "DOCKER_", "SSH_AUTH_SOCK"} {
			if strings.Contains(strings.ToUpper(name), part) {
				found = append(found, name)
			}
		}
	}
	return list(found)
}

// credentialFiles lists the usual places of credentials that can be read.
func credentialFiles() string {
	homes := []string{"/root", "/home/agent"}
	if home, err := os.UserHomeDir(); err == nil {
		homes = append(homes, home)
	}
	var found []string
	for _, home := range homes {
		for _, name := range []string{".docker/config.json", ".aws/credentials", ".npmrc", ".netrc", ".git-credentials", ".ssh/id_rsa", ".ssh/id_ed25519", ".kube/config", ".config/gcloud"} {
			if _, err := os.Stat(filepath.Join(home, name)); err == nil {
				found = append(found, filepath.Join(home, name))
			}
		}
	}
	for _, path := range []string{"/etc/shadow", "/run/secrets", "/var/run/secrets/kubernetes.io"} {
		if reading(path) == "readable" {
			found = append(found, path)
		}
	}
	return list(found)
}
