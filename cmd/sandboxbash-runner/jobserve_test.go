//go:build linux

package main

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

var labKey = []byte("the key of this session")

func labJob(background bool) *wire.Job {
	return &wire.Job{Background: background, Tag: "tag", Owner: "owner", Label: "label", Cap: 1 << 20, Key: labKey}
}

// ask puts a query about jobs, and returns its answer and why the runner refused.
func (l *lab) ask(q wire.JobQuery) (answer []byte, refusal string) {
	l.t.Helper()
	h := l.serve()
	defer h.in.Close()
	h.query(q)
	a := h.answer()
	if a.failed != nil || (a.exit.Code != 0) != (a.stderr.Len() > 0) {
		l.t.Fatalf("%+v, %+v, %q; want an answer, or a refusal with its reason", a.failed, a.exit, &a.stderr)
	}
	return a.stdout.Bytes(), a.stderr.String()
}

// query sends a query about jobs.
func (h *host) query(q wire.JobQuery) {
	h.t.Helper()
	h.request(wire.Request{Path: wire.RunnerPath, Args: wire.VerbJobs.Command(), Stdin: true})
	h.send(wire.TypeStdin, q.Append(nil))
	h.send(wire.TypeStdinEnd, nil)
}

// ended waits for the end of a job, and reads its record.
func (l *lab) ended(id string) wire.JobEnd {
	l.t.Helper()
	if _, refusal := l.ask(wire.JobQuery{Verb: wire.JobWait, ID: id}); refusal != "" {
		l.t.Fatalf("wait for %s: %s", id, refusal)
	}
	for _, state := range l.jobs() {
		if state.ID == id {
			end, err := wire.OpenJobEnd(labKey, state.End)
			if err != nil || state.Alive {
				l.t.Fatalf("the end of %s: %v, alive %t; want a sealed record", id, err, state.Alive)
			}
			return end
		}
	}
	l.t.Fatalf("%s is not listed", id)
	return wire.JobEnd{}
}

func (l *lab) jobs() []wire.JobState {
	l.t.Helper()
	out, refusal := l.ask(wire.JobQuery{Verb: wire.JobList, Keep: wire.JobKeep{Known: time.Hour, Unknown: time.Hour}})
	states, err := wire.ParseJobStates(out)
	if err != nil || refusal != "" {
		l.t.Fatalf("list jobs: %v, %q", err, refusal)
	}
	return states
}

// output is what the file of a job's output holds.
func (l *lab) output(id string) string {
	l.t.Helper()
	out, err := exec.CommandContext(l.t.Context(), "nsenter", "-t", l.pid(), "-m", "--", "cat", wire.JobOutput(id)).Output()
	if err != nil {
		l.t.Fatalf("read the output of %s: %v", id, err)
	}
	return string(out)
}

// background starts a job and returns what its runner says of the hand-over.
func (l *lab) background(script string, job *wire.Job) (*host, *wire.Detached) {
	l.t.Helper()
	h := l.serve()
	a := h.run(wire.Request{Script: []byte(script), Job: job})
	if a.detached == nil || a.detached.ID == "" {
		l.t.Fatalf("%q: %+v, %+v, %+v; want it handed over", script, a.detached, a.failed, a.exit)
	}
	return h, a.detached
}

