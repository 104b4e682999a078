//go:build unix

package ptycmd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
)

// heldTerminal plays the holder of a terminal: it has an answer for each method.
type heldTerminal struct {
	answers map[string]string                                 // results by method, as JSON; those of others are {}
	dynamic func(method string, params map[string]any) string // asked first; nil: nothing is

	mu    sync.Mutex
	asked []string // guarded by mu; methods with their parameters, but for the terminal's id
}

func (h *heldTerminal) serve(_ context.Context, in io.Reader, out io.Writer) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var q struct {
			ID     int            `json:"id"`
			Method string         `json:"method"`
			Params map[string]any `json:"params"`
		}
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		if q.Method != "initialize" {
			delete(q.Params, "terminal")
			words := []string{q.Method}
			for _, k := range slices.Sorted(maps.Keys(q.Params)) {
				words = append(words, fmt.Sprintf("%s=%v", k, q.Params[k]))
			}
			h.mu.Lock()
			h.asked = append(h.asked, strings.Join(words, " "))
			h.mu.Unlock()
		}
		answer, ok := h.answers[q.Method]
		if h.dynamic != nil && q.Method != "initialize" {
			answer, ok = h.dynamic(q.Method, q.Params), true
		}
		if !ok {
			answer = `"result":{}`
		}
		if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", q.ID, answer); err != nil {
			return err
		}
	}
	return nil
}

// took returns what was asked for, and forgets it.
func (h *heldTerminal) took() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.asked = nil }()
	return h.asked
}

