package agent

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxbash/sandboxbash/tool"
)

// effect is what a command may do to the state of its shell that the next command gets.
// A command never does more than its effect, and may do less.
type effect int

const (
	noEffect effect = iota // the state stays as it is
	changes                // it may export something, or define a function
	replaces               // it may also end without saving its state: by exec, or with its own EXIT trap
)

// changers are the builtins that set variables, options or aliases. replacers are those
// that can run any text, or replace the shell.
var (
	changers = wordSet("alias enable export getopts hash let mapfile printf read readarray set shopt unalias unset wait")
	// command, builtin and others run their arguments.
	replacers = wordSet(". builtin command eval exec source trap")
)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// effectOf finds the effect of a script, and whether it defines functions. A script that
// cannot be parsed may do anything.
func effectOf(script string) (all effect, functions bool) {
	if len(script) > tool.MaxFixup {
		return replaces, true
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return replaces, true
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CallExpr:
			all = max(all, callEffect(n))
		case *syntax.FuncDecl:
			all, functions = max(all, changes), true
		case *syntax.DeclClause, *syntax.LetClause, *syntax.ArithmCmd, *syntax.ArithmExp, *syntax.WordIter, *syntax.CStyleLoop, *syntax.CoprocClause:
			all = max(all, changes)
		case *syntax.ParamExp:
			if n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				all = max(all, changes)
			}
		case *syntax.Redirect:
			if n.N != nil && strings.HasPrefix(n.N.Value, "{") { // {name}>file
				all = max(all, changes)
			}
		}
		return true
	})
	return all, functions
}

func callEffect(c *syntax.CallExpr) effect {
	if len(c.Args) == 0 {
		return changes // assignments alone
	}
	name := c.Args[0].Lit()
	switch {
	case name == "" || strings.ContainsAny(name, `\*?[{~`) || replacers[name]:
		return replaces // the program is not known before it runs
	case changers[name]:
		return changes
	}
	return noEffect
}
