//go:build unix

package cli

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
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/screen"
)

// socketDir is a directory whose path is short enough for a socket, as those of
// tests may not be.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pty") //nolint:usetesting // that of the test may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

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

func TestParseSize(t *testing.T) {
	t.Parallel()
	if got, err := parseSize("132x43"); err != nil || got != (screen.Size{Cols: 132, Rows: 43}) {
		t.Errorf("parseSize(132x43) = %v, %v", got, err)
	}
	for _, bad := range []string{"", "80", "80x", "x24", "0x24", "80x0", "-1x5", "80x24x3", "80x24 x", "80 x 24", "axb"} {
		if got, err := parseSize(bad); err == nil {
			t.Errorf("parseSize(%q) = %v; want an error", bad, got)
		}
	}
}

func TestTerminalDir(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
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
		got, err := holder.Dir(core.New("", test.environ, nil, nil, nil))
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
	dir := filepath.Join(socketDir(t), "a", "pty")
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
	dir := socketDir(t)
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
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
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
	dir := socketDir(t)
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
			dir := socketDir(t)
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
			dir := socketDir(t)
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

// A holder hears of it when its starter goes before it knows of the terminal.
func TestStarterGoes(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	asked := make(chan struct{}, 8)
	l, err := net.Listen("unix", filepath.Join(dir, "engine")) //nolint:noctx // it is closed below
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of a test
	go func() {     // an engine that takes calls and answers none
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close() // until the test is over
			asked <- struct{}{}
		}
	}()
	line, err := json.Marshal(handover{Environ: []string{"HOME=" + dir, "DOCKER_HOST=unix://" + dir + "/engine"}, Session: "0199", Script: "true"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := process(t, "pty", "hold", "pty_1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	<-asked
	began := time.Now()
	_ = in.Close()
	_ = cmd.Wait() // its status does not matter
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A holder that hangs is not waited for, and neither is one when the user gives up.
func TestTerminalClientGivesUp(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
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

// Flags that were given are handed over as they were, lists and all.
func TestChangedFlags(t *testing.T) {
	t.Parallel()
	cmd := newProgram("", nil, nil, nil, nil).root()
	start, args, err := cmd.Find([]string{"pty", "start", "--env", "A=1,2", "-e", "B=x y", "--timeout=5s", "--quiet", "0199"})
	if err != nil {
		t.Fatal(err)
	}
	if err := start.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	want := []string{"--env=A=1,2", "--env=B=x y", "--quiet=true", "--timeout=5s"}
	if got := changedFlags(start); !cmp.Equal(want, got) {
		t.Errorf("changedFlags() = %q; want %q", got, want)
	}
}

// A holder says what is wrong in its answer, in the words and with the status that
// the starter then ends with; it takes nothing for granted.
func TestHandover(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	hand := func(h handover) handoverAnswer {
		t.Helper()
		line, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		cmd := process(t, "pty", "hold", "pty_1")
		in, err := cmd.StdinPipe() // it stays open: the starter is there
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(line, '\n')); err != nil { // a pipe holds that much
			t.Fatal(err)
		}
		out, _ := cmd.Output() // the status is in the answer
		var answer handoverAnswer
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return answer
	}
	environ := []string{"HOME=" + dir, "DOCKER_HOST=unix://" + dir + "/none.sock"}
	for name, test := range map[string]struct {
		h      handover
		status int
		says   string
	}{
		"no script": {handover{Environ: environ, Session: "0199", Script: " "}, exit.Usage, "the script is empty"},
		"a flag":    {handover{Environ: environ, Flags: []string{"--env=1A=x"}, Script: "true"}, exit.Usage, "Invalid bash env name"},
		"no engine": {handover{Environ: environ, Session: "0199", Script: "true"}, exit.Engine, "none.sock"},
	} {
		answer := hand(test.h)
		if e := answer.Error; e == nil || e.Status != test.status || !strings.Contains(e.Message, test.says) || answer.Terminal != nil {
			t.Errorf("%s: %+v; want status %d and %q", name, answer.Error, test.status, test.says)
		}
	}
	status, out, errs := call(t, nil, "pty", "hold", "pty_1")
	if status != exit.Usage || out != "" || !strings.Contains(errs, "sandboxbash pty start") {
		t.Errorf("pty hold by hand = %d, %q, %q", status, out, errs)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*/*/*/*/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
