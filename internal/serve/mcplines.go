package serve

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lineTransport carries the protocol on a pair of streams, one object per line. Unlike the
// SDK's own transport it answers a line that is not a message, and goes on.
type lineTransport struct {
	out      *outgoing
	messages chan jsonrpc.Message // from the client; closed after the last one
	gone     chan struct{}        // closed by Close
	closing  sync.Once
	broken   context.Context //nolint:containedctx // ends when nothing can be sent any more
	greeted  atomic.Bool     // the client has sent initialize
}

func newLineTransport(in io.Reader, out io.Writer) *lineTransport {
	broken, end := context.WithCancelCause(context.Background())
	t := &lineTransport{messages: make(chan jsonrpc.Message), gone: make(chan struct{}), broken: broken}
	t.out = newOutgoing(out, end)
	go t.read(newLineReader(in)) // a read that blocks ends with the process
	return t
}

// Connect implements mcp.Transport.
func (t *lineTransport) Connect(context.Context) (mcp.Connection, error) { return t, nil }

// SessionID implements mcp.Connection.
func (t *lineTransport) SessionID() string { return "" }

func (t *lineTransport) read(lines *lineReader) {
	defer close(t.messages)
	defer t.out.hurry()
	for {
		line, err := lines.next()
		var m jsonrpc.Message
		if err == nil {
			m, err = parseMCP(line)
		}
		wrong, ours := errors.AsType[*Error](err)
		switch {
		case ours:
			t.out.refuse(response{Error: wrong})
			continue
		case err != nil:
			return
		}
		if r, ok := m.(*jsonrpc.Request); ok && r.Method == "initialize" {
			t.greeted.Store(true)
		}
		select {
		case t.messages <- m:
		case <-t.gone:
			return
		}
	}
}

// parseMCP reads a message strictly. Its errors are of type *Error.
func parseMCP(line []byte) (jsonrpc.Message, error) {
	if err := checkJSON(line); err != nil {
		return nil, failure(KindParse, "the message cannot be read: %v", err)
	}
	if line[0] != '{' {
		return nil, failure(KindRequest, "a message is an object; batches are not taken")
	}
	m, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return nil, failure(KindRequest, "%s", shown(err.Error()))
	}
	return m, nil
}

// Read implements mcp.Connection.
func (t *lineTransport) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m, ok := <-t.messages:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-t.gone:
		return nil, io.EOF
	case <-t.broken.Done():
		return nil, context.Cause(t.broken)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Write implements mcp.Connection.
func (t *lineTransport) Write(ctx context.Context, m jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(coded(m, t.greeted.Load()))
	if err != nil {
		return err
	}
	return t.out.put(ctx, &queued{line: append(line, '\n')})
}

// coded adds a code of JSON-RPC to an error that the SDK sends without one: a request
// before initialize is invalid, any other error is internal.
func coded(m jsonrpc.Message, greeted bool) jsonrpc.Message {
	r, ok := m.(*jsonrpc.Response)
	if !ok || r.Error == nil {
		return m
	}
	if e, ok := errors.AsType[*jsonrpc.Error](r.Error); ok && e.Code != 0 {
		return m
	}
	code := int64(jsonrpc.CodeInternalError)
	if !greeted {
		code = jsonrpc.CodeInvalidRequest
	}
	with := *r
	with.Error = &jsonrpc.Error{Code: code, Message: r.Error.Error()}
	return &with
}

// Close implements mcp.Connection.
func (t *lineTransport) Close() error {
	t.closing.Do(func() { close(t.gone) })
	t.out.hurry()
	return nil
}

// end writes what is queued, when the connection is not used any more.
func (t *lineTransport) end() error { return t.out.close() }
