package policy

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// kind is what is known of a part of a word.
type kind uint8

const (
	literal kind = iota // its text is known
	glob                // it is a pattern: unquoted * ? [], or an extended pattern
	home                // it is a home directory
	unknown             // it is made at run time, and is a part of one word
	split               // it is made at run time, without quotes: it may be none, one or many words
	gap                 // not a part: a word ends here and another begins
	brace               // unquoted text whose braces are still to be expanded
)

// part is a part of a word.
type part struct {
	kind kind
	text string // the source of what is not known
	node syntax.WordPart
}

// arg is a word of a command in its canonical form, after all expansions.
type arg struct {
	text  string // all of it, with the source of what is not known
	parts []part // nil if all is literal
	at    int    // its offset in the outermost script
	// byVar says that a part is the value of a variable that the script assigns once.
	byVar bool
}

// literal returns the word's text, if it is known.
func (a arg) literal() (string, bool) { return a.text, a.parts == nil }

// is reports whether the word is known to be s.
func (a arg) is(s string) bool { return a.parts == nil && a.text == s }

// known reports whether no part of the word is made at run time.
func (a arg) known() bool {
	for _, p := range a.parts {
		if p.kind == unknown || p.kind == split {
			return false
		}
	}
	return true
}

// all returns the parts of the word, known or not.
func (a arg) all() []part {
	if a.parts == nil {
		return []part{{text: a.text}}
	}
	return a.parts
}

// isPattern reports whether the word names files by a pattern.
func (a arg) isPattern() bool {
	for _, p := range a.parts {
		if p.kind == glob {
			return true
		}
	}
	return false
}

// from returns the word without its first n bytes, which must be literal.
func (a arg) from(n int) arg {
	b := arg{text: a.text[n:], at: a.at, byVar: a.byVar}
	if a.parts != nil {
		first := a.parts[0]
		first.text = first.text[n:]
		b.parts = append([]part{first}, a.parts[1:]...)
	}
	return b
}

// lead returns the literal text that the word begins with.
func (a arg) lead() string {
	if a.parts == nil {
		return a.text
	}
	if a.parts[0].kind != literal {
		return ""
	}
	return a.parts[0].text
}

// cut splits the word at the first sep of its literal beginning.
func (a arg) cut(sep string) (before string, after arg, ok bool) {
	i := strings.Index(a.lead(), sep)
	if i < 0 {
		return "", arg{}, false
	}
	return a.text[:i], a.from(i + len(sep)), true
}

func lit(text string, at int) arg { return arg{text: text, at: at} }

// words makes args from parts.
type words struct {
	out   []arg
	cur   []part
	any   bool // a word has begun, even if it is empty
	byVar bool
	at    int
}

func (b *words) add(p part) {
	if p.kind == gap {
		b.end()
		return
	}
	b.any = true
	b.cur = append(b.cur, p)
}

// end ends the word that is being made.
func (b *words) end() {
	if b.any {
		a := makeArg(b.cur, b.at)
		a.byVar = b.byVar
		b.out = append(b.out, a)
	}
	b.cur, b.any = b.cur[:0], false
}

// makeArg returns the word that the parts make. It does not keep the slice.
func makeArg(parts []part, at int) arg {
	if len(parts) == 1 && parts[0].kind == literal {
		return arg{text: parts[0].text, at: at}
	}
	size, literals := 0, true
	for _, p := range parts {
		size += len(p.text)
		literals = literals && p.kind == literal
	}
	var all strings.Builder
	all.Grow(size)
	for _, p := range parts {
		all.WriteString(p.text)
	}
	a := arg{text: all.String(), at: at}
	if literals {
		return a
	}
	a.parts = make([]part, 0, len(parts))
	end, run := 0, 0 // offsets in a.text of the part's end, and of the literal run before it
	for _, p := range parts {
		if p.kind != literal {
			if run < end {
				a.parts = append(a.parts, part{text: a.text[run:end]})
			}
			a.parts = append(a.parts, p)
			run = end + len(p.text)
		}
		end += len(p.text)
	}
	if run < end {
		a.parts = append(a.parts, part{text: a.text[run:end]})
	}
	return a
}

// special are the bytes that give an unquoted word of the source another value than its
// text.
const special = "\\{*?[~"

