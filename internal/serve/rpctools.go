package serve

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// methodNames lists the methods.
func (p *peer) methodNames() []string {
	names := make([]string, 0, len(p.methods))
	for name := range p.methods {
		if name != "policy/check" || p.o.Check != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

type toolList struct {
	Tools []toolJSON `json:"tools"`
}

// toolJSON describes a tool to a client.
type toolJSON struct {
	tool.Definition
	// Concurrency is "exclusive" if a session runs one call of the tool at a time; other
	// calls wait in the order of their arrival.
	Concurrency string `json:"concurrency,omitempty"`
}

func doToolsList(_ context.Context, p *peer, _ struct{}) (any, error) {
	p.mu.Lock()
	hello := p.hello
	p.mu.Unlock()
	h := p.o.host(hello.ToolNames, hello.UI)
	all, err := tool.Definitions(hello.contract, h)
	if err != nil {
		return nil, err
	}
	var list toolList
	for _, d := range all {
		t := toolJSON{Definition: d}
		if d.Exclusive {
			t.Concurrency = "exclusive"
		}
		list.Tools = append(list.Tools, t)
	}
	return list, nil
}

type toolCall struct {
	Session   string          `json:"session"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// callOrder keeps the order of the calls of a session's shell.
func callOrder(params json.RawMessage) (string, error) {
	c, err := decode[toolCall](params)
	if err != nil || c.Name != tool.BashName {
		return "", err
	}
	return "call " + c.Session, nil
}

// terminalName is the name of the tool that MCP has besides those of the contracts.
const terminalName = "terminal"

// toolResult is a tool's result.
type toolResult struct {
	Text    string            `json:"text"`
	IsError bool              `json:"isError"`
	Thrown  tool.Thrown       `json:"thrown,omitempty"`
	Details *tool.Details     `json:"details,omitempty"`
	Plain   *tool.PlainOutput `json:"structured,omitempty"`
	// Receipt is that of a command that has ended in the session.
	Receipt *sandbox.Receipt `json:"receipt,omitempty"`
}

func newToolResult(r tool.Result) toolResult {
	return toolResult{Text: r.Text, IsError: r.IsError, Thrown: r.Thrown, Details: r.Details, Plain: r.Plain, Receipt: r.Receipt}
}

func doToolsCall(ctx context.Context, p *peer, r *request) (any, error) {
	c, err := decode[toolCall](r.params)
	if err != nil {
		return nil, err
	}
	if c.Name == "" {
		return nil, badParams("name is required: that of a tool of tools/list")
	}
	s, err := p.session(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(s.Caller.Definitions(), func(d tool.Definition) bool { return d.Name == c.Name }) {
		return nil, badParams("there is no tool %s: see tools/list", shown(c.Name))
	}
	on, over := p.events(s, r)
	defer over()
	return newToolResult(s.Caller.Call(ctx, c.Name, c.Arguments, on)), nil
}

// update is the notification tools/update.
type update struct {
	Request json.RawMessage    `json:"request"` // the id of the call
	Text    string             `json:"text"`    // the end of the output so far
	Details tool.UpdateDetails `json:"details"`
}

// events sends the client notifications about a call. The function that it returns must
// be called after the call.
func (p *peer) events(s *Session, r *request) (agent.Events, func()) {
	p.mu.Lock()
	r.session = s
	p.mu.Unlock()
	var shown *heldTerminal
	on := agent.Events{
		CallID: string(r.id),
		Update: func(u tool.Update) { p.out.offer("tools/update", update{r.id, u.Text, u.Details}) },
		Terminal: func(t *sandbox.Terminal) {
			if h, err := p.terminals.hold(s, t); err == nil { // otherwise the client cannot type into it
				shown = h
				p.out.offer("pty/started", ptyStarted{Terminal: h.id, Session: s.ID, Request: r.id})
			}
		},
	}
	return on, func() {
		if shown != nil {
			p.terminals.remove(shown)
		}
	}
}

// doToolsPlan needs no session, and leaves out what only a session knows.
func doToolsPlan(_ context.Context, p *peer, r *request) (any, error) {
	p.mu.Lock()
	hello := p.hello
	p.mu.Unlock()
	q, err := tool.ParseRequest(r.params)
	if err != nil {
		return nil, badParams("%v", err)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(r.params, &given); err != nil {
		return nil, badParams("expected an object")
	}
	if absent(given["settings"]) {
		q.Host.Settings = p.o.Settings
	}
	if absent(given["toolNames"]) {
		q.Host.Tools = hello.ToolNames
	}
	if absent(given["settings"]) && absent(given["contract"]) && p.o.Policy != nil {
		if q.Host.Policy, err = p.o.Policy(hello.contract, q.Host.Tools); err != nil {
			return nil, badParams("%v", err)
		}
	}
	plan, err := q.Plan(string(hello.contract))
	if err != nil {
		return nil, badParams("%v", err)
	}
	return plan.Row(), nil
}

type shellCommand struct {
	Session string `json:"session"`
	Command string `json:"command"`
}

func doBash(ctx context.Context, p *peer, r *request) (any, error) {
	c, err := decode[shellCommand](r.params)
	if err != nil {
		return nil, err
	}
	s, err := p.session(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	on, over := p.events(s, r)
	defer over()
	return newToolResult(s.Caller.Shell(ctx, c.Command, on)), nil
}

type aborted struct {
	Aborted int `json:"aborted"`
}

// doAbortBash cancels the user's commands, in one session or in all.
func doAbortBash(_ context.Context, p *peer, n named) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var a aborted
	for _, r := range p.calls {
		if r.method == "bash" && (n.Session == "" || r.session != nil && r.session.ID == n.Session) {
			r.cancel(errCancelled)
			a.Aborted++
		}
	}
	return a, nil
}