// A job goes on without its host; how it ended is on record, sealed, and in its output.
func TestJobEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	timeout := labJob(true)
	timeout.Timeout, timeout.Grace = 100*time.Millisecond, 20*time.Second
	deaf := labJob(true)
	deaf.Timeout, deaf.Grace = 100*time.Millisecond, 50*time.Millisecond
	small := labJob(true)
	small.Cap = 4
	for _, row := range []struct {
		name, script string
		job          *wire.Job
		want         wire.JobEnd // what is not counted or timed
		output       string
	}{
		{"well", "echo 1; echo 2", labJob(true), wire.JobEnd{Written: 4, Kept: 4}, "1\n2\n\n\n[background process completed]\n"},
		{"with a code", "exit 9", labJob(true), wire.JobEnd{Code: 9}, "\n\n[background process failed: exit status: 9]\n"},
		{"by a signal", "kill -KILL $$", labJob(true), wire.JobEnd{Signal: 9}, "\n\n[background process failed: signal: 9 (SIGKILL)]\n"},
		{"late", "exec sleep 4233", timeout, wire.JobEnd{Ending: wire.EndedTimeout, Signal: 15, Rung: wire.RungTerm}, "\n\n[background process error: timed out]\n"},
		{"late and deaf", "trap '' TERM; while :; do sleep 4233; done", deaf, wire.JobEnd{Ending: wire.EndedTimeout, Signal: 9, Rung: wire.RungKill}, "\n\n[background process error: timed out]\n"},
		{"with much to say", "printf 123456", small, wire.JobEnd{Written: 6, Kept: 4}, "1234\n\n[2 bytes of output were not kept: the limit is 4 bytes]\n\n[background process completed]\n"},
	} {
		h, job := l.background(row.script, row.job)
		h.in.Close() // the host goes
		end := l.ended(job.ID)
		got := wire.JobEnd{Ending: end.Ending, Code: end.Code, Signal: end.Signal, Rung: end.Rung, Written: end.Written, Kept: end.Kept}
		if got.Ending != row.want.Ending || got.Code != row.want.Code || got.Signal != row.want.Signal || got.Rung != row.want.Rung ||
			got.Written != row.want.Written || got.Kept != row.want.Kept || end.ID != job.ID || end.Tag != "tag" {
			t.Errorf("%s: %s %q ended as %+v; want %+v", row.name, end.ID, end.Tag, got, row.want)
		}
		// The last line comes after the record: a reader sees one or the other first.
		eventually(t, row.name+": its last line", func() bool { return strings.HasSuffix(l.output(job.ID), "]\n") })
		if out := l.output(job.ID); out != row.output {
			t.Errorf("%s: the output is %q; want %q", row.name, out, row.output)
		}
		if code := h.ends(); code != 0 {
			t.Errorf("%s: the runner ends with %d, and says %q; want 0", row.name, code, h.stderr.String())
		}
	}
	if n := l.count("sleep 4233"); n != 0 {
		t.Errorf("%d processes survive their jobs; want none", n)
	}
}

// A job's record is there while it runs, says whose it is, and holds only for the key.
func TestJobRecord(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	job := labJob(true)
	job.Timeout = time.Hour
	_, d := l.background("exec sleep 4232", job)
	states := l.jobs()
	if len(states) != 1 || !states[0].Alive || len(states[0].End) != 0 {
		t.Fatalf("%+v; want one job, alive, without an end", states)
	}
	start, err := wire.OpenJobStart(labKey, states[0].Start)
	if err != nil || start.ID != d.ID || start.PID != d.PID || start.Owner != "owner" || start.Label != "label" || start.Timeout != time.Hour {
		t.Errorf("%+v, %v; want the record of %s with its pid, owner, label and timeout", start, err, d.ID)
	}
	if _, err := wire.OpenJobStart([]byte("another"), states[0].Start); !errors.Is(err, wire.ErrSeal) {
		t.Errorf("with another key: %v; want %v", err, wire.ErrSeal)
	}
	// Commands may read the output and change nothing there.
	h := l.serve()
	a := h.run(wire.Request{Script: []byte("cd " + wire.JobsDir + "; cat " + d.ID + ".log && touch x; rm -f " + d.ID + ".log; cat " + d.ID + ".job; exit 0")})
	if n := strings.Count(a.stderr.String(), "Permission denied"); n != 3 {
		t.Errorf("a command may do more than read the output: %q", a.stderr.String())
	}
	if _, refusal := l.ask(wire.JobQuery{Verb: wire.JobRemove, ID: d.ID}); refusal == "" {
		t.Error("a job that runs was removed")
	}
	if _, refusal := l.ask(wire.JobQuery{Verb: wire.JobKill, ID: d.ID, Runner: start.Runner}); refusal != "" {
		t.Errorf("kill: %s", refusal)
	}
	if end := l.ended(d.ID); end.Ending != wire.EndedByDemand || end.Rung != wire.RungKill {
		t.Errorf("%+v; want it killed on demand", end)
	}
	if _, refusal := l.ask(wire.JobQuery{Verb: wire.JobRemove, ID: d.ID}); refusal != "" || len(l.jobs()) != 0 {
		t.Errorf("remove: %q, and then %d jobs; want none", refusal, len(l.jobs()))
	}
}

