package policy

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// quoting is how the text around a part is read.
type quoting uint8

const (
	unquoted quoting = iota
	double           // between double quotes
	heredoc          // in the body of a here-document: as double, but for "
	verbatim         // in the body of a here-document with a quoted delimiter
)

// expansion turns the parts of a word of the source into parts that are known or not.
type expansion struct {
	w     *walker
	out   []part
	whole bool // what the word becomes is not split into words
	byVar bool // a variable's value is a part
}

func (e *expansion) add(p part) { e.out = append(e.out, p) }

func (e *expansion) parts(parts []syntax.WordPart, q quoting) {
	for i, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			e.lit(p.Value, q)
		case *syntax.SglQuoted:
			text := p.Value
			if p.Dollar {
				text = unescapeANSI(text)
			}
			e.add(part{text: text})
		case *syntax.DblQuoted:
			if e.nothing(p.Parts) {
				continue
			}
			e.add(part{})
			e.parts(p.Parts, double)
		case *syntax.ParamExp:
			if q == unquoted && p.Short && i+1 < len(parts) && endsElement(parts, i+1) && p.Param.Value != "HOME" {
				e.unknown(p, q) // bash expands braces first: $a{b,c} is $ab and $ac
				continue
			}
			e.param(p, q)
		case *syntax.ExtGlob:
			e.add(part{kind: glob, text: e.w.source(p), node: p})
		case *syntax.CmdSubst:
			e.unknown(p, q)
		default: // arithmetic and process substitution make one word
			e.unknown(p, double)
		}
	}
}

// nothing reports whether the parts in double quotes are "$@" without parameters, which
// makes no word.
func (e *expansion) nothing(parts []syntax.WordPart) bool {
	if e.whole || len(parts) != 1 {
		return false
	}
	p, ok := parts[0].(*syntax.ParamExp)
	if !ok || p.Param == nil || p.Param.Value != "@" || p.Exp != nil || p.Slice != nil || p.Repl != nil || p.Excl || p.Length {
		return false
	}
	e.w.shell.usesParams = true
	params, known := e.w.shell.params()
	return known && len(params) == 0
}

// endsElement reports whether a part begins with an opening brace, or with the end of an
// element of braces that began before it. Then a name before the part may go on after it.
func endsElement(parts []syntax.WordPart, i int) bool {
	l, ok := parts[i].(*syntax.Lit)
	if !ok || l.Value == "" {
		return false
	}
	return l.Value[0] == '{' || strings.IndexByte(",}", l.Value[0]) >= 0 && slices.ContainsFunc(parts[:i], func(p syntax.WordPart) bool {
		l, ok := p.(*syntax.Lit)
		return ok && strings.Contains(l.Value, "{")
	})
}

// unknown adds a part whose value is not known.
func (e *expansion) unknown(p syntax.WordPart, q quoting) {
	k := unknown
	if q == unquoted && !e.whole {
		k = split
	}
	e.add(part{kind: k, text: e.w.source(p), node: p})
}