// fields appends the words that a word of the source expands to.
func (w *walker) fields(out []arg, word *syntax.Word) []arg {
	if w.over != nil {
		return out
	}
	at := w.position(word)
	if text, ok := literalWord(word); ok {
		return append(out, arg{text: text, at: at})
	}
	e := expansion{w: w, out: w.scratch[:0]}
	e.parts(word.Parts, unquoted)
	w.scratch = e.out
	alternatives, made, ok := expandBraces(e.out)
	if !w.wordy(made) {
		return out
	}
	if len(alternatives) > 1 && slices.ContainsFunc(e.out, oddInBraces) {
		w.notKnown(opaqueBraces, at, "a dollar, or quotes in an expansion, within braces")
	}
	if !ok {
		w.notKnown(opaqueBraces, at, "too many words")
		return append(out, arg{text: w.source(word), parts: []part{{kind: split, text: w.source(word)}}, at: at})
	}
	b := words{out: out, at: at, byVar: e.byVar, cur: w.current[:0]}
	for _, parts := range alternatives {
		for i, p := range parts {
			if p.kind != brace {
				b.add(p)
				continue
			}
			for _, q := range unquotedParts(p.text, len(b.cur) == 0, i == len(parts)-1) {
				b.add(q)
			}
		}
		b.end()
	}
	w.current = b.cur
	return b.out
}

// oddInBraces reports whether a part is an expansion with quotes in it, or has a dollar that
// may start an expansion with what follows the brace: bash expands braces first.
func oddInBraces(p part) bool {
	return p.kind == brace && strings.Contains(p.text, "$") || strings.HasPrefix(p.text, "${") && p.kind != literal && strings.ContainsAny(p.text, "'\"\\")
}

// literalWord returns the text of a word that needs no expansion, as most do not.
func literalWord(word *syntax.Word) (string, bool) {
	if len(word.Parts) != 1 {
		return "", false
	}
	switch p := word.Parts[0].(type) {
	case *syntax.Lit:
		return p.Value, !strings.ContainsAny(p.Value, special)
	case *syntax.SglQuoted:
		return p.Value, !p.Dollar
	case *syntax.DblQuoted:
		if len(p.Parts) == 1 {
			l, ok := p.Parts[0].(*syntax.Lit)
			if ok && !strings.Contains(l.Value, `\`) {
				return l.Value, true
			}
		}
	}
	return "", false
}

// one returns what a word of the source expands to where bash does not split it: the value
// of an assignment, a here-string, the target of a redirection.
func (w *walker) one(word *syntax.Word) arg {
	if word == nil {
		return arg{}
	}
	if text, ok := literalWord(word); ok {
		return arg{text: text, at: w.position(word)}
	}
	e := expansion{w: w, whole: true}
	e.parts(word.Parts, unquoted)
	var parts []part
	for i, p := range e.out {
		if p.kind != brace {
			parts = append(parts, p)
			continue
		}
		parts = append(parts, unquotedParts(p.text, i == 0, i == len(e.out)-1)...)
	}
	a := makeArg(parts, w.position(word))
	a.byVar = e.byVar
	return a
}

// body returns the text of a here-document.
func (w *walker) body(r *syntax.Redirect) arg {
	if r.Hdoc == nil {
		return arg{at: w.position(r.Word)}
	}
	mode := heredoc
	if quotedDelimiter(r) {
		mode = verbatim
	}
	e := expansion{w: w, whole: true}
	e.parts(r.Hdoc.Parts, mode)
	a := makeArg(e.out, w.position(r.Hdoc))
	a.byVar = e.byVar
	if r.Op == syntax.DashHdoc && a.parts == nil {
		var b strings.Builder
		for line := range strings.Lines(a.text) {
			b.WriteString(strings.TrimLeft(line, "\t"))
		}
		a.text = b.String()
	}
	return a
}

// unquotedParts splits text without quotes into parts: a tilde at the start of a word,
// patterns, and literal text. first and last say that the word starts or ends with it.
func unquotedParts(text string, first, last bool) []part {
	var out []part
	if first && strings.HasPrefix(text, "~") {
		user, rest, slash := strings.Cut(text[1:], "/")
		if slash || last {
			k := home
			if user == "+" || user == "-" || user != "" && strings.Trim(user, "0123456789+-") == "" {
				k = unknown
			}
			out = append(out, part{kind: k, text: "~" + user})
			text = ""
			if slash {
				text = "/" + rest
			}
		}
	}
	closing := strings.LastIndexByte(text, ']')
	start := 0
	for i := 0; i < len(text); {
		n := 0
		switch {
		case text[i] == '*' || text[i] == '?':
			n = len(text[i:]) - len(strings.TrimLeft(text[i:], "*?"))
		case text[i] == '[' && i < closing:
			n = bracket(text[i:])
		}
		if n == 0 {
			i++
			continue
		}
		if start < i {
			out = append(out, part{text: text[start:i]})
		}
		out = append(out, part{kind: glob, text: text[i : i+n]})
		i += n
		start = i
	}
	if start < len(text) {
		out = append(out, part{text: text[start:]})
	}
	return out
}

// bracket returns the length of the bracket expression at the start of text. A ] right
// after the opening is one of its characters.
func bracket(text string) int {
	n := strings.IndexByte(text, ']') + 1
	if n == 2 || n == 3 && (text[1] == '!' || text[1] == '^') {
		n += strings.IndexByte(text[n:], ']') + 1
	}
	return n
}
