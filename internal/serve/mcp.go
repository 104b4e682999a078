package serve

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/tool"
)

// maxCalls is how many calls of a client run at once.
const maxCalls = 64

// MCP serves the Model Context Protocol. Each client has its own session, which starts
// at its first call and ends with the client. An MCP is safe for concurrent use. It must
// be closed.
type MCP struct {
	o      Options
	server *mcp.Server

	mu     sync.Mutex
	closed bool                            // guarded by mu
	peers  map[*mcp.ServerSession]*mcpPeer // guarded by mu; those that have called
	busy   sync.WaitGroup                  // ends of peers; Go with mu held
}

// mcpPeer is a client and its session.
type mcpPeer struct {
	session  *mcp.ServerSession
	sessions *held
	calls    chan struct{} // a token for each call that runs
	working  sync.WaitGroup
	life     context.Context //nolint:containedctx // the client's: terminals outlive the calls that open them
	end      context.CancelCauseFunc
	closing  sync.Once

	terminals terminals

	mu       sync.Mutex
	over     bool            // guarded by mu; no call begins any more
	finished []tool.Delivery // guarded by mu; jobs that the model does not know of yet
	asking   context.Context //nolint:containedctx // guarded by mu; the latest call's: a question belongs to a call
}

// NewMCP returns a server. It starts no session. The server uses the options' Tools,
// because MCP clients do not say which tools their agents have.
func NewMCP(o Options) (*MCP, error) {
	m := &MCP{o: o, peers: map[*mcp.ServerSession]*mcpPeer{}}
	m.server = mcp.NewServer(&mcp.Implementation{Name: programName, Version: o.Version}, &mcp.ServerOptions{
		Capabilities: capabilities(),
	})
	all, err := tool.Definitions(o.Contract, o.host(o.Tools, false))
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		m.addTool(d)
	}
	if o.TerminalTool {
		m.addTerminalTool()
	}
	if o.AskNetwork {
		m.addProposeTool()
	}
	m.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: "artifact://{id}{?offset,limit}", Name: "artifact", MIMEType: "text/plain",
		Description: "The full output of a command whose result shows only a part of it; offset and limit, in bytes, take a part.",
	}, m.readArtifact)
	m.server.AddReceivingMiddleware(m.listArtifacts, tellFromTheStart)
	return m, nil
}

// Serve serves one client on a pair of streams, one object per line, until the input or
// ctx ends. Then it cancels the client's calls and removes its session.
func (m *MCP) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	t := newLineTransport(in, out)
	ss, err := m.server.Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = ss.Wait() // the transport knows why
	}()
	select {
	case <-over:
	case <-ctx.Done():
		m.finish(ss)
		_ = t.Close()
		<-over
	}
	m.finish(ss)
	return t.end()
}

// peer is the client of a session of the protocol.
func (m *MCP) peer(ss *mcp.ServerSession) (*mcpPeer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[ss]; p != nil {
		return p, nil
	}
	if m.closed {
		return nil, errGone
	}
	p := &mcpPeer{session: ss, calls: make(chan struct{}, maxCalls)}
	p.life, p.end = context.WithCancelCause(context.Background())
	p.sessions = newHeld(p.life, m.o, func(ctx context.Context, s *Session) { m.tell(ctx, p, s) })
	m.peers[ss] = p
	m.busy.Go(func() {
		_ = ss.Wait() // the transport knows why
		m.finish(ss)
	})
	return p, nil
}

// finish ends a client's calls and removes its session. If it is called again it waits
// for the first call.
func (m *MCP) finish(ss *mcp.ServerSession) {
	m.mu.Lock()
	p := m.peers[ss]
	m.mu.Unlock()
	if p == nil {
		return
	}
	p.closing.Do(func() { p.close(m.o) })
	m.mu.Lock()
	delete(m.peers, ss)
	m.mu.Unlock()
}

func (p *mcpPeer) close(o Options) {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.end(errGone)
	p.working.Wait()
	p.terminals.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for _, err := range p.sessions.close(ctx) {
		o.note("a session was not ended: " + err.Error())
	}
}

// Close ends the clients that are left, and waits for their sessions' end.
func (m *MCP) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	var ends sync.WaitGroup
	for ss := range m.server.Sessions() {
		ends.Go(func() { m.drop(ss) })
	}
	ends.Wait()
	m.busy.Wait()
}

