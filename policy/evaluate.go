package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bash evaluates some text once more: a subscript or an expression in the value of a
// variable, a name that a builtin gets, ${x@P}. A command substitution in the text runs
// then, although it was quoted:
//
//	x='a[$(rm -rf /)]'; ((x))
//
// It is not possible in general to find out where such a text comes from. So if any place
// in a script evaluates text, every literal text in it may be evaluated, and the commands
// in it are visited. If no place does, literal texts are not looked at.

// evaluators are the builtins that evaluate a name or an expression among their words.
var evaluators = set("[ test printf read readarray mapfile let unset wait getopts declare typeset local export readonly compgen complete")

// integers are the variables whose new values bash evaluates.
var integers = set("RANDOM SRANDOM SECONDS HISTCMD LINENO BASHPID EUID UID PPID OPTIND")

// evaluation is what a walk remembers for the method evaluated.
type evaluation struct {
	sources   []source // all scripts that were walked
	evaluates bool     // a place in them evaluates text
}

// source is a script, and its offset in the outermost one, or -1 if it is the outermost.
type source struct {
	script *script
	base   int
}

// evaluatesCall notes that a builtin may evaluate one of its words.
func (w *walker) evaluatesCall(name string, args []arg) {
	for i, a := range args[1:] {
		text := a.text
		switch {
		case name == "[" || name == "test":
			w.evaluates = w.evaluates || text == "-v" || text == "-R" || i < 2 && !a.known()
		case name == "printf":
			w.evaluates = w.evaluates || i == 0 && (strings.HasPrefix(text, "-v") || !a.known())
		case name == "let" || name == "compgen" || name == "complete" || !a.known() || strings.Contains(text, "["),
			len(text) > 1 && text[0] == '-' && strings.ContainsAny(text, "in"):
			w.evaluates = true
		}
	}
}

// evaluatesNode reports whether bash evaluates the value of a variable in an expression.
func evaluatesNode(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.CStyleLoop:
		return true
	case *syntax.ParamExp:
		return n.Excl || n.Slice != nil || n.Index != nil || n.Exp != nil && n.Exp.Op == syntax.OtherParamOps
	case *syntax.BinaryTest:
		switch n.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			return true
		default:
		}
	case *syntax.UnaryTest:
		return n.Op == syntax.TsVarSet || n.Op == syntax.TsRefVar
	}
	return false
}

// evaluated visits the commands in literal texts, if the script evaluates any text. It
// goes on with the scripts that it finds in them.
func (w *walker) evaluated() {
	if !w.evaluates {
		return
	}
	var halves fragments
	for i := 0; i < len(w.sources) && w.over == nil; i++ {
		s := w.sources[i]
		if !strings.ContainsAny(s.script.text, "$`\\") {
			continue
		}
		visit(s.script.stmts, func(n syntax.Node, _ int) bool {
			switch n := n.(type) {
			case *syntax.Assign:
				halves.add(n.Value)
			case *syntax.ArrayElem:
				halves.add(n.Value)
			case *syntax.WordIter:
				halves.add(n.Items...)
			case *syntax.CallExpr:
				halves.add(n.Args...)
			case *syntax.Redirect:
				if r := n; r.Op == syntax.WordHdoc {
					halves.add(r.Word)
				}
			case *syntax.Word:
				w.evaluatedText(literalText(n), s, n)
			}
			return w.over == nil
		})
	}
	if halves.dollar && halves.parenthesis {
		w.notKnown(opaqueEvaluated, 0, "a dollar and a parenthesis in texts apart")
	}
}

func (w *walker) evaluatedText(text string, s source, n syntax.Node) {
	at := s.base
	if at < 0 {
		at = int(n.Pos().Offset())
	}
	const rounds = 3 // of evaluation; each removes a level of backslashes
	for range rounds {
		if strings.Contains(text, "$(") || strings.Contains(text, "`") {
			w.maybe(func() { w.expandedLater(text, "evaluated text", at) })
		}
		less := unescapeANSI(text)
		if less == text {
			less = unescapeDouble(text, double)
		}
		if less == text {
			return
		}
		text = less
	}
}

// expandedLater visits the commands in a text that bash expands like a here-document.
func (w *walker) expandedLater(text, via string, at int) {
	const end = "END_OF_TEXT"
	if strings.Contains(text, end) {
		w.notKnown(opaqueEvaluated, at, quote(text))
		return
	}
	w.shellText(inner{text: lit(": <<"+end+"\n"+text+"\n"+end+"\n", at), via: via, kind: opaqueDeferred, here: true})
}

// literalText returns the text of a word without its quotes. madeAtRunTime stands in it
// for what is made at run time.
func literalText(word *syntax.Word) string {
	var b strings.Builder
	var add func(parts []syntax.WordPart, q quoting)
	add = func(parts []syntax.WordPart, q quoting) {
		for _, p := range parts {
			switch p := p.(type) {
			case *syntax.Lit:
				if q == double {
					b.WriteString(unescapeDouble(p.Value, q))
				} else {
					b.WriteString(unescapePlain(p.Value))
				}
			case *syntax.SglQuoted:
				if p.Dollar {
					b.WriteString(unescapeANSI(p.Value))
				} else {
					b.WriteString(p.Value)
				}
			case *syntax.DblQuoted:
				add(p.Parts, double)
			default:
				b.WriteString(madeAtRunTime)
			}
		}
	}
	add(word.Parts, unquoted)
	return b.String()
}

// unescapePlain removes the escapes from text without quotes.
func unescapePlain(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			if i++; text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// fragments says which halves of a command substitution a script has, in texts that it may
// join.
type fragments struct{ dollar, parenthesis bool }

func (f *fragments) add(words ...*syntax.Word) {
	for _, word := range words {
		if word == nil {
			continue
		}
		text := literalText(word)
		f.dollar = f.dollar || strings.HasSuffix(text, "$")
		f.parenthesis = f.parenthesis || strings.HasPrefix(text, "(")
	}
}
