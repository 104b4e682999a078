package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Kind is the stable name of an error.
type Kind string

// Kinds of errors. Each has a code of its own; see Errors.
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

// Errors is the table of errors that docs/rpc.md shows. Codes and kinds are never
// given another meaning.
func Errors() []ErrorRow {
	return []ErrorRow{
		{-32700, KindParse, "the line is no JSON, or JSON that can be read in two ways: not UTF-8, a name twice in an object, half of a surrogate pair, nested deeper than 64 levels"},
		{-32600, KindRequest, "the line is no request: a batch, another version than 2.0, an id that is neither a string nor a whole number, or the id of a request that is being answered"},
		{-32601, KindMethod, "there is no such method"},
		{-32602, KindParams, "the parameters are not those of the method"},
		{-32603, KindInternal, "the server has made a mistake"},
		{-32800, KindCancelled, "the request was cancelled, and nothing has come of it"},
		{-32001, KindTooLarge, "the line is longer than 16 MiB, or what was asked for is"},
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
		{-32021, KindUnavailable, "it is turned off, or this session or this machine does not have it"},
		{-32030, KindNotStarted, "nothing has run; `data.cause` says why"},
		{-32031, KindLost, "the session is gone, and what ran in it"},
		{-32032, KindUnknownOutcome, "nobody can tell whether the command has run, or has ended"},
	}
}

// Error is the error object of an answer.
type Error struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Data    ErrorData `json:"data"`
}

// ErrorData is what programs decide by.
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

// answerable makes an error one that a client is told. It decides by types.
func answerable(ctx context.Context, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return execError(e)
	}
	if d, ok := errors.AsType[*policy.Denial](err); ok {
		e := failure(KindDenied, "%s", d.Message)
		e.Data.Cause = d.Rule
		return e
	}
	if e, ok := errors.AsType[*sandbox.InputError](err); ok {
		return badParams("%s", e.Text)
	}
	if e, ok := errors.AsType[*screen.KeyError](err); ok {
		return badParams("%v", e)
	}
	switch {
	case ctx.Err() != nil:
		return failure(KindCancelled, "%v", context.Cause(ctx))
	case errors.Is(err, sandbox.ErrUnknownSession):
		return failure(KindUnknownSession, "%v", err)
	case errors.Is(err, sandbox.ErrUnknownJob):
		return failure(KindUnknownJob, "%v", err)
	case errors.Is(err, sink.ErrNotFound):
		return failure(KindUnknownArtifact, "%v", err)
	}
	return failure(KindNotStarted, "%v", err)
}

func execError(e *exec.Error) *Error {
	kinds := map[exec.Outcome]Kind{exec.NotStarted: KindNotStarted, exec.Unknown: KindUnknownOutcome, exec.Lost: KindLost}
	kind, ok := kinds[e.Outcome]
	switch {
	case !ok:
		kind = KindInternal
	case e.Cause == exec.CauseCancelled:
		kind = KindCancelled
	}
	text := string(e.Cause)
	if e.Err != nil {
		text = e.Err.Error()
	}
	out := failure(kind, "%s", text)
	out.Data.Cause = string(e.Cause)
	return out
}
