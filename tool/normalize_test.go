package tool

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
)

func TestNormalizeCorpus(t *testing.T) {
	t.Parallel()
	type row struct {
		Command     string  `json:"command"`
		CwdGiven    *string `json:"cwd_given"`
		OutCommand  string  `json:"out_command"`
		Cwd         *string `json:"cwd"`
		Recommended *struct {
			OutCommand string  `json:"out_command"`
			Cwd        *string `json:"cwd"`
		} `json:"recommended"`
		Head     *int64   `json:"head"`
		Tail     *int64   `json:"tail"`
		ArgHead  *int64   `json:"arg_head"`
		ArgTail  *int64   `json:"arg_tail"`
		Text     string   `json:"text"`
		OutText  string   `json:"out_text"`
		Applied  bool     `json:"applied"`
		Stripped []string `json:"stripped"`
	}
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	plan := func(t *testing.T, r row, set func(*Settings)) Plan {
		t.Helper()
		fields := map[string]any{"command": r.Command}
		if r.CwdGiven != nil {
			fields["cwd"] = *r.CwdGiven
		}
		if r.ArgHead != nil {
			fields["head"] = *r.ArgHead
		}
		if r.ArgTail != nil {
			fields["tail"] = *r.ArgTail
		}
		h := defaultHost()
		h.URLs.Skills = []Skill{{Name: "x", Dir: "/x"}} // rows with URLs are not about them
		if set != nil {
			set(&h.Settings)
		}
		var p Plan
		in, err := parseAgent(corpus.Arguments(t, fields))
		if err != nil {
			t.Fatal(err)
		}
		p.Command, p.Dir, p.Head, p.Tail = in.command, in.cwd, in.head, in.tail
		p.normalise(h.Settings)
		return p
	}
	checks := map[string]func(*testing.T, row){
		"cd": func(t *testing.T, r row) {
			t.Helper()
			command, dir := r.OutCommand, r.Cwd
			if r.Recommended != nil {
				command, dir = r.Recommended.OutCommand, r.Recommended.Cwd
			}
			want := ""
			if dir != nil {
				want = *dir
			}
			if p := plan(t, r, nil); p.Command != command || p.Dir != want {
				t.Errorf("%q becomes %q in %q; want %q in %q", r.Command, p.Command, p.Dir, command, want)
			}
		},
		"headtail": func(t *testing.T, r row) {
			t.Helper()
			command, head, tail := ExtractHeadTail(r.Command)
			if command != r.OutCommand || !same(head, r.Head) || !same(tail, r.Tail) {
				t.Errorf("ExtractHeadTail(%q) = %q, %v, %v; want %q, %v, %v", r.Command, command, head, tail, r.OutCommand, r.Head, r.Tail)
			}
		},
		"apply": func(t *testing.T, r row) {
			t.Helper()
			if text, applied := applyHeadTail(r.Text, r.Head, r.Tail); text != r.OutText || applied != r.Applied {
				t.Errorf("applyHeadTail(%q, %v, %v) = %q, %v; want %q, %v", r.Text, r.Head, r.Tail, text, applied, r.OutText, r.Applied)
			}
		},
		"merge": func(t *testing.T, r row) {
			t.Helper()
			p := plan(t, r, func(s *Settings) { s.ExtractHeadTail = true })
			if p.Command != r.OutCommand || !same(p.Head, r.Head) || !same(p.Tail, r.Tail) {
				t.Errorf("%q becomes %q, %v, %v; want %q, %v, %v", r.Command, p.Command, p.Head, p.Tail, r.OutCommand, r.Head, r.Tail)
			}
		},
		"fixup": func(t *testing.T, r row) {
			t.Helper()
			if rest, stripped := StripHeadTail(r.Command); rest != r.OutCommand || !slices.Equal(stripped, r.Stripped) {
				t.Errorf("StripHeadTail(%q) = %q, %q; want %q, %q", r.Command, rest, stripped, r.OutCommand, r.Stripped)
			}
		},
	}
	// The rows of tier version are of the tokenizer that came later, by their field
	// recommended, and of the option to strip.
	none := func(corpus.Row) bool { return false }
	corpus.File{Path: "tool/testdata/normalize.jsonl", Ran: 114, Leave: none}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r row
		c.Into(t, &r)
		checks[c.Kind](t, r)
	})
}

func TestLeadingCd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		command, dir, rest string
	}{
		{`cd a"b c"'d'\ e && x`, "ab cd e", "x"},
		{`cd "a\"b\x" && x`, `a"b\x`, "x"},
		{`cd '' && x`, "", ""},
		{`cd 'a$b' && x`, "", ""},
		{`cd a\$b && x`, "", ""},
		{`cd "a (b)" && x`, "", ""},
		{"cd 'a\nb' && x", "", ""},
		{"cd a\\\nb && x", "", ""},
		{`cd "a && x`, "", ""},
		{`cd a\`, "", ""},
		{"cd a & x", "", ""},
		{"cd a; x && y", "", ""},
		{"cd a b && x", "", ""},
		{"cd a>b && x", "", ""},
		{"cd a # && x", "", ""},
		{"cd #a && x", "", ""},
		{"cda && x", "", ""},
		{"cd -P && x", "-P", "x"},
		{"cd ~/a && cd b && x", "~/a", "cd b && x"},
		{"cd é && x", "é", "x"},
	} {
		dir, rest, ok := LeadingCd(test.command)
		if want := test.dir != ""; ok != want || ok && (dir != test.dir || rest != test.rest) || !ok && rest != test.command {
			t.Errorf("LeadingCd(%q) = %q, %q, %v; want %q, %q, %v", test.command, dir, rest, ok, test.dir, test.rest, want)
		}
	}
}

func FuzzLeadingCd(f *testing.F) {
	for _, seed := range []string{"cd a && b", `cd "a\" b"'c' && d`, "cd\t\\\n&& x", "cd a|b && c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) {
		dir, rest, ok := LeadingCd(command)
		switch {
		case !ok && rest != command:
			t.Errorf("LeadingCd(%q) changes it to %q", command, rest)
		case ok && (dir == "" || strings.ContainsAny(dir, "$`(\n\r") || !strings.HasSuffix(command, rest) || len(dir) > len(command)):
			t.Errorf("LeadingCd(%q) = %q, %q", command, dir, rest)
		}
		stripped, parts := StripHeadTail(command)
		if len(stripped) > len(command) || len(parts) == 0 && stripped != command {
			t.Errorf("StripHeadTail(%q) = %q, %q", command, stripped, parts)
		}
		if again, _, _ := ExtractHeadTail(command); len(again) > len(command) || utf8.ValidString(command) && !utf8.ValidString(again) {
			t.Errorf("ExtractHeadTail(%q) = %q", command, again)
		}
	})
}
