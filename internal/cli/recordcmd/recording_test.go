package recordcmd

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sink"
)

const canary = "c4nary-0123456789"

// hostile is output that would break out of each format.
const hostile = "</pre></code><script>alert(1)</script>\n````\n```\n</details>\n\x1b]52;c;aGk=\x07\x1b[31mred\x1b[0m\xff" + canary + "\n"

// made is a recording of a session in which all kinds of things have happened.
func made(t *testing.T) (*recording, *sink.Secrets) {
	t.Helper()
	secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "CANARY", Value: canary}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := journal.NewWriter(dir, journal.Options{})
	const id = "0193e2b0-1111-7000-8000-000000000001"
	w.Describe(id, func() journal.Session { return journal.Session{Name: "web", Image: "debian"} })
	at := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	put := func(r journal.Record) {
		at = at.Add(1500 * time.Millisecond)
		r.Time = at
		w.Put(id, r, nil)
	}
	zero, one := 0, 1
	put(journal.Record{Kind: journal.SessionStart})
	put(journal.Record{Kind: journal.Start, ID: "a", Mode: "command", Dir: "/workspace", Command: "echo '<b>' `x` & \"q\"\nsecond line"})
	put(journal.Record{Kind: journal.Output, ID: "a", Stream: journal.Stdout, Data: []byte("10%\r20%\r\n")})
	put(journal.Record{Kind: journal.Output, ID: "a", Stream: journal.Stderr, Data: []byte(hostile), Skipped: 99})
	put(journal.Record{Kind: journal.End, ID: "a", Reason: "exited", Code: &one})
	put(journal.Record{Kind: journal.Denied, Command: "rm -rf /", Policy: &audit.Policy{Verdict: "deny", Rule: "rm", Reason: "no"}})
	put(journal.Record{Kind: journal.Start, ID: "t", Mode: "terminal", Command: "top", Cols: 100, Rows: 30})
	put(journal.Record{Kind: journal.Output, ID: "t", Stream: journal.Terminal, Data: []byte("\x1b[2Jtop \xe2\x82")})
	put(journal.Record{Kind: journal.Output, ID: "t", Stream: journal.Terminal, Data: []byte("\xac\r\n")})
	put(journal.Record{Kind: journal.Resize, ID: "t", Cols: 120, Rows: 40})
	put(journal.Record{Kind: journal.End, ID: "t", Reason: "exited", Code: &zero})
	put(journal.Record{Kind: journal.Start, ID: "p", Mode: "push", Command: `"a" "/workspace/a"`})
	put(journal.Record{Kind: journal.End, ID: "p", Reason: "copied"})
	put(journal.Record{Kind: journal.Connection, Network: json.RawMessage(`{"host":"example.com","port":443,"allowed":false,"why":"no rule"}`)})
	put(journal.Record{Kind: journal.Lost, Lost: 3})
	w.Close()
	d := journal.Open(dir)
	s, err := d.Session(id)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := load(d, s)
	if err != nil {
		t.Fatal(err)
	}
	return rec, secrets
}

func TestItems(t *testing.T) {
	t.Parallel()
	rec, secrets := made(t)
	if len(rec.items) != 7 {
		t.Fatalf("%d items; want 7", len(rec.items))
	}
	for i, want := range []string{"", "exit 1, 4.5s", "denied by rm: no", "exit 0, 6s", "copied, 1.5s"} {
		if got := rec.items[i].outcome(); i > 0 && got != want {
			t.Errorf("outcome of item %d = %q; want %q", i, got, want)
		}
	}
	if got := rec.items[5].about(); got != "network: refused example.com:443: no rule" {
		t.Errorf("about() = %q", got)
	}
	parts := rec.items[1].parts(secrets)
	if len(parts) != 3 || parts[0].text != "20%\n" || parts[1].skipped != 99 || strings.ContainsAny(parts[2].text, "\x1b\x07") || strings.Contains(parts[2].text, canary) {
		t.Errorf("parts() = %+v", parts)
	}
	rec.keep(time.Time{}, 2)
	if len(rec.items) != 5 || rec.items[0].Kind != journal.Denied {
		t.Errorf("keep(2) keeps %d items; want 5, from the refusal on", len(rec.items))
	}
	rec.keep(rec.items[1].Time, 0)
	if len(rec.items) != 4 {
		t.Errorf("keep since the second keeps %d items; want 4", len(rec.items))
	}
}

