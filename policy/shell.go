package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// shell is what is known of a shell at a point of its script.
type shell struct {
	roots []*syntax.Stmt // the statements that it runs
	names *names         // what roots assign; nil until needed

	// vars are the constant values that were assigned before this point on every way to
	// it. They count only for names that are assigned in one place.
	vars map[string][]part
	set  []string // the names in vars, in the order of their assignments
	// assigned counts all values that were in vars at some time.
	assigned int

	funcs   map[string]*function
	defined []*function // all functions that were in funcs at some time
	aliases map[string]string
	traps   []arg  // the texts of traps, which may run after all of the script
	dir     string // the working directory, cleaned; ~ is home, "" is not known

	zero       arg   // $0, if it was given
	args       []arg // the positional parameters
	argsKnown  bool
	argsSet    bool // set -- has set args
	usesParams bool // a positional parameter was expanded
	usesState  bool // the directory, or a variable or function that was not known yet, was asked for
	loops      int  // loops around this point that are visited once for each word
}

// function is a function that a script defines.
type function struct {
	body   *syntax.Stmt
	text   string // the script that it is a part of
	base   int    // the offset of that script
	varies bool   // what it runs depends on its arguments or on when it is called
	active bool   // it is being visited
	// usesState says that what it runs depends on the state of the shell: see state. It is
	// visited at a call if that is not the state of the last visit.
	usesState bool
	state     shellState
	called    bool     // a call was seen
	opaque    *finding // what is not known when it is defined
}

// names says which names a script assigns.
type names struct {
	count   map[string]int  // places that assign a name
	anyName bool            // a place may assign any name
	funcs   map[string]bool // the functions that the script defines somewhere
}

// setters are the builtins whose arguments may be names to assign.
var setters = set("read mapfile readarray getopts unset printf export readonly declare local typeset let wait builtin command")

func (n *names) survey(stmts []*syntax.Stmt) {
	visit(stmts, func(node syntax.Node, _ int) bool {
		switch node := node.(type) {
		case *syntax.Assign:
			n.assign(node)
		case *syntax.CallExpr:
			n.call(node)
		case *syntax.DeclClause:
			n.anyName = n.anyName || node.Variant.Value == "nameref"
		case *syntax.WordIter:
			n.count[node.Name.Value]++
		case *syntax.FuncDecl:
			if node.Name != nil {
				n.funcs[node.Name.Value] = true
			}
		case *syntax.ParamExp:
			if x := node.Exp; x != nil && node.Param != nil && (x.Op == syntax.AssignUnset || x.Op == syntax.AssignUnsetOrNull) {
				n.count[node.Param.Value]++
			}
		case *syntax.BinaryArithm:
			switch op := node.Op.String(); op {
			case "==", "!=", "<=", ">=":
			default:
				if strings.HasSuffix(op, "=") {
					n.operand(node.X)
				}
			}
		case *syntax.UnaryArithm:
			n.operand(node.X)
		case *syntax.CoprocClause:
			if node.Name != nil {
				n.count[node.Name.Lit()]++
			}
		case *syntax.Redirect:
			if node.N != nil {
				n.count[strings.Trim(node.N.Value, "{}")]++
			}
		}
		return true
	})
}

func (n *names) assign(a *syntax.Assign) {
	switch {
	case a.Name != nil:
		n.count[a.Name.Value]++
	case a.Value.Lit() == "" || strings.HasPrefix(a.Value.Lit(), "-") && strings.Contains(a.Value.Lit(), "n"):
		n.anyName = true // export "$x", declare -n
	}
}

func (n *names) call(c *syntax.CallExpr) {
	if len(c.Args) == 0 {
		return
	}
	name := c.Args[0].Lit()
	switch {
	case name == "eval" || name == "source" || name == ".":
		n.anyName = true
	case name == "shift" || name == "set" && len(c.Args) > 1 && !onlyOptions(c.Args[1:]):
		n.count["@"]++
	case setters[name]:
		for _, w := range c.Args[1:] {
			text := w.Lit()
			if text == "" && name != "printf" {
				n.anyName = true
			}
			text, _, _ = strings.Cut(strings.Trim(text, `"'`), "=")
			n.count[text]++
			if name == "builtin" || name == "command" {
				n.anyName = n.anyName || text == "eval" || text == "source" || text == "."
			}
		}
	}
}

