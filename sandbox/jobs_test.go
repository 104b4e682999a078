package sandbox

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sink"
)

// A job's description is what its runner has sealed, for this job and this
// session. Anything else is unknown, never a result.
func TestDescribeJob(t *testing.T) {
	t.Parallel()
	key, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	s := &Session{info: Info{ID: "s", key: key}}
	start := wire.JobStart{ID: "bg_1", Tag: "t", Owner: "o", Label: "make", PID: 7, Started: time.Now()}
	end := func(change func(*wire.JobEnd)) []byte {
		e := wire.JobEnd{ID: "bg_1", Tag: "t", Written: 5, Kept: 5}
		change(&e)
		return e.Seal(key)
	}
	good := start.Seal(key)
	for _, row := range []struct {
		name   string
		state  wire.JobState
		want   JobState
		reason exec.Reason
		code   int // -1: none
	}{
		{"running", wire.JobState{Start: good, Alive: true}, JobRunning, "", -1},
		{"its end is written, and its runner not yet gone", wire.JobState{Start: good, Alive: true, End: end(func(*wire.JobEnd) {})}, JobRunning, "", -1},
		{"completed", wire.JobState{Start: good, End: end(func(*wire.JobEnd) {})}, JobCompleted, exec.Exited, 0},
		{"failed", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.Code = 3 })}, JobFailed, exec.Exited, 3},
		{"signalled", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.Signal = 9 })}, JobFailed, exec.Signalled, -1},
		{"out of memory", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.Signal, e.OOM = 9, true })}, JobFailed, exec.OOMKilled, -1},
		{"timed out", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.Signal, e.Ending = 15, wire.EndedTimeout })}, JobFailed, exec.TimedOut, -1},
		{"timed out, and exited with 0", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.Ending = wire.EndedTimeout })}, JobFailed, exec.TimedOut, -1},
		{"killed on demand", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.Signal, e.Ending = 15, wire.EndedByDemand })}, JobCancelled, exec.Cancelled, -1},
		{"lost", wire.JobState{Start: good}, JobFailed, JobLost, -1},
		{"forged end", wire.JobState{Start: good, End: wire.JobEnd{ID: "bg_1", Tag: "t"}.Seal(other)}, JobUnknown, JobMissing, -1},
		{"garbled end", wire.JobState{Start: good, End: []byte("exit code: 0")}, JobUnknown, JobMissing, -1},
		{"another job's end", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.ID = "bg_2" })}, JobUnknown, JobMissing, -1},
		{"the end of an earlier job of that id", wire.JobState{Start: good, End: end(func(e *wire.JobEnd) { e.Tag = "earlier" })}, JobUnknown, JobMissing, -1},
		{"a start as end", wire.JobState{Start: good, End: good}, JobUnknown, JobMissing, -1},
		{"forged start", wire.JobState{Start: start.Seal(other), Alive: true}, JobUnknown, JobMissing, -1},
		{"another job's start", wire.JobState{Start: wire.JobStart{ID: "bg_2"}.Seal(key), Alive: true}, JobUnknown, JobMissing, -1},
		{"no start", wire.JobState{End: end(func(*wire.JobEnd) {})}, JobUnknown, JobMissing, -1},
	} {
		row.state.ID = "bg_1"
		got := s.describeJob(row.state)
		code := -1
		if got.ExitCode != nil {
			code = *got.ExitCode
		}
		ended := got.Status != nil
		if got.State != row.want || got.Reason != row.reason || code != row.code || ended != (row.want != JobRunning && row.want != JobUnknown && row.reason != JobLost) {
			t.Errorf("%s: %s, %q, exit code %d, status %+v; want %s, %q, %d", row.name, got.State, got.Reason, code, got.Status, row.want, row.reason, row.code)
		}
	}
}

