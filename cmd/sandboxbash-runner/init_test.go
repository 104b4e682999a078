//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// line is a connection to PID 1 and the socket that PID 1 reads, without PID 1.
// Neither is ever closed: the keeper of a job writes to its line as long as this process lives, and with a
// number that is given again it would write to what another test has opened.
func line(t *testing.T) (l *initLine, socket int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &initLine{fd: fds[0]}, fds[1]
}

// receive has PID 1 read one message, and reports whether there was one.
func receive(socket int, contact func()) bool {
	_, ready := (&runnerLine{of: &runners{contact: contact}}).receive(socket)
	return ready
}

// Every message counts as contact, whatever is in it; only its pipes are drained.
func TestReceive(t *testing.T) {
	t.Parallel()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			r.Close()
			w.Close()
		})
		return r, w
	}
	for _, row := range []struct {
		name  string
		pipes int
		send  func(l *initLine, pipes []*os.File) error
		takes int // of the pipes, the first
	}{
		{"contact", 0, func(l *initLine, _ []*os.File) error { l.contact(); return nil }, 0},
		{"a pipe", 1, func(l *initLine, p []*os.File) error { l.leave(p); return nil }, 1},
		{"both of a command's pipes", 2, func(l *initLine, p []*os.File) error { l.leave(p); return nil }, 2},
		{"more descriptors than a command has", 3, func(l *initLine, p []*os.File) error { l.leave(p); return nil }, 2},
		{"a long message", 0, func(l *initLine, _ []*os.File) error { return unix.Sendmsg(l.fd, make([]byte, 4096), nil, nil, 0) }, 0},
		{"credentials instead of pipes", 0, func(l *initLine, _ []*os.File) error {
			own := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
			return unix.Sendmsg(l.fd, []byte{0}, own, nil, 0)
		}, 0},
	} {
		l, socket := line(t)
		var readers, writers []*os.File
		for range row.pipes {
			r, w := pipe()
			readers, writers = append(readers, r), append(writers, w)
		}
		if err := row.send(l, readers); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		for _, r := range readers {
			r.Close() // the runner goes
		}
		contacts := 0
		if !receive(socket, func() { contacts++ }) || contacts != 1 {
			t.Errorf("%s: %d contacts; want 1", row.name, contacts)
		}
		if receive(socket, func() { contacts++ }) || contacts != 1 {
			t.Errorf("%s: another message was read; want it to wait", row.name)
		}
		for i, w := range writers {
			// More than a pipe holds: only a reader lets that through, and only a pipe that
			// has none at all ends the writer.
			if err := w.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			_, err := w.Write(make([]byte, 256<<10))
			if got := err == nil; got != (i < row.takes) {
				t.Errorf("%s: a child writes to pipe %d: %v; want it drained: %t", row.name, i, err, i < row.takes)
			}
			w.Close()
		}
	}
}

// The end of the last writer ends the draining: PID 1 keeps neither a descriptor nor the
// right to drain another.
func TestDrainEnds(t *testing.T) { // not parallel: draining counts for the whole process
	before := draining.Load()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	drain(fds[0])
	if n := draining.Load(); n != before+1 {
		t.Errorf("%d pipes are drained; want %d", n, before+1)
	}
	unix.Close(fds[1])
	eventually(t, "the end of the draining", func() bool { return draining.Load() == before })

	// Beyond the bound a pipe is closed: its writer gets SIGPIPE, and PID 1 no thread more.
	draining.Add(maxDraining)
	defer draining.Add(-maxDraining)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	drain(fd)
	if _, err := w.WriteString("x"); err == nil {
		t.Error("a pipe beyond the bound is drained; want it closed")
	}
	if n := draining.Load(); n != before+maxDraining {
		t.Errorf("%d pipes count as drained; want %d", n, before+maxDraining)
	}
	drain(-1) // a bad descriptor does not fail
}

