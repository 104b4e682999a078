package sandbox

import (
	"errors"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Fault says where the cause of an error lies, and so what its reader can do.
type Fault string

// Faults.
const (
	FaultEngine   Fault = "engine"    // the engine, this machine or the session failed
	FaultInput    Fault = "input"     // the caller asked for something impossible
	FaultPolicy   Fault = "policy"    // the policy refuses the command
	FaultCaller   Fault = "cancelled" // the caller has cancelled
	FaultConflict Fault = "conflict"  // files here have changed; nothing was overwritten
)

// Judgment describes an error of this package for programs.
type Judgment struct {
	Fault   Fault
	Outcome exec.Outcome // what is known of the command
	Cause   exec.Cause   // a stable word for what has happened
	Message string       // for people, without Outcome and Cause
}

// Causes that Judge gives to errors that are not an *exec.Error. An *InputError has
// the cause "bad-" and its field.
const (
	CauseDenied          exec.Cause = "denied"
	CauseConflict        exec.Cause = "conflict"
	CauseUnmerged        exec.Cause = "unmerged"
	CauseApplying        exec.Cause = "applying"
	CauseDiverged        exec.Cause = "diverged"
	CauseForeignBind     exec.Cause = "foreign-bind"
	CauseBadCache        exec.Cause = "bad-cache"
	CauseUnknownCache    exec.Cause = "unknown-cache"
	CauseUnknownSession  exec.Cause = "unknown-session"
	CauseUnknownJob      exec.Cause = "unknown-job"
	CauseJobRunning      exec.Cause = "job-running"
	CauseUnknownArtifact exec.Cause = "unknown-artifact"
	CauseUnknownImage    exec.Cause = "unknown-image"
	CauseBadImage        exec.Cause = "bad-image"
	CauseBadEngine       exec.Cause = "bad-engine"
	CausePosture         exec.Cause = "posture"
	CauseTooOld          exec.Cause = "engine-too-old"
)

// inputCauses are the causes of an *exec.Error that the caller can correct.
var inputCauses = map[exec.Cause]bool{
	exec.CauseDirMissing: true, exec.CauseNotDir: true, exec.CauseDirDenied: true,
	exec.CauseNoShell: true, exec.CauseTooBig: true, exec.CauseBusy: true, exec.CauseJobLimit: true,
}

// Judge returns the Judgment of an error of this package or of a package that it uses. It
// looks at the type of an error, never at its text. It takes an error of an unknown type
// for one of the engine, before anything has run.
func Judge(err error) Judgment {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		j := Judgment{Fault: FaultEngine, Outcome: e.Outcome, Cause: e.Cause, Message: string(e.Cause)}
		if e.Err != nil {
			j.Message = e.Err.Error()
		}
		switch {
		case e.Cause == exec.CauseCancelled:
			j.Fault = FaultCaller
		case e.Outcome == exec.NotStarted && inputCauses[e.Cause]:
			j.Fault = FaultInput
		}
		return j
	}
	if e, ok := errors.AsType[*InputError](err); ok {
		return Judgment{FaultInput, exec.NotStarted, exec.Cause("bad-" + e.Field), e.Text}
	}
	for _, k := range kinds {
		if k.is(err) {
			return Judgment{k.fault, exec.NotStarted, k.cause, err.Error()}
		}
	}
	return Judgment{FaultEngine, exec.NotStarted, exec.CauseEngine, err.Error()}
}

// kinds are the other errors that Judge knows. The first that matches is used.
var kinds = []struct {
	fault Fault
	cause exec.Cause
	is    func(error) bool
}{
	{FaultPolicy, CauseDenied, typed[*policy.Denial]},
	{FaultConflict, CauseConflict, typed[*ConflictError]},
	{FaultConflict, CauseUnmerged, typed[*ApplyConflictError]},
	{FaultConflict, CauseApplying, wraps(ErrApplyBusy)},
	{FaultConflict, CauseDiverged, wraps(ErrDiverged)},
	{FaultInput, CauseForeignBind, typed[*ForeignBindError]},
	{FaultInput, CauseBadCache, typed[*engine.CacheError]},
	{FaultInput, CauseUnknownCache, wraps(ErrUnknownCache)},
	{FaultInput, CauseUnknownSession, wraps(ErrUnknownSession)},
	{FaultInput, CauseUnknownJob, wraps(ErrUnknownJob)},
	{FaultInput, CauseJobRunning, wraps(ErrJobRunning)},
	{FaultInput, CauseUnknownArtifact, wraps(sink.ErrNotFound)},
	{FaultInput, CauseUnknownImage, wraps(engine.ErrImage)},
	{FaultInput, CauseBadImage, wraps(engine.ErrSource)},
	{FaultInput, CauseBadEngine, wraps(engine.ErrAddress)},
	{FaultEngine, CausePosture, typed[*PostureError]},
	{FaultEngine, CauseUnreachable, wraps(engine.ErrUnreachable)},
	{FaultEngine, CauseTooOld, wraps(engine.ErrTooOld)},
}

func typed[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func wraps(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}
