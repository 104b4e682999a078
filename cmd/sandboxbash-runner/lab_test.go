//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// The test binary is its own runner. labInit is PID 1 of new namespaces, labVerb any
// other runner in them.
const (
	labRole   = "SANDBOXBASH_TEST_RUNNER"
	labNext   = "SANDBOXBASH_TEST_NEXT" // the role that labEnter starts
	labPID    = "SANDBOXBASH_TEST_PID"  // of the PID 1, outside its namespace
	labEnter  = "enter"                 // starts another role in the namespaces of a PID 1
	labInit   = "init"
	labVerb   = "verb"
	labOdd    = "odd"       // a serving runner that cannot restore its OOM score
	labFreeze = "freeze"    // a runner that is killed while all commands are stopped
	labWork   = "/run/work" // every user of the lab may write here
	labUser   = 12345       // uid and gid of commands
)

func TestMain(m *testing.M) {
	role := os.Getenv(labRole)
	if role == "" {
		os.Exit(m.Run())
	}
	_ = os.Unsetenv(labRole) // a constant name is valid
	if next := os.Getenv(labNext); next != "" {
		_ = os.Setenv(labRole, next)
		_ = os.Unsetenv(labNext)
	}
	// What the test's own parent has left open: an engine leaves nothing.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if role == labInit {
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
			os.Exit(1)
		}
	}
	switch role {
	case labEnter:
		os.Exit(enter())
	case labOdd:
		os.Exit(serveOdd())
	case labFreeze:
		os.Exit(freezeAndDie())
	}
	os.Exit(run(os.Args[1:]))
}

// enter starts its arguments in the namespaces of the process that labPID names, as an engine
// does, and waits for the end. Unlike nsenter it does not stop when what it has started does.
func enter() int {
	runtime.LockOSThread()
	err := errors.Join(
		unix.Unshare(unix.CLONE_FS),
		// Or a command that is uid 0 would get back what its runner drops.
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
	)
	dir := "/proc/" + os.Getenv(labPID) + "/ns/"
	var spaces []*os.File
	for _, name := range []string{"pid", "mnt", "net"} {
		f, openErr := os.Open(dir + name)
		err = errors.Join(err, openErr)
		spaces = append(spaces, f)
	}
	for _, f := range spaces {
		if err == nil {
			err = unix.Setns(int(f.Fd()), 0)
		}
	}
	pid := 0
	if err == nil {
		pid, err = syscall.ForkExec(os.Args[1], os.Args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "enter:", err)
		return 3
	}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		f.Close() // only what was started holds them
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if status.Signaled() {
		_ = unix.Kill(os.Getpid(), status.Signal())
	}
	return status.ExitStatus()
}