// Output is text in the page, never markup; the page names nothing outside itself.
func TestHTML(t *testing.T) {
	t.Parallel()
	rec, secrets := made(t)
	var b bytes.Buffer
	if err := writeHTML(&b, rec, secrets); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if n := strings.Count(page, "<script>"); n != 1 {
		t.Errorf("%d scripts; want the page's own alone", n)
	}
	if n := strings.Count(page, "</details>"); n != 3 {
		t.Errorf("%d ends of details; want 3", n)
	}
	for _, want := range []string{"&lt;script&gt;alert(1)", "&lt;b&gt;", "[REDACTED:CANARY]", "default-src 'none'", "99 bytes are left out", "denied by rm"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{canary, "<b>", "src=\"", "href=", "http://", "https://", "\x1b"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

// Output cannot end its fence, and a command cannot end its summary.
func TestMarkdown(t *testing.T) {
	t.Parallel()
	rec, secrets := made(t)
	var b bytes.Buffer
	if err := writeMarkdown(&b, rec, secrets); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	fence, depth := "", 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		run := len(line) - len(strings.TrimLeft(line, "`"))
		switch {
		case fence == "" && run >= 3:
			fence = line[:run]
		case fence != "" && line == fence:
			fence = ""
		case fence == "":
			depth += strings.Count(line, "<details>") - strings.Count(line, "</details>")
			if strings.Contains(line, "<script>") || strings.Contains(line, "<b>") {
				t.Errorf("outside of a fence: %q", line)
			}
		}
	}
	if fence != "" || depth != 0 {
		t.Errorf("the fence %q is open, and %d details:\n%s", fence, depth, text)
	}
	if strings.Contains(text, canary) || !strings.Contains(text, "3 commands, 2 of them failed") {
		t.Errorf("the text is\n%s", text)
	}
	big := &recording{items: slices.Repeat(rec.items, 2000)}
	b.Reset()
	if err := writeMarkdown(&b, big, secrets); err != nil || b.Len() > 65_000 || !strings.Contains(b.String(), "more entries are left out") {
		t.Errorf("%d bytes, %v; want less than a pull request takes", b.Len(), err)
	}
}

// Both versions have what their format asks for, and are read again as they were.
func TestCast(t *testing.T) {
	t.Parallel()
	rec, secrets := made(t)
	c := newCast(rec, secrets)
	c.idle = 2 * time.Second
	for version := 2; version <= 3; version++ {
		var b bytes.Buffer
		if err := c.write(&b, version); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), canary) {
			t.Errorf("version %d has the secret", version)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		var head map[string]any
		if err := json.Unmarshal([]byte(lines[0]), &head); err != nil || head["version"] != float64(version) {
			t.Fatalf("header %s: %v", lines[0], err)
		}
		if version == 2 && (head["width"] != 100.0 || head["height"] != 30.0) {
			t.Errorf("header %s: want 100 by 30", lines[0])
		}
		if term, _ := head["term"].(map[string]any); version == 3 && (term["cols"] != 100.0 || term["rows"] != 30.0) {
			t.Errorf("header %s: want 100 by 30", lines[0])
		}
		last := 0.0
		for _, line := range lines[1:] {
			var e []any
			if err := json.Unmarshal([]byte(line), &e); err != nil || len(e) != 3 {
				t.Fatalf("event %s: %v; want an array of three", line, err)
			}
			at, number := e[0].(float64)
			code, word := e[1].(string)
			_, text := e[2].(string)
			if !number || !word || !text || !strings.Contains("o m r", code) || at < 0 || version == 2 && at < last {
				t.Errorf("event %s", line)
			}
			last = at
		}
		again, err := readCast(&b)
		if err != nil {
			t.Fatal(err)
		}
		if again.cols != 100 || again.idle != c.idle || len(again.events) != len(c.events) {
			t.Errorf("read again: %d by %d, idle %v, %d events; want %d", again.cols, again.rows, again.idle, len(again.events), len(c.events))
		}
		for i, e := range again.events {
			if e.code != c.events[i].code || e.data != c.events[i].data || (e.at-c.events[i].at).Abs() > time.Millisecond {
				t.Errorf("event %d = %+v; want %+v", i, e, c.events[i])
			}
		}
	}
	var all string
	for _, e := range c.events {
		if e.code == "o" {
			all += e.data
		}
	}
	if !strings.Contains(all, "top €\r\n") {
		t.Errorf("a character that was cut is %q", all)
	}
	for _, bad := range []string{"", "x", `{"version":1}`, "{\"version\":2,\"width\":1,\"height\":1}\n{}"} {
		if _, err := readCast(strings.NewReader(bad)); err == nil {
			t.Errorf("readCast(%q) = nil; want an error", bad)
		}
	}
}

// What draws passes, and what asks or tells the terminal something else does not, wherever it is cut.
func TestTame(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in, want string }{
		{"text", "a\tb\r\nü", "a\tb\r\nü"},
		{"colours", "\x1b[1;31mred\x1b[m", "\x1b[1;31mred\x1b[m"},
		{"cursor", "\x1b[2J\x1b[H\x1b7\x1b8\x1bM\x1b(B\x1b[?25l\x1b[2 q", "\x1b[2J\x1b[H\x1b7\x1b8\x1bM\x1b(B\x1b[?25l\x1b[2 q"},
		{"clipboard and title", "a\x1b]52;c;eA==\x07b\x1b]0;t\x1b\\c", "abc"},
		{"device control", "a\x1bP$qm\x1b\\b\x1b_x\x1b\\c\x1b^x\x1b\\d", "abcd"},
		{"queries", "a\x1b[c\x1b[6n\x1b[>c\x1b[18t\x1bZ\x1b[?1$p\x1b[>q\x05b", "ab"},
		{"reports", "a\x1b[?1000h\x1b[?1006h\x1b[?2004hb\x1b[?1049h", "ab\x1b[?1049h"},
		{"bell", "a\x07b\x7f", "ab"},
	} {
		for cut := range len(test.in) + 1 {
			var f tamer
			got := string(f.tame([]byte(test.in[:cut]))) + string(f.tame([]byte(test.in[cut:])))
			if got != test.want {
				t.Errorf("%s, cut at %d: %q; want %q", test.name, cut, got, test.want)
			}
		}
	}
}

// A replay takes its time, faster and with shorter pauses if asked to, and leaves the terminal as it was.
func TestPlay(t *testing.T) {
	t.Parallel()
	c := &cast{events: []event{{0, "o", "a"}, {time.Millisecond, "m", "x"}, {time.Hour, "o", "b"}}}
	var b bytes.Buffer
	if err := c.play(t.Context(), &b, 1000, 10*time.Millisecond); err != nil || b.String() != "ab"+restore {
		t.Errorf("play() = %v with %q", err, b.String())
	}
}
