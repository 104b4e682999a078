package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/tool"
)

// mcpCall is a call of a tool. It runs in a goroutine of its own, because it may be carried by more than one request:
//
//	request 1 ─ begins it ─┬─ progress, questions (of clients with initialize: a request to them)
//	                       ├─ its result: the answer to the request
//	                       └─ a question: the answer to the request says that input is required; the call is parked
//	request 2, with the answer and the state ─ takes it up ─ as above
//
// It is cancelled if the request that carries it is, and if no request takes it up in time.
type mcpCall struct {
	m         *MCP
	peer      *mcpPeer
	tool      mcpTool
	arguments json.RawMessage // without the session's
	binding   binding
	stateless bool
	canAsk    bool // its client's user

	ctx    context.Context //nolint:containedctx // the call outlives its requests
	cancel context.CancelCauseFunc

	// A request that carries the call receives from these.
	questions chan *pending
	updates   chan string // the latest progress
	done      chan struct{}
	result    *mcp.CallToolResult // set before done is closed

	updating sync.Mutex // held by the goroutine that replaces the value in updates
	session  *Session   // set by use
	intro    string     // for the start of the result
	desk     *desk
}

// question is what a client's user is asked.
type question struct {
	text   string
	schema string // of the form: it has the field answer
}

// pending is a question that waits for its answer.
type pending struct {
	question
	ctx    context.Context //nolint:containedctx // ends when nothing waits any more
	answer chan string     // has room for one
}

// parked is a call that waits for an answer.
type parked struct {
	call  *mcpCall
	asked *pending
	late  *time.Timer // ends the call if no request takes it up
}

// lateTime is how long a parked call waits for a request after the time for its answer. Then it is cancelled.
const lateTime = time.Minute

// maxParked bounds the calls that wait for an answer. No more are asked about.
const maxParked = 256

// ask asks the user of the client. It returns the field answer of the form, "" for everything that is not one: no
// user can be asked, or the user has declined, or nothing came until ctx ended.
func (c *mcpCall) ask(ctx context.Context, q question) string {
	if !c.canAsk {
		return ""
	}
	a := &pending{question: q, ctx: ctx, answer: make(chan string, 1)}
	select {
	case c.questions <- a:
	case <-ctx.Done():
		return ""
	case <-c.ctx.Done():
		return ""
	}
	select {
	case text := <-a.answer:
		return text
	case <-ctx.Done():
		return ""
	case <-c.ctx.Done():
		return ""
	}
}

// askTime is how long a user has for a question of a tool.
func (m *MCP) askTime() time.Duration { return cmp.Or(m.o.AskTime, 2*time.Minute) }

// askUser is ask for a question of a tool. It reports false if no one answered in time.
func (c *mcpCall) askUser(q question) (answer string, inTime bool) {
	ctx, cancel := context.WithTimeout(c.ctx, c.m.askTime())
	defer cancel()
	answer = c.ask(ctx, q)
	return answer, ctx.Err() == nil
}

// handler answers the calls of a tool.
func (m *MCP) handler(t mcpTool, stateless bool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p := m.common
		if !stateless {
			var err error
			if p, err = m.peer(req.Session); err != nil {
				return mcpFailure(ctx, err), nil
			}
		}
		b := bind(t.name, req.Params.Arguments)
		if state := req.Params.RequestState; state != "" && stateless {
			return m.takeUp(ctx, req, state, b)
		}
		c, err := m.begin(p, t, req, stateless)
		if err != nil {
			return mcpFailure(ctx, err), nil
		}
		c.binding = b
		return c.carry(ctx, req), nil
	}
}

// begin starts a call.
func (m *MCP) begin(p *mcpPeer, t mcpTool, req *mcp.CallToolRequest, stateless bool) (*mcpCall, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, errGone
	}
	select {
	case p.calls <- struct{}{}:
	default:
		return nil, failure(KindOverloaded, "%d calls are being answered: wait for one", maxCalls)
	}
	c := &mcpCall{
		m: m, peer: p, tool: t, arguments: req.Params.Arguments, stateless: stateless, canAsk: canElicit(req.ClientCapabilities()),
		questions: make(chan *pending), updates: make(chan string, 1), done: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancelCause(p.life)
	p.working.Go(func() {
		defer func() {
			c.cancel(nil)
			if c.desk != nil {
				c.desk.leave(c, m.o.Idle)
			}
			<-p.calls
			close(c.done)
		}()
		c.result = c.run()
	})
	return c, nil
}

// run does what the tool does.
func (c *mcpCall) run() *mcp.CallToolResult {
	ref, arguments, err := c.m.sessionOf(c.arguments, c.stateless)
	if err != nil {
		return mcpFailure(c.ctx, err)
	}
	c.arguments = arguments
	if c.tool.check != nil {
		if err := c.tool.check(arguments); err != nil {
			return mcpFailure(c.ctx, err)
		}
	}
	if c.session, err = c.open(ref); err != nil {
		return mcpFailure(c.ctx, err)
	}
	c.desk = c.m.deskOf(c.session)
	c.desk.enter(c)
	if c.m.named(c.stateless) {
		c.desk.ends(c.m.o.Idle, func() { c.m.idled(c.session) })
	}
	a, err := c.tool.do(c)
	if err != nil {
		r := mcpFailure(c.ctx, err)
		r.Content = contents(c.intro, r.Content...)
		return r
	}
	return &mcp.CallToolResult{
		IsError: a.isError, StructuredContent: a.structured, Meta: a.meta,
		Content: contents(c.intro, contents(c.desk.takeFollowUp(), &mcp.TextContent{Text: a.text})...),
	}
}

