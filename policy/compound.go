package policy

import (
	"mvdan.cc/sh/v3/syntax"
)

// compound visits conditions, loops and expressions.
func (w *walker) compound(c syntax.Command, in stream) {
	switch c := c.(type) {
	case *syntax.IfClause:
		fork := w.shell.fork()
		for ; c != nil; c = c.Else {
			w.maybe(func() {
				w.stmts(c.Cond, in)
				in = in.rest(len(c.Cond) > 0)
				w.stmts(c.Then, in)
			})
			fork.next(w.shell)
		}
		fork.join(w.shell)
	case *syntax.WhileClause:
		w.maybe(func() {
			// A second round finds what the first has left of the input.
			in = in.rest(true)
			w.stmts(c.Cond, in)
			w.stmts(c.Do, in)
		})
	case *syntax.ForClause:
		w.loop(c, in)
	case *syntax.CaseClause:
		w.nested(c.Word)
		fork := w.shell.fork()
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				w.nested(p)
			}
			w.maybe(func() { w.stmts(item.Stmts, in) })
			fork.next(w.shell)
		}
		w.fallthroughs(c.Items, in)
		fork.next(w.shell)
		fork.join(w.shell)
	default: // arithmetic, tests and let: only what is nested in them runs
		w.nested(c)
	}
}

// fallthroughs visits again the branches of case that ;& and ;;& join: the second sees what
// the first has done. Each was visited by itself, so that only a denial is new here.
func (w *walker) fallthroughs(items []*syntax.CaseItem, in stream) {
	for i := 0; i < len(items); i++ {
		last := i
		for last+1 < len(items) && items[last].Op != syntax.Break {
			last++
		}
		if last == i {
			continue
		}
		w.silently(func() {
			w.maybe(func() {
				for _, item := range items[i : last+1] {
					w.stmts(item.Stmts, in.rest(true))
				}
			})
		})
		i = last
	}
}

// list visits a && b || c && d. What follows && sees all that was before it in the list,
// except for what is between it and the last ||: in the example, d does not see c.
func (w *walker) list(b *syntax.BinaryCmd, in stream) {
	links := chain(b)
	w.stmt(links[0].stmt, in)
	in = in.after(links[0].stmt)
	all := w.shell.enter()
	for _, l := range links[1:] {
		if l.op == syntax.OrStmt {
			// If cd was the command that failed, the directory is the one before.
			fork := branches{dir: all.dir, args: w.shell.args, argsKnown: w.shell.argsKnown, argsSet: w.shell.argsSet}
			w.shell.leave(all)
			fork.next(w.shell)
			w.stmt(l.stmt, in)
			in = in.after(l.stmt)
			w.shell.leave(all)
			fork.join(w.shell)
			all = w.shell.enter()
			all.dir = fork.dir
			continue
		}
		w.stmt(l.stmt, in)
		in = in.after(l.stmt)
	}
	w.shell.leave(all)
}

// pipeline visits a | b | c.
func (w *walker) pipeline(b *syntax.BinaryCmd, in stream) {
	links := chain(b)
	prev := make([]stream, len(links)) // what each reads
	for i, l := range links {
		prev[i] = in
		sc := w.shell.enter()
		if _, ok := l.stmt.Cmd.(*syntax.TimeClause); ok && i > 0 {
			w.timeProgram(l.stmt)
		}
		w.stmt(l.stmt, in)
		w.shell.leaveSubshell(sc)
		in = stream{set: true, pipe: true, stmt: l.stmt, prev: &prev[i]}
	}
}

// timeProgram records time as a program. After a pipe, bash runs the program; elsewhere,
// time is a reserved word.
func (w *walker) timeProgram(s *syntax.Stmt) {
	node := w.node
	source := w.source(s)
	w.record(w.via, []arg{lit("time", w.position(s)), {text: source, parts: []part{{kind: split, text: source}}}})
	w.node = node
}

// link is a statement of a chain, with the operator before it.
type link struct {
	stmt *syntax.Stmt
	op   syntax.BinCmdOperator
}

