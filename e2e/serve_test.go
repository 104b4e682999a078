package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// served is a server, as a client starts one.
type served struct {
	cmd    *exec.Cmd
	home   string
	stderr *lockedBuffer
}

// lockedBuffer keeps what a process says while others look at it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// server prepares a server in a home of its own.
func server(t *testing.T, environ []string, args ...string) *served {
	t.Helper()
	s := &served{home: t.TempDir(), stderr: &lockedBuffer{}}
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(built, "sandboxbash"), append([]string{"serve"}, args...)...)
	s.cmd.Env = append(append(os.Environ(), "HOME="+s.home, "XDG_CONFIG_HOME="+s.home, "XDG_STATE_HOME="+s.home, "TMPDIR="+s.home, "SANDBOXBASH_IMAGE=host"), environ...)
	s.cmd.Dir = t.TempDir()
	s.cmd.Stderr = s.stderr
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("standard error of the server:\n%s", s.stderr.String())
		}
	})
	return s
}

// transport starts the server for a client. It gives it longer to end than the 5 s after which
// the SDK sends a signal: then the end would be another one.
func (s *served) transport() *mcp.CommandTransport {
	return &mcp.CommandTransport{Command: s.cmd, TerminateDuration: time.Minute}
}

// sessions are the ids of the sessions that the server owns.
func (s *served) sessions(t *testing.T) []string {
	t.Helper()
	var all []struct{ ID, Owner string }
	if err := json.Unmarshal([]byte(sandboxbash(t, s.home, "session", "ls", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	var mine []string
	for _, one := range all {
		if strings.Contains(one.Owner, fmt.Sprintf("/%d/", s.cmd.Process.Pid)) {
			mine = append(mine, one.ID)
		}
	}
	return mine
}

// gone waits until nothing is left of sessions.
func gone(t *testing.T, ids ...string) {
	t.Helper()
	var names []string
	for _, id := range ids {
		names = append(names, "sandboxbash-"+id, "sandboxbash-"+id+"-jobs", "sandboxbash-"+id+"-kept")
	}
	var left []string
	for deadline := time.Now().Add(settle); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if left = engineThings(names); len(left) == 0 {
			return
		}
	}
	t.Errorf("left behind: %q", left)
}

// TestServeEnds ends servers in the middle of things.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	needEngine(t)
	run := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo begun; sleep 4781 & sleep 4782"}}}`
	for name, end := range map[string]func(*rpc){
		"the input ends": func(r *rpc) { r.end() },
		"interrupted": func(r *rpc) {
			_ = r.cmd.Process.Signal(os.Interrupt)
			_ = r.cmd.Wait()
		},
	} {
		r := startRPC(t, nil)
		r.send(run)
		r.until(`"text":"begun\n"`)
		ids := r.sessions(t)
		if len(ids) != 1 {
			t.Fatalf("%s: %d sessions", name, len(ids))
		}
		start := time.Now()
		end(r)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: the server took %v to end", name, took)
		}
		gone(t, ids...)
	}
}

// TestServeKilled kills a server that can clean up nothing: its session ends by
// itself, and the next one who starts a session removes what is left of it.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	needEngine(t)
	r := startRPC(t, nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo begun; sleep 4791"}}}`)
	r.until(`"text":"begun\n"`)
	ids := r.sessions(t)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*exec.ExitError](r.cmd.Wait()); !ok {
		t.Error("the server was not killed")
	}
	for deadline := time.Now().Add(45 * time.Second); time.Now().Before(deadline) && len(engineThings([]string{"sandboxbash-" + ids[0]})) > 0; time.Sleep(time.Second) {
		sandboxbash(t, r.home, "session", "reap")
	}
	gone(t, ids...)
}

// TestServeWarm checks that the first call takes a session that was prepared before,
// and that prepared sessions end with the server.
func TestServeWarm(t *testing.T) {
	t.Parallel()
	needEngine(t)
	r := startRPC(t, []string{"SANDBOXBASH_SESSION_WARM=1"})
	var before []string
	for deadline := time.Now().Add(30 * time.Second); len(before) == 0 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		before = r.sessions(t)
	}
	time.Sleep(10 * time.Second) // it is seen before it is ready, which cannot be seen
	r.send(`{"jsonrpc":"2.0","id":1,"method":"session/info"}`)
	if line := r.until(`"id":1,`); len(before) != 1 || !strings.Contains(line, before[0]) {
		t.Errorf("prepared were %q; the session is %s", before, line)
	}
	var all []string
	for deadline := time.Now().Add(30 * time.Second); len(all) < 2 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all = r.sessions(t)
	}
	if len(all) != 2 {
		t.Errorf("behind the first call there are %d sessions; want its own and another one prepared", len(all))
	}
	r.end()
	gone(t, all...)
}

// TestServeLost removes a session below its server: the next call has another.
func TestServeLost(t *testing.T) {
	t.Parallel()
	needEngine(t)
	s := server(t, nil, "mcp")
	c := connectMCP(t, s.transport())
	c.call(t, t.Context(), "bash", map[string]any{"command": "touch here"})
	ids := s.sessions(t)
	if len(ids) != 1 {
		t.Fatalf("there are %d sessions", len(ids))
	}
	program(t, s.home, "docker", "rm", "-f", "-v", "sandboxbash-"+ids[0])
	text := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if text, _ = c.call(t, t.Context(), "bash", map[string]any{"command": "ls; echo back"}); strings.HasPrefix(text, "back\n") {
			break
		}
	}
	if !strings.HasPrefix(text, "back\n") {
		t.Errorf("after the loss: %q", text)
	}
	lost := ids[0]
	ids = append(ids, s.sessions(t)...)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	// What was in the one that was lost is not.
	sandboxbash(t, s.home, "session", "pull", lost+":here", s.home+"/back/")
	if _, err := os.Stat(s.home + "/back/here"); err != nil {
		t.Error(err)
	}
	sandboxbash(t, s.home, "session", "stop", lost)
	gone(t, ids...)
}

// TestServeLeft has clients go: what they have changed is kept and said, what they have
// not is removed.
func TestServeLeft(t *testing.T) {
	t.Parallel()
	needEngine(t)
	src := t.TempDir()
	if err := os.WriteFile(src+"/a", []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for command, kept := range map[string]bool{"cat a": false, "echo more >>a": true, "rm a; echo text >a": true} {
		s := server(t, nil, "mcp", "--workspace", "copy:"+src)
		c := connectMCP(t, s.transport())
		c.call(t, t.Context(), "bash", map[string]any{"command": command})
		ids := s.sessions(t)
		if len(ids) != 1 {
			t.Fatalf("%q: there are %d sessions", command, len(ids))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if said := strings.Contains(s.stderr.String(), "session pull "+ids[0]+":. DIR"); said != kept {
			t.Errorf("%q: standard error is %q; want it said: %t", command, s.stderr.String(), kept)
		}
		if kept {
			if got := len(engineThings([]string{"sandboxbash-" + ids[0], "sandboxbash-" + ids[0] + "-kept"})); got != 2 {
				t.Errorf("%q: %d things are left; want the workspace and its record", command, got)
			}
			out := t.TempDir()
			sandboxbash(t, s.home, "session", "pull", ids[0]+":a", out)
			sandboxbash(t, s.home, "session", "stop", ids[0])
		}
		gone(t, ids...)
	}
}