func TestJobLabel(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ script, want string }{
		{"make test", "make test"},
		{strings.Repeat("x", 120), strings.Repeat("x", 120)},
		{strings.Repeat("x", 121), strings.Repeat("x", 117) + "..."},
		{strings.Repeat("é", 130), strings.Repeat("é", 117) + "..."},
		{strings.Repeat("😀", 60), strings.Repeat("😀", 60)},
		{strings.Repeat("😀", 61), strings.Repeat("😀", 58) + "..."}, // no half of a pair
	} {
		got := JobLabel(row.script)
		if got != row.want || len(utf16.Encode([]rune(got))) > labelUnits || len(got) > wire.MaxJobText {
			t.Errorf("JobLabel(%q) = %q; want %q", row.script, got, row.want)
		}
	}
}

func TestDecimal(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"": "", "7": "7", "../x": "", "1 ": "", strings.Repeat("9", 19): ""} {
		if got := decimal(id); got != want {
			t.Errorf("decimal(%q) = %q; want %q", id, got, want)
		}
	}
}

// fakeJobs is what a session has of jobs, and answers the runner's verb with it.
type fakeJobs struct {
	docker *fakeEngine
	states []wire.JobState
	asked  []wire.JobQuery
	output string
}

func (j *fakeJobs) answer(f *fakeRunner) {
	q, err := wire.ParseJobQuery(f.stdin)
	if err != nil {
		j.docker.t.Errorf("query: %v", err)
	}
	j.asked = append(j.asked, q)
	switch q.Verb {
	case wire.JobList:
		f.answer(wire.AppendJobStates(nil, j.states))
	case wire.JobRead, wire.JobFollow, wire.JobTail:
		f.answer([]byte(j.output))
	case wire.JobNote:
		for i := range j.states {
			if j.states[i].ID == q.ID {
				j.states[i].Known = j.states[i].Known || q.Known
			}
		}
		f.answer(nil)
	case wire.JobWatch:
		f.send(wire.TypeStdout, []byte{'\n'}) // and goes on
	default:
		f.answer(nil)
	}
}

func (j *fakeJobs) add(s *Session, id, owner string, end *wire.JobEnd) {
	state := wire.JobState{ID: id, Start: wire.JobStart{ID: id, Tag: id, Owner: owner, PID: 7, Runner: 5, Started: time.Now()}.Seal(s.info.key), Alive: end == nil}
	if end != nil {
		end.ID, end.Tag = id, id
		state.End = end.Seal(s.info.key)
	}
	j.states = append(j.states, state)
}

func withJobs(t *testing.T) (*fakeEngine, *fakeJobs, *Session) {
	t.Helper()
	d := newFakeEngine(t)
	_, s := start(t, d, Spec{})
	j := &fakeJobs{docker: d}
	d.jobs = j.answer
	return d, j, s
}

func TestStartJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _, s := withJobs(t)
		defer s.Release()
		d.on = func(f *fakeRunner, req wire.Request) {
			j := req.Job
			if j == nil || !j.Background || j.Owner != "me" || j.Label != "make" || j.Timeout != time.Hour || j.Most != DefaultJobs ||
				j.Cap != JobCap || !bytes.Equal(j.Key, s.info.key) || len(j.Key) != 32 || !req.Merged {
				t.Errorf("the runner was asked for %+v", j)
			}
			f.send(wire.TypeDetached, wire.Detached{Seq: req.Seq, ID: "bg_3", PID: 42}.Append(nil))
		}
		job, err := s.StartJob(t.Context(), Command{Script: "make", Timeout: time.Hour}, JobOptions{Owner: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if i := job.Info(); i.ID != "bg_3" || i.PID != 42 || i.State != JobRunning || i.OutputFile != "/run/jobs/bg_3.log" || i.Owner != "me" {
			t.Errorf("StartJob() = %+v", i)
		}
	})
}

func TestStartJobRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _, s := withJobs(t)
		defer s.Release()
		d.on = func(f *fakeRunner, _ wire.Request) { f.failed(wire.FailJobLimit) }
		_, err := s.StartJob(t.Context(), Command{Script: "x"}, JobOptions{Most: 2})
		if e, ok := errors.AsType[*exec.Error](err); !ok || e.Cause != exec.CauseJobLimit ||
			e.Err.Error() != "Background job limit reached (2). Wait for running jobs to finish or cancel one." {
			t.Errorf("StartJob() over the limit = %v", err)
		}
		for name, row := range map[string]struct {
			c Command
			o JobOptions
		}{
			"standard input": {Command{Script: "x", Stdin: strings.NewReader("")}, JobOptions{}},
			"long owner":     {Command{Script: "x"}, JobOptions{Owner: strings.Repeat("x", wire.MaxJobText+1)}},
			"long label":     {Command{Script: "x"}, JobOptions{Label: strings.Repeat("x", wire.MaxJobText+1)}},
			"many":           {Command{Script: "x"}, JobOptions{Most: MaxJobs + 1}},
		} {
			if _, err := s.StartJob(t.Context(), row.c, row.o); !isInput(err) {
				t.Errorf("StartJob(%s) = %v; want an InputError", name, err)
			}
		}
		s.info.key = nil // as of a session of before
		if _, err := s.StartJob(t.Context(), Command{Script: "x"}, JobOptions{}); !isCause(err, exec.CauseJobs) {
			t.Errorf("StartJob() in a session without jobs = %v; want %s", err, exec.CauseJobs)
		}
		if _, err := s.Jobs(t.Context(), ""); !errors.Is(err, errNoJobs) {
			t.Errorf("Jobs() in a session without jobs = %v; want %v", err, errNoJobs)
		}
	})
}

// A job that is refused before it reaches the runner ends the subscriptions to its output.
func TestRefusedJobEndsOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, s := withJobs(t)
		defer s.Release()
		var updates *sink.Subscription
		c := Command{Script: "x", Watch: func(out *sink.Sink) { updates = out.Subscribe() }, Job: &JobOptions{Most: MaxJobs + 1}}
		if res, err := s.Run(t.Context(), c); !isInput(err) || res.Job != nil {
			t.Errorf("Run() = %+v, %v; want an InputError", res, err)
		}
		late := time.After(time.Minute)
		for open := true; open; {
			select {
			case _, open = <-updates.Updates():
			case <-late:
				t.Fatal("the updates go on after Run has returned")
			}
		}
	})
}

func isCause(err error, cause exec.Cause) bool {
	e, ok := errors.AsType[*exec.Error](err)
	return ok && e.Cause == cause
}

// The answer to a hand-over may be lost on the way: then the session says whether
// there is a job.
func TestHandOverLost(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d, j, s := withJobs(t)
			defer s.Release()
			d.on = func(f *fakeRunner, req wire.Request) {
				tag := "another"
				if there {
					tag = req.Job.Tag
				}
				j.states = []wire.JobState{{ID: "bg_2", Start: wire.JobStart{ID: "bg_2", Tag: tag, PID: 9}.Seal(s.info.key), Alive: true}}
				f.conn.Close()
			}
			res, err := s.Run(t.Context(), Command{Script: "x", Job: &JobOptions{After: time.Minute}})
			switch {
			case there && (err != nil || res.Reason != exec.HandedOver || res.Job == nil || res.Job.ID() != "bg_2" || res.Job.Info().PID != 9):
				t.Errorf("Run() = %+v, %v; want the job bg_2", res, err)
			case !there && !isCause(err, exec.CauseRunnerLost):
				t.Errorf("Run() = %+v, %v; want %s", res, err, exec.CauseRunnerLost)
			}
		})
	}
}

// Owners do not see each other's jobs.
func TestJobsOfOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, j, s := withJobs(t)
		defer s.Release()
		j.add(s, "bg_1", "a", nil)
		j.add(s, "bg_2", "b", nil)
		for owner, want := range map[string][]string{"a": {"bg_1"}, "b": {"bg_2"}, "": {"bg_1", "bg_2"}, "c": nil} {
			all, err := s.Jobs(t.Context(), owner)
			var got []string
			for _, info := range all {
				got = append(got, info.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Jobs(%q) = %q, %v; want %q", owner, got, err, want)
			}
		}
		if _, err := s.Job(t.Context(), "a", "bg_2"); !errors.Is(err, ErrUnknownJob) {
			t.Errorf("Job(of another owner) = %v; want %v", err, ErrUnknownJob)
		}
	})
}