// A kill by the host may cross the hand-over. The record says why the host killed.
func TestJobKilledByHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	for _, row := range []struct {
		timedOut bool
		want     wire.Ending
	}{{true, wire.EndedTimeout}, {false, wire.EndedByDemand}} {
		h, d := l.background("exec sleep 4233", labJob(true))
		h.send(wire.TypeKill, wire.Kill{Seq: h.seq, TimedOut: row.timedOut}.Append(nil))
		if end := l.ended(d.ID); end.Ending != row.want || end.Rung != wire.RungKill {
			t.Errorf("killed by the host, timed out %t: %+v; want ending %d", row.timedOut, end, row.want)
		}
	}
}

// So many jobs run at once as the host allows, and no id is given twice.
func TestJobLimit(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	job := labJob(true)
	job.Most = 2
	ids := map[string]bool{}
	for range 2 {
		_, d := l.background("exec sleep 4231", job)
		ids[d.ID] = true
	}
	if len(ids) != 2 {
		t.Errorf("ids %v; want two", ids)
	}
	h := l.serve()
	if a := h.run(wire.Request{Script: []byte("exec sleep 4231"), Job: job}); a.failed == nil || a.failed.Failure != wire.FailJobLimit {
		t.Errorf("a third job: %+v, %+v; want it refused", a.failed, a.detached)
	}
	// While a process becomes another program its arguments cannot be read.
	eventually(t, "both jobs run, and no other", func() bool { return l.count("sleep 4231") == 2 })
	if a := h.run(wire.Request{Script: []byte("ls " + wire.JobsDir)}); strings.Count(a.stdout.String(), ".log") != 2 {
		t.Errorf("the refused job left something: %q", a.stdout.String())
	}
	// A job takes no slot: all of them are free.
	if a := h.run(wire.Request{Script: []byte("echo alone"), Exclusive: true}); a.stdout.String() != "alone\n" {
		t.Errorf("besides jobs, a command alone: %q, %+v; want it run", a.stdout.String(), a.failed)
	}
}

// A command is handed over while it runs: the host has its output up to there, the file
// all of it. One that has ended, or has not been asked for, is not.
func TestJobDetach(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	if a := h.run(wire.Request{Script: []byte("echo short"), Job: labJob(false)}); a.stdout.String() != "short\n" || a.exit.Code != 0 || a.detached != nil {
		t.Errorf("%q, %+v, %+v; want a command like any other", a.stdout.String(), a.exit, a.detached)
	}
	h.send(wire.TypeDetach, wire.Detach{Seq: h.seq}.Append(nil)) // too late
	h.request(wire.Request{Script: []byte("echo before; while ! test -e go; do sleep 0.01; done; echo after"), Job: labJob(false)})
	h.started()
	h.send(wire.TypeDetach, wire.Detach{Seq: h.seq - 1}.Append(nil)) // of another command
	h.send(wire.TypeDetach, wire.Detach{Seq: h.seq}.Append(nil))
	a := h.answer()
	if a.detached == nil || a.detached.ID == "" || a.detached.Stdout != uint64(len("before\n")) || a.detached.Seq != h.seq {
		t.Fatalf("%+v; want it handed over after its first line", a.detached)
	}
	h.in.Close()
	if a := l.serve().run(wire.Request{Script: []byte("touch go")}); a.exit.Code != 0 {
		t.Fatalf("%+v", a.exit)
	}
	if end := l.ended(a.detached.ID); end.Code != 0 || end.Written != uint64(len("before\nafter\n")) {
		t.Errorf("%+v; want both lines", end)
	}
	if _, _, err := h.out.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the hand-over: %v; want nothing", err)
	}
	if out := l.output(a.detached.ID); !strings.HasPrefix(out, "before\nafter\n") {
		t.Errorf("the output is %q; want both lines", out)
	}
	if n := len(l.jobs()); n != 1 {
		t.Errorf("%d jobs are listed; want the one that was handed over", n)
	}
}

