//go:build linux

package jobs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// In profile dev a command may put anything into the directory. Nothing there is followed,
// waited for, or read beyond its bound.
func TestOpenHostile(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	outside := filepath.Join(t.TempDir(), "secret")
	err := errors.Join(
		os.WriteFile(outside, []byte("secret"), 0o600), os.Symlink(outside, d.Path("link")), os.Symlink("circle", d.Path("circle")),
		os.Mkdir(d.Path("dir"), 0o700), unix.Mkfifo(d.Path("fifo"), 0o600), os.WriteFile(d.Path("plain"), []byte("text"), 0o600),
		os.WriteFile(d.Path("large"), make([]byte, wire.MaxRecord+1), 0o600), os.WriteFile(d.Path("empty"), nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"plain": 4, "empty": 0, "large": wire.MaxRecord, "link": -1, "circle": -1, "dir": -1, "fifo": -1, "none": -1} {
		f, err := d.open(name)
		if (err == nil) != (want >= 0) {
			t.Errorf("open(%s) = %v; want it opened: %t", name, err, want >= 0)
		}
		if err == nil {
			f.Close()
		}
		if got := d.read(name); len(got) != max(0, want) {
			t.Errorf("read(%s) = %d bytes; want %d", name, len(got), max(0, want))
		}
		if d.held(name) {
			t.Errorf("held(%s) = true; want false", name)
		}
	}
}

// A job whose files are not what they should be is listed as far as it can be read, and
// does not keep the others from being listed.
func TestListDamaged(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		damage func(d Dir) error // of bg_2, which has ended
		check  func(s wire.JobState) bool
	}{
		{"an end that is not a record", func(d Dir) error { return os.WriteFile(d.Path("bg_2.end"), []byte("x"), 0o600) }, func(s wire.JobState) bool { return string(s.End) == "x" }},
		{"an end that is a directory", func(d Dir) error {
			return errors.Join(os.Remove(d.Path("bg_2.end")), os.Mkdir(d.Path("bg_2.end"), 0o700))
		}, func(s wire.JobState) bool { return len(s.End) == 0 && !s.Alive }},
		{"a start that is a link", func(d Dir) error {
			return errors.Join(os.Remove(d.Path("bg_2.job")), os.Symlink("/etc/passwd", d.Path("bg_2.job")))
		}, func(s wire.JobState) bool { return len(s.Start) == 0 && !s.Alive }},
		{"an output that is gone", func(d Dir) error { return os.Remove(d.Path("bg_2.log")) }, func(s wire.JobState) bool { return s.Size == 0 }},
		{"an artifact without end", func(d Dir) error { return os.WriteFile(d.Path("bg_2.art"), make([]byte, 1<<20), 0o600) }, func(s wire.JobState) bool { return len(s.Artifact) == wire.MaxRecord }},
		{"a time that is not a number", func(d Dir) error { return os.WriteFile(d.Path("bg_2.known"), []byte("soon"), 0o600) }, func(s wire.JobState) bool { return s.Known }},
		{"a time of the future", func(d Dir) error {
			return os.WriteFile(d.Path("bg_2.known"), strconv.AppendInt(nil, int64(Clock()+time.Hour), 10), 0o600)
		}, func(s wire.JobState) bool { return s.Known }},
	} {
		d := Dir(t.TempDir())
		put(t, d, "bg_1", "")
		end(t, d, "bg_2", put(t, d, "bg_2", "text"), time.Second, 4)
		if err := row.damage(d); err != nil {
			t.Fatal(err)
		}
		all := states(t, d, long)
		if s, ok := all["bg_2"]; !ok || !row.check(s) {
			t.Errorf("%s: it is listed %t as %+v", row.name, ok, s)
		}
		if s, ok := all["bg_1"]; !ok || !s.Alive {
			t.Errorf("%s: the other job is listed %t as %+v; want it alive", row.name, ok, s)
		}
	}
}

