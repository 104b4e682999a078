package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestServeMCPModern does a piece of work as a client of version 2026-07-28, whose calls name their session: it looks,
// edits, tests, compares and applies, which asks. Another server goes on in the session, and a client with initialize
// uses it by its name; none of them ends it.
func TestServeMCPModern(t *testing.T) {
	t.Parallel()
	needEngine(t)
	work := t.TempDir()
	file := filepath.Join(work, "sum.sh")
	if err := os.WriteFile(file, []byte("echo $(($1 - $2))\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	answer := "no"
	asked := make(chan string, 10)
	connect := func(s *served) *mcpClient {
		client, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked <- r.Params.Message
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": answer}}, nil
			},
		}).Connect(t.Context(), s.transport(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return &mcpClient{ClientSession: client, progress: make(chan string, 1000)}
	}
	s := server(t, nil, "mcp", "--workspace", "copy:"+work)
	c := connect(s)
	if text := c.InitializeResult().Instructions; !strings.Contains(text, "copy of the user's directory "+work) || !strings.Contains(text, "Network: none.") {
		t.Errorf("instructions: %q", text)
	}
	text, _ := c.call(t, t.Context(), "bash", map[string]any{"session": "new", "command": "bash sum.sh 1 2"})
	m := regexp.MustCompile(`^Started session (\S+): pass it as session from now on\.\|-1\n`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the first call: %q", text)
	}
	id := m[1]
	t.Cleanup(func() { sandboxbash(t, s.home, "session", "stop", id) })
	for _, row := range []struct {
		tool string
		args map[string]any
		want string
		bad  bool
	}{
		{"read", map[string]any{"path": "sum.sh"}, "     1\techo $(($1 - $2))", false},
		{"read", map[string]any{"path": "none"}, "/workspace/none: there is no such file", true},
		{"edit", map[string]any{"path": "sum.sh", "old": " - ", "new": " + "}, "Edited /workspace/sum.sh: 1 place, at line 1.", false},
		{"write", map[string]any{"path": "new/file", "content": "x\n"}, "Made /workspace/new/file (1 line, 2 bytes).", false},
		{"diff", map[string]any{"stat": true}, "A new/file (+1 -0)\nM sum.sh (+1 -1)\n2 files, +2 -1", false},
		{"apply", map[string]any{}, "The user said no: nothing was written. Ask what to do instead.", true},
	} {
		row.args["session"] = id
		if text, r := c.call(t, t.Context(), row.tool, row.args); text != row.want || r == nil || r.IsError != row.bad {
			t.Errorf("%s %v: %q; want %q", row.tool, row.args, text, row.want)
		}
	}
	if q := <-asked; !strings.HasPrefix(q, "Apply 2 changed files (+2 -1) from the sandbox to "+work+"?\n") {
		t.Errorf("the question: %q", q)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "echo $(($1 - $2))\n" {
		t.Errorf("after a no the file is %q, %v", b, err)
	}
	answer = "yes"
	if text, r := c.call(t, t.Context(), "apply", map[string]any{"session": id, "paths": []string{"sum.sh"}, "reason": "a sum"}); r.IsError || text != "Applied 1 change to "+work+"." {
		t.Errorf("apply: %q", text)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "echo $(($1 + $2))\n" {
		t.Errorf("after a yes the file is %q, %v", b, err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the server's end: %v", err)
	}
	if said := s.stderr.String(); !strings.Contains(said, "lives on (it ends when it was idle for 2h") || !strings.Contains(said, "sandboxbash session attach ") {
		t.Errorf("the way back: %q", said)
	}

	next := server(t, []string{"HOME=" + s.home, "XDG_STATE_HOME=" + s.home, "XDG_CONFIG_HOME=" + s.home}, "mcp", "--workspace", "copy:"+work)
	c = connect(next)
	if text, _ := c.call(t, t.Context(), "bash", map[string]any{"session": id, "command": "cat new/file"}); !strings.HasPrefix(text, "x\n") {
		t.Errorf("another server goes on: %q", text)
	}
	_ = c.Close()
	other := server(t, []string{"HOME=" + s.home, "XDG_STATE_HOME=" + s.home}, "mcp")
	c = connect(other)
	if text, r := c.call(t, t.Context(), "bash", map[string]any{"session": id, "command": "true"}); !r.IsError || !strings.HasPrefix(text, "there is no session") {
		t.Errorf("a server of another shape: %q", text)
	}
	_ = c.Close()
	named := server(t, []string{"HOME=" + s.home, "XDG_STATE_HOME=" + s.home}, "mcp", "--session", id)
	c = connectMCP(t, named.transport())
	if text, _ := c.call(t, t.Context(), "bash", map[string]any{"command": "cat new/file"}); !strings.HasPrefix(text, "x\n") {
		t.Errorf("--session: %q", text)
	}
	_ = c.Close()
	if text := sandboxbash(t, s.home, "session", "exec", id, "--", "echo still there"); text != "still there" {
		t.Errorf("the session after all of them: %q", text)
	}
}