// serveOdd serves as a runner whose OOM score the kernel does not restore.
func serveOdd() int {
	err := errors.Join(harden(), adoptOrphans())
	if err == nil {
		var s *server
		if s, err = newServer(); err == nil {
			s.kids.mine = []byte("no number")
			err = s.serve(os.Stdin, os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "odd runner:", err)
		return 3
	}
	return 0
}

// freezeAndDie stops all commands as a freeze does, and is killed then.
func freezeAndDie() int {
	err := harden()
	if err == nil {
		var s *server
		if s, err = newServer(); err == nil {
			s.freezer.alone(func() {
				s.init.beginFreeze()
				s.freezer.stopAll()
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			})
			err = errors.New("it lives")
		}
	}
	fmt.Fprintln(os.Stderr, "freeze:", err)
	return 3
}

// furnish makes of the new namespaces what a runner expects of a container.
func furnish() error {
	if os.Getpid() != 1 {
		return errors.New("not in a namespace of its own")
	}
	// A file system each: nothing of the machine's own is written to.
	for _, m := range []struct{ kind, dir, data string }{{"proc", "/proc", ""}, {"tmpfs", "/run", "mode=0755"}} {
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	if err := raiseLo(); err != nil {
		return err
	}
	return errors.Join(os.Mkdir(wire.JobsDir, 0o755), os.Mkdir(labWork, 0o700), os.Chmod(labWork, 0o1777), //nolint:gosec // as /tmp
		os.Mkdir("/run/closed", 0o700), os.WriteFile("/run/file", nil, 0o644))
}

// raiseLo brings up the only interface, as an engine does.
func raiseLo() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return nil
}

// lab is a container without an engine: PID, mount and network namespaces with a PID 1 of
// ours.
type lab struct {
	t    *testing.T
	init *exec.Cmd
	user uint32 // uid and gid of commands
	role string // of the runners
}

// newLab starts PID 1 and ends everything below it at the test's end.
func newLab(t *testing.T, lease time.Duration) *lab {
	t.Helper()
	return newLabOf(t, lease, labUser)
}

// newDevLab is newLab with commands that are uid 0, as in profile dev.
func newDevLab(t *testing.T) *lab {
	t.Helper()
	return newLabOf(t, time.Minute, 0)
}

func newLabOf(t *testing.T, lease time.Duration, user uint32) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("namespaces with several users need uid 0")
	}
	for _, tool := range []string{"nsenter", "setsid"} { // of util-linux
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s on this machine", tool)
		}
	}
	args := wire.VerbInit.Command(&wire.InitArgs{Lease: lease, User: user})
	cmd := exec.Command(testBinary(t), args...) //nolint:noctx // ended below, as the kernel ends a namespace
	cmd.Env = append(os.Environ(), labRole+"="+labInit)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET, Unshareflags: unix.CLONE_NEWNS, // the latter makes all mounts private
		Pdeathsig: unix.SIGKILL,
	}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skip("this machine makes no namespaces: " + err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, init: cmd, user: user, role: labVerb}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return l
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (l *lab) pid() string { return strconv.Itoa(l.init.Process.Pid) }

// command is a runner's verb in the lab, as an engine's exec starts it.
func (l *lab) command(args ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), testBinary(l.t), append([]string{testBinary(l.t)}, args...)...)
	cmd.Env = append(os.Environ(), labRole+"="+labEnter, labNext+"="+l.role, labPID+"="+l.pid())
	cmd.WaitDelay = 10 * time.Second // no test hangs on what holds a stream
	return cmd
}

// childOf is the runner that command has started, by its pid outside of the lab.
func childOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	pid := strconv.Itoa(cmd.Process.Pid)
	children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		t.Skip("this kernel does not list the children of a process: " + err.Error())
	}
	child, err := strconv.Atoi(string(bytes.TrimSpace(children)))
	if err != nil {
		t.Fatalf("the children of process %s are %q; want one", pid, children)
	}
	return child
}