// A job that was removed is not taken for the one that has its id now.
func TestJobNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, j, s := withJobs(t)
		defer s.Release()
		j.add(s, "bg_1", "", nil)
		job, err := s.Job(t.Context(), "", "bg_1")
		if err != nil {
			t.Fatal(err)
		}
		if err := job.Remove(t.Context()); !errors.Is(err, ErrJobRunning) {
			t.Errorf("Remove(running) = %v; want %v", err, ErrJobRunning)
		}
		j.states[0].Start = wire.JobStart{ID: "bg_1", Tag: "later"}.Seal(s.info.key)
		if _, err := job.Now(t.Context()); !errors.Is(err, ErrUnknownJob) {
			t.Errorf("Now() of a job whose id another has = %v; want %v", err, ErrUnknownJob)
		}
		j.states[0].Start = []byte("tampered with")
		if info, err := job.Now(t.Context()); err != nil || info.State != JobUnknown {
			t.Errorf("Now() of a job whose record is broken = %+v, %v; want %s", info, err, JobUnknown)
		}
	})
}

// What arrives of a job's output is compared with what its runner has kept.
func TestJobOutputTamperedWith(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, j, s := withJobs(t)
		defer s.Release()
		j.add(s, "bg_1", "", &wire.JobEnd{Written: 5, Kept: 5})
		job, err := s.Job(t.Context(), "", "bg_1")
		if err != nil {
			t.Fatal(err)
		}
		for output, ok := range map[string]bool{"12345": true, "1234": false, "": false, "123456": false} {
			j.output = output
			got, err := job.Output(t.Context(), JobOutput{}, sink.Options{})
			if (err == nil) != ok || got.Stdout.Text() != output {
				t.Errorf("Output() of %q = %q, %v", output, got.Stdout.Text(), err)
			}
		}
	})
}

// Every end is delivered once, to its owner, with pauses while that fails.
func TestDeliver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, j, s := withJobs(t)
		j.add(s, "bg_1", "me", &wire.JobEnd{})
		j.add(s, "bg_2", "other", &wire.JobEnd{})
		j.add(s, "bg_3", "me", nil)
		j.add(s, "bg_4", "me", &wire.JobEnd{})
		j.states[3].Known = true
		ctx, cancel := context.WithCancelCause(t.Context())
		var told []string
		var at []time.Duration
		begin := time.Now()
		done := make(chan error)
		go func() {
			done <- s.Deliver(ctx, "me", func(_ context.Context, job *Job) error {
				told, at = append(told, job.ID()), append(at, time.Since(begin))
				if len(told) < 3 {
					return errTest
				}
				return nil
			})
		}()
		time.Sleep(time.Hour)
		stop := errors.New("stop")
		cancel(stop)
		if err := <-done; !errors.Is(err, stop) {
			t.Errorf("Deliver() = %v; want %v", err, stop)
		}
		if want := []string{"bg_1", "bg_1", "bg_1"}; !slices.Equal(told, want) {
			t.Fatalf("told %q; want %q", told, want)
		}
		for i, least := range []time.Duration{0, RetryPause(1), RetryPause(1) + RetryPause(2)} {
			if at[i] < least || at[i] > least+2*RetryJitter {
				t.Errorf("try %d came after %s; want %s and at most the jitter", i+1, at[i], least)
			}
		}
		if known := j.states[0].Known; !known {
			t.Error("bg_1 was delivered and is not acknowledged")
		}
		s.Release()
	})
}

// Jobs are written where a session keeps its records, whatever its workspace is.
func TestJobsDir(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		for name, spec := range map[string]Spec{"volume": {}, "bind": {Profile: Dev, Workspace: Workspace{Kind: WorkspaceBind, Dir: t.TempDir(), Target: "/w"}}} {
			_, s := start(t, d, spec)
			if got := d.Shape(s.ID()).Records; got != wire.JobsDir {
				t.Errorf("%s: the records are at %q; want %q", name, got, wire.JobsDir)
			}
			if err := s.Stop(t.Context()); err != nil || len(d.left()) > 0 {
				t.Errorf("%s: Stop() = %v, left %q", name, err, d.left())
			}
		}
	})
}
