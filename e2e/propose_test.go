package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An agent proposes a rule by a tool, the client's user is shown it, and the next command reaches the host. A
// name that exists nowhere tells: what no rule allows is refused, and what one allows is not found.
func TestProposeMCP(t *testing.T) {
	t.Parallel()
	needEngine(t)
	s := server(t, nil, "mcp", "--ask-network", "--deny", "denied.test")
	questions := make(chan string, 100)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			questions <- r.Params.Message
			answer := "no"
			if strings.HasPrefix(r.Params.Message, "The agent asks for example.test:443") {
				answer = "session"
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": answer}}, nil
		},
	}).Connect(t.Context(), s.transport(), &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c := &mcpClient{ClientSession: client}
	for _, row := range []struct {
		tool string
		args map[string]any
		says string
		asks string
	}{
		{"network_propose", map[string]any{"rule": "example.test:443", "reason": "the docs\x1b[2J are there"}, "Allowed for this session: example.test:443", "Its reason, in its own words: the docs [2J are there"},
		{"bash", map[string]any{"command": "curl -sS https://example.test/ 2>&1"}, "Could not resolve host: example.test", ""},
		{"network_propose", map[string]any{"rule": "example.test:443", "reason": "again"}, "Allowed for this session", ""},
		{"network_propose", map[string]any{"rule": "other.test:443", "reason": "x"}, "Not allowed: other.test:443", "The agent asks for other.test:443"},
		{"bash", map[string]any{"command": "curl -sS https://other.test/ 2>&1"}, "access denied", ""}, // and no question, after a no
		{"network_propose", map[string]any{"rule": "GET denied.test:443/x", "reason": "x"}, "denied by the rule denied.test", ""},
		{"network_propose", map[string]any{"rule": "169.254.169.254:80", "reason": "x"}, "metadata", ""},
		{"network_propose", map[string]any{"rule": "*", "reason": "x"}, "many hosts", ""},
	} {
		text, _ := c.call(t, t.Context(), row.tool, row.args)
		if !strings.Contains(text, row.says) {
			t.Errorf("%s %v says %q; want %q", row.tool, row.args, text, row.says)
		}
		select {
		case q := <-questions:
			if row.asks == "" || !strings.Contains(q, row.asks) {
				t.Errorf("%s %v asks %q; want %q", row.tool, row.args, q, row.asks)
			}
		default:
			if row.asks != "" {
				t.Errorf("%s %v asks nothing; want %q", row.tool, row.args, row.asks)
			}
		}
	}
}

// A client of JSON-RPC proposes for its agent, and is asked itself.
func TestProposeRPC(t *testing.T) {
	t.Parallel()
	needEngine(t)
	r := beginRPC(t, `{"protocol":"1","client":{"askNetwork":true}}`, nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"network/propose","params":{"rule":"GET example.test:443/a/*","reason":"the docs"}}`)
	var q struct {
		ID     string
		Params struct {
			Rule, Reason string
			Proposed     bool
		}
	}
	line := r.until(`"method":"network/ask"`)
	if err := json.Unmarshal([]byte(line), &q); err != nil || q.Params.Rule != "GET example.test:443/a/*" || q.Params.Reason != "the docs" || !q.Params.Proposed {
		t.Errorf("the client is asked %s, %v", line, err)
	}
	r.send(`{"jsonrpc":"2.0","id":"` + q.ID + `","result":{"answer":"session"}}`)
	if line := r.until(`"id":1,`); !strings.Contains(line, `"result":{"answer":"session","rule":"GET example.test:443/a/*"}`) {
		t.Error(line)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"network/rules"}`)
	if line := r.until(`"id":2,`); !strings.Contains(line, `"allow":["GET example.test:443/a/*"]`) {
		t.Error(line)
	}
	r.end()
}
