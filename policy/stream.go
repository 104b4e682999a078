package policy

import (
	"regexp"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// stream is what a command reads on its standard input.
type stream struct {
	set  bool // if false, it is the script's own input, which no rule is about
	pipe bool // it comes from another command
	text arg  // what is read, unless stmt writes it
	stmt *syntax.Stmt
	prev *stream // what stmt reads
}

// rest returns what is left of a stream after a command that may have read from it.
func (s stream) rest(used bool) stream {
	if !s.set || !used {
		return s
	}
	return stream{set: true, pipe: s.pipe, text: unknownText("the rest of the input", s.text.at)}
}

// nonReaders are commands that read no input.
var nonReaders = set(": true false echo printf cd pwd export set shift test [ unset")

// after returns what is left of a stream after a statement.
func (s stream) after(stmt *syntax.Stmt) stream {
	if !s.set {
		return s
	}
	c, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok {
		_, function := stmt.Cmd.(*syntax.FuncDecl)
		return s.rest(!function)
	}
	reads := len(c.Args) > 0 && !nonReaders[c.Args[0].Lit()]
	for _, word := range c.Args {
		reads = reads || !plainParts(word.Parts)
	}
	for _, a := range c.Assigns {
		reads = reads || a.Value != nil && !plainParts(a.Value.Parts)
	}
	return s.rest(reads)
}

// read returns the text of a stream. It is found out here, because few commands need it.
func (w *walker) read(s stream) arg {
	if s.stmt == nil {
		return s.text
	}
	return w.output(s.stmt, *s.prev)
}

// isKnown reports whether all of a text is known.
func isKnown(text arg) bool { return text.known() && !text.isPattern() }

func unknownText(source string, at int) arg {
	return arg{text: source, at: at, parts: []part{{kind: unknown, text: source}}}
}

// input returns what a statement reads: in, unless its redirections say otherwise.
func (w *walker) input(s *syntax.Stmt, in stream) stream {
	for _, r := range s.Redirs {
		if r.N != nil && r.N.Value != "0" {
			continue
		}
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			in = stream{set: true, text: w.body(r)}
		case syntax.WordHdoc:
			in = stream{set: true, text: w.one(r.Word)}
		case syntax.RdrIn, syntax.RdrInOut:
			in = w.fileStream(w.one(r.Word), in)
		case syntax.DplIn:
			if a := w.one(r.Word); !a.is("0") && !a.is("0-") {
				in = stream{set: true, text: unknownText(w.source(r), w.position(r))}
			}
		default: // an output
		}
	}
	return in
}

// fileStream returns what is read from a file. The name may mean the standard input, which
// is in.
func (w *walker) fileStream(name arg, in stream) stream {
	switch text, ok := name.literal(); {
	case ok && stdinNames[text]:
		return in
	case ok && text == "/dev/null":
		return stream{set: true, text: lit("", name.at)}
	}
	if sub := substitution(name); sub != nil {
		return stream{set: true, pipe: true, text: w.outputOf(sub.Stmts, stream{})}
	}
	return stream{set: true, text: unknownText(name.text, name.at)}
}

var stdinNames = set("/dev/stdin /dev/fd/0 /proc/self/fd/0 -")

// substitution returns the process substitution <(…) that a word is, or nil.
func substitution(a arg) *syntax.ProcSubst {
	if len(a.parts) != 1 {
		return nil
	}
	sub, ok := a.parts[0].node.(*syntax.ProcSubst)
	if !ok || sub.Op != syntax.CmdIn {
		return nil
	}
	return sub
}

// outputOf returns what a list of statements writes, as output does.
func (w *walker) outputOf(list []*syntax.Stmt, in stream) arg {
	var parts []part
	for _, s := range list {
		parts = append(parts, w.output(s, in).all()...)
	}
	at := 0
	if len(list) > 0 {
		at = w.position(list[0])
	}
	return makeArg(parts, at)
}

