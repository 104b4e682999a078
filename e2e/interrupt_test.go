package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The user's SIGINT reaches a command without a terminal as SIGINT. A command that ignores it
// is killed like any other.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	needEngine(t)
	for _, tt := range []struct {
		name, script string
		says         []string // behind ready, in order
	}{
		{"heeds SIGINT", `trap 'echo int; exit 7' INT; trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done`, []string{"int"}},
		{"a child heeds it", `trap 'echo term; exit' TERM; (trap 'echo child int; exit' INT; echo ready; sleep 60; :)`, []string{"child int"}},
		{"heeds SIGTERM alone", `trap 'echo int' INT; trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.05; done`, []string{"int", "term"}},
		{"heeds neither", `trap 'echo int' INT; trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done`, []string{"int", "term"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			id := startSession(t, home)
			cmd := exec.CommandContext(t.Context(), filepath.Join(built, "sandboxbash"), "session", "exec", "--timeout", "60s", id, tt.script)
			cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			var said []string
			for lines.Scan() {
				if lines.Text() == "ready" {
					time.Sleep(100 * time.Millisecond) // until it sleeps
					if err := cmd.Process.Signal(os.Interrupt); err != nil {
						t.Fatal(err)
					}
					continue
				}
				said = append(said, lines.Text())
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("exit status %d; want 130", code)
			}
			if got, want := strings.Join(said, ","), strings.Join(tt.says, ","); got != want {
				t.Errorf("it said %q; want %q", got, want)
			}
		})
	}
}
