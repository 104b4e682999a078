package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// mcpTool is a tool that MCP offers.
type mcpTool struct {
	name        string
	title       string
	description string // for the model: what it does, and what it is for
	schema      json.RawMessage
	output      json.RawMessage // of structuredContent; nil: there is none
	does        effect
	// fits says why the tool makes no sense in the sessions of a server, "" if it does; nil: it always does.
	fits func(Options) string
	// check refuses arguments that are wrong, before a session is started for them; nil: do does.
	check func(arguments json.RawMessage) error
	do    func(c *mcpCall) (toolAnswer, error)
}

// fields checks arguments that are the fields of T.
func fields[T any](arguments json.RawMessage) error {
	_, err := decode[T](arguments)
	return err
}

// toolAnswer is the result of a tool.
type toolAnswer struct {
	text string // for the model, who sees nothing else
	// structured is set where the text is its JSON. Many clients show the model structuredContent in place of the text,
	// so nothing but the whole result may be in it. See docs/adr/0060.
	structured any
	meta       mcp.Meta // for programs
	isError    bool
}

// effect says what calls of a tool may change.
type effect int

const (
	reads   effect = iota // changes nothing
	runs                  // runs programs: all that the session can change
	edits                 // changes files of the session; again, it changes them again
	writes                // changes files of the session; again, it changes nothing
	applies               // changes the user's directory, after asking
	asks                  // asks the user
)

// Names of the tools that are not of a contract.
const (
	terminalName = "terminal"
	readName     = "read"
	writeName    = "write"
	editName     = "edit"
	diffName     = "diff"
	applyName    = "apply"
	proposeName  = "network_propose"
)

// ownTools are the tools besides those of the contract, in the order in which they are listed. This is the place
// where another one is added; a name that stands for several is in toolGroups.
func ownTools() []mcpTool {
	return []mcpTool{terminalTool(), readTool(), writeTool(), editTool(), diffTool(), applyTool(), proposeTool()}
}

// toolGroups are names for several tools.
func toolGroups() map[string][]string {
	return map[string][]string{
		"shell":   {tool.BashName, tool.JobName},
		"files":   {readName, writeName, editName},
		"changes": {diffName, applyName},
	}
}

// Names for all tools, and for those that are offered if nothing is said.
const (
	allTools     = "all"
	defaultTools = "default"
)

// usual reports whether a tool is offered if nothing is said. What edits a bound directory is the client's own, so
// the tools for files are for sessions with another workspace.
func usual(name string, o Options) bool {
	switch name {
	case terminalName:
		return o.TerminalTool
	case readName, writeName, editName:
		return o.Session.Workspace.Kind != sandbox.WorkspaceBind
	}
	return true
}

// ToolNames returns the names that Options.Offer may have: the tools', then the groups'.
func ToolNames() (tools, groups []string) {
	tools = []string{tool.BashName, tool.JobName}
	for _, t := range ownTools() {
		tools = append(tools, t.name)
	}
	return tools, append(slices.Sorted(maps.Keys(toolGroups())), defaultTools, allTools)
}

// ToolError is the error for a name in Options.Offer.
type ToolError struct{ Text, Todo string }

func (e *ToolError) Error() string { return e.Text + ": " + e.Todo }

// offered returns the tools that are offered.
func offered(o Options) ([]mcpTool, error) {
	definitions, err := tool.Definitions(o.Contract, o.host(o.Tools, false))
	if err != nil {
		return nil, err
	}
	var all []mcpTool
	for _, d := range definitions {
		all = append(all, contractTool(d, o.Contract))
	}
	all = append(all, ownTools()...)
	names, groups := ToolNames()
	wanted, named := map[string]bool{}, map[string]bool{}
	for _, n := range o.Offer {
		switch members := toolGroups()[n]; {
		case members != nil:
			for _, m := range members {
				wanted[m] = true
			}
		case n == allTools:
			for _, m := range names {
				wanted[m] = true
			}
		case n == defaultTools:
			for _, m := range names {
				wanted[m] = wanted[m] || usual(m, o)
			}
		case slices.Contains(names, n):
			wanted[n], named[n] = true, true
		default:
			return nil, &ToolError{fmt.Sprintf("there is no tool %s", shown(n)), fmt.Sprintf("there are %s; and for several of them %s", strings.Join(names, ", "), strings.Join(groups, ", "))}
		}
	}
	if len(o.Offer) == 0 {
		for _, n := range names {
			wanted[n] = usual(n, o)
		}
	}
	if named[tool.JobName] && !slices.ContainsFunc(all, func(t mcpTool) bool { return t.name == tool.JobName }) {
		return nil, &ToolError{"the tool job is for background jobs, which are off", "set agent.async or agent.autoBackground, with contract agent, or leave it out"}
	}
	var out []mcpTool
	for _, t := range all {
		why := ""
		if t.fits != nil {
			why = t.fits(o)
		}
		switch {
		case !wanted[t.name]:
		case why == "":
			out = append(out, t)
		case named[t.name]:
			return nil, &ToolError{fmt.Sprintf("the tool %s does not fit", t.name), why}
		}
	}
	if len(out) == 0 {
		return nil, &ToolError{"no tool is left to offer", "name one of " + strings.Join(names, ", ")}
	}
	return out, nil
}

// offers reports whether a tool is among some.
func offers(tools []mcpTool, name string) bool {
	return slices.ContainsFunc(tools, func(t mcpTool) bool { return t.name == name })
}

