package tool

import (
	"encoding/json"
	"fmt"
)

// Request asks for a plan: a row of `sandboxbash plan --jsonl`, and the parameters
// of tools/plan.
//
//	{"contract", "arguments", "settings"?, "toolNames"?, "context"?, "id"?}
//
// Without a context it is not known what internal URLs stand for, and a plan leaves
// them as they are.
type Request struct {
	ID        json.RawMessage // anything; nil if there is none
	Contract  string          // "" if it was not given
	Arguments json.RawMessage
	Host      Host // by settings, tool names and context
}

// NewRequest returns a request for the plan of a call, without settings, tool
// names or a context.
func NewRequest(arguments json.RawMessage) Request {
	return Request{Arguments: arguments, Host: Host{Settings: DefaultSettings(), URLs: URLs{Unknown: true}}}
}

// ParseRequest reads a request. It does not check the arguments: the contract does.
// The ID is set whenever it can be read, even along with an error.
func ParseRequest(raw json.RawMessage) (Request, error) {
	r := NewRequest(nil)
	members, err := parseObject(raw)
	if err != nil {
		return r, fmt.Errorf("a request is a JSON object: %w", err)
	}
	for _, m := range members {
		if m.name == "id" {
			r.ID = m.value
		}
	}
	for _, m := range members {
		absent := string(m.value) == "null"
		switch {
		case m.name == "id":
		case m.name == "arguments":
			r.Arguments = m.value
		case m.name == "contract" && !absent:
			r.Contract, err = m.text()
		case m.name == "toolNames" && !absent:
			r.Host.Tools, err = m.texts()
		case m.name == "settings" && !absent:
			r.Host.Settings, err = parseSettings(m.value)
		case m.name == "context" && !absent:
			err = r.know(m.value)
		case m.name == "contract", m.name == "toolNames", m.name == "settings", m.name == "context":
		default:
			err = &fault{what: unknown, field: m.name}
		}
		if err != nil {
			return r, err
		}
	}
	if r.Arguments == nil {
		return r, &fault{what: missing, field: "arguments"}
	}
	return r, nil
}

func (r *Request) know(context json.RawMessage) error {
	c, err := parseContext(context)
	if err == nil {
		c.apply(&r.Host)
	}
	return err
}

// Plan returns the plan. The contract is used if the request names none.
func (r Request) Plan(contract string) (Plan, error) {
	if r.Contract != "" {
		contract = r.Contract
	}
	c, err := Parse(contract)
	if err != nil {
		return Plan{}, err
	}
	return c.Plan(r.Arguments, r.Host), nil
}
