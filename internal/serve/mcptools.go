package serve

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/tool"
)

// agentOutputSchema is the structured output of contract agent.
const agentOutputSchema = `{
  "type": "object",
  "properties": {
    "text": {"type": "string", "description": "The result, as the content has it."},
    "details": {"type": "object", "description": "What is known of the run: timeoutSeconds, wallTimeMs, exitCode, reason, artifactId and more."},
    "followUp": {"type": "string", "description": "Results of background jobs that have ended meanwhile."}
  },
  "required": ["text"]
}`

// agentOutput is the structured output that agentOutputSchema describes.
type agentOutput struct {
	Text     string        `json:"text"`
	Details  *tool.Details `json:"details,omitempty"`
	FollowUp string        `json:"followUp,omitempty"`
}

// addTool offers a tool of the contract.
func (m *MCP) addTool(d tool.Definition) {
	t := &mcp.Tool{Name: d.Name, Description: d.Description, InputSchema: d.InputSchema}
	switch {
	case d.OutputSchema != nil:
		t.OutputSchema = d.OutputSchema
	case m.o.Contract == tool.Agent && d.Name == tool.BashName:
		t.OutputSchema = json.RawMessage(agentOutputSchema)
	}
	m.server.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p, ctx, done, err := m.begin(ctx, req.Session)
		if err != nil {
			return mcpFailure(ctx, err), nil
		}
		defer done()
		s, err := p.sessions.get(ctx, "", m.sessionRequest(p))
		if err != nil {
			return mcpFailure(ctx, err), nil
		}
		on, over := progress(ctx, req)
		r := s.Caller.Call(ctx, d.Name, req.Params.Arguments, on)
		over()
		return m.result(d.Name, r, p.takeFollowUp()), nil
	})
}

// result returns a tool's result, after the follow-up about jobs that have ended.
func (m *MCP) result(name string, r tool.Result, followUp string) *mcp.CallToolResult {
	out := &mcp.CallToolResult{IsError: r.IsError, Content: contents(followUp, r.Text)}
	if r.Receipt != nil { // only contract agent has a field for it in its structured output
		out.Meta = mcp.Meta{"sandboxbash/receipt": r.Receipt}
	}
	switch {
	case r.Plain != nil:
		out.StructuredContent = r.Plain
	case m.o.Contract == tool.Agent && name == tool.BashName:
		out.StructuredContent = agentOutput{Text: r.Text, Details: r.Details, FollowUp: followUp}
	}
	return out
}

// toolAnswer is the result of a tool that is not one of a contract.
type toolAnswer struct {
	text       string // for the model
	structured any
	isError    bool
}

// handle answers calls of a tool that is not one of a contract.
func (m *MCP) handle(do func(ctx context.Context, p *mcpPeer, arguments json.RawMessage) (toolAnswer, error)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p, ctx, done, err := m.begin(ctx, req.Session)
		if err != nil {
			return mcpFailure(ctx, err), nil
		}
		defer done()
		a, err := do(ctx, p, req.Params.Arguments)
		if err != nil {
			return mcpFailure(ctx, err), nil
		}
		return &mcp.CallToolResult{IsError: a.isError, StructuredContent: a.structured, Content: contents(p.takeFollowUp(), a.text)}, nil
	}
}

// contents are the texts of a result: the follow-up about jobs that have ended, if there is one, and the result's own.
func contents(followUp, text string) []mcp.Content {
	if followUp == "" {
		return []mcp.Content{&mcp.TextContent{Text: text}}
	}
	return []mcp.Content{&mcp.TextContent{Text: followUp}, &mcp.TextContent{Text: text}}
}

// mcpFailure is the result of a call that failed before its tool ran.
func mcpFailure(ctx context.Context, err error) *mcp.CallToolResult {
	e := answerable(context.WithoutCancel(ctx), err)
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: e.Message}},
		Meta: mcp.Meta{"sandboxbash/error": e},
	}
}

// maxMessage bounds the text of a progress notification: the end of the output.
const maxMessage = 16 << 10 // bytes

// progress sends a call's updates to a client that has asked for progress. If the client
// is slow only the last update is kept. The function that it returns waits until the
// update that is being sent has been sent.
func progress(ctx context.Context, req *mcp.CallToolRequest) (agent.Events, func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return agent.Events{}, func() {}
	}
	latest := make(chan string, 1)
	var last sync.Mutex // held by the goroutine that replaces the value in latest
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case text := <-latest:
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Progress: float64(n), Message: tail(text, maxMessage),
				}) // the next one may arrive
			case <-ctx.Done():
				return
			}
		}
	}()
	on := agent.Events{Update: func(u tool.Update) {
		last.Lock()
		defer last.Unlock()
		select {
		case <-latest:
		default:
		}
		latest <- u.Text
	}}
	return on, func() {
		cancel()
		<-done
	}
}

// tail returns the last bytes of a text. It does not split a character.
func tail(text string, most int) string {
	if len(text) <= most {
		return text
	}
	at := len(text) - most
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}

// parseArtifact reads "artifact://ID", which "?offset=N&limit=M" may follow. It refuses
// every other form: each part of an artifact has one spelling.
func parseArtifact(uri string) (id string, from, most int64, err error) {
	rest, ok := strings.CutPrefix(uri, "artifact://")
	id, query, parted := strings.Cut(rest, "?")
	if !ok || !decimal(id) || len(id) > 1 && id[0] == '0' {
		return "", 0, 0, badParams("%s is not an artifact", shown(uri))
	}
	if !parted {
		return id, 0, maxFile, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil || query == "" {
		return "", 0, 0, badParams("%s is not an artifact", shown(uri))
	}
	numbers := map[string]int64{"offset": 0, "limit": 0}
	for name, list := range values {
		if _, known := numbers[name]; !known || len(list) != 1 {
			return "", 0, 0, badParams("%s is not an artifact", shown(uri))
		}
		if numbers[name], err = strconv.ParseInt(list[0], 10, 64); err != nil {
			return "", 0, 0, badParams("%s is not an artifact", shown(uri))
		}
	}
	from, most, err = clampPart(numbers["offset"], numbers["limit"])
	return id, from, most, err
}
