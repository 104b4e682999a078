package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Kind is the stable name of an error.
type Kind string

// Kinds of errors. Each has its own code; see Errors.
const (
	KindParse           Kind = "parse-error"
	KindRequest         Kind = "invalid-request"
	KindMethod          Kind = "method-not-found"
	KindParams          Kind = "invalid-params"
	KindInternal        Kind = "internal"
	KindCancelled       Kind = "cancelled"
	KindTooLarge        Kind = "too-large"
	KindOverloaded      Kind = "overloaded"
	KindNotInitialized  Kind = "not-initialized"
	KindInitialized     Kind = "already-initialized"
	KindUnknownSession  Kind = "unknown-session"
	KindUnknownJob      Kind = "unknown-job"
	KindUnknownTerminal Kind = "unknown-terminal"
	KindUnknownArtifact Kind = "unknown-artifact"
	KindUnknownRequest  Kind = "unknown-request"
	KindFile            Kind = "file"
	KindDenied          Kind = "denied"
	KindUnavailable     Kind = "unavailable"
	KindNotStarted      Kind = "not-started"
	KindLost            Kind = "session-lost"
	KindUnknownOutcome  Kind = "outcome-unknown"
)

// ErrorRow is a row of the table of errors.
type ErrorRow struct {
	Code    int
	Kind    Kind
	Meaning string
}

// Errors returns the table of errors that docs/rpc.md shows. The meaning of a code or a
// kind never changes.
func Errors() []ErrorRow {
	return []ErrorRow{
		{-32700, KindParse, "the line is not JSON, or JSON that can be read in two ways: not UTF-8, a name twice in an object, half of a surrogate pair, nested deeper than 64 levels"},
		{-32600, KindRequest, "the line is not a request: a batch, another version than 2.0, an id that is neither a string nor a whole number, or the id of a request that is being answered"},
		{-32601, KindMethod, "there is no such method"},
		{-32602, KindParams, "the parameters are not those of the method"},
		{-32603, KindInternal, "a fault of the server"},
		{-32800, KindCancelled, "the request was cancelled, and has no result"},
		{-32001, KindTooLarge, "the line is longer than 16 MiB, or the answer would be too large"},
		{-32002, KindOverloaded, "too many requests, sessions or terminals at once: wait for some to end"},
		{-32003, KindNotInitialized, "send `initialize` first"},
		{-32004, KindInitialized, "`initialize` was sent before"},
		{-32010, KindUnknownSession, "no session has this id"},
		{-32011, KindUnknownJob, "no job of the session has this id"},
		{-32012, KindUnknownTerminal, "no terminal of this connection has this id"},
		{-32013, KindUnknownArtifact, "the session has no artifact of this id"},
		{-32014, KindUnknownRequest, "no request with this id is being answered"},
		{-32015, KindFile, "a file of the session or of this machine cannot be read or written"},
		{-32020, KindDenied, "the policy refuses the command; nothing has run"},
		{-32021, KindUnavailable, "the feature is turned off, or this session or this machine does not have it"},
		{-32030, KindNotStarted, "nothing has run; `data.cause` says why"},
		{-32031, KindLost, "the session is gone, with everything that ran in it"},
		{-32032, KindUnknownOutcome, "it is not known whether the command has run, or has ended"},
	}
}

// Error is the error object of an answer.
type Error struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Data    ErrorData `json:"data"`
}

// ErrorData is for programs to decide by.
type ErrorData struct {
	Kind  Kind   `json:"kind"`
	Cause string `json:"cause,omitempty"`
}

func (e *Error) Error() string { return e.Message }

func failure(kind Kind, format string, args ...any) *Error {
	for _, row := range Errors() {
		if row.Kind == kind {
			return &Error{Code: row.Code, Message: fmt.Sprintf(format, args...), Data: ErrorData{Kind: kind}}
		}
	}
	panic("no code for errors of kind " + string(kind)) // a mistake in this package, found by its first test
}

func badParams(format string, args ...any) *Error { return failure(KindParams, format, args...) }

// errCancelled is the cause of a request that its client has cancelled.
var errCancelled = errors.New("the request was cancelled")

// answerable makes an error one that a client can be sent. It decides by types.
func answerable(ctx context.Context, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*screen.KeyError](err); ok {
		return badParams("%v", e)
	}
	j := sandbox.Judge(err)
	e := failure(kindOf(j), "%s", j.Message)
	_, isExec := errors.AsType[*exec.Error](err)
	_, isInput := errors.AsType[*sandbox.InputError](err)
	denial, isDenial := errors.AsType[*policy.Denial](err)
	switch {
	case isExec:
		e.Data.Cause = string(j.Cause)
	case isInput:
		return badParams("%s", j.Message)
	case isDenial:
		e.Message, e.Data.Cause = denial.Message, denial.Rule
	case ctx.Err() != nil:
		return failure(KindCancelled, "%v", context.Cause(ctx))
	}
	return e
}

// causeKinds are the kinds of errors that their cause decides.
var causeKinds = map[exec.Cause]Kind{
	exec.CauseCancelled: KindCancelled, sandbox.CauseDenied: KindDenied, sandbox.CauseUnknownSession: KindUnknownSession,
	sandbox.CauseUnknownJob: KindUnknownJob, sandbox.CauseUnknownArtifact: KindUnknownArtifact,
}

// outcomeKinds are the kinds of all others, by what is known of the command.
var outcomeKinds = map[exec.Outcome]Kind{
	exec.NotStarted: KindNotStarted, exec.Unknown: KindUnknownOutcome, exec.Lost: KindLost,
}

// kindOf is the kind of an error.
func kindOf(j sandbox.Judgment) Kind {
	return cmp.Or(causeKinds[j.Cause], outcomeKinds[j.Outcome], KindInternal)
}
