package serve

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

var asked = sandbox.NetworkQuestion{Session: "session-1", Host: "example.com", Port: 443, Rule: "example.com:443", Command: "curl \x1b[2J\nhttps://example.com"}

// A JSON-RPC client that has said so is asked, and never answers for later sessions.
func TestRPCAsk(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]sandbox.NetworkScope{
		`"result":{"answer":"once"}`: sandbox.AllowOnce, `"result":{"answer":"session"}`: sandbox.AllowSession,
		`"result":{"answer":"always"}`: sandbox.AllowNo, `"result":{"answer":"no"}`: sandbox.AllowNo, `"error":{"code":-1,"message":"x"}`: sandbox.AllowNo,
	} {
		c := connect(t, nil)
		c.hello(`,"client":{"askNetwork":true}`)
		c.ask("session/start", "{}")
		s := c.host.session(t, 0)
		got := make(chan sandbox.NetworkAnswer, 1)
		go func() { got <- s.r.Ask(t.Context(), asked) }()
		var q struct {
			ID     string
			Method string
			Params sandbox.NetworkQuestion
		}
		if err := json.Unmarshal([]byte(c.next()), &q); err != nil || q.Method != "network/ask" || q.Params != asked {
			t.Fatalf("the client gets %+v, %v; want network/ask about %+v", q, err, asked)
		}
		c.send(`{"jsonrpc":"2.0","id":"` + q.ID + `",` + answer + `}`)
		if a := <-got; a != (sandbox.NetworkAnswer{Scope: want, By: "rpc"}) {
			t.Errorf("%s counts for %+v; want %s", answer, a, want)
		}
	}
	c := connect(t, nil)
	c.hello("")
	c.ask("session/start", "{}")
	if c.host.session(t, 0).r.Ask != nil {
		t.Error("a client that has not said that it answers is asked")
	}
}

// An MCP client is asked if it can be, and the server was told to.
func TestMCPAsk(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		reply  *mcp.ElicitResult // nil: the client cannot be asked
		allow  bool
		asks   bool
		answer sandbox.NetworkScope

		protocol string // "": the latest
	}{
		{"once", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "once"}}, true, true, sandbox.AllowOnce, "2025-11-25"},
		{"session", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "session"}}, true, true, sandbox.AllowSession, "2025-06-18"},
		{"always", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "always"}}, true, true, sandbox.AllowNo, "2025-11-25"},
		{"decline", &mcp.ElicitResult{Action: "decline"}, true, true, sandbox.AllowNo, "2025-11-25"},
		{"not told to", &mcp.ElicitResult{Action: "decline"}, false, false, "", "2025-11-25"},
		{"cannot", nil, true, false, "", "2025-11-25"},
		{"no requests", &mcp.ElicitResult{Action: "decline"}, true, false, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := mcpOptions(&fakeHost{})
			o.AskNetwork = tt.allow
			server, err := NewMCP(o)
			if err != nil {
				t.Fatal(err)
			}
			shown := make(chan string, 1)
			var can mcp.ClientOptions
			if tt.reply != nil {
				can.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					shown <- r.Params.Message
					return tt.reply, nil
				}
			}
			fromClient, in := io.Pipe()
			out, toClient := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- server.Serve(context.WithoutCancel(t.Context()), fromClient, toClient)
				_ = toClient.Close() // never fails
				server.Close()
			}()
			client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &can).Connect(t.Context(), &mcp.IOTransport{Reader: out, Writer: in}, &mcp.ClientSessionOptions{ProtocolVersion: tt.protocol})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = in.Close() // never fails
				<-ended        //nolint:errcheck // only that it has ended counts
				_ = client.Close()
			})
			if _, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "echo hi"}}); err != nil {
				t.Fatal(err)
			}
			ask := o.Host.(*fakeHost).session(t, 0).r.Ask
			if (ask != nil) != tt.asks {
				t.Fatalf("the client is asked: %v; want %v (protocol %s)", ask != nil, tt.asks, client.InitializeResult().ProtocolVersion)
			}
			if ask == nil {
				return
			}
			if a := ask(t.Context(), asked); a != (sandbox.NetworkAnswer{Scope: tt.answer, By: "mcp"}) {
				t.Errorf("the answer counts for %+v; want %s", a, tt.answer)
			}
			if text := <-shown; !strings.Contains(text, "example.com:443") || strings.Contains(text, "\x1b") {
				t.Errorf("the client shows %q", text)
			}
		})
	}
}