// carry answers a request with what becomes of a call.
func (c *mcpCall) carry(ctx context.Context, req *mcp.CallToolRequest) *mcp.CallToolResult {
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	defer stop()
	var eliciting sync.WaitGroup
	defer eliciting.Wait()
	token := req.Params.GetProgressToken()
	for n := 1; ; {
		select {
		case a := <-c.questions:
			if !canElicit(req.ClientCapabilities()) {
				a.answer <- ""
				continue
			}
			if !c.stateless {
				eliciting.Go(func() { a.answer <- elicit(ctx, req.Session, a) })
				continue
			}
			if !stop() { // cancelled: the call ends
				a.answer <- ""
				continue
			}
			return c.park(a)
		case text := <-c.updates:
			if token != nil {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Progress: float64(n), Message: tail(text, maxMessage),
				}) // the next one may arrive
				n++
			}
		case <-c.done:
			return c.result
		}
	}
}

// elicit asks the user of a client that takes requests.
func elicit(ctx context.Context, ss *mcp.ServerSession, a *pending) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(a.ctx, cancel)
	defer stop()
	res, err := ss.Elicit(ctx, a.params())
	if err != nil {
		return ""
	}
	return answerOf(res)
}

// params is the question as MCP has it.
func (q question) params() *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: q.text, RequestedSchema: json.RawMessage(q.schema)}
}

// answerOf is the field answer of a form, "" if it was not accepted.
func answerOf(res *mcp.ElicitResult) string {
	if res.Action != "accept" {
		return ""
	}
	text, _ := res.Content["answer"].(string)
	return text
}

// inputName is the name of the one question of a result.
const inputName = "answer"

// park answers a request with a question. The call waits for a request that has the answer.
func (c *mcpCall) park(a *pending) *mcp.CallToolResult {
	m := c.m
	id, wait := newStateID(), m.askTime()+lateTime
	p := &parked{call: c, asked: a}
	m.mu.Lock()
	full := len(m.parked) >= maxParked
	if !full {
		m.parked[id] = p
		p.late = time.AfterFunc(wait, func() {
			if m.unpark(id) != nil {
				c.cancel(errLate)
			}
		})
	}
	m.mu.Unlock()
	if full {
		c.cancel(errGone)
		<-c.done
		return mcpFailure(c.ctx, failure(KindOverloaded, "%d calls wait for an answer", maxParked))
	}
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{inputName: a.params()},
		RequestState:  m.seal.seal(id, time.Now().Add(wait), c.binding),
	}
}

// unpark returns the parked call of an id, once.
func (m *MCP) unpark(id string) *parked {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parked[id]
	delete(m.parked, id)
	return p
}

// errLate is the cause of a call that ends because its client has not come back with an answer.
var errLate = failure(KindCancelled, "the client did not come back with an answer")

// takeUp answers a request that brings the answer to a question. Nothing is run again: the call goes on.
func (m *MCP) takeUp(ctx context.Context, req *mcp.CallToolRequest, state string, b binding) (*mcp.CallToolResult, error) {
	invalid := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: errState.Error()}
	id, err := m.seal.open(state, time.Now(), b)
	if err != nil {
		return nil, invalid
	}
	p := m.unpark(id)
	if p == nil {
		return nil, invalid
	}
	p.late.Stop()
	late := p.asked.ctx.Err() != nil
	given, _ := req.Params.InputResponses[inputName].(*mcp.ElicitResult)
	switch {
	case late: // it counts as a no already
	case given == nil || given.Action == "accept" && !validAnswer(p.asked.schema, answerOf(given)):
		return p.call.park(p.asked), nil
	default:
		p.asked.answer <- answerOf(given)
	}
	r := p.call.carry(ctx, req)
	if late && given != nil && answerOf(given) != "" && r.InputRequests == nil {
		with := *r
		with.Content = contents("The user's answer came too late, and counted as a no.", r.Content...)
		r = &with
	}
	return r, nil
}

// validAnswer reports whether a form's answer is one of those that its schema lists.
func validAnswer(schema, answer string) bool {
	var form struct {
		Properties struct {
			Answer struct{ Enum []string }
		}
	}
	return json.Unmarshal([]byte(schema), &form) == nil && slices.Contains(form.Properties.Answer.Enum, answer)
}

// events are what a running command tells.
func (c *mcpCall) events() agent.Events {
	on := agent.Events{Update: func(u tool.Update) {
		c.updating.Lock()
		defer c.updating.Unlock()
		select {
		case <-c.updates:
		default:
		}
		c.updates <- u.Text
	}}
	if c.m.o.AskPolicy && c.canAsk {
		on.Denied = c.askDenied
	}
	return on
}
