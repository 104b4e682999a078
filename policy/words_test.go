package policy

import (
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// texts are the texts of words.
func texts(args []arg) []string {
	var out []string
	for _, a := range args {
		out = append(out, a.text)
	}
	return out
}

func TestSplitWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		want  []string
		known bool
	}{
		{"", nil, true},
		{" a  b\tc\n", []string{"a", "b", "c"}, true},
		{`'a b' "c d"`, []string{"a b", "c d"}, true},
		{`'a'"b"c`, []string{"abc"}, true},
		{`'' a ""`, []string{"", "a", ""}, true},
		{`a\ b \'`, []string{"a b", "'"}, true},
		{`'a\b' "a\"b"`, []string{`a\b`, `a"b`}, true},
		{`a\_b "a\_b"`, []string{"a_b", "a_b"}, true},
		{`a$b`, []string{"a$b"}, false},
		{`'a$b'`, []string{"a$b"}, true},
		{`'a b`, []string{"a b"}, true},
	} {
		got := splitWords(tt.text, 7)
		known := !slices.ContainsFunc(got, func(a arg) bool { return !a.known() })
		if !slices.Equal(texts(got), tt.want) || known != tt.known || len(got) > 0 && got[0].at != 7 {
			t.Errorf("splitWords(%q) = %q, known %v; want %q, %v", tt.text, texts(got), known, tt.want, tt.known)
		}
	}
}

// TestSplitEnv has what coreutils 9.1 makes of each text; package bashtest asks env itself.
func TestSplitEnv(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		want  []string
		known bool
	}{
		{"", nil, true},
		{" a\vb\fc\rd\te\n", []string{"a", "b", "c", "d", "e"}, true},
		{`'a b' "c d" '' "" e'f'"g"`, []string{"a b", "c d", "", "", "efg"}, true},
		{`a\_b "a\_b" 'a\_b'`, []string{"a", "b", "a b", `a\_b`}, true},
		{`'a\'b\\c\n"' "a'\"b"`, []string{`a'b\c\n"`, `a'"b`}, true},
		{`a\nb\tc\vd\fe\rf "\n"`, []string{"a\nb\tc\vd\fe\rf", "\n"}, true},
		{`a b\cc d`, []string{"a", "b"}, true},
		{`a 'b\cc'`, []string{"a", `b\cc`}, true},
		{`a #b c`, []string{"a"}, true},
		{`a\_#b c`, []string{"a"}, true},
		{`a#b "#c" ""#d \#e`, []string{"a#b", "#c", "#d", "#e"}, true},
		{`\$a \"b '${c}'`, []string{"$a", `"b`, "${c}"}, true},
		{"${HOME}/a", []string{"${HOME}/a"}, true},
		{"a${b}c", []string{"a${b}c"}, false},
		{`"${b} c"`, []string{"${b} c"}, false},
		{"$a ${b", []string{"$a", "${b"}, false},
		{`a\`, []string{`a\`}, true},
	} {
		got := splitEnv(lit(tt.text, 7))
		known := !slices.ContainsFunc(got, func(a arg) bool { return !a.known() })
		if !slices.Equal(texts(got), tt.want) || known != tt.known || len(got) > 0 && got[0].at != 7 {
			t.Errorf("splitEnv(%q) = %q, known %v; want %q, %v", tt.text, texts(got), known, tt.want, tt.known)
		}
	}
}

// Quoting a word and reading it again gives the same word.
func TestQuoteArg(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "a b", "it's", `"`, `\`, "$x", "a\nb", "*"} {
		if got := splitWords(quoteArg(lit(text, 0)), 0); len(got) != 1 || !got[0].is(text) {
			t.Errorf("quoteArg(%q) = %s, which is read as %q", text, quoteArg(lit(text, 0)), texts(got))
		}
	}
	a := makeArg([]part{{kind: home, text: "~"}, {text: "/a'"}, {kind: glob, text: "*"}, {kind: unknown, text: "$x"}}, 0)
	if got, want := quoteArg(a), `${HOME}'/a'\'''*`+madeAtRunTime; got != want {
		t.Errorf("quoteArg() = %s; want %s", got, want)
	}
}

