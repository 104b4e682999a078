//go:build unix

package holder_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// listen makes the socket of a terminal. Without an answer its holder hangs.
func listen(t *testing.T, dir, id string, answer func(method string) string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, id+holder.SocketSuffix), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if answer != nil {
				answerAll(conn, answer)
			}
			_ = conn.Close()
		}
	}()
	return l
}

func answerAll(conn net.Conn, answer func(method string) string) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var q struct {
			ID     int    `json:"id"`
			Method string `json:"method"`
		}
		if json.Unmarshal(lines.Bytes(), &q) != nil {
			return
		}
		text := answer(q.Method)
		if text == "" {
			return
		}
		if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", q.ID, text); err != nil {
			return
		}
	}
}

func TestTerminalDir(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	long := filepath.Join(dir, strings.Repeat("x", 80))
	for _, test := range []struct {
		environ []string
		want    string
		wrong   string
	}{
		{[]string{"XDG_RUNTIME_DIR=" + dir, "HOME=/home/me"}, dir + "/sandboxbash/pty", ""},
		{[]string{"XDG_RUNTIME_DIR=" + dir + "/none", "XDG_STATE_HOME=/state"}, "/state/sandboxbash/pty", ""},
		{[]string{"XDG_RUNTIME_DIR=relative", "XDG_STATE_HOME=/state"}, "/state/sandboxbash/pty", ""},
		{[]string{"XDG_STATE_HOME=" + long}, "", "the system takes 103"},
		{nil, "", "there is no directory"},
	} {
		got, err := holder.Dir(core.New("", test.environ, nil, nil, nil).Env)
		if got != test.want || (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("terminalDir() with %q = %q, %v; want %q, %q", test.environ, got, err, test.want, test.wrong)
		}
		if err != nil && exit.Judge(err).Status != exit.Usage {
			t.Errorf("terminalDir() with %q: status %d; want %d", test.environ, exit.Judge(err).Status, exit.Usage)
		}
	}
}

// A directory that others can reach holds no socket, on either side.
func TestTerminalDirIsOurs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(clitest.SocketDir(t), "a", "pty")
	if err := holder.MakeDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o710); err != nil { //nolint:gosec // that is the fault
		t.Fatal(err)
	}
	listen(t, dir, "pty_1", nil)
	err := holder.MakeDir(dir)
	_, connectErr := holder.Connect(t.Context(), dir, "pty_1")
	for _, err := range []error{err, connectErr} {
		if err == nil || !strings.Contains(err.Error(), "others can reach") || exit.Judge(err).Status != exit.Usage {
			t.Errorf("a directory of mode 0710: %v", err)
		}
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := holder.MakeDir(link); err == nil {
		t.Error("a link is taken for a directory")
	}
}

func TestFindTerminal(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	for _, id := range []string{"pty_aa", "pty_ab", "pty_b", "pty_bc"} {
		listen(t, dir, id, nil)
	}
	if err := os.WriteFile(filepath.Join(dir, "pty_c"+holder.SocketSuffix), nil, 0o600); err != nil { // no socket
		t.Fatal(err)
	}
	for prefix, want := range map[string]string{"pty_aa": "pty_aa", "pty_b": "pty_b", "pty_bc": "pty_bc", "pty_a": "", "": "", "x": "", "pty_c": ""} {
		got, err := holder.Find(dir, prefix)
		if got != want || (err == nil) != (want != "") || err != nil && exit.Judge(err).Cause != "unknown-terminal" {
			t.Errorf("findTerminal(%q) = %q, %v; want %q", prefix, got, err, want)
		}
	}
	if _, err := holder.Find(filepath.Join(dir, "none"), "pty"); !errors.Is(err, holder.ErrUnknown) {
		t.Errorf("without a directory: %v", err)
	}
}

// awaitRefusal waits until a socket whose listener was closed refuses connections.
// A process that another test forks shares all of our descriptors until its exec.
func awaitRefusal(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	t.Fatalf("%s still accepts connections", path)
}

