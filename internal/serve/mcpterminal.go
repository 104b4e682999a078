package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const terminalDescription = `Run a program on a terminal and use it as a person would: editors, pagers, debuggers, REPLs, prompts.
start runs a command and returns its terminal; write types text, presses keys (enter, esc, tab, up, f1, ctrl-c, alt-x) or pastes; screen shows what a person would see; wait waits for text, silence, a prompt for input or the end; read returns the output as text; resize changes the size; end ends the program.`

const terminalSchema = `{
  "type": "object",
  "properties": {
    "action": {"type": "string", "enum": ["start", "write", "resize", "read", "screen", "wait", "end"]},
    "terminal": {"type": "string", "description": "Id that start returned. For all actions but start."},
    "command": {"type": "string", "description": "start: the command."},
    "cwd": {"type": "string", "description": "start: working directory."},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "start: environment variables."},
    "timeoutSeconds": {"type": "number", "minimum": 0, "description": "start: end it after so long. Default: never."},
    "cols": {"type": "integer", "minimum": 1, "description": "start, resize."},
    "rows": {"type": "integer", "minimum": 1, "description": "start, resize."},
    "text": {"type": "string", "description": "write: text to type; a line feed is the enter key. wait: text to wait for on the screen."},
    "keys": {"type": "array", "items": {"type": "string"}, "description": "write: keys to press, in order."},
    "paste": {"type": "string", "description": "write: text to paste."},
    "pattern": {"type": "string", "description": "wait: regular expression (RE2) to wait for on the screen."},
    "quietMs": {"type": "integer", "minimum": 1, "description": "wait: until nothing was shown for so long."},
    "input": {"type": "boolean", "description": "wait: until the program waits for input."},
    "untilEnd": {"type": "boolean", "description": "wait: until the program has ended."},
    "timeoutMs": {"type": "integer", "minimum": 1, "description": "wait: no longer than this. Default 30000."}
  },
  "required": ["action"],
  "additionalProperties": false
}`

// terminalCall is the arguments.
type terminalCall struct {
	Action   string `json:"action"`
	Terminal string `json:"terminal"`
	TerminalRequest
	Text      string   `json:"text"`
	Keys      []string `json:"keys"`
	Paste     string   `json:"paste"`
	Pattern   string   `json:"pattern"`
	QuietMs   int64    `json:"quietMs"`
	Input     bool     `json:"input"`
	UntilEnd  bool     `json:"untilEnd"`
	TimeoutMs int64    `json:"timeoutMs"`
}

func (m *MCP) addTerminalTool() {
	t := &mcp.Tool{Name: terminalName, Description: terminalDescription, InputSchema: json.RawMessage(terminalSchema)}
	m.server.AddTool(t, m.handle(m.terminal))
}

// terminal handles a call, and words its result for a model.
func (m *MCP) terminal(ctx context.Context, p *mcpPeer, arguments json.RawMessage) (toolAnswer, error) {
	c, err := decode[terminalCall](arguments)
	if err != nil {
		return toolAnswer{}, err
	}
	if c.Action == "start" {
		return m.startTerminal(ctx, p, c)
	}
	t, err := p.terminals.get(c.Terminal)
	if err != nil {
		return toolAnswer{}, err
	}
	switch c.Action {
	case "write":
		err := writePTY{Text: c.Text, Keys: c.Keys, Paste: c.Paste}.into(t)
		return toolAnswer{text: "typed", structured: struct{}{}}, err
	case "resize":
		size, err := resizePTY{Cols: c.Cols, Rows: c.Rows}.size()
		if err == nil {
			err = t.Resize(ctx, size)
		}
		return toolAnswer{text: "resized", structured: struct{}{}}, err
	case "read":
		text := t.Text()
		return toolAnswer{text: text, structured: terminalText{Text: text}}, nil
	case "screen":
		shot := newScreen(t.Screen())
		return toolAnswer{text: shot.text(), structured: shot}, nil
	case "wait":
		w, err := waitPTY{
			Text: c.Text, Pattern: c.Pattern, QuietMs: c.QuietMs, Input: c.Input, End: c.UntilEnd, TimeoutMs: c.TimeoutMs,
		}.wait(ctx, t)
		if err != nil {
			return toolAnswer{}, err
		}
		return toolAnswer{text: fmt.Sprintf("[%s]\n%s", w.Event, w.Screen.text()), structured: w}, nil
	case "end":
		return p.endTerminal(t)
	}
	return toolAnswer{}, badParams("action %s: it can be start, write, resize, read, screen, wait or end", shown(c.Action))
}

func (m *MCP) startTerminal(ctx context.Context, p *mcpPeer, c terminalCall) (toolAnswer, error) {
	s, err := p.sessions.get(ctx, "", m.sessionRequest(p))
	if err != nil {
		return toolAnswer{}, err
	}
	t, err := p.terminals.open(ctx, p.life, s, c.TerminalRequest)
	if err != nil {
		return toolAnswer{}, err
	}
	return toolAnswer{text: "started terminal " + t.id, structured: ptyStarted{Terminal: t.id, Session: s.ID}}, nil
}

func (p *mcpPeer) endTerminal(t *heldTerminal) (toolAnswer, error) {
	t.Kill()
	e, err := newEnded(t)
	p.terminals.remove(t)
	if err != nil {
		return toolAnswer{}, err
	}
	end := e.Reason
	if e.ExitCode != nil {
		end = fmt.Sprintf("exit code %d", *e.ExitCode)
	}
	return toolAnswer{text: fmt.Sprintf("%s\n[ended: %s]", e.Text, end), structured: e}, nil
}

// text returns a screen as text, without the empty lines at its end.
func (s screenJSON) text() string {
	return strings.TrimRight(strings.Join(s.Lines, "\n"), "\n")
}