func TestMakeArg(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		parts   []part
		text    string
		literal bool
		lead    string
		kept    int
	}{
		{[]part{{text: "a"}}, "a", true, "a", 0},
		{[]part{{text: "a"}, {text: ""}, {text: "b"}}, "ab", true, "ab", 0},
		{[]part{{text: "a"}, {text: "b"}, {kind: unknown, text: "$x"}, {text: "c"}, {text: "d"}}, "ab$xcd", false, "ab", 3},
		{[]part{{kind: glob, text: "*"}, {text: "a"}}, "*a", false, "", 2},
		{[]part{{kind: home, text: "~"}}, "~", false, "", 1},
	} {
		a := makeArg(tt.parts, 3)
		if _, literal := a.literal(); a.text != tt.text || literal != tt.literal || a.lead() != tt.lead || len(a.parts) != tt.kept || a.at != 3 {
			t.Errorf("makeArg(%v) = %+v with lead %q; want %q, literal %v, lead %q, %d parts", tt.parts, a, a.lead(), tt.text, tt.literal, tt.lead, tt.kept)
		}
	}
	a := makeArg([]part{{text: "x="}, {kind: unknown, text: "$y"}}, 0)
	name, value, ok := a.cut("=")
	if name != "x" || value.text != "$y" || value.known() || !ok {
		t.Errorf("cut(=) = %q, %+v, %v; want x and an unknown value", name, value, ok)
	}
	if _, _, ok := makeArg([]part{{kind: unknown, text: "$y=x"}}, 0).cut("="); ok {
		t.Error("cut(=) finds a = in the source of what is not known")
	}
}

func TestGrammar(t *testing.T) {
	t.Parallel()
	g := grammar{short: "ab:c?", long: "alpha beta= gamma? better="}
	for _, tt := range []struct {
		line, given, rest, unknown string
		permuted                   bool
	}{
		{line: "-a x -a", given: "a=", rest: "x -a"},
		{line: "-a x -a", given: "a= a=", rest: "x", permuted: true},
		{line: "-ab x y", given: "a= b=x", rest: "y"},
		{line: "-abx y", given: "a= b=x", rest: "y"},
		{line: "-cx y", given: "c=x", rest: "y"},
		{line: "-c x", given: "c=", rest: "x"},
		{line: "-ca", given: "c=a"},
		{line: "--alpha --beta x --beta=y z", given: "alpha= beta=x beta=y", rest: "z"},
		{line: "--gamma x --gamma=y", given: "gamma=", rest: "x --gamma=y"},
		{line: "--al --bet x", given: "alpha= beta=x"},
		{line: "--bett x", given: "better=x"},
		{line: "-a -- -a", given: "a=", rest: "-a"},
		{line: "x -- -a", rest: "x -a", permuted: true},
		{line: "-z x", given: "z=", rest: "x", unknown: "-z"},
		{line: "--zeta=1 -y x", given: "zeta=1 y=", rest: "x", unknown: "--zeta=1"},
		{line: "- -a", rest: "- -a"},
		{line: "-b", given: "b="},
		{line: "--beta", given: "beta="},
		{line: "-:", given: ":=", unknown: "-:"},
	} {
		args := splitWords(tt.line, 0)
		o := g.parse(args)
		if tt.permuted {
			o = g.permuted(args)
		}
		var given []string
		for _, opt := range o.given {
			given = append(given, opt.name+"="+opt.value.text)
		}
		if got := strings.Join(given, " "); got != tt.given || strings.Join(texts(o.rest), " ") != tt.rest || o.unknown != tt.unknown {
			t.Errorf("parse(%s) = %q, rest %q, unknown %q; want %q, %q, %q", tt.line, got, texts(o.rest), o.unknown, tt.given, tt.rest, tt.unknown)
		}
	}
	if o := (grammar{short: "n:", number: true}).parse(splitWords("-15 x", 0)); len(o.given) != 1 || o.given[0].value.text != "15" {
		t.Errorf("parse(-15) = %+v; want n of 15", o.given)
	}
}

// TestCountNodes skips what separates no commands.
func TestCountNodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want int
	}{
		{"", 0},
		{"a", 0},
		{"a\n", 1},
		{"\n\n a\n\n", 1},
		{"a;b;c", 2},
		{"a && b", 2},
		{"(a) | b", 2},
		{"echo $x `a`", 3},
		{"'a;b$c'", 0},
		{`"a;b$c"`, 1},
		{`"\$c"`, 0},
		{`$'a\';b'`, 1},
		{`a\;b\$c`, 0},
		{"# a;b;$c", 0},
		{"a # b;c\nd;", 2},
		{"a#b;c", 1},
		{"cat <<E\na;b;c\nE\n", 1},
		{"cat <<E\n$a$b\nE\n", 3},
		{"cat <<'E'\n$a$b\nE\n", 1},
		{"cat <<-E\n\ta;b\n\tE\n", 1},
		{"cat <<<a;b", 1},
		{"cat <<E\na;b\nno end", 3},
	} {
		if got := countNodes(tt.text, 100); got != tt.want {
			t.Errorf("countNodes(%q) = %d; want %d", tt.text, got, tt.want)
		}
	}
	if got := countNodes(strings.Repeat(";", 100), 5); got != 6 {
		t.Errorf("countNodes() of 100 = %d; want it to stop after 5", got)
	}
}