// keepTerminal has the terminal pty_1a kept until the end of the test, and returns an environment that has it.
func keepTerminal(t *testing.T, h *heldTerminal) []string {
	t.Helper()
	home := clitest.SocketDir(t)
	environ := []string{"HOME=" + home, "XDG_STATE_HOME=" + home, "X_TOKEN=c4nary-0123456789"}
	dir := filepath.Join(home, "sandboxbash", "pty")
	if err := holder.MakeDir(dir); err != nil {
		t.Fatal(err)
	}
	l, err := holder.Listen(dir, "pty_1a")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Publish(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Accept(context.WithoutCancel(t.Context()), h.serve)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return environ
}

// What a command line says is asked of the terminal, which is named by the start of its id.
func TestWords(t *testing.T) {
	t.Parallel()
	h := &heldTerminal{answers: map[string]string{"pty/wait": `"result":{"event":"output"}`}}
	environ := keepTerminal(t, h)
	for _, test := range []struct {
		input string
		args  []string
		want  []string
	}{
		{"", []string{"write", "pty_1", "ls"}, []string{"pty/write text=ls"}},
		{"in\n", []string{"write", "pty_1a"}, []string{"pty/write text=in\n"}},
		{"", []string{"write", "--paste", "pty_1a", "ls"}, []string{"pty/write paste=ls"}},
		{"unread", []string{"write", "--keys", "ctrl-c  enter", "pty_1a"}, []string{"pty/write keys=[ctrl-c enter]"}},
		{"", []string{"write", "--keys", "enter", "pty_1a", "ls"}, []string{"pty/write text=ls", "pty/write keys=[enter]"}},
		{"", []string{"resize", "pty_1a", "132x43"}, []string{"pty/resize cols=132 rows=43"}},
		{"", []string{"logs", "--from", "12", "pty_1a"}, []string{"pty/read from=12"}},
		{"", []string{"screen", "pty_1a"}, []string{"pty/screen"}},
		{"", []string{"wait", "--text", "$", "--timeout", "5s", "pty_1a"}, []string{"pty/wait end=false input=false pattern= quietMs=0 text=$ timeoutMs=5000"}},
		{"", []string{"wait", "--quiet-for", "2s", "--input", "pty_1a"}, []string{"pty/wait end=false input=true pattern= quietMs=2000 text= timeoutMs=30000"}},
	} {
		status, _, errs := clitest.Feed(t, test.input, environ, append([]string{"pty"}, test.args...)...)
		if diff := cmp.Diff(test.want, h.took()); diff != "" || status != 0 {
			t.Errorf("pty %q = %d, %q; what was asked for (-want +got):\n%s", test.args, status, errs, diff)
		}
	}
}

// Wrong words ask nothing of a terminal.
func TestWrongWords(t *testing.T) {
	t.Parallel()
	h := &heldTerminal{}
	environ := keepTerminal(t, h)
	for _, test := range []struct {
		input, want string
		args        []string
	}{
		{"", "there is nothing to type", []string{"write", "pty_1a"}},
		{"", "there is nothing to type", []string{"write", "pty_1a", ""}},
		{strings.Repeat("x", 1<<20+1), "longer than 1048576 bytes", []string{"write", "pty_1a"}},
		{"", `size "80"`, []string{"resize", "pty_1a", "80"}},
		{"", "it must be at most 1h0m0s", []string{"wait", "--timeout", "2h", "pty_1a"}},
		{"", "unknown terminal", []string{"screen", "pty_2"}},
		{"", "unknown terminal", []string{"screen", ""}},
		{"", "takes the id of a terminal", []string{"screen"}},
		{"", "unknown terminal", []string{"logs", "-f", "pty_2"}},
		{"", "--follow and --json cannot be given together", []string{"logs", "-f", "--json", "pty_1a"}},
		{"", "did you mean `sandboxbash pty logs`", []string{"read", "pty_1a"}},
		{"", "did you mean `sandboxbash pty stop`", []string{"end", "pty_1a"}},
		{"", "the session's id is empty", []string{"start", ""}},
		{"", `size "x"`, []string{"start", "--size", "x", "0199"}},
	} {
		status, out, errs := clitest.Feed(t, test.input, environ, append([]string{"pty"}, test.args...)...)
		if asked := h.took(); status != exit.Usage || out != "" || !strings.Contains(errs, test.want) || len(asked) > 0 {
			t.Errorf("pty %q = %d, %q, %q, and asks for %q; want status %d and %q", test.args, status, out, errs, asked, exit.Usage, test.want)
		}
	}
}

// What a program has written is text: it holds no escape sequence and no secret.
func TestReadAndScreen(t *testing.T) {
	t.Parallel()
	environ := keepTerminal(t, &heldTerminal{answers: map[string]string{
		"pty/read":   `"result":{"text":"a c4nary-0123456789\u001b[2J\nb\n","next":30,"lost":12}`,
		"pty/screen": `"result":{"cols":80,"rows":24,"lines":["$ c4nary-0123456789","","x"],"cursor":{"col":2,"row":1},"title":"t\u001b"}`,
	}})
	for _, test := range []struct {
		args      []string
		out, errs string
	}{
		{[]string{"logs", "pty_1a"}, "a [REDACTED:X_TOKEN]\nb\n", "sandboxbash: note: 12 bytes before this are not kept any more\n"},
		{[]string{"logs", "--quiet", "pty_1a"}, "a [REDACTED:X_TOKEN]\nb\n", ""},
		{[]string{"logs", "--json", "pty_1a"}, `{"text":"a [REDACTED:X_TOKEN]\nb\n","next":30,"lost":12}` + "\n", ""},
		{[]string{"screen", "pty_1a"}, "$ [REDACTED:X_TOKEN]\n\nx\n", "sandboxbash: note: 80x24, cursor at column 3 of row 2, hidden\n"},
		{
			[]string{"screen", "--json", "pty_1a"},
			`{"cols":80,"rows":24,"lines":["$ [REDACTED:X_TOKEN]","","x"],"cursor":{"col":2,"row":1,"visible":false},"alternate":false,"title":"t"}` + "\n", "",
		},
	} {
		status, out, errs := clitest.Call(t, environ, append([]string{"pty"}, test.args...)...)
		if status != 0 || out != test.out || errs != test.errs {
			t.Errorf("pty %q = %d, %q, %q; want %q, %q", test.args, status, out, errs, test.out, test.errs)
		}
	}
}

// The exit status of a wait says whether the event came; with --end it is the program's own.
func TestWait(t *testing.T) {
	t.Parallel()
	ended := func(how string) string {
		return `"result":{"event":"ended","terminal":{"state":"ended",` + how + `}}`
	}
	for name, test := range map[string]struct {
		answer string
		args   []string
		status int
		says   string
	}{
		"it came":            {`"result":{"event":"quiet"}`, nil, 0, ""},
		"it did not":         {`"result":{"event":"timeout"}`, nil, exit.Timeout, "it has not come within 30s; `sandboxbash pty screen pty_1a`"},
		"ended before":       {ended(`"reason":"exited","exitCode":3`), nil, exit.Findings, "the program has ended before (3)"},
		"ended":              {ended(`"reason":"exited","exitCode":3`), []string{"--end"}, 3, ""},
		"killed":             {ended(`"reason":"signalled","signal":15`), []string{"--end"}, 128 + 15, "SIGTERM"},
		"lost":               {`"result":{"event":"ended","terminal":{"state":"lost","error":{"code":-1,"message":"gone","data":{"kind":"session-lost","cause":"oom"}}}}`, []string{"--end"}, exit.Engine, "gone"},
		"a wrong parameter":  {`"error":{"code":-1,"message":"pattern: missing )","data":{"kind":"invalid-params"}}`, nil, exit.Usage, "missing )"},
		"an unknown outcome": {`"error":{"code":-1,"message":"who knows","data":{"kind":"outcome-unknown"}}`, nil, exit.Engine, "who knows"},
	} {
		environ := keepTerminal(t, &heldTerminal{answers: map[string]string{"pty/wait": test.answer}})
		status, out, errs := clitest.Call(t, environ, append([]string{"pty", "wait", "pty_1a"}, test.args...)...)
		if status != test.status || !strings.Contains(errs, test.says) || (test.says == "") != (errs == "") {
			t.Errorf("%s: pty wait = %d, %q, %q; want %d and %q", name, status, out, errs, test.status, test.says)
		}
	}
}

// Terminals are listed by what their holders say, and offered as completions.
func TestListAndComplete(t *testing.T) {
	t.Parallel()
	environ := keepTerminal(t, &heldTerminal{answers: map[string]string{
		"pty/status": `"result":{"session":"0199","state":"running","cols":80,"rows":24,"started":"2026-01-02T03:04:05Z","command":"vi\nx"}`,
		"pty/list":   `"result":{"terminals":[{"session":"0199","state":"running","cols":80,"rows":24,"started":"2026-01-02T03:04:05Z","command":"vi"}]}`,
	}})
	status, out, errs := clitest.Call(t, environ, "pty", "ls")
	if lines := strings.Split(out, "\n"); status != 0 || errs != "" || len(lines) != 3 || !strings.HasPrefix(lines[0], "ID") || !strings.HasPrefix(lines[1], "pty_1a  ") {
		t.Errorf("pty ls = %d, %q, %q; want one terminal", status, out, errs)
	}
	if status, out, errs := clitest.Call(t, environ, "pty", "ls", "--session", "ffff", "--json"); status != exit.Usage || !strings.Contains(out+errs, "unknown session") {
		t.Errorf("pty ls of another session = %d, %q, %q; want it refused", status, out, errs)
	}
	if status, out, _ := clitest.Call(t, environ, "__complete", "pty", "stop", "pty"); status != 0 || !strings.HasPrefix(out, "pty_1a\t") {
		t.Errorf("completion = %d, %q", status, out)
	}
	if status, out, _ := clitest.Call(t, environ, "__complete", "pty", "stop", "pty_1a", "pty"); status != 0 || strings.Contains(out, "pty_1a") {
		t.Errorf("completion of a second id = %d, %q; want that none is offered twice", status, out)
	}
}

// One terminal that is not there does not keep the others from being ended.
func TestEnd(t *testing.T) {
	t.Parallel()
	h := &heldTerminal{answers: map[string]string{"pty/end": `"result":{"text":"bye c4nary-0123456789","terminal":{"state":"ended","reason":"exited","exitCode":0}}`}}
	environ := keepTerminal(t, h)
	status, out, errs := clitest.Call(t, environ, "pty", "stop", "pty_9", "pty_1a")
	if status != exit.Usage || out != "pty_1a\n" || !strings.Contains(errs, `terminal "pty_9"`) {
		t.Errorf("pty stop = %d, %q, %q; want one of two ended", status, out, errs)
	}
	if status, out, errs := clitest.Call(t, environ, "pty", "stop", "--json", "pty_1a"); status != 0 || errs != "" || strings.Contains(out, "c4nary") || strings.Count(out, "\n") != 1 {
		t.Errorf("pty stop --json = %d, %q, %q", status, out, errs)
	}
}

// pages plays a holder whose terminal has written a page more at each wait, until its program ends.
func pages(waits ...string) *heldTerminal {
	h := &heldTerminal{answers: map[string]string{}}
	reads, asked := 0, 0
	h.dynamic = func(method string, params map[string]any) string {
		switch method {
		case "pty/read":
			reads++
			return fmt.Sprintf(`"result":{"text":"page %d\n","next":%d}`, reads, 7*reads)
		case "pty/wait":
			asked++
			return waits[asked-1]
		}
		return ""
	}
	return h
}

// Following reads on from where it was, after each wait, and once more after the end.
func TestFollow(t *testing.T) {
	t.Parallel()
	const output, ended = `"result":{"event":"output"}`, `"result":{"event":"ended","terminal":{"state":"ended","reason":"exited","exitCode":3}}`
	h := pages(output, `"result":{"event":"timeout"}`, ended)
	environ := keepTerminal(t, h)
	status, out, errs := clitest.Call(t, environ, "pty", "logs", "--follow", "--from", "3", "pty_1a")
	if status != 0 || out != "page 1\npage 2\npage 3\npage 4\n" || errs != "" {
		t.Errorf("pty logs -f = %d, %q, %q; want four pages", status, out, errs)
	}
	want := []string{
		"pty/read from=3", "pty/wait from=7 timeoutMs=3.6e+06", "pty/read from=7", "pty/wait from=14 timeoutMs=3.6e+06",
		"pty/read from=14", "pty/wait from=21 timeoutMs=3.6e+06", "pty/read from=21",
	}
	if diff := cmp.Diff(want, h.took()); diff != "" {
		t.Errorf("what was asked for (-want +got):\n%s", diff)
	}
	h = pages(output, `"error":{"code":-1,"message":"gone","data":{"kind":"session-lost","cause":"oom"}}`)
	if status, out, errs := clitest.Call(t, keepTerminal(t, h), "pty", "logs", "-f", "pty_1a"); status != exit.Engine || out != "page 1\npage 2\n" || !strings.Contains(errs, "gone") {
		t.Errorf("pty logs -f of one that is lost = %d, %q, %q; want what there was, and the error", status, out, errs)
	}
}

// A terminal is described as the list does it.
func TestShow(t *testing.T) {
	t.Parallel()
	environ := keepTerminal(t, &heldTerminal{answers: map[string]string{
		"pty/list": `"result":{"terminals":[{"session":"0199","state":"ended","reason":"exited","exitCode":3,"cols":80,"rows":24,"started":"2026-01-02T03:04:05Z","command":"vi c4nary-0123456789"}]}`,
	}})
	status, out, errs := clitest.Call(t, environ, "pty", "show", "pty_1")
	if status != 0 || errs != "" || strings.Contains(out, "c4nary") {
		t.Errorf("pty show = %d, %q, %q", status, out, errs)
	}
	rows := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		rows[key] = strings.TrimSpace(value)
	}
	delete(rows, "started") // in local time
	want := map[string]string{"id": "pty_1a", "session": "0199", "state": "ended", "reason": "exited", "exit": "3", "size": "80x24", "command": "vi [REDACTED:X_TOKEN]"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("pty show (-want +got):\n%s", diff)
	}
	if status, out, errs := clitest.Call(t, environ, "pty", "show", "--json", "pty_1a"); status != 0 || errs != "" || !strings.Contains(out, `"exitCode":3`) || strings.Contains(out, "c4nary") {
		t.Errorf("pty show --json = %d, %q, %q", status, out, errs)
	}
	if status, out, errs := clitest.Call(t, environ, "pty", "show", "--json", "pty_2"); status != exit.Usage || errs != "" || !strings.Contains(out, "unknown terminal") {
		t.Errorf("pty show --json of none = %d, %q, %q; want an object", status, out, errs)
	}
}
