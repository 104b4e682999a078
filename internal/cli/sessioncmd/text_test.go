package sessioncmd

import (
	"bytes"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Connections are rows that fit 80 characters, and what is said below them too. The head comes once.
func TestRecordTable(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	var out bytes.Buffer
	p := core.New("", []string{"X_TOKEN=c4nary-0123456789"}, nil, &out, io.Discard)
	table := recordTable{streams: p.Streams}
	long := strings.Repeat("very-long-name.", 8) + "example.com"
	for _, c := range []sandbox.Connection{
		{Time: at, Host: "example.com", Port: 443, Allowed: true, Rule: "example.com", Sent: 1_234, Received: 56_700_000},
		{Time: at, Host: long, Port: 443, Reason: "no-rule"},
		{Time: at, Host: "evil\x1b[2J\nallow", Allowed: true, Rule: strings.Repeat("r", 40), Method: "GET", Path: "/c4nary-0123456789/" + strings.Repeat("p", 200), Status: 502, Err: "reset"},
	} {
		if err := table.row(serve.LoggedConnection{Connection: c, Ms: 12_345}); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.Streams.EndMasked()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("a line of %d characters: %q", n, line)
		}
	}
	var cells [][]string
	for _, line := range lines {
		cells = append(cells, strings.Fields(line))
	}
	if len(cells) != 5 {
		t.Fatalf("the table is %q; want a head, three rows and a line below one", out.String())
	}
	for i, want := range [][]string{
		{"TIME", "TO", "SENT", "RECVD", "TOOK", "RULE"},
		{"03:04:05", "allow", "example.com:443", "1.23k", "56.7M", "12s", "example.c…"},
		{"03:04:05", "deny", long[:hostWidth-1] + "…", "0", "0", "12s", "no-rule"},
	} {
		if diff := cmp.Diff(want, cells[i]); diff != "" {
			t.Errorf("line %d (-want +got):\n%s", i, diff)
		}
	}
	if text := out.String(); strings.Contains(text, "c4nary") || strings.Contains(text, "\x1b") || !strings.Contains(text, `evil\x1b[2J\nallow`) {
		t.Errorf("the table is %q; want names in their rows, and no secret", text)
	}
}

func TestRecordJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := core.New("", nil, nil, &out, io.Discard)
	table := recordTable{streams: p.Streams, json: true}
	for range 2 {
		if err := table.row(serve.LoggedConnection{Connection: sandbox.Connection{Host: strings.Repeat("h", 100), Port: 1}, Ms: 7}); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.Streams.EndMasked()
	if text := out.String(); strings.Count(text, "\n") != 2 || strings.Count(text, strings.Repeat("h", 100)) != 2 || strings.Contains(text, "TIME") {
		t.Errorf("it prints %q; want two objects, and nothing shortened", text)
	}
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1k", 1234567: "1.23M", 5_000_000_000: "5G"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q; want %q", n, got, want)
		}
	}
	for ms, want := range map[int64]string{0: "0ms", 9_999: "9999ms", 10_000: "10s", 61_500: "61s"} {
		if got := took(ms); got != want {
			t.Errorf("took(%d) = %q; want %q", ms, got, want)
		}
	}
	for owner, want := range map[string]string{"h/12/b": "process 12 on host h", "other": "other", "": ""} {
		if got := ownerText(owner); got != want {
			t.Errorf("ownerText(%q) = %q; want %q", owner, got, want)
		}
	}
}

// Rules are shown one a line, and nothing with --quiet. Notes are told in both forms.
func TestPrintRules(t *testing.T) {
	t.Parallel()
	rules := serve.NetworkRules{Allow: []string{"a.example", "b.example"}, Deny: []string{"c.example"}, Notes: []string{"a note"}}
	for _, test := range []struct {
		json, quiet bool
		out, errs   string
	}{
		{false, false, "allow  a.example\nallow  b.example\ndeny   c.example\n", "sandboxbash: note: a note\n"},
		{false, true, "", ""},
	} {
		var out, errs bytes.Buffer
		p := core.New("", nil, nil, &out, &errs)
		p.Cfg.Config = &config.Config{JSON: test.json, Quiet: test.quiet}
		a := &networks{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}
		if err := a.printRules("0199", rules); err != nil {
			t.Fatal(err)
		}
		_ = p.Streams.EndMasked()
		if out.String() != test.out || errs.String() != test.errs {
			t.Errorf("json %t, quiet %t: printRules() prints %q, %q; want %q, %q", test.json, test.quiet, out.String(), errs.String(), test.out, test.errs)
		}
	}
}