// definition describes the tool to a client. With named, its calls name their session.
func (t mcpTool) definition(o Options, named bool) *mcp.Tool {
	d := &mcp.Tool{Name: t.name, Title: t.title, Description: t.description, InputSchema: t.schema, Annotations: t.does.hints(o)}
	if t.output != nil {
		d.OutputSchema = t.output
	}
	if named {
		d.InputSchema = withSession(t.schema)
	}
	return d
}

// hints are what a client may know before it lets a model call a tool. What a session can change besides itself is
// what is bound into it, and what it can reach.
func (e effect) hints(o Options) *mcp.ToolAnnotations {
	s := o.Session
	open := o.AskNetwork || s.Network != "" && s.Network != sandbox.NetworkNone || s.Rules != nil && len(s.Rules.Allow) > 0
	bound := s.Workspace.Kind == sandbox.WorkspaceBind && !s.Workspace.ReadOnly ||
		slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return !m.ReadOnly && m.Cache == "" })
	h := &mcp.ToolAnnotations{OpenWorldHint: new(bool), DestructiveHint: new(bool)}
	switch e {
	case reads:
		h.ReadOnlyHint, h.IdempotentHint = true, true
	case runs:
		*h.OpenWorldHint, *h.DestructiveHint = open, open || bound
	case edits, writes:
		h.IdempotentHint, *h.DestructiveHint = e == writes, bound
	case applies:
		h.IdempotentHint, *h.DestructiveHint = true, true
	case asks:
		h.IdempotentHint, *h.OpenWorldHint = true, true
	}
	return h
}

// sessionField is the argument with which a call names its session.
const sessionField = "session"

// newSession is the name of a session that is to be started.
const newSession = "new"

const sessionSchema = `{"type":"string","description":"The session to use: \"new\" starts one and the result gives its id, which later calls pass."}`

// withSession adds the session to the schema of a tool's arguments.
func withSession(schema json.RawMessage) json.RawMessage {
	var top map[string]json.RawMessage
	if json.Unmarshal(schema, &top) != nil {
		return schema
	}
	first := func(open string, one string, all json.RawMessage) json.RawMessage {
		rest := strings.TrimSpace(string(all))
		if len(rest) < 2 {
			return json.RawMessage(open + one + string("}]"[strings.Index("{[", open)]))
		}
		if rest = strings.TrimSpace(rest[1:]); rest[0] != '}' && rest[0] != ']' {
			one += ","
		}
		return json.RawMessage(open + one + rest)
	}
	top["properties"] = first("{", `"`+sessionField+`":`+sessionSchema, top["properties"])
	top["required"] = first("[", `"`+sessionField+`"`, top["required"])
	out, err := json.Marshal(top)
	if err != nil {
		return schema
	}
	return out
}

// sessionOf takes the session out of the arguments of a call that names it.
func (m *MCP) sessionOf(arguments json.RawMessage, stateless bool) (ref string, rest json.RawMessage, err error) {
	if !m.named(stateless) {
		return "", arguments, nil
	}
	var all map[string]json.RawMessage
	if !absent(arguments) {
		if err := json.Unmarshal(arguments, &all); err != nil {
			return "", nil, badParams("arguments: expected an object")
		}
	}
	if raw := all[sessionField]; raw == nil || json.Unmarshal(raw, &ref) != nil || ref == "" {
		return "", nil, badParams(`session: name the session. Pass "new" to start one; its result gives the id to pass from then on`)
	}
	delete(all, sessionField)
	rest, err = json.Marshal(all)
	return ref, rest, err
}

// open returns the session that a call uses.
func (c *mcpCall) open(ref string) (*Session, error) {
	p := c.peer
	if !c.m.named(c.stateless) {
		s, err := p.sessions.get(c.ctx, "", c.m.sessionRequest(p, c.canAsk))
		if err == nil && p.sessions.replaced(s) {
			c.intro = lostText
		}
		return s, err
	}
	if s, _ := p.sessions.find(ref); s != nil && s.ID == ref {
		return s, nil
	}
	r := c.m.sessionRequest(p, c.canAsk)
	if ref != newSession {
		c.m.attaching.Lock()
		defer c.m.attaching.Unlock()
		r.Attach = ref
	}
	s, err := p.sessions.start(c.ctx, r)
	switch {
	case err != nil && ref != newSession && answerable(c.ctx, err).Data.Kind == KindUnknownSession:
		return nil, failure(KindUnknownSession, unknownText, shown(ref))
	case err == nil && ref == newSession:
		c.intro = fmt.Sprintf("Started session %s: pass it as session from now on.", s.ID)
	}
	return s, err
}

const lostText = "The sandbox that earlier calls used has ended, with its processes. This is a new one: its workspace is as at the start, and nothing else that earlier calls made is here. Tell the user: what the old one had changed is kept for a while, and `sandboxbash session ls` shows it."

const unknownText = `there is no session %s: it has ended, or never was. Pass "new" to start one, in which nothing of an ended one is. What an ended one had changed is kept for the user for a while: ` + "`sandboxbash session ls` shows it"

// sessionRequest is the request for a session.
func (m *MCP) sessionRequest(p *mcpPeer, canAsk bool) SessionRequest {
	r := SessionRequest{Contract: m.o.Contract, Tools: m.o.Tools, Attach: m.o.Attach, Lasting: m.o.Keep || p.session == nil && m.o.Attach == ""}
	if m.o.AskNetwork && canAsk {
		r.Ask = m.askNetwork(p)
	}
	return r
}
