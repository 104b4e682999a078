package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Each error of the packages below has its kind, by its type, however deep it is wrapped.
func TestAnswerable(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errCancelled)
	boom := errors.New("boom")
	for _, row := range []struct {
		name    string
		ctx     context.Context //nolint:containedctx // of a row
		err     error
		kind    Kind
		cause   string
		message string
	}{
		{"ours", t.Context(), failure(KindTooLarge, "big"), KindTooLarge, "", "big"},
		{"ours, of a request that was cancelled", cancelled, failure(KindTooLarge, "big"), KindTooLarge, "", "big"},
		{"a key", t.Context(), &screen.KeyError{Name: "nokey"}, KindParams, "", "nokey"},
		{"input", t.Context(), &sandbox.InputError{Field: "cwd", Text: "cwd: it is not absolute"}, KindParams, "", "cwd: it is not absolute"},
		{"a denial", t.Context(), &policy.Denial{Decision: policy.Decision{Rule: "no-rm", Message: "use trash"}}, KindDenied, "no-rm", "use trash"},
		{"not started", t.Context(), &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseEngine, Err: boom}, KindNotStarted, string(exec.CauseEngine), "boom"},
		{"lost", t.Context(), &exec.Error{Outcome: exec.Lost, Cause: exec.CauseEngine, Err: boom}, KindLost, string(exec.CauseEngine), "boom"},
		{"unknown", t.Context(), &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseEngine, Err: boom}, KindUnknownOutcome, string(exec.CauseEngine), "boom"},
		{"unknown, of a request that was cancelled", cancelled, &exec.Error{Outcome: exec.Unknown, Cause: exec.CauseEngine, Err: boom}, KindUnknownOutcome, string(exec.CauseEngine), "boom"},
		{"cancelled before the start", cancelled, &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled}, KindCancelled, string(exec.CauseCancelled), ""},
		{"no session", t.Context(), sandbox.ErrUnknownSession, KindUnknownSession, "", ""},
		{"no job", t.Context(), sandbox.ErrUnknownJob, KindUnknownJob, "", ""},
		{"no artifact", t.Context(), sink.ErrNotFound, KindUnknownArtifact, "", ""},
		{"anything", t.Context(), boom, KindNotStarted, "", "boom"},
		{"anything, of a request that was cancelled", cancelled, boom, KindCancelled, "", errCancelled.Error()},
	} {
		for _, err := range []error{row.err, fmt.Errorf("session s: %w", fmt.Errorf("files: %w", row.err))} {
			got := answerable(row.ctx, err)
			if got.Data.Kind != row.kind || got.Data.Cause != row.cause || !strings.Contains(got.Message, row.message) {
				t.Errorf("%s: %v is %+v; want %s, %q, %q", row.name, err, got, row.kind, row.cause, row.message)
			}
		}
	}
}

// An error of a copy is one of files, unless more is known.
func TestFileError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		kind Kind
	}{
		{errors.New("no space left on device"), KindFile},
		{&sandbox.InputError{Field: "to", Text: "to: it is a file"}, KindParams},
		{sandbox.ErrUnknownSession, KindUnknownSession},
		{&exec.Error{Outcome: exec.Lost, Cause: exec.CauseEngine}, KindLost},
		{&exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseEngine}, KindNotStarted},
	} {
		if got := kindOfError(fileError(t.Context(), row.err)); got != row.kind {
			t.Errorf("fileError(%v) is %s; want %s", row.err, got, row.kind)
		}
	}
}

