package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/sandboxbash/sandboxbash/engine"
)

// callTimeout bounds every call that does not stream. It is generous: a loaded
// engine on a slow disk takes seconds to create or remove a container.
const callTimeout = 30 * time.Second

// errSlow is the cause of a call that ended by callTimeout.
var errSlow = fmt.Errorf("the engine did not answer within %v: %w", callTimeout, context.DeadlineExceeded)

// bounded gives a call that does not stream its deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, callTimeout, errSlow)
}

// makeGrace is how long a call that makes something is waited for after its caller
// has given up: an engine goes on with it, and what is not waited for cannot be
// taken away again.
const makeGrace = 4 * time.Second

// making is bounded for a call that makes something.
func making(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := bounded(context.WithoutCancel(ctx))
	lasting, cut := context.WithCancelCause(lasting)
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(makeGrace, func() { cut(context.Cause(ctx)) })
		context.AfterFunc(lasting, func() { late.Stop() })
	})
	return lasting, func() {
		stop()
		cut(nil)
		cancel()
	}
}

// fail turns an error of the Docker client into an *engine.Error. What kind it
// is follows from the status of the response or the type of the error, never
// from its text.
func fail(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*engine.Error](err); ok && errors.Is(err, e) {
		return err // was made by a call below this one
	}
	if ctx.Err() != nil && isContextError(err) {
		return &engine.Error{Op: op, Err: context.Cause(ctx)}
	}
	return &engine.Error{Op: op, Kind: kind(err), Err: err}
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// invalid refuses parameters that never reached the engine.
func invalid(op, format string, args ...any) error {
	return &engine.Error{Op: op, Kind: engine.ErrInvalid, Err: fmt.Errorf(format, args...)}
}

func kind(err error) error {
	switch {
	case cerrdefs.IsNotFound(err):
		return engine.ErrNotFound
	case cerrdefs.IsConflict(err):
		return engine.ErrConflict
	case cerrdefs.IsUnauthorized(err), cerrdefs.IsPermissionDenied(err):
		return engine.ErrDenied
	case cerrdefs.IsInvalidArgument(err):
		return engine.ErrInvalid
	case errors.Is(err, errLongAnswer):
		return engine.ErrAnswer
	case neverSent(err):
		return engine.ErrUnreachable
	}
	return nil
}

// neverSent says whether the request certainly did not reach the engine: there
// was no connection to send it over. A connection that broke later is not that.
func neverSent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "dial"
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return false
	}
	// The Docker client drops the cause only of errors met while dialling.
	return client.IsErrConnectionFailed(err)
}

// reset says whether the connection broke under a request.
func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ask makes one idempotent call under callTimeout, and once more when the
// connection broke under it.
func ask[T any](ctx context.Context, op string, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	v, err := call(ctx)
	if err != nil && reset(err) && ctx.Err() == nil {
		v, err = call(ctx)
	}
	if err != nil {
		var none T
		return none, fail(ctx, op, err)
	}
	return v, nil
}