// Sockets of holders that have died are removed, others are not.
func TestPruneTerminals(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	listen(t, dir, "pty_alive", nil)
	for _, id := range []string{"pty_dead", "pty_begun", "pty_old"} {
		_ = listen(t, dir, id, nil).Close()
		awaitRefusal(t, filepath.Join(dir, id+holder.SocketSuffix))
	}
	rename := func(id string) string {
		path := filepath.Join(dir, id+holder.NewSuffix)
		if err := os.Rename(filepath.Join(dir, id+holder.SocketSuffix), path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rename("pty_begun")
	hourAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(rename("pty_old"), hourAgo, hourAgo); err != nil {
		t.Fatal(err)
	}
	lost, err := holder.Sweep(t.Context(), dir)
	if diff := cmp.Diff([]string{"pty_dead"}, lost); diff != "" || err != nil {
		t.Errorf("pruneTerminals() = %q, %v", lost, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "pty_alive.sock"), filepath.Join(dir, "pty_begun.new")}; !cmp.Equal(want, left) {
		t.Errorf("left: %q; want %q", left, want)
	}
}

// What a holder answers becomes this program's errors, and no answer is one too.
func TestTerminalClient(t *testing.T) {
	t.Parallel()
	hello := `"result":{"protocol":"1"}`
	failing := func(kind, cause string) string {
		return fmt.Sprintf(`"error":{"code":-1,"message":"it is so","data":{"kind":%q,"cause":%q}}`, kind, cause)
	}
	for name, test := range map[string]struct {
		answer string
		status int
		cause  string
	}{
		"a result":         {`"result":{"text":"hi"}`, 0, ""},
		"bad parameters":   {failing("invalid-params", ""), exit.Usage, "usage"},
		"no terminal":      {failing("unknown-terminal", ""), exit.Usage, "unknown-terminal"},
		"a lost session":   {failing("session-lost", "oom"), exit.Engine, "oom"},
		"an unknown end":   {failing("outcome-unknown", "runner-lost"), exit.Engine, "runner-lost"},
		"nothing started":  {failing("not-started", "engine"), exit.Engine, "engine"},
		"cancelled":        {failing("cancelled", ""), exit.Cancelled, "cancelled"},
		"another":          {failing("overloaded", ""), exit.Engine, "engine"},
		"it breaks off":    {"", exit.Engine, string(holder.CauseNoAnswer)},
		"it does not know": {`"result":7`, exit.Engine, "engine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := clitest.SocketDir(t)
			listen(t, dir, "pty_1", func(method string) string {
				if method == "initialize" {
					return hello
				}
				return test.answer
			})
			c, err := holder.Dial(t.Context(), dir, "pty_1")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // of a test
			var read struct{ Text string }
			err = c.Call(t.Context(), time.Minute, "pty/read", nil, &read)
			if test.status == 0 {
				if err != nil || read.Text != "hi" {
					t.Errorf("call() = %v, %q", err, read.Text)
				}
				return
			}
			if v := exit.Judge(err); err == nil || v.Status != test.status || v.Cause != test.cause {
				t.Errorf("call() = %v: %+v; want status %d, cause %q", err, v, test.status, test.cause)
			}
		})
	}
}

// A holder that goes in the middle of a call has ended if its socket has gone too, and has
// died if not.
func TestHolderGoes(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]string{"ends": "unknown-terminal", "dies": string(holder.CauseHolder)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := clitest.SocketDir(t)
			var l *net.UnixListener
			ready := make(chan struct{})
			l = listen(t, dir, "pty_1", func(method string) string {
				<-ready
				if method == "initialize" {
					return `"result":{}`
				}
				_ = l.Close()
				if name == "ends" {
					_ = os.Remove(filepath.Join(dir, "pty_1"+holder.SocketSuffix))
				}
				return ""
			})
			close(ready)
			c, err := holder.Dial(t.Context(), dir, "pty_1")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // of a test
			if err := c.Call(t.Context(), time.Minute, "pty/wait", nil, nil); err == nil || exit.Judge(err).Cause != cause {
				t.Errorf("call() = %v; want cause %q", err, cause)
			}
		})
	}
}

// A holder that hangs is not waited for, and neither is one when the user gives up.
func TestTerminalClientGivesUp(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	ours, theirs := make(chan struct{}), make(chan struct{})
	listen(t, dir, "pty_1", func(method string) string {
		if method == "initialize" {
			return `"result":{}`
		}
		close(theirs)
		<-ours
		return ""
	})
	defer close(ours)
	c, err := holder.Dial(t.Context(), dir, "pty_1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // of a test
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-theirs
		cancel(exit.ErrInterrupted)
	}()
	if err := c.Call(ctx, time.Minute, "pty/wait", nil, nil); !errors.Is(err, exit.ErrInterrupted) {
		t.Errorf("an interrupted call: %v", err)
	}
	err = c.Call(t.Context(), 20*time.Millisecond, "pty/screen", nil, nil)
	if e, ok := errors.AsType[*exec.Error](err); !ok || e.Outcome != exec.Unknown || e.Cause != holder.CauseNoAnswer {
		t.Errorf("a call that is not answered: %v", err)
	}
}
