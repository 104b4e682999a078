package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// walker visits every command that a script runs or may run, and the scripts within it.
// It runs nothing and reads no file.
//
// # Order
//
// Policy.safety makes one walker for a check, and uses it once:
//
//  1. script visits the statements in the order of the text, from the outside in. stmt
//     visits the redirections of a statement, finds out what it reads, and visits its
//     command. Before a simple command, its assignments and the substitutions in its
//     words are visited; then words become args (word.go, expand.go).
//  2. argv gets each command in that form. It runs the safety rules for the command's
//     name (commands.go), and then visits what the command runs: the text of a function
//     or alias, the words after sudo, the script after bash -c. A script within a script
//     is parsed and visited like the outermost one, in a context of its own: findings in
//     it have the position of its text. Where a program may run its words but is not
//     known, scan looks among them for the commands that rules are about.
//  3. If bash evaluates any text once more, evaluated visits the commands in all literal
//     texts of the scripts that were visited (evaluate.go).
//
// The first denial decides the verdict, else a limit that was reached, else the first
// opaque place. A walk continues after an opaque place, because a denial may follow. It
// continues after a denial too, because an explanation shows the verdict of each command.
//
// # State
//
// shell holds what is known at the current place: values of variables that are assigned
// once, the working directory, functions, aliases, positional parameters. Each command
// that is visited may change it. If the command may not have run, later commands do not
// see its changes: for them, what it would have changed is not known. In this table, to
// see a command is to see its changes:
//
//	a; b             b sees all that a has done
//	a && b, a || b   b, and what follows the list, see a; what follows does not see b
//	a && b || c      c does not see b
//	if, case         a branch sees what was before it; what follows sees no branch;
//	                 branches that ;& or ;;& join are visited once more, in one go
//	while, for       like a branch; for with few known words visits its body for each
//	(a), a &, a | b  what follows does not see a, and has the directory from before
//	f() { a; }       visited when it is defined, without parameters; again at a call
//	                 if it depends on parameters or input, or if it asked for the
//	                 directory, a variable or a function, and there are others by then
//	trap a           visited where it is set, and again after all of the script
//	$(a), <(a)       as (a)
//
// Except for that directory, what is not known never falls back to what was known before.
//
// # Limits
//
// The whole walk shares one budget. At a limit the walk stops, and the script is
// TooComplex. Both modes refuse such a script if the policy has any rule, because a part
// of it was not examined. limits.go has the numbers. Smaller limits do not stop the walk:
// a word with too many braces, a long loop or too many calls of xargs count as not known,
// and scan gives up after some guesses.
type walker struct {
	findings
	budget
	evaluation
	context
	p *Policy

	scratch, current []part // buffers to make words in
	within           int    // commands around the one looked at, as sudo is in sudo env
	scans            int    // calls of scan under way
	substitutions    int    // substitutions around the place that is walked, itself included
	chroots          int    // calls of chroot around the command looked at
	functions        int    // definitions of functions under way
}

// context says where in the scripts the walker is.
type context struct {
	text  string // of the script that is walked
	base  int    // its offset in the outermost script; -1 if it is the outermost
	depth int
	via   string // how its commands are reached, for the explanation
	shell *shell
}

func newWalker(p *Policy, s *script, root *Node) *walker {
	w := &walker{
		p: p, findings: findings{on: p.on, node: root},
		evaluation: evaluation{sources: []source{{s, -1}}},
		context:    context{text: s.text, base: -1, shell: &shell{roots: s.stmts}},
	}
	if root != nil {
		w.lines = indexLines(s.text)
	}
	return w
}

// script visits a script. The context must be the script's.
func (w *walker) script(s *script) {
	if s.over != nil {
		w.stop(s.over)
		return
	}
	if i := strings.IndexByte(s.text, 0); i >= 0 {
		w.notKnown(opaqueCharacter, w.offset(i), "a NUL, which ends the script or is skipped")
	}
	w.stmts(s.stmts, stream{})
	if s.broken != nil {
		w.notKnown(opaqueParse, w.offset(s.brokenAt), s.broken.Error())
	}
	w.trapsAtEnd()
	for _, f := range w.shell.defined {
		if !f.called && f.opaque != nil {
			w.notKnown(f.opaque.rule, f.opaque.at, f.opaque.reason)
		}
	}
}

// trapsAtEnd visits the traps once more, in the state at the end of the script: a trap for EXIT
// runs there. Each was visited where it is set, so that only a denial is new here.
func (w *walker) trapsAtEnd() {
	traps := w.shell.traps
	w.shell.traps = nil
	w.silently(func() {
		for _, text := range traps {
			w.later("trap", text)
		}
	})
}

func (w *walker) offset(i int) int {
	if w.base >= 0 {
		return w.base
	}
	return i
}

// position returns the offset of a node in the outermost script.
func (w *walker) position(n syntax.Node) int { return w.offset(int(n.Pos().Offset())) }

// source returns the text of a node.
func (w *walker) source(n syntax.Node) string {
	start, end := int(n.Pos().Offset()), int(n.End().Offset())
	if start < 0 || start > end || end > len(w.text) {
		return ""
	}
	return w.text[start:end]
}

// deeper calls f one level of nesting further in.
func (w *walker) deeper(f func()) {
	w.depth++
	if w.depth > maxDepth {
		w.stop(tooDeep)
	} else {
		f()
	}
	w.depth--
}

