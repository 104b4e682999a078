package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLeftovers is the control of every script's leak check: it finds a session
// that was not stopped, its volume, and a process, and removes them.
func TestLeftovers(t *testing.T) {
	needEngine(t)
	p, err := newProxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	work := t.TempDir()
	environ := append(os.Environ(), "DOCKER_HOST=unix://"+p.socket, "XDG_STATE_HOME="+work, "SANDBOXBASH_IMAGE=host")
	start := exec.CommandContext(t.Context(), filepath.Join(built, "sandboxbash"), "session", "start")
	start.Env = environ
	out, err := start.Output()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sleep := exec.CommandContext(ctx, "sleep", "71")
	sleep.Env = append(environ, scriptVariable+"="+work)
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(string(out))
	want := []string{"container sandboxbash-" + id, "volume sandboxbash-" + id, "volume sandboxbash-" + id + "-jobs", ": sleep 71"}
	got := leftovers(p.created(), work, expectedLeft)
	if err := sleep.Wait(); err == nil {
		t.Error("the process has ended by itself; want it killed")
	}
	if len(got) != len(want) {
		t.Fatalf("leftovers() = %q; want %q", got, want)
	}
	for i := range want {
		if !strings.HasSuffix(got[i], want[i]) {
			t.Errorf("leftovers()[%d] = %q; want ...%q", i, got[i], want[i])
		}
	}
	if got := leftovers(p.created(), work, settle); got != nil {
		t.Errorf("leftovers() after it has removed them = %q; want none", got)
	}
}
