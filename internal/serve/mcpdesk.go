package serve

import (
	"context"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// desk is what an MCP knows of one session besides its parts: who can be asked in it, and what its next result has
// to tell.
type desk struct {
	mu       sync.Mutex
	finished []tool.Delivery // guarded by mu; jobs that the model does not know of yet
	calls    []*mcpCall      // guarded by mu; that run, the latest last
	idle     *time.Timer     // guarded by mu; ends a session that calls name; nil: it ends with its client
}

// deskOf is the desk of a session.
func (m *MCP) deskOf(s *Session) *desk {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.desks[s]
	if d == nil {
		d = &desk{}
		m.desks[s] = d
	}
	return d
}

// enter notes that a call uses the session.
func (d *desk) enter(c *mcpCall) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
	if d.idle != nil {
		d.idle.Stop()
	}
}

// leave notes that a call has ended. The session ends if none follows for so long.
func (d *desk) leave(c *mcpCall, idle time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, other := range d.calls {
		if other == c {
			d.calls = append(d.calls[:i], d.calls[i+1:]...)
			break
		}
	}
	if len(d.calls) == 0 && d.idle != nil {
		d.idle.Reset(idle)
	}
}

// ends has the session ended when it was idle for so long.
func (d *desk) ends(idle time.Duration, end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.idle == nil {
		d.idle = time.AfterFunc(idle, func() {
			d.mu.Lock()
			busy := len(d.calls) > 0
			d.mu.Unlock()
			if !busy {
				end()
			}
		})
		if len(d.calls) > 0 {
			d.idle.Stop()
		}
	}
}

// close forgets the idle time.
func (d *desk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.idle != nil {
		d.idle.Stop()
	}
}

// latest is the call that a question of the session belongs to: the one that began last.
func (d *desk) latest() *mcpCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) == 0 {
		return nil
	}
	return d.calls[len(d.calls)-1]
}

// takeFollowUp returns the text about jobs that have ended since the last result, or "".
func (d *desk) takeFollowUp() string {
	d.mu.Lock()
	all := d.finished
	d.finished = nil
	d.mu.Unlock()
	if len(all) == 0 {
		return ""
	}
	return tool.FollowUp(all)
}

// tell keeps the results of jobs that have ended for the next result in their session, and sends a client a log
// message about each.
func (m *MCP) tell(ctx context.Context, p *mcpPeer, s *Session) {
	d := m.deskOf(s)
	context.AfterFunc(ctx, func() { // the session has ended, or its client
		d.close()
		m.mu.Lock()
		delete(m.desks, s)
		m.mu.Unlock()
	})
	if s.News == nil || m.o.Contract != tool.Agent { // no other contract has a follow-up
		<-ctx.Done()
		return
	}
	err := s.News.Deliveries(ctx, func(ctx context.Context, all []tool.Delivery) error {
		d.mu.Lock()
		d.finished = append(d.finished, all...)
		d.mu.Unlock()
		if p.session != nil {
			for _, one := range all {
				logJob(ctx, p.session, one)
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		m.o.note("session " + s.ID + ": the ends of its jobs are not reported any more: " + err.Error())
	}
}

// askNetwork asks the user of the client whose call began last in the session that a question is about.
func (m *MCP) askNetwork(p *mcpPeer) func(context.Context, sandbox.NetworkQuestion) sandbox.NetworkAnswer {
	return func(ctx context.Context, q sandbox.NetworkQuestion) sandbox.NetworkAnswer {
		answer := sandbox.NetworkAnswer{Scope: sandbox.AllowNo, By: "mcp"}
		asked := question{text: questionText(q), schema: elicitSchema}
		if s, err := p.sessions.find(q.Session); s != nil && err == nil {
			if c := m.deskOf(s).latest(); c != nil {
				answer.Scope = scopeOf(c.ask(ctx, asked))
				return answer
			}
		}
		if p.session != nil { // a job asks, for example
			answer.Scope = scopeOf(elicit(p.life, p.session, &pending{question: asked, ctx: ctx}))
		}
		return answer
	}
}