// maybe calls f to visit what may not run.
func (w *walker) maybe(f func()) {
	sc := w.shell.enter()
	w.deeper(f)
	w.shell.leave(sc)
}

// subshell calls f to visit what runs in a subshell.
func (w *walker) subshell(f func()) {
	sc := w.shell.enter()
	w.deeper(f)
	w.shell.leaveSubshell(sc)
}

// stmts visits a list of statements, each of which may read from in.
func (w *walker) stmts(list []*syntax.Stmt, in stream) {
	for _, s := range list {
		w.stmt(s, in)
		in = in.after(s)
	}
}

func (w *walker) stmt(s *syntax.Stmt, in stream) {
	if !w.step() {
		return
	}
	for _, r := range s.Redirs {
		w.redirect(r)
	}
	in = w.input(s, in)
	if s.Background || s.Coprocess {
		sc := w.shell.enter()
		w.command(s, in)
		w.shell.leaveSubshell(sc)
		return
	}
	w.command(s, in)
}

// redirect visits the commands in a redirection, and looks at the file that it writes to.
func (w *walker) redirect(r *syntax.Redirect) {
	w.nested(r.Word)
	if (r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc) && endsElsewhere(w, r) {
		w.notKnown(opaqueParse, w.position(r), "a here-document that may end elsewhere")
	}
	if r.Hdoc != nil {
		w.quotedOperands(r.Hdoc.Parts)
		w.nested(r.Hdoc)
	}
	if !w.p.watches {
		return
	}
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut, syntax.DplOut:
		w.writes(w.one(r.Word), "a redirection")
	default: // an input
	}
}

func (w *walker) command(s *syntax.Stmt, in stream) {
	switch c := s.Cmd.(type) {
	case nil:
		for _, r := range s.Redirs {
			if r.Hdoc != nil || r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc {
				// In a substitution, bash joins the lines after some of these.
				w.notKnown(opaqueParse, w.position(r), "a here-document of no command")
			}
		}
		w.bareRedirect(s)
	case *syntax.CallExpr:
		w.simple(s, c, in)
	case *syntax.BinaryCmd:
		if c.Op == syntax.AndStmt || c.Op == syntax.OrStmt {
			w.list(c, in)
		} else {
			w.pipeline(c, in)
		}
	case *syntax.DeclClause:
		w.declare(c)
	case *syntax.Block:
		w.deeper(func() { w.stmts(c.Stmts, in) })
	case *syntax.Subshell:
		w.subshell(func() { w.stmts(c.Stmts, in) })
	case *syntax.FuncDecl:
		w.define(c)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			w.deeper(func() { w.reached("time", func() { w.stmt(c.Stmt, in) }) })
		}
	case *syntax.CoprocClause:
		w.subshell(func() { w.reached("coproc", func() { w.stmt(c.Stmt, stream{}) }) })
	default:
		w.compound(s.Cmd, in)
	}
}

// reached calls f to visit commands, and notes how they are reached.
func (w *walker) reached(via string, f func()) {
	old := w.via
	w.via = via
	f()
	w.via = old
}

// nested visits the commands in words and expressions.
func (w *walker) nested(n syntax.Node) {
	if word, ok := n.(*syntax.Word); ok && plainParts(word.Parts) {
		return
	}
	visit([]syntax.Node{n}, func(n syntax.Node, depth int) bool {
		if level := w.depth + depth; level > maxDepth || level == maxDepth && nests(n) {
			w.stop(tooDeep)
		}
		if w.over != nil {
			return false
		}
		w.evaluates = w.evaluates || evaluatesNode(n)
		switch n := n.(type) {
		case *syntax.DblQuoted:
			w.quotedOperands(n.Parts)
		case *syntax.LetClause:
			if splitLet(n) {
				w.notKnown(opaqueParse, w.position(n), "an operator without quotes in "+quote(w.source(n)))
			}
		case *syntax.ParamExp:
			if processSubstitution(n) {
				w.notKnown(opaqueParse, w.position(n), "a process substitution in "+quote(w.source(n)))
			}
		case *syntax.CmdSubst:
			via := "$(…)"
			if n.Backquotes {
				via = "`…`"
			}
			w.substitution(via, depth, n.Stmts, stream{})
			return false
		case *syntax.ProcSubst:
			in := stream{}
			if n.Op == syntax.CmdOut {
				in = stream{set: true, pipe: true, text: unknownText(w.source(n), w.position(n))}
			}
			w.substitution(n.Op.String()+"…)", depth, n.Stmts, in)
			return false
		}
		return true
	})
}

func (w *walker) substitution(via string, depth int, stmts []*syntax.Stmt, in stream) {
	// The outermost substitution looks for these in all within it.
	if w.substitutions++; w.substitutions == 1 && headerHeredoc(stmts) {
		w.notKnown(opaqueParse, w.position(stmts[0]), "a here-document in the condition of a loop in "+via)
	}
	w.depth += depth
	w.subshell(func() { w.reached(via, func() { w.stmts(stmts, in) }) })
	w.depth -= depth
	w.substitutions--
}

// plainParts reports whether the parts of a word can hold no command.
func plainParts(parts []syntax.WordPart) bool {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			if !plainParts(p.Parts) {
				return false
			}
		case *syntax.ParamExp:
			if p.Excl || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Exp != nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}
