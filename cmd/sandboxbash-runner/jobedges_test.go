//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/jobs"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// inside runs a program in the lab's mounts as uid 0, as nothing in a session can.
func (l *lab) inside(script string) string {
	l.t.Helper()
	out, err := exec.CommandContext(l.t.Context(), "nsenter", "-t", l.pid(), "-m", "--", "sh", "-c", script).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v, %s", script, err, out)
	}
	return string(out)
}

// files lists the directory of jobs, without the lock.
func (l *lab) files() string {
	l.t.Helper()
	return strings.Join(strings.Fields(l.inside("cd "+wire.JobsDir+"; ls -A | grep -v '^[.]lock$' || :")), " ")
}

// A job that is not started leaves nothing, and takes no id.
func TestJobNotStarted(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	for _, row := range []struct {
		name    string
		req     wire.Request
		failure wire.Failure
	}{
		{"no such shell", wire.Request{Shell: "fish"}, wire.FailNoShell},
		{"no such directory", wire.Request{Script: []byte("echo"), Dir: "/none"}, wire.FailDirMissing},
		{"no such program", wire.Request{Path: "/none"}, wire.FailOther},
		{"too large", wire.Request{Script: []byte("echo"), Args: []string{strings.Repeat("x", wire.MaxArgument)}}, wire.FailTooBig},
	} {
		for _, background := range []bool{true, false} {
			row.req.Job = labJob(background)
			if a := h.run(row.req); a.failed == nil || a.failed.Failure != row.failure {
				t.Errorf("%s, background %t: %+v, %+v; want failure %d", row.name, background, a.failed, a.detached, row.failure)
			}
			if files := l.files(); files != "" {
				t.Errorf("%s, background %t: %s is left; want nothing", row.name, background, files)
			}
		}
	}
	if _, d := l.background("exit 0", labJob(true)); d.ID != "bg_1" {
		t.Errorf("the first job is %s; want bg_1", d.ID)
	}
}

// A command that could be a job and ends first is none: nothing of it is left, and a
// hand-over that comes after is not answered.
func TestJobEndsFirst(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	for i := range 20 {
		h.request(wire.Request{Script: []byte("echo short"), Job: labJob(false)})
		if i%2 == 0 {
			h.started() // it may have ended before the hand-over, or not
		}
		h.send(wire.TypeDetach, wire.Detach{Seq: h.seq}.Append(nil))
		a := h.answer()
		if a.detached != nil { // it was handed over
			h.ends()
			l.ended(a.detached.ID)
			if _, refusal := l.ask(wire.JobQuery{Verb: wire.JobRemove, ID: a.detached.ID}); refusal != "" {
				t.Fatalf("remove %s: %s", a.detached.ID, refusal)
			}
			h = l.serve()
		} else if a.exit.Code != 0 || h.taken+a.stdout.Len() != len("short\n") {
			t.Errorf("%+v, %d bytes; want its whole output and its end", a.exit, h.taken+a.stdout.Len())
		}
		if files := l.files(); files != "" {
			t.Fatalf("%s is left; want nothing", files)
		}
	}
}

// A hand-over that is refused leaves the command with its host, which may ask again.
func TestJobDetachRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	full := labJob(false)
	full.Most = 1
	_, first := l.background("exec sleep 4216", labJob(true))
	h := l.serve()
	h.request(wire.Request{Script: []byte("echo 1; read line; echo $line"), Job: full, Stdin: true})
	h.started()
	h.send(wire.TypeDetach, wire.Detach{Seq: h.seq}.Append(nil))
	a := h.answer()
	if a.detached == nil || a.detached.ID != "" || a.detached.Failure != wire.FailJobLimit {
		t.Fatalf("%+v, %+v; want the hand-over refused at the limit", a.detached, a.exit)
	}
	h.send(wire.TypeStdin, []byte("on\n")) // it goes on, its input too
	if a := h.answer(); a.stdout.String() != "on\n" || a.exit.Code != 0 {
		t.Errorf("%q, %+v; want it to go on to its end", &a.stdout, a.exit)
	}
	if states := l.jobs(); len(states) != 1 || states[0].ID != first.ID {
		t.Errorf("jobs %+v; want the first one alone", states)
	}
	if a := h.run(wire.Request{Script: []byte("echo next")}); a.stdout.String() != "next\n" {
		t.Errorf("the next command: %q, %+v; want next", &a.stdout, a.failed)
	}
}

