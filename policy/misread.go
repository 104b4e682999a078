package policy

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The parser and bash read a few texts differently. If they differ on where a comment ends,
// the text is changed so that the parser reads what bash reads. Any other difference that
// is known makes the script one that cannot be parsed. Package bashtest looks for more.

var (
	errComments = errors.New("a backslash and a newline may be in a comment or not")
	errOperator = errors.New("a backslash and a newline split an operator")
	errHash     = errors.New("a word that # goes on is read as a comment")
)

// misread returns an error, and its offset, if the parser reads a text differently from
// bash because of a backslash before a newline.
func misread(text string) (at int, err error) {
	for i := range continuations(text) {
		next := i + 2
		for strings.HasPrefix(text[next:], "\\\n") {
			next += 2
		}
		if i == 0 || next >= len(text) {
			continue
		}
		const operators = "&|<>;()"
		before, after := text[i-1], text[next]
		switch {
		case before == '$' && strings.IndexByte(" \t\n\"'", after) < 0,
			before == '{' && i > 1 && text[i-2] == '$',
			strings.IndexByte(operators, before) >= 0 && strings.IndexByte(operators, after) >= 0 && (before == after || before != ')' && after != '('):
			return i, errOperator
		}
	}
	return 0, nil
}

// continuations yields the offsets of the backslashes before newlines.
func continuations(text string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for from := 0; ; {
			i := strings.Index(text[from:], "\\\n")
			if i < 0 || !yield(from+i) {
				return
			}
			from += i + 2
		}
	}
}

// glued reports whether # after a character continues a word.
func glued(before byte) bool { return strings.IndexByte(" \t\r\n;&|()<>`", before) < 0 }

// comments are the places where the parser and bash may disagree on where a comment starts
// or ends. For the parser, a backslash and a newline continue a comment.
type comments struct {
	ends []int // offsets of backslashes before a newline, in lines that may have a comment
	glue bool  // there is a # after what may be a word
}

// suspects finds these places without a parser.
func suspects(text string) (c comments) {
	if !strings.Contains(text, "#") {
		return c
	}
	hash := false // a comment may begin in the line
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\n':
			hash = false
		case '#':
			word := i > 0 && glued(text[i-1])
			hash = hash || !word
			c.glue = c.glue || word && strings.IndexByte("'\"}])", text[i-1]) >= 0
		case '\\':
			end := i + 1
			if end < len(text) && text[end] == '\\' {
				i++ // the two are one
				continue
			}
			if end < len(text) && text[end] == '\r' {
				end++
			}
			if hash && end < len(text) && text[end] == '\n' {
				c.ends = append(c.ends, i)
			}
		}
	}
	return c
}

// extents are ranges of offsets, in order.
type extents [][2]int

// literals returns the extents of the comments and of the literal parts of statements.
func literals(stmts []*syntax.Stmt) (comments, literal extents) {
	for _, s := range stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Comment:
				comments = append(comments, [2]int{int(n.Hash.Offset()), int(n.End().Offset())})
			case *syntax.SglQuoted, *syntax.Lit:
				literal = append(literal, [2]int{int(n.Pos().Offset()), int(n.End().Offset())})
			}
			return true
		})
	}
	for _, e := range []extents{comments, literal} {
		slices.SortFunc(e, func(a, b [2]int) int { return a[0] - b[0] })
	}
	return comments, literal
}

// has reports whether an extent contains an offset.
func (e extents) has(at int) bool {
	i, found := slices.BinarySearchFunc(e, at, func(x [2]int, at int) int { return x[0] - at })
	return found || i > 0 && at < e[i-1][1]
}

// readComments parses a text whose comments the parser may misread. It replaces each
// backslash at the end of a comment by another character. It parses once to find out
// which ends of lines are in comments, and again if some were not. If the result still
// depends on the replacements, the script counts as broken.
func (s *script) readComments(src string, c comments) {
	// A last statement, so that no comment comes after all statements.
	const last = "\n:"
	read := func(ends []int) (in, literal extents) {
		text := []byte(src)
		for _, i := range ends {
			text[i] = '_'
		}
		s.read(string(text) + last)
		in, literal = literals(s.stmts)
		if n := len(s.stmts); n > 0 && int(s.stmts[n-1].Pos().Offset()) > len(src) {
			s.stmts = s.stmts[:n-1]
		}
		return in, literal
	}
	in, literal := read(c.ends)
	ends := c.ends[:0:0]
	for _, i := range c.ends {
		if in.has(i) {
			ends = append(ends, i)
		}
	}
	if len(ends) < len(c.ends) {
		in, literal = read(ends)
	}
	if s.broken != nil || s.over != nil {
		return
	}
	for _, i := range c.ends {
		_, patched := slices.BinarySearch(ends, i)
		if patched != in.has(i) || !patched && !hashesWithin(src, i, in, literal) {
			s.broken, s.brokenAt = errComments, i
			return
		}
	}
	for _, e := range in {
		if at := e[0]; at > 0 && at < len(src) && glued(src[at-1]) {
			s.broken, s.brokenAt = errHash, at
			return
		}
	}
}