func onlyOptions(words []*syntax.Word) bool {
	for i, w := range words {
		text := w.Lit()
		after := i > 0 && strings.HasSuffix(words[i-1].Lit(), "o") // the name after -o
		if text == "--" || !after && !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "+") {
			return false
		}
	}
	return true
}

func (n *names) operand(x syntax.ArithmExpr) {
	if w, ok := x.(*syntax.Word); ok {
		n.count[w.Lit()]++
	}
}

func (s *shell) surveyed() *names {
	if s.names == nil {
		s.names = &names{count: map[string]int{}, funcs: map[string]bool{}}
		s.names.survey(s.roots)
	}
	return s.names
}

// also adds statements that this shell runs besides its script, by eval for example.
func (s *shell) also(stmts []*syntax.Stmt) {
	s.roots = append(s.roots, stmts...)
	if s.names != nil {
		s.names.survey(stmts)
	}
}

// assigns reports whether the script may set a name.
func (s *shell) assigns(name string) bool { return s.surveyed().count[name] > 0 }

// value returns the value of a variable, if it is constant.
func (s *shell) value(name string) ([]part, bool) {
	v, ok := s.vars[name]
	if s.surveyed().count[name] != 1 {
		return nil, false
	}
	if !ok {
		s.usesState = true // a later call of a function may find it known
		return nil, false
	}
	return v, true
}

// assign notes the value of a variable, if it is constant, until the scope ends.
func (s *shell) assign(name string, value arg) {
	if len(value.text) > maxText || !value.known() || value.isPattern() {
		return
	}
	if s.vars == nil {
		s.vars = map[string][]part{}
	}
	s.vars[name] = value.all()
	s.set = append(s.set, name)
	s.assigned++
}

// shellState stands for what a shell knows of its variables, functions and directory.
type shellState struct {
	assigned int // values that were assigned so far, those since forgotten included
	defined  int // functions that were defined so far
	dir      string
}

func (s *shell) state() shellState { return shellState{s.assigned, len(s.defined), s.dir} }

// scope is what leave compares the state of the shell with: the state at enter.
type scope struct {
	set     int
	dir     string
	argsSet bool
}

func (s *shell) enter() scope { return scope{len(s.set), s.dir, s.argsSet} }

// leave makes unknown what has changed since enter, because the change may not have run.
func (s *shell) leave(sc scope) {
	for _, name := range s.set[sc.set:] {
		delete(s.vars, name)
	}
	s.set = s.set[:sc.set]
	if s.dir != sc.dir {
		s.dir = ""
	}
	if s.argsSet != sc.argsSet {
		s.argsKnown = false
	}
}

// branches is the state that each of several branches begins in.
type branches struct {
	dir       string
	args      []arg
	argsKnown bool
	argsSet   bool
	dirLost   bool // a branch has changed the directory
	argsLost  bool // a branch has changed the parameters
}

func (s *shell) fork() branches {
	return branches{dir: s.dir, args: s.args, argsKnown: s.argsKnown, argsSet: s.argsSet}
}

// next returns to the state at the fork, after a branch.
func (b *branches) next(s *shell) {
	b.dirLost = b.dirLost || s.dir != b.dir
	b.argsLost = b.argsLost || s.argsKnown != b.argsKnown || s.argsSet != b.argsSet
	s.dir, s.args, s.argsKnown, s.argsSet = b.dir, b.args, b.argsKnown, b.argsSet
}

// join forgets what branches have changed, because none of them may have run.
func (b *branches) join(s *shell) {
	if b.dirLost {
		s.dir = ""
	}
	if b.argsLost {
		s.argsKnown = false
	}
}

// leaveSubshell is leave after a subshell, which cannot have changed the directory.
func (s *shell) leaveSubshell(sc scope) {
	s.leave(sc)
	s.dir = sc.dir
}

// params returns the positional parameters. They are known if nothing in the script changes
// them, except for one set --.
func (s *shell) params() ([]arg, bool) {
	changes := s.surveyed().count["@"]
	return s.args, s.argsKnown && (changes == 0 || changes == 1 && s.argsSet)
}

// set returns a set of the words of a text.
func set(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}
