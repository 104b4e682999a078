package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var devicesLine = regexp.MustCompile(`(?m)^\d+:devices:(/.+)$`)

// Row L18: a reload of systemd under runc 1.1.3. The container's cgroup loses its devices and
// gets them back. In between no terminal can be opened, and the error has the engine's text.
// Commands without a terminal still run.
func TestDevicesTaken(t *testing.T) {
	t.Parallel()
	s := hereSeat(t)
	id := s.run(t, "session", "start")
	t.Cleanup(func() {
		if _, err := s.try(context.WithoutCancel(t.Context()), "session", "stop", id); err != nil {
			t.Error(err)
		}
	})
	pid, err := s.docker(t.Context(), "inspect", "--format", "{{.State.Pid}}", "sandboxbash-"+id)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	m := devicesLine.FindSubmatch(groups)
	if m == nil {
		t.Skip("the devices of a cgroup of version 2 are a BPF program's, which this cannot change")
	}
	change := func(file string) {
		t.Helper()
		for _, device := range []string{"c 136:* rwm", "c 5:2 rwm"} { // /dev/pts/*, /dev/ptmx
			if err := os.WriteFile(filepath.Join("/sys/fs/cgroup/devices", string(m[1]), file), []byte(device), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}

	change("devices.deny")
	out, err := s.try(t.Context(), "pty", "start", id, "-c", "tty; sleep 60")
	if err == nil || !strings.Contains(err.Error(), "no greeting, but ") || !strings.Contains(err.Error(), "operation not permitted") {
		t.Errorf("a terminal without its devices: %q, %v; want the engine's words", out, err)
	}
	if got := s.run(t, "session", "exec", id, "echo plain"); got != "plain" {
		t.Errorf("a command without a terminal prints %q; want plain", got)
	}
	change("devices.allow")
	if _, err := s.try(t.Context(), "pty", "start", id, "-c", "tty; sleep 60"); err != nil {
		t.Errorf("a terminal with its devices: %v", err)
	}
}
