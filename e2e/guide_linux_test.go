package e2e

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// docTime is how long all blocks of a page may take.
const docTime = 4 * time.Minute

// TestGuide runs the blocks of pages, in their order. Lines behind a $ are commands, each of which must
// succeed; the lines below must be in its output, in that order, where … stands for anything. The package
// index is a server of this test, behind what sandboxbash takes for this machine's proxy.
func TestGuide(t *testing.T) { //nolint:tparallel // its pages share what they make, in their order
	t.Parallel()
	needEngine(t)
	d := newDocs(t)
	if out, status := d.run(t, "sandboxbash image host --add pip"); status != 0 && strings.Contains(out, "tool pip: ") {
		t.Skip("this machine has no pip for all users: " + out)
	}
	t.Cleanup(func() {
		for _, command := range []string{"sandboxbash session stop greeting", "sandboxbash session stop fetch", "sandboxbash image rm host+pip sbx-e2e-docs-tools:1 sbx-e2e-docs-dev:1"} {
			_, _ = d.run(t, command) // it may be gone
		}
	})
	for _, page := range []struct{ name, dir string }{
		{"guide.md", ".."},
		{"dependencies.md", d.copyOf(t, "../docs/guide")},
	} {
		t.Run(page.name, func(t *testing.T) {
			abs, err := filepath.Abs(page.dir)
			if err != nil {
				t.Fatal(err)
			}
			d.dir = abs
			for _, s := range stepsOf(t, filepath.Join("../docs", page.name)) {
				d.do(t, s)
			}
		})
	}
}

// step is a command of a page, and what it prints.
type step struct {
	line    int
	command string
	wants   []string
}

// docNames keep the tests from a user's own images.
var docNames = strings.NewReplacer("my-tools:1", "sbx-e2e-docs-tools:1", "my-dev:1", "sbx-e2e-docs-dev:1")

func stepsOf(t *testing.T, file string) []step {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	inside := false
	for i, line := range strings.Split(docNames.Replace(string(data)), "\n") {
		switch command, ok := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case ok:
			steps = append(steps, step{line: i + 1, command: command})
		case len(steps) > 0:
			last := &steps[len(steps)-1]
			last.wants = append(last.wants, line)
		}
	}
	if len(steps) == 0 {
		t.Fatalf("%s has no block that starts with ```console", file)
	}
	return steps
}

// docs runs commands as a user types them.
type docs struct {
	home, dir string
	env       []string
}

func newDocs(t *testing.T) *docs {
	t.Helper()
	home := t.TempDir()
	config := filepath.Join(home, "config", "sandboxbash")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	const settings = "env: {set: [PIP_INDEX_URL=http://pypi.org/simple/, PIP_TRUSTED_HOST=pypi.org, PIP_DISABLE_PIP_VERSION_CHECK=1]}\n"
	if err := os.WriteFile(filepath.Join(config, "config.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &docs{home: home, dir: home}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "SANDBOXBASH_") && !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			d.env = append(d.env, kv)
		}
	}
	d.env = append(d.env, "HOME="+home, "XDG_CONFIG_HOME="+home+"/config", "XDG_STATE_HOME="+home+"/state", "XDG_CACHE_HOME="+home+"/cache",
		"PATH="+built+":"+os.Getenv("PATH"), "HTTP_PROXY="+indexProxy(t), "NO_PROXY=localhost",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	return d
}

// copyOf returns a copy of a directory.
func (d *docs) copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "project")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// do runs a step and looks for what it should print.
func (d *docs) do(t *testing.T, s step) {
	t.Helper()
	start := time.Now()
	var out string
	var status int
	if strings.HasPrefix(s.command, "sandboxbash session attach") {
		out, status = d.onTerminal(t, s.command)
	} else {
		out, status = d.run(t, s.command)
	}
	t.Logf("line %d, %v: %s", s.line, time.Since(start).Round(time.Millisecond), s.command)
	if status != 0 {
		t.Fatalf("line %d: %s: exit status %d\n%s", s.line, s.command, status, out)
	}
	rest := out
	for _, want := range s.wants {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
		at := regexp.MustCompile(pattern).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("line %d: %s: there is no %q in its output, or not in this order:\n%s", s.line, s.command, want, out)
		}
		rest = rest[at[1]:]
	}
}