// output returns what a statement writes, if that is known without running it: the output
// of echo, printf and cat.
func (w *walker) output(s *syntax.Stmt, in stream) arg {
	none := unknownText(w.source(s), w.position(s))
	if !w.step() || w.depth > maxDepth {
		return none
	}
	for _, r := range s.Redirs {
		if r.Op == syntax.RdrOut || r.Op == syntax.AppOut || r.Op == syntax.RdrClob || r.Op == syntax.RdrAll || r.Op == syntax.DplOut {
			return none
		}
	}
	in = w.input(s, in)
	w.depth++
	defer func() { w.depth-- }()
	switch c := s.Cmd.(type) {
	case *syntax.Block:
		return w.outputOf(c.Stmts, in)
	case *syntax.Subshell:
		return w.outputOf(c.Stmts, in)
	case *syntax.CallExpr:
		var text arg
		var ok bool
		w.silently(func() { text, ok = w.outputOfCall(c, in) })
		if ok {
			return text
		}
	}
	return none
}

func (w *walker) outputOfCall(c *syntax.CallExpr, in stream) (arg, bool) {
	var args []arg
	for _, word := range c.Args {
		args = w.fields(args, word)
	}
	for len(args) > 1 && (args[0].is("command") || args[0].is("builtin")) {
		args = args[1:]
	}
	if len(args) == 0 || len(c.Assigns) > 0 {
		return arg{}, false
	}
	switch name, _ := commandName(args[0]); name {
	case "true", ":", "false":
		return lit("", args[0].at), true
	case "echo":
		return echoed(args), true
	case "printf":
		return printed(args)
	case "cat", "tee":
		if in.set && (name == "tee" || len(args) == 1 || len(args) == 2 && args[1].is("-")) {
			return w.read(in), true
		}
	}
	return arg{}, false
}

// echoed returns what echo writes.
func echoed(args []arg) arg {
	at := args[0].at
	args = args[1:]
	escapes, newline := false, true
	for len(args) > 0 {
		text, ok := args[0].literal()
		if !ok || len(text) < 2 || text[0] != '-' || strings.Trim(text[1:], "neE") != "" {
			break
		}
		escapes = escapes || strings.Contains(text, "e")
		newline = newline && !strings.Contains(text, "n")
		args = args[1:]
	}
	var parts []part
	for i, a := range args {
		if i > 0 {
			parts = append(parts, part{text: " "})
		}
		parts = append(parts, a.all()...)
	}
	// Shells differ on backslashes without -e; they stay as they are.
	for i, p := range parts {
		if escapes && p.kind == literal {
			parts[i] = unescapeOutput(p)
		}
	}
	if newline {
		parts = append(parts, part{text: "\n"})
	}
	return makeArg(parts, at)
}

// printed returns what printf writes, for formats with at most one %s or %b.
func printed(args []arg) (arg, bool) {
	at := args[0].at
	args = args[1:]
	if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	if len(args) == 0 || args[0].is("-v") {
		return arg{}, false
	}
	format, ok := args[0].literal()
	if !ok {
		return arg{}, false
	}
	before, after, verb := strings.Cut(strings.ReplaceAll(format, "%b", "%s"), "%s")
	if strings.Contains(before+after, "%") {
		return arg{}, false
	}
	start, end := unescapeOutput(part{text: before}), unescapeOutput(part{text: after})
	if !verb {
		return makeArg([]part{start}, at), true
	}
	values := args[1:]
	if len(values) == 0 {
		values = []arg{lit("", at)}
	}
	var parts []part
	for _, a := range values {
		parts = append(parts, start)
		for _, p := range a.all() {
			if p.kind == literal && strings.Contains(format, "%b") {
				p = unescapeOutput(p)
			}
			parts = append(parts, p)
		}
		parts = append(parts, end)
	}
	return makeArg(parts, at), true
}

var otherEscapes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\\(c|0[0-7]{3})`)
})

// unescapeOutput replaces the escapes in a literal part of what echo or printf writes. The
// result is not known if the part has a NUL, which does not end it here, or an escape that
// means something else than between $' and ': \c, which ends the output, and \0nnn.
func unescapeOutput(p part) part {
	const last = "Z" // kept, unless a NUL comes before it
	text := unescapeANSI(p.text + last)
	if otherEscapes().MatchString(p.text) || !strings.HasSuffix(text, last) {
		return part{kind: unknown, text: p.text}
	}
	return part{text: text[:len(text)-1]}
}
