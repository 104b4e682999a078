package tool

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// effect is what a command can do to the shell that it runs in, as far as that is
// to be kept for the next one: at least what it does, maybe more.
type effect int

const (
	noEffect effect = iota // what the next shell sees is as before
	changes                // it may export something, or define a function
	replaces               // it may also end so that nothing is kept: by exec, or a trap of its own
)

// changers are the builtins that set variables, options or aliases; those that may
// run or replace anything are in replacers.
var (
	changers = wordSet("alias enable export getopts hash let mapfile printf read readarray set shopt unalias unset wait")
	// command, builtin and others run what they are told to.
	replacers = wordSet(". builtin command eval exec source trap")
)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// effectOf reads a script. What it cannot read may do anything.
func effectOf(script string) (all effect, functions bool) {
	if len(script) > maxFixup {
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
		return replaces // whatever it turns out to be
	case changers[name]:
		return changes
	}
	return noEffect
}