// chain returns the statements that one kind of operator joins. It does not recurse: the
// tree nests to the left as deep as the chain is long.
func chain(b *syntax.BinaryCmd) []link {
	list := b.Op == syntax.AndStmt || b.Op == syntax.OrStmt
	left := func(b *syntax.BinaryCmd) *syntax.BinaryCmd {
		x, ok := b.X.Cmd.(*syntax.BinaryCmd)
		if !ok || (x.Op == syntax.AndStmt || x.Op == syntax.OrStmt) != list || len(b.X.Redirs) > 0 {
			return nil
		}
		return x
	}
	n := 2
	for x := left(b); x != nil; x = left(x) {
		n++
	}
	links := make([]link, n)
	for x := b; x != nil; x = left(x) {
		n--
		links[n] = link{x.Y, x.Op}
		links[0].stmt = x.X
	}
	return links
}

// loop visits for and select. If the words are few and known, it visits the body for each
// of them.
func (w *walker) loop(c *syntax.ForClause, in stream) {
	iter, ok := c.Loop.(*syntax.WordIter)
	if !ok {
		w.nested(c.Loop)
		w.maybe(func() { w.stmts(c.Do, in) })
		return
	}
	in = in.rest(true)
	var items []arg
	known := !c.Select && iter.InPos.IsValid()
	for _, word := range iter.Items {
		w.nested(word)
		items = w.fields(items, word)
	}
	for _, a := range items {
		known = known && a.known() && !a.isPattern()
	}
	const most, nested = 8, 2 // words, and levels of such loops
	if !known || len(items) == 0 || len(items) > most || w.shell.loops >= nested {
		w.maybe(func() { w.stmts(c.Do, in) })
		return
	}
	w.shell.loops++
	for _, a := range items {
		w.maybe(func() {
			w.shell.assign(iter.Name.Value, a)
			w.stmts(c.Do, in)
		})
	}
	w.shell.loops--
}

// define visits the body of a function, and remembers it for its calls.
func (w *walker) define(c *syntax.FuncDecl) {
	if c.Name == nil {
		return
	}
	f := &function{body: c.Body, text: w.text, base: w.base}
	if w.shell.funcs == nil {
		w.shell.funcs = map[string]*function{}
	}
	w.shell.funcs[c.Name.Value] = f
	w.shell.defined = append(w.shell.defined, f)
	f.active = true
	uses, opaque, args, known := w.shell.usesParams, w.opaque, w.shell.args, w.shell.argsKnown
	w.shell.usesParams, w.opaque, w.shell.args, w.shell.argsKnown = false, nil, nil, false
	before := w.shell.usesState
	w.shell.usesState = false
	w.functions++
	w.reached("function "+c.Name.Value, func() {
		w.maybe(func() { w.stmt(c.Body, stream{}) })
	})
	w.functions--
	f.active = false
	f.opaque, f.varies, f.usesState = w.opaque, w.shell.usesParams || w.opaque != nil, w.shell.usesState
	f.state = w.shell.state()
	w.shell.usesParams, w.opaque, w.shell.args, w.shell.argsKnown = uses, opaque, args, known
	w.shell.usesState = before || f.usesState
}

// callFunction visits a function with the arguments of a call.
func (w *walker) callFunction(f *function, args []arg, in stream) {
	f.called = true
	w.shell.usesState = w.shell.usesState || f.usesState
	if f.active || !f.varies && !in.set && (!f.usesState || f.state == w.shell.state()) {
		return
	}
	f.active = true
	old, sh := w.context, w.shell
	params, known := sh.args, sh.argsKnown
	w.text, w.base = f.text, f.base
	sh.args, sh.argsKnown = args[1:], true
	f.state = sh.state()
	w.reached("function "+args[0].text, func() {
		w.maybe(func() { w.stmt(f.body, in) })
	})
	sh.args, sh.argsKnown = params, known
	w.context = old
	f.active = false
}
