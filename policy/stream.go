package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// stream is what a command reads on its standard input.
type stream struct {
	set  bool // false: what the script itself has, of which nothing is said
	pipe bool // it comes from another command
	text arg  // what is read, unless it is still to be found out:
	stmt *syntax.Stmt
	prev *stream // what stmt reads
}

// read finds out what a stream is. Few commands need to know.
func (w *walker) read(s stream) arg {
	if s.stmt == nil {
		return s.text
	}
	return w.output(s.stmt, *s.prev)
}

// isKnown tells whether all of a text is.
func isKnown(text arg) bool { return text.known() && !text.isPattern() }

func unknownText(source string, at int) arg {
	return arg{text: source, at: at, parts: []part{{kind: unknown, text: source}}}
}

// input returns what a statement reads, if not what is given.
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

// fileStream returns what is read from a file, whose name may be another name of
// the standard input.
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

// substitution returns the process substitution <(…) that a word is.
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

// outputOf returns what a list of statements writes.
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

// output returns what a statement writes, as far as that is known without
// running it: what echo, printf and cat write.
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
		w.quiet++
		text, ok := w.outputOfCall(c, in)
		w.quiet--
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

// echoed is what echo writes.
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
	// Whether a backslash is one depends on the shell; with none it is the same.
	if escapes {
		for i, p := range parts {
			if p.kind == literal {
				parts[i].text = unescapeANSI(p.text)
			}
		}
	}
	if newline {
		parts = append(parts, part{text: "\n"})
	}
	return makeArg(parts, at)
}

// printed is what printf writes, for the formats that are as good as none.
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
	before, after = unescapeANSI(before), unescapeANSI(after)
	if !verb {
		return lit(before, at), true
	}
	values := args[1:]
	if len(values) == 0 {
		values = []arg{lit("", at)}
	}
	var parts []part
	for _, a := range values {
		parts = append(parts, part{text: before})
		for _, p := range a.all() {
			if p.kind == literal && strings.Contains(format, "%b") {
				p.text = unescapeANSI(p.text)
			}
			parts = append(parts, p)
		}
		parts = append(parts, part{text: after})
	}
	return makeArg(parts, at), true
}
