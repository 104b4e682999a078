package serve

import (
	"encoding/json"
	"fmt"
	"strings"
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

func terminalTool() mcpTool {
	return mcpTool{
		name: terminalName, title: "Use a program on a terminal", description: terminalDescription, schema: json.RawMessage(terminalSchema),
		does: runs, check: fields[terminalCall], do: useTerminal,
	}
}

// useTerminal handles a call, and words its result for a model.
func useTerminal(c *mcpCall) (toolAnswer, error) {
	t, err := decode[terminalCall](c.arguments)
	if err != nil {
		return toolAnswer{}, err
	}
	p := c.peer
	if t.Action == "start" {
		term, err := p.terminals.open(c.ctx, p.life, c.session, t.TerminalRequest)
		if err != nil {
			return toolAnswer{}, err
		}
		return toolAnswer{text: "started terminal " + term.id}, nil
	}
	h, err := p.terminals.get(t.Terminal)
	if err == nil && h.session != c.session.ID {
		err = failure(KindUnknownTerminal, "there is no terminal %s in this session", shown(t.Terminal))
	}
	if err != nil {
		return toolAnswer{}, err
	}
	switch t.Action {
	case "write":
		err := writePTY{Text: t.Text, Keys: t.Keys, Paste: t.Paste}.into(h)
		return toolAnswer{text: "typed"}, err
	case "resize":
		size, err := resizePTY{Cols: t.Cols, Rows: t.Rows}.size()
		if err == nil {
			err = h.Resize(c.ctx, size)
		}
		return toolAnswer{text: "resized"}, err
	case "read":
		return toolAnswer{text: h.Text()}, nil
	case "screen":
		return toolAnswer{text: newScreen(h.Screen()).text()}, nil
	case "wait":
		w, err := waitPTY{
			Text: t.Text, Pattern: t.Pattern, QuietMs: t.QuietMs, Input: t.Input, End: t.UntilEnd, TimeoutMs: t.TimeoutMs,
		}.wait(c.ctx, h)
		if err != nil {
			return toolAnswer{}, err
		}
		return toolAnswer{text: fmt.Sprintf("[%s]\n%s", w.Event, w.Screen.text())}, nil
	case "end":
		return p.endTerminal(h)
	}
	return toolAnswer{}, badParams("action %s: it can be start, write, resize, read, screen, wait or end", shown(t.Action))
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
	return toolAnswer{text: fmt.Sprintf("%s\n[ended: %s]", e.Text, end)}, nil
}

// text returns a screen as text, without the empty lines at its end.
func (s screenJSON) text() string {
	return strings.TrimRight(strings.Join(s.Lines, "\n"), "\n")
}