// What is wrong with parameters is said in the words of JSON, with the name of the field.
func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	decoders := map[string]func(string) error{
		"session/start": func(s string) error { _, err := decode[Shape](json.RawMessage(s)); return err },
		"initialize":    func(s string) error { _, err := decode[initialize](json.RawMessage(s)); return err },
		"network/log":   func(s string) error { _, err := decode[networkLog](json.RawMessage(s)); return err },
		"network/allow": func(s string) error { _, err := decode[ruleChange](json.RawMessage(s)); return err },
		"pty/start":     func(s string) error { _, err := decode[TerminalRequest](json.RawMessage(s)); return err },
		"terminal":      func(s string) error { _, err := decode[terminalCall](json.RawMessage(s)); return err },
		"job/wait":      func(s string) error { _, err := decode[jobNamed](json.RawMessage(s)); return err },
	}
	for _, row := range []struct{ method, params, want string }{
		{"session/start", `{"image":7}`, "image: expected a string, got number"},
		{"session/start", `{"cpus":"two"}`, "cpus: expected a number, got string"},
		{"session/start", `{"pids":1.5}`, "pids: expected a whole number, got number 1.5"},
		{"session/start", `[]`, "expected an object"},
		{"session/start", `"x"`, "expected an object"},
		{"session/start", `{"Image":"x"}`, `there is no field "Image"; there are cpus, disk`},
		{"initialize", `{"ui":"yes"}`, "ui: expected true or false, got string"},
		{"initialize", `{"toolNames":{}}`, "toolNames: expected an array, got object"},
		{"initialize", `{"client":[]}`, "client: expected an object, got array"},
		{"initialize", `{"client":{"terminal":1}}`, "client.terminal: expected true or false, got number"},
		{"initialize", `{"contract":"agent","contract2":1}`, `there is no field "contract2"`},
		{"network/log", `{"after":-1}`, "after: expected a whole number from 0 on, got number -1"},
		{"network/log", `{"after":1e30}`, "after: expected a whole number from 0 on, got number 1e30"},
		{"network/log", `{"limit":"all"}`, "limit: expected a whole number, got string"},
		{"network/log", `{"wait":0}`, "wait: expected true or false, got number"},
		{"network/allow", `{"rules":"x"}`, "rules: expected an array, got string"},
		{"network/allow", `{"rules":[1]}`, "rules: expected a string, got number"},
		{"pty/start", `{"env":["A=1"]}`, "env: expected an object, got array"},
		{"pty/start", `{"env":{"A":1}}`, "env: expected a string, got number"},
		{"pty/start", `{"cols":70000.5}`, "cols: expected a whole number, got number 70000.5"},
		{"terminal", `{"cols":"wide"}`, "cols: expected a whole number, got string"},
		{"terminal", `{"TerminalRequest":{}}`, `there is no field "TerminalRequest"; there are action, cols, command`},
		{"job/wait", `{"timeoutMs":99999999999999999999}`, "timeoutMs: expected a whole number, got number 99999999999999999999"},
	} {
		err := decoders[row.method](row.params)
		if kindOfError(err) != KindParams || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%s %s: %v; want %q", row.method, row.params, err, row.want)
		}
	}
	for method, decode := range decoders {
		for _, params := range []string{"", "null", "{}"} {
			if err := decode(params); err != nil {
				t.Errorf("%s without parameters, %q: %v", method, params, err)
			}
		}
	}
}

// What is repeated of a message is printable, short, and cut between characters.
func TestShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             `""`,
		"a\x1b[2Jb\n":                  `"a\x1b[2Jb\n"`,
		"ä":                            `"\u00e4"`,
		strings.Repeat("x", maxShown):  `"` + strings.Repeat("x", maxShown) + `"`,
		strings.Repeat("x", 1<<20):     `"` + strings.Repeat("x", maxShown) + `\u2026"`,
		strings.Repeat("x", 63) + "ää": `"` + strings.Repeat("x", 63) + `\u2026"`,
	} {
		if got := shown(text); got != want {
			t.Errorf("shown(%.80q) = %s; want %s", text, got, want)
		}
	}
}

// A kind without a code is a mistake in this package.
func TestFailureNeedsACode(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a kind that is not in the table has a code")
		}
	}()
	_ = failure("nothing", "x")
}
