package serve

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
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

// canElicit reports whether a client's user can be asked with a form.
func canElicit(c *mcp.ClientCapabilities) bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
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

// deniedForm is the form of a question about a command that the policy denies.
const deniedForm = `{
  "type": "object",
  "properties": {
    "answer": {"type": "string", "title": "Run it?", "enum": ["no", "once"], "description": "once: this command, this time", "default": "no"}
  },
  "required": ["answer"]
}`

// maxAskedCommand bounds a command that a user is asked about, in bytes: they must see all of it.
const maxAskedCommand = 2 << 10

// askDenied asks the user about a command that the policy denies. Each line of it has a mark in front, so that none
// passes for one of the question's.
func (c *mcpCall) askDenied(_ context.Context, d tool.Denial, command string) bool {
	if len(command) > maxAskedCommand {
		return false
	}
	text := "The policy denies a command of the agent in the sandbox: " + printable(d.Reason) + " (rule " + printable(d.Rule) + "). The command:"
	for line := range strings.SplitSeq(command, "\n") {
		quoted := strconv.Quote(line)
		text += "\n| " + strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	}
	answer, _ := c.askUser(question{text: text, schema: deniedForm})
	return answer == "once"
}
