package policy

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// visit calls f for the roots and every node below them, parents first and in the order of
// the text. depth is the number of levels of nesting above a node. visit goes below a node
// only if f returns true. Unlike syntax.Walk it does not recurse, because chains of
// operators nest as deep as they are long.
func visit[N syntax.Node](roots []N, f func(n syntax.Node, depth int) bool) {
	type entry struct {
		node  syntax.Node
		depth int
	}
	var stack []entry
	for _, root := range slices.Backward(roots) {
		stack = append(stack, entry{root, 0})
	}
	for len(stack) > 0 {
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !f(e.node, e.depth) {
			continue
		}
		depth := e.depth
		if nests(e.node) {
			depth++
		}
		mark := len(stack)
		children(e.node, func(n syntax.Node) { stack = append(stack, entry{n, depth}) })
		slices.Reverse(stack[mark:])
	}
}

// nests reports whether a node is a level of nesting for maxDepth.
func nests(n syntax.Node) bool {
	switch n.(type) {
	case *syntax.Subshell, *syntax.Block, *syntax.IfClause, *syntax.WhileClause,
		*syntax.ForClause, *syntax.CaseClause, *syntax.FuncDecl, *syntax.TimeClause,
		*syntax.CoprocClause, *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ParamExp,
		*syntax.ArithmExp, *syntax.ArithmCmd, *syntax.ParenArithm, *syntax.UnaryArithm,
		*syntax.TestClause, *syntax.ParenTest, *syntax.UnaryTest:
		return true
	}
	return false
}

func each[N syntax.Node](nodes []N, f func(syntax.Node)) {
	for _, n := range nodes {
		f(n)
	}
}

func children(n syntax.Node, f func(syntax.Node)) {
	if !childrenOfCommand(n, f) && !childrenOfWord(n, f) {
		childrenOfExpression(n, f)
	}
}

func childrenOfCommand(n syntax.Node, f func(syntax.Node)) bool {
	switch n := n.(type) {
	case *syntax.Stmt:
		if n.Cmd != nil {
			f(n.Cmd)
		}
		each(n.Redirs, f)
	case *syntax.Redirect:
		f(n.Word)
		if n.Hdoc != nil {
			f(n.Hdoc)
		}
	case *syntax.CallExpr:
		each(n.Assigns, f)
		each(n.Args, f)
	case *syntax.DeclClause:
		each(n.Args, f)
	case *syntax.Subshell:
		each(n.Stmts, f)
	case *syntax.Block:
		each(n.Stmts, f)
	case *syntax.IfClause:
		// The branches of a statement are not nested in each other.
		for c := n; c != nil; c = c.Else {
			each(c.Cond, f)
			each(c.Then, f)
		}
	case *syntax.WhileClause:
		each(n.Cond, f)
		each(n.Do, f)
	case *syntax.ForClause:
		f(n.Loop)
		each(n.Do, f)
	case *syntax.WordIter:
		each(n.Items, f)
	case *syntax.CaseClause:
		f(n.Word)
		each(n.Items, f)
	case *syntax.CaseItem:
		each(n.Patterns, f)
		each(n.Stmts, f)
	case *syntax.BinaryCmd:
		f(n.X)
		f(n.Y)
	case *syntax.FuncDecl:
		f(n.Body)
	case *syntax.TimeClause:
		if n.Stmt != nil {
			f(n.Stmt)
		}
	case *syntax.CoprocClause:
		if n.Name != nil {
			f(n.Name)
		}
		f(n.Stmt)
	default:
		return false
	}
	return true
}

func childrenOfWord(n syntax.Node, f func(syntax.Node)) bool {
	switch n := n.(type) {
	case *syntax.Assign:
		if n.Index != nil {
			f(n.Index)
		}
		if n.Value != nil {
			f(n.Value)
		}
		if n.Array != nil {
			each(n.Array.Elems, f)
		}
	case *syntax.ArrayElem:
		if n.Index != nil {
			f(n.Index)
		}
		if n.Value != nil {
			f(n.Value)
		}
	case *syntax.Word:
		each(n.Parts, f)
	case *syntax.DblQuoted:
		each(n.Parts, f)
	case *syntax.CmdSubst:
		each(n.Stmts, f)
	case *syntax.ProcSubst:
		each(n.Stmts, f)
	case *syntax.ParamExp:
		childrenOfParam(n, f)
	default:
		return false
	}
	return true
}

func childrenOfParam(n *syntax.ParamExp, f func(syntax.Node)) {
	if n.Index != nil {
		f(n.Index)
	}
	if n.Slice != nil {
		if n.Slice.Offset != nil {
			f(n.Slice.Offset)
		}
		if n.Slice.Length != nil {
			f(n.Slice.Length)
		}
	}
	if n.Repl != nil {
		if n.Repl.Orig != nil {
			f(n.Repl.Orig)
		}
		if n.Repl.With != nil {
			f(n.Repl.With)
		}
	}
	if n.Exp != nil && n.Exp.Word != nil {
		f(n.Exp.Word)
	}
}

func childrenOfExpression(n syntax.Node, f func(syntax.Node)) {
	switch n := n.(type) {
	case *syntax.CStyleLoop:
		for _, x := range []syntax.ArithmExpr{n.Init, n.Cond, n.Post} {
			if x != nil {
				f(x)
			}
		}
	case *syntax.LetClause:
		each(n.Exprs, f)
	case *syntax.ArithmExp:
		if n.X != nil {
			f(n.X)
		}
	case *syntax.ArithmCmd:
		if n.X != nil {
			f(n.X)
		}
	case *syntax.BinaryArithm:
		f(n.X)
		f(n.Y)
	case *syntax.UnaryArithm:
		f(n.X)
	case *syntax.ParenArithm:
		f(n.X)
	case *syntax.TestClause:
		f(n.X)
	case *syntax.BinaryTest:
		f(n.X)
		f(n.Y)
	case *syntax.UnaryTest:
		f(n.X)
	case *syntax.ParenTest:
		f(n.X)
	}
}
