package policy

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// script is a parsed text. The safety rules, the interceptor's segments and explanations
// use the same one.
type script struct {
	text  string
	stmts []*syntax.Stmt
	over  *limit // a limit that the text is beyond; then there are no stmts
	// broken says why the text cannot be parsed to its end. stmts are the statements
	// before that place, which bash would run: it reads a script line by line.
	broken   error
	brokenAt int
}

var parsers = sync.Pool{New: func() any { return syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)) }}

// parse parses a text. The result says if the text cannot be parsed.
func parse(text string) (s *script) {
	s = &script{text: text}
	if len(text) > maxScript {
		s.over = tooLong
		return s
	}
	if len(text) > maxNodes && countNodes(text, maxNodes) > maxNodes {
		s.over = tooMany
		return s
	}
	src := decodable(text)
	if c := suspects(src); len(c.ends) > 0 || c.glue {
		s.readComments(src, c)
	} else {
		s.read(src)
	}
	if at, err := misread(src); err != nil && s.over == nil && s.broken == nil {
		s.broken, s.brokenAt = err, at
	}
	return s
}

// read parses a text.
func (s *script) read(src string) {
	p := parsers.Get().(*syntax.Parser)
	s.stmts, s.broken = nil, nil
	defer func() {
		// The parser cannot parse this. It is not used again.
		if r := recover(); r != nil {
			s.stmts, s.broken = nil, errors.New("the parser gave up")
		}
	}()
	for stmt, err := range p.StmtsSeq(&guardedReader{text: src}) {
		if err != nil {
			s.fail(err)
			break
		}
		s.stmts = append(s.stmts, stmt)
	}
	parsers.Put(p)
}

func (s *script) fail(err error) {
	if errors.Is(err, errDepth) {
		s.stmts, s.over = nil, tooDeep
		return
	}
	s.broken = err
	if e, ok := errors.AsType[syntax.ParseError](err); ok {
		s.broken, s.brokenAt = errors.New(e.Text), int(e.Pos.Offset())
	}
	if e, ok := errors.AsType[syntax.LangError](err); ok {
		s.broken, s.brokenAt = errors.New(e.Feature+" cannot be parsed here"), int(e.Pos.Offset())
	}
}

// decodable replaces every byte that is not UTF-8 by an underscore: the parser refuses such
// bytes, and for bash they are like letters.
func decodable(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			b.WriteByte('_')
		} else {
			b.WriteString(text[i : i+n])
		}
		i += n
	}
	return b.String()
}

// segments returns the text of every simple command of the script's own lists, in order,
// except those that read from a pipe. A text that begins with assignments is returned with
// and without them. Commands in groups, loops and substitutions are left out.
func (s *script) segments() []segment {
	if s.over != nil {
		return nil
	}
	lines := indexLines(s.text)
	add := func(out []segment, start, end int) []segment {
		text := strings.TrimLeftFunc(s.text[start:end], isSpace)
		start = end - len(text)
		return append(out, segment{text: strings.TrimRightFunc(text, isSpace), pos: lines.position(start)}.withoutSinks())
	}
	type part struct {
		stmt  *syntax.Stmt
		piped bool // it reads from a pipe
	}
	var todo []part // a stack; a list may be too long to recurse
	for _, stmt := range slices.Backward(s.stmts) {
		todo = append(todo, part{stmt: stmt})
	}
	var out []segment
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch cmd := p.stmt.Cmd.(type) {
		case *syntax.BinaryCmd:
			pipe := cmd.Op == syntax.Pipe || cmd.Op == syntax.PipeAll
			todo = append(todo, part{cmd.Y, pipe || p.piped}, part{cmd.X, p.piped})
		case *syntax.CallExpr:
			if len(cmd.Args) == 0 || p.piped {
				break
			}
			start, end := span(p.stmt)
			out = add(out, start, end)
			if first := int(cmd.Args[0].Pos().Offset()); first > start {
				out = add(out, first, end)
			}
		}
	}
	return out
}

// span returns the extent of a simple command in its text, with its redirections and
// without the bodies of here-documents.
func span(s *syntax.Stmt) (start, end int) {
	start, end = int(s.Cmd.Pos().Offset()), int(s.Cmd.End().Offset())
	for _, r := range s.Redirs {
		start = min(start, int(r.Pos().Offset()))
		end = max(end, int(r.Word.End().Offset()))
	}
	return start, end
}

// lineIndex holds the offsets of the lines of a text.
type lineIndex []int

func indexLines(text string) lineIndex {
	l := lineIndex{0}
	for i := range len(text) {
		if text[i] == '\n' {
			l = append(l, i+1)
		}
	}
	return l
}

func (l lineIndex) position(offset int) Position {
	line, found := slices.BinarySearch(l, offset)
	if !found {
		line--
	}
	return Position{Offset: offset, Line: line + 1, Column: offset - l[line] + 1}
}
