package policy

import (
	"regexp"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// ReadsArguments reports whether a script refers to its arguments: as $1, "$@", $#, shift,
// a for loop without in, and so on. It looks into the literal text that eval and trap get.
// It does not count the parameters of functions, nor those in a text for another program,
// as in bash -c 'echo $1'.
//
// What a script reads with source, or makes at run time for eval, does not count. If a
// script cannot be parsed to its end, or is beyond a limit, anything that looks like a
// parameter counts.
func ReadsArguments(text string) bool { return readsArguments(text, 0) }

func readsArguments(text string, depth int) bool {
	s := parse(text)
	if (s.over != nil || s.broken != nil || depth > maxDepth) && mentionsArguments().MatchString(text) {
		return true
	}
	if depth > maxDepth {
		return false
	}
	f := &argumentFinder{depth: depth}
	for _, stmt := range s.stmts {
		if f.search(stmt, false); f.found {
			return true
		}
	}
	return false
}

// mentionsArguments matches what may be a reference to an argument, in a text that cannot
// be parsed.
var mentionsArguments = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\$\{?[!#]?[1-9@*#]|\$\{!|BASH_ARG[CV]|\b(shift|getopts|set|for|select)\b|-v\s+["']?[1-9@*]`)
})

// argumentFinder looks for the first reference to a script's arguments.
type argumentFinder struct {
	depth int
	found bool
}

// search looks through a node.
func (f *argumentFinder) search(node syntax.Node, inFunction bool) {
	syntax.Walk(node, func(n syntax.Node) bool {
		if f.found {
			return false
		}
		switch n := n.(type) {
		case *syntax.FuncDecl:
			f.search(n.Body, true)
			return false
		case *syntax.ParamExp:
			f.found = readsParameter(n, inFunction)
		case *syntax.WordIter:
			f.found = !inFunction && !n.InPos.IsValid()
		case *syntax.UnaryTest:
			if w, ok := n.X.(*syntax.Word); ok && n.Op == syntax.TsVarSet && !inFunction {
				name, _ := wordText(w)
				f.found = isArgument(name)
			}
		case *syntax.CallExpr:
			f.found = f.callReads(n.Args, inFunction)
		}
		return !f.found
	})
}

// readsParameter reports whether an expansion expands an argument. ${!name} counts, because
// only the run shows which parameter it expands.
func readsParameter(p *syntax.ParamExp, inFunction bool) bool {
	if p.Param == nil {
		return false
	}
	name := p.Param.Value
	if name == "BASH_ARGV" || name == "BASH_ARGC" { // the script's, in functions too
		return true
	}
	return !inFunction && (isArgument(name) || p.Excl && p.Names == 0 && p.Index == nil)
}

// isArgument reports whether a parameter is an argument, all of them, or their number.
func isArgument(name string) bool {
	return name == "@" || name == "*" || name == "#" || name != "" && name != "0" && strings.Trim(name, "0123456789") == ""
}

// callReads reports whether a builtin reads arguments without naming them.
func (f *argumentFinder) callReads(words []*syntax.Word, inFunction bool) bool {
	args := make([]string, len(words))
	literal := make([]bool, len(words))
	for i, w := range words {
		args[i], literal[i] = wordText(w)
	}
	for len(args) > 0 && literal[0] && (args[0] == "command" || args[0] == "builtin") {
		args, literal = args[1:], literal[1:]
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			args, literal = args[1:], literal[1:]
		}
	}
	if len(args) == 0 || !literal[0] {
		return false
	}
	name, rest := args[0], args[1:]
	switch name {
	case "shift":
		return !inFunction
	case "getopts":
		return !inFunction && len(rest) < 3 // with more it reads those words
	case "set":
		return !inFunction && setsArguments(rest, literal[1:])
	case "test", "[":
		for i, arg := range rest {
			if arg == "-v" && i+1 < len(rest) && isArgument(rest[i+1]) {
				return !inFunction
			}
		}
	case "eval":
		return !inFunction && readsArguments(strings.Join(rest, " "), f.depth+1)
	case "trap": // what a function sets runs outside of it
		for _, arg := range rest {
			if !strings.HasPrefix(arg, "-") {
				return readsArguments(arg, f.depth+1)
			}
		}
	}
	return false
}

// setsArguments reports whether set is given arguments, and not only options.
func setsArguments(args []string, literal []bool) bool {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case !literal[i], arg == "--", arg == "-":
			return true
		case len(arg) < 2 || arg[0] != '-' && arg[0] != '+':
			return true
		case strings.HasSuffix(arg, "o"):
			i++ // an option's name
		}
	}
	return false
}

// wordText returns the text of a word, and whether all of it is known.
func wordText(w *syntax.Word) (string, bool) {
	text := literalText(w)
	return text, !strings.Contains(text, madeAtRunTime)
}
