package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// job starts one that must start.
func job(t *testing.T, s *sandbox.Session, text string, timeout time.Duration) *sandbox.Job {
	t.Helper()
	j, err := s.StartJob(t.Context(), sandbox.Command{Script: text, Timeout: timeout}, sandbox.JobOptions{Owner: "me"})
	if err != nil {
		t.Fatalf("StartJob(%q) = %v", text, err)
	}
	return j
}

// another opens the same session as another process would.
func another(t *testing.T, s *sandbox.Session) *sandbox.Session {
	t.Helper()
	client := dockertest.Connect(t)
	resolver, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(client, resolver, sandbox.Options{})
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	other, err := e.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// Each end is delivered once, whichever of the processes that wait for it
// lives.
func TestEngineDeliver(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	var mu sync.Mutex
	var told []string // guarded by mu
	tell := func(who string) func(context.Context, *sandbox.Job) error {
		return func(_ context.Context, j *sandbox.Job) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, who+" "+j.ID()+" "+string(j.Info().State))
			return nil
		}
	}
	wait := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			mu.Lock()
			got := len(told)
			mu.Unlock()
			if got >= n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("told %q; want %d", told, n)
			}
		}
	}
	job(t, s, "exit 0", 0)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Deliver(ctx, "me", tell("first")) }()
	wait(1)
	ctx2, cancel2 := context.WithCancel(t.Context())
	go func() { second <- another(t, s).Deliver(ctx2, "me", tell("second")) }()
	job(t, s, "sleep 0.3; exit 3", 0)
	wait(2)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("Deliver() = %v; want %v", err, context.Canceled)
	}
	job(t, s, "sleep 0.1", 0)
	wait(3)
	cancel2()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("the second Deliver() = %v; want %v", err, context.Canceled)
	}
	want := []string{"first bg_1 completed", "first bg_2 failed", "second bg_3 completed"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q; want %q", told, want)
	}
	all, err := s.Jobs(t.Context(), "me")
	if err != nil || len(all) != 3 || !all[0].Told || !all[1].Told || !all[2].Told {
		t.Errorf("Jobs() = %+v, %v; want three whose end is known", all, err)
	}
}

// A running command is handed over on request, even if its output is not read, and the
// file has every byte.
func TestEngineHandOverOnRequest(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	request, stuck := make(chan struct{}), make(chan struct{})
	defer close(stuck)
	time.AfterFunc(500*time.Millisecond, func() { close(request) })
	begin := time.Now()
	res, err := s.Run(t.Context(), sandbox.Command{
		Script: "seq 1 300000; sleep 1; echo end", Timeout: time.Minute,
		Output: sink.Options{Streams: sink.Merged, LiveStdout: block(stuck)},
		Job:    &sandbox.JobOptions{After: -1, Request: request},
	})
	if err != nil || res.Reason != exec.HandedOver || time.Since(begin) > 10*time.Second {
		t.Fatalf("Run() = %+v, %v after %s; want it handed over", res.Status, err, time.Since(begin))
	}
	var out bytes.Buffer
	if _, err := another(t, s).Job(t.Context(), "", res.Job.ID()); err != nil {
		t.Error(err)
	}
	got, err := res.Job.Output(t.Context(), sandbox.JobOutput{Follow: true}, sink.Options{LiveStdout: &out})
	if err != nil || !strings.HasPrefix(out.String(), "1\n2\n") || !strings.HasSuffix(out.String(), "\n300000\nend\n") || got.Stdout.Bytes != int64(out.Len()) || out.Len() != 1988899 {
		t.Errorf("Output() = %d bytes, %v; want those of seq and end", out.Len(), err)
	}
	tail, err := res.Job.Output(t.Context(), sandbox.JobOutput{Tail: 11}, sink.Options{Window: sink.Tail(11)})
	if text := tail.Stdout.Text(); err != nil || text != "300000\nend\n" {
		t.Errorf("Output(tail) = %q, %v", text, err)
	}
}

type block chan struct{}

func (b block) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// A job that takes all processes there are ends at its timeout all the same, with
// its end on record, and the session goes on.
func TestEngineJobForkBomb(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	j := job(t, s, "b() { b | b & }; b; sleep 60", 2*time.Second)
	begin := time.Now()
	info, err := j.Wait(t.Context())
	if err != nil {
		t.Fatalf("Wait() = %v", err)
	}
	if info.Reason != exec.TimedOut && info.Reason != exec.Exited || time.Since(begin) > 20*time.Second {
		t.Errorf("Wait() = %+v after %s; want its end within the timeout", info, time.Since(begin))
	}
	if got := script(t, s, "echo still here"); got != "still here\n" {
		t.Errorf("the next command wrote %q", got)
	}
}

