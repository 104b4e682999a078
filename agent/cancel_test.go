package agent

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
	"github.com/sandboxbash/sandboxbash/tool"
)

// fullSession is a sandbox session of which jobs can be asked only once it was reset.
type fullSession struct {
	sandboxSession

	calls *[]string
	room  map[string]bool // questions that are answered before the reset
}

// errFull is what a full session answers with.
var errFull = errors.New("no room for another process")

func (s fullSession) ask(question string) error {
	*s.calls = append(*s.calls, question)
	if s.room[question] || slices.Contains(*s.calls, "reset") {
		return nil
	}
	return errFull
}

func (s fullSession) Job(_ context.Context, owner, id string) (sandboxJob, error) {
	if err := s.ask("look"); err != nil {
		return nil, err
	}
	return fullJob{s, sandbox.JobInfo{ID: id, Owner: owner, State: sandbox.JobRunning}}, nil
}

func (s fullSession) KillJob(_ context.Context, owner, id string) (sandbox.JobInfo, error) {
	*s.calls = append(*s.calls, "reset")
	return sandbox.JobInfo{ID: id, Owner: owner, State: sandbox.JobFailed, Reason: sandbox.JobLost}, nil
}

type fullJob struct {
	fullSession

	info sandbox.JobInfo
}

func (j fullJob) Info() sandbox.JobInfo                        { return j.info }
func (j fullJob) Acknowledge(context.Context) error            { return j.ask("acknowledge") }
func (j fullJob) Now(context.Context) (sandbox.JobInfo, error) { return j.info, nil }
func (j fullJob) Wait(context.Context) (sandbox.JobInfo, error) {
	return j.info, nil
}

func (j fullJob) Kill(context.Context) (sandbox.JobInfo, error) {
	j.info.State = sandbox.JobCancelled
	return j.info, j.ask("kill")
}

func (j fullJob) Output(context.Context, sandbox.JobOutput, sink.Options) (sink.Output, error) {
	return sink.Output{}, errFull
}

// TestCancelWithoutRoom cancels jobs of sessions that cannot start a process: they are reset,
// and the jobs are not delivered later.
func TestCancelWithoutRoom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		room  []string
		calls []string
		was   sandbox.JobState
	}{
		{"for the look-up", nil, []string{"look", "reset", "look", "acknowledge"}, sandbox.JobFailed},
		{"for the note", []string{"look"}, []string{"look", "acknowledge", "reset", "look", "acknowledge"}, sandbox.JobFailed},
		{"there is room", []string{"look", "acknowledge", "kill"}, []string{"look", "acknowledge", "kill"}, sandbox.JobRunning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var calls []string
			room := map[string]bool{}
			for _, question := range tt.room {
				room[question] = true
			}
			s, err := open(fullSession{calls: &calls, room: room}, directories{dir: "/workspace", home: "/home/agent"}, SessionOptions{Settings: tool.DefaultSettings(), Owner: "o"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.cancelJob(t.Context(), "bg_1")
			if want := tool.Cancelled("bg_1", tool.Job{ID: "bg_1", Status: tt.was}, true); err != nil || got != want {
				t.Errorf("cancelJob() = %+v, %v; want %+v", got, err, want)
			}
			if !slices.Equal(calls, tt.calls) {
				t.Errorf("the session was asked %q; want %q", calls, tt.calls)
			}
		})
	}
}
