package sandbox

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Where there is no room to look for a job, its commands are held, and the last rung is the
// reset: what was lost in it is described.
func TestKillJobWithoutRoom(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		refused int32 // questions, before there is room
		want    []string
		state   JobState
	}{
		{"when held", 4, []string{"limit", "limit", "hold", "limit"}, JobFailed},
		{"never", 100, []string{"limit", "limit", "hold", "limit", "hold", "limit", "hold", "limit", "reset", "limit"}, JobFailed},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d, j, s := withJobs(t)
			defer s.Release()
			j.states = []wire.JobState{{ID: "bg_1", Start: wire.JobStart{ID: "bg_1", Tag: "bg_1"}.Seal(s.info.key)}} // it has no end
			var asked atomic.Int32
			calls := []string{}
			d.jobs = func(f *fakeRunner) {
				calls = append(calls, d.Took()...)
				if asked.Add(1) <= row.refused && !slices.Contains(calls, "reset") {
					f.failed(wire.FailResources)
					return
				}
				j.answer(f)
			}
			info, err := s.KillJob(t.Context(), "", "bg_1")
			if err != nil || info.State != row.state || info.Reason != JobLost {
				t.Errorf("KillJob() = %+v, %v; want it lost", info, err)
			}
			calls = slices.DeleteFunc(append(calls, d.Took()...), func(c string) bool { return !slices.Contains([]string{"limit", "hold", "reset"}, c) })
			if !slices.Equal(calls, row.want) {
				t.Errorf("the engine was asked for %q; want %q", calls, row.want)
			}
			if _, err := s.KillJob(t.Context(), "", "bg_2"); Judge(err).Cause != CauseUnknownJob || Judge(err).Outcome != exec.NotStarted {
				t.Errorf("KillJob(bg_2) = %v; want %s", err, CauseUnknownJob)
			}
		})
	}
}
