package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/sink"
)

// sessionRows are about what a session does to processes, shells and files; they
// run where there is one.
var sessionRows = map[string]string{
	"res-023": "a process is killed", "res-024": "processes are killed",
	"res-028": "the call after an abort", "res-030": "a process that lives on", "res-031": "a process that lives on",
	"res-032": "a process that lives on", "res-040": "updates while a command runs",
	"res-065": "a session between two calls", "res-066": "a session between two calls",
	"res-077": "a client that fails", "res-086": "how often a client is asked", "res-134": "processes are killed",
}

func TestResultCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Call     corpus.Call      `json:"call"`
		Terminal *json.RawMessage `json:"terminal"`
		Expect   corpus.Expect    `json:"expect"`
	}
	corpus.File{Path: "tool/testdata/results.jsonl", Elsewhere: sessionRows, Ran: 72}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		contract := contractOf(t, c.Letter())
		switch {
		case r.Terminal != nil:
			checkClient(t, *r.Terminal, r.Expect)
		case r.Call.Choice != nil:
			ch := r.Call.Choice
			if got := usePTY(ch.PTY, ch.UI, ch.NoPTY == "1"); got != *r.Expect.PTY {
				t.Errorf("usePTY(%+v) = %v; want %v", *ch, got, *r.Expect.PTY)
			}
		case r.Call.Raw != "":
			checkMinimized(t, r.Call, r.Expect)
		case r.Call.Command == nil:
			checkDefinition(t, contract.Definition(Host{Dir: "{working_directory}"}), r.Expect)
		case c.Name == "cwd" || c.Name == "cwd given: cd runs in the shell" || strings.HasPrefix(c.Name, "leading cd"):
			checkDir(t, r.Call, r.Expect)
		default:
			checkResult(t, contract, r.Call, r.Expect)
		}
	})
}

func checkResult(t *testing.T, contract Contract, c corpus.Call, want corpus.Expect) {
	t.Helper()
	p := contract.Plan(c.JSON(t), defaultHost())
	res, refused := p.Refused()
	if want.NotExecuted || want.FileAbsent != "" && !want.Throws {
		if !refused {
			t.Fatalf("%s would run", c.Command)
		}
	}
	if want.HostEnv && len(p.Env) > 0 {
		t.Errorf("Env = %v; want none", p.Env)
	}
	session := store(t)
	var o Outcome
	if !refused {
		o = made(t, p, want, session)
		res = contract.Result(p, o)
	}
	checkText(t, res, want)
	checkDetails(t, o, res, want)
	if res.Plain != nil {
		checkPlain(t, *res.Plain, want)
	}
}

// made is the outcome of a plan: those that would take long are made up, with the
// output that there is until then.
func made(t *testing.T, p Plan, want corpus.Expect, session *sink.Session) Outcome {
	t.Helper()
	sofar := ""
	if strings.HasPrefix(p.Command, "echo partial;") {
		sofar = "partial\n"
	}
	switch {
	case want.ErrorKind == "abort" && want.FileAbsent != "": // before it had begun
		return Outcome{Aborted: true, Err: &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: context.Canceled}}
	case want.ErrorKind == "abort":
		return ran(t, sofar, Outcome{Reason: exec.Cancelled, Aborted: true})
	case want.Throws || strings.HasPrefix(p.Command, "sleep 60"):
		return ran(t, sofar, timeout)
	}
	return runLocal(t, p, t.TempDir(), session)
}

