package serve

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// asks has a command wait for its user: "reach HOST" for a connection, "denied WHY" for the policy.
func (s *fakeSession) asks(ctx context.Context, word, rest string, on agent.Events) string {
	switch {
	case word == "denied" && on.Denied == nil, word == "reach" && s.r.Ask == nil:
		return "not asked"
	case word == "denied":
		return fmt.Sprintf("allowed: %v", on.Denied(ctx, tool.Denial{Rule: "rule-1", Reason: rest}, "rm -rf /\necho x"))
	}
	var answers []string
	for host := range strings.FieldsSeq(rest) {
		a := s.r.Ask(ctx, sandbox.NetworkQuestion{Session: s.id, Host: host, Port: 443, Rule: host + ":443"})
		answers = append(answers, host+" "+string(a.Scope))
	}
	return strings.Join(answers, ", ")
}

// fakeTexts are the session's files.
type fakeTexts struct{ s *fakeSession }

func (f fakeTexts) ReadLines(_ context.Context, path string, first, count int64, out io.Writer) (int64, bool, error) {
	f.s.mu.Lock()
	text, ok := f.s.files[path]
	f.s.mu.Unlock()
	if !ok {
		return 0, false, &sandbox.InputError{Field: "path", Text: path + ": no such file"}
	}
	line := int64(0)
	for l := range strings.Lines(text) {
		line++
		if line < first {
			continue
		}
		if line >= first+count {
			return line - 1, false, nil
		}
		if _, err := io.WriteString(out, l); err != nil {
			return line, false, err
		}
	}
	return line, true, nil
}

func (f fakeTexts) EditFile(_ context.Context, path string, _ int64, change func(sandbox.FileContent) ([]byte, error)) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	text, ok := f.s.files[path]
	now, err := change(sandbox.FileContent{Path: "/workspace/" + path, Exists: ok, Content: []byte(text)})
	if err == nil && path == "raced" {
		err = fmt.Errorf("/workspace/raced: %w", sandbox.ErrFileChanged)
	}
	if err == nil {
		f.s.files[path] = string(now)
	}
	return err
}

func (f fakeTexts) Shown(text string) string {
	return strings.ReplaceAll(text, "hunter2", "[REDACTED:X]")
}

// fakeChanges has two changed files.
type fakeChanges struct{ s *fakeSession }

func (f fakeChanges) Diff(_ context.Context, each func(sandbox.FileDiff) error) (string, error) {
	for _, name := range []string{"a.txt", "b/c.txt"} {
		d := sandbox.FileDiff{Change: sandbox.Change{Path: name, Kind: "modified"}, Was: &sandbox.FileState{}, Now: &sandbox.FileState{}, Added: 1, Hunks: []byte("@@ -1 +1 @@\n+x\n")}
		if err := each(d); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (f fakeChanges) CheckShown(_ context.Context, shown []sandbox.FileDiff) (sandbox.Applied, error) {
	return sandbox.Applied{Runs: []string{"Makefile"}}, nil
}

func (f fakeChanges) ApplyShown(_ context.Context, shown []sandbox.FileDiff) (sandbox.Applied, error) {
	var done sandbox.Applied
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for _, d := range shown {
		done.Changes = append(done.Changes, d.Change)
		f.s.files["applied:"+d.Path] = "x"
	}
	return done, nil
}

func (f fakeChanges) Dir() string              { return "/home/u/work" }
func (f fakeChanges) Name(text string) string  { return text }
func (f fakeChanges) Clean(text string) string { return text }
