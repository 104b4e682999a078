//go:build unix

package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/engine"
)

// The keepers of these tests are processes of the test's own program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "session" && os.Args[2] == "lend" {
		if err := Main(context.Background(), os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type environment struct{ dir string }

func (e environment) Getenv(name string) string {
	if name == "XDG_RUNTIME_DIR" {
		return e.dir
	}
	return ""
}

func (e environment) StateDir() string { return e.dir }

// site is a place for keepers of one test, and what was noted.
type site struct {
	t     *testing.T
	dir   string
	of    engine.Handle
	stay  time.Duration
	mu    sync.Mutex
	notes []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "keeper") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, of: engine.Handle{ID: "id", Ref: "ref"}, stay: time.Minute}
	t.Cleanup(func() {
		for _, pid := range s.keepers() {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		s.await("the end of the keepers", func() bool { return len(s.keepers()) == 0 })
		_ = os.RemoveAll(dir)
	})
	return s
}

// store is that of one call of a version of the program.
func (s *site) store(version string) *Store {
	note := func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notes = append(s.notes, text)
	}
	return New(Options{Env: environment{s.dir}, Engine: "unix:///engine", Version: version, Stay: s.stay, Note: note, Daily: note})
}

func (s *site) noted() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.notes, "\n")
}

// keepers are the pids of the processes that listen on the site's sockets.
func (s *site) keepers() (pids []int) {
	out, _ := osexec.Command("ps", "-A", "-o", "pid=,args=").Output()
	for _, line := range strings.Split(string(out), "\n") {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil && strings.HasSuffix(line, "session lend "+s.of.ID+filepath.Base(s.dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// handle is a session whose id has the site's name, by which keepers finds its processes.
func (s *site) handle() engine.Handle {
	return engine.Handle{ID: s.of.ID + filepath.Base(s.dir), Ref: s.of.Ref}
}

func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for until := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			s.t.Fatalf("no sign of %s", what)
		}
	}
}

// newRunner makes a runner, and its end inside the session.
func newRunner(t *testing.T, pid int) (runner, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	file := os.NewFile(uintptr(fds[1]), "inside")
	inside, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inside.Close() })
	return runner{File: os.NewFile(uintptr(fds[0]), "runner"), Stream: "exec", PID: pid, Version: 5, Seq: 7}, inside
}

// ended reports whether no process has the runner's connection any more.
func ended(inside net.Conn) bool {
	_ = inside.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := inside.Read(make([]byte, 1))
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// close ends the call that a store is of: its process would end.
func (s *Store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		_ = c.conn.Close()
	}
	s.clients = nil
}

// take takes a runner, or fails the test.
func take(t *testing.T, s *Store, of engine.Handle) runner {
	t.Helper()
	r, ok := s.Take(t.Context(), of)
	if !ok {
		t.Fatal("Take() = false; want the runner that was left")
	}
	return r
}

func TestRunnerIsKept(t *testing.T) {
	at := newSite(t)
	r, inside := newRunner(t, 42)
	first := at.store("1")
	if _, ok := first.Take(t.Context(), at.handle()); ok {
		t.Fatal("Take() = true before anything was left")
	}
	first.Leave(at.handle(), r)
	for range 3 {
		call := at.store("1")
		got := take(t, call, at.handle())
		if got.PID != 42 || got.Seq != 7 || got.Stream != "exec" || got.Version != 5 {
			t.Errorf("Take() = %+v; want what was left", got)
		}
		if _, err := got.File.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(inside, buf); err != nil || string(buf) != "hello" {
			t.Errorf("inside got %q, %v", buf, err)
		}
		if _, ok := at.store("1").Take(t.Context(), at.handle()); ok {
			t.Error("a runner was lent twice")
		}
		call.Leave(at.handle(), got)
	}
	if n := len(at.keepers()); n != 1 {
		t.Errorf("%d keepers; want 1", n)
	}
	if at.noted() != "" {
		t.Errorf("noted %q; want nothing", at.noted())
	}
	_ = inside.Close()
	at.await("the keeper's end with the session", func() bool { return len(at.keepers()) == 0 })
	if left, _ := filepath.Glob(filepath.Join(at.dir, "sandboxbash", "run", "*.sock")); len(left) > 0 {
		t.Errorf("the keeper has left %q", left)
	}
}

