package core

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// askerOn is an Asker whose terminal is a file, and what is on it.
func askerOn(t *testing.T) (a *Asker, screen func() string) {
	t.Helper()
	tty, err := os.Create(filepath.Join(t.TempDir(), "tty"))
	if err != nil {
		t.Fatal(err)
	}
	secrets, _, err := sink.NewSecrets(sink.FromEnviron([]string{"X_TOKEN=c4nary-0123456789"}))
	if err != nil {
		t.Fatal(err)
	}
	a = &Asker{tty: tty, streams: stdio.New(nil, io.Discard, io.Discard, func() *sink.Secrets { return secrets }), cfg: &Configuration{Config: &config.Config{}}}
	a.ctx, a.end = context.WithCancel(t.Context())
	t.Cleanup(a.Close)
	return a, func() string {
		b, err := os.ReadFile(tty.Name())
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
}

// TestQuestionText: a session's words stay what they are in a question: no line, no control character, no
// direction of text and no secret of theirs is on the terminal, and each is bounded.
func TestQuestionText(t *testing.T) {
	t.Parallel()
	a, _ := askerOn(t)
	q := sandbox.NetworkQuestion{Host: "h.example", Port: 443, Method: "GET", Path: "/x", Command: "curl h.example", Rule: "GET h.example:443/x"}
	const want = "\r\x1b[Ksandboxbash: the session wants to reach h.example:443\n  request  GET /x\n  command  curl h.example\n  rule     GET h.example:443/x\n"
	if got := a.text(q); got != want {
		t.Errorf("%q; want %q", got, want)
	}
	if got := a.text(sandbox.NetworkQuestion{Host: "h.example", Port: 22, Rule: "h.example:22"}); strings.Contains(got, "request") || strings.Contains(got, "command") {
		t.Errorf("%q; want no rows without a value", got)
	}
	for _, hostile := range []string{
		"a\n  rule     harmless.example", "a\r\x1b[2Kallowed", "a\x1b]0;title\x07", "a\u202eb", "token=c4nary-0123456789", strings.Repeat("é", 5000), "a\u2028b", "\xff\xfe",
	} {
		got := strings.TrimPrefix(a.text(sandbox.NetworkQuestion{Host: "h", Port: 1, Path: hostile, Command: hostile, Rule: "h:1"}), "\r\x1b[K")
		if strings.Count(got, "\n") != 4 || strings.ContainsAny(got, "\x1b\r\x07\u202e\u2028") || strings.Contains(got, "c4nary") || !utf8.ValidString(got) {
			t.Errorf("%q becomes %q", hostile, got)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(line); n > 81 {
				t.Errorf("%.40q: a line has %d characters", hostile, n)
			}
		}
	}
	long := a.plain("start" + strings.Repeat("x", 200) + "end")
	if !strings.HasPrefix(long, "startxxx") || !strings.HasSuffix(long, "xxxend") || !strings.Contains(long, "...") {
		t.Errorf("%q; want the start and the end", long)
	}
}

// TestQuestionEnded: a question whose session has ended, or whose call has, is a no that writes nothing.
func TestQuestionEnded(t *testing.T) {
	t.Parallel()
	a, screen := askerOn(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := a.Ask(ended, sandbox.NetworkQuestion{Host: "h", Port: 1}); got.Scope != "" || got.By != "terminal" {
		t.Errorf("Ask = %+v; want a no", got)
	}
	var none *Asker
	spec, err := none.Asking(sandbox.Spec{})
	if err != nil || spec.AskNetwork != nil {
		t.Errorf("without an Asker something asks: %v, %v", spec.AskNetwork != nil, err)
	}
	if got := screen(); got != "" {
		t.Errorf("the terminal has %q", got)
	}
}

// TestNotesOfWorkspaces: what people read of workspaces that are kept and removed.
func TestNotesOfWorkspaces(t *testing.T) {
	t.Parallel()
	p, errs, err := loaded(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Cfg.Keep.Count, p.Cfg.Keep.Disk = 3, 1<<30
	until := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	size := int64(1536)
	info := sandbox.Info{ID: "s1", Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceVolume}, Kept: &sandbox.Kept{Until: until, Bytes: &size}}
	for why, want := range map[sandbox.Dropped]string{
		sandbox.DroppedAge:   "it was kept until " + until.Local().Format(time.RFC3339) + " (keep.for)",
		sandbox.DroppedCount: "no more than the newest 3 are kept (keep.count)",
		sandbox.DroppedDisk:  "together they may take 1GiB (keep.disk)",
	} {
		errs.Reset()
		p.Notes.dropped(info, why)
		if got := noted(t, p, errs); !strings.Contains(got, "removed the kept workspace of session s1 (volume, 1.5KiB): "+want) {
			t.Errorf("%s: %q; want %q", why, got, want)
		}
	}
	errs.Reset()
	info.Kept.Bytes = nil
	p.Notes.Kept(info)
	if got := noted(t, p, errs); !strings.Contains(got, "(volume, of unknown size)") || !strings.Contains(got, "`sandboxbash session pull s1:. DIR`") {
		t.Errorf("%q", got)
	}
	errs.Reset()
	p.Notes.Listed("left out: ", nil)
	p.Notes.Listed("left out: ", strings.Fields("a b c d e f g h i j k l"))
	if got := noted(t, p, errs); strings.Count(got, "left out") != 1 || !strings.Contains(got, "left out: a, b, c, d, e, f, g, h, i, j and 2 more\n") {
		t.Errorf("%q", got)
	}
}

// noted is what was printed of the notes.
func noted(t *testing.T, p *Parts, errs *bytes.Buffer) string {
	t.Helper()
	if err := p.Streams.EndMasked(); err != nil {
		t.Error(err)
	}
	return errs.String()
}

// TestIdle: an interceptor none of whose rules applies is said to be one, with the tools it would need.
func TestIdle(t *testing.T) {
	t.Parallel()
	rules := []policy.Rule{{Tool: "read"}, {Tool: "grep"}, {Tool: "read"}}
	for _, tt := range []struct {
		o    policy.Options
		want string
	}{
		{policy.Options{}, ""},
		{policy.Options{Rules: rules, Tools: []string{"grep"}}, ""},
		{policy.Options{Rules: rules}, "policy.tools names none of read, grep"},
		{policy.Options{Rules: rules, Tools: []string{"Read"}}, "policy.tools names none of read, grep"},
	} {
		if got := Idle(tt.o); (got == "") != (tt.want == "") || !strings.HasSuffix(got, tt.want) {
			t.Errorf("Idle(%+v) = %q; want %q", tt.o, got, tt.want)
		}
	}
}

// TestParseForwards: each argument is read, and the fault of one is wrong use.
func TestParseForwards(t *testing.T) {
	t.Parallel()
	all, err := ParseForwards([]string{"8080:80", "3000"})
	if err != nil || len(all) != 2 || all[0].Port != 80 || all[1].Port != 3000 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, bad := range []string{"", "x", "1:2:3:4", "80:0", "80:65536", "-1"} {
		if all, err := ParseForwards([]string{"3000", bad}); err == nil || all != nil {
			t.Errorf("ParseForwards(%q) = %+v, %v; want an error alone", bad, all, err)
		}
	}
}