func TestLoss(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dir, path string
		want      string
	}{
		{"", "/", "the root"},
		{"", "//./", "the root"},
		{"", "/a/..", "the root"},
		{"", "/a", ""},
		{"", ".git", ".git"},
		{"", "a/.git/", ".git"},
		{"", ".gitignore", ""},
		{"", ".git/x", ""},
		{"", ".g*", ".git, by a pattern"},
		{"", "?git", ".git, by a pattern"},
		{"", "a/?git", ""},
		{"", ".x*", ".git, by a pattern"},
		{"", ".[!x]*", ".git, by a pattern"},
		{"", ".g[!x]t", ".git, by a pattern"},
		{"", ".g[^x]t", ".git, by a pattern"},
		{"", ".g[!i]t", ""},
		{"", ".g[^i]t", ""},
		{"", ".[!.g]*", ".git, by a pattern"}, // as .x is
		{"", ".[!.gx]*", ""},
		{"", ".g[]i]t", ".git, by a pattern"},
		{"", ".g[!]]t", ".git, by a pattern"},
		{"", ".g[]x]t", ""},
		{"", ".[[:alpha:]]*", ".git, by a pattern"},
		{"", ".[[:lower:]]it", ".git, by a pattern"},
		{"", ".[![:upper:]]it", ".git, by a pattern"},
		{"", ".[[:upper:]]it", ""},
		{"", ".[[:digit:][:punct:]]it", ""},
		{"", ".g[i", ""},
		{"", "*", "everything there"},
		{"", "/*", "everything there"},
		{"", "../*", "everything there"},
		{"", "a/*", ""},
		{"", "a*", ""},
		{"", "..", "the directory above"},
		{"", "../..", "the directory above"},
		{"", "a/..", ""},
		{"", "../a", ""},
		{"", "~", "a home directory"},
		{"", "~/x", "a home directory"},
		{"", "~/*", "a home directory"},
		{"", "~/x/y", ""},
		{"", "~/.ssh/y", "a home directory"},
		{"", "~/x/../y", "a home directory"},
		{"", "~user", "a home directory"},
		{"/", ".", "the root"},
		{"/a", "..", "the root"},
		{"/a/b", "..", "the directory above"},
		{"~", ".", "a home directory"},
		{"~/x", "..", "a home directory"},
		{"~/x", "../..", "the directory above"},
	} {
		w := newWalker(newPolicy(t, Options{}), parse(""), nil)
		w.shell.dir = tt.dir
		p := syntax.NewParser()
		var words []arg
		for word, err := range p.WordsSeq(strings.NewReader(tt.path)) {
			if err != nil {
				t.Fatal(err)
			}
			words = w.fields(words, word)
		}
		if got := w.loss(words[0]); got != tt.want {
			t.Errorf("loss(%s in %q) = %q; want %q", tt.path, tt.dir, got, tt.want)
		}
	}
}

func TestAsItLooks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, want string
		odd        bool // as a command's name
	}{
		{"rm", "rm", false},
		{"r\u043c", "rm", true},
		{"\uff52\uff4d", "rm", true},
		{"\U0001d42b\U0001d426", "rm", true},
		{"r\u200bm", "rm", true},
		{"rm\u202e", "rm", true},
		{"\u2212rf", "-rf", true},
		{"r\x01m", "rm", true},
		{"\u0440\u0443\u0441\u0441\u043a\u0438\u0439", "pycck\u0438\u0439", false}, // a word of that alphabet
		{"\u00e9t\u00e9", "\u00e9t\u00e9", false},
	} {
		if got := strings.Map(asItLooks, tt.text); got != tt.want || hasOdd(tt.text, true) != tt.odd {
			t.Errorf("%q looks like %q, odd %v; want %q, %v", tt.text, got, hasOdd(tt.text, true), tt.want, tt.odd)
		}
	}
	if hasOdd("r\u043c", false) {
		t.Error("a letter of another alphabet is odd in an operand")
	}
}

// TestBudget stops at each limit, and says the first.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		use  func(b *budget) bool
		most int
		over *limit
	}{
		{"steps", (*budget).step, maxSteps, tooBusy},
		{"words", func(b *budget) bool { return b.wordy(1000) }, maxArgs / 1000, tooWordy},
		{"bytes", func(b *budget) bool { return b.spend(1 << 10) }, maxScript >> 10, tooLong},
	} {
		var b budget
		for n := range tt.most {
			if !tt.use(&b) {
				t.Fatalf("%s: stopped after %d by %v; want %d", tt.name, n, b.over, tt.most)
			}
		}
		if tt.use(&b) || b.over != tt.over {
			t.Errorf("%s: over = %v after %d; want %v", tt.name, b.over, tt.most+1, tt.over)
		}
		if b.stop(tooDeep); b.over != tt.over {
			t.Errorf("%s: over = %v after another limit; want the first, %v", tt.name, b.over, tt.over)
		}
	}
}
