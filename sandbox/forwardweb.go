package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/mux"
	"github.com/sandboxbash/sandboxbash/internal/webforward"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// URL is the address to open in a browser: it holds the token that a Forward with HTTP asks for, and
// must not be logged. It is "" without HTTP.
func (f *Forward) URL() string {
	if f.web == nil {
		return ""
	}
	return f.web.URL(f.Addr())
}

func (f *Forward) newWeb() *webforward.Server {
	return webforward.New(webforward.Options{
		Dial: f.dial, Host: fmt.Sprintf("port %d of the session", f.opts.Port),
		Explain: func(err error) string {
			why := f.explain(err)
			_, isReset := errors.AsType[*mux.ResetError](err)
			switch {
			case f.ctx.Err() != nil:
				return "the forward has ended"
			case why != "":
				f.note("forward: " + why)
			case errors.Is(err, mux.ErrLost):
				why = "the way into the session was lost: try again"
			case isReset:
				why = fmt.Sprintf("port %d of the session has reset the connection", f.opts.Port)
			default:
				if failure, ok := errors.AsType[*dialError](err); ok {
					why = failure.Error()
					f.note(fmt.Sprintf("forward: port %d of the session: %s", f.opts.Port, why))
				}
			}
			return why
		},
		Worked: func() { f.note("") },
	})
}

// serveWeb serves the listener's requests until the Forward ends.
func (f *Forward) serveWeb() {
	f.wg.Go(func() { f.web.Serve(f.listener) })
	f.wg.Go(func() {
		<-f.ctx.Done()
		f.web.Close()
	})
}

// dialError is why no connection with the session could be opened.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// dial connects with the port of the session, for requests.
func (f *Forward) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(f.ctx, cancel)
	defer stop()
	if !f.session.inward.enter(ctx, f) {
		return nil, context.Cause(ctx)
	}
	stream, err := f.open()
	if err != nil {
		f.session.inward.leave()
		return nil, &dialError{err}
	}
	c := &dialled{Stream: stream}
	release := context.AfterFunc(f.ctx, func() { stream.Reset(wire.NetCut) })
	c.end = sync.OnceFunc(func() {
		release()
		f.session.inward.leave()
	})
	return c, nil
}

// dialled is a connection with the session that counts as one until it is closed.
type dialled struct {
	*mux.Stream

	end func()
}

func (c *dialled) Close() error {
	defer c.end()
	return c.Stream.Close()
}