// A job has no input: what its host had not sent by the hand-over does not come.
func TestJobInputEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	h.request(wire.Request{Script: []byte("echo start; cat; echo end"), Job: labJob(false), Stdin: true})
	h.started()
	h.send(wire.TypeStdin, []byte("sent\n"))
	h.send(wire.TypeDetach, wire.Detach{Seq: h.seq}.Append(nil))
	a := h.answer()
	if a.detached == nil || a.detached.ID == "" {
		t.Fatalf("%+v, %+v; want it handed over", a.detached, a.exit)
	}
	if end := l.ended(a.detached.ID); end.Code != 0 || end.Ending != wire.EndedItself {
		t.Errorf("%+v; want it to end at the end of its input", end)
	}
	if out := l.output(a.detached.ID); !strings.HasPrefix(out, "start\nsent\nend\n") {
		t.Errorf("the output is %q; want what was sent, and then its end", out)
	}
}

// A job that leaves children has ended; they pass to PID 1, and nothing that they write is
// the job's.
func TestJobLeavesChildren(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	_, d := l.background("(while ! test -e go; do sleep 0.01; done; echo late; touch wrote; exec sleep 4215) & echo now", labJob(true))
	if end := l.ended(d.ID); end.Left == 0 || end.Code != 0 || end.Written != 4 {
		t.Errorf("%+v; want it ended, with a child left", end)
	}
	h := l.serve()
	if a := h.run(wire.Request{Script: []byte("touch go; while ! test -e wrote; do sleep 0.01; done")}); a.exit.Code != 0 {
		t.Fatalf("%+v; want the child to have written", a.exit)
	}
	if out := l.output(d.ID); strings.Contains(out, "late") {
		t.Errorf("the output is %q; want nothing of the child's", out)
	}
	if err := l.init.Process.Signal(unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child is gone", func() bool { return l.count("sleep 4215") == 0 })
}

// Whatever is done to its files, a job is one that runs, one that ended, or one that is
// lost: its runner ends without harm, and the session goes on.
func TestJobFilesDamaged(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	for _, row := range []struct {
		name, damage string // ID stands for the job
		listed       bool
		end          bool // its record of the end is there
	}{
		{"nothing", ":", true, true},
		{"its output is removed", "rm ID.log", true, true},
		{"its output is a directory", "rm ID.log; mkdir ID.log", true, true},
		{"its output is a pipe", "rm ID.log; mkfifo ID.log", true, true},
		{"its record is removed", "rm ID.job", false, false},
		{"its record is a link", "rm ID.job; ln -s /etc/passwd ID.job", true, true},
		{"its record is empty", ": >ID.job", true, true},
		{"the room for its end is removed", "rm .runner-*.end", true, false},
		{"a directory is where its end goes", "mkdir ID.end; touch ID.end/x", true, false},
	} {
		_, d := l.background("while ! test -e go; do sleep 0.01; done; echo out", labJob(true))
		id := d.ID
		l.inside("cd " + wire.JobsDir + "; " + strings.ReplaceAll(row.damage, "ID", id))
		l.inside("touch " + labWork + "/go")
		eventually(t, row.name+": its runner ends", func() bool { return l.count("test -e go") == 0 })
		var found *wire.JobState
		var alive bool
		eventually(t, row.name+": nothing is alive", func() bool {
			found, alive = nil, false
			for _, s := range l.jobs() {
				if s.ID == id {
					found = &s
				}
				alive = alive || s.Alive
			}
			return !alive
		})
		if (found != nil) != row.listed {
			t.Errorf("%s: it is listed: %t; want %t", row.name, found != nil, row.listed)
		} else if found != nil {
			if _, err := wire.OpenJobEnd(labKey, found.End); (err == nil) != row.end {
				t.Errorf("%s: its end: %v; want it on record: %t", row.name, err, row.end)
			}
		}
		l.inside("rm -rf " + wire.JobsDir + "/* " + wire.JobsDir + "/.runner-* " + labWork + "/go")
	}
	if a := l.serve().run(wire.Request{Script: []byte("echo on")}); a.stdout.String() != "on\n" {
		t.Errorf("afterwards a command writes %q; want on", &a.stdout)
	}
}

// A job keeps the session's lease while it runs, and no longer.
func TestJobKeepsLease(t *testing.T) {
	t.Parallel()
	const lease = 5 * time.Second // with room for the start of a runner on a busy machine
	l := newLab(t, lease)
	h := l.dial()
	h.send(wire.TypeOpen, wire.Open{Version: wire.Version, Lease: lease}.Append(nil))
	began := time.Now()
	if a := h.run(wire.Request{Script: []byte("exec sleep 12.0"), Job: labJob(true)}); a.detached == nil {
		t.Fatalf("%+v; want it handed over", a.failed)
	}
	h.in.Close()
	_ = l.init.Wait()
	if d := time.Since(began); l.init.ProcessState.ExitCode() != wire.ExitLeaseOver || d < 12*time.Second {
		t.Errorf("PID 1 ends with %d after %s; want %d, a lease after the job's end", l.init.ProcessState.ExitCode(), d, wire.ExitLeaseOver)
	}
}

// Questions about jobs that do not exist, or that make no sense, are refused with a reason.
func TestJobQuestionsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	_, d := l.background("exec sleep 4214", labJob(true))
	for _, row := range []struct {
		name string
		q    wire.JobQuery
		says string
	}{
		{"no such job", wire.JobQuery{Verb: wire.JobWait, ID: "bg_9"}, "no such job"},
		{"a path", wire.JobQuery{Verb: wire.JobRead, ID: "../../etc/passwd"}, "no such job"},
		{"no id", wire.JobQuery{Verb: wire.JobTail}, "no such job"},
		{"no such question", wire.JobQuery{Verb: 99, ID: d.ID}, "no such question"},
		{"remove what runs", wire.JobQuery{Verb: wire.JobRemove, ID: d.ID}, "it is running"},
	} {
		if answer, refusal := l.ask(row.q); len(answer) > 0 || !strings.Contains(refusal, row.says) {
			t.Errorf("%s: %q, refused %q; want %q", row.name, answer, refusal, row.says)
		}
	}
	// PID 1 and process groups are never what a job's runner is.
	for _, runner := range []int{0, 1, -1, -d.PID} {
		if _, refusal := l.ask(wire.JobQuery{Verb: wire.JobKill, ID: d.ID, Runner: runner}); refusal != "" {
			t.Errorf("kill by runner %d: %s; want nothing done", runner, refusal)
		}
	}
	// While a process becomes another program its arguments cannot be read.
	eventually(t, "the job's process is alive", func() bool { return l.count("sleep 4214") == 1 })
	h := l.serve()
	h.request(wire.Request{Path: wire.RunnerPath, Args: wire.VerbJobs.Command(), Stdin: true})
	for range 3 { // a question without end
		h.send(wire.TypeStdin, make([]byte, maxQuery/2))
	}
	if a := h.answer(); a.exit.Code != 0 || a.exit.Stdout == 0 { // zeros ask for the list
		t.Errorf("a question without end: %+v, %q; want what was read of it answered", a.exit, &a.stderr)
	}
	if a := h.run(wire.Request{Script: []byte("echo on")}); a.stdout.String() != "on\n" {
		t.Errorf("afterwards a command writes %q; want on", &a.stdout)
	}
}

