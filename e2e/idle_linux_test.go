package e2e

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/activity"
	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// Nothing works while nothing happens. For so long nothing does, and then the
// processes of ours that are there, on this machine and in the session, may have
// been woken and have used processor time so often and so much.
const (
	idleTime  = 10 * time.Second
	idleWakes = 5 // a second
	idleCPU   = 0.01
	// restTime is for what follows a start: runners that are opened ahead, and the
	// Go runtime's own collecting of memory. A loaded machine may take up to mostRest
	// until nothing is made for so long.
	restTime = 4 * time.Second
	mostRest = time.Minute
)

// idler is what must be idle: processes of this machine and a session.
type idler struct {
	pids    []int
	session string
}

// init returns the pid on this machine of the session's PID 1.
func (i idler) init(t *testing.T) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "inspect", "--format", "{{.State.Pid}}", "sandboxbash-"+i.session).Output()
	if err != nil {
		t.Fatalf("docker inspect: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// stays checks that the idle processes use hardly any processor time.
func (i idler) stays(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(mostRest); ; {
		used, err := activity.Watch(t.Context(), restTime, i.init(t), i.pids...)
		if err != nil {
			t.Fatal(err)
		}
		if used.Made == 0 || time.Now().After(deadline) {
			break
		}
	}
	used, err := activity.Watch(t.Context(), idleTime, i.init(t), i.pids...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("in %s: %d wake-ups (%d switches), %s of processor time, %d processes and threads made",
		used.Time, used.Wakes, used.Switches, used.CPU, used.Made)
	if rate := float64(used.Wakes) / used.Time.Seconds(); rate > idleWakes {
		t.Errorf("%.1f wake-ups a second; want at most %d", rate, idleWakes)
	}
	if share := used.CPU.Seconds() / used.Time.Seconds(); share > idleCPU {
		t.Errorf("%.2f %% of a processor; want at most %.0f %%", 100*share, 100*idleCPU)
	}
	if used.Made != 0 {
		t.Errorf("%d processes or threads were made; want none", used.Made)
	}
}

// holderOf returns the process that keeps a terminal.
func holderOf(t *testing.T, terminal string) int {
	t.Helper()
	for _, p := range processes.All() {
		if strings.Contains(p.Command(), terminal) && strings.Contains(p.Command(), "sandboxbash") {
			return p.PID
		}
	}
	t.Fatalf("no process keeps the terminal %s", terminal)
	return 0
}

// background starts the program, which is ended with the test.
func background(t *testing.T, args ...string) int {
	t.Helper()
	cmd := plainly(context.WithoutCancel(t.Context()), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestIdle(t *testing.T) {
	t.Parallel()
	needEngine(t)
	if _, err := exec.LookPath("nsenter"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs nsenter and root, to count what begins in a container")
	}
	for name, begin := range map[string]func(*testing.T) idler{
		"session": func(t *testing.T) idler {
			t.Helper()
			return idler{session: newSession(t)}
		},
		"serve mcp": func(t *testing.T) idler {
			t.Helper()
			s := server(t, []string{"SANDBOXBASH_AGENT_ASYNC=true"}, "mcp")
			c := connectMCP(t, s.transport())
			t.Cleanup(func() { _ = c.Close() })
			if text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": "echo hi"}); !strings.HasPrefix(text, "hi\n") {
				t.Fatalf("echo: %q", text)
			}
			return idler{pids: []int{s.cmd.Process.Pid}, session: s.sessions(t)[0]}
		},
		"serve rpc": func(t *testing.T) idler {
			t.Helper()
			r := startRPC(t, []string{"SANDBOXBASH_AGENT_ASYNC=true"})
			t.Cleanup(r.end)
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo done"}}}`)
			r.until(`done`)
			r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"exec sleep 600","async":true}}}`)
			r.until(`bg_1`)
			return idler{pids: []int{r.cmd.Process.Pid}, session: r.sessions(t)[0]}
		},
		"terminal": func(t *testing.T) idler {
			t.Helper()
			id := newSession(t)
			pty := strings.TrimSpace(says(t, "pty", "start", id, "--", "cat"))
			t.Cleanup(func() { _ = plainly(context.WithoutCancel(t.Context()), "pty", "stop", pty).Run() })
			return idler{pids: []int{holderOf(t, pty)}, session: id}
		},
		"job, its watcher and its reader": func(t *testing.T) idler {
			t.Helper()
			id := newSession(t)
			says(t, "session", "exec", "--background", id, "exec sleep 600")
			wait := background(t, "job", "wait", "--session", id, "bg_1")
			follow := background(t, "job", "logs", "-f", "--session", id, "bg_1")
			return idler{pids: []int{wait, follow}, session: id}
		},
		"attached terminal": func(t *testing.T) idler {
			t.Helper()
			id := newSession(t)
			p := sit(t, "session", "attach", id)
			p.types("echo rea''dy\r")
			p.sees("ready")
			return idler{pids: []int{p.cmd.Process.Pid}, session: id}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin(t).stays(t)
		})
	}
}
