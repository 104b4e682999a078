package hookcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	osexec "os/exec"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// words are commands that quoting has to carry through a shell as they are.
var words = []string{
	"ls", "", "'", "''", "a'b", "'a'", `\`, `\'`, `"`, `$HOME`, "`id`", "$(id)", "a\nb", "\n", "a b", "~", "~root", "=ls", "a=b", "-n", "--", "!x", "#", "*", "[a]", "{a,b}",
	"echo 'it''s' \"$x\" `y`", "cat <<'EOF'\n'\nEOF\n", "\t", "\r\n", "é", "\u2028", "\x01", "日本語 '語'", "; rm -rf x", "&& x", "| x", "> x", strings.Repeat("'", 500),
}

// What is quoted is one word for bash, sh and zsh: each prints the bytes that went in.
func TestQuoteByShells(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "sh", "zsh"} {
		path, err := osexec.LookPath(shell)
		if err != nil {
			t.Logf("there is no %s on this machine", shell)
			continue
		}
		var script strings.Builder
		for _, w := range words {
			fmt.Fprintf(&script, "printf '%%s\\000' %s\n", quote(w))
		}
		// The client gives its own shell the line in quotes, for eval.
		for _, line := range []string{script.String(), "eval " + quote(script.String())} {
			out, err := osexec.CommandContext(t.Context(), path, "-c", line).Output()
			if want := strings.Join(words, "\x00") + "\x00"; err != nil || string(out) != want {
				t.Errorf("%s: %q, %v; want %q", shell, out, err, want)
			}
		}
	}
}

func input(command string) []byte {
	return fmt.Appendf(nil, `{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"description":"d","command":%s,"timeout":1e3},"tool_use_id":"t"}`, marshal(command))
}

// A command becomes the last word of another one, whatever is in it. All other fields stay as they are.
func TestRewritten(t *testing.T) {
	t.Parallel()
	for _, command := range words {
		c, err := parse(input(command))
		if err != nil {
			t.Errorf("parse(%q): %v", command, err)
			continue
		}
		text, err := c.rewritten([]string{"/opt/it's/sandboxbash", "shell", "-c"}, ask, "why")
		if err != nil {
			t.Errorf("rewritten(%q): %v", command, err)
			continue
		}
		checkRewritten(t, command, text)
		if !bytes.Contains(text, []byte(`"description":"d"`)) || !bytes.Contains(text, []byte(`"timeout":1e3`)) {
			t.Errorf("rewritten(%q) = %s; want the other fields as they were", command, text)
		}
	}
}

// checkRewritten checks an answer by another parser of the shell's language.
func checkRewritten(t *testing.T, command string, text []byte) {
	t.Helper()
	var out struct {
		Specific struct {
			Event    string `json:"hookEventName"`
			Decision string `json:"permissionDecision"`
			Input    struct {
				Command string `json:"command"`
			} `json:"updatedInput"`
		} `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal(text, &out); err != nil || out.Specific.Event != "PreToolUse" || out.Specific.Decision != ask {
		t.Fatalf("the answer is %s, %v", text, err)
	}
	file, err := syntax.NewParser().Parse(strings.NewReader(out.Specific.Input.Command), "")
	if err != nil || len(file.Stmts) != 1 {
		t.Fatalf("%q is not one command: %v", out.Specific.Input.Command, err)
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) != 4 || len(file.Stmts[0].Redirs) > 0 || file.Stmts[0].Background {
		t.Fatalf("%q is not a command of four words", out.Specific.Input.Command)
	}
	var last strings.Builder
	for _, part := range call.Args[3].Parts {
		switch p := part.(type) {
		case *syntax.SglQuoted:
			last.WriteString(p.Value)
		case *syntax.Lit:
			last.WriteString(strings.ReplaceAll(p.Value, `\'`, "'"))
		default:
			t.Fatalf("%q has a part that the shell reads: %T", out.Specific.Input.Command, part)
		}
	}
	if got := last.String(); got != command && strings.ReplaceAll(got, "\r", "") != strings.ReplaceAll(command, "\r", "") { // the parser drops them
		t.Errorf("%q arrives as %q", command, got)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", "JSON"},
		{"half", `{"hook_event_name":"PreToolUse"`, "JSON"},
		{"two documents", `{}{}`, "JSON"},
		{"a list", `[]`, "object"},
		{"another event", `{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{"command":"x"}}`, "PreToolUse"},
		{"no tool", `{"hook_event_name":"PreToolUse"}`, "does not name a tool"},
		{"a name twice", `{"hook_event_name":"PreToolUse","tool_name":"Read","tool_name":"Bash"}`, "twice"},
		{"a command twice", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"a","command":"b"}}`, "twice"},
		{"no command", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"Command":"a"}}`, "has no command"},
		{"no input", `{"hook_event_name":"PreToolUse","tool_name":"Bash"}`, "tool_input"},
		{"a number", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":1}}`, "command is not a text"},
		{"null", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":null}}`, "command is not a text"},
		{"a NUL", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"a\u0000b"}}`, "NUL"},
		{"half a pair", `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"\ud800"}}`, "surrogate"},
		{"not UTF-8", "{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"\xff\"}}", "UTF-8"},
		{"deep", strings.Repeat("[", 100) + strings.Repeat("]", 100), "nested"},
	} {
		if _, err := parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: parse(%q) = %v; want %q", test.name, test.text, err, test.want)
		}
	}
	c, err := parse(input(strings.Repeat("x", maxWord)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.rewritten([]string{"a"}, ask, ""); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("rewritten of %d bytes: %v; want a refusal", maxWord, err)
	}
	for _, tool := range []string{"Read", "mcp__sandboxbash__bash", "Edit"} {
		c, err := parse(fmt.Appendf(nil, `{"hook_event_name":"PreToolUse","tool_name":%q,"tool_input":7}`, tool))
		if err != nil || c.runs() {
			t.Errorf("parse of a call of %s = %+v, %v; want that it is left alone", tool, c, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, w := range words {
		f.Add(input(w))
	}
	f.Add([]byte(`{"hook_event_name":"PreToolUse","tool_name":"Monitor","tool_input":{"command":"tail -f x"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parse(text)
		if err != nil || !c.runs() {
			return
		}
		answer, err := c.rewritten([]string{"/opt/sandboxbash", "shell", "-c"}, ask, "why")
		if err != nil {
			return
		}
		checkRewritten(t, c.command, answer)
	})
}