// hashesWithin reports whether every # that comes before an offset in its line, and that
// could start a comment, is known to be text or in a comment.
func hashesWithin(src string, at int, in, literal extents) bool {
	for i := at; i > 0 && src[i-1] != '\n'; i-- {
		if src[i-1] == '#' && (i == 1 || !glued(src[i-2])) && !literal.has(i-1) && !in.has(i-1) {
			return false
		}
	}
	return true
}

// quotedDelimiter reports whether a here-document is not expanded.
func quotedDelimiter(r *syntax.Redirect) bool {
	return slices.ContainsFunc(r.Word.Parts, func(p syntax.WordPart) bool {
		l, ok := p.(*syntax.Lit)
		return !ok || strings.Contains(l.Value, `\`)
	})
}

// endsElsewhere reports whether an expanded here-document may end elsewhere in bash: bash
// joins continued lines before it looks for the end.
func endsElsewhere(w *walker, r *syntax.Redirect) bool {
	end := literalText(r.Word)
	if end == "" {
		return true
	}
	if r.Hdoc == nil || quotedDelimiter(r) {
		return false
	}
	body := w.source(r.Hdoc)
	// If the line before the end is continued, the parser takes the end for body.
	if i := strings.LastIndexByte(body, '\n'); strings.TrimLeft(body[i+1:], "\t") == end {
		body = body[:i+1]
	}
	if !strings.Contains(body, "\\\n") {
		return false
	}
	joined := ""
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if joined += line; oddBackslashes(joined) {
			joined = joined[:len(joined)-1]
			continue
		}
		if joined != line && (joined == end || r.Op == syntax.DashHdoc && strings.TrimLeft(joined, "\t") == end) {
			return true
		}
		joined = ""
	}
	return joined != "" || strings.HasSuffix(body, "\\\n")
}

func oddBackslashes(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// processSubstitution reports whether an expansion has a process substitution, as in
// ${x-<(a)}, which the parser takes for text.
func processSubstitution(p *syntax.ParamExp) bool {
	return slices.ContainsFunc(operands(p), func(word *syntax.Word) bool {
		return slices.ContainsFunc(word.Parts, func(part syntax.WordPart) bool {
			l, ok := part.(*syntax.Lit)
			return ok && (strings.Contains(l.Value, "<(") || strings.Contains(l.Value, ">("))
		})
	})
}

// splitLet reports whether the expression of let has an operator that ends the command for
// bash. The parser reads let a|b as one expression.
func splitLet(c *syntax.LetClause) bool {
	found := false
	visit(c.Exprs, func(n syntax.Node, _ int) bool {
		switch n := n.(type) {
		case *syntax.BinaryArithm:
			found = found || strings.ContainsAny(n.Op.String(), "|&<>;")
		case *syntax.ParenArithm:
			found = true
		case *syntax.Word:
			return false
		}
		return !found
	})
	return found
}

// quotedOperands looks at single quotes in an expansion in double quotes, as in
// "${x-'a'}". For bash they are text, for the parser they are quotes.
func (w *walker) quotedOperands(parts []syntax.WordPart) {
	for _, p := range parts {
		x, ok := p.(*syntax.ParamExp)
		if !ok {
			continue
		}
		for _, word := range operands(x) {
			for _, p := range word.Parts {
				q, ok := p.(*syntax.SglQuoted)
				if !ok {
					continue
				}
				w.evaluates = true // so that evaluated visits the commands in it
				if q.Dollar || strings.ContainsAny(q.Value, "}\"\\") {
					w.notKnown(opaqueParse, w.position(q), "quotes within "+quote(w.source(x)))
				}
			}
			w.quotedOperands(word.Parts)
		}
	}
}

// operands are the words within an expansion.
func operands(p *syntax.ParamExp) []*syntax.Word {
	var words []*syntax.Word
	if p.Exp != nil && p.Exp.Word != nil {
		words = append(words, p.Exp.Word)
	}
	if p.Repl != nil && p.Repl.Orig != nil {
		words = append(words, p.Repl.Orig)
	}
	if p.Repl != nil && p.Repl.With != nil {
		words = append(words, p.Repl.With)
	}
	return words
}

// headerHeredoc reports whether a loop has a here-document in its condition. In a
// substitution, bash 5.2 joins the lines of the body of such a loop.
func headerHeredoc(stmts []*syntax.Stmt) bool {
	found := false
	visit(stmts, func(n syntax.Node, _ int) bool {
		if c, ok := n.(*syntax.WhileClause); ok {
			visit(c.Cond, func(n syntax.Node, _ int) bool {
				r, ok := n.(*syntax.Redirect)
				found = found || ok && (r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc)
				return !found
			})
		}
		return !found
	})
	return found
}