// count is how many processes of the lab have the text among their arguments.
func (l *lab) count(text string) int {
	l.t.Helper()
	n := 0
	for _, line := range l.arguments() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// arguments lists those of all processes of the lab. It starts no process there, which a
// freeze would stop.
func (l *lab) arguments() (all []string) {
	l.t.Helper()
	files, err := filepath.Glob("/proc/" + l.pid() + "/root/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		l.t.Fatalf("the lab's processes: %d, %v", len(files), err)
	}
	for _, f := range files {
		line, _ := os.ReadFile(f) // it may have ended
		all = append(all, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	return all
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// host is the host's end of a serving runner.
type host struct {
	t      *testing.T
	user   uint32 // uid and gid of commands
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *wire.Reader
	stderr bytes.Buffer
	seq    uint64
	taken  int // bytes of output that started has taken of the command's
}

// serve starts a runner and shakes hands with it.
func (l *lab) serve() *host {
	l.t.Helper()
	h := l.dial()
	h.send(wire.TypeOpen, wire.Open{Version: wire.Version, Lease: time.Minute}.Append(nil))
	return h
}

// dial starts a runner and takes its Hello.
func (l *lab) dial() *host {
	l.t.Helper()
	h := &host{t: l.t, user: l.user, cmd: l.command(string(wire.VerbServe))}
	h.cmd.Stderr = &h.stderr
	in, err := h.cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = l.init.Process.Kill() // a job's runner goes on without its host, and holds its standard error
		in.Close()
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
	h.in, h.out = in, wire.NewReader(out)
	kind, payload := h.next()
	hello, err := wire.ParseHello(payload)
	if kind != wire.TypeHello || err != nil || hello.Version != wire.Version || !hello.Shell {
		l.t.Fatalf("the first frame is %q %+v, %v; want the Hello of version %d with a shell", kind, hello, err, wire.Version)
	}
	return h
}

func (h *host) send(kind wire.Type, payload []byte) {
	h.t.Helper()
	if _, err := h.in.Write(wire.AppendFrame(nil, kind, payload)); err != nil {
		h.t.Errorf("send %q: %v; the runner said %q", kind, err, h.stderr.String())
	}
}

func (h *host) next() (wire.Type, []byte) {
	h.t.Helper()
	kind, payload, err := h.out.Next()
	if err != nil {
		_ = h.cmd.Wait()
		h.t.Fatalf("the next frame: %v; the runner said %q", err, h.stderr.String())
	}
	return kind, payload
}

// request sends a request, with what every one needs.
func (h *host) request(req wire.Request) {
	h.t.Helper()
	h.seq++
	h.taken = 0
	req.Seq = h.seq
	if req.Shell == "" && req.Path == "" {
		req.Shell = "sh"
	}
	if req.Dir == "" {
		req.Dir = labWork
	}
	if req.Env == nil {
		req.Env = []string{"PATH=/usr/bin:/bin"}
	}
	if req.UID == 0 && req.GID == 0 && req.Path != wire.RunnerPath {
		req.UID, req.GID = h.user, h.user
	}
	b := req.Append(nil)
	for len(b) > wire.MaxPayload {
		h.send(wire.TypePart, b[:wire.MaxPayload])
		b = b[wire.MaxPayload:]
	}
	h.send(wire.TypeRequest, b)
}

// reply is all that a runner has said of one command.
type reply struct {
	stdout, stderr bytes.Buffer
	exit           wire.Exit
	failed         *wire.Failed
	detached       *wire.Detached
}

// answer reads up to the frame that ends a command for its host.
func (h *host) answer() *reply {
	h.t.Helper()
	var a reply
	for {
		kind, payload := h.next()
		var err error
		switch kind {
		case wire.TypeStdout:
			a.stdout.Write(payload)
			continue
		case wire.TypeStderr:
			a.stderr.Write(payload)
			continue
		case wire.TypeTaken:
			continue
		case wire.TypeExit:
			a.exit, err = wire.ParseExit(payload)
			if seq := a.exit.Seq; seq != h.seq {
				h.t.Errorf("the exit of command %d; want %d", seq, h.seq)
			}
			if a.exit.Stdout != uint64(h.taken+a.stdout.Len()) || a.exit.Stderr != uint64(a.stderr.Len()) {
				h.t.Errorf("%d and %d bytes have come; the exit says %d and %d", h.taken+a.stdout.Len(), a.stderr.Len(), a.exit.Stdout, a.exit.Stderr)
			}
		case wire.TypeFailed:
			var failed wire.Failed
			failed, err = wire.ParseFailed(payload)
			a.failed = &failed
		case wire.TypeDetached:
			var detached wire.Detached
			detached, err = wire.ParseDetached(payload)
			a.detached = &detached
		default:
			err = fmt.Errorf("frame of type %q", kind)
		}
		if err != nil {
			h.t.Fatal(err)
		}
		return &a
	}
}

// run is request and answer.
func (h *host) run(req wire.Request) *reply {
	h.t.Helper()
	h.request(req)
	return h.answer()
}

// started waits for a command's first output, which says that it runs.
func (h *host) started() {
	h.t.Helper()
	for {
		if kind, payload := h.next(); kind == wire.TypeStdout {
			h.taken = len(payload)
			return
		} else if kind != wire.TypeTaken {
			h.t.Fatalf("frame of type %q before any output", kind)
		}
	}
}

// ends waits for the runner's own end and returns its exit code.
func (h *host) ends() int {
	h.t.Helper()
	for {
		if _, _, err := h.out.Next(); err != nil {
			break
		}
	}
	_ = h.cmd.Wait()
	return h.cmd.ProcessState.ExitCode()
}
