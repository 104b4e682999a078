package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// ProposeNetwork asks as a session does, and holds what comes of it for an answer.
func (s *fakeSession) ProposeNetwork(ctx context.Context, text, reason string) (sandbox.NetworkDecision, error) {
	none := sandbox.NetworkDecision{Answer: sandbox.AllowNo}
	r, err := network.ParseRule(text)
	if err != nil {
		return none, &sandbox.InputError{Field: "rule", Text: err.Error()}
	}
	v, err := new(network.Policy).Propose(r)
	switch {
	case err != nil:
		return none, &sandbox.InputError{Field: "rule", Text: err.Error()}
	case v.Ask == "":
		return none, &sandbox.InputError{Field: "rule", Text: v.String()}
	case s.r.Ask == nil:
		return none, fmt.Errorf("session %s: %w", s.id, sandbox.ErrNoQuestions)
	case reason == "again":
		return none, fmt.Errorf("session %s: %w", s.id, sandbox.ErrProposals)
	}
	d := sandbox.NetworkDecision{NetworkQuestion: sandbox.NetworkQuestion{Session: s.id, Host: v.Host, Port: v.Port, Rule: v.Ask, Proposed: true, Reason: reason}}
	a := s.r.Ask(ctx, d.NetworkQuestion)
	d.Answer, d.By = a.Scope, a.By
	return d, nil
}

// A client's agent proposes, and the client's user is asked.
func TestRPCPropose(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	c.hello(`,"client":{"askNetwork":true}`)
	c.ask("session/start", "{}")
	for answer, want := range map[string]string{"once": "once", "session": "session", "no": "no", "always": "no"} {
		c.send(`{"jsonrpc":"2.0","id":"p-` + answer + `","method":"network/propose","params":{"rule":"GET Example.com:443/a/*","reason":"the docs"}}`)
		var q struct {
			ID     string
			Method string
			Params sandbox.NetworkQuestion
		}
		line := c.next()
		if err := json.Unmarshal([]byte(line), &q); err != nil || q.Method != "network/ask" || !q.Params.Proposed || q.Params.Reason != "the docs" || q.Params.Rule != "GET example.com:443/a/*" {
			t.Fatalf("the client gets %s, %v; want network/ask about the proposal", line, err)
		}
		c.send(`{"jsonrpc":"2.0","id":"` + q.ID + `","result":{"answer":"` + answer + `"}}`)
		if got := c.next(); !strings.Contains(got, `"id":"p-`+answer+`"`) || !strings.Contains(got, `"answer":"`+want+`"`) || !strings.Contains(got, `"rule":"GET example.com:443/a/*"`) {
			t.Errorf("%s: network/propose answers %s; want %s", answer, got, want)
		}
	}
	for _, row := range []struct{ params, kind string }{
		{`{"reason":"x"}`, "invalid-params"},
		{`{"rule":"*","reason":"x"}`, "invalid-params"},
		{`{"rule":"@npm","reason":"x"}`, "invalid-params"},
		{`{"rule":"10.0.0.1:443","reason":"x"}`, "invalid-params"},
		{`{"rule":"example.com:443","reason":"again"}`, "overloaded"},
	} {
		if got := c.ask("network/propose", row.params).text(); !strings.HasSuffix(got, row.kind) {
			t.Errorf("network/propose %s = %s; want %s", row.params, got, row.kind)
		}
	}
	silent := connect(t, nil)
	silent.hello("")
	if got := silent.ask("network/propose", `{"rule":"example.com:443","reason":"x"}`).text(); !strings.HasSuffix(got, "unavailable") {
		t.Errorf("network/propose without a user to ask = %s; want unavailable", got)
	}
}

// An MCP agent has a tool, whose result says what the user said.
func TestMCPPropose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		asks  bool // the server was told to ask
		can   bool // the client can be asked
		reply string
		args  map[string]any
		want  string
		fails bool
	}{
		{"once", true, true, "once", map[string]any{"rule": "example.com:443", "reason": "the docs"}, "Allowed for the next command: example.com:443", false},
		{"session", true, true, "session", map[string]any{"rule": "example.com:443", "reason": "the docs"}, "Allowed for this session: example.com:443", false},
		{"no", true, true, "no", map[string]any{"rule": "example.com:443", "reason": "the docs"}, "Not allowed: example.com:443", true},
		{"wide", true, true, "session", map[string]any{"rule": "*.example.com:443", "reason": "the docs"}, "many hosts", true},
		{"local", true, true, "session", map[string]any{"rule": "127.0.0.1:443", "reason": "the docs"}, "loopback", true},
		{"cannot ask", true, false, "", map[string]any{"rule": "example.com:443", "reason": "the docs"}, "no one is asked", true},
		{"not told to", false, true, "", nil, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := mcpOptions(&fakeHost{})
			o.AskNetwork = tt.asks
			shown := make(chan string, 1)
			var can mcp.ClientOptions
			if tt.can {
				can.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					shown <- r.Params.Message
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": tt.reply}}, nil
				}
			}
			client := askableMCP(t, o, can)
			tools, err := client.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			offered := false
			for _, tool := range tools.Tools {
				offered = offered || tool.Name == proposeName
			}
			if offered != tt.asks {
				t.Fatalf("the tool is offered: %v; want %v", offered, tt.asks)
			}
			if !offered {
				return
			}
			res, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: proposeName, Arguments: tt.args})
			if err != nil {
				t.Fatal(err)
			}
			text := res.Content[len(res.Content)-1].(*mcp.TextContent).Text
			if !strings.Contains(text, tt.want) || res.IsError != tt.fails {
				t.Errorf("the result is %q, an error: %v; want %q, %v", text, res.IsError, tt.want, tt.fails)
			}
			select {
			case q := <-shown:
				if !strings.Contains(q, "The agent asks for example.com:443") || !strings.Contains(q, "the docs") {
					t.Errorf("the user is shown %q", q)
				}
			default:
				if tt.reply != "" && tt.want[0] != 'm' && tt.want[0] != 'l' {
					t.Error("the user was not asked")
				}
			}
		})
	}
}

// askableMCP connects a client of the last version whose servers send requests.
func askableMCP(t *testing.T, o Options, can mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	server, err := NewMCP(o)
	if err != nil {
		t.Fatal(err)
	}
	fromClient, in := io.Pipe()
	out, toClient := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(context.WithoutCancel(t.Context()), fromClient, toClient)
		_ = toClient.Close() // never fails
		server.Close()
	}()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &can).Connect(t.Context(), &mcp.IOTransport{Reader: out, Writer: in}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // never fails
		<-ended        //nolint:errcheck // only that it has ended counts
		_ = client.Close()
	})
	return client
}
