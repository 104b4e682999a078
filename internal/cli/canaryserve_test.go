package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"time"
)

// canaryMethods is what each method of serve rpc is given, in this order. A method
// without a row fails the test.
var canaryMethods = [][2]string{
	{"initialize", `{"protocol":"1","client":{"name":"C"}}`},
	{"initialize", `{"protocol":"C"}`},
	{"tools/list", `{"C":1}`},
	{"session/start", `{"C":1}`},
	{"session/attach", `{"session":"C"}`},
	{"session/attach", `{"session":"S"}`},
	{"session/list", ``},
	{"session/info", `{"session":"S"}`},
	{"session/info", `{"session":"C"}`},
	{"tools/call", `{"session":"S","name":"bash","arguments":{"command":"echo C; echo $CANARY; seq 1 20000; C"}}`},
	{"tools/call", `{"session":"S","name":"C","arguments":{"C":"C"}}`},
	{"tools/call", `{"session":"S","name":"bash","arguments":{"command":"echo C","cwd":"C"}}`},
	{"tools/plan", `{"arguments":{"command":"C","C":1}}`},
	{"tools/plan", `{"contract":"C","arguments":{"command":"x"}}`},
	{"bash", `{"session":"S","command":"echo $CANARY; C"}`},
	{"abort_bash", `{"session":"C"}`},
	{"session/write", `{"session":"S","path":"D/C","content":"C"}`},
	{"session/write", `{"session":"S","path":"C","content":"C C"}`},
	{"session/read", `{"session":"S","path":"C"}`},
	{"session/read", `{"session":"S","path":"x/C"}`},
	{"session/files", `{"session":"S"}`},
	{"session/files", `{"session":"S","path":"C"}`},
	{"session/push", `{"session":"S","from":"C","to":"C"}`},
	{"session/pull", `{"session":"S","from":"C","to":"D/out"}`},
	{"session/pull", `{"session":"S","from":"x/C","to":"C"}`},
	{"job/list", `{"session":"S"}`},
	{"job/wait", `{"session":"S","id":"C"}`},
	{"job/kill", `{"session":"S","id":"C"}`},
	{"job/output", `{"session":"S","id":"C"}`},
	{"job/background", `{"request":"C"}`},
	{"pty/start", `{"session":"S","command":"echo C $CANARY; sleep 600","cwd":"C"}`},
	{"pty/list", ``},
	{"pty/write", `{"terminal":"C","text":"C"}`},
	{"pty/resize", `{"terminal":"C","cols":1,"rows":1}`},
	{"pty/read", `{"terminal":"C"}`},
	{"pty/screen", `{"terminal":"C"}`},
	{"pty/wait", `{"terminal":"C","text":"C","timeoutMs":1}`},
	{"pty/end", `{"terminal":"C"}`},
	{"artifact/list", `{"session":"S"}`},
	{"artifact/list", `{"session":"C"}`},
	{"artifact/read", `{"session":"S","id":"0"}`},
	{"artifact/read", `{"session":"S","id":"C"}`},
	{"policy/check", `{"command":"sudo C"}`},
	{"policy/check", `{"command":"C","layer":"C"}`},
	{"network/rules", `{"session":"S"}`},
	{"network/allow", `{"session":"S","rules":["C","C.example"]}`},
	{"network/deny", `{"session":"S","rules":["C"],"remove":["C"]}`},
	{"network/log", `{"session":"C"}`},
	{"network/propose", `{"session":"S","rule":"C","reason":"C"}`},
	{"network/propose", `{"session":"S","rule":"C.example:443","reason":"C"}`},
	{"C", `{"C":"C"}`},
	{"session/stop", `{"session":"C"}`},
}

// canaryMCP is the same for serve mcp.
var canaryMCP = [][2]string{
	{"initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"C","version":"C"}}`},
	{"tools/list", `{}`},
	{"tools/call", `{"name":"bash","arguments":{"command":"echo C; echo $CANARY; seq 1 20000; C"}}`},
	{"tools/call", `{"name":"bash","arguments":{"command":"true","cwd":"C","C":1}}`},
	{"tools/call", `{"name":"C","arguments":{}}`},
	{"resources/list", `{}`},
	{"resources/templates/list", `{}`},
	{"resources/read", `{"uri":"artifact://C"}`},
	{"resources/read", `{"uri":"C"}`},
	{"prompts/get", `{"name":"C"}`},
	{"C", `{}`},
}

// servers asks both servers everything.
func (l *canaryLab) servers() {
	l.t.Helper()
	answers := l.talk([]string{"serve", "rpc", "--log-level", "debug"}, canaryMethods)
	var first struct {
		Result struct{ Methods []string }
	}
	if err := json.Unmarshal([]byte(answers[0]), &first); err != nil || len(first.Result.Methods) < 20 {
		l.t.Fatalf("initialize: %v, %s", err, answers[0])
	}
	rows := map[string]bool{}
	for _, row := range canaryMethods {
		rows[row[0]] = true
	}
	for _, m := range first.Result.Methods {
		if !rows[m] {
			l.t.Errorf("method %s has no row: give it one with the canary in every word of it", m)
		}
	}
	l.talk([]string{"serve", "mcp", "--log-level", "debug"}, canaryMCP)
}

// talk asks a server one thing after the other.
func (l *canaryLab) talk(args []string, rows [][2]string) (answers []string) {
	l.t.Helper()
	cmd := osexec.CommandContext(l.t.Context(), os.Args[0], args...)
	cmd.Env, cmd.Dir = l.environ, l.dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	var errs syncBuffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	for i, row := range rows {
		method, _ := json.Marshal(l.fill(row[0]))
		params := row[1]
		if params == "" {
			params = "{}"
		}
		fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":%d,"method":%s,"params":%s}`+"\n", i+1, method, l.fillJSON(params))
		answer := l.answer(lines, i+1, strings.Join(args, " ")+" "+row[0]+" "+row[1])
		answers = append(answers, answer)
		if row[0] == "initialize" && args[1] == "mcp" {
			fmt.Fprintln(stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
	}
	fmt.Fprintln(stdin, l.fillJSON(`{"C":"C"}`)+`{`)
	fmt.Fprintln(stdin, l.fill(`C`))
	_ = stdin.Close()
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		l.t.Errorf("sandboxbash %q: %v: %s", args, err, errs.String())
	}
	l.clean(fmt.Sprintf("sandboxbash %q at its end", args), string(rest)+errs.String())
	return answers
}

// answer reads up to the answer of a request; all that comes is looked at.
func (l *canaryLab) answer(lines *bufio.Reader, id int, what string) string {
	l.t.Helper()
	late := time.AfterFunc(time.Minute, func() { l.t.Errorf("%s: no answer", what) })
	defer late.Stop()
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			l.t.Fatalf("%s: %v", what, err)
		}
		l.clean(what, line)
		var m struct {
			ID     *int
			Method string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			l.t.Errorf("%s: %v in %s", what, err, line)
		}
		if m.ID != nil && *m.ID == id && m.Method == "" {
			return line
		}
	}
}

// fillJSON is fill for words in texts.
func (l *canaryLab) fillJSON(doc string) string {
	parts := strings.Split(doc, `"`)
	for i := 1; i < len(parts); i += 2 {
		text, _ := json.Marshal(l.fill(parts[i]))
		parts[i] = strings.Trim(string(text), `"`)
		if strings.HasSuffix(string(text), `\""`) {
			parts[i] = string(text[1 : len(text)-1])
		}
	}
	return strings.Join(parts, `"`)
}

// syncBuffer is a buffer that a process's error stream goes to.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
