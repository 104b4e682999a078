package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sink"
)

// resultCall is what a row of the corpus of results does.
type resultCall struct {
	Command    json.RawMessage `json:"command"`
	Timeout    *float64        `json:"timeout"`
	Cwd        *string         `json:"cwd"`
	SessionCwd string          `json:"session_cwd"`
	Mode       string          `json:"mode"`
	PTY        bool            `json:"pty"`
	Choice     *struct {
		PTY   bool   `json:"pty"`
		UI    bool   `json:"ui"`
		NoPTY string `json:"PI_NO_PTY"`
	} `json:"pty_selection"`
	Minimized string `json:"minimized"`
	Raw       string `json:"raw"`
	SavedID   string `json:"saved_id"`
}

// resultExpect is what comes of it. A field that a row does not have is not looked
// at.
type resultExpect struct {
	TextRegex    *string        `json:"text_regex"`
	TextExact    *string        `json:"text_exact"`
	TextStarts   *string        `json:"text_starts"`
	TextContains []string       `json:"text_contains"`
	TextLacks    []string       `json:"text_lacks"`
	TextAny      []string       `json:"text_any"`
	Details      map[string]any `json:"details"`
	Lacks        []string       `json:"details_lacks"`
	IsError      *bool          `json:"is_error"`
	Throws       bool           `json:"throws"`
	ErrorExact   *string        `json:"error_exact"`
	ErrorFirst   *string        `json:"error_first_line"`
	ErrorRegex   *string        `json:"error_regex"`
	ErrorLacks   []string       `json:"error_lacks"`
	ErrorKind    string         `json:"error_kind"`
	Meta         map[string]any `json:"meta"`
	MetaHas      string         `json:"meta_has"`
	MostBytes    int            `json:"output_bytes_at_most"`
	LeastLines   int64          `json:"total_lines_at_least"`
	Artifact     int64          `json:"artifact_bytes"`
	ArtifactName *string        `json:"artifact_name_regex"`
	PTY          *bool          `json:"pty"`
	Success      *bool          `json:"success"`
	NotExecuted  bool           `json:"not_executed"`
	FileAbsent   string         `json:"file_absent"`
	Exact        map[string]any `json:"exact"`
	Has          []string       `json:"has"`
	PlainLacks   []string       `json:"lacks"`
	StdoutTrim   *string        `json:"stdout_trim"`
	StdoutExact  *string        `json:"stdout_exact"`
	Said         *string        `json:"error_or_stderr_regex"`
	CodeIf       *int           `json:"exitCode_if_present"`
	EndsWith     string         `json:"ends_with"`
	Contains     []string       `json:"contains"`
	Required     []string       `json:"required"`
	Modes        []string       `json:"mode_enum"`
	HostEnv      bool           `json:"stdout_from_host_env"`
}

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
		Call     resultCall       `json:"call"`
		Terminal *json.RawMessage `json:"terminal"`
		Expect   resultExpect     `json:"expect"`
	}
	corpus{file: "tool/testdata/results.jsonl", elsewhere: sessionRows, ran: 72}.run(t, func(t *testing.T, c corpusRow) {
		t.Helper()
		var r row
		c.into(t, &r)
		contract := theContract(t, c.Contract)
		switch {
		case r.Terminal != nil:
			checkClient(t, *r.Terminal, r.Expect)
		case r.Call.Choice != nil:
			ch := r.Call.Choice
			if got := UsePTY(ch.PTY, ch.UI, ch.NoPTY == "1"); got != *r.Expect.PTY {
				t.Errorf("UsePTY(%+v) = %v; want %v", *ch, got, *r.Expect.PTY)
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

func callOf(t *testing.T, c resultCall) json.RawMessage {
	t.Helper()
	fields := map[string]any{"command": c.Command}
	if c.Timeout != nil {
		fields["timeout"] = *c.Timeout
	}
	if c.Cwd != nil && *c.Cwd != "<tmp>" {
		fields["cwd"] = *c.Cwd
	}
	if c.Mode != "" {
		fields["mode"] = c.Mode
	}
	if c.PTY {
		fields["pty"] = true
	}
	return arguments(t, fields)
}

func checkResult(t *testing.T, contract Contract, c resultCall, want resultExpect) {
	t.Helper()
	p := contract.Plan(callOf(t, c), defaultHost())
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
	checkDetails(t, p, o, res, want)
	if res.Plain != nil {
		checkPlain(t, *res.Plain, want)
	}
}

// made is the outcome of a plan: those that would take long are made up, with the
// output that there is until then.
func made(t *testing.T, p Plan, want resultExpect, session *sink.Session) Outcome {
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

func checkText(t *testing.T, res Result, want resultExpect) {
	t.Helper()
	if want.Throws != (res.Thrown != Returned) {
		t.Errorf("thrown %q; want %v", res.Thrown, want.Throws)
	}
	if want.ErrorKind != "" && res.Thrown != ToolAbort {
		t.Errorf("thrown %q; want an abort", res.Thrown)
	}
	if want.IsError != nil && res.IsError != *want.IsError || want.Success != nil && res.IsError == *want.Success {
		t.Errorf("IsError = %v; want %v, or success %v; %.200q", res.IsError, want.IsError, want.Success, res.Text)
	}
	for _, re := range []*string{want.TextRegex, want.ErrorRegex} {
		if re != nil && want.Has == nil && !regexp.MustCompile(*re).MatchString(res.Text) {
			t.Errorf("text %.200q…; want it to match %s", res.Text, *re)
		}
	}
	for _, exact := range []*string{want.TextExact, want.ErrorExact} {
		if exact != nil && res.Text != *exact {
			t.Errorf("text %q; want %q", res.Text, *exact)
		}
	}
	first, _, _ := strings.Cut(res.Text, "\n")
	if want.ErrorFirst != nil && first != *want.ErrorFirst {
		t.Errorf("first line %q; want %q", first, *want.ErrorFirst)
	}
	if want.TextStarts != nil && !strings.HasPrefix(res.Text, *want.TextStarts) {
		t.Errorf("text %q; want it to begin with %q", res.Text, *want.TextStarts)
	}
	for _, part := range want.TextContains {
		if !strings.Contains(res.Text, part) {
			t.Errorf("text %.200q; want %q in it", res.Text, part)
		}
	}
	for _, part := range slices.Concat(want.TextLacks, want.ErrorLacks) {
		if strings.Contains(res.Text, part) {
			t.Errorf("text %q; want no %q in it", res.Text, part)
		}
	}
	if want.TextAny != nil && !slices.Contains(want.TextAny, res.Text) {
		t.Errorf("text %q; want one of %q", res.Text, want.TextAny)
	}
}

func checkDetails(t *testing.T, p Plan, o Outcome, res Result, want resultExpect) {
	t.Helper()
	if want.Details != nil && !subset(t, res.Details, want.Details) {
		t.Errorf("details %+v; want %v", res.Details, want.Details)
	}
	for _, key := range want.Lacks {
		raw, err := json.Marshal(res.Details)
		if err != nil || strings.Contains(string(raw), `"`+key+`"`) {
			t.Errorf("details %s, %v; want no %s", raw, err, key)
		}
	}
	tr := (&sink.Truncation{})
	if res.Details != nil && res.Details.Meta != nil {
		tr = res.Details.Meta.Truncation
	}
	if want.Meta != nil && !subset(t, tr, want.Meta) {
		t.Errorf("truncation %+v; want %v", tr, want.Meta)
	}
	if want.MetaHas != "" && tr.ArtifactID == "" {
		t.Errorf("truncation %+v; want an artifact's id", tr)
	}
	if want.MostBytes > 0 && (tr.OutputBytes > int64(want.MostBytes) || tr.OutputBytes == 0) {
		t.Errorf("%d bytes are shown; want at most %d", tr.OutputBytes, want.MostBytes)
	}
	if tr.TotalLines < want.LeastLines {
		t.Errorf("%d lines; want at least %d", tr.TotalLines, want.LeastLines)
	}
	if want.Artifact > 0 && o.Output.Artifact.Bytes != want.Artifact {
		t.Errorf("artifact %+v of %q; want %d bytes", o.Output.Artifact, p.Command, want.Artifact)
	}
	if want.ArtifactName != nil && !regexp.MustCompile(*want.ArtifactName).MatchString(filepath.Base(o.Output.Artifact.Path)) {
		t.Errorf("artifact %s; want %s", o.Output.Artifact.Path, *want.ArtifactName)
	}
}

func checkPlain(t *testing.T, out PlainOutput, want resultExpect) {
	t.Helper()
	if want.Exact != nil && (!subset(t, out, want.Exact) || out.Error != "") {
		t.Errorf("output %+v; want %v", out, want.Exact)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range want.Has {
		if !strings.Contains(string(raw), `"`+key+`"`) {
			t.Errorf("output %s; want %s", raw, key)
		}
	}
	for _, key := range want.PlainLacks {
		if strings.Contains(string(raw), `"`+key+`"`) {
			t.Errorf("output %s; want no %s", raw, key)
		}
	}
	if want.Has != nil && want.ErrorRegex != nil && !regexp.MustCompile(*want.ErrorRegex).MatchString(out.Error) {
		t.Errorf("error %q; want %s", out.Error, *want.ErrorRegex)
	}
	if want.StdoutExact != nil && *out.Stdout != *want.StdoutExact || want.StdoutTrim != nil && strings.TrimSpace(*out.Stdout) != *want.StdoutTrim {
		t.Errorf("stdout %q; want %v or %v", *out.Stdout, want.StdoutExact, want.StdoutTrim)
	}
	if want.Said != nil && (!regexp.MustCompile(*want.Said).MatchString(out.Error) || !regexp.MustCompile(*want.Said).MatchString(*out.Stderr)) {
		t.Errorf("error %q, stderr %q; want both to match %s", out.Error, *out.Stderr, *want.Said)
	}
	if want.CodeIf != nil && *out.ExitCode != *want.CodeIf {
		t.Errorf("exit code %d; want %d", *out.ExitCode, *want.CodeIf)
	}
}

// checkDir checks where a command would run; whether the directory is there is for
// a session to say, with an error that is passed on.
func checkDir(t *testing.T, c resultCall, want resultExpect) {
	t.Helper()
	h := defaultHost()
	h.Dir, h.Home = c.SessionCwd, "<home>"
	if h.Dir == "" {
		h.Dir = "/srv/s"
	}
	contract := theContract(t, "A")
	p := contract.Plan(callOf(t, c), h)
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

func checkDefinition(t *testing.T, d Definition, want resultExpect) {
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

func checkMinimized(t *testing.T, c resultCall, want resultExpect) {
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
func checkClient(t *testing.T, raw json.RawMessage, want resultExpect) {
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
	p := Plan{Contract: Agent, Timeout: ClampTimeout(c.Timeout, 0)}
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
	checkDetails(t, p, o, res, want)
}