// Contact is reported at once and then rarely, and never blocks, not even if PID 1 reads
// nothing; neither does leaving pipes.
func TestInitLineNeverBlocks(t *testing.T) {
	t.Parallel()
	l, socket := line(t)
	got := func() (n int) {
		for receive(socket, func() { n++ }) {
		}
		return n
	}
	began := time.Now()
	for range 100 {
		l.contact()
	}
	if n, most := got(), 1+int(time.Since(began)/contactPause); n < 1 || n > most {
		t.Errorf("100 contacts in %s send %d messages; want 1 to %d", time.Since(began), n, most)
	}
	l.last.Store(int64(time.Since(begun) - contactPause))
	l.contact()
	if n := got(); n != 1 {
		t.Errorf("after the pause a contact sends %d messages; want 1", n)
	}
	l.leave(nil)
	if n := got(); n != 0 {
		t.Errorf("to leave no pipes sends %d messages; want none", n)
	}
	for unix.Sendmsg(l.fd, []byte{0}, nil, nil, 0) == nil {
		continue // until the queue is full
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	least := time.Duration(math.MaxInt64) // of some tries: the machine may be busy
	for range 5 {
		began = time.Now()
		l.last.Store(0)
		l.contact()
		least = min(least, time.Since(began))
	}
	if least > leaveTime/2 {
		t.Errorf("a contact with a full queue takes %s; want it dropped at once", least)
	}
	began = time.Now()
	l.leave([]*os.File{r})
	if d := time.Since(began); d < leaveTime || d > leaveTime+10*time.Second {
		t.Errorf("to leave a pipe with a full queue takes %s; want %s", d, leaveTime)
	}
}

// A lease is as long as the time after the last contact: a host that speaks keeps the session,
// and one that only holds its stream open does not.
func TestInitLease(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // more than a busy machine may stand still
	spoken, silent := newLab(t, lease), newLab(t, lease)
	h := spoken.serve()
	began := time.Now() // before the last contact of the silent host
	_ = silent.serve()
	over := make(chan time.Duration, 1)
	go func() {
		_ = silent.init.Wait()
		over <- time.Since(began)
	}()
	for time.Since(began) < 2*lease {
		h.send(wire.TypePing, nil)
		if kind, _ := h.next(); kind != wire.TypePong {
			t.Fatalf("the answer is %q; want a Pong", kind)
		}
		time.Sleep(lease / 20)
	}
	if n := spoken.count(string(wire.VerbServe)); n == 0 {
		t.Error("the session of a host that speaks is over")
	}
	if at := <-over; at < lease || at > 4*lease {
		t.Errorf("the session of a silent host is over after %s; want about %s", at, lease)
	}
}

// What PID 1 and the runners share is uid 0's: commands can neither read, nor write, nor
// signal it.
func TestInitState(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	for _, script := range []string{
		"ls " + stateDir, "cat " + slotPath(0), "echo x >" + oomClaims, "cat " + freezeLock, "rm -rf " + stateDir + "/*; ls " + stateDir,
		"kill -TERM 1", "kill -USR2 1", "kill -KILL $PPID", "cat /proc/1/environ", "ls /proc/$PPID/fd", "cat /proc/$PPID/mem",
	} {
		if a := h.run(wire.Request{Script: []byte(script + " 2>/dev/null")}); a.exit.Code == 0 || a.stdout.Len() > 0 {
			t.Errorf("%s: %+v, %q; want it refused", script, a.exit, &a.stdout)
		}
	}
	out, err := exec.CommandContext(t.Context(), "nsenter", "-t", l.pid(), "-m", "--", "sh", "-c",
		"cd "+stateDir+" && stat -c '%a %u %n' . *").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "700 0 .\n600 0 freeze\n755 0 init\n600 0 oom\n"
	for i := range slots {
		want += fmt.Sprintf("600 0 slot%d\n", i)
	}
	if got := string(out); strings.ReplaceAll(got, "775 0 init", "755 0 init") != want {
		t.Errorf("the state is\n%swant\n%s", got, want)
	}
}

// PID 1 reaps what no other process waits for, and does not start twice in a container.
func TestInitReaps(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	for range 3 {
		// Their parent ends first, and then they do.
		shell := exec.CommandContext(t.Context(), "nsenter", "-t", l.pid(), "-p", "-m", "--", "sh", "-c", "for i in 1 2 3 4 5; do sleep 0.01 & done")
		if err := shell.Run(); err != nil {
			t.Fatal(err)
		}
	}
	dead := wire.Request{Script: []byte("cut -d' ' -f3,4 /proc/[0-9]*/stat | grep -c '^Z 1$'; exit 0")}
	eventually(t, "no dead child of PID 1 is left", func() bool { return h.run(dead).stdout.String() == "0\n" })

	again := l.command(wire.VerbInit.Command(&wire.InitArgs{Lease: time.Minute, User: labUser})...)
	var stderr bytes.Buffer
	again.Stderr = &stderr
	_ = again.Run()
	if code := again.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "file exists") {
		t.Errorf("a second init ends with %d and says %q; want 1, and that there is one", code, &stderr)
	}
	if a := h.run(wire.Request{Script: []byte("echo on")}); a.stdout.String() != "on\n" {
		t.Errorf("afterwards a command writes %q; want on", &a.stdout)
	}
}

