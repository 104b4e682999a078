package corpus

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Call is what a row of the corpus of results does.
type Call struct {
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

// Expect is what comes of it. A field that a row does not have is not looked
// at.
type Expect struct {
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

// JSON is the arguments of the call.
func (c Call) JSON(t *testing.T) json.RawMessage {
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
	return Arguments(t, fields)
}

// CheckText checks the text for the model. thrown is "", "error" or "abort".
func (want Expect) CheckText(t *testing.T, text string, isError bool, thrown string) {
	t.Helper()
	if want.Throws != (thrown != "") {
		t.Errorf("thrown %q; want %v", thrown, want.Throws)
	}
	if want.ErrorKind != "" && thrown != "abort" {
		t.Errorf("thrown %q; want an abort", thrown)
	}
	if want.IsError != nil && isError != *want.IsError || want.Success != nil && isError == *want.Success {
		t.Errorf("IsError = %v; want %v, or success %v; %.200q", isError, want.IsError, want.Success, text)
	}
	for _, re := range []*string{want.TextRegex, want.ErrorRegex} {
		if re != nil && want.Has == nil && !regexp.MustCompile(*re).MatchString(text) {
			t.Errorf("text %.200q…; want it to match %s", text, *re)
		}
	}
	for _, exact := range []*string{want.TextExact, want.ErrorExact} {
		if exact != nil && text != *exact {
			t.Errorf("text %q; want %q", text, *exact)
		}
	}
	first, _, _ := strings.Cut(text, "\n")
	if want.ErrorFirst != nil && first != *want.ErrorFirst {
		t.Errorf("first line %q; want %q", first, *want.ErrorFirst)
	}
	if want.TextStarts != nil && !strings.HasPrefix(text, *want.TextStarts) {
		t.Errorf("text %q; want it to begin with %q", text, *want.TextStarts)
	}
	for _, part := range want.TextContains {
		if !strings.Contains(text, part) {
			t.Errorf("text %.200q; want %q in it", text, part)
		}
	}
	for _, part := range slices.Concat(want.TextLacks, want.ErrorLacks) {
		if strings.Contains(text, part) {
			t.Errorf("text %q; want no %q in it", text, part)
		}
	}
	if want.TextAny != nil && !slices.Contains(want.TextAny, text) {
		t.Errorf("text %q; want one of %q", text, want.TextAny)
	}
}

// Cut is what a result says of output that is not shown.
type Cut struct {
	Truncation   any // marshals as the contract's truncation
	OutputBytes  int64
	TotalLines   int64
	ArtifactID   string
	ArtifactName string // the base name of its file
	Artifact     int64  // bytes
}

// CheckDetails checks what is off the model's path.
func (want Expect) CheckDetails(t *testing.T, details any, cut Cut) {
	t.Helper()
	if want.Details != nil && !Subset(t, details, want.Details) {
		t.Errorf("details %+v; want %v", details, want.Details)
	}
	for _, key := range want.Lacks {
		raw, err := json.Marshal(details)
		if err != nil || strings.Contains(string(raw), `"`+key+`"`) {
			t.Errorf("details %s, %v; want no %s", raw, err, key)
		}
	}
	if want.Meta != nil && !Subset(t, cut.Truncation, want.Meta) {
		t.Errorf("truncation %+v; want %v", cut.Truncation, want.Meta)
	}
	if want.MetaHas != "" && cut.ArtifactID == "" {
		t.Errorf("truncation %+v; want an artifact's id", cut.Truncation)
	}
	if want.MostBytes > 0 && (cut.OutputBytes > int64(want.MostBytes) || cut.OutputBytes == 0) {
		t.Errorf("%d bytes are shown; want at most %d", cut.OutputBytes, want.MostBytes)
	}
	if cut.TotalLines < want.LeastLines {
		t.Errorf("%d lines; want at least %d", cut.TotalLines, want.LeastLines)
	}
	if want.Artifact > 0 && cut.Artifact != want.Artifact {
		t.Errorf("artifact of %d bytes; want %d", cut.Artifact, want.Artifact)
	}
	if want.ArtifactName != nil && !regexp.MustCompile(*want.ArtifactName).MatchString(cut.ArtifactName) {
		t.Errorf("artifact %s; want %s", cut.ArtifactName, *want.ArtifactName)
	}
}

// Plain is the output of contract plain.
type Plain struct {
	Stdout, Stderr, Error string
	ExitCode              int
}

// CheckPlain checks the output of contract plain: out is what is marshalled.
func (want Expect) CheckPlain(t *testing.T, out any, plain Plain) {
	t.Helper()
	if want.Exact != nil && (!Subset(t, out, want.Exact) || plain.Error != "") {
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
	if want.Has != nil && want.ErrorRegex != nil && !regexp.MustCompile(*want.ErrorRegex).MatchString(plain.Error) {
		t.Errorf("error %q; want %s", plain.Error, *want.ErrorRegex)
	}
	if want.StdoutExact != nil && plain.Stdout != *want.StdoutExact || want.StdoutTrim != nil && strings.TrimSpace(plain.Stdout) != *want.StdoutTrim {
		t.Errorf("stdout %q; want %v or %v", plain.Stdout, want.StdoutExact, want.StdoutTrim)
	}
	if want.Said != nil && (!regexp.MustCompile(*want.Said).MatchString(plain.Error) || !regexp.MustCompile(*want.Said).MatchString(plain.Stderr)) {
		t.Errorf("error %q, stderr %q; want both to match %s", plain.Error, plain.Stderr, *want.Said)
	}
	if want.CodeIf != nil && plain.ExitCode != *want.CodeIf {
		t.Errorf("exit code %d; want %d", plain.ExitCode, *want.CodeIf)
	}
}