// Without its host, and not handed over, a command ends even if it could be a job.
func TestJobNotHandedOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	h.request(wire.Request{Script: []byte("trap '' TERM; echo; exec sleep 4230"), Job: labJob(false)})
	h.started()
	h.in.Close()
	if code := h.ends(); code != 0 {
		t.Errorf("the runner ends with %d, and says %q; want 0", code, h.stderr.String())
	}
	if n := l.count("sleep 4230"); n != 0 || len(l.jobs()) != 0 {
		t.Errorf("%d processes, %d jobs; want neither", n, len(l.jobs()))
	}
}

// What cannot be kept is not started.
func TestJobWithoutRoom(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	h := l.serve()
	gone := exec.CommandContext(t.Context(), "nsenter", "-t", l.pid(), "-m", "--", "rmdir", wire.JobsDir)
	if out, err := gone.CombinedOutput(); err != nil {
		t.Fatalf("rmdir: %v, %s", err, out)
	}
	for _, background := range []bool{true, false} {
		a := h.run(wire.Request{Script: []byte("touch ran"), Job: labJob(background)})
		if f := a.failed; f == nil || f.Failure != wire.FailJobs || unix.Errno(f.Errno) != unix.ENOENT {
			t.Errorf("background %t: %+v, %+v; want it refused", background, a.failed, a.exit)
		}
	}
	if a := h.run(wire.Request{Script: []byte("test -e ran")}); a.exit.Code != 1 {
		t.Error("a command that was refused has run")
	}
}

// A runner answers questions itself: nothing begins, a kill ends a question that waits,
// and the runner is free for the next request.
func TestAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	_, job := l.background("exec sleep 4229", labJob(true))
	h := l.serve()
	for _, q := range []wire.JobQuery{
		{Verb: wire.JobWait, ID: job.ID},
		{Verb: wire.JobFollow, ID: job.ID},
		{Verb: wire.JobWatch, Watch: "w"},
	} {
		h.query(q)
		if q.Verb == wire.JobWatch {
			h.started()
		}
		if n := l.count("sandboxbash-runner"); n > 4 { // PID 1, the job's, this one and the one that counts
			t.Errorf("%d processes of runners; want none for the question", n)
		}
		h.send(wire.TypeKill, wire.Kill{Seq: h.seq}.Append(nil))
		if a := h.answer(); a.exit.Rung != wire.RungTerm || a.exit.Left != 0 {
			t.Errorf("%d, killed: %+v", q.Verb, a.exit)
		}
	}
	// A question without its words is killed as well.
	h.request(wire.Request{Path: wire.RunnerPath, Args: wire.VerbJobs.Command(), Stdin: true})
	h.send(wire.TypeKill, wire.Kill{Seq: h.seq}.Append(nil))
	if a := h.answer(); a.exit.Rung != wire.RungTerm {
		t.Errorf("without words: %+v; want it killed", a.exit)
	}
	h.request(wire.Request{Path: wire.RunnerPath, Args: wire.VerbJobs.Command()})
	if a := h.answer(); a.exit.Code != 1 || !strings.Contains(a.stderr.String(), "runner jobs: malformed") {
		t.Errorf("a malformed question: %+v, %q", a.exit, &a.stderr)
	}
	list := h.run(wire.Request{Path: wire.RunnerPath, Args: wire.VerbPS.Command(), UID: labUser, GID: labUser})
	all, err := wire.ParseProcesses(list.stdout.Bytes())
	if err != nil || len(all) != 1 || all[0].PID != job.PID {
		t.Errorf("ps: %+v, %v; want the job's process alone", all, err)
	}
	if a := h.run(wire.Request{Script: []byte("echo free")}); a.stdout.String() != "free\n" {
		t.Errorf("a command afterwards: %q, %+v", &a.stdout, a.exit)
	}
}