// The states of a job, without a process: what the host and PID 1 learn, in which order.
func TestJobPhases(t *testing.T) { //nolint:tparallel // the rows go on from each other
	t.Parallel()
	fresh := func(t *testing.T, background bool) (*job, *written, jobs.Dir) {
		t.Helper()
		out := &written{}
		l, _ := line(t)
		s := &server{out: newFrameWriter(out), init: l}
		c := newCommand(s, wire.Request{Seq: 4})
		dir := jobs.Dir(t.TempDir())
		c.job = newJob(c, *labJob(background), dir, time.Minute)
		return c.job, out, dir
	}
	files := func(t *testing.T, d jobs.Dir) (names []string) {
		t.Helper()
		all, err := filepath.Glob(d.Path("bg_*"))
		own, err2 := filepath.Glob(d.Path(".runner-*"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for _, path := range append(all, own...) {
			names = append(names, filepath.Base(path))
		}
		return names
	}
	t.Run("asked for before the start", func(t *testing.T) {
		j, out, dir := fresh(t, false)
		if failed, ok := j.prepare(); !ok {
			t.Fatalf("prepare() = %+v", failed)
		}
		j.asked.Store(true)
		handed := make(chan struct{})
		go func() {
			defer close(handed)
			j.handOver()
		}()
		released := 0
		j.begin(func() { released++ })
		<-handed
		if !j.outlives() || released != 1 || len(out.calls) != 1 {
			t.Errorf("it outlives its host: %t, the slot was released %d times, %d frames; want it, once, one", j.outlives(), released, len(out.calls))
		}
		j.release()
		if released != 1 {
			t.Error("the slot was released twice")
		}
		if !j.finished(wire.Exit{Code: 3}) {
			t.Error("finished() = false; want that no Exit is sent")
		}
		b, err := os.ReadFile(dir.Path("bg_1" + jobs.EndSuffix))
		if end, endErr := wire.OpenJobEnd(labKey, b); err != nil || endErr != nil || end.Code != 3 {
			t.Errorf("the record says %+v, %v, %v; want code 3", end, err, endErr)
		}
	})
	t.Run("asked for after the end", func(t *testing.T) {
		j, out, dir := fresh(t, false)
		if failed, ok := j.prepare(); !ok {
			t.Fatalf("prepare() = %+v", failed)
		}
		j.begin(func() {})
		if j.finished(wire.Exit{}) {
			t.Error("finished() = true; want an Exit")
		}
		j.asked.Store(true)
		j.handOver()
		if j.outlives() || len(out.calls) != 0 || len(files(t, dir)) != 0 {
			t.Errorf("it outlives its host: %t, %d frames, files %q; want none of that", j.outlives(), len(out.calls), files(t, dir))
		}
	})
	t.Run("never started", func(t *testing.T) {
		j, out, dir := fresh(t, true)
		if failed, ok := j.prepare(); !ok || len(files(t, dir)) == 0 {
			t.Fatalf("prepare() = %+v, %t with files %q; want its record", failed, ok, files(t, dir))
		}
		j.abandon()
		j.never()
		if j.outlives() || len(out.calls) != 0 || len(files(t, dir)) != 0 {
			t.Errorf("it outlives its host: %t, %d frames, files %q; want none of that", j.outlives(), len(out.calls), files(t, dir))
		}
	})
	t.Run("the directory fails at the hand-over", func(t *testing.T) {
		j, out, dir := fresh(t, false)
		if failed, ok := j.prepare(); !ok {
			t.Fatalf("prepare() = %+v", failed)
		}
		if err := os.RemoveAll(string(dir)); err != nil {
			t.Fatal(err)
		}
		j.begin(func() { t.Error("the slot was released") })
		j.asked.Store(true)
		j.handOver()
		kind, payload, err := wire.NewReader(strings.NewReader(strings.Join(out.calls, ""))).Next()
		detached, parseErr := wire.ParseDetached(payload)
		if kind != wire.TypeDetached || err != nil || parseErr != nil || detached.ID != "" || detached.Failure != wire.FailJobs || detached.Seq != 4 {
			t.Errorf("%q %+v, %v, %v; want a hand-over refused", kind, detached, err, parseErr)
		}
		if j.outlives() || j.finished(wire.Exit{}) {
			t.Error("it outlives its host; want it with its host")
		}
	})
	t.Run("why it was killed", func(t *testing.T) {
		j, _, _ := fresh(t, false)
		close(j.c.ended) // there is nothing to kill
		j.kill(wire.EndedTimeout)
		j.kill(wire.EndedByDemand)
		if got := wire.Ending(j.ending.Load()); got != wire.EndedTimeout {
			t.Errorf("the ending is %d; want the first, %d", got, wire.EndedTimeout)
		}
	})
}
