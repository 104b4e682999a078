package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// walker goes through all that a script runs, and through the scripts within it.
type walker struct {
	p   *Policy
	run *budget
	context
	scratch, current []part // to make words in
	within           int    // commands that the one looked at is within, as env is in sudo env
	scans            int    // if not 0, a scan goes on
	quiet            int    // if not 0, what is not known is not said
	denial           *finding
	opaque           *finding
	node             *Node // of the command that is being looked at; nil unless explaining
}

// context is where in all of it the walker is.
type context struct {
	text  string // of the script that is walked
	base  int    // its place in the outermost script; -1 if it is that one
	depth int
	via   string // how its commands are reached
	shell *shell
}

// budget is what is left of a limit for all of a script.
type budget struct {
	lines lineIndex // of the outermost script; nil unless explaining
	steps int
	words int
	bytes int
	over  *limit // set once, and then nothing more is looked at
}

// finding is a place that decides.
type finding struct {
	rule   string
	at     int
	reason string
}

func newWalker(p *Policy, s *script, root *Node) *walker {
	w := &walker{
		p: p, run: &budget{}, node: root,
		context: context{text: s.text, base: -1, shell: &shell{roots: s.stmts}},
	}
	if root != nil {
		w.run.lines = indexLines(s.text)
	}
	return w
}

// script walks a script as a whole; its text is the walker's.
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
	for _, f := range w.shell.defined {
		if !f.called && f.opaque != nil {
			w.notKnown(f.opaque.rule, f.opaque.at, f.opaque.reason)
		}
	}
}

func (w *walker) stop(l *limit) {
	if w.run.over == nil {
		w.run.over = l
	}
}

// wordy counts words, and tells whether to go on.
func (w *walker) wordy(n int) bool {
	w.run.words += n
	if w.run.words > maxArgs {
		w.stop(tooWordy)
	}
	return w.run.over == nil
}

// step counts, and tells whether to go on.
func (w *walker) step() bool {
	w.run.steps++
	if w.run.steps > maxSteps {
		w.stop(tooBusy)
	}
	return w.run.over == nil
}

func (w *walker) offset(i int) int {
	if w.base >= 0 {
		return w.base
	}
	return i
}

// position is where a node is in the outermost script.
func (w *walker) position(n syntax.Node) int { return w.offset(int(n.Pos().Offset())) }

// source is the text of a node.
func (w *walker) source(n syntax.Node) string {
	start, end := int(n.Pos().Offset()), int(n.End().Offset())
	if start < 0 || start > end || end > len(w.text) {
		return ""
	}
	return w.text[start:end]
}

// deny notes that a rule refuses something. It is the first that decides.
func (w *walker) deny(id string, at int, reason string) {
	if !w.p.on[id] {
		return
	}
	if w.denial == nil {
		w.denial = &finding{id, at, reason}
	}
	if w.node != nil && w.node.Verdict != Deny {
		w.node.Verdict, w.node.Rule, w.node.Reason = Deny, id, reason
	}
}

// notKnown notes that something cannot be known.
func (w *walker) notKnown(kind string, at int, reason string) {
	if w.quiet > 0 {
		return
	}
	if w.opaque == nil {
		w.opaque = &finding{kind, at, reason}
	}
	if w.node != nil && w.node.Verdict == Allow {
		w.node.Verdict, w.node.Rule, w.node.Reason = Opaque, kind, reason
	}
}

// deeper walks what is a level further in.
func (w *walker) deeper(f func()) {
	w.depth++
	if w.depth > maxDepth {
		w.stop(tooDeep)
	} else {
		f()
	}
	w.depth--
}

// maybe walks what may not run.
func (w *walker) maybe(f func()) {
	sc := w.shell.enter()
	w.deeper(f)
	w.shell.leave(sc)
}

// subshell walks what runs in a shell of its own.
func (w *walker) subshell(f func()) {
	sc := w.shell.enter()
	w.deeper(f)
	w.shell.leaveSubshell(sc)
}

// stmts walks a list, each of which may read from in.
func (w *walker) stmts(list []*syntax.Stmt, in stream) {
	for _, s := range list {
		w.stmt(s, in)
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

func (w *walker) command(s *syntax.Stmt, in stream) {
	switch c := s.Cmd.(type) {
	case nil:
		w.bareRedirect(s)
	case *syntax.CallExpr:
		w.call(s, c, in)
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

// reached walks commands that are reached in a way to be told.
func (w *walker) reached(via string, f func()) {
	old := w.via
	w.via = via
	f()
	w.via = old
}

// nested walks the commands within words and expressions.
func (w *walker) nested(n syntax.Node) {
	if word, ok := n.(*syntax.Word); ok && plainParts(word.Parts) {
		return
	}
	visit([]syntax.Node{n}, func(n syntax.Node, depth int) bool {
		if level := w.depth + depth; level > maxDepth || level == maxDepth && nests(n) {
			w.stop(tooDeep)
		}
		if w.run.over != nil {
			return false
		}
		switch n := n.(type) {
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
	w.depth += depth
	w.subshell(func() { w.reached(via, func() { w.stmts(stmts, in) }) })
	w.depth -= depth
}

// plainParts tells that no command can be nested in the parts of a word.
func plainParts(parts []syntax.WordPart) bool {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			if !plainParts(p.Parts) {
				return false
			}
		case *syntax.ParamExp:
			if p.Index != nil || p.Slice != nil || p.Repl != nil || p.Exp != nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}