// script is a command that leaves its directory to the next one.
func (d *docs) script(command string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "bash", "-c", command+"\nstatus=$?; pwd >\"$HOME/.cwd\"; exit $status")
	cmd.Dir, cmd.Env = d.dir, d.env
	return cmd
}

// run runs a command. What it leaves in the background is killed at the end of the test.
func (d *docs) run(t *testing.T, command string) (string, int) {
	t.Helper()
	out, err := os.CreateTemp(d.home, "out") // not a pipe, which a background process would keep open
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := d.script(command)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	if strings.HasSuffix(command, "&") {
		t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGTERM) })
	}
	late := time.AfterFunc(docTime, func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	defer late.Stop()
	_ = cmd.Wait() // its exit status says it
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	d.follow()
	return string(text), cmd.ProcessState.ExitCode()
}

// follow goes to the directory that the last command was in.
func (d *docs) follow() {
	if dir, err := os.ReadFile(filepath.Join(d.home, ".cwd")); err == nil {
		d.dir = strings.TrimSpace(string(dir))
	}
}

// onTerminal runs a shell on a terminal, and leaves it.
func (d *docs) onTerminal(t *testing.T, command string) (string, int) {
	t.Helper()
	cmd := d.script(command)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	keys, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	late := time.AfterFunc(docTime, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var mu sync.Mutex
	var shown bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		typed := false
		buf := make([]byte, 4<<10)
		for {
			n, err := keys.Read(buf)
			mu.Lock()
			shown.Write(buf[:n])
			prompt := !typed && strings.ContainsAny(shown.String(), "$#")
			mu.Unlock()
			if prompt {
				typed = true
				_, _ = io.WriteString(keys, "exit\r")
			}
			if err != nil {
				return
			}
		}
	}()
	_ = cmd.Wait()
	<-done
	d.follow()
	mu.Lock()
	defer mu.Unlock()
	return shown.String(), cmd.ProcessState.ExitCode()
}

// indexProxy starts a proxy behind which there is a package index with one package, and returns its URL.
func indexProxy(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the test closes it
	if err != nil {
		t.Fatal(err)
	}
	wheel := wheelOf(t)
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "pypi.org:80" {
			http.Error(w, "there is only the index", http.StatusForbidden)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		serveIndex(conn, wheel)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
	return "http://" + l.Addr().String()
}

const wheelName = "six-1.17.0-py2.py3-none-any.whl"

// serveIndex answers the requests of a connection.
func serveIndex(conn net.Conn, wheel []byte) {
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		status, kind, body := "404 Not Found", "text/plain", []byte("not here\n")
		switch r.URL.Path {
		case "/simple/six/":
			status, kind, body = "200 OK", "text/html", []byte(`<!DOCTYPE html><html><body><a href="/packages/`+wheelName+`">`+wheelName+`</a></body></html>`)
		case "/packages/" + wheelName:
			status, kind, body = "200 OK", "application/octet-stream", wheel
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, kind, len(body), body); err != nil {
			return
		}
	}
}

// wheelOf is a package as pip installs it.
func wheelOf(t *testing.T) []byte {
	t.Helper()
	const info = "six-1.17.0.dist-info/"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, file := range [][2]string{
		{"six.py", "text_type = str\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: six\nVersion: 1.17.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py2-none-any\nTag: py3-none-any\n"},
		{info + "RECORD", "six.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		w, err := z.Create(file[0])
		if err == nil {
			_, err = io.WriteString(w, file[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