// On SIGUSR2 PID 1 ends all that was left to it, however it resists, and no runner's command.
func TestInitSweeps(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	for name, script := range map[string]string{
		"one":          "sleep 4225 &",
		"deaf":         "(trap '' TERM HUP INT; while :; do sleep 4225; done) &",
		"stopped":      "sh -c 'kill -STOP $$; exec sleep 4225' &",
		"many":         "for i in 1 2 3 4 5 6 7 8 9; do setsid sleep 4225 & done",
		"fork in turn": "(f() { sleep 0.002; (f 4225 &); }; f) &",
	} {
		h := l.serve()
		if a := h.run(wire.Request{Script: []byte(script)}); a.exit.Left == 0 {
			t.Errorf("%s: %+v; want children left", name, a.exit)
			continue
		}
		h.ends()
		command := l.serve()
		command.request(wire.Request{Script: []byte("echo; exec sleep 4224")})
		command.started()
		if err := l.init.Process.Signal(unix.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+": nothing is left", func() bool { return l.count("4225") == 0 })
		// While a process becomes another program its arguments cannot be read.
		eventually(t, name+": the command of a runner is alive", func() bool { return l.count("sleep 4224") == 1 })
		command.in.Close()
		command.ends()
	}
}

// Where another process has PID 1's place, a runner waits, and then says that there is none.
func TestDialInitWaits(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	_ = l.serve() // PID 1 is ready
	hide := filepath.Join("/run", "hidden")
	move := func(from, to string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "nsenter", "-t", l.pid(), "-m", "--", "mv", from, to).CombinedOutput(); err != nil {
			t.Fatalf("mv: %v, %s", err, out)
		}
	}
	move(initSocket, hide)
	cmd := l.command(string(wire.VerbServe))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	move(hide, initSocket) // PID 1 is there, late
	if kind, _, err := wire.NewReader(out).Next(); kind != wire.TypeHello || err != nil {
		t.Errorf("the first frame is %q, %v; want a Hello once PID 1 is there", kind, err)
	}
	in.Close()
	_ = cmd.Wait()
}

// A session that is kept lives longer than its lease, and one that was paused gets its lease once more.
func TestInitLeaseIsChanged(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second // with room for the start of the verb on a busy machine
	for _, row := range []struct {
		name        string
		args        wire.LeaseArgs
		paused      time.Duration
		least, most time.Duration // from the verb on
	}{
		{"kept", wire.LeaseArgs{Do: wire.LeaseKeep, For: 3 * lease}, 0, 5 * lease / 2, 8 * lease},
		{"kept for less than its lease", wire.LeaseArgs{Do: wire.LeaseKeep, For: time.Millisecond}, 0, lease / 2, 3 * lease},
		{"paused", wire.LeaseArgs{Do: wire.LeasePause}, 3 * lease, 3*lease + lease/2, 8 * lease},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, lease)
			_ = l.serve() // PID 1 is ready
			began := time.Now()
			if out, err := l.command(wire.VerbLease.Command(&row.args)...).CombinedOutput(); err != nil {
				t.Fatalf("runner lease = %v, %s", err, out)
			}
			if row.paused > 0 {
				if err := l.init.Process.Signal(unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				time.Sleep(row.paused)
				if err := l.init.Process.Signal(unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			_ = l.init.Wait()
			if d, code := time.Since(began), l.init.ProcessState.ExitCode(); code != wire.ExitLeaseOver || d < row.least || d > row.most {
				t.Errorf("PID 1 ends with %d after %s; want %d, after %s to %s", code, d, wire.ExitLeaseOver, row.least, row.most)
			}
		})
	}
}