// Only names that a runner gives are jobs.
func TestIDs(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	for _, name := range []string{"bg_10.job", "bg_9.job", "bg_1.job", "bg_01.job", "bg_-1.job", "bg_.job", "bg_2.job.x", "x.job", ".job", "bg_3.log", "bg_99999999999999999999.job"} {
		if err := os.WriteFile(d.Path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.ids()
	if want := []string{"bg_1", "bg_9", "bg_10"}; !slices.Equal(got, want) || err != nil {
		t.Errorf("ids() = %q, %v; want %q", got, err, want)
	}
	if n, err := d.Running(); n != 0 || err != nil {
		t.Errorf("Running() = %d, %v; want none, because none is locked", n, err)
	}
	gone := Dir(d.Path("gone"))
	_, idsErr := gone.ids()
	_, freeErr := gone.Free()
	_, lockErr := gone.Lock()
	_, runningErr := gone.Running()
	for what, err := range map[string]error{"ids": idsErr, "Free": freeErr, "Lock": lockErr, "Running": runningErr, "Tidy": gone.Tidy(long)} {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s() without the directory = %v; want %v", what, err, os.ErrNotExist)
		}
	}
}

// A file of one runner replaces what an earlier run has left under its name, a link too.
func TestCreate(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	outside := filepath.Join(t.TempDir(), "kept")
	name := ownPrefix + strconv.Itoa(os.Getpid()) + EndSuffix
	if err := errors.Join(os.WriteFile(outside, []byte("kept"), 0o600), os.Symlink(outside, d.Path(name))); err != nil {
		t.Fatal(err)
	}
	f, err := d.Create(EndSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !d.held(name) {
		t.Error("a file that was created is not locked")
	}
	if b, err := os.ReadFile(outside); string(b) != "kept" || err != nil {
		t.Errorf("what a link led to holds %q, %v; want it untouched", b, err)
	}
	// A directory in the way is an error, not a job without its record.
	if err := os.MkdirAll(d.Path(ownPrefix+strconv.Itoa(os.Getpid())+".put/x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.put("bg_1"+knownSuffix, nil); err == nil || d.exists("bg_1"+knownSuffix) {
		t.Errorf("put() with a directory in the way = %v; want an error, and no file", err)
	}
}

// The lock is held by one process at a time; who cannot get it in time says so.
func TestLockTimesOut(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	unlock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if second, err := d.Lock(); !errors.Is(err, unix.EWOULDBLOCK) || second != nil || time.Since(began) < lockTime {
		t.Errorf("a second Lock() = %v after %s; want %v after %s", err, time.Since(began), unix.EWOULDBLOCK, lockTime)
	}
	unlock()
	third, err := d.Lock()
	if err != nil {
		t.Fatalf("Lock() after the first was released = %v", err)
	}
	third()
}

// Only the runner that keeps a job is asked to end it.
func TestKill(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	f := put(t, d, "bg_1", "")
	for _, row := range []struct {
		name  string
		lock  int // what the runner of the job does with its lock
		kills func(pid int) int
		want  unix.Signal
	}{
		{"its runner", unix.LOCK_EX, func(pid int) int { return pid }, unix.SIGUSR1},
		{"its runner, which has ended", unix.LOCK_UN, func(pid int) int { return pid }, unix.SIGTERM}, // the pid may be another's by now
		{"a process group", unix.LOCK_EX, func(pid int) int { return -pid }, unix.SIGTERM},
		{"all processes", unix.LOCK_EX, func(int) int { return -1 }, unix.SIGTERM},
		{"its own group", unix.LOCK_EX, func(int) int { return 0 }, unix.SIGTERM},
		{"PID 1", unix.LOCK_EX, func(int) int { return 1 }, unix.SIGTERM},
	} {
		runner := exec.CommandContext(t.Context(), "sleep", "60")
		runner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := runner.Start(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), row.lock); err != nil {
			t.Fatal(err)
		}
		if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobKill, ID: "bg_1", Runner: row.kills(runner.Process.Pid)}, nil); err != nil {
			t.Errorf("%s: kill = %v; want nil", row.name, err)
		}
		_ = runner.Process.Signal(unix.SIGTERM) // comes second: it ends what lives on
		_ = runner.Wait()
		if status, ok := runner.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != row.want {
			t.Errorf("%s: the process ended by %s; want %s", row.name, runner.ProcessState, row.want)
		}
	}
}

// The kernel's notifications are read as they come: cut short, or about something else.
func TestTells(t *testing.T) {
	t.Parallel()
	event := func(mask uint32, name string, padded int) []byte {
		b := binary.NativeEndian.AppendUint32(nil, 1)
		b = binary.NativeEndian.AppendUint32(b, mask)
		b = binary.NativeEndian.AppendUint32(b, 0)
		b = binary.NativeEndian.AppendUint32(b, uint32(padded))
		return append(append(b, name...), make([]byte, max(0, padded-len(name)))...)
	}
	for _, row := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"a job", event(unix.IN_MOVED_TO, "bg_1.job", 16), true},
		{"an end", event(unix.IN_MOVED_TO, "bg_1.end", 16), true},
		{"an output", event(unix.IN_CLOSE_WRITE, "bg_1.log", 16), false},
		{"the lock", event(unix.IN_CLOSE_WRITE, ".lock", 16), false},
		{"of the directory", event(unix.IN_DELETE, "", 0), false},
		{"one that matters behind one that does not", append(event(unix.IN_MODIFY, ".lock", 16), event(unix.IN_MOVED_TO, "bg_1.job", 16)...), true},
		{"some were lost", event(unix.IN_Q_OVERFLOW, "", 0), true},
		{"a name beyond the end", event(unix.IN_MODIFY, ".lock", 16)[:unix.SizeofInotifyEvent+3], true},
		{"a length beyond all names", event(unix.IN_MODIFY, "", 1<<20)[:unix.SizeofInotifyEvent], true},
		{"half an event", event(unix.IN_MODIFY, ".lock", 16)[:7], false},
		{"nothing", nil, false},
	} {
		n := &news{matters: ofJobs}
		if got := n.tells(row.b); got != row.want {
			t.Errorf("%s: tells() = %t; want %t", row.name, got, row.want)
		}
		if !(&news{}).tells(row.b) {
			t.Errorf("%s: without a choice tells() = false; want true", row.name)
		}
	}
}

// A note is kept once: the time since when an end is known does not start again.
func TestNote(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	end(t, d, "bg_1", put(t, d, "bg_1", ""), 0, 0)
	note := func(q wire.JobQuery) {
		t.Helper()
		q.Verb, q.ID = wire.JobNote, "bg_1"
		if err := d.Answer(t.Context(), q, nil); err != nil {
			t.Fatal(err)
		}
	}
	note(wire.JobQuery{Known: true})
	first := d.read("bg_1" + knownSuffix)
	note(wire.JobQuery{Known: true, Artifact: "one"})
	note(wire.JobQuery{Artifact: "two"})
	note(wire.JobQuery{})
	if again := d.read("bg_1" + knownSuffix); len(first) == 0 || !bytes.Equal(first, again) {
		t.Errorf("known since %s, and then since %s; want it unchanged", first, again)
	}
	if art := d.read("bg_1" + artSuffix); string(art) != "two" {
		t.Errorf("the artifact is %q; want the last", art)
	}
}
