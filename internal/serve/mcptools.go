package serve

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/tool"
)

// Names of what results hold for programs, in _meta.
const (
	metaDetails = "sandboxbash/details"
	metaReceipt = "sandboxbash/receipt"
	metaError   = "sandboxbash/error"
	metaSession = "sandboxbash/session"
)

// contractTool offers a tool of a contract.
func contractTool(d tool.Definition, contract tool.Name) mcpTool {
	t := mcpTool{
		name: d.Name, title: "Run a command in the sandbox", description: d.Description, schema: d.InputSchema, output: d.OutputSchema, does: runs,
		do: func(c *mcpCall) (toolAnswer, error) {
			return contractAnswer(c.session.Caller.Call(c.ctx, d.Name, c.arguments, c.events()), contract), nil
		},
	}
	if d.Name == tool.JobName {
		t.title = "Wait for background jobs, or end them"
	}
	return t
}

// contractAnswer is a contract's result.
func contractAnswer(r tool.Result, contract tool.Name) toolAnswer {
	a := toolAnswer{text: r.Text, isError: r.IsError}
	if r.Plain != nil { // the text is its JSON
		a.structured = r.Plain
	}
	a.meta = mcp.Meta{}
	if r.Receipt != nil {
		a.meta[metaReceipt] = r.Receipt
	}
	if contract == tool.Agent && r.Details != nil {
		a.meta[metaDetails] = r.Details
	}
	return a
}

// contents puts a text in front of contents, unless it is "".
func contents(first string, rest ...mcp.Content) []mcp.Content {
	if first == "" {
		return rest
	}
	return slices.Insert(slices.Clone(rest), 0, mcp.Content(&mcp.TextContent{Text: first}))
}

// mcpFailure is the result of a call that failed before its tool ran.
func mcpFailure(ctx context.Context, err error) *mcp.CallToolResult {
	e := answerable(context.WithoutCancel(ctx), err)
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: e.Message}},
		Meta: mcp.Meta{metaError: e},
	}
}

// maxMessage bounds the text of a progress notification: the end of the output.
const maxMessage = 16 << 10 // bytes

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
