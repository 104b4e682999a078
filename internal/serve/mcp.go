package serve

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxCalls is how many calls of a client run at once.
const maxCalls = 64

// statelessVersion is the first version of the protocol without initialize: each request says what the
// server has to know of its client, and servers send no requests.
const statelessVersion = "2026-07-28"

// MCP serves the Model Context Protocol in two ways, each by a server of its own, because the versions up
// to 2025-11-25 have sessions and those from 2026-07-28 on have not:
//
//   - A client that sends initialize has a session of its own, which starts at its first call and ends with the
//     client.
//   - A request that names its version belongs to no one. Its calls name their session, which ends when it was
//     idle for Options.Idle. Such sessions also outlive the MCP.
//
// With Options.Attach all use the session that there is already, and none ends it. An MCP is safe for
// concurrent use. It must be closed.
type MCP struct {
	o      Options
	tools  []mcpTool
	seal   *sealer
	legacy *mcp.Server // of clients that send initialize
	modern *mcp.Server // of requests that name their version

	common *mcpPeer // of the requests that name their version; with Options.Attach, its sessions are all clients'

	attaching sync.Mutex // one session at a time is opened that another process has started

	mu     sync.Mutex
	closed bool                            // guarded by mu
	slots  int                             // guarded by mu; sessions of the protocol over HTTP, with those that begin
	peers  map[*mcp.ServerSession]*mcpPeer // guarded by mu; those that have called
	desks  map[*Session]*desk              // guarded by mu; by their sessions
	parked map[string]*parked              // guarded by mu; calls that wait for an answer, by their states' ids
	busy   sync.WaitGroup                  // ends of peers; Go with mu held
}

// mcpPeer is a client with its sessions, or all those without one.
type mcpPeer struct {
	session  *mcp.ServerSession // nil: common
	sessions *held
	shared   bool          // the sessions are common's
	calls    chan struct{} // a token for each call that runs
	working  sync.WaitGroup
	life     context.Context //nolint:containedctx // the client's: terminals outlive the calls that open them
	end      context.CancelCauseFunc
	closing  sync.Once

	terminals terminals

	mu   sync.Mutex
	over bool // guarded by mu; no call begins any more
}

// NewMCP returns a server. It starts no session. The server uses the options' Tools, because MCP clients do not
// say which tools their agents have. The error says what is wrong with Options.Offer.
func NewMCP(o Options) (*MCP, error) {
	tools, err := offered(o)
	if err != nil {
		return nil, err
	}
	m := &MCP{
		o: o, tools: tools, seal: newSealer(),
		peers: map[*mcp.ServerSession]*mcpPeer{}, desks: map[*Session]*desk{}, parked: map[string]*parked{},
	}
	m.common = m.newPeer(nil)
	m.legacy, m.modern = m.newServer(false), m.newServer(true)
	return m, nil
}

// newServer makes the server of one of the two kinds of clients.
func (m *MCP) newServer(stateless bool) *mcp.Server {
	o := &mcp.ServerOptions{Capabilities: capabilities(), Instructions: m.o.instructions(m.tools, stateless)}
	if !stateless {
		o.SupportedProtocolVersions = slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool { return v >= statelessVersion })
	}
	server := mcp.NewServer(&mcp.Implementation{Name: programName, Title: "Sandboxed bash", Version: m.o.Version}, o)
	for _, t := range m.tools {
		server.AddTool(t.definition(m.o, m.named(stateless)), m.handler(t, stateless))
	}
	m.addArtifacts(server, stateless)
	if !stateless {
		server.AddReceivingMiddleware(tellFromTheStart)
	}
	return server
}

// named reports whether the calls name their session.
func (m *MCP) named(stateless bool) bool { return stateless && m.o.Attach == "" }

// Serve serves one client on a pair of streams, one object per line, until the input or
// ctx ends. Then it cancels the client's calls and removes its session.
func (m *MCP) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	t := newLineTransport(in, out)
	modern, err := m.modern.Connect(ctx, t.modern, nil)
	if err != nil {
		return err
	}
	ss, err := m.legacy.Connect(ctx, t.legacy, nil)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = ss.Wait(), modern.Wait() // the transport knows why
	}()
	select {
	case <-over:
	case <-ctx.Done():
		m.finish(ss)
		m.common.endCalls()
		_ = t.Close()
		<-over
	}
	m.finish(ss)
	return t.end()
}

// newPeer makes a peer. Its close is the caller's.
func (m *MCP) newPeer(ss *mcp.ServerSession) *mcpPeer {
	p := &mcpPeer{session: ss, calls: make(chan struct{}, maxCalls)}
	p.life, p.end = context.WithCancelCause(context.Background())
	if ss != nil && m.o.Attach != "" {
		p.shared, p.sessions = true, m.common.sessions
		return p
	}
	p.sessions = newHeld(p.life, m.o, func(ctx context.Context, s *Session) { m.tell(ctx, p, s) })
	return p
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
	p := m.newPeer(ss)
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
	p.close(m.o)
	m.mu.Lock()
	delete(m.peers, ss)
	m.mu.Unlock()
}

// endCalls ends the calls that run, and lets none begin any more.
func (p *mcpPeer) endCalls() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.end(errGone)
	p.working.Wait()
}

func (p *mcpPeer) close(o Options) {
	p.closing.Do(func() {
		p.endCalls()
		p.terminals.close()
		if p.shared {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		for _, err := range p.sessions.close(ctx) {
			o.note("a session was not ended: " + err.Error())
		}
	})
}

// Close ends the clients that are left, and waits for their sessions' end. Sessions that outlive the MCP are
// released.
func (m *MCP) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	var ends sync.WaitGroup
	for _, server := range []*mcp.Server{m.legacy, m.modern} {
		for ss := range server.Sessions() {
			ends.Go(func() { m.drop(ss) })
		}
	}
	m.common.endCalls()
	ends.Wait()
	m.busy.Wait()
	m.common.close(m.o)
}

// drop ends a client. Its calls are cancelled first: the protocol's end waits for
// them.
func (m *MCP) drop(ss *mcp.ServerSession) {
	m.finish(ss)
	_ = ss.Close()
}

// find returns the protocol's session of an id.
func (m *MCP) find(id string) *mcp.ServerSession {
	for ss := range m.legacy.Sessions() {
		if ss.ID() == id && id != "" {
			return ss
		}
	}
	return nil
}

// idled ends a session that no call has named for Options.Idle.
func (m *MCP) idled(s *Session) { m.common.sessions.idled(s) }
