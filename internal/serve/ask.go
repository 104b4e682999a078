package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// scopes are what a client's user can answer. A client may accept by itself, so no answer of a client
// outlives its session.
var scopes = []sandbox.NetworkScope{sandbox.AllowOnce, sandbox.AllowSession}

// scopeOf is what a client's answer counts for.
func scopeOf(answer string) sandbox.NetworkScope {
	for _, s := range scopes {
		if answer == string(s) {
			return s
		}
	}
	return sandbox.AllowNo
}

// clientUser asks the user of a JSON-RPC client.
type clientUser struct{ out *outgoing }

func (c clientUser) ask(ctx context.Context, q sandbox.NetworkQuestion) sandbox.NetworkAnswer {
	var a struct {
		Answer string `json:"answer"`
	}
	if err := c.out.ask(ctx, "network/ask", q, &a); err != nil {
		a.Answer = "" // a client that does not answer says no
	}
	return sandbox.NetworkAnswer{Scope: scopeOf(a.Answer), By: "rpc"}
}

// elicitSchema is the form that an MCP client shows.
const elicitSchema = `{
  "type": "object",
  "properties": {
    "answer": {"type": "string", "title": "Allow it?", "enum": ["no", "once", "session"],
      "description": "once: until the command ends; session: until the session ends", "default": "no"}
  },
  "required": ["answer"]
}`

// noRequests is the first version of the protocol whose servers send no requests.
const noRequests = "2026-07-28"

// canElicit reports whether a client's user can be asked.
func canElicit(ss *mcp.ServerSession) bool {
	hello := ss.InitializeParams()
	if hello == nil || hello.Capabilities == nil || hello.Capabilities.Elicitation == nil || hello.ProtocolVersion >= noRequests {
		return false
	}
	can := hello.Capabilities.Elicitation
	return can.Form != nil || can.URL == nil
}

// ask asks the user of an MCP client.
func (p *mcpPeer) ask(ctx context.Context, q sandbox.NetworkQuestion) sandbox.NetworkAnswer {
	answer := sandbox.NetworkAnswer{Scope: sandbox.AllowNo, By: "mcp"}
	p.mu.Lock()
	call := p.asking
	p.mu.Unlock()
	if call == nil {
		return answer
	}
	// Over HTTP a question travels with the answer to a call.
	call, cancel := context.WithCancel(context.WithoutCancel(call))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	res, err := p.session.Elicit(call, &mcp.ElicitParams{Message: questionText(q), RequestedSchema: json.RawMessage(elicitSchema)})
	if err != nil || res.Action != "accept" {
		return answer
	}
	text, _ := res.Content["answer"].(string)
	answer.Scope = scopeOf(text)
	return answer
}

// questionText is a question in words.
func questionText(q sandbox.NetworkQuestion) string {
	text := fmt.Sprintf("A command in the sandbox wants to reach %s:%d, which no rule allows.", printable(q.Host), q.Port)
	if q.Proposed {
		text = fmt.Sprintf("The agent asks for %s:%d, which no rule allows. Its reason, in its own words: %s", printable(q.Host), q.Port, printable(q.Reason))
	}
	if q.Method != "" {
		text += fmt.Sprintf("\nRequest: %s %s", printable(q.Method), printable(q.Path))
	}
	if q.Command != "" {
		text += "\nCommand: " + printable(q.Command)
	}
	return text + "\nThe rule that would be added: " + printable(q.Rule)
}

// maxAskedText bounds each text from inside that a question repeats, in characters.
const maxAskedText = 256

// printable is a text from inside as a part of a line: it can neither end the line nor act on a terminal.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if r := []rune(text); len(r) > maxAskedText {
		text = string(r[:maxAskedText]) + "..."
	}
	return text
}