// A file of a diff has the headers that git writes, whatever its name and its lines hold.
func TestDiffText(t *testing.T) {
	t.Parallel()
	file := func(mode fs.FileMode, target string) *sandbox.FileState {
		return &sandbox.FileState{Mode: mode, Target: target}
	}
	p := core.New("", []string{"X_TOKEN=c4nary-0123456789"}, nil, io.Discard, io.Discard)
	d := &differ{files: &files{streams: p.Streams, cfg: p.Cfg}}
	for _, test := range []struct {
		name string
		f    sandbox.FileDiff
		want string
	}{
		{
			"new",
			sandbox.FileDiff{Change: sandbox.Change{Path: "a"}, Now: file(0o644, ""), Hunks: []byte("@@ -0,0 +1 @@\n+x\n")},
			"diff a/a b/a\nnew file mode 100644\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n",
		},
		{
			"deleted",
			sandbox.FileDiff{Change: sandbox.Change{Path: "a"}, Was: file(0o755, ""), Hunks: []byte("@@ -1 +0,0 @@\n-x\n")},
			"diff a/a b/a\ndeleted file mode 100755\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
		},
		{"another mode", sandbox.FileDiff{Change: sandbox.Change{Path: "a"}, Was: file(0o644, ""), Now: file(0o755, "")}, "diff a/a b/a\nold mode 100644\nnew mode 100755\n"},
		{
			"a link",
			sandbox.FileDiff{Change: sandbox.Change{Path: "a"}, Was: file(0o644, ""), Now: file(fs.ModeSymlink|0o777, "b\nc")},
			"diff a/a b/a\nold mode 100644\nnew mode 120000\nlink from  to b\\nc\n",
		},
		{"binary", sandbox.FileDiff{Change: sandbox.Change{Path: "a"}, Was: file(0o644, ""), Now: file(0o644, ""), Note: "binary"}, "diff a/a b/a\n(binary)\n"},
		{
			"hostile",
			sandbox.FileDiff{Change: sandbox.Change{Path: "a\n+++ b"}, Was: file(0o644, ""), Now: file(0o644, ""), Hunks: []byte("@@ -1 +1 @@\n-\x1b[8mhidden\n+c4nary-0123456789\r\n")},
			"diff a/a\\n+++ b b/a\\n+++ b\n--- a/a\\n+++ b\n+++ b/a\\n+++ b\n@@ -1 +1 @@\n-\\x1b[8mhidden\n+[REDACTED:X_TOKEN]\\x0d\n",
		},
	} {
		if diff := cmp.Diff(test.want, d.text(test.f)); diff != "" {
			t.Errorf("%s: text() (-want +got):\n%s", test.name, diff)
		}
	}
}

// Each kind of line has its colour on a terminal, and lines are not changed elsewhere.
func TestPainter(t *testing.T) {
	t.Parallel()
	const text = "diff a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n"
	const want = "\x1b[1mdiff a/x b/x\x1b[m\n\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n\x1b[36m@@ -1,2 +1,2 @@\x1b[m\n same\n\x1b[31m-old\x1b[m\n\x1b[32m+new\x1b[m\n"
	if got := (painter{on: true}).lines(text); got != want {
		t.Errorf("lines() = %q; want %q", got, want)
	}
	if got := (painter{}).lines(text); got != text {
		t.Errorf("lines() off a terminal = %q; want what it was given", got)
	}
}

// --stat counts the lines of a file, or says why they are not counted.
func TestCounted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := core.New("", nil, nil, &out, io.Discard)
	d := &differ{files: &files{streams: p.Streams, cfg: p.Cfg}}
	for _, f := range []sandbox.FileDiff{{Change: sandbox.Change{Path: "a\nb"}, Added: 3, Removed: 1}, {Change: sandbox.Change{Path: "c"}, Note: "binary", Added: 9}} {
		if err := d.counted(f.Path, f.Added, f.Removed, f.Note); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.Streams.EndMasked()
	if want := "a\\nb | +3 -1\nc | binary\n"; out.String() != want {
		t.Errorf("counted() prints %q; want %q", out.String(), want)
	}
}

// Names alone are shown with --name-only, and nothing of the repository.
func TestNamesOnly(t *testing.T) {
	t.Parallel()
	changes := []sandbox.Change{{Path: "a", Kind: "added"}, {Path: "b\n", Kind: "modified", By: sandbox.ChangedByBoth}}
	for names, want := range map[bool]string{true: "a\nb\\n\n", false: "A a\nM b\\n (both)\n"} {
		var out bytes.Buffer
		p := core.New("", nil, nil, &out, io.Discard)
		p.Cfg.Config = &config.Config{}
		d := &differ{files: &files{streams: p.Streams, cfg: p.Cfg}, names: names}
		if err := d.list(changes); err != nil {
			t.Fatal(err)
		}
		_ = p.Streams.EndMasked()
		if out.String() != want {
			t.Errorf("names alone %t: list() prints %q; want %q", names, out.String(), want)
		}
	}
}