// checkDir checks where a command would run; whether the directory is there is for
// a session to say, with an error that is passed on.
func checkDir(t *testing.T, c corpus.Call, want corpus.Expect) {
	t.Helper()
	h := defaultHost()
	h.Dir, h.Home = c.SessionCwd, "<home>"
	if h.Dir == "" {
		h.Dir = "/srv/s"
	}
	contract := contractOf(t, "A")
	p := contract.Plan(c.JSON(t), h)
	switch {
	case p.Err != nil:
		t.Fatal(p.Err)
	case want.ErrorExact != nil:
		text, _, _ := strings.Cut(*want.ErrorExact, ":")
		err := &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseDirMissing, Err: fmt.Errorf("%s: %s", text, p.Dir)}
		checkText(t, contract.Result(p, Outcome{Err: fmt.Errorf("session x: %w", err)}), want)
	case c.Cwd != nil && *c.Cwd == "/" && want.TextStarts != nil && *want.TextStarts == "/tmp\n":
		if p.Command != "cd /tmp && pwd" || p.Dir != h.Dir {
			t.Errorf("%q in %q; want the command as it was, in %q", p.Command, p.Dir, h.Dir)
		}
	case want.TextStarts != nil:
		if p.Dir+"\n" != *want.TextStarts {
			t.Errorf("directory %q of %q; want %q", p.Dir, c.Command, *want.TextStarts)
		}
	case p.Dir != "/srv/s/a b":
		t.Errorf("directory %q; want /srv/s/a b", p.Dir)
	}
}

func checkDefinition(t *testing.T, d Definition, want corpus.Expect) {
	t.Helper()
	for _, part := range want.Contains {
		if !strings.Contains(d.Description, part) {
			t.Errorf("the description lacks %q", part)
		}
	}
	if !strings.HasSuffix(d.Description, want.EndsWith) {
		t.Errorf("the description ends with %.40q; want %q", d.Description[max(0, len(d.Description)-40):], want.EndsWith)
	}
	var schema struct {
		Required   []string
		Properties struct{ Mode struct{ Enum []string } }
	}
	if err := json.Unmarshal(d.InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	if want.Required != nil && (!slices.Equal(schema.Required, want.Required) || !slices.Equal(schema.Properties.Mode.Enum, want.Modes)) {
		t.Errorf("schema requires %q with modes %q; want %q and %q", schema.Required, schema.Properties.Mode.Enum, want.Required, want.Modes)
	}
}

func checkMinimized(t *testing.T, c corpus.Call, want corpus.Expect) {
	t.Helper()
	session := store(t)
	opts := AgentOutput(DefaultSettings(), Foreground)
	opts.Minimize = []sink.Filter{func(string) string { return c.Minimized }}
	o := kept(t, c.Raw, success, opts, session)
	for c.SavedID != "" && o.Output.Artifact.ID != c.SavedID { // ids are taken by runs before it
		o = kept(t, c.Raw, success, opts, session)
	}
	checkText(t, agentContract{}.Result(Plan{Contract: Agent}, o), want)
}

// checkClient checks what is said of the end of a command in the client's terminal.
func checkClient(t *testing.T, raw json.RawMessage, want corpus.Expect) {
	t.Helper()
	var c struct {
		ID   string `json:"terminalId"`
		Exit *struct {
			Code   *int    `json:"exitCode"`
			Signal *string `json:"signal"`
		} `json:"exit"`
		Output    string   `json:"output"`
		Truncated bool     `json:"truncated"`
		Timeout   *float64 `json:"timeout"`
		Abort     int      `json:"abort_after_ms"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	p := Plan{Contract: Agent, Timeout: clampTimeout(c.Timeout, 0)}
	var o Outcome
	switch {
	case c.Exit != nil && c.Exit.Signal != nil:
		o = ClientExit(c.Exit.Code, *c.Exit.Signal)
	case c.Exit != nil:
		o = ClientExit(c.Exit.Code, "")
	case c.Abort > 0:
		o = Outcome{Reason: exec.Cancelled, Aborted: true}
	default:
		o = timeout
	}
	o = ran(t, c.Output, o)
	o.Client = &Client{ID: c.ID, Truncated: c.Truncated}
	res := agentContract{}.Result(p, o)
	checkText(t, res, want)
	checkDetails(t, o, res, want)
}