// The keeper has nothing of the call that has started it.
func TestKeeperHasNothingOfItsStarter(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("needs /proc")
	}
	t.Setenv("SECRET", "value")
	mine, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	at := newSite(t)
	r, _ := newRunner(t, 1)
	at.store("1").Leave(at.handle(), r)
	at.await("a keeper", func() bool { return len(at.keepers()) == 1 })
	proc := fmt.Sprintf("/proc/%d", at.keepers()[0])
	// It has closed the copies of its files when it listens.
	call := at.store("1")
	call.Leave(at.handle(), take(t, call, at.handle()))
	if env, err := os.ReadFile(proc + "/environ"); err != nil || len(env) > 0 {
		t.Errorf("its environment is %q, %v; want none", env, err)
	}
	if dir, _ := os.Readlink(proc + "/cwd"); dir != "/" {
		t.Errorf("its directory is %s; want /", dir)
	}
	pid := at.keepers()[0]
	if group, _ := unix.Getpgid(pid); group != pid {
		t.Errorf("its process group is %d; want its own, %d", group, pid)
	}
	if session, _ := unix.Getsid(pid); session != pid {
		t.Errorf("its session is %d; want its own, %d", session, pid)
	}
	files, _ := filepath.Glob(proc + "/fd/*")
	for _, f := range files {
		if to, _ := os.Readlink(f); to == os.Args[0] {
			t.Errorf("it has %s of its starter", to)
		}
	}
}

// A caller's death ends its command: no other process has the connection.
func TestClientDies(t *testing.T) {
	at := newSite(t)
	r, inside := newRunner(t, 1)
	at.store("1").Leave(at.handle(), r)
	call := at.store("1")
	got := take(t, call, at.handle())
	_ = got.File.Close() // as the kernel does when the process ends
	at.await("the end of the runner", func() bool { return ended(inside) })
	call.close()
	at.await("the end of the keeper, which has no runner", func() bool { return len(at.keepers()) == 0 })
}

// When the keeper is killed, the command of a caller goes on, idle runners end, and the next call starts another.
func TestKeeperIsKilled(t *testing.T) {
	at := newSite(t)
	lent, lentInside := newRunner(t, 1)
	idle, idleInside := newRunner(t, 2)
	at.store("1").Leave(at.handle(), lent)
	call := at.store("1")
	lent = take(t, call, at.handle())
	at.store("1").Leave(at.handle(), idle)
	for _, pid := range at.keepers() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	at.await("the end of the idle runner", func() bool { return ended(idleInside) })
	if ended(lentInside) {
		t.Error("the runner of a command that runs has ended with the keeper")
	}
	if _, ok := at.store("1").Take(t.Context(), at.handle()); ok {
		t.Error("Take() = true though the keeper was killed")
	}
	call.Leave(at.handle(), lent) // starts another
	again := at.store("1")
	again.Leave(at.handle(), take(t, again, at.handle()))
	if at.noted() != "" {
		t.Errorf("noted %q; want nothing: the next call takes 30 ms longer, and that is all", at.noted())
	}
}

// A stopped keeper holds no call for long, and a note says so.
func TestKeeperIsStopped(t *testing.T) {
	at := newSite(t)
	r, _ := newRunner(t, 1)
	at.store("1").Leave(at.handle(), r)
	at.await("a keeper", func() bool { return len(at.keepers()) == 1 })
	_ = syscall.Kill(at.keepers()[0], syscall.SIGSTOP)
	start := time.Now()
	call := at.store("1")
	if _, ok := call.Take(t.Context(), at.handle()); ok {
		t.Error("Take() = true of a keeper that is stopped")
	}
	other, _ := newRunner(t, 2)
	call.Leave(at.handle(), other)
	if took := time.Since(start); took > 10*(takeTime+leaveTime) {
		t.Errorf("the call waited for %v; want about %v at most", took, takeTime+leaveTime)
	}
	if !strings.Contains(at.noted(), "does not answer") {
		t.Errorf("noted %q; want that the keeper does not answer", at.noted())
	}
	_ = syscall.Kill(at.keepers()[0], syscall.SIGCONT)
	at.await("a runner of the keeper that goes on", func() bool {
		r, ok := at.store("1").Take(t.Context(), at.handle())
		if ok {
			_ = r.File.Close()
		}
		return ok
	})
}

// A stopped client keeps neither the keeper nor other clients from working.
func TestClientIsStopped(t *testing.T) {
	at := newSite(t)
	r, inside := newRunner(t, 1)
	at.store("1").Leave(at.handle(), r)
	silent := at.store("1") // it has connected, and says nothing
	conn, err := silent.dial(at.handle())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	unread := at.store("1") // it has asked, and does not take the answer
	asked, err := unread.dial(at.handle())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asked.Write([]byte{sayTake}); err != nil {
		t.Fatal(err)
	}
	call := at.store("1")
	other, otherInside := newRunner(t, 2)
	call.Leave(at.handle(), other)
	call.Leave(at.handle(), take(t, call, at.handle()))
	_ = asked.Close() // it is killed, and with it the runner that it was sent, whichever that was
	at.await("the end of the runner that was sent", func() bool { return ended(inside) || ended(otherInside) })
}