// lit adds text of the source, without its escapes.
func (e *expansion) lit(text string, q quoting) {
	if q == verbatim || !strings.Contains(text, `\`) {
		k := literal
		if q == unquoted {
			k = brace
		}
		e.add(part{kind: k, text: text})
		return
	}
	if q != unquoted {
		e.add(part{text: unescapeDouble(text, q)})
		return
	}
	for text != "" {
		before, after, found := strings.Cut(text, `\`)
		if before != "" {
			e.add(part{kind: brace, text: before})
		}
		if !found {
			return
		}
		_, n := utf8.DecodeRuneInString(after)
		switch {
		case n == 0:
			e.add(part{text: `\`}) // at the end of a script
		case after[0] != '\n': // an escaped newline is nothing
			e.add(part{text: after[:n]})
		}
		text = after[n:]
	}
}

// unescapeDouble removes the escapes from text in double quotes or in a here-document.
func unescapeDouble(text string, q quoting) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			switch c := text[i+1]; {
			case c == '$', c == '`', c == '\\', c == '"' && q == double:
				i++
			case c == '\n':
				i++
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// unescapeANSI replaces the escapes in text between $' and '. As in bash, a NUL ends it.
func unescapeANSI(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		c := text[i]
		if j := strings.IndexByte("abeEfnrtv\\'\"?", c); j >= 0 {
			b.WriteByte("\a\b\x1b\x1b\f\n\r\t\v\\'\"?"[j])
			continue
		}
		value, n, ok := ansiNumber(text[i:])
		if !ok {
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if value == 0 {
			break
		}
		i += n - 1
		if c == 'u' || c == 'U' {
			b.WriteRune(rune(value))
		} else {
			b.WriteByte(byte(value))
		}
	}
	return b.String()
}

// ansiNumber reads what follows the backslash of \123, \x41, \u0041 and \cA. It returns
// the value, and how many bytes it has read.
func ansiNumber(s string) (value, n int, ok bool) {
	base, start, most := 16, 1, 2
	switch c := s[0]; {
	case c == 'x':
	case c == 'u':
		most = 4
	case c == 'U':
		most = 8
	case c >= '0' && c <= '7':
		base, start, most = 8, 0, 3
	case c == 'c' && len(s) > 1:
		return int(s[1] & 0x1f), 2, true
	default:
		return 0, 0, false
	}
	n = start
	for n < len(s) && n < start+most {
		if _, err := strconv.ParseUint(s[n:n+1], base, 8); err != nil {
			break
		}
		n++
	}
	if n == start {
		return 0, 0, false
	}
	v, err := strconv.ParseUint(s[start:n], base, 32)
	return int(v), n, err == nil
}

// param adds an expansion of a parameter.
func (e *expansion) param(p *syntax.ParamExp, q quoting) {
	name := ""
	if p.Param != nil {
		name = p.Param.Value
	}
	plain := !p.Excl && !p.Length && p.Index == nil && p.Names == 0
	switch {
	case !plain:
	case name == "HOME" && p.Slice == nil && p.Repl == nil && keepsHome(p.Exp):
		e.add(part{kind: home, text: e.w.source(p)})
		return
	case name == "IFS" && q == unquoted && !e.whole && p.Repl == nil && !e.w.shell.assigns("IFS"):
		// Unless the script sets it, its value is white space, and a word ends here.
		e.add(part{kind: gap})
		return
	case p.Slice == nil && p.Repl == nil && p.Exp == nil:
		if e.positional(name, q) {
			return
		}
		if value, ok := e.w.shell.value(name); ok {
			e.byVar = true
			e.value(value, q)
			return
		}
	}
	e.unknown(p, q)
}

// keepsHome reports whether ${HOME…} is still a home directory, or above it.
func keepsHome(x *syntax.Expansion) bool {
	if x == nil {
		return true
	}
	op := x.Op
	return op == syntax.ErrorUnset || op == syntax.ErrorUnsetOrNull || op == syntax.DefaultUnset ||
		op == syntax.DefaultUnsetOrNull || op == syntax.AssignUnset || op == syntax.AssignUnsetOrNull ||
		op == syntax.RemSmallSuffix || op == syntax.RemLargeSuffix
}

// positional adds $1 or "$@". It reports false if the arguments are not known.
func (e *expansion) positional(name string, q quoting) bool {
	all := name == "@" || name == "*"
	if !all && (name == "" || name[0] < '0' || name[0] > '9') {
		return false
	}
	n, _ := strconv.Atoi(name)
	if n == 0 && !all {
		zero := e.w.shell.zero
		if zero.text == "" {
			return false
		}
		e.value(zero.all(), q)
		return true
	}
	e.w.shell.usesParams = true
	params, ok := e.w.shell.params()
	if !ok {
		return false
	}
	if !all {
		if n <= len(params) {
			e.value(params[n-1].all(), q)
		}
		return true
	}
	for i, a := range params {
		if i > 0 && (q == unquoted || name == "@") && !e.whole {
			e.add(part{kind: gap})
		} else if i > 0 {
			e.add(part{text: " "})
		}
		e.value(a.all(), q)
	}
	return true
}

// value adds the value of a parameter. Without quotes, the value is split into words and
// may be a pattern.
func (e *expansion) value(parts []part, q quoting) {
	for _, p := range parts {
		if !e.w.spend(len(p.text)) {
			return
		}
		switch {
		case q != unquoted || e.whole:
			if p.kind == split {
				p.kind = unknown
			}
			e.add(p)
		case p.kind != literal:
			if p.kind == unknown {
				p.kind = split
			}
			e.add(p)
		default:
			e.splitText(p.text)
		}
	}
}

func (e *expansion) splitText(text string) {
	if e.w.shell.assigns("IFS") {
		e.add(part{kind: split, text: text})
		return
	}
	for {
		i := strings.IndexAny(text, " \t\n")
		if i < 0 {
			break
		}
		for _, p := range unquotedParts(text[:i], false, false) {
			e.add(p)
		}
		e.add(part{kind: gap})
		text = text[i+1:]
	}
	for _, p := range unquotedParts(text, false, false) {
		e.add(p)
	}
}
