package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// proposal is a rule that an agent asks its user for.
type proposal struct {
	Session string `json:"session"`
	Rule    string `json:"rule"`
	Reason  string `json:"reason"`
}

// Proposed is what came of a proposal.
type Proposed struct {
	Answer sandbox.NetworkScope `json:"answer"` // "no", "once" or "session"
	Rule   string               `json:"rule"`   // that holds by now, or that was refused
}

// propose puts a proposal to the user who answers the session's questions.
func (s *Session) propose(ctx context.Context, rule, reason string) (Proposed, error) {
	to, err := part(s.Proposals, "network of its own")
	if err != nil {
		return Proposed{}, err
	}
	if rule == "" {
		return Proposed{}, badParams("rule is required, as in example.com:443")
	}
	d, err := to.ProposeNetwork(ctx, rule, reason)
	switch {
	case errors.Is(err, sandbox.ErrNoQuestions):
		return Proposed{}, failure(KindUnavailable, "%v", err)
	case errors.Is(err, sandbox.ErrAskedBefore), errors.Is(err, sandbox.ErrProposals):
		return Proposed{}, failure(KindOverloaded, "%v", err)
	case err != nil:
		return Proposed{}, networkError(err)
	}
	return Proposed{Answer: d.Answer, Rule: d.Rule}, nil
}

func doNetworkPropose(ctx context.Context, p *peer, c proposal) (any, error) {
	s, err := p.session(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	return s.propose(ctx, c.Rule, c.Reason)
}

// proposeName is the name of the tool that MCP has where users are asked.
const proposeName = "network_propose"

const proposeDescription = `Ask the user to allow something that the sandbox's network rules refuse. Results of commands name the rule that would allow what was refused. The user sees the rule and the reason, and answers no, once or session; nothing is allowed before. Propose what you need and no more: one host and one port. Do not repeat a proposal that was answered with no.`

const proposeSchema = `{
  "type": "object",
  "properties": {
    "rule": {"type": "string", "description": "One host and port, as in example.com:443, or some requests of it, as in GET example.com:443/files/*. Not a pattern of hosts, a range of addresses or a preset."},
    "reason": {"type": "string", "minLength": 1, "maxLength": 512, "description": "What it is needed for, for the user."}
  },
  "required": ["rule", "reason"],
  "additionalProperties": false
}`

// proposalCall is the arguments of the tool.
type proposalCall struct {
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
}

func (m *MCP) addProposeTool() {
	t := &mcp.Tool{Name: proposeName, Description: proposeDescription, InputSchema: json.RawMessage(proposeSchema)}
	m.server.AddTool(t, m.handle(m.propose))
}

// propose handles a call, and words its result for a model.
func (m *MCP) propose(ctx context.Context, p *mcpPeer, arguments json.RawMessage) (toolAnswer, error) {
	c, err := decode[proposalCall](arguments)
	if err != nil {
		return toolAnswer{}, err
	}
	s, err := p.sessions.get(ctx, "", m.sessionRequest(p))
	if err != nil {
		return toolAnswer{}, err
	}
	answer, err := s.propose(ctx, c.Rule, c.Reason)
	return toolAnswer{text: proposedText(answer), structured: answer, isError: answer.Answer == sandbox.AllowNo}, err
}

// proposedText words what came of a proposal for a model.
func proposedText(p Proposed) string {
	switch p.Answer {
	case sandbox.AllowOnce:
		return fmt.Sprintf("Allowed for the next command: %s", p.Rule)
	case sandbox.AllowSession, sandbox.AllowAlways:
		return fmt.Sprintf("Allowed for this session: %s", p.Rule)
	case sandbox.AllowNo:
	}
	return fmt.Sprintf("Not allowed: %s. The user said no, or did not answer in time. Go on without it.", p.Rule)
}
