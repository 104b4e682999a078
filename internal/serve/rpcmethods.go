package serve

import (
	"context"
	"encoding/json"

	"github.com/sandboxbash/sandboxbash/tool"
)

// RPCVersion is the version of the protocol. It changes when clients of the previous
// version would not understand this one.
const RPCVersion = "1"

// method is a method that a request may name.
type method struct {
	// do answers a request. Its result is encoded by encoding/json; nil becomes {}.
	do func(ctx context.Context, p *peer, r *request) (any, error)
	// order names a queue that the request joins as it arrives; nil or "": none.
	order func(params json.RawMessage) (string, error)
}

// methods are all methods. docs/rpc.md and docs/rpc.schema.json describe them.
var methods map[string]method

func init() { // the methods refer to each other's peer
	methods = map[string]method{
		"initialize":     {do: with(doInitialize)},
		"tools/list":     {do: with(doToolsList)},
		"tools/call":     {do: doToolsCall, order: callOrder},
		"tools/plan":     {do: doToolsPlan},
		"bash":           {do: doBash},
		"abort_bash":     {do: with(doAbortBash)},
		"session/start":  {do: with(doSessionStart)},
		"session/attach": {do: with(doSessionAttach)},
		"session/list":   {do: with(doSessionList)},
		"session/info":   {do: with(doSessionInfo)},
		"session/stop":   {do: with(doSessionStop)},
		"session/read":   {do: with(doFileRead)},
		"session/write":  {do: with(doFileWrite)},
		"session/files":  {do: with(doFileList)},
		"session/push":   {do: with(doPush)},
		"session/pull":   {do: with(doPull)},
		"job/list":       {do: with(doJobList)},
		"job/wait":       {do: with(doJobWait)},
		"job/kill":       {do: with(doJobKill)},
		"job/output":     {do: with(doJobOutput)},
		"job/background": {do: with(doJobBackground)},
		"pty/start":      {do: doPTYStart},
		"pty/list":       {do: with(doPTYList)},
		"pty/write":      {do: with(doPTYWrite), order: terminalOrder},
		"pty/resize":     {do: with(doPTYResize), order: terminalOrder},
		"pty/read":       {do: with(doPTYRead)},
		"pty/screen":     {do: with(doPTYScreen)},
		"pty/wait":       {do: with(doPTYWait)},
		"pty/end":        {do: with(doPTYEnd)},
		"artifact/list":  {do: with(doArtifactList)},
		"artifact/read":  {do: with(doArtifactRead)},
		"policy/check":   {do: doPolicyCheck},
		"network/rules":  {do: heldElsewhere("network/rules", with(doNetworkRules))},
		"network/allow":  {do: heldElsewhere("network/allow", with(doNetworkAllow))},
		"network/deny":   {do: heldElsewhere("network/deny", with(doNetworkDeny))},
		"network/log":    {do: heldElsewhere("network/log", with(doNetworkLog))},

		"network/propose": {do: with(doNetworkPropose)},
	}
}

// with returns a method whose parameters are decoded.
func with[T any](do func(context.Context, *peer, T) (any, error)) func(context.Context, *peer, *request) (any, error) {
	return func(ctx context.Context, p *peer, r *request) (any, error) {
		params, err := decode[T](r.params)
		if err != nil {
			return nil, err
		}
		return do(ctx, p, params)
	}
}

// initialize is how a client describes itself.
type initialize struct {
	Protocol  string       `json:"protocol"`
	Contract  string       `json:"contract"`
	ToolNames []string     `json:"toolNames"`
	UI        bool         `json:"ui"`
	Client    clientOffers `json:"client"`
	Session   Shape        `json:"session"`

	contract tool.Name
}

// clientOffers is what a client can do.
type clientOffers struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Terminal bool   `json:"terminal"` // it answers terminal/create and the rest of them
	// AskNetwork says that it answers network/ask.
	AskNetwork bool `json:"askNetwork"`
}

type initialized struct {
	Protocol string     `json:"protocol"`
	Server   serverInfo `json:"server"`
	Contract tool.Name  `json:"contract"`
	// ClientTerminal tells whether commands may run in the client's terminals.
	ClientTerminal bool     `json:"clientTerminal"`
	Methods        []string `json:"methods"`
}

type serverInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func doInitialize(_ context.Context, p *peer, hello initialize) (any, error) {
	if hello.Protocol != RPCVersion {
		return nil, badParams("protocol %s is not spoken here: it is %q", shown(hello.Protocol), RPCVersion)
	}
	hello.contract = p.o.Contract
	if hello.Contract != "" {
		c, err := contractName(hello.Contract)
		if err != nil {
			return nil, badParams("%v", err)
		}
		hello.contract = c
	}
	if hello.ToolNames == nil {
		hello.ToolNames = p.o.Tools
	}
	p.mu.Lock()
	again := p.hello != nil
	if !again {
		p.hello = &hello
	}
	p.mu.Unlock()
	if again {
		return nil, failure(KindInitialized, "initialize was sent before")
	}
	return initialized{
		Protocol: RPCVersion, Server: serverInfo{Name: programName, Version: p.o.Version}, Contract: hello.contract,
		ClientTerminal: hello.Client.Terminal && p.o.ClientTerminal, Methods: p.methodNames(),
	}, nil
}

// programName is the name that servers give themselves.
const programName = "sandboxbash"

// contractName returns the full name of a contract.
func contractName(text string) (tool.Name, error) {
	if _, err := tool.Parse(text); err != nil {
		return "", err
	}
	if short, ok := map[string]tool.Name{"A": tool.Agent, "B": tool.Plain, "C": tool.Modes}[text]; ok {
		return short, nil
	}
	return tool.Name(text), nil
}

// request returns the request for the client's session.
func (p *peer) sessionRequest(shape Shape) SessionRequest {
	p.mu.Lock()
	hello := p.hello
	p.mu.Unlock()
	r := SessionRequest{Shape: shape, Contract: hello.contract, Tools: hello.ToolNames, UI: hello.UI}
	if hello.Client.Terminal && p.o.ClientTerminal {
		r.Terminal = clientTerminal{out: p.out}
	}
	if hello.Client.AskNetwork {
		r.Ask = clientUser{p.out}.ask
	}
	return r
}

// session returns the session with the id or, without an id, the client's first one.
func (p *peer) session(ctx context.Context, id string) (*Session, error) {
	p.mu.Lock()
	shape := p.hello.Session
	p.mu.Unlock()
	return p.sessions.get(ctx, id, p.sessionRequest(shape))
}

// named is a request about a session.
type named struct {
	Session string `json:"session"`
}

// part returns a part of a session, and an error if the session does not have it.
func part[T comparable](v T, what string) (T, error) {
	var none T
	if v == none {
		return v, failure(KindUnavailable, "this session has no %s", what)
	}
	return v, nil
}

func doPolicyCheck(_ context.Context, p *peer, r *request) (any, error) {
	if p.o.Check == nil {
		return nil, failure(KindUnavailable, "there is no policy to ask")
	}
	answer, err := p.o.Check(r.params)
	if err != nil {
		return nil, badParams("%v", err)
	}
	return answer, nil
}
