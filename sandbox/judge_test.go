package sandbox

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	because := errors.New("because")
	for _, test := range []struct {
		name string
		err  error
		want Judgment // without Message
		text string   // "": the error's own
	}{
		{"lost", &exec.Error{Outcome: exec.Lost, Cause: CauseOOM, Err: because}, Judgment{Fault: FaultEngine, Outcome: exec.Lost, Cause: CauseOOM}, "because"},
		{"not started by a bad directory", &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseDirMissing, Err: because}, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: exec.CauseDirMissing}, "because"},
		{"the same cause, but it may have run", &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseBusy, Err: because}, Judgment{Fault: FaultEngine, Outcome: exec.Unknown, Cause: exec.CauseBusy}, "because"},
		{"cancelled", &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: because}, Judgment{Fault: FaultCaller, Outcome: exec.NotStarted, Cause: exec.CauseCancelled}, "because"},
		{"an exec error of a missing session", &exec.Error{Outcome: exec.Lost, Cause: CauseRemoved, Err: ErrUnknownSession}, Judgment{Fault: FaultEngine, Outcome: exec.Lost, Cause: CauseRemoved}, ErrUnknownSession.Error()},
		{"denied", &policy.Denial{Decision: policy.Decision{Message: "no", Rule: "r"}}, Judgment{Fault: FaultPolicy, Outcome: exec.NotStarted, Cause: CauseDenied}, ""},
		{"input", badInput("cwd", "bad"), Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: "bad-cwd"}, "bad"},
		{"conflict", &ConflictError{}, Judgment{Fault: FaultConflict, Outcome: exec.NotStarted, Cause: CauseConflict}, ""},
		{"unmerged", &ApplyConflictError{}, Judgment{Fault: FaultConflict, Outcome: exec.NotStarted, Cause: CauseUnmerged}, ""},
		{"applying", fmt.Errorf("x: %w", ErrApplyBusy), Judgment{Fault: FaultConflict, Outcome: exec.NotStarted, Cause: CauseApplying}, ""},
		{"diverged", fmt.Errorf("x: %w", ErrDiverged), Judgment{Fault: FaultConflict, Outcome: exec.NotStarted, Cause: CauseDiverged}, ""},
		{"foreign bind", &ForeignBindError{}, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: CauseForeignBind}, ""},
		{"session", ErrUnknownSession, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: CauseUnknownSession}, ""},
		{"job", ErrUnknownJob, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: CauseUnknownJob}, ""},
		{"running job", ErrJobRunning, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: CauseJobRunning}, ""},
		{"artifact", sink.ErrNotFound, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: CauseUnknownArtifact}, ""},
		{"missing image", &images.MissingError{}, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: CauseUnknownImage}, ""},
		{"address", engine.ErrAddress, Judgment{Fault: FaultInput, Outcome: exec.NotStarted, Cause: CauseBadEngine}, ""},
		{"posture", &PostureError{}, Judgment{Fault: FaultEngine, Outcome: exec.NotStarted, Cause: CausePosture}, ""},
		{"unreachable", engine.ErrUnreachable, Judgment{Fault: FaultEngine, Outcome: exec.NotStarted, Cause: CauseUnreachable}, ""},
		{"old", engine.ErrTooOld, Judgment{Fault: FaultEngine, Outcome: exec.NotStarted, Cause: CauseTooOld}, ""},
		{"unknown", because, Judgment{Fault: FaultEngine, Outcome: exec.NotStarted, Cause: exec.CauseEngine}, ""},
	} {
		err := fmt.Errorf("session x: %w", test.err)
		want := test.want
		if want.Message = test.text; test.text == "" {
			want.Message = err.Error()
		}
		if got := Judge(err); got != want {
			t.Errorf("%s: Judge(%v) = %+v; want %+v", test.name, err, got, want)
		}
	}
}
