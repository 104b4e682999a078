package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lineTransport carries the protocol on a pair of streams, one object per line, for two servers: one answers the
// requests that name their version, and the other the rest, which a client with initialize sends. Unlike the SDK's own
// transport it answers a line that is not a message, and goes on.
type lineTransport struct {
	out            *outgoing
	legacy, modern *lineConn
	gone           chan struct{} // closed by Close
	closing        sync.Once
	broken         context.Context //nolint:containedctx // ends when nothing can be sent any more
	greeted        atomic.Bool     // the client has sent initialize
}

// lineConn is the part of a transport that one server has.
type lineConn struct {
	*lineTransport

	messages chan jsonrpc.Message // from the client; closed after the last one
	shut     chan struct{}        // closed by Close
	closing  sync.Once
}

func newLineConn(t *lineTransport) *lineConn {
	return &lineConn{lineTransport: t, messages: make(chan jsonrpc.Message), shut: make(chan struct{})}
}

func newLineTransport(in io.Reader, out io.Writer) *lineTransport {
	broken, end := context.WithCancelCause(context.Background())
	t := &lineTransport{gone: make(chan struct{}), broken: broken}
	t.legacy, t.modern = newLineConn(t), newLineConn(t)
	t.out = newOutgoing(out, end)
	go t.read(newLineReader(in)) // a read that blocks ends with the process
	return t
}

// Connect implements mcp.Transport.
func (c *lineConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements mcp.Connection.
func (t *lineTransport) SessionID() string { return "" }

func (t *lineTransport) read(lines *lineReader) {
	defer close(t.legacy.messages)
	defer close(t.modern.messages)
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
		to := []*lineConn{t.legacy}
		if r, ok := m.(*jsonrpc.Request); ok {
			version, named := namedVersion(r)
			switch {
			case named && !slices.Contains(mcp.SupportedProtocolVersions(), version):
				t.refuseVersion(r, version)
				continue
			case named:
				to = []*lineConn{t.modern}
			case r.Method == "initialize":
				t.greeted.Store(true)
			case r.Method == "notifications/cancelled": // one of them has the request
				to = append(to, t.modern)
			}
		}
		for _, c := range to {
			select {
			case c.messages <- m:
			case <-c.shut: // the other one may go on
			case <-t.gone:
				return
			}
		}
	}
}

// namedVersion returns the version of the protocol that a call names, as those of a client without initialize do. The
// versions with initialize know no such name.
func namedVersion(r *jsonrpc.Request) (version string, named bool) {
	var params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if !r.IsCall() || json.Unmarshal(r.Params, &params) != nil {
		return "", false
	}
	raw, named := params.Meta[mcp.MetaKeyProtocolVersion]
	return version, named && json.Unmarshal(raw, &version) == nil
}

// unsupportedVersion is the error for a call of a version that there is not.
func unsupportedVersion(version string) *jsonrpc.Error {
	data, _ := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: mcp.SupportedProtocolVersions(), Requested: version}) // it can
	return &jsonrpc.Error{Code: mcp.CodeUnsupportedProtocolVersion, Message: "unsupported protocol version", Data: data}
}

func (t *lineTransport) refuseVersion(r *jsonrpc.Request, version string) {
	_ = t.legacy.Write(context.Background(), &jsonrpc.Response{ID: r.ID, Error: unsupportedVersion(version)}) // an error means that the client has gone
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
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m, ok := <-c.messages:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-c.shut:
		return nil, io.EOF
	case <-c.gone:
		return nil, io.EOF
	case <-c.broken.Done():
		return nil, context.Cause(c.broken)
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

// Close implements mcp.Connection. The transport is closed when both servers have closed their part.
func (c *lineConn) Close() error {
	c.closing.Do(func() { close(c.shut) })
	for _, part := range []*lineConn{c.legacy, c.modern} {
		select {
		case <-part.shut:
		default:
			return nil
		}
	}
	return c.lineTransport.Close()
}

// Close ends the transport. What is queued is still written for a while.
func (t *lineTransport) Close() error {
	t.closing.Do(func() { close(t.gone) })
	t.out.hurry()
	return nil
}

// end writes what is queued, when the connection is not used any more.
func (t *lineTransport) end() error { return t.out.close() }