// An earlier version's keeper gets no new clients, and finishes what it has.
func TestVersionIsReplaced(t *testing.T) {
	at := newSite(t)
	r, inside := newRunner(t, 1)
	at.store("1").Leave(at.handle(), r)
	old := at.store("1")
	got := take(t, old, at.handle())
	if _, ok := at.store("2").Take(t.Context(), at.handle()); ok {
		t.Error("another version's runner was taken")
	}
	newer, _ := newRunner(t, 2)
	at.store("2").Leave(at.handle(), newer)
	at.await("two keepers", func() bool { return len(at.keepers()) == 2 })
	if ended(inside) {
		t.Error("the command of the earlier version has ended")
	}
	old.Leave(at.handle(), got)
	if ended(inside) {
		t.Error("the earlier keeper has not taken its runner back")
	}
}

// 200 clients at once get each runner once, and a keeper holds no more than it may.
func TestManyClients(t *testing.T) {
	at := newSite(t)
	r, _ := newRunner(t, 0)
	at.store("1").Leave(at.handle(), r)
	var all sync.WaitGroup
	var mu sync.Mutex
	inUse := map[int]bool{0: false}
	for i := range 200 {
		all.Go(func() {
			call := at.store("1")
			got, ok := call.Take(t.Context(), at.handle())
			if !ok {
				got, _ = newRunner(t, i+1)
			}
			mu.Lock()
			if inUse[got.PID] {
				t.Errorf("runner %d has two callers", got.PID)
			}
			inUse[got.PID] = true
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			inUse[got.PID] = false
			mu.Unlock()
			call.Leave(at.handle(), got)
			call.close()
		})
	}
	all.Wait()
	var kept []runner
	call := at.store("1")
	for {
		r, ok := call.Take(t.Context(), at.handle())
		if !ok {
			break
		}
		kept = append(kept, r)
	}
	if len(kept) == 0 || len(kept) > mostIdle {
		t.Errorf("%d runners are kept; want 1 to %d", len(kept), mostIdle)
	}
	for _, r := range kept {
		_ = r.File.Close()
	}
	call.close()
}

// Runners stay for as long as was asked for, those beyond the first for less.
func TestRunnersExpire(t *testing.T) {
	at := newSite(t)
	at.stay = 50 * time.Millisecond
	r, inside := newRunner(t, 1)
	at.store("1").Leave(at.handle(), r)
	at.await("the end of the runner", func() bool { return ended(inside) })
	at.await("the end of the keeper", func() bool { return len(at.keepers()) == 0 })
}

// Where there is no place for a socket the runner ends, and a note says why.
func TestNoPlace(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  string
	}{
		{"the disk is full", func(t *testing.T, dir string) {
			if err := unix.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			mountTiny(t, dir)
		}, "no space left on device"},
		{"others can reach the directory", func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "others can reach"},
		{"the directory is another user's", func(t *testing.T, dir string) {
			if os.Getuid() != 0 {
				t.Skip("needs root")
			}
			run := filepath.Join(dir, "run")
			if err := os.MkdirAll(run, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(run, 1000, 1000); err != nil {
				t.Fatal(err)
			}
		}, "belongs to another user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := newSite(t)
			tt.spoil(t, filepath.Join(at.dir, "sandboxbash"))
			r, inside := newRunner(t, 1)
			call := at.store("1")
			if _, ok := call.Take(t.Context(), at.handle()); ok {
				t.Error("Take() = true")
			}
			call.Leave(at.handle(), r)
			if !strings.Contains(at.noted(), tt.want) || !ended(inside) {
				t.Errorf("noted %q, runner ended: %v; want %q and true", at.noted(), ended(inside), tt.want)
			}
		})
	}
}

// Another user's process gets no runner.
func TestWrongUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	at := newSite(t)
	r, inside := newRunner(t, 1)
	at.store("1").Leave(at.handle(), r)
	at.await("a keeper", func() bool { return len(at.keepers()) == 1 })
	socket, _ := filepath.Glob(filepath.Join(at.dir, "sandboxbash", "run", "*.sock"))
	if len(socket) != 1 {
		t.Fatalf("sockets: %q", socket)
	}
	for _, path := range []string{at.dir, filepath.Dir(filepath.Dir(socket[0])), filepath.Dir(socket[0])} {
		if err := os.Chmod(path, 0o777); err != nil { //nolint:gosec // so that only the keeper's own check is left
			t.Fatal(err)
		}
	}
	if err := os.Chmod(socket[0], 0o777); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	cmd := osexec.Command("perl", "-MIO::Socket::UNIX", "-e",
		`$SIG{PIPE} = "IGNORE"; $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!; print $s "T"; $s->flush; read($s, $b, 1) and print "got $b"; print "end"`, socket[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "end" {
		t.Errorf("another user: %q, %v; want no answer", out, err)
	}
	if ended(inside) {
		t.Error("another user has ended the runner")
	}
	if err := os.Chmod(filepath.Dir(socket[0]), 0o700); err != nil { //nolint:gosec // the user's own
		t.Fatal(err)
	}
	_ = take(t, at.store("1"), at.handle()).File.Close()
}