// A session whose jobs have all the processes there may be can be asked what runs in it,
// by another program too, and one job can be ended without the others.
func TestEngineJobsAtTheLimit(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Pids: 96}})
	other := job(t, s, "exec sleep 600", 0)
	full := job(t, s, `exec perl -e 'while (defined(my $p = fork)) { if (!$p) { exec "sleep", "600" } } $| = 1; print "ready\n"; sleep 600'`, 0)
	awaitOutput(t, full)
	s = another(t, s) // the first one has a runner already, which needs no room
	if procs, err := s.Processes(t.Context()); err != nil || len(procs) < 20 {
		t.Errorf("Processes() = %d, %v; want what fills the session", len(procs), err)
	}
	all, err := another(t, s).Jobs(t.Context(), "")
	if err != nil || len(all) != 2 || all[0].State != sandbox.JobRunning || all[1].State != sandbox.JobRunning {
		t.Errorf("Jobs() = %+v, %v; want both running", all, err)
	}
	full, err = another(t, s).Job(t.Context(), "", full.ID())
	if err != nil {
		t.Fatal(err)
	}
	info, err := full.Kill(t.Context())
	if r := info.Receipt(); err != nil || info.Reason != exec.Cancelled || r == nil || !r.Proved || r.Survivors != 0 {
		t.Errorf("Kill() = %+v, %v; want the job cancelled, and proved", info, err)
	}
	if info, err := other.Now(t.Context()); err != nil || info.State != sandbox.JobRunning {
		t.Errorf("the other job is %s, %v; want it to run", info.State, err)
	}
	use, err := dockertest.Connect(t).ContainerUsage(t.Context(), docker.ContainerID(s.Info().Container))
	if err != nil || use.PidsLimit != 96 {
		t.Errorf("the limit is %d, %v; want it as it was", use.PidsLimit, err)
	}
}

// What is shown of a job is scrubbed; the file inside is not.
func TestEngineJobSecrets(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	resolver, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "TOKEN", Value: "canary-canary-canary"}})
	if err != nil {
		t.Fatal(err)
	}
	store, err := sink.NewStore(t.TempDir(), sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := startIn(t, client, newEngine(client, resolver, sandbox.Options{Secrets: secrets, Artifacts: store}), sandbox.Spec{})
	j := job(t, s, "printf canary-; sleep 0.2; echo canary-canary", 0)
	if _, err := j.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := j.Output(t.Context(), sandbox.JobOutput{}, sink.Options{Artifact: sink.Always})
	if err != nil || got.Stdout.Text() != "[REDACTED:TOKEN]\n" || !got.Artifact.Complete {
		t.Fatalf("Output() = %+v, %v; want the secret masked, and an artifact", got, err)
	}
	art, err := store.Open(s.ID(), got.Artifact.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer art.Close() //nolint:errcheck // only read
	var kept bytes.Buffer
	if err := art.CopyBytes(&kept, 0, -1); err != nil || kept.String() != "[REDACTED:TOKEN]\n" {
		t.Errorf("the artifact holds %q, %v", &kept, err)
	}
	again, err := j.Output(t.Context(), sandbox.JobOutput{}, sink.Options{Artifact: sink.Always})
	if err != nil || again.Artifact.ID != got.Artifact.ID || again.Artifact.Stored {
		t.Errorf("a second Output() has artifact %+v, %v; want the first one named", again.Artifact, err)
	}
	if inside := script(t, s, "wc -c </run/jobs/bg_1.log"); strings.TrimSpace(inside) != "54" {
		t.Errorf("the file inside has %s bytes; want the secret's 20, a newline and the completion", inside)
	}
}

// A question that the runner answers itself starts nothing in the session.
func TestQuestionsStartNothing(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	j, err := s.StartJob(t.Context(), sandbox.Command{Script: "echo begun; sleep 1000"}, sandbox.JobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lastPID := func() int {
		t.Helper()
		pid, err := strconv.Atoi(strings.TrimSpace(script(t, s, "echo $$")))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	lastPID() // its runner is idle from here on
	before := lastPID()
	for range 20 {
		if all, err := s.Jobs(t.Context(), ""); err != nil || len(all) != 1 {
			t.Fatalf("Jobs() = %+v, %v; want one", all, err)
		}
		if all, err := s.Processes(t.Context()); err != nil || len(all) == 0 {
			t.Fatalf("Processes() = %+v, %v", all, err)
		}
	}
	// A process or thread of each question would be 40.
	if made := lastPID() - before; made > 20 {
		t.Errorf("%d processes and threads began during 40 questions; want hardly any", made)
	}
	if _, err := j.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}