// drop ends a client. Its calls are cancelled first: the protocol's end waits for
// them.
func (m *MCP) drop(ss *mcp.ServerSession) {
	m.finish(ss)
	_ = ss.Close()
}

// find returns the protocol's session of an id.
func (m *MCP) find(id string) *mcp.ServerSession {
	for ss := range m.server.Sessions() {
		if ss.ID() == id && id != "" {
			return ss
		}
	}
	return nil
}

// sessionRequest is the request for a client's session.
func (m *MCP) sessionRequest(p *mcpPeer) SessionRequest {
	r := SessionRequest{Contract: m.o.Contract, Tools: m.o.Tools}
	if m.o.AskNetwork && canElicit(p.session) {
		r.Ask = p.ask
	}
	return r
}

// begin registers a call. Its context ends with the client.
func (m *MCP) begin(ctx context.Context, ss *mcp.ServerSession) (*mcpPeer, context.Context, func(), error) {
	p, err := m.peer(ss)
	if err != nil {
		return nil, ctx, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, ctx, nil, errGone
	}
	select {
	case p.calls <- struct{}{}:
	default:
		return nil, ctx, nil, failure(KindOverloaded, "%d calls are being answered: wait for one", maxCalls)
	}
	p.working.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	p.asking = ctx
	stop := context.AfterFunc(p.life, func() { cancel(context.Cause(p.life)) })
	return p, ctx, func() {
		stop()
		cancel(nil)
		<-p.calls
		p.working.Done()
	}, nil
}

// tell keeps the results of jobs that have ended for the next result, and sends the
// client a log message about each.
func (m *MCP) tell(ctx context.Context, p *mcpPeer, s *Session) {
	if s.News == nil || m.o.Contract != tool.Agent { // no other contract has a follow-up
		<-ctx.Done()
		return
	}
	err := s.News.Deliveries(ctx, func(ctx context.Context, all []tool.Delivery) error {
		p.mu.Lock()
		p.finished = append(p.finished, all...)
		p.mu.Unlock()
		for _, d := range all {
			logJob(ctx, p.session, d)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		m.o.note("session " + s.ID + ": the ends of its jobs are not reported any more: " + err.Error())
	}
}

// takeFollowUp returns the text about jobs that have ended since the last result, or "".
func (p *mcpPeer) takeFollowUp() string {
	p.mu.Lock()
	all := p.finished
	p.finished = nil
	p.mu.Unlock()
	if len(all) == 0 {
		return ""
	}
	return tool.FollowUp(all)
}

// called returns the client's session if it has one already.
func (m *MCP) called(ss *mcp.ServerSession) *Session {
	m.mu.Lock()
	p := m.peers[ss]
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	_, first := p.sessions.list()
	s, _ := p.sessions.find(first) // the whole id of one
	return s
}

// listArtifacts answers resources/list with the artifacts of the client's session.
func (m *MCP) listArtifacts(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ss, ok := req.GetSession().(*mcp.ServerSession)
		if method != "resources/list" || !ok {
			return next(ctx, method, req)
		}
		list := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}}
		s := m.called(ss)
		if s == nil || s.Artifacts == nil {
			return list, nil
		}
		all, err := s.Artifacts.List(ctx)
		if err != nil {
			return nil, errors.New("the artifacts cannot be listed")
		}
		for _, a := range slices.Backward(all) {
			if len(list.Resources) == maxListed {
				break
			}
			list.Resources = append(list.Resources, &mcp.Resource{
				URI: "artifact://" + a.ID, Name: "artifact " + a.ID, MIMEType: "text/plain", Size: a.Bytes,
			})
		}
		return list, nil
	}
}

// maxListed bounds a list of artifacts; the last ones are listed.
const maxListed = 1000

func (m *MCP) readArtifact(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	id, from, most, err := parseArtifact(uri)
	s := m.called(req.Session)
	if err != nil || s == nil || s.Artifacts == nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	data, size, err := s.Artifacts.Read(ctx, id, from, most)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	c := newContent(data)
	part := &mcp.ResourceContents{
		URI: uri, MIMEType: "text/plain", Text: c.Content, Meta: mcp.Meta{"offset": from, "bytes": len(data), "size": size},
	}
	if c.Encoding != "utf-8" {
		part.MIMEType, part.Text, part.Blob = "application/octet-stream", "", data
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{part}}, nil
}
